//! The user's job script, as the user reads it.
//!
//! Options in a script count as those of the command line do. A script on the standard input is read
//! here, and the command that submits it gets the same bytes.

use crate::{BatchError, BatchResult, JobInput};
use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;

/// Bytes of a script in which options are searched. Slurm refuses larger ones by default
/// (`max_script_size` in slurm.conf(5)).
const SCRIPT_BYTES_MAX: u64 = 4 << 20;
/// Bytes of a script on the standard input. They are kept in memory.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// Reads the begin of a job script. Returns `None` if it is no regular file: reading a pipe would take
/// the script from the command that submits it. That command reports a missing file.
#[allow(
    clippy::disallowed_methods,
    reason = "the job script is the user's own file and no part of a tree"
)]
pub(crate) fn read_script(path: &Path) -> Option<Vec<u8>> {
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(SCRIPT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Returns the message for a script that cannot be read.
pub(crate) fn unreadable(program: &str, script: &OsStr) -> String {
    let shown = driftless_model::quote(Path::new(script));
    format!("{program}: {shown}: cannot read the job script; name a file that you may read")
}

/// Reads the begin of a job script as text, with invalid UTF-8 replaced.
pub(crate) fn script_text(path: &Path) -> Option<String> {
    let bytes = read_script(path)?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads the script on the standard input of `program`.
///
/// # Errors
/// [`BatchError::Arguments`] if it cannot be read, or is too large to be passed on.
pub(crate) fn read_input(input: JobInput<'_>, program: &str) -> BatchResult<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = match input {
        JobInput::Standard => limited(std::io::stdin().lock(), &mut bytes),
        JobInput::Bytes(given) => limited(given, &mut bytes),
    };
    let wrong = |cause: String| {
        let why = format!("{program}: standard input: {cause}; name a script on the command line");
        BatchError::Arguments(why)
    };
    read.map_err(|error| wrong(format!("cannot read: {}", driftless_model::cause(&error))))?;
    match bytes.len() as u64 > INPUT_BYTES_MAX {
        true => Err(wrong("the script has more than 64 MiB".to_owned())),
        false => Ok(bytes),
    }
}

fn limited(input: impl Read, bytes: &mut Vec<u8>) -> std::io::Result<usize> {
    input
        .take(INPUT_BYTES_MAX.saturating_add(1))
        .read_to_end(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_script_on_input_is_refused() {
        let read = |bytes: &[u8]| read_input(JobInput::Bytes(bytes), "sbatch");
        assert_eq!(read(b"#!/bin/sh\n").unwrap(), b"#!/bin/sh\n");
        let error = read(&vec![b' '; (64 << 20) + 1]).unwrap_err().to_string();
        assert!(error.contains("more than 64 MiB"), "{error}");
    }
}
