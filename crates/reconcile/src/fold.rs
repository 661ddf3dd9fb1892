//! Names that some file system takes for one: they differ in case (ext4 and f2fs with `+F`, FAT, NTFS, SMB) or in Unicode form (ZFS
//! with `normalization`, APFS over SMB).
//!
//! Each file system has a table of its own, so equal folds only say where to look; the inodes decide.

use std::borrow::Cow;
use unicode_normalization::UnicodeNormalization;

/// What two names have in common that differ in case or Unicode form alone. Bytes that are not UTF-8 have no case but that of ASCII.
pub fn fold(name: &[u8]) -> Cow<'_, [u8]> {
    if name.is_ascii() {
        let is_folded = !name.iter().any(u8::is_ascii_uppercase);
        return if is_folded { name.into() } else { name.to_ascii_lowercase().into() };
    }
    let Ok(text) = std::str::from_utf8(name) else { return name.to_ascii_lowercase().into() };
    // Upper case first: it makes one of letters that have several small forms.
    let folded = text.nfd().flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfd();
    folded.collect::<String>().into_bytes().into()
}

/// Of `count` names, those that fold to the same as an earlier one: the number of the first, and that of the later one.
pub fn alike<'n>(count: usize, name: impl Fn(usize) -> &'n [u8]) -> Vec<(usize, usize)> {
    let mut hashes: Vec<(u64, usize)> = (0..count).map(|number| (fold_hash(name(number)), number)).collect();
    hashes.sort_unstable();
    let is_same = |a: &(u64, usize), b: &(u64, usize)| a.0 == b.0;
    let mut pairs = Vec::new();
    for group in hashes.chunk_by(is_same).filter(|group| group.len() > 1) {
        for (at, (_, later)) in group.iter().enumerate() {
            let folded = fold(name(*later));
            let first = group[..at].iter().find(|(_, earlier)| fold(name(*earlier)) == folded);
            pairs.extend(first.map(|(_, first)| (*first, *later)));
        }
    }
    pairs
}

/// The 64-bit FNV-1a hash of a folded name. Most names are ASCII, and nothing is allocated for them.
fn fold_hash(name: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    match name.is_ascii() {
        true => name.iter().map(u8::to_ascii_lowercase).fold(OFFSET, add),
        false => fold(name).iter().copied().fold(OFFSET, add),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_case_or_form_alone_fold_to_the_same() {
        let same = [("README", "readme"), ("Ünder", "u\u{308}NDER"), ("Straße", "STRASSE"), ("ΟΔΟΣ", "οδος"), ("\u{212a}", "k")];
        for (a, b) in same {
            assert_eq!(fold(a.as_bytes()), fold(b.as_bytes()), "{a} {b}");
            assert_eq!(fold_hash(a.as_bytes()), fold_hash(b.as_bytes()), "{a} {b}");
        }
        assert_ne!(fold(b"a"), fold(b"b"));
        assert_ne!(fold("é".as_bytes()), fold(b"e"));
        assert_eq!(fold(b"A\xff"), fold(b"a\xff"));
        assert_ne!(fold(b"a\xfe"), fold(b"a\xff"));
    }

    #[test]
    fn later_names_are_found_with_the_first_of_their_kind() {
        let names: [&[u8]; 6] = [b"FILE", b"File", b"a", b"b", "É".as_bytes(), "e\u{301}".as_bytes()];
        assert_eq!(sorted(alike(names.len(), |number| names[number])), [(0, 1), (4, 5)]);
        let three: [&[u8]; 3] = [b"x", b"X", b"x"];
        assert_eq!(sorted(alike(3, |number| three[number])), [(0, 1), (0, 2)]);
        assert_eq!(alike(0, |_| b"".as_slice()), []);
    }

    fn sorted(mut pairs: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
        pairs.sort_unstable();
        pairs
    }
}
