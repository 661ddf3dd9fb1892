//! The home of a user on this host, as a place for deposits. `driftless put` uses it directly, or
//! through the program that it started on another host.

use crate::command::put::wire::{DepositRow, PlacedDeposit, PutForm, PutRequest};
use crate::command::reach::Unreached;
use crate::exit::Exit;
use driftless_deposit::{DepositDraft, DepositError, DepositHome};
use driftless_model::{cause, quote};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A place for deposits of this user.
pub trait DepositPlace {
    /// Returns the deposits and the unfinished ones.
    fn list(&mut self) -> Result<Vec<DepositRow>, Unreached>;
    /// Removes a deposit.
    fn remove(&mut self, name: &OsStr) -> Result<(), Unreached>;
    /// Begins a deposit, and returns the path of its content.
    fn begin(&mut self, request: &PutRequest) -> Result<PathBuf, Unreached>;
    /// Appends bytes to the content of a stream.
    fn write(&mut self, data: Vec<u8>) -> Result<(), Unreached>;
    /// Gives the deposit its name.
    fn commit(&mut self) -> Result<PlacedDeposit, Unreached>;
    /// Returns the home, if it is on this host.
    fn home(&self) -> Option<&Path>;
    /// Returns a path of this place in the form `[HOST:]PATH`.
    fn typed(&self, path: &Path) -> PathBuf;
}

/// The home of the user on this host.
pub struct LocalPlace {
    home: DepositHome,
    draft: Option<LocalDraft>,
}

/// Deposit that is being made.
struct LocalDraft {
    draft: DepositDraft,
    replaces: bool,
    /// Content of a stream.
    file: Option<File>,
}

impl LocalPlace {
    /// Asks the gateway for the home.
    pub fn open(socket: &Path) -> Result<Self, Unreached> {
        let home = driftless_gateway::deposits(socket)
            .map_err(|error| (Exit::of_gateway_error(&error), error.to_string()))?;
        Ok(LocalPlace { home, draft: None })
    }

    fn row(&self, deposit: driftless_deposit::Deposit) -> DepositRow {
        DepositRow {
            path: bytes_of(self.home.path().join(&deposit.name)),
            name: deposit.name.into_vec(),
            is_complete: deposit.is_complete,
            entries: deposit.entries,
            bytes: deposit.bytes,
            made: deposit.made_seconds,
        }
    }
}

impl DepositPlace for LocalPlace {
    fn list(&mut self) -> Result<Vec<DepositRow>, Unreached> {
        let deposits = self.home.list().map_err(failed)?;
        Ok(deposits.into_iter().map(|one| self.row(one)).collect())
    }

    fn remove(&mut self, name: &OsStr) -> Result<(), Unreached> {
        self.home.remove(name).map_err(failed)
    }

    fn begin(&mut self, request: &PutRequest) -> Result<PathBuf, Unreached> {
        let name = OsStr::from_bytes(&request.name);
        driftless_deposit::check_deposit_name(name).map_err(failed)?;
        if !request.replaces && self.home.has(name) {
            let path = self.home.path().join(name);
            return Err(failed(DepositError::Exists(path)));
        }
        let draft = self.home.draft(name, request.origin.as_deref());
        let draft = draft.map_err(failed)?;
        let file = match request.form {
            PutForm::Tree => None,
            PutForm::Group => {
                draft.create_directory().map_err(failed)?;
                None
            }
            PutForm::Stream => Some(draft.create_file().map_err(failed)?),
        };
        let path = draft.path();
        self.draft = Some(LocalDraft {
            draft,
            replaces: request.replaces,
            file,
        });
        Ok(path)
    }

    fn write(&mut self, data: Vec<u8>) -> Result<(), Unreached> {
        let Some(LocalDraft {
            file: Some(file),
            draft,
            ..
        }) = &mut self.draft
        else {
            return Err((Exit::Bug, "no deposit takes bytes".into()));
        };
        file.write_all(&data).map_err(|error| {
            let (path, cause) = (quote(&draft.path()), cause(&error));
            let why = format!("{path}: cannot write: {cause}; nothing was deposited");
            let is_full = matches!(
                error.kind(),
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded
            );
            let code = match is_full {
                true => Exit::Problems,
                false => Exit::CouldNotRun,
            };
            (code, why)
        })
    }

    fn commit(&mut self) -> Result<PlacedDeposit, Unreached> {
        let Some(made) = self.draft.take() else {
            return Err((Exit::Bug, "no deposit was begun".into()));
        };
        let committed = made.draft.commit(made.replaces).map_err(failed)?;
        Ok(PlacedDeposit {
            path: bytes_of(committed.path),
            leftover: committed.leftover.map(|error| error.to_string()),
        })
    }

    fn home(&self) -> Option<&Path> {
        Some(self.home.path())
    }

    fn typed(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
}

impl Drop for LocalPlace {
    fn drop(&mut self) {
        // Bytes of a stream cannot be continued. A copy of a tree can.
        if let Some(made) = self.draft.take()
            && made.file.is_some()
        {
            let _the_next_draft_removes_it = made.draft.discard();
        }
    }
}

/// Returns the exit code of an error, and its words with the options of this command.
fn failed(error: DepositError) -> Unreached {
    let remedy = match &error {
        DepositError::Exists(_) => " (--name, --replace, --remove)",
        DepositError::NoExchange(_) => " (--remove)",
        DepositError::Missing(_) => " (--list)",
        _ => "",
    };
    (Exit::of_deposit_error(&error), format!("{error}{remedy}"))
}

fn bytes_of(path: PathBuf) -> Vec<u8> {
    OsString::from(path).into_vec()
}
