//! What differs between two snapshots, found by listing directories in both.
//!
//! For file systems that tell which directories have changed, and not how. An entry is known by its
//! inode number, which is the same in all snapshots: what has gone from one directory and come to
//! another has moved. A [`Guide`] says which directories are listed; all others are never opened.
//!
//! Scopes and paths are those of btrfs. Snapshots do not change, so each is read once; every open
//! goes from directory to directory, and follows no link.

mod pairs;

use super::provider::SnapshotError;
use super::told::{Told, change};
use driftless_model::{Change, Hint, RelPath, Scope, Selection, Work};
use pairs::{Named, Pair, Roots, Shown};
use rustix::fd::BorrowedFd;
use std::collections::{HashMap, VecDeque};
use std::path::Path;

/// More entries than this are not kept in mind: each takes some 150 bytes, and a source of which
/// more differs is compared as a whole in the same time.
const ENTRIES_MAX: usize = 8 << 20;

/// What is to be done about a directory that both snapshots have.
pub(super) enum Visit {
    /// Nothing in it or below it differs.
    Nothing,
    /// Its names do not differ; what these lead to may.
    Through(Vec<Vec<u8>>),
    /// Its names are compared.
    Names,
}

/// Says where two snapshots may differ.
pub(super) trait Guide {
    /// What is to be done about a directory, at its path in the newer snapshot, that is open in
    /// both.
    fn visit(&self, path: &RelPath, dirs: [BorrowedFd<'_>; 2]) -> Result<Visit, SnapshotError>;

    /// Whether something may differ in a directory or below it, as far as its path in the newer
    /// snapshot says.
    fn enters(&self, path: &RelPath) -> bool;

    /// Whether an entry that both have, and that is no directory, may be another than it was.
    fn differs(&self, name: &[u8], dirs: [BorrowedFd<'_>; 2]) -> Result<bool, SnapshotError>;
}

/// Directories that have changed, with what leads to them.
pub(super) struct Listed(Selection);

impl Listed {
    pub(super) fn of(directories: Vec<RelPath>) -> Listed {
        let scope = Scope::Names;
        let works = directories.into_iter().map(|path| Work { path, scope });
        Listed(Selection::of(&works.collect::<Vec<_>>()))
    }

    fn at(&self, path: &RelPath) -> Option<&Selection> {
        let mut names = path.names();
        names.try_fold(&self.0, |node, name| {
            node.children.get(name).map(|node| &**node)
        })
    }
}

impl Guide for Listed {
    fn visit(&self, path: &RelPath, _: [BorrowedFd<'_>; 2]) -> Result<Visit, SnapshotError> {
        Ok(match self.at(path) {
            None => Visit::Nothing,
            Some(node) if node.names => Visit::Names,
            Some(node) => Visit::Through(node.children.keys().map(|name| name.to_vec()).collect()),
        })
    }

    fn enters(&self, path: &RelPath) -> bool {
        self.at(path).is_some()
    }

    // Those that do were listed.
    fn differs(&self, _: &[u8], _: [BorrowedFd<'_>; 2]) -> Result<bool, SnapshotError> {
        Ok(false)
    }
}

/// What differs between the snapshots that are read at two places, with entries that are known to.
pub(super) fn between(
    older: &Path,
    newer: &Path,
    guide: &dyn Guide,
    also: Vec<RelPath>,
) -> Result<Vec<Change>, SnapshotError> {
    let mut between = Between {
        roots: Roots::open(older, newer)?,
        guide,
        left: VecDeque::from([Pair::default()]),
        gone: HashMap::new(),
        arrived: Vec::new(),
        kept: 0,
        told: Told::default(),
    };
    also.into_iter()
        .for_each(|path| between.told.tell(Change::entry(path)));
    loop {
        while let Some(pair) = between.left.pop_front() {
            between.visit(&pair)?;
        }
        if !between.find_moves()? && !between.look_into_new()? {
            return Ok(between.told.into_changes());
        }
    }
}

/// An entry that has gone from its name.
struct Gone {
    /// Its path in the older snapshot.
    path: RelPath,
    is_dir: bool,
}

/// An entry that has come to its name.
struct Arrived {
    inode: u64,
    /// Its path in the newer snapshot.
    path: RelPath,
    is_dir: bool,
    /// What is in it is among those that have come.
    is_listed: bool,
}

struct Between<'a> {
    roots: Roots,
    guide: &'a dyn Guide,
    left: VecDeque<Pair>,
    gone: HashMap<u64, Gone>,
    arrived: Vec<Arrived>,
    kept: usize,
    told: Told,
}

impl Between<'_> {
    fn visit(&mut self, pair: &Pair) -> Result<(), SnapshotError> {
        let Some(dirs) = self.roots.enter(pair)? else {
            // It is not what it was said to be; all of it is looked at.
            self.told.tell(Change::subtree(pair.newer.clone()));
            return Ok(());
        };
        match self.guide.visit(&pair.newer, dirs.both())? {
            Visit::Nothing => {}
            Visit::Through(names) => {
                self.left.extend(names.iter().map(|name| pair.join(name)));
            }
            Visit::Names => {
                self.told.tell(Change::entry(pair.newer.clone()));
                match self.roots.names(&dirs)? {
                    Some([older, newer]) => self.compare(pair, (older, newer), dirs.both())?,
                    // There are too many.
                    None => self.told.tell(Change::subtree(pair.newer.clone())),
                }
            }
        }
        Ok(())
    }

    fn compare(
        &mut self,
        pair: &Pair,
        (older, newer): (Named, Named),
        dirs: [BorrowedFd<'_>; 2],
    ) -> Result<(), SnapshotError> {
        for (name, was) in &older {
            if newer.get(name) != Some(was) {
                self.goes(pair, name, *was)?;
            }
        }
        for (name, is) in &newer {
            let is_same = older.get(name) == Some(is);
            let path = || pair.newer.join(name);
            if !is_same {
                self.arrives(path(), *is, false)?;
                if older.contains_key(name) {
                    // Size and times may be those of what stood there.
                    self.told
                        .tell(change(path(), is.is_dir).with(Hint::content()));
                }
            } else if is.is_dir && self.guide.enters(&path()) {
                self.left.push_back(pair.join(name));
            } else if !is.is_dir && self.guide.differs(name, dirs)? {
                self.told.tell(Change::entry(path()));
            }
        }
        Ok(())
    }

    /// Something has gone from a name: what stands there by now is looked at.
    fn goes(&mut self, pair: &Pair, name: &[u8], was: Shown) -> Result<(), SnapshotError> {
        self.keep()?;
        let (path, is_dir) = (pair.older.join(name), was.is_dir);
        self.gone.insert(was.inode, Gone { path, is_dir });
        self.told.tell(change(pair.newer.join(name), is_dir));
        Ok(())
    }

    fn arrives(&mut self, path: RelPath, is: Shown, is_covered: bool) -> Result<(), SnapshotError> {
        self.keep()?;
        // All of a directory that is new is looked at with it.
        if !is_covered {
            self.told.tell(change(path.clone(), is.is_dir));
        }
        self.arrived.push(Arrived {
            inode: is.inode,
            path,
            is_dir: is.is_dir,
            is_listed: false,
        });
        Ok(())
    }

    fn keep(&mut self) -> Result<(), SnapshotError> {
        self.kept += 1;
        match self.kept > ENTRIES_MAX {
            true => Err(SnapshotError::TooMany(ENTRIES_MAX)),
            false => Ok(()),
        }
    }

    /// Of what has come, what has gone from elsewhere; whether there was any.
    fn find_moves(&mut self) -> Result<bool, SnapshotError> {
        let mut is_found = false;
        let arrived = std::mem::take(&mut self.arrived);
        for one in arrived {
            if !self.is_moved(&one)? {
                self.arrived.push(one);
                continue;
            }
            let from = self.gone.remove(&one.inode).expect("it was just found");
            self.told.tell(
                change(one.path.clone(), one.is_dir).with(Hint::MovedFrom(from.path.clone())),
            );
            if one.is_dir && self.guide.enters(&one.path) {
                self.left.push_back(Pair {
                    older: from.path,
                    newer: one.path,
                });
            }
            is_found = true;
        }
        Ok(is_found)
    }

    /// Whether what has come has gone from elsewhere. The number that a listing shows of a
    /// directory may not be its own: btrfs shows that of a subvolume where one is in another, and
    /// a directory may have the same.
    fn is_moved(&self, one: &Arrived) -> Result<bool, SnapshotError> {
        let from = self.gone.get(&one.inode);
        let Some(from) = from.filter(|from| from.is_dir == one.is_dir) else {
            return Ok(false);
        };
        let pair = Pair {
            older: from.path.clone(),
            newer: one.path.clone(),
        };
        Ok(!one.is_dir || self.roots.enter(&pair)?.is_some())
    }

    /// Lists directories that are new: what has moved may stand in them. Whether there were any.
    fn look_into_new(&mut self) -> Result<bool, SnapshotError> {
        if self.gone.is_empty() {
            return Ok(false);
        }
        let is_due = |one: &Arrived| one.is_dir && !one.is_listed;
        let new: Vec<RelPath> = self
            .arrived
            .iter()
            .filter(|one| is_due(one))
            .map(|one| one.path.clone())
            .collect();
        for one in &mut self.arrived {
            one.is_listed |= one.is_dir;
        }
        for path in &new {
            for (name, is) in self.roots.names_of_new(path)?.unwrap_or_default() {
                self.arrives(path.join(&name), is, true)?;
            }
        }
        Ok(!new.is_empty())
    }
}
