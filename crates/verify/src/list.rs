//! Lists of sums: one line for each file, as `sha256sum`, `md5sum`, `b3sum` and `xxhsum` write and
//! read them.
//!
//! A line is `HASH  NAME`, `TAG (NAME) = HASH`, or `TAG(NAME)= HASH`, which OpenSSL writes. The programs differ in what they escape in a
//! name, and each gets what it can read. The sum of a range has a form that they do not take for
//! the sum of a file: `HASH@START-END  NAME`.

use crate::algorithm::{Algorithm, Digest};
use crate::lines::{push_escaped, split_mark, unescaped};
use std::ops::Range;

/// One line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The hash.
    pub digest: Digest,
    /// The algorithm, if the line says which.
    pub algorithm: Option<Algorithm>,
    /// The range of bytes that was hashed; `None` if it was the whole file.
    pub range: Option<Range<u64>>,
    /// The name.
    pub name: Vec<u8>,
}

/// Why a line is not one of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// It has another form.
    #[error("no hash and name (\"HASH  NAME\" is expected)")]
    Form,
    /// There is an escape that does not exist.
    #[error("an unknown escape in the name")]
    Escape,
    /// No algorithm has hashes of this length, or the stated one has others.
    #[error("a hash of the wrong length for the algorithm")]
    Length,
}

/// Which bytes of a name are escaped so that the usual program for `algorithm` reads it. coreutils
/// 9 knows all three escapes; b3sum 1.2 does not know `\r`; xxhsum 0.8.1 knows none, so its names
/// are escaped only if they hold a newline, where there is no other way.
fn special(algorithm: Algorithm, name: &[u8]) -> &'static [u8] {
    match algorithm {
        Algorithm::Blake3 => b"\n\\",
        Algorithm::Xxh3 if !name.contains(&b'\n') => b"",
        _ => b"\n\r\\",
    }
}

/// Appends the line for `name`, newline included.
pub fn push_line(
    line: &mut Vec<u8>,
    algorithm: Algorithm,
    digest: &Digest,
    range: Option<&Range<u64>>,
    name: &[u8],
) {
    let special = special(algorithm, name);
    if name.iter().any(|byte| special.contains(byte)) {
        line.push(b'\\');
    }
    line.extend(digest.to_string().into_bytes());
    if let Some(range) = range {
        line.extend(format!("@{}-{}", range.start, range.end).into_bytes());
    }
    line.extend(b"  ");
    push_escaped(line, name, special);
    line.push(b'\n');
}

/// Reads a line, given without its newline; `None` for an empty line or a comment (`#`).
pub fn parse_line(line: &[u8]) -> Result<Option<Line>, BadLine> {
    if line.is_empty() || line[0] == b'#' {
        return Ok(None);
    }
    let (is_escaped, rest) = split_mark(line);
    let mut found = tagged(rest).or_else(|| plain(rest)).ok_or(BadLine::Form)?;
    if is_escaped {
        found.name = unescaped(&found.name).ok_or(BadLine::Escape)?;
    }
    let bytes = found.digest.as_bytes().len();
    let fits = found
        .algorithm
        .map_or(Algorithm::guess(bytes).is_some(), |algorithm| {
            algorithm.digest_bytes() == bytes
        });
    if fits {
        Ok(Some(found))
    } else {
        Err(BadLine::Length)
    }
}

/// `HASH  NAME`, `HASH *NAME`, `HASH@START-END  NAME`.
fn plain(line: &[u8]) -> Option<Line> {
    let blank = line.iter().position(|byte| *byte == b' ')?;
    let (sum, rest) = line.split_at(blank);
    let name = rest
        .strip_prefix(b"  ")
        .or_else(|| rest.strip_prefix(b" *"))
        .filter(|name| !name.is_empty())?;
    let (hex, range) = match sum.iter().position(|byte| *byte == b'@') {
        Some(at) => (&sum[..at], Some(parse_range(&sum[at + 1..])?)),
        None => (sum, None),
    };
    let digest = Digest::from_hex(hex).filter(|_| !hex.is_empty())?;
    Some(Line {
        digest,
        algorithm: None,
        range,
        name: name.to_vec(),
    })
}

fn parse_range(text: &[u8]) -> Option<Range<u64>> {
    let (start, end) = std::str::from_utf8(text).ok()?.split_once('-')?;
    let range = start.parse().ok()?..end.parse().ok()?;
    // An end of `u64::MAX` would stand for the end of the file.
    (range.start <= range.end && range.end < u64::MAX).then_some(range)
}

