//! Random changes to a tree, each small, all of them things that users and programs do.
//!
//! The seed decides everything, the order of directory listings included (they are sorted). A
//! change of content always moves the size or the mtime, because a comparison by size and mtime
//! cannot see one that does not; that case has a test of its own.

use crate::attrs::{self, ACL_ACCESS, ACL_DEFAULT};
use crate::build::random_content;
use crate::names::random_name;
use fastrand::Rng;
use rustix::fs::{FallocateFlags, FileType};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

const PATH_BYTES_MAX: usize = 3000;
const KINDS: [Kind; 7] = [
    Kind::File,
    Kind::Directory,
    Kind::Symlink,
    Kind::Fifo,
    Kind::Socket,
    Kind::Char,
    Kind::Block,
];

/// A type of entry, for making one and for replacing one by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file with content.
    File,
    /// A directory with a file in it.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    Char,
    /// A block device.
    Block,
}

impl Kind {
    /// All types.
    pub const ALL: [Kind; 7] = KINDS;
}

/// Applies `count` random changes below `root`; the root itself only gets new mtimes and modes by
/// accident of its entries.
pub fn mutate(root: &Path, seed: u64, count: usize) {
    let mut mutator = Mutator {
        root: root.to_owned(),
        rng: Rng::with_seed(seed),
    };
    let mut done = 0;
    for _ in 0..count * 50 {
        if done == count {
            return;
        }
        let outcome = mutator.step().or_else(|error| {
            if is_not_supported(&error) {
                Ok(false)
            } else {
                Err(error)
            }
        });
        done +=
            usize::from(outcome.unwrap_or_else(|e| panic!("mutation {done} of seed {seed}: {e}")));
    }
    assert!(
        done > 0,
        "no mutation of seed {seed} applied to {}",
        root.display()
    );
}

