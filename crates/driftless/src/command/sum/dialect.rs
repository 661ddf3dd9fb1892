//! What the beginning of a list of sums tells of all of it: how its lines end, and with which
//! function it was made.
//!
//! A hash of 64 digits may be of BLAKE3 or of SHA-256. Where nobody says which, a file or two of
//! the list do: hashed with each function that has hashes of this length, they agree with one of
//! them, or with none.

use driftless_verify::{Algorithm, Digest, Hasher, Line, parse_line};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Bytes of the largest file that is hashed to find out.
const TRIED_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Files that are hashed to find out.
const TRIED_FILES_MAX: usize = 4;

/// How a list is written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Dialect {
    /// Lines end with a carriage return and a newline.
    pub returns: bool,
    /// The function of the hashes whose lines do not name theirs, if it is not the one that their
    /// length is taken for.
    pub algorithm: Option<Algorithm>,
}

impl Dialect {
    /// What the first bytes of a list tell; the last line of them may be cut off. `stated`: the
    /// user said which function it is.
    pub fn of(first: &[u8], stated: bool) -> Self {
        let mut lines: Vec<&[u8]> = first.split(|byte| *byte == b'\n').collect();
        lines.pop();
        let returns = !lines.is_empty()
            && lines.iter().all(|line| line.ends_with(b"\r"))
            && !are_of_names(&lines);
        let listed = lines
            .iter()
            .map(|line| without_return(line, returns))
            .filter_map(|line| parse_line(line).ok().flatten());
        let unnamed = listed.filter(|line| line.algorithm.is_none() && line.range.is_none());
        Dialect {
            returns,
            algorithm: if stated { None } else { found_out(unnamed) },
        }
    }

    /// A line without the carriage return that ends it in such a list.
    pub fn line<'l>(&self, line: &'l [u8]) -> &'l [u8] {
        without_return(line, self.returns)
    }
}

fn without_return(line: &[u8], returns: bool) -> &[u8] {
    line.strip_suffix(b"\r").filter(|_| returns).unwrap_or(line)
}

/// Whether carriage returns belong to the names that the lines end with: the first such file that
/// is there tells. Some programs write them as they are.
#[allow(
    clippy::disallowed_methods,
    reason = "a file that the user's list names, no part of a replicated tree"
)]
fn are_of_names(lines: &[&[u8]]) -> bool {
    let is_there = |line: &[u8]| {
        parse_line(line)
            .ok()
            .flatten()
            .is_some_and(|line| path_of(line.name).symlink_metadata().is_ok())
    };
    let told = lines
        .iter()
        .take(TRIED_FILES_MAX)
        .map(|line| (is_there(line), is_there(without_return(line, true))));
    told.filter(|(with, without)| with != without)
        .map(|(with, _)| with)
        .next()
        .unwrap_or(false)
}

/// The function that the first listed files agree with; `None` if that is the usual one, or they
/// agree with none.
fn found_out(lines: impl Iterator<Item = Line>) -> Option<Algorithm> {
    for line in lines.take(TRIED_FILES_MAX) {
        let bytes = line.digest.as_bytes().len();
        let usual = Algorithm::guess(bytes)?;
        let others: Vec<Algorithm> = Algorithm::ALL
            .into_iter()
            .filter(|one| one.digest_bytes() == bytes && *one != usual)
            .collect();
        if others.is_empty() {
            continue;
        }
        let path = path_of(line.name);
        let agrees =
            |one: &Algorithm| digest_of_file(&path, *one).is_ok_and(|digest| digest == line.digest);
        if agrees(&usual) {
            return None;
        }
        if let Some(other) = others.into_iter().find(agrees) {
            return Some(other);
        }
    }
    None
}

/// The hash of a listed file that is not too large. What is no regular file is not read.
#[allow(
    clippy::disallowed_methods,
    reason = "a file that the user's list names, no part of a replicated tree"
)]
fn digest_of_file(path: &Path, algorithm: Algorithm) -> io::Result<Digest> {
    let is_fit =
        std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= TRIED_BYTES_MAX);
    if !is_fit {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (mut file, mut hasher, mut buffer) = (
        File::open(path)?,
        Hasher::new(algorithm),
        vec![0; 256 * 1024],
    );
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            length => hasher.update(&buffer[..length]),
        }
    }
}

/// The path that a list names.
pub fn path_of(name: Vec<u8>) -> PathBuf {
    OsString::from_vec(name).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_end_lines_only_where_they_end_all_of_them() {
        let hex = "00".repeat(32);
        for (text, expected) in [
            (format!("{hex}  a\r\n{hex}  b\r\n{hex}"), true),
            (format!("{hex}  a\r\n{hex}  b\n"), false),
            (format!("{hex}  a\n"), false),
            (hex.clone(), false),
        ] {
            assert_eq!(
                Dialect::of(text.as_bytes(), true).returns,
                expected,
                "{text:?}"
            );
        }
    }
}
