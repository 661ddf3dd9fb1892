//! The home of a user: finished deposits under their names, and a draft beside them for each one that
//! is being made.
//!
//! A deposit `NAME` is made in the folder `.put-NAME`, together with a file `.lock` and a file
//! `.origin`, and renamed when it is complete. So a job never finds half of it. A draft whose process
//! was killed stays. The next draft of the same origin continues it; any other draft removes it, but
//! never one whose lock is held.

use crate::DepositError;
use crate::area::{HOME_MODE, OTHERS, check_mode, check_owner};
use crate::draft::{DRAFT, DRAFT_FILES, DepositDraft, draft_of, remove_without_draft, take};
use crate::folder::HomeFolder;
use crate::measure::measure;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, open, statat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Longest name of a deposit in bytes (limits.h, `NAME_MAX`, without the begin of a draft).
const NAME_BYTES_MAX: usize = 255 - DRAFT.len();

/// Open home of the user of this process.
#[derive(Debug, Clone)]
pub struct DepositHome {
    folder: HomeFolder,
}

/// A deposit, or a draft that no process finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deposit {
    /// Name.
    pub name: OsString,
    /// Whether it is complete. A draft has the size that arrived.
    pub is_complete: bool,
    /// Entries below it.
    pub entries: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Seconds since 1970 of the deposit.
    pub made_seconds: u64,
}

impl DepositHome {
    /// Opens a home that [`DepositArea::home`](crate::DepositArea::home) returned.
    ///
    /// # Errors
    /// The home is missing or no directory, belongs to another user, or is open to other users.
    pub fn open(path: &Path) -> Result<Self, DepositError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = open(path, flags, Mode::empty());
        let folder = folder.map_err(DepositError::call(path, "open the directory"))?;
        let meta = fstat(&folder).map_err(DepositError::call(path, "read its attributes"))?;
        check_owner(path, &meta, rustix::process::geteuid().as_raw())?;
        check_mode(path, &meta, (OTHERS, HOME_MODE))?;
        Ok(DepositHome {
            folder: HomeFolder::new(folder, path),
        })
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Begins a deposit, or continues the draft of the same `origin`. Drafts of other names, and of
    /// another origin, are removed unless a process makes them. `origin` describes the sources; a
    /// draft without one is never continued.
    ///
    /// # Errors
    /// The name cannot name a deposit; another process makes a deposit of this name; a system call
    /// failed.
    pub fn draft(&self, name: &OsStr, origin: Option<&[u8]>) -> Result<DepositDraft, DepositError> {
        check_deposit_name(name)?;
        for other in self.names(is_draft)? {
            let other = draft_name(&other);
            if other != name
                && let Ok(draft) = take(&self.folder, &other)
            {
                draft.discard()?;
            }
        }
        let draft = take(&self.folder, name)?;
        draft.begin(origin)?;
        Ok(draft)
    }

    /// Returns whether the home has a deposit of this name.
    pub fn has(&self, name: &OsStr) -> bool {
        self.folder.has(name)
    }

    /// Returns deposits and unfinished drafts, sorted by name.
    ///
    /// # Errors
    /// A directory cannot be listed.
    pub fn list(&self) -> Result<Vec<Deposit>, DepositError> {
        let mut deposits = Vec::new();
        for entry in self.names(|name| is_draft(name) || !name.starts_with(b"."))? {
            let path = self.path().join(&entry);
            let meta = match statat(self.folder.handle(), &*entry, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(meta) => meta,
                // It was removed or renamed meanwhile.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(DepositError::call(&path, "read its attributes")(errno)),
            };
            let is_complete = !is_draft(entry.as_bytes());
            let name = match is_complete {
                true => entry.clone(),
                false => draft_name(&entry),
            };
            let skipped: &[&str] = if is_complete { &[] } else { &DRAFT_FILES };
            let size = measure(self.folder.handle(), (&entry, &path), &meta, skipped)?;
            deposits.push(Deposit {
                name,
                is_complete,
                entries: size.entries,
                bytes: size.bytes,
                // A rename sets it on the file systems of Linux: the content has older times.
                made_seconds: u64::try_from(meta.st_ctime).unwrap_or(0),
            });
        }
        deposits.sort_by(|a, b| (&a.name, !a.is_complete).cmp(&(&b.name, !b.is_complete)));
        Ok(deposits)
    }