/// Attributes where there are none, and directories of an overlay's lower layers, which cannot be
/// renamed.
fn is_not_supported(error: &io::Error) -> bool {
    [Errno::NOTSUP, Errno::XDEV]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Removes whatever has this name.
pub fn remove_any(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => crate::deep::remove_deep(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes a new entry of a kind with content drawn from `rng`.
pub fn make_any(path: &Path, kind: Kind, rng: &mut Rng) -> io::Result<()> {
    let device = (rng.u32(1..200), rng.u32(0..200));
    let size = rng.usize(0..20_000);
    match kind {
        Kind::File => File::create_new(path)?.write_all(&random_content(rng, size)),
        Kind::Directory => {
            fs::create_dir(path)?;
            File::create_new(path.join("inside"))?.write_all(&random_content(rng, size))
        }
        Kind::Symlink => std::os::unix::fs::symlink(format!("target-{}", rng.u32(..)), path),
        Kind::Fifo => attrs::make_node(path, FileType::Fifo, 0, 0),
        Kind::Socket => attrs::make_node(path, FileType::Socket, 0, 0),
        Kind::Char => attrs::make_node(path, FileType::CharacterDevice, device.0, device.1),
        Kind::Block => attrs::make_node(path, FileType::BlockDevice, device.0, device.1),
    }
}

struct Mutator {
    root: PathBuf,
    rng: Rng,
}

impl Mutator {
    /// One change; false if the chosen one does not fit the chosen entry.
    fn step(&mut self) -> io::Result<bool> {
        let all = list_all(&self.root)?;
        let Some(path) = self.rng.choice(&all).cloned() else {
            return self.create(&self.root.clone());
        };
        let other = self
            .rng
            .choice(&all)
            .cloned()
            .unwrap_or_else(|| path.clone());
        match self.rng.u8(0..20) {
            0..3 => self.create(&path),
            3 | 4 => self.write(&path),
            5 => self.resize(&path),
            6 => self.append(&path),
            7 | 8 => self.rename(&path, &other),
            9 => self.link(&path, &other),
            10 => self.unlink(&path),
            11 => self.chmod(&path),
            12 => self.chown(&path),
            13 => self.xattr(&path),
            14 => self.acl(&path),
            15 => self.change_type(&path),
            16 => self.punch(&path),
            17 => self.set_times(&path),
            18 => exchange(&path, &other),
            _ => self.remove_tree(&path),
        }
    }

    /// A new name in the directory that `near` is or is in.
    fn new_name(&mut self, near: &Path) -> io::Result<Option<PathBuf>> {
        let folder = if is_dir(near)? {
            near
        } else {
            near.parent().expect("below the root")
        };
        let path = folder.join(OsStr::from_bytes(&random_name(&mut self.rng)));
        let fits = path.as_os_str().len() < PATH_BYTES_MAX && path.symlink_metadata().is_err();
        Ok(fits.then_some(path))
    }

    fn create(&mut self, near: &Path) -> io::Result<bool> {
        let Some(path) = self.new_name(near)? else {
            return Ok(false);
        };
        let weighted = [
            Kind::File,
            Kind::File,
            Kind::File,
            Kind::Directory,
            Kind::Directory,
        ];
        let kind = if self.rng.bool() {
            weighted[self.rng.usize(..5)]
        } else {
            KINDS[self.rng.usize(..7)]
        };
        make_any(&path, kind, &mut self.rng)?;
        Ok(true)
    }

    fn write(&mut self, path: &Path) -> io::Result<bool> {
        let Some(file) = open_regular(path)? else {
            return Ok(false);
        };
        let at = self.rng.u64(0..file.metadata()?.len() + 1);
        let length = self.rng.usize(1..10_000);
        file.write_all_at(&random_content(&mut self.rng, length), at)?;
        self.maybe_new_mtime(path)
    }

    fn resize(&mut self, path: &Path) -> io::Result<bool> {
        let Some(file) = open_regular(path)? else {
            return Ok(false);
        };
        let size = file.metadata()?.len();
        file.set_len(self.rng.u64(0..size * 2 + 100))?;
        self.maybe_new_mtime(path)
    }

    fn append(&mut self, path: &Path) -> io::Result<bool> {
        let Some(file) = open_regular(path)? else {
            return Ok(false);
        };
        let length = self.rng.usize(1..5000);
        file.write_all_at(
            &random_content(&mut self.rng, length),
            file.metadata()?.len(),
        )?;
        Ok(true)
    }

    fn rename(&mut self, path: &Path, near: &Path) -> io::Result<bool> {
        let Some(to) = self.new_name(near)? else {
            return Ok(false);
        };
        if to.starts_with(path) || longest_below(path)? + to.as_os_str().len() > PATH_BYTES_MAX {
            return Ok(false);
        }
        fs::rename(path, to)?;
        Ok(true)
    }

    fn link(&mut self, path: &Path, near: &Path) -> io::Result<bool> {
        let Some(to) = self.new_name(near)? else {
            return Ok(false);
        };
        if is_dir(path)? {
            return Ok(false);
        }
        fs::hard_link(path, to)?;
        Ok(true)
    }

    fn unlink(&mut self, path: &Path) -> io::Result<bool> {
        if is_dir(path)? {
            return Ok(false);
        }
        fs::remove_file(path)?;
        Ok(true)
    }

    fn chmod(&mut self, path: &Path) -> io::Result<bool> {
        if path.symlink_metadata()?.is_symlink() {
            return Ok(false);
        }
        attrs::set_mode(path, self.rng.u32(0..0o10000))?;
        Ok(true)
    }

    fn chown(&mut self, path: &Path) -> io::Result<bool> {
        attrs::set_owner(path, self.rng.u32(0..200_000), self.rng.u32(0..200_000))?;
        Ok(true)
    }

    fn xattr(&mut self, path: &Path) -> io::Result<bool> {
        let meta = path.symlink_metadata()?;
        let key: &[u8] = if meta.is_file() || meta.is_dir() {
            b"user.changed"
        } else {
            b"trusted.changed"
        };
        if attrs::get_xattr(path, key)?.is_some() && self.rng.bool() {
            attrs::remove_xattr(path, key)?;
        } else {
            let length = self.rng.usize(0..500);
            attrs::set_xattr(path, key, &random_content(&mut self.rng, length))?;
        }
        Ok(true)
    }

    fn acl(&mut self, path: &Path) -> io::Result<bool> {
        let meta = path.symlink_metadata()?;
        if meta.is_symlink() {
            return Ok(false);
        }
        let key = if meta.is_dir() && self.rng.bool() {
            ACL_DEFAULT
        } else {
            ACL_ACCESS
        }
        .as_bytes();
        if attrs::get_xattr(path, key)?.is_some() && self.rng.bool() {
            attrs::remove_xattr(path, key)?;
        } else {
            let blob = attrs::acl_blob((self.rng.u32(1..5000), 4), (self.rng.u32(1..5000), 6), 1);
            attrs::set_xattr(path, key, &blob)?;
        }
        Ok(true)
    }

    fn change_type(&mut self, path: &Path) -> io::Result<bool> {
        let kind = KINDS[self.rng.usize(..KINDS.len())];
        if is_dir(path)? && self.rng.u8(0..3) > 0 {
            return Ok(false);
        }
        remove_any(path)?;
        make_any(path, kind, &mut self.rng)?;
        Ok(true)
    }

    fn punch(&mut self, path: &Path) -> io::Result<bool> {
        let Some(file) = open_regular(path)? else {
            return Ok(false);
        };
        let size = file.metadata()?.len();
        if size < 2 {
            return Ok(false);
        }
        let start = self.rng.u64(0..size - 1);
        let length = self.rng.u64(1..size - start + 1);
        rustix::fs::fallocate(
            &file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            start,
            length,
        )?;
        self.maybe_new_mtime(path)
    }

    /// Some programs set the mtime after writing, often into the past.
    fn maybe_new_mtime(&mut self, path: &Path) -> io::Result<bool> {
        if self.rng.bool() {
            self.set_times(path)
        } else {
            Ok(true)
        }
    }

    fn set_times(&mut self, path: &Path) -> io::Result<bool> {
        attrs::set_mtime(
            path,
            self.rng.i64(1..1_500_000_000),
            self.rng.u32(0..1_000_000_000),
        )?;
        Ok(true)
    }

    fn remove_tree(&mut self, path: &Path) -> io::Result<bool> {
        if !is_dir(path)? || self.rng.u8(0..3) > 0 {
            return Ok(false);
        }
        remove_any(path)?;
        Ok(true)
    }
}

fn exchange(path: &Path, other: &Path) -> io::Result<bool> {
    if path.starts_with(other) || other.starts_with(path) {
        return Ok(false);
    }
    let (here, there) = (longest_below(path)?, longest_below(other)?);
    if here + other.as_os_str().len() > PATH_BYTES_MAX
        || there + path.as_os_str().len() > PATH_BYTES_MAX
    {
        return Ok(false);
    }
    attrs::exchange(path, other)?;
    Ok(true)
}

/// How many bytes the longest path below an entry adds to it.
fn longest_below(path: &Path) -> io::Result<usize> {
    let own = path.as_os_str().len();
    let longest = list_all(path)?
        .iter()
        .map(|below| below.as_os_str().len())
        .max();
    Ok(longest.map_or(0, |longest| longest - own))
}

fn is_dir(path: &Path) -> io::Result<bool> {
    Ok(path.symlink_metadata()?.is_dir())
}

fn open_regular(path: &Path) -> io::Result<Option<File>> {
    let kind = path.symlink_metadata()?.file_type();
    if !kind.is_file() || kind.is_fifo() {
        return Ok(None);
    }
    crate::content::open_to_write(path).map(Some)
}

/// Every path below a directory, in an order that does not depend on the file system; nothing for
/// other entries.
pub fn list_all(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        if !is_dir(&folder)? {
            continue;
        }
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            }
            all.push(entry.path());
        }
    }
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Profile, build_tree};
    use crate::compare::{Options, compare};

    #[test]
    fn the_seed_decides_the_mutations() {
        let folder = crate::scratch::scratch_folder();
        let [a, b, c] = ["a", "b", "c"].map(|name| folder.path().join(name));
        for (path, seed) in [(&a, 1), (&b, 1), (&c, 2)] {
            fs::create_dir(path).expect("root");
            build_tree(path, 9, &Profile::small());
            mutate(path, seed, 100);
        }
        let options = Options {
            mtime: false,
            ..Options::default()
        };
        assert_eq!(compare(&a, &b, &options), Vec::new());
        assert!(compare(&a, &c, &options).len() > 20);
    }
}
