//! Names that some file system takes for one: they differ in case (ext4 and f2fs with `+F`, FAT,
//! NTFS, SMB), in Unicode form (ZFS with `normalization`, APFS over SMB), or in dots and spaces at
//! their end (FAT, exFAT, SMB).
//!
//! Each file system has a table of its own, so equal folds only say where to look; the inodes
//! decide.

use std::borrow::Cow;
use unicode_normalization::UnicodeNormalization;

/// What two names have in common that differ in case, Unicode form or end alone. Bytes that are not
/// UTF-8 have no case but that of ASCII.
pub fn fold(name: &[u8]) -> Cow<'_, [u8]> {
    let name = without_end(name);
    if name.is_ascii() {
        let is_folded = !name.iter().any(u8::is_ascii_uppercase);
        return if is_folded {
            name.into()
        } else {
            name.to_ascii_lowercase().into()
        };
    }
    let Ok(text) = std::str::from_utf8(name) else {
        return name.to_ascii_lowercase().into();
    };
    // Upper case first: it makes one of letters that have several small forms.
    let folded = text
        .nfd()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .nfd();
    folded.collect::<String>().into_bytes().into()
}

/// In what two names differ that fold to the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Likeness {
    /// In case alone.
    Case,
    /// In Unicode form alone.
    Form,
    /// In dots and spaces at their end alone.
    End,
    /// In several of these.
    Both,
}

/// In what two names differ that fold to the same.
pub fn likeness(a: &[u8], b: &[u8]) -> Likeness {
    match () {
        () if without_case(a) == without_case(b) => Likeness::Case,
        () if without_form(a) == without_form(b) => Likeness::Form,
        () if without_end(a) == without_end(b) => Likeness::End,
        () => Likeness::Both,
    }
}

/// What two names have in common that are like each other in this way.
pub fn without(likeness: Likeness, name: &[u8]) -> Vec<u8> {
    match likeness {
        Likeness::Case => without_case(name),
        Likeness::Form => without_form(name),
        Likeness::End => without_end(name).to_vec(),
        Likeness::Both => fold(name).into_owned(),
    }
}

/// What two names have in common that differ in case alone.
pub fn without_case(name: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(name);
    text.map_or_else(
        |_| name.to_ascii_lowercase(),
        |text| text.to_uppercase().to_lowercase().into_bytes(),
    )
}

/// What two names have in common that differ in Unicode form alone.
pub fn without_form(name: &[u8]) -> Vec<u8> {
    std::str::from_utf8(name).map_or_else(
        |_| name.to_vec(),
        |text| text.nfd().collect::<String>().into_bytes(),
    )
}

/// A name in composed Unicode form.
pub fn composed(name: &[u8]) -> Vec<u8> {
    std::str::from_utf8(name).map_or_else(
        |_| name.to_vec(),
        |text| text.nfc().collect::<String>().into_bytes(),
    )
}

/// What two names have in common that differ in dots and spaces at their end alone.
pub fn without_end(name: &[u8]) -> &[u8] {
    let length = name
        .iter()
        .rposition(|byte| !matches!(byte, b'.' | b' '))
        .map_or(0, |last| last + 1);
    &name[..length]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_fold_to_the_same_differ_in_case_or_form_or_both() {
        let of = |a: &str, b: &str| likeness(a.as_bytes(), b.as_bytes());
        assert_eq!(of("README", "readme"), Likeness::Case);
        assert_eq!(of("Ü", "ü"), Likeness::Case);
        assert_eq!(of("\u{e9}", "e\u{301}"), Likeness::Form);
        assert_eq!(of("\u{e9}", "E\u{301}"), Likeness::Both);
        assert_eq!(likeness(b"A\xff", b"a\xff"), Likeness::Case);
        assert_eq!(of("f", "f. ."), Likeness::End);
        assert_eq!(of("f", "F."), Likeness::Both);
    }

    #[test]
    fn names_that_differ_in_case_or_form_alone_fold_to_the_same() {
        let same = [
            ("README", "readme"),
            ("Ünder", "u\u{308}NDER"),
            ("Straße", "STRASSE"),
            ("ΟΔΟΣ", "οδος"),
            ("\u{212a}", "k"),
        ];
        for (a, b) in same {
            assert_eq!(fold(a.as_bytes()), fold(b.as_bytes()), "{a} {b}");
        }
        assert_eq!(fold(b"A. "), fold(b"a"));
        assert_ne!(fold(b"a"), fold(b"b"));
        assert_ne!(fold("é".as_bytes()), fold(b"e"));
        assert_eq!(fold(b"A\xff"), fold(b"a\xff"));
        assert_ne!(fold(b"a\xfe"), fold(b"a\xff"));
    }
}