    /// Removes a deposit and an unfinished draft of this name. The deposit disappears at once; then
    /// its content is removed.
    ///
    /// # Errors
    /// No such deposit; a process makes one of this name; a system call failed.
    pub fn remove(&self, name: &OsStr) -> Result<(), DepositError> {
        check_deposit_name(name)?;
        let has_draft = self.folder.has(&draft_of(name));
        if !self.has(name) && !has_draft {
            return Err(DepositError::Missing(self.path().join(name)));
        }
        let draft = match take(&self.folder, name) {
            Err(error) if error.is_full() && self.has(name) => {
                return remove_without_draft(&self.folder, name);
            }
            draft => draft?,
        };
        draft.begin(None)?;
        draft.withdraw()?;
        draft.discard()
    }

    /// Returns the names of entries that `is_wanted`.
    fn names(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<OsString>, DepositError> {
        let failed = || DepositError::call(self.path(), "list the directory");
        let mut names = Vec::new();
        for entry in Dir::read_from(self.folder.handle()).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let name = entry.file_name().to_bytes();
            let is_folder = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            if is_wanted(name) && (is_folder || !is_draft(name)) {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        Ok(names)
    }
}

/// Checks that a name can name a deposit.
///
/// # Errors
/// The name is empty or too long, begins with a dot, or contains a slash.
pub fn check_deposit_name(name: &OsStr) -> Result<(), DepositError> {
    let bytes = name.as_bytes();
    let is_good = !bytes.is_empty()
        && bytes.len() <= NAME_BYTES_MAX
        && !bytes.starts_with(b".")
        && !bytes.iter().any(|byte| matches!(byte, b'/' | 0));
    match is_good {
        true => Ok(()),
        false => Err(DepositError::Name(name.to_owned())),
    }
}

/// Returns whether an entry of a home has the name of a draft.
#[must_use]
pub fn is_draft(entry: &[u8]) -> bool {
    entry.len() > DRAFT.len() && entry.starts_with(DRAFT.as_bytes())
}

fn draft_name(entry: &OsStr) -> OsString {
    let bytes = entry.as_bytes().strip_prefix(DRAFT.as_bytes());
    OsString::from_vec(bytes.unwrap_or_default().to_vec())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)]
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    fn home(folder: &Path) -> DepositHome {
        fs::set_permissions(folder, fs::Permissions::from_mode(HOME_MODE)).unwrap();
        DepositHome::open(folder).unwrap()
    }

    fn must(command: &mut Command) {
        assert!(command.status().unwrap().success(), "{command:?}");
    }

    #[test]
    fn deposits_are_removed_from_a_full_disk() {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "nr_inodes=12", "none"]);
        must(mount.arg(folder.path()));
        let home = home(folder.path());
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("closed")).unwrap();
        fs::write(tree.join("closed/file"), "x").unwrap();
        fs::set_permissions(&tree, fs::Permissions::from_mode(0o555)).unwrap();
        fs::write(folder.path().join("one"), "x").unwrap();
        let full = (0..20).find_map(|number| fs::write(tree.join(number.to_string()), "").err());
        assert!(full.is_some(), "the file system is full");
        for name in ["one", "tree"] {
            let filler = || fs::write(folder.path().join("filler"), "");
            let _it_takes_what_the_first_removal_left = filler();
            home.remove(OsStr::new(name)).unwrap();
        }
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "the filler alone: {left:?}");
        drop(left);
        let folder_path = folder.path().to_owned();
        drop(home);
        must(Command::new("umount").arg("-l").arg(folder_path));
    }
}
