//! The directory of a node: its index, catalogues, identities and cached copies.

use crate::catalogue::Catalogue;
use crate::error::{Error, Result, own_file};
use crate::format::SetHash;
use crate::outbox_dirs::OutboxDirs;
use crate::parts::file_name;
use crate::place::{IdFile, id_of, ids_name, look_at};
use crate::placed::PlacedWalk;
use crate::proof::ContentProofs;
use crate::staging::{
    PASSAGE_DIR, PRIVATE_FILE, close_to_others, enter_or_make, failed_at, names_in, open_passage,
};
use driftless_lock::Mutex;
use driftless_model::{Fault, errno};
use driftless_state::holdings::{CopyRow, CopyState, Holdings, InodeIdentity};
use driftless_tree::{
    Attributes, Dir, DirMut, DirMutRef, Done, HandlePool, Hold, Known, Place, RootError,
    is_temp_name, locate_mut, plain_path,
};
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, OsStr};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Open directories of the store at most.
const OPEN_DIRS_MAX: usize = 512;
/// The file of the index in the directory of the node.
const INDEX: &str = "index.db";
const CATALOGUES: &std::ffi::CStr = c"catalogues";
const IDENTITIES: &std::ffi::CStr = c"identities";
const SETS: &std::ffi::CStr = c"sets";
const JOBS: &std::ffi::CStr = c"jobs";

/// The time since 1970; a test brings its own.
pub type NodeClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The directory of a node, shared by all that work with the store.
pub(crate) struct NodeFiles {
    pub(crate) path: PathBuf,
    pub(crate) dir: DirMutRef,
    pub(crate) catalogues: DirMutRef,
    pub(crate) ids: DirMutRef,
    pub(crate) sets: DirMutRef,
    pub(crate) jobs: DirMutRef,
    pub(crate) outboxes: OutboxDirs,
    pub(crate) pool: Arc<HandlePool>,
    pub(crate) index: Mutex<Holdings>,
    pub(crate) clock: NodeClock,
    /// Held while outboxes change, and while ACLs and links of jobs are brought in line with the index.
    pub(crate) settling: Mutex<()>,
    /// Time of the last sweep that brought all ACLs and links in line.
    pub(crate) settled: Mutex<Option<Instant>>,
    pub(crate) proofs: Mutex<ContentProofs>,
    /// Copies that this process receives.
    pub(crate) receiving: Mutex<HashSet<u64>>,
    /// Copies that this process uses.
    pub(crate) used: Mutex<HashMap<u64, UsedCopy>>,
}

/// The uses of a copy by this process, and their lock.
pub(crate) struct UsedCopy {
    pub(crate) count: u64,
    pub(crate) _lock: Option<Hold>,
}

/// A directory that holds copies.
#[derive(Clone)]
pub(crate) struct CopyPlace {
    pub(crate) dir: DirMutRef,
    pub(crate) path: Vec<u8>,
}

impl CopyPlace {
    /// Returns the identity of the directory.
    pub(crate) fn id(&self) -> InodeIdentity {
        id_of(&*self.dir)
    }

    /// Whether the directory is the one in which a copy was placed.
    fn is_of(&self, row: &CopyRow) -> bool {
        row.place_id.is_none_or(|id| id == self.id())
    }
}

/// The entry at a name of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameStanding {
    Free,
    /// The store placed it, with this copy.
    Placed(u64),
    Foreign,
}

pub(crate) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

impl NodeFiles {
    pub(crate) fn open(path: &Path, clock: NodeClock) -> Result<NodeFiles> {
        let (pool, path) = (HandlePool::new(OPEN_DIRS_MAX), plain_path(path));
        let own = store_failed(&path);
        let dir = match locate_mut(&path, &pool)? {
            Place::Dir(dir) => dir,
            Place::Missing { parent, name } => parent.make_dir(&name).map_err(&own)?,
            Place::Entry { .. } => return Err(Error::Foreign { path }),
        };
        if dir.first_meta().uid != dir.user().0 {
            return Err(Error::Foreign { path });
        }
        let closed = |name: &CStr| {
            let below = enter_or_make(&*dir, name).and_then(|below| {
                close_to_others(&*below)?;
                Ok(below)
            });
            below.map_err(own_file(name.to_bytes()))
        };
        let (catalogues, ids) = (closed(CATALOGUES)?, closed(IDENTITIES)?);
        let passage = |name: &CStr| open_passage(&*dir, name).map_err(own_file(name.to_bytes()));
        let (sets, jobs) = (passage(SETS)?, passage(JOBS)?);
        let outboxes = OutboxDirs::open(&*dir)?;
        make_index(&*dir).map_err(own_file(INDEX.as_bytes()))?;
        let index = Holdings::open(&path.join(INDEX))?;
        // After all entries are made: the handle makes entries in a detour from then on.
        let passage = Attributes {
            mode: Some(PASSAGE_DIR),
            ..Attributes::default()
        };
        let faults = dir.set_own(&Known::default(), &passage);
        faults
            .into_iter()
            .next()
            .map_or(Ok(()), Err)
            .map_err(&own)?;
        Ok(NodeFiles {
            path,
            dir,
            catalogues,
            ids,
            sets,
            jobs,
            outboxes,
            pool,
            index: Mutex::new(index),
            clock,
            settling: Mutex::new(()),
            settled: Mutex::new(None),
            proofs: Mutex::default(),
            receiving: Mutex::new(HashSet::new()),
            used: Mutex::new(HashMap::new()),
        })
    }

