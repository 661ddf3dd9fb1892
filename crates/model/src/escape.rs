//! Bytes and text of others on a terminal or in a log.
//!
//! A name may hold anything but a slash and a NUL, and what another host or program says is its own
//! affair. Neither may move the cursor, begin a line that looks like one of ours, or show letters
//! in another order than they have. What is escaped here is what has no picture of its own: control
//! characters, line ends, and the characters of Unicode that are invisible or turn the direction of
//! writing (UAX #9; general category Cf; Default_Ignorable_Code_Point of
//! DerivedCoreProperties.txt).

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Shows bytes: UTF-8 text as it is, `\n`, `\t`, `\r`, `\"` and `\\` for what these stand for, and
/// `\xNN` for each byte of what has no picture and of what is no UTF-8. Taken back, that gives the
/// same bytes.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for part in bytes.utf8_chunks() {
        for c in part.valid().chars() {
            if matches!(c, '"' | '\\') {
                out.push('\\');
            }
            push_shown(&mut out, c);
        }
        push_bytes(&mut out, part.invalid());
    }
    out
}

/// Shows a path in quotes.
pub fn quote(path: &Path) -> String {
    format!("\"{}\"", escape(path.as_os_str().as_bytes()))
}

/// Shows a sentence that another host or program said, or that holds names already: as [`escape`]
/// does, but for quotes and backslashes.
pub fn escape_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| push_shown(&mut out, c));
    out
}

/// Shows JSON, which leaves as they are some characters that have no picture: in a string of it,
/// `\u` and their number is the same.
pub fn escape_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if has_no_picture(c) {
            c.encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| write!(out, "\\u{unit:04x}").expect("a string takes all"));
        } else {
            out.push(c);
        }
    }
    out
}

fn push_shown(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        c if has_no_picture(c) => push_bytes(out, c.encode_utf8(&mut [0; 4]).as_bytes()),
        c => out.push(c),
    }
}

fn push_bytes(out: &mut String, bytes: &[u8]) {
    bytes
        .iter()
        .for_each(|byte| write!(out, "\\x{byte:02x}").expect("a string takes all"));
}

/// Variation selectors are left alone: they are part of names with emoji, and change no order.
fn has_no_picture(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{180e}'
                | '\u{3164}'
        )
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_foreign_bytes_are_escaped() {
        assert_eq!(
            escape(b"a\n\x1b[2J\xff\"\\\xc2\x9b"),
            "a\\n\\x1b[2J\\xff\\\"\\\\\\xc2\\x9b"
        );
        assert_eq!(escape("grün".as_bytes()), "grün");
        assert_eq!(
            escape("gnp.\u{202e}exe".as_bytes()),
            "gnp.\\xe2\\x80\\xaeexe"
        );
        assert_eq!(
            escape_json("{\"a\":\"\u{9b}\u{202e}ü\u{e0041}\"}"),
            "{\"a\":\"\\u009b\\u202eü\\udb40\\udc41\"}"
        );
        assert_eq!(
            escape_text("\"a\\b\"\n\u{2028}\u{1b}[2J"),
            "\"a\\b\"\\n\\xe2\\x80\\xa8\\x1b[2J"
        );
    }

    /// The bytes that an escaped text stands for, and the characters in it that are shown as they
    /// are.
    fn taken_back(text: &str) -> (Vec<u8>, String) {
        let (mut bytes, mut shown, mut rest) = (Vec::new(), String::new(), text);
        while let Some(c) = rest.chars().next() {
            let mut len = c.len_utf8();
            if c == '\\' {
                let code = rest.as_bytes()[1];
                len = if code == b'x' { 4 } else { 2 };
                bytes.push(match code {
                    b'x' => u8::from_str_radix(&rest[2..4], 16).expect("two digits"),
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    itself => itself,
                });
            } else {
                bytes.extend_from_slice(&rest.as_bytes()[..len]);
                shown.push(c);
            }
            rest = &rest[len..];
        }
        (bytes, shown)
    }

    #[test]
    fn whatever_is_escaped_can_be_taken_back_and_shows_nothing_without_a_picture() {
        const SPECIAL: &str = "\n\t\r\"\\x0f\u{7f}\u{85}\u{61c}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}\u{e0041}ü界";
        let special: Vec<char> = SPECIAL.chars().collect();
        for seed in 0..2000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut bytes = Vec::new();
            for _ in 0..rng.usize(..40) {
                match rng.u8(..3) {
                    0 => bytes.push(rng.u8(..)),
                    1 => bytes.extend(
                        rng.choice(&special)
                            .expect("some")
                            .encode_utf8(&mut [0; 4])
                            .as_bytes(),
                    ),
                    _ => bytes.extend(rng.char(..).encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
            let text = escape(&bytes);
            let (back, shown) = taken_back(&text);
            assert_eq!(back, bytes, "seed {seed}: {text}");
            assert!(
                !text
                    .chars()
                    .any(|c| c.is_control() || "\u{85}\u{61c}\u{feff}".contains(c)),
                "seed {seed}: {text:?}"
            );
            assert!(
                !text.chars().any(|c| ('\u{200b}'..='\u{200f}').contains(&c)
                    || ('\u{2028}'..='\u{202e}').contains(&c)),
                "seed {seed}"
            );
            assert!(
                !text.chars().any(|c| ('\u{2066}'..='\u{2069}').contains(&c))
                    && !shown.contains('"'),
                "seed {seed}: {text:?}"
            );
        }
    }
}
