//! The area of deposits, and the creation of homes in it.
//!
//! Several gateways and servers create homes at the same time, and each may be killed at any moment.
//! So a home is created with a mode of its own, and any later call completes it.

use crate::DepositError;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Dir, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat, mkdirat, openat};
use rustix::io::Errno;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Mode of the area: users enter their homes, and cannot list those of other users.
const AREA_MODE: u32 = 0o711;
/// Mode of a home.
pub(crate) const HOME_MODE: u32 = 0o700;
/// Mode of a home that root created and did not give to its user yet.
const NEW_HOME_MODE: u32 = 0o1700;
/// Mode of directories above the area.
const ABOVE_MODE: u32 = 0o755;
/// Bits of chmod(2).
const MODE_BITS: u32 = 0o7777;
/// Bits that let other users change a directory.
const OTHERS_WRITE: u32 = 0o022;
/// Bits that let other users into a directory. Those of the group include each entry of an ACL
/// (acl(5), "CORRESPONDENCE BETWEEN ACL ENTRIES AND FILE PERMISSION BITS").
pub(crate) const OTHERS: u32 = 0o077;
/// Longest name in bytes (limits.h, `NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;

/// Directory with a home for each user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DepositArea {
    dir: PathBuf,
}

impl DepositArea {
    /// Returns the area at an absolute path. Nothing is created yet.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        DepositArea { dir: dir.into() }
    }

    /// Returns the path of the area.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Creates the area and the home of a user if they are missing, and returns the path of the home.
    /// The area has mode 0711 and belongs to the user of this process. The home has mode 0700 and
    /// belongs to the user `uid` and the group `gid`.
    ///
    /// # Errors
    /// The name cannot name a directory; the process is not root, and `uid` is another user; a
    /// symbolic link or file is in the way; another user owns or can change the area; another user
    /// owns the home or can enter it; a system call failed.
    pub fn home(&self, name: &str, uid: u32, gid: u32) -> Result<PathBuf, DepositError> {
        if !is_home_name(name) {
            return Err(DepositError::UserName(name.to_owned()));
        }
        let own = rustix::process::geteuid();
        if !own.is_root() && own.as_raw() != uid {
            return Err(DepositError::OtherUser(name.to_owned()));
        }
        let area = self.open_area()?;
        let path = self.dir.join(name);
        let (home, _is_new) = open_or_create(&area, Path::new(name), &path, NEW_HOME_MODE)?;
        let meta = fstat(&home).map_err(DepositError::call(&path, "read its attributes"))?;
        let is_unfinished = meta.st_uid == own.as_raw()
            && meta.st_mode & MODE_BITS == NEW_HOME_MODE
            && is_empty(&home, &path)?;
        if is_unfinished {
            finish(&home, &path, (uid, gid))?;
            return Ok(path);
        }
        check_owner(&path, &meta, uid)?;
        check_mode(&path, &meta, (OTHERS, HOME_MODE))?;
        Ok(path)
    }

    /// Opens the area, and creates it if it is missing.
    fn open_area(&self) -> Result<OwnedFd, DepositError> {
        let dir = &self.dir;
        let (Some(above), Some(name)) = (dir.parent(), dir.file_name()) else {
            return Err(DepositError::NoDirectory(dir.clone()));
        };
        let failed = |cause: std::io::Error| {
            let errno = Errno::from_io_error(&cause).unwrap_or(Errno::IO);
            DepositError::call(above, "create the directory")(errno)
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(ABOVE_MODE);
        builder.create(above).map_err(failed)?;
        // The administrator named the path above: symbolic links in it are intended.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = rustix::fs::open(above, flags, Mode::empty())
            .map_err(DepositError::call(above, "open the directory"))?;
        let (area, is_new) = open_or_create(&above, Path::new(name), dir, AREA_MODE)?;
        if is_new {
            // The umask of this process may have removed bits.
            fchmod(&area, Mode::from_raw_mode(AREA_MODE))
                .map_err(DepositError::call(dir, "set its mode"))?;
        }
        let meta = fstat(&area).map_err(DepositError::call(dir, "read its attributes"))?;
        check_owner(dir, &meta, rustix::process::geteuid().as_raw())?;
        check_mode(dir, &meta, (OTHERS_WRITE, AREA_MODE))?;
        Ok(area)
    }
}

/// Returns whether a directory can have the name of a user.
fn is_home_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with('.')
        && !name.contains(['/', '\0'])
}