    pub(crate) fn now(&self) -> Duration {
        (self.clock)()
    }

    /// Opens the catalogue of a set; `None` if it is not there or its file is damaged.
    pub(crate) fn catalogue(&self, hash: SetHash) -> Result<Option<Arc<Catalogue>>> {
        let name = file_name(hash);
        let file = match self.catalogues.open_file(&name) {
            Ok(file) => file,
            Err(fault) if fault.is_missing() => return Ok(None),
            Err(fault) => return Err(own_file(name.to_bytes())(fault)),
        };
        match Catalogue::open(file, hash) {
            Ok(catalogue) => Ok(Some(Arc::new(catalogue))),
            Err(Error::WrongPart { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Returns the hash that a row names; `None` if it names none.
    pub(crate) fn hash_of(row: &CopyRow) -> Option<SetHash> {
        row.hash.parse().ok()
    }

    /// Opens the catalogue of a copy.
    pub(crate) fn catalogue_of(&self, row: &CopyRow) -> Result<Option<Arc<Catalogue>>> {
        match NodeFiles::hash_of(row) {
            Some(hash) => self.catalogue(hash),
            None => Ok(None),
        }
    }

    /// Returns the row of a copy.
    pub(crate) fn row(&self, copy: u64) -> Result<CopyRow> {
        let found = self.index.lock().find(copy)?;
        found.ok_or(Error::UnknownCopy { copy })
    }

    /// Returns the copies at a place.
    pub(crate) fn rows_at(&self, place: &CopyPlace) -> Result<Vec<CopyRow>> {
        let rows = self.index.lock().copies()?;
        let is_here = |row: &CopyRow| row.place == place.path && place.is_of(row);
        Ok(rows.into_iter().filter(is_here).collect())
    }

    /// Opens the directory that a user named for copies.
    pub(crate) fn open_place(&self, path: &Path) -> Result<CopyPlace> {
        let path = plain_path(path);
        let dir = match locate_mut(&path, &self.pool)? {
            Place::Dir(dir) => dir,
            Place::Missing { .. } => return Err(not_there(&path, errno::ENOENT)),
            Place::Entry { .. } => return Err(not_there(&path, errno::ENOTDIR)),
        };
        let path = path.into_os_string().into_encoded_bytes();
        Ok(CopyPlace { dir, path })
    }

    /// Opens the directory that a cast named for copies, if it is one of `allowed` or lies below one.
    pub(crate) fn open_target(
        &self,
        path: &Path,
        allowed: Option<&[PathBuf]>,
    ) -> Result<CopyPlace> {
        let place = match self.open_place(path) {
            Err(Error::Root(error)) if error.parts().1 == errno::ENOENT => {
                let path = path.to_owned();
                return Err(Error::NoDirectory { path });
            }
            other => other?,
        };
        // Of the open directory, because a name in the path can be a symbolic link.
        let above = place.dir.lineage();
        let above = above.map_err(failed_at(&place.path, c"."))?;
        let is_below = |dir: &DirMutRef| {
            let own = dir.lineage().unwrap_or_default().into_iter().next();
            own.is_some_and(|own| above.iter().any(|one| one.id == own.id))
        };
        if is_below(&self.dir) {
            let path = path.to_owned();
            return Err(Error::InStore { path });
        }
        let is_allowed = allowed.is_none_or(|allowed| {
            let roots = allowed.iter().map(|root| self.open_place(root));
            roots.flatten().any(|root| is_below(&root.dir))
        });
        match is_allowed {
            true => Ok(place),
            false => Err(Error::Disallowed {
                path: path.to_owned(),
            }),
        }
    }

    /// Opens the place of a copy; `None` if it is gone. [`Error::OtherPlace`] if another directory
    /// has its path, as when its file system is not mounted.
    pub(crate) fn place_of(&self, row: &CopyRow) -> Result<Option<CopyPlace>> {
        match self.open_place(&path_of(&row.place)) {
            Ok(place) if place.is_of(row) => Ok(Some(place)),
            Ok(place) => Err(Error::OtherPlace {
                path: place.path,
                copy: row.id,
            }),
            Err(Error::Root(error)) if error.is_missing() => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Returns whose entry stands at a name of a place.
    pub(crate) fn standing(
        &self,
        rows: &[CopyRow],
        dir: &dyn Dir,
        name: &[u8],
    ) -> Result<NameStanding> {
        let c_name = CString::new(name).unwrap_or_default();
        let (_, id) = match look_at(dir, &c_name) {
            Ok(found) => found,
            Err(fault) if fault.is_missing() => return Ok(NameStanding::Free),
            Err(fault) => {
                return Err(Error::Entry {
                    path: name.to_vec(),
                    fault,
                });
            }
        };
        let has = |row: &&CopyRow| {
            let mut tops = row.tops.iter();
            tops.any(|top| top.name == name && top.id == id)
        };
        let found = rows.iter().find(has);
        Ok(found.map_or(NameStanding::Foreign, |row| NameStanding::Placed(row.id)))
    }

    /// Returns a pass over the tree of a copy, whose entries at the top are in `holder`.
    pub(crate) fn walk<'a>(
        &self,
        catalogue: &'a Catalogue,
        copy: u64,
        holder: &DirMutRef,
        place: &[u8],
    ) -> Result<PlacedWalk<'a>> {
        Ok(PlacedWalk {
            catalogue,
            ids: Some(IdFile::open(&self.ids, copy)?),
            holder: holder.clone(),
            place: place.to_vec(),
            finds_extra: false,
            is_removing: false,
        })
    }

    /// Removes the files of a copy that has no row any more, and the catalogue if no other copy
    /// needs it.
    pub(crate) fn forget_files(&self, row: &CopyRow) -> Result<()> {
        let _it_may_be_missing = self.ids.remove(&ids_name(row.id));
        self.proofs.lock().set(row.id, None);
        let rows = self.index.lock().copies()?;
        let is_needed = rows.iter().any(|other| other.hash == row.hash);
        if let Some(hash) = NodeFiles::hash_of(row)
            && row.is_cached
        {
            if !is_needed {
                self.remove_unnamed(&file_name(hash));
            }
            let _it_may_hold_another_copy = self.sets.remove_dir(&file_name(hash));
        }
        if is_needed {
            return Ok(());
        }
        if let Some(hash) = NodeFiles::hash_of(row) {
            let _it_may_be_missing = self.catalogues.remove(&file_name(hash));
        }
        Ok(())
    }

    /// Removes empty directories of a set that a killed process made and did not name.
    fn remove_unnamed(&self, set: &CStr) {
        let Ok(dir) = self.sets.enter_mut(set) else {
            return;
        };
        let names = names_in(&*dir).unwrap_or_default();
        for name in names.iter().filter(|name| is_temp_name(name)) {
            let _it_may_hold_entries = dir.remove_dir(name);
        }
    }

    pub(crate) fn set_state(&self, copy: u64, state: CopyState) -> Result<()> {
        Ok(self.index.lock().set_state(copy, state)?)
    }
}

/// Names the directory of the store, of which a call failed.
fn store_failed(path: &Path) -> impl Fn(Fault) -> Error + use<> {
    let path = path.to_owned();
    move |fault| Error::Store {
        path: path.clone(),
        fault,
    }
}

/// Makes the file of the index, which SQLite fills. Other users cannot read it (sqlite.org/tempfiles.html:
/// the files beside it get its mode).
fn make_index(dir: &dyn DirMut) -> Done {
    let name = CString::new(INDEX).unwrap_or_default();
    match dir.create_file(&name, PRIVATE_FILE) {
        Ok(file) => file.close(),
        Err(fault) if fault.errno == errno::EEXIST => Ok(()),
        Err(fault) => Err(fault),
    }
}

/// Returns the entries of one entry at the top of a set: it and all below it.
pub(crate) fn range_of_top(catalogue: &Catalogue, at: usize) -> Range<u32> {
    let tops = &catalogue.layout().tops;
    let begin = tops.get(at).copied().unwrap_or(catalogue.entries());
    let end = tops.get(at.saturating_add(1)).copied();
    begin..end.unwrap_or(catalogue.entries())
}

/// Returns the range of the entry with a name at the top.
pub(crate) fn range_named(catalogue: &Catalogue, name: &[u8]) -> Result<Option<Range<u32>>> {
    let tops = catalogue.tops()?;
    let at = tops.iter().position(|top| top.as_bytes() == name);
    Ok(at.map(|at| range_of_top(catalogue, at)))
}

fn not_there(path: &Path, errno: i32) -> Error {
    let act = driftless_model::Act::OpenDirectory;
    Error::Root(RootError::from_errno(path, act, errno))
}
