//! Names that are not UTF-8, in messages whose text is.
//!
//! Each byte that is no UTF-8 is shown as a character of its own in the private use area, U+EF80
//! for 0x80 to U+EFFF for 0xFF, so that two names never look the same, and no name of the tree that
//! is text looks so by accident. That stand-in is what Sarracenia sees. The bytes travel beside it,
//! with `%NN` for all that is not a letter, a digit or one of `/._-`, and count where they lead to
//! the same stand-in: whoever has changed the visible name has meant it.
//!
//! Python has a stand-in of its own (PEP 383): a lone surrogate, U+DC80 for 0x80 to U+DCFF. In JSON
//! it is the escape `\udcNN`, which is no character.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use std::borrow::Cow;

/// Where the characters for bytes begin: that of a byte is this and the byte.
const STAND_INS: u32 = 0xEF00;

/// What is written as it is beside letters and digits.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'.')
    .remove(b'_')
    .remove(b'-');

/// The name as a message shows it.
pub fn shown(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for part in bytes.utf8_chunks() {
        out.push_str(part.valid());
        out.extend(part.invalid().iter().filter_map(|byte| stand_in(*byte)));
    }
    out
}

/// The bytes of a name that is no UTF-8, as they travel beside it; `None` for one that is.
pub fn escaped(bytes: &[u8]) -> Option<String> {
    match std::str::from_utf8(bytes) {
        Ok(_) => None,
        Err(_) => Some(percent_encode(bytes, ESCAPED).to_string()),
    }
}

/// The bytes of a name from what is shown and, if it is there, from what travels beside it.
pub fn bytes(shown_text: &str, beside: Option<&str>) -> Vec<u8> {
    let told = beside.map(|text| percent_decode_str(text).collect::<Vec<u8>>());
    told.filter(|bytes| shown(bytes) == shown_text)
        .unwrap_or_else(|| shown_text.as_bytes().to_vec())
}

fn stand_in(byte: u8) -> Option<char> {
    char::from_u32(STAND_INS + u32::from(byte))
}

/// The bytes of a text in which stand-ins are those of [`mended`].
pub fn without_stand_ins(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        match u32::from(c).checked_sub(STAND_INS).map(u8::try_from) {
            Some(Ok(byte)) if byte >= 0x80 => out.push(byte),
            _ => out.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}

/// JSON in which Python's lone surrogates are stand-ins of ours, so that it can be read; as it was
/// if there are none.
pub fn mended(json: &[u8]) -> Cow<'_, [u8]> {
    let mut out: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(step) = json[at..].iter().position(|byte| *byte == b'\\') {
        at += step;
        let unit = |at: usize| unit(json.get(at..at + 6)?);
        match unit(at) {
            // The first half of a character; the second belongs to it.
            Some(0xD800..=0xDBFF) if unit(at + 6).is_some() => at += 12,
            Some(0xDC80..=0xDCFF) => {
                let mended = out.get_or_insert_with(|| json.to_vec());
                mended[at + 2..at + 4].copy_from_slice(b"ef");
                at += 6;
            }
            Some(_) => at += 6,
            None => at += 2,
        }
        if at >= json.len() {
            break;
        }
    }
    out.map_or(Cow::Borrowed(json), Cow::Owned)
}

/// The number in an escape `\uNNNN`.
fn unit(escape: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(escape.strip_prefix(b"\\u")?).ok()?;
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_plain.then(|| u32::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_as_it_is_and_has_nothing_beside_it() {
        for text in ["a/b c", "grün/界", "a#b%41\n", "\u{ef80}"] {
            assert_eq!(shown(text.as_bytes()), text);
            assert_eq!(escaped(text.as_bytes()), None);
            assert_eq!(bytes(text, None), text.as_bytes());
        }
    }

    #[test]
    fn bytes_that_are_no_text_have_stand_ins_and_come_back() {
        let name = b"a \xff/\xc3(\x80";
        assert_eq!(shown(name), "a \u{efff}/\u{efc3}(\u{ef80}");
        assert_eq!(escaped(name).as_deref(), Some("a%20%FF/%C3%28%80"));
        assert_eq!(bytes(&shown(name), escaped(name).as_deref()), name);
    }

    #[test]
    fn bytes_that_lead_to_another_stand_in_do_not_count() {
        for beside in ["%FE", "b", "", "%", "%2E%2E/%2E%2E/etc"] {
            assert_eq!(bytes("a\u{efff}", Some(beside)), "a\u{efff}".as_bytes());
        }
    }

    #[test]
    fn random_bytes_come_back_and_no_two_look_the_same() {
        for seed in 0..5000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut name = || -> Vec<u8> { (0..rng.usize(..12)).map(|_| rng.u8(..)).collect() };
            let (one, other) = (name(), name());
            let beside = escaped(&one);
            assert_eq!(bytes(&shown(&one), beside.as_deref()), one, "seed {seed}");
            let is_same = (shown(&one), &beside) == (shown(&other), &escaped(&other));
            assert_eq!(is_same, one == other, "seed {seed}");
        }
    }

    #[test]
    fn lone_surrogates_of_python_are_bytes() {
        let cases: [(&[u8], &[u8]); 6] = [
            (br#""a\udcff""#, br#""a\uefff""#),
            (br#""\uDC80\udcff.""#, br#""\uef80\uefff.""#),
            // A pair is a character.
            (br#""\ud83d\udc80""#, br#""\ud83d\udc80""#),
            (br#""\\udcff""#, br#""\\udcff""#),
            (br#""\udc7f""#, br#""\udc7f""#),
            (br#""\udcf"#, br#""\udcf"#),
        ];
        for (json, expected) in cases {
            assert_eq!(*mended(json), *expected, "{}", json.escape_ascii());
        }
        assert_eq!(
            without_stand_ins("a\u{efff}\u{ef7f}ü"),
            [b"a\xff", "\u{ef7f}ü".as_bytes()].concat()
        );
    }
}
