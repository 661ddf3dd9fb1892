//! What stands at a path of a tree, for those who are told of it.
//!
//! No symbolic link is followed below the tree, and nothing is opened but to be looked at
//! (`O_PATH`), so neither a pipe nor a lease holds it up.

use driftless_model::{RelPath, Stamp};
use driftless_sarracenia::{About, Standing};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat, openat2, readlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum There {
    /// What can be announced.
    Standing(Standing),
    /// Another kind of entry: a named pipe, a socket, a device.
    Other,
    /// Nothing.
    Nothing,
    /// It cannot be looked at.
    Hidden,
}

/// An open tree.
#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
    id: (u64, u64),
}

impl Root {
    /// The tree at a path.
    ///
    /// # Errors
    /// No directory is there.
    pub fn open(path: &Path) -> Result<Root, Errno> {
        let dir = open(path, FLAGS | OFlags::DIRECTORY, Mode::empty())?;
        let stat = fstat(&dir)?;
        Ok(Root {
            dir,
            id: (stat.st_dev, stat.st_ino),
        })
    }

    /// Which directory it is: its device and its inode there.
    pub fn id(&self) -> (u64, u64) {
        self.id
    }

    /// What stands at a path of it.
    pub fn look(&self, path: &RelPath) -> There {
        match self.looked(path) {
            Ok(there) => there,
            // Below a link, there is nothing of this tree.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => There::Nothing,
            Err(_) => There::Hidden,
        }
    }

    fn looked(&self, path: &RelPath) -> Result<There, Errno> {
        let found;
        let fd = match path.is_root() {
            true => &self.dir,
            false => {
                found = self.find(path)?;
                &found
            }
        };
        let stat = fstat(fd)?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => There::Standing(Standing::File(about(&stat))),
            FileType::Directory => There::Standing(Standing::Directory(about(&stat))),
            FileType::Symlink => {
                let target = readlinkat(fd, c"", Vec::new())?.into_bytes();
                There::Standing(Standing::Symlink { target })
            }
            _ => There::Other,
        })
    }

    fn find(&self, path: &RelPath) -> Result<OwnedFd, Errno> {
        let text = OsStr::from_bytes(path.as_bytes());
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match openat2(&self.dir, text, FLAGS, Mode::empty(), resolve) {
            // Kernels before 5.6, and those who forbid it.
            Err(Errno::NOSYS | Errno::PERM) => self.walk(path),
            found => found,
        }
    }

    /// The same, name by name.
    fn walk(&self, path: &RelPath) -> Result<OwnedFd, Errno> {
        let (above, last) = path.split_last().ok_or(Errno::INVAL)?;
        let mut dir: Option<OwnedFd> = None;
        for name in above.names() {
            let here = dir.as_ref().unwrap_or(&self.dir);
            let flags = FLAGS | OFlags::DIRECTORY;
            dir = Some(openat(here, OsStr::from_bytes(name), flags, Mode::empty())?);
        }
        let here = dir.as_ref().unwrap_or(&self.dir);
        openat(here.as_fd(), OsStr::from_bytes(last), FLAGS, Mode::empty())
    }
}

fn about(stat: &Stat) -> About {
    let stamp = |sec, nsec: u64| Stamp {
        sec,
        // Not every file system tells less than a second.
        nsec: u32::try_from(nsec).unwrap_or_default().min(999_999_999),
    };
    About {
        size: stat.st_size.cast_unsigned(),
        mode: stat.st_mode & 0o7777,
        mtime: stamp(stat.st_mtime, stat.st_mtime_nsec),
        atime: stamp(stat.st_atime, stat.st_atime_nsec),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "folders of these tests")]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_stands_there_is_told_and_no_link_is_followed() {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/b/f"), "12345").unwrap();
        fs::write(place.path().join("secret"), "1").unwrap();
        symlink("..", tree.join("up")).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(tree.join("socket"));
        let root = Root::open(&tree).unwrap();
        let is_file =
            |there| matches!(there, There::Standing(Standing::File(about)) if about.size == 5);
        assert!(is_file(root.look(&path("a/b/f"))));
        for dir in ["", "a", "a/b"] {
            let there = root.look(&path(dir));
            assert!(matches!(there, There::Standing(Standing::Directory(_))));
        }
        let target = b"..".to_vec();
        let link = There::Standing(Standing::Symlink { target });
        assert_eq!(root.look(&path("up")), link);
        for nothing in ["up/secret", "up/tree/a", "a/b/f/g", "c", "c/d"] {
            assert_eq!(root.look(&path(nothing)), There::Nothing, "{nothing}");
        }
        assert_eq!(root.look(&path(&"n".repeat(300))), There::Nothing);
        assert_eq!(root.look(&path("socket")), There::Other);
        drop(socket);
        for found in ["a/b/f", "up", "a"] {
            let (one, other) = (root.find(&path(found)), root.walk(&path(found)));
            let id = |fd: OwnedFd| fstat(fd).map(|stat| stat.st_ino).unwrap();
            assert_eq!(id(one.unwrap()), id(other.unwrap()), "{found}");
        }
        assert!(root.walk(&path("up/secret")).is_err());
        let one = Root::open(&tree).unwrap();
        assert_eq!(one.id(), root.id());
        fs::rename(&tree, place.path().join("gone")).unwrap();
        assert_eq!(Root::open(&tree).unwrap_err(), Errno::NOENT);
    }
}
