//! Reading of views below a root.
//!
//! It stands beside the views because it opens directories. Each reader opens its own handles, so
//! that a view is of the tree as it is now. Paths in their order share the directories that lead to
//! them: an entry deep in a tree costs as many requests as one at its top.

use super::{NAMES_MAX, NameDigest, View, add_names, exact_birth, way_below};
use driftless_model::{Act, Keep, Kind, Meta, RelPath, Xattrs};
use driftless_tree::{DirRef, Done, Names, ReadFile, has_common_inodes};
use std::ffi::{CStr, CString};
use xxhash_rust::xxh3::Xxh3;

/// Names that are read at once.
const NAMES_AT_ONCE: usize = 1024;

/// Largest file that is read as a whole to find out whether it can be read.
const READ_BYTES_MAX: u64 = 64 << 20;
/// Bytes that are read at once.
const BLOCK_BYTES: usize = 1 << 20;

/// Further attributes of an entry that a view is to have, at further calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Further {
    /// Names of a directory.
    pub names: bool,
    /// Time of birth.
    pub birth: bool,
}

/// Reader of views of one tree. Handles are opened anew; entries that are read one after the other
/// share those of the directories that are above both.
pub struct Views {
    root: DirRef,
    /// Properties that the run keeps.
    keep: Keep,
    /// Path of a single file, which a replica may have under another name than its source.
    single: Option<RelPath>,
    /// Open directories from the root, which is not among them, to the one that was read last, each
    /// with its name.
    open: Vec<(CString, Above)>,
}

/// Open directory, and the hash of its inode number and of those above it.
#[derive(Clone)]
struct Above {
    dir: DirRef,
    way: u64,
}

impl Views {
    /// Reads views below `root`, with the extended attributes that `keep` wants.
    pub fn of(root: &DirRef, keep: &Keep) -> Views {
        Views {
            root: root.clone(),
            keep: *keep,
            single: None,
            open: Vec::new(),
        }
    }

    /// Has the view of any entry read under this name, if there is one: that of a single file.
    #[must_use]
    pub fn under_name(self, name: Option<&CStr>) -> Views {
        Views {
            single: name.map(|name| RelPath::root().join(name.to_bytes())),
            ..self
        }
    }

    /// Reads the view of the entry at `path`, with `further` attributes.
    ///
    /// # Errors
    /// The entry, or a directory above it, cannot be read.
    pub fn read(&mut self, path: &RelPath, further: Further) -> Done<View> {
        let single = self.single.clone().filter(|_| !path.is_root());
        let Some((above, name)) = single.as_ref().unwrap_or(path).split_last() else {
            let listed = further.names.then_some(&self.root);
            let view = view_of(&self.root.meta()?, listed)?;
            let xattrs = self.root.xattrs(&self.keep).ok();
            return Ok(View {
                xattrs: xattrs.as_ref().and_then(hash_of_xattrs),
                ..view
            });
        };
        let above = self.dir(&above)?;
        let name = CString::new(name).unwrap_or_default();
        let meta = above.dir.look(&name)?;
        let listed = if further.names && meta.kind == Kind::Dir {
            Some(above.dir.enter(&name)?)
        } else {
            None
        };
        let born = further.birth.then(|| above.dir.made_at_of(&name)).flatten();
        let xattrs = above.dir.xattrs_of(&name, &self.keep).ok();
        Ok(View {
            way: above.way,
            xattrs: xattrs.as_ref().and_then(hash_of_xattrs),
            born: exact_birth(born),
            ..view_of(&meta, listed.as_ref())?
        })
    }

    /// Returns whether `act`, which failed on another host, succeeds here. A file that is larger
    /// than `READ_BYTES_MAX` counts as unreadable if its content is in question.
    pub fn can_read(&mut self, path: &RelPath, act: Act) -> bool {
        self.try_read(path, act).unwrap_or(false)
    }

    fn try_read(&mut self, path: &RelPath, act: Act) -> Done<bool> {
        let Some((above, name)) = path.split_last() else {
            self.root
                .list()?
                .fill(&mut Names::default(), NAMES_AT_ONCE)?;
            return Ok(true);
        };
        let above = self.dir(&above)?.dir;
        let name = CString::new(name).unwrap_or_default();
        let meta = above.look(&name)?;
        above.xattrs_of(&name, &self.keep)?;
        match meta.kind {
            Kind::Dir => {
                let listed = above
                    .enter(&name)?
                    .list()?
                    .fill(&mut Names::default(), NAMES_AT_ONCE);
                listed.map(|_| true)
            }
            Kind::Symlink => above.read_link(&name).map(|_| true),
            Kind::File => {
                let file = above.open_file(&name)?;
                let is_content = matches!(act, Act::Read | Act::ReadAll | Act::FindHoles);
                if !is_content {
                    return Ok(true);
                }
                Ok(meta.size <= READ_BYTES_MAX && read_whole(&*file, meta.size)?)
            }
            _ => Ok(true),
        }
    }

    /// Returns whether the coordinator, whose replica this reads, has another inode at `path` than
    /// a mover with the view `theirs`; `own` is what was read of it. Returns `false` where hosts
    /// may see different numbers of one inode.
    pub fn is_other(&mut self, path: &RelPath, theirs: &View, own: &View) -> bool {
        if !theirs.is_of_other_inode(own) {
            return false;
        }
        let (is_dir, above) = (own.kind == Kind::Dir, path.split_last());
        let found = match above {
            Some((above, _)) if !is_dir => self.dir(&above),
            _ => self.dir(path),
        };
        let Ok(Above { dir, .. }) = found else {
            return false;
        };
        // A look shows what an automounter has not mounted yet, and an open directory shows what it
        // has.
        let is_mounted_now = theirs.way == own.way
            && is_dir
            && !theirs.differs_from(dir.first_meta().ino, exact_birth(dir.made_at()));
        !is_mounted_now && dir.as_local().is_some_and(has_common_inodes)
    }

