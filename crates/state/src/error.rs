//! Why a file in which something is kept for later cannot be used.

use crate::StoreError;
use driftless_model::quote;
use rusqlite::ErrorCode;
use std::path::{Path, PathBuf};

/// A file of ours that cannot be used. Each names the file and what is wrong; what to do about it,
/// the caller knows.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It is no database, or one whose pages or values contradict each other.
    #[error("{}: the record of the run is damaged: {what}", quote(path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What shows it.
        what: String,
    },
    /// A newer version of driftless wrote it.
    #[error(
        "{}: the record of the run is of a newer version of driftless: its layout is {found}, and this one knows layouts up to {known}",
        quote(path)
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its layout (`PRAGMA user_version`).
        found: i32,
        /// The newest layout that this version knows.
        known: i32,
    },
    /// It is a database of another program.
    #[error(
        "{}: it is no record of a run, but a database of another program: {what}",
        quote(path)
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What shows it.
        what: String,
    },
    /// It cannot be read or written, or not now.
    #[error("{}: cannot keep the record of the run: {cause}", quote(path))]
    Failed {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        cause: StoreError,
    },
}

impl StateError {
    /// What SQLite says of the file at `path`.
    pub(crate) fn of(path: &Path, cause: StoreError) -> StateError {
        let path = path.to_owned();
        match &cause {
            StoreError::SqliteFailure(error, _)
                if matches!(
                    error.code,
                    ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase
                ) =>
            {
                StateError::Damaged {
                    path,
                    what: cause.to_string(),
                }
            }
            // A value that none of ours is.
            StoreError::FromSqlConversionFailure(.., why) => StateError::Damaged {
                path,
                what: why.to_string(),
            },
            StoreError::IntegralValueOutOfRange(..) | StoreError::InvalidColumnType(..) => {
                StateError::Damaged {
                    path,
                    what: cause.to_string(),
                }
            }
            _ => StateError::Failed { path, cause },
        }
    }

    /// Whether the file itself is wrong, and stays so: it is damaged, of a newer version, or of
    /// another program.
    pub fn is_of_the_file(&self) -> bool {
        !matches!(self, StateError::Failed { .. })
    }

    /// Whether driftless wrote it, as far as can be seen, so that it may be dropped when the user
    /// says so.
    pub fn may_be_dropped(&self) -> bool {
        matches!(self, StateError::Damaged { .. } | StateError::Newer { .. })
    }
}
