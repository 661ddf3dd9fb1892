//! Builds hostile trees: a catalogue with one of everything, then random entries on top.
//!
//! The same seed and profile always give the same tree on the same file system. Attributes of files
//! are set when they are made, those of directories last and from the bottom up, so that neither
//! mtimes nor default ACLs nor missing permissions get in the way of what is made inside.

use crate::attrs::{self, ACL_ACCESS, ACL_DEFAULT, CAPABILITY};
use crate::names::random_name;
use fastrand::Rng;
use rustix::fs::FileType;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const DEPTH_MAX: usize = 6;
const MIB: u64 = 1 << 20;
/// XFS keeps 9 bits of a major device number and 18 of a minor one.
const MAJOR_MAX: u32 = 1 << 9;
const MINOR_MAX: u32 = 1 << 18;
const MODES_ROOT: [u32; 12] = [
    0o644, 0o600, 0o755, 0o4755, 0o2755, 0o1777, 0o6711, 0o0000, 0o7777, 0o444, 0o222, 0o640,
];
const MODES_USER: [u32; 6] = [0o644, 0o600, 0o755, 0o4755, 0o444, 0o640];

/// What a tree may hold.
#[derive(Clone, Debug)]
pub struct Profile {
    /// How many random entries come on top of the catalogue.
    pub entries: usize,
    /// One of everything first.
    pub catalogue: bool,
    /// Device nodes (root only).
    pub devices: bool,
    /// The device 0:0, which overlay file systems keep for themselves.
    pub whiteouts: bool,
    /// Entries without any permission, and files their owner cannot read.
    pub unreadable: bool,
    /// Owners other than the one who builds (root only).
    pub owners: bool,
    /// `trusted.*` and `security.capability` (root only).
    pub privileged_xattrs: bool,
    /// Files of some MiB and a sparse one of 1 GiB.
    pub large: bool,
    /// Whom every entry belongs to, unless `owners` makes it another.
    pub owner: Option<(u32, u32)>,
}

impl Profile {
    /// Everything root can make.
    pub fn root() -> Profile {
        Profile {
            entries: 200,
            catalogue: true,
            devices: true,
            whiteouts: true,
            unreadable: true,
            owners: true,
            privileged_xattrs: true,
            large: true,
            owner: None,
        }
    }

    /// What an ordinary user can make, read and copy.
    pub fn user(uid: u32, gid: u32) -> Profile {
        Profile {
            devices: false,
            unreadable: false,
            owners: false,
            privileged_xattrs: false,
            owner: Some((uid, gid)),
            ..Profile::root()
        }
    }

    /// Random entries of every kind, none of them big, without the catalogue.
    pub fn small() -> Profile {
        Profile {
            entries: 150,
            catalogue: false,
            large: false,
            ..Profile::root()
        }
    }
}

/// Fills `root`, which must be an empty directory.
pub fn build_tree(root: &Path, seed: u64, profile: &Profile) {
    let mut builder = TreeBuilder::new(root, seed, profile.clone());
    let made = builder.fill();
    made.unwrap_or_else(|e| {
        panic!(
            "cannot build a tree in {} from seed {seed}: {e}",
            root.display()
        )
    });
}

/// A tree under construction.
pub(crate) struct TreeBuilder {
    pub(crate) root: PathBuf,
    pub(crate) rng: Rng,
    pub(crate) profile: Profile,
    /// Directories with their depth and the attributes they get in the end.
    directories: Vec<(PathBuf, usize, Attributes)>,
    /// Everything that can have one more hard link.
    linkable: Vec<PathBuf>,
}

/// Owner, permissions, xattrs and mtime of an entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) mode: Option<u32>,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) mtime: (i64, u32),
}