/// Opens a directory, and creates it if it is missing. Returns whether this call created it.
fn open_or_create(
    above: &OwnedFd,
    name: &Path,
    path: &Path,
    mode: u32,
) -> Result<(OwnedFd, bool), DepositError> {
    let is_new = match mkdirat(above, name, Mode::from_raw_mode(mode)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(DepositError::call(path, "create the directory")(errno)),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = openat(above, name, flags, Mode::empty());
    let directory = open.map_err(DepositError::call(path, "open the directory"))?;
    Ok((directory, is_new))
}

/// Gives a new home to its user.
fn finish(home: &OwnedFd, path: &Path, (uid, gid): (u32, u32)) -> Result<(), DepositError> {
    if rustix::process::geteuid().is_root() {
        let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        fchown(home, owner.0, owner.1).map_err(DepositError::call(path, "set its owner"))?;
    }
    fchmod(home, Mode::from_raw_mode(HOME_MODE)).map_err(DepositError::call(path, "set its mode"))
}

fn is_empty(home: impl AsFd, path: &Path) -> Result<bool, DepositError> {
    let failed = || DepositError::call(path, "list the directory");
    for entry in Dir::read_from(home).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) fn check_owner(path: &Path, meta: &Stat, wanted: u32) -> Result<(), DepositError> {
    match meta.st_uid == wanted {
        true => Ok(()),
        false => Err(DepositError::Owner {
            path: path.to_owned(),
            found: meta.st_uid,
            wanted,
        }),
    }
}

pub(crate) fn check_mode(
    path: &Path,
    meta: &Stat,
    (forbidden, wanted): (u32, u32),
) -> Result<(), DepositError> {
    match meta.st_mode & forbidden {
        0 => Ok(()),
        _ => Err(DepositError::OpenToOthers {
            path: path.to_owned(),
            mode: meta.st_mode & MODE_BITS,
            wanted,
        }),
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "the test looks at the result by paths"
)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    struct TestArea {
        area: DepositArea,
        ids: (u32, u32),
        _folder: tempfile::TempDir,
    }

    impl TestArea {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let ids = match rustix::process::geteuid().as_raw() {
                // Root creates the home of another user.
                0 => (54_321, 54_322),
                own => (own, rustix::process::getegid().as_raw()),
            };
            TestArea {
                area: DepositArea::new(folder.path().join("above/deposits")),
                ids,
                _folder: folder,
            }
        }

        fn home(&self) -> Result<PathBuf, DepositError> {
            self.area.home("alice", self.ids.0, self.ids.1)
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & MODE_BITS
    }

    #[test]
    fn home_belongs_to_its_user_alone() {
        let test = TestArea::new();
        let home = test.home().unwrap();
        assert_eq!(home, test.area.dir().join("alice"));
        let meta = fs::symlink_metadata(&home).unwrap();
        assert_eq!((meta.uid(), meta.gid()), test.ids);
        assert_eq!((mode(&home), mode(test.area.dir())), (0o700, 0o711));
        fs::write(home.join("data"), "x").unwrap();
        assert_eq!(test.home().unwrap(), home, "the home is there already");
        assert!(home.join("data").exists());
    }

    #[test]
    fn later_call_completes_a_home() {
        let test = TestArea::new();
        let home = test.home().unwrap();
        fs::remove_dir(&home).unwrap();
        fs::create_dir(&home).unwrap();
        fs::set_permissions(&home, Permissions::from_mode(NEW_HOME_MODE)).unwrap();
        test.home().unwrap();
        assert_eq!(fs::symlink_metadata(&home).unwrap().uid(), test.ids.0);
        assert_eq!(mode(&home), 0o700);
    }

    #[test]
    fn unsafe_homes_are_refused() {
        let test = TestArea::new();
        let home = test.home().unwrap();
        fs::set_permissions(&home, Permissions::from_mode(0o750)).unwrap();
        let error = test.home().unwrap_err();
        assert!(
            matches!(error, DepositError::OpenToOthers { mode: 0o750, .. }),
            "{error}"
        );
        fs::remove_dir(&home).unwrap();
        symlink(test.area.dir(), &home).unwrap();
        let error = test.home().unwrap_err();
        assert!(matches!(error, DepositError::NoDirectory(_)), "{error}");
        fs::remove_file(&home).unwrap();
        fs::write(&home, "a file").unwrap();
        assert!(matches!(test.home(), Err(DepositError::NoDirectory(_))));
        if rustix::process::geteuid().is_root() {
            fs::remove_file(&home).unwrap();
            fs::create_dir(&home).unwrap();
            let error = test.home().unwrap_err();
            assert!(
                matches!(error, DepositError::Owner { found: 0, .. }),
                "{error}"
            );
        }
    }

    #[test]
    fn unsafe_areas_are_refused() {
        let test = TestArea::new();
        test.home().unwrap();
        fs::set_permissions(test.area.dir(), Permissions::from_mode(0o1777)).unwrap();
        let error = test.home().unwrap_err();
        assert!(
            matches!(error, DepositError::OpenToOthers { mode: 0o1777, .. }),
            "{error}"
        );
        let link = test.area.dir().with_file_name("link");
        symlink(test.area.dir(), &link).unwrap();
        let linked = DepositArea::new(link).home("alice", test.ids.0, test.ids.1);
        assert!(matches!(linked, Err(DepositError::NoDirectory(_))));
    }

    #[test]
    fn names_cannot_leave_the_area() {
        let test = TestArea::new();
        for name in [
            "",
            ".",
            "..",
            ".hidden",
            "a/b",
            "/etc",
            "a\0",
            &"x".repeat(256),
        ] {
            let error = test.area.home(name, test.ids.0, test.ids.1).unwrap_err();
            assert!(matches!(error, DepositError::UserName(_)), "{name}");
        }
        assert!(!test.area.dir().exists());
        if !rustix::process::geteuid().is_root() {
            let other = test.area.home("bob", test.ids.0 + 1, test.ids.1);
            assert!(matches!(other, Err(DepositError::OtherUser(_))));
        }
    }
}
