//! Why a file in which something is kept for later cannot be used.

use crate::StoreError;
use crate::mirror::About;
use driftless_model::{escape_text, quote};
use rusqlite::{ErrorCode, ffi};
use std::path::{Path, PathBuf};

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateFile {
    /// The record of a run that movers share.
    Record,
    /// The state of a mirror.
    Mirror,
    /// The state of the agent of a node.
    Watch,
    /// The index of a node of a distribution.
    Holdings,
    /// The table of jobs of gateways.
    Jobs,
}

impl StateFile {
    /// How a person calls the file that is meant.
    fn the(self) -> &'static str {
        match self {
            StateFile::Record => "the record of the run",
            StateFile::Mirror => "the state of the mirror",
            StateFile::Watch => "the state of the watch daemon",
            StateFile::Holdings => "the index of the node",
            StateFile::Jobs => "the table of jobs of the gateway",
        }
    }

    /// How a person calls any file of this kind.
    fn name(self) -> &'static str {
        match self {
            StateFile::Record => "record of a run",
            StateFile::Mirror => "state of a mirror",
            StateFile::Watch => "state of a watch daemon",
            StateFile::Holdings => "index of a node",
            StateFile::Jobs => "table of jobs of a gateway",
        }
    }
}

/// A file of ours that cannot be used. Each names the file and what is wrong; what to do about a file
/// that is wrong itself, the caller knows.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It is no database, or one whose pages or values contradict each other.
    #[error("{}: {} is damaged: {what}", quote(path), file.the())]
    Damaged {
        /// What kind of file it should be.
        file: StateFile,
        /// The file.
        path: PathBuf,
        /// What shows it.
        what: String,
    },
    /// A newer version of driftless wrote it.
    #[error(
        "{}: {} is of a newer version of driftless: layout {found}, supported up to {known}",
        quote(path),
        file.the()
    )]
    Newer {
        /// What kind of file it is.
        file: StateFile,
        /// The file.
        path: PathBuf,
        /// Its layout (`PRAGMA user_version`).
        found: i32,
        /// The newest layout that this version knows.
        known: i32,
    },
    /// It is a database of another program.
    #[error(
        "{}: is not the {}, but a database of another program: {what}",
        quote(path),
        file.name()
    )]
    Foreign {
        /// What kind of file it should be.
        file: StateFile,
        /// The file.
        path: PathBuf,
        /// What shows it.
        what: String,
    },
    /// It is the state of a mirror of other trees.
    #[error(
        "{}: it is the state of a mirror of \"{}\" in \"{}\", and not of \"{}\" in \"{}\"",
        quote(path),
        escape_text(&found.source),
        escape_text(&found.replica),
        escape_text(&wanted.source),
        escape_text(&wanted.replica)
    )]
    OtherTrees {
        /// The file.
        path: PathBuf,
        /// Whose state it is.
        found: Box<About>,
        /// Whose state it should be.
        wanted: Box<About>,
    },
    /// It was to be read only, and has not been made or brought to the newest layout yet.
    #[error(
        "{}: {} is not ready yet; start its mirror or watch daemon with this version of driftless first",
        quote(path),
        file.the()
    )]
    Unready {
        /// What kind of file it is.
        file: StateFile,
        /// The file.
        path: PathBuf,
    },
    /// It cannot be read or written, or not now.
    #[error("{}: cannot keep {}: {cause}{}", quote(path), file.the(), way_out(cause))]
    Failed {
        /// What kind of file it is.
        file: StateFile,
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        cause: StoreError,
    },
}

impl StateError {
    /// Returns whether another process holds the file. A later attempt may succeed.
    pub fn is_busy(&self) -> bool {
        let StateError::Failed { cause, .. } = self else {
            return false;
        };
        let code = cause.sqlite_error_code();
        matches!(
            code,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        )
    }

    /// What SQLite says of the file at `path`.
    pub(crate) fn of(file: StateFile, path: &Path, cause: StoreError) -> StateError {
        let path = path.to_owned();
        match &cause {
            StoreError::SqliteFailure(error, _)
                if matches!(
                    error.code,
                    ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase
                ) =>
            {
                StateError::Damaged {
                    file,
                    path,
                    what: cause.to_string(),
                }
            }
            // A value that none of ours is.
            StoreError::FromSqlConversionFailure(.., why) => StateError::Damaged {
                file,
                path,
                what: why.to_string(),
            },
            StoreError::IntegralValueOutOfRange(..) | StoreError::InvalidColumnType(..) => {
                StateError::Damaged {
                    file,
                    path,
                    what: cause.to_string(),
                }
            }
            _ => StateError::Failed { file, path, cause },
        }
    }

    /// Whether the file itself is wrong, and stays so: it is damaged, of a newer version, or of
    /// another job or program.
    pub fn is_of_the_file(&self) -> bool {
        !matches!(self, StateError::Failed { .. } | StateError::Unready { .. })
    }

    /// Whether driftless wrote it, as far as can be seen, so that it may be dropped when the user
    /// says so.
    pub fn may_be_dropped(&self) -> bool {
        matches!(self, StateError::Damaged { .. } | StateError::Newer { .. })
    }
}

/// Returns what is to be done about a file that cannot be written, as the end of a sentence; nothing
/// where SQLite does not tell what is in the way. On a full file system it may be unable to open or
/// to enlarge the files beside a database.
fn way_out(cause: &StoreError) -> &'static str {
    // sqlite.org/rescode.html, "readonly_dbmoved".
    let moved = |error: &ffi::Error| error.extended_code == ffi::SQLITE_READONLY_DBMOVED;
    if cause.sqlite_error().is_some_and(moved) {
        return ": the file was moved or replaced while it was in use; move it back, or restart this program";
    }
    match cause.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
            "; make room on its file system (df), or see what the kernel says of its disk (dmesg)"
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            "; let this user write to it, on a file system that is not mounted read-only"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwritable_file_is_told_with_what_to_do() {
        const IOERR_SHMSIZE: i32 = ffi::SQLITE_IOERR | (19 << 8);
        for (code, way_out) in [
            (ffi::SQLITE_FULL, "; make room on its file system (df)"),
            (IOERR_SHMSIZE, "; make room on its file system (df)"),
            (ffi::SQLITE_CANTOPEN, "; make room on its file system (df)"),
            (ffi::SQLITE_READONLY, "; let this user write to it"),
            (
                ffi::SQLITE_READONLY_DBMOVED,
                ": the file was moved or replaced",
            ),
            (ffi::SQLITE_CONSTRAINT, ""),
        ] {
            let cause = StoreError::SqliteFailure(ffi::Error::new(code), None);
            let plain = format!("\"f\": cannot keep the state of the mirror: {cause}");
            let told = StateError::of(StateFile::Mirror, Path::new("f"), cause).to_string();
            let rest = told.strip_prefix(&plain).expect(&told);
            assert!(rest.starts_with(way_out), "{told}");
            assert_eq!(rest.is_empty(), way_out.is_empty(), "{told}");
        }
    }
}