impl Attributes {
    /// Sets them in the only order that keeps them all: a change of owner clears modes and
    /// capabilities.
    pub(crate) fn apply(&self, path: &Path) -> io::Result<()> {
        if let Some((uid, gid)) = self.owner {
            attrs::set_owner(path, uid, gid)?;
        }
        if let Some(mode) = self.mode {
            attrs::set_mode(path, mode)?;
        }
        for (name, value) in &self.xattrs {
            attrs::set_xattr(path, name, value)?;
        }
        attrs::set_mtime(path, self.mtime.0, self.mtime.1)
    }
}

impl TreeBuilder {
    fn new(root: &Path, seed: u64, profile: Profile) -> TreeBuilder {
        let mut rng = Rng::with_seed(seed);
        let mut builder = TreeBuilder {
            root: root.to_owned(),
            rng: rng.fork(),
            profile,
            directories: Vec::new(),
            linkable: Vec::new(),
        };
        let mut attributes = builder.random_attributes(FileType::Directory);
        attributes.mode = Some(0o755);
        builder.directories.push((root.to_owned(), 0, attributes));
        builder
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.profile.catalogue {
            self.catalogue()?;
        }
        for _ in 0..self.profile.entries {
            self.random_entry()?;
        }
        for (path, _, attributes) in self.directories.iter().rev() {
            attributes.apply(path)?;
        }
        Ok(())
    }

    fn random_entry(&mut self) -> io::Result<()> {
        let (parent, depth, _) = &self.directories[self.rng.usize(..self.directories.len())];
        let (parent, depth) = (parent.clone(), *depth);
        let path = parent.join(OsStr::from_bytes(&random_name(&mut self.rng)));
        if path.symlink_metadata().is_ok() {
            return Ok(());
        }
        match self.rng.u8(0..100) {
            0..15 if depth < DEPTH_MAX => self.random_directory(&path, depth),
            15..25 => self.random_symlink(&path),
            25..35 if !self.linkable.is_empty() => self.random_link(&path),
            35..42 => self.random_node(&path),
            42..50 => self.random_sparse(&path),
            _ => self.random_file(&path),
        }
    }

    fn random_directory(&mut self, path: &Path, depth: usize) -> io::Result<()> {
        let attributes = self.random_attributes(FileType::Directory);
        self.directory_at_depth(path, attributes, depth + 1)
    }

    fn random_symlink(&mut self, path: &Path) -> io::Result<()> {
        let length = self.rng.usize(1..200);
        let mut target: Vec<u8> = (0..length).map(|_| self.rng.u8(1..)).collect();
        // It may lead nowhere, and not to the root of the machine.
        if target[0] == b'/' {
            target[0] = b'x';
        }
        let attributes = self.random_attributes(FileType::Symlink);
        self.symlink(path, &target, attributes)
    }

    fn random_link(&mut self, path: &Path) -> io::Result<()> {
        let first = self.linkable[self.rng.usize(..self.linkable.len())].clone();
        std::fs::hard_link(first, path)
    }

    fn random_node(&mut self, path: &Path) -> io::Result<()> {
        let kinds = [
            FileType::Fifo,
            FileType::Socket,
            FileType::CharacterDevice,
            FileType::BlockDevice,
        ];
        let known = if self.profile.devices { 4 } else { 2 };
        let kind = kinds[self.rng.usize(..known)];
        let attributes = self.random_attributes(kind);
        let is_device = kind == FileType::CharacterDevice || kind == FileType::BlockDevice;
        let device = if is_device {
            (self.rng.u32(0..MAJOR_MAX), self.rng.u32(0..MINOR_MAX))
        } else {
            (0, 0)
        };
        self.node(path, kind, device, attributes)
    }

    fn random_file(&mut self, path: &Path) -> io::Result<()> {
        let sizes = [0, 1, 100, 4095, 4096, 4097, 20_000, 65_535, 65_537, 300_000];
        let size = sizes[self.rng.usize(..sizes.len())];
        let attributes = self.random_attributes(FileType::RegularFile);
        self.file(path, size, attributes)
    }

