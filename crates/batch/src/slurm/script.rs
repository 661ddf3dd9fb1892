//! Job scripts: the options of their `#SBATCH` lines.

use super::options::SbatchLine;
use crate::script::SCRIPT_BYTES_MAX;
use crate::{BatchError, BatchResult};
use rustix::fs::FileType;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

const DIRECTIVE: &str = "#SBATCH";

/// Source of a script.
#[derive(Debug, Clone, Copy)]
pub(super) enum Script<'a> {
    File(&'a OsStr),
    StandardInput,
}

/// Returns the options of a script. `sbatch` stops at the first line that is no comment.
///
/// # Errors
/// [`BatchError::Arguments`] if a quote is not closed, which `sbatch` refuses as well.
pub(super) fn directives(script: &[u8]) -> BatchResult<SbatchLine> {
    let text = String::from_utf8_lossy(script);
    let comments = text.lines().take_while(|line| {
        let line = line.trim_start();
        line.is_empty() || line.starts_with('#')
    });
    let mut words: Vec<OsString> = Vec::new();
    let mut found = SbatchLine::parse(&[], &|_| false);
    for line in comments {
        let Some(rest) = line.strip_prefix(DIRECTIVE) else {
            continue;
        };
        if !rest.starts_with([' ', '\t']) {
            continue;
        }
        let split = shell_words::split(rest).map_err(|_| {
            BatchError::Arguments(format!("sbatch: {line}: a quote is not closed; close it"))
        })?;
        words.clear();
        words.extend(split.into_iter().map(OsString::from));
        let mut line = SbatchLine::parse(&words, &|_| false);
        found.options.append(&mut line.options);
        found.rest.append(&mut line.rest);
    }
    Ok(found)
}

/// Reads the beginning of a script, as the user who submits it. Returns `None` if it is no regular
/// file: reading a pipe would take the script from `sbatch`.
pub(super) fn read_script(script: Script<'_>) -> Option<Vec<u8>> {
    match script {
        Script::File(name) => crate::script::read_script(&found_script(name)?),
        Script::StandardInput => peek(std::io::stdin().as_fd()),
    }
}

/// Reads what follows in an open file. The offset stays where it is, so `sbatch` reads the same.
fn peek(file: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let stat = rustix::fs::fstat(file).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let offset = rustix::fs::tell(file).ok()?;
    let mut bytes = vec![0; usize::try_from(SCRIPT_BYTES_MAX).ok()?];
    let count = rustix::io::pread(file, &mut bytes, offset).ok()?;
    bytes.truncate(count);
    Some(bytes)
}

/// Returns the path of a script: in the working directory, or, without a slash, in the PATH.
#[allow(
    clippy::disallowed_methods,
    reason = "the job script is the user's own file and no part of a tree"
)]
fn found_script(name: &OsStr) -> Option<PathBuf> {
    let here = Path::new(name);
    if here.is_file() {
        return Some(here.to_owned());
    }
    if here.components().count() != 1 {
        return None;
    }
    let folders = std::env::var_os("PATH")?;
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(name));
    paths.find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};

    #[test]
    fn standard_input_is_left_as_it_is() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"first\n#SBATCH -n1\n").unwrap();
        file.seek(SeekFrom::Start(6)).unwrap();
        for _ in 0..2 {
            assert_eq!(peek(file.as_fd()).unwrap(), b"#SBATCH -n1\n");
        }
        let (reader, _writer) = std::io::pipe().unwrap();
        assert_eq!(peek(reader.as_fd()), None);
    }
}
