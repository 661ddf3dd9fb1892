//! The password: from a file that nobody else can read, or from a value that the caller took from
//! the environment.
//!
//! It is never in a URL, an argument, a message or a debug print. The file is read anew for each
//! connection, so that a password can be changed while a job runs.

use crate::Error;
use rustix::fs::{FileType, Mode, OFlags};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest file of credentials.
const FILE_BYTES_MAX: u64 = 4096;
/// Bits of a mode that give a right to group or others.
const OTHERS: u32 = 0o077;

/// Where a password comes from.
#[derive(Debug, Clone)]
pub struct Credentials(Origin);

#[derive(Debug, Clone)]
enum Origin {
    Value(Secret),
    File(PathBuf),
}

/// A text that does not show itself.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Credentials {
    /// A password as it is, such as the value of `DRIFTLESS_QUEUE_PASSWORD`.
    pub fn from_value(password: impl Into<String>) -> Credentials {
        Credentials(Origin::Value(Secret(password.into())))
    }

    /// The password is the one line of the file at `path`.
    ///
    /// # Errors
    /// The file must be a regular one, not a symbolic link, owned by the caller or root, closed to
    /// group and others (`chmod 600`), UTF-8, of one line and at most 4 KiB.
    pub fn from_file(path: impl Into<PathBuf>) -> Result<Credentials, Error> {
        let path = path.into();
        read(&path)?;
        Ok(Credentials(Origin::File(path)))
    }

    /// The password as it is now.
    pub(crate) fn password(&self) -> Result<Secret, Error> {
        match &self.0 {
            Origin::Value(secret) => Ok(secret.clone()),
            Origin::File(path) => read(path),
        }
    }
}

fn read(path: &Path) -> Result<Secret, Error> {
    let bad = |why: String| Error::Credentials {
        path: path.to_owned(),
        why,
    };
    // Not blocking: a fifo in its place must not hang us. What was opened is what is looked at.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|e| bad(format!("cannot open: {}", std::io::Error::from(e))))?;
    let stat = rustix::fs::fstat(&file)
        .map_err(|e| bad(format!("cannot look at it: {}", std::io::Error::from(e))))?;
    trusted(
        stat.st_mode,
        stat.st_uid,
        rustix::process::geteuid().as_raw(),
    )
    .map_err(bad)?;
    let mut text = String::new();
    let mut limited = File::from(file).take(FILE_BYTES_MAX + 1);
    limited
        .read_to_string(&mut text)
        .map_err(|e| bad(format!("cannot read: {e}")))?;
    one_line(text)
        .map(Secret)
        .map_err(|why| bad(why.to_owned()))
}

/// Whether a file of this mode and owner can hold a secret of the user `me`.
fn trusted(mode: u32, owner: u32, me: u32) -> Result<(), String> {
    if FileType::from_raw_mode(mode) != FileType::RegularFile {
        return Err("not a regular file".to_owned());
    }
    if owner != me && owner != 0 {
        return Err(format!("owned by user {owner}: it must be yours or root's"));
    }
    if mode & OTHERS != 0 {
        return Err(format!(
            "mode {:04o} lets others at it: chmod 600 it, and change the password",
            mode & 0o7777
        ));
    }
    Ok(())
}

fn one_line(mut text: String) -> Result<String, &'static str> {
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err("longer than 4 KiB");
    }
    text.truncate(text.trim_end_matches(['\n', '\r']).len());
    match text.as_str() {
        "" => Err("empty"),
        line if line.contains(['\n', '\r', '\0']) => {
            Err("more than one line: it must hold the password alone")
        }
        _ => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_closed_regular_file_of_mine_or_of_root_is_trusted() {
        let regular = 0o100_000;
        assert_eq!(trusted(regular | 0o600, 7, 7), Ok(()));
        assert_eq!(trusted(regular | 0o400, 0, 7), Ok(()));
        for (mode, owner) in [
            (regular | 0o600, 8),
            (regular | 0o640, 7),
            (regular | 0o604, 7),
            (regular | 0o620, 0),
            (0o010_600, 7),
        ] {
            assert!(trusted(mode, owner, 7).is_err(), "{mode:o} {owner}");
        }
    }

    #[test]
    fn a_password_is_one_line() {
        assert_eq!(one_line("a b:c\n".to_owned()), Ok("a b:c".to_owned()));
        for text in ["", "\n", "a\nb", "a\0b"] {
            assert!(one_line(text.to_owned()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_secret_does_not_show_itself() {
        assert!(!format!("{:?}", Credentials::from_value("hunter2")).contains("hunter2"));
    }
}