    fn random_sparse(&mut self, path: &Path) -> io::Result<()> {
        let size = self.rng.u64(1..8 * MIB);
        let count = self.rng.usize(0..6);
        let islands: Vec<(u64, u64)> = (0..count)
            .map(|_| (self.rng.u64(0..size), self.rng.u64(1..20_000)))
            .collect();
        let attributes = self.random_attributes(FileType::RegularFile);
        self.sparse(path, size, &islands, attributes)
    }

    /// Attributes that this kind of entry can have under the profile.
    pub(crate) fn random_attributes(&mut self, kind: FileType) -> Attributes {
        let mut attributes = self.plain_attributes(kind);
        if self.profile.owners && self.rng.u8(0..3) == 0 {
            let ids = [0, 1000, 65534, 123_456, 4_000_000_000];
            attributes.owner = Some((ids[self.rng.usize(..5)], ids[self.rng.usize(..5)]));
        }
        if kind != FileType::Symlink {
            attributes.mode = Some(self.random_mode(kind));
        }
        self.random_xattrs(kind, &mut attributes);
        attributes
    }

    /// The profile's owner, an ordinary mode and a random mtime.
    pub(crate) fn plain_attributes(&mut self, kind: FileType) -> Attributes {
        let mode = match kind {
            FileType::Symlink => None,
            FileType::Directory => Some(0o755),
            _ => Some(0o644),
        };
        let mtime = (
            self.rng.i64(0..2_000_000_000),
            self.rng.u32(0..1_000_000_000),
        );
        Attributes {
            owner: self.profile.owner,
            mode,
            xattrs: Vec::new(),
            mtime,
        }
    }

    fn random_mode(&mut self, kind: FileType) -> u32 {
        let modes: &[u32] = if self.profile.unreadable {
            &MODES_ROOT
        } else {
            &MODES_USER
        };
        let mode = modes[self.rng.usize(..modes.len())];
        let needed = if self.profile.unreadable || kind != FileType::Directory {
            0
        } else {
            0o700
        };
        mode | needed
    }

    fn random_xattrs(&mut self, kind: FileType, attributes: &mut Attributes) {
        let holds_user = kind == FileType::RegularFile || kind == FileType::Directory;
        if holds_user && self.rng.u8(0..4) == 0 {
            let value: Vec<u8> = (0..self.rng.usize(0..600))
                .map(|_| self.rng.u8(..))
                .collect();
            attributes.xattrs.push((b"user.random".to_vec(), value));
        }
        if self.profile.privileged_xattrs && self.rng.u8(0..8) == 0 {
            attributes
                .xattrs
                .push((b"trusted.random".to_vec(), vec![self.rng.u8(..); 9]));
        }
        if self.profile.privileged_xattrs
            && kind == FileType::RegularFile
            && self.rng.u8(0..10) == 0
        {
            attributes.xattrs.push((
                CAPABILITY.into(),
                attrs::capability_blob(1 << self.rng.u32(0..32)),
            ));
        }
        if kind != FileType::Symlink && self.rng.u8(0..8) == 0 {
            let blob = attrs::acl_blob(
                (self.rng.u32(1000..2000), 5),
                (self.rng.u32(100..200), 7),
                self.rng.u16(0..8),
            );
            attributes.xattrs.push((ACL_ACCESS.into(), blob));
        }
        if kind == FileType::Directory && self.rng.u8(0..6) == 0 {
            let blob = attrs::acl_blob(
                (self.rng.u32(1000..2000), 7),
                (self.rng.u32(100..200), 4),
                self.rng.u16(0..8),
            );
            attributes.xattrs.push((ACL_DEFAULT.into(), blob));
        }
    }

    pub(crate) fn directory(&mut self, path: &Path, attributes: Attributes) -> io::Result<()> {
        self.directory_at_depth(path, attributes, DEPTH_MAX)
    }