/// `TAG (NAME) = HASH`, and `TAG(NAME)= HASH` as `openssl dgst` writes it.
fn tagged(line: &[u8]) -> Option<Line> {
    let (algorithm, rest) = Algorithm::ALL.into_iter().find_map(|one| {
        let tags = [Some(one.tag()), openssl_tag(one)];
        let rest = |tag: &str| line.strip_prefix(tag.as_bytes());
        Some((one, tags.into_iter().flatten().find_map(rest)?))
    })?;
    let (rest, between) = match rest.strip_prefix(b" (") {
        Some(rest) => (rest, &b") = "[..]),
        None => (rest.strip_prefix(b"(")?, &b")= "[..]),
    };
    let end = rest
        .windows(between.len())
        .rposition(|part| part == between)?;
    let (name, digest) = (
        &rest[..end],
        Digest::from_hex(&rest[end + between.len()..])?,
    );
    (!name.is_empty()).then(|| Line {
        digest,
        algorithm: Some(algorithm),
        range: None,
        name: name.to_vec(),
    })
}

/// The other name that OpenSSL 3 has for an algorithm (openssl-dgst(1)).
fn openssl_tag(algorithm: Algorithm) -> Option<&'static str> {
    match algorithm {
        Algorithm::Sha256 => Some("SHA2-256"),
        Algorithm::Sha512 => Some("SHA2-512"),
        Algorithm::Blake3 | Algorithm::Md5 | Algorithm::Xxh3 => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::digest_of;

    const NAMES: [&[u8]; 8] = [
        b"a",
        b" a  b",
        b"*a",
        b"a\nb",
        b"\\",
        b"a\r",
        b"\xff\xfe",
        b"a) = 00",
    ];

    #[test]
    fn every_name_is_read_back() {
        for (algorithm, name) in Algorithm::ALL
            .into_iter()
            .flat_map(|algorithm| NAMES.map(|name| (algorithm, name)))
        {
            for range in [None, Some(3..9)] {
                let digest = digest_of(algorithm, name);
                let mut line = Vec::new();
                push_line(&mut line, algorithm, &digest, range.as_ref(), name);
                assert_eq!(line.pop(), Some(b'\n'));
                assert!(!line.contains(&b'\n'));
                let expected = Line {
                    digest,
                    algorithm: None,
                    range: range.clone(),
                    name: name.to_vec(),
                };
                assert_eq!(
                    parse_line(&line),
                    Ok(Some(expected)),
                    "{}",
                    String::from_utf8_lossy(&line)
                );
            }
        }
    }

    #[test]
    fn what_others_write_is_read() {
        let (hex, digest) = ("00".repeat(32), Digest::from_bytes(&[0; 32]).unwrap());
        let name = |line: String| parse_line(line.as_bytes()).unwrap().unwrap();
        assert_eq!(name(format!("{hex} *a b")).name, b"a b");
        assert_eq!(
            name(format!("\\{}  a\\\\\\n", hex.to_uppercase())).name,
            b"a\\\n"
        );
        let tagged = name(format!("SHA256 (a) = b) = {hex}"));
        assert_eq!(
            (tagged.algorithm, tagged.name.as_slice(), tagged.digest),
            (Some(Algorithm::Sha256), &b"a) = b"[..], digest)
        );
        for tag in ["SHA256", "SHA2-256"] {
            let read = name(format!("{tag}(a)= b)= {hex}"));
            let told = (read.algorithm, read.name.as_slice());
            assert_eq!(told, (Some(Algorithm::Sha256), &b"a)= b"[..]));
        }
        assert_eq!(name(format!("\\BLAKE3 (a\\n) = {hex}")).name, b"a\n");
        assert_eq!((parse_line(b""), parse_line(b"# a")), (Ok(None), Ok(None)));
    }

    #[test]
    fn lines_that_are_none_are_refused() {
        let hex = "00".repeat(32);
        let table = [
            ("x".into(), BadLine::Form),
            (format!("{hex} a"), BadLine::Form),
            (format!("{hex}  "), BadLine::Form),
            (format!("SHA256 () = {hex}"), BadLine::Form),
            (format!("{hex}@5-3  a"), BadLine::Form),
            (format!("{hex}@5  a"), BadLine::Form),
            (format!("{hex}@18446744073709551616-3  a"), BadLine::Form),
            (format!("{hex}@0-18446744073709551615  a"), BadLine::Form),
            ("  a".into(), BadLine::Form),
            ("zz  a".into(), BadLine::Form),
            ("0000  a".into(), BadLine::Length),
            (format!("MD5 (a) = {hex}"), BadLine::Length),
            (format!("\\{hex}  a\\x"), BadLine::Escape),
        ];
        for (line, expected) in table {
            assert_eq!(parse_line(line.as_bytes()), Err(expected), "{line}");
        }
    }
}