    /// Returns whether the directories above `path` are others than those of a mover, whose inode
    /// numbers have the hash `way`; `own` is the view of this reader. Returns `false` where hosts
    /// may see different numbers of one inode.
    pub fn has_other_way(&mut self, path: &RelPath, way: u64, own: &View) -> bool {
        let above = path.split_last().filter(|_| way != own.way);
        let Some((above, _)) = above else {
            return false;
        };
        let found = self.dir(&above);
        found.is_ok_and(|above| above.dir.as_local().is_some_and(has_common_inodes))
    }

    /// Returns whether the directory at `path` of the coordinator, whose source this reads, is
    /// another one than what a mover with the view `theirs` has mounted there.
    pub fn lacks_mount(&mut self, path: &RelPath, theirs: &View) -> bool {
        let Ok(Above { dir, .. }) = self.dir(path) else {
            return false;
        };
        // Where a server exports a subvolume by itself, its clients see a mount of the same inode.
        dir.is_mount_root() == Some(false)
            && theirs.ino != dir.first_meta().ino
            && dir.as_local().is_some_and(has_common_inodes)
    }

    /// Returns the directory at `path`, entered from the nearest one above it that is open.
    fn dir(&mut self, path: &RelPath) -> Done<Above> {
        let open = self.open.iter().map(|(name, _)| name.to_bytes());
        let shared = open
            .zip(path.names())
            .take_while(|(one, other)| one == other)
            .count();
        self.open.truncate(shared);
        for name in path.names().skip(shared) {
            let name = CString::new(name).unwrap_or_default();
            let below = self.last().enter(&name)?;
            self.open.push((name, below));
        }
        Ok(self.last())
    }

    /// Returns the last open directory, or the root.
    fn last(&self) -> Above {
        let root = || Above {
            dir: self.root.clone(),
            way: 0,
        };
        self.open.last().map_or_else(root, |(_, last)| last.clone())
    }
}

impl Above {
    /// Opens a directory of this one.
    fn enter(&self, name: &CStr) -> Done<Above> {
        let dir = self.dir.enter(name)?;
        let way = way_below(self.way, dir.first_meta().ino);
        Ok(Above { dir, way })
    }
}

/// Returns a hash of extended attributes, or `None` if some of them could not be read.
pub(super) fn hash_of_xattrs(xattrs: &Xattrs) -> Option<u64> {
    let mut hash = Xxh3::new();
    for (name, value) in xattrs.iter() {
        for part in [name, value] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    xattrs.is_whole().then(|| hash.digest())
}

/// Reads a file; returns whether it had so many bytes.
fn read_whole(file: &dyn ReadFile, size: u64) -> Done<bool> {
    let (mut block, mut at) = (vec![0; BLOCK_BYTES], 0_u64);
    loop {
        let count = file.read_at(&mut block, at)?;
        at = at.saturating_add(count as u64);
        if count == 0 || at > READ_BYTES_MAX {
            return Ok(at >= size);
        }
    }
}

fn view_of(meta: &Meta, listed: Option<&DirRef>) -> Done<View> {
    Ok(View {
        names: listed.map_or(Ok(None), names_of)?,
        ..View::of(meta)
    })
}

/// Returns the digest of the names in a directory, or `None` if there are too many.
fn names_of(dir: &DirRef) -> Done<Option<NameDigest>> {
    let (mut listing, mut digest) = (dir.list()?, (0_u64, 0_u64));
    loop {
        let mut names = Names::default();
        let goes_on = listing.fill(&mut names, NAMES_AT_ONCE)?;
        digest = add_names(digest, &names);
        if digest.0 > NAMES_MAX as u64 {
            return Ok(None);
        }
        if !goes_on {
            return Ok(Some(digest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::Side;
    use driftless_tree::fake::{Call, FakeTree};
    use driftless_tree::{HandlePool, Place};

    /// Directories that lie beside each other.
    const DIRS: u64 = 1000;
    /// Names that lead to them.
    const ABOVE: &str = "a/b/c/d/e/f/g";

    #[test]
    fn views_of_neighbours_share_the_way_down() {
        let tree = FakeTree::new("here");
        let mut paths: Vec<String> = (0..DIRS)
            .flat_map(|number| ["", "/file"].map(|end| format!("{ABOVE}/dir-{number}{end}")))
            .collect();
        for path in paths.iter().filter(|path| path.ends_with("/file")) {
            tree.put(path, b"content");
        }
        paths.sort_unstable();
        let Ok(Place::Dir(root)) = tree.endpoint().locate(Side::Source, &HandlePool::new(8)) else {
            panic!("the root is a directory");
        };
        let levels = ABOVE.split('/').count() as u64;
        let calls = || [Call::Enter, Call::Look].map(|call| tree.calls(call));
        let before = calls();
        let mut views = Views::of(&root, &Keep::default());
        for path in &paths {
            let path = RelPath::parse(path.as_bytes()).expect("a path");
            let view = views.read(&path, Further::default()).expect("an entry");
            let mut alone = Views::of(&root, &Keep::default());
            let expected = alone.read(&path, Further::default()).expect("an entry");
            assert_eq!(view, expected, "as a reader of its own sees it");
        }
        // A reader of its own enters each directory above an entry.
        let alone = [(2 * levels + 1) * DIRS, 2 * DIRS];
        let after = calls();
        let [entered, looked] = [0, 1].map(|at| after[at] - before[at] - alone[at]);
        assert_eq!((entered, looked), (levels + DIRS, 2 * DIRS));
    }
}
