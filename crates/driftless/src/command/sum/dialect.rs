//! What the beginning of a list of sums tells of all of it: with which function it was made.
//!
//! A hash of 64 digits may be of BLAKE3 or of SHA-256. Where nobody says which, a file or two of
//! the list do: hashed with each function that has hashes of this length, they agree with one of
//! them, or with none.

use driftless_model::ListForm;
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

/// Finds out from the first bytes of a list of this form with which function it was made; the last
/// line of them may be cut off. Returns `None` if it is the usual one.
pub fn algorithm_of(form: ListForm, first: &[u8]) -> Option<Algorithm> {
    let mut lines: Vec<&[u8]> = first.split(|byte| *byte == b'\n').collect();
    lines.pop();
    let listed = (1..)
        .zip(lines)
        .map(|(number, line)| form.line(number, line))
        .filter_map(|line| parse_line(line).ok().flatten());
    found_out(listed.filter(|line| line.algorithm.is_none() && line.range.is_none()))
}

/// Returns the path that a line names, if it names one.
pub fn named(line: &[u8]) -> Option<PathBuf> {
    Some(path_of(parse_line(line).ok()??.name))
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