    fn directory_at_depth(
        &mut self,
        path: &Path,
        attributes: Attributes,
        depth: usize,
    ) -> io::Result<()> {
        std::fs::create_dir(path)?;
        self.directories.push((path.to_owned(), depth, attributes));
        Ok(())
    }

    pub(crate) fn symlink(
        &mut self,
        path: &Path,
        target: &[u8],
        attributes: Attributes,
    ) -> io::Result<()> {
        std::os::unix::fs::symlink(OsStr::from_bytes(target), path)?;
        attributes.apply(path)?;
        self.linkable.push(path.to_owned());
        Ok(())
    }

    pub(crate) fn node(
        &mut self,
        path: &Path,
        kind: FileType,
        (major, minor): (u32, u32),
        attributes: Attributes,
    ) -> io::Result<()> {
        attrs::make_node(path, kind, major, minor)?;
        attributes.apply(path)?;
        self.linkable.push(path.to_owned());
        Ok(())
    }

    pub(crate) fn file(
        &mut self,
        path: &Path,
        size: u64,
        attributes: Attributes,
    ) -> io::Result<()> {
        let mut file = File::create_new(path)?;
        let mut left = size;
        while left > 0 {
            let now = left.min(MIB);
            file.write_all(&random_content(&mut self.rng, now as usize))?;
            left -= now;
        }
        attributes.apply(path)?;
        self.linkable.push(path.to_owned());
        Ok(())
    }

    /// A file of `size` that is a hole but for `islands` of data, each an offset and a length.
    pub(crate) fn sparse(
        &mut self,
        path: &Path,
        size: u64,
        islands: &[(u64, u64)],
        attributes: Attributes,
    ) -> io::Result<()> {
        let file = File::create_new(path)?;
        file.set_len(size)?;
        for &(start, length) in islands {
            let length = length.min(size.saturating_sub(start));
            file.write_all_at(&random_content(&mut self.rng, length as usize), start)?;
        }
        attributes.apply(path)?;
        self.linkable.push(path.to_owned());
        Ok(())
    }

    pub(crate) fn hard_link(&mut self, first: &Path, path: &Path) -> io::Result<()> {
        std::fs::hard_link(first, path)
    }
}

/// Random bytes, a word at a time.
pub(crate) fn random_content(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        content.extend(rng.u64(..).to_le_bytes());
    }
    content.truncate(bytes);
    content
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Options, assert_equal, compare};

    #[test]
    fn the_same_seed_builds_the_same_tree_and_another_seed_another() {
        let folder = crate::scratch::scratch_folder();
        let [a, b, c] = ["a", "b", "c"].map(|name| folder.path().join(name));
        for (path, seed) in [(&a, 1), (&b, 1), (&c, 2)] {
            std::fs::create_dir(path).expect("root");
            build_tree(path, seed, &Profile::root());
        }
        assert_equal(&a, &b, &Options::default(), "built twice");
        assert!(compare(&a, &c, &Options::default()).len() > 100);
    }

    #[test]
    fn no_link_of_a_hostile_tree_leads_out_of_it() {
        let folder = crate::scratch::scratch_folder();
        let root = folder.path().join("root");
        std::fs::create_dir(&root).expect("root");
        build_tree(&root, 5, &Profile::root());
        let all = crate::mutate::list_all(&root).expect("list");
        let led: Vec<_> = all
            .iter()
            .filter(|path| path.is_symlink())
            .filter_map(|path| path.canonicalize().ok())
            .collect();
        let root = root.canonicalize().expect("it is there");
        assert!(
            !led.is_empty() && led.iter().all(|path| path.starts_with(&root)),
            "{led:?}"
        );
    }

    #[test]
    fn the_full_catalogue_fits_every_file_system() {
        for kind in crate::scratch::FsKind::ALL {
            let scratch = crate::scratch::Scratch::new(kind, 400);
            build_tree(&scratch.dir("root"), 3, &Profile::root());
            build_tree(&scratch.dir("user"), 3, &Profile::user(65534, 65534));
        }
    }
}
