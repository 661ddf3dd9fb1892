//! The store of a node: catalogues, copies, and who may use them.

use crate::build::build;
use crate::catalogue::Catalogue;
use crate::check::{CheckReport, check_content, check_entries};
use crate::error::{Error, Result, own_file};
use crate::format::SetHash;
use crate::in_use::{CopyUse, is_used, use_copy};
use crate::node::{CopyPlace, NameStanding, NodeClock, NodeFiles, range_named};
use crate::parts::CatalogueReceiver;
use crate::placed::{LookOutcome, LookedAt, PlacedWalk};
use crate::proof::ContentProof;
use crate::purge::{PurgeWhat, is_meant, purge_copy, purge_unused};
use crate::reader::UnitReader;
use crate::receiver::{SetReceiver, recover};
use crate::remove::{KeptEntry, PurgeReport, StayingCopy};
use crate::sources::{CastSources, OpenSource};
use crate::staging::{failed_at, names_in};
use crate::walk::BuildOptions;
use driftless_model::Side;
use driftless_state::holdings::{CopyRow, CopyState, UnkeptCounts};
use driftless_tree::{DirRef, HandlePool, Place, locate, plain_path};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Age of an unfinished file of a catalogue that no process writes any more.
const LEFTOVER_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// Time without use after which an unfinished copy is removed.
const UNFINISHED_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The store of a node of a distribution. Shared by all threads; several processes of one user may
/// open the same store.
#[derive(Clone)]
pub struct NodeStore {
    pub(crate) files: Arc<NodeFiles>,
}

/// The catalogue of sources, and the sources to read units from.
pub struct BuiltSet {
    /// The catalogue.
    pub catalogue: Arc<Catalogue>,
    /// The sources.
    pub source: SetSource,
}

/// The open sources of a set.
pub struct SetSource {
    catalogue: Arc<Catalogue>,
    sources: Vec<OpenSource>,
}

impl SetSource {
    /// Returns a reader of units, for one thread.
    pub fn reader(&self) -> UnitReader {
        UnitReader::of_source(&self.catalogue, &self.sources)
    }
}

/// The directory that gets a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placing {
    /// A directory of the user: the copy stays until it is purged.
    Directory(PathBuf),
    /// The same, if the directory is one of the given ones or lies below one. Symbolic links count as
    /// the directories that they lead to.
    Below(PathBuf, Vec<PathBuf>),
    /// The cache of the node: the copy may be evicted.
    Cached,
    /// The same, for the user with this UID. Other users cannot open the copy, unless it was placed for
    /// all of them before.
    CachedFor(u32),
}

impl Placing {
    /// Returns whether this is the cache of the node.
    pub fn is_cached(&self) -> bool {
        matches!(self, Placing::Cached | Placing::CachedFor(_))
    }
}

/// The beginning of a reception.
pub enum Receiving {
    /// The store placed the set there before. Its content was not hashed again.
    Held(u64),
    /// Units are to be received.
    Open(Box<SetReceiver>),
}

impl NodeStore {
    /// Opens the store in a directory, which is made if it is missing. The directory gets mode 0711.
    /// [`sweep`](NodeStore::sweep) finishes what a crash interrupted.
    ///
    /// # Errors
    /// [`Error::Foreign`] if the directory belongs to another user; it cannot be opened or written.
    pub fn open(path: &Path, clock: NodeClock) -> Result<NodeStore> {
        let files = Arc::new(NodeFiles::open(path, clock)?);
        Ok(NodeStore { files })
    }

    /// Makes the catalogue of sources: each appears under its name in the place of a copy. Removes old
    /// catalogues that no copy needs.
    ///
    /// # Errors
    /// A source cannot be read, changed meanwhile, or is beyond a bound; two sources have the same
    /// name.
    pub fn build(&self, sources: &CastSources, options: &mut BuildOptions<'_>) -> Result<BuiltSet> {
        let open = sources.open()?;
        self.sweep_catalogues()?;
        let built = build(&open, &self.files, options);
        let catalogue = built.map_err(|error| error.with_sources(sources.paths()))?;
        let source = SetSource {
            catalogue: catalogue.clone(),
            sources: open,
        };
        Ok(BuiltSet { catalogue, source })
    }

    /// Returns the catalogue of a set; `None` if the store does not have it.
    ///
    /// # Errors
    /// The file of the catalogue cannot be read.
    pub fn catalogue(&self, hash: SetHash) -> Result<Option<Arc<Catalogue>>> {
        self.files.catalogue(hash)
    }

    /// Begins to receive the catalogue of a set.
    ///
    /// # Errors
    /// The file of the catalogue cannot be made.
    pub fn receive_catalogue(&self, hash: SetHash) -> Result<CatalogueReceiver> {
        CatalogueReceiver::new(hash, &self.files.catalogues)
    }

    /// Begins to receive a set at a place, or goes on with it.
    ///
    /// # Errors
    /// [`Error::Occupied`] if the store did not place what stands at a final name, or a user added
    /// entries to it; [`Error::NoRoom`]; [`Error::Busy`]; [`Error::NoAcls`]; [`Error::OtherReader`];
    /// the place cannot be opened.
    pub fn receive(&self, catalogue: &Arc<Catalogue>, to: &Placing) -> Result<Receiving> {
        let place = match to {
            Placing::Directory(path) => self.files.open_target(path, None)?,
            Placing::Below(path, allowed) => self.files.open_target(path, Some(allowed))?,
            Placing::Cached => self.files.cached_place(catalogue.hash(), None)?,
            Placing::CachedFor(reader) => {
                self.files.cached_place(catalogue.hash(), Some(*reader))?
            }
        };
        self.finish_interrupted(catalogue, &place)?;
        let rows = self.files.rows_at(&place)?;
        if let Some(row) = self.held(catalogue, &place, &rows)? {
            self.touch(row)?;
            return Ok(Receiving::Held(row));
        }
        for name in catalogue.tops()? {
            self.check_name(&place, &rows, name.as_bytes())?;
        }
        let receiver = SetReceiver::open(&self.files, catalogue, place, to.is_cached())?;
        Ok(Receiving::Open(Box::new(receiver)))
    }

    /// Checks a directory in which copies are to be placed.
    ///
    /// # Errors
    /// [`Error::NoDirectory`]; [`Error::Disallowed`] if the directory is none of `allowed` and lies below
    /// none; [`Error::InStore`].
    pub fn check_target(&self, path: &Path, allowed: &[PathBuf]) -> Result<()> {
        self.files.open_target(path, Some(allowed)).map(drop)
    }

    /// Gives complete copies of a set their final names, if an earlier attempt could not. Goes on
    /// with the removal of older versions at the place.
    fn finish_interrupted(&self, catalogue: &Catalogue, place: &CopyPlace) -> Result<()> {
        let hash = catalogue.hash().to_string();
        let rows = self.files.rows_at(place)?;
        let is_complete = |row: &&CopyRow| row.hash == hash && row.state == CopyState::Publishing;
        for row in rows.iter().filter(is_complete) {
            recover(&self.files, row)?;
        }
        for row in rows.iter().filter(|row| row.state == CopyState::Held) {
            self.finish_replacement(row)?;
        }
        Ok(())
    }

    /// Returns the copy that is this set at this place, if all its names are those that were placed.
    fn held(
        &self,
        catalogue: &Catalogue,
        place: &CopyPlace,
        rows: &[CopyRow],
    ) -> Result<Option<u64>> {
        let hash = catalogue.hash().to_string();
        let is_same = |row: &&CopyRow| row.hash == hash && row.state == CopyState::Held;
        let Some(row) = rows.iter().find(is_same) else {
            return Ok(None);
        };
        for name in catalogue.tops()? {
            let standing = self.files.standing(rows, &*place.dir, name.as_bytes())?;
            if standing != NameStanding::Placed(row.id) {
                return Ok(None);
            }
        }
        Ok(Some(row.id))
    }

    /// Returns an error if a name is taken by an entry that the store did not place, or by a version
    /// of a set to which a user added something.
    fn check_name(&self, place: &CopyPlace, rows: &[CopyRow], name: &[u8]) -> Result<()> {
        let path = [&place.path, &b"/"[..], name].concat();
        let copy = match self.files.standing(rows, &*place.dir, name)? {
            NameStanding::Free => return Ok(()),
            NameStanding::Foreign => return Err(Error::Occupied { path }),
            NameStanding::Placed(copy) => copy,
        };
        let row = self.files.row(copy)?;
        let Some(old) = self.files.catalogue_of(&row)? else {
            return Err(Error::Occupied { path });
        };
        let Some(range) = range_named(&old, name)? else {
            return Err(Error::Occupied { path });
        };
        let mut walk = self.files.walk(&old, copy, &place.dir, &place.path)?;
        walk.finds_extra = true;
        walk.visit(range, &mut |at: LookedAt<'_>| {
            let path = [&place.path, &b"/"[..], &old.path(at.number)].concat();
            match at.outcome {
                LookOutcome::Other => Err(Error::Occupied { path }),
                LookOutcome::OtherOwner => Err(Error::OtherOwner { path }),
                LookOutcome::Extra(name) => Err(Error::Occupied {
                    path: [&path, &b"/"[..], name.to_bytes()].concat(),
                }),
                _ => Ok(()),
            }
        })
    }

    /// Returns a reader of the units of a copy.
    ///
    /// # Errors
    /// [`Error::UnknownCopy`]; [`Error::Unusable`] if the copy is damaged or unfinished.
    pub fn reader(&self, copy: u64) -> Result<UnitReader> {
        let row = self.files.row(copy)?;
        let unusable = Error::Unusable { copy };
        if row.state != CopyState::Held {
            return Err(unusable);
        }
        let (Some(catalogue), Some(place)) =
            (self.files.catalogue_of(&row)?, self.files.place_of(&row)?)
        else {
            return Err(unusable);
        };
        let dir: DirRef = place.dir.clone();
        UnitReader::of_copy(&catalogue, &dir, &place.path)
    }

    /// Marks a copy as used, so that nothing removes it.
    ///
    /// # Errors
    /// [`Error::UnknownCopy`]; [`Error::Unusable`] if the copy is unfinished or is being removed.
    pub fn use_copy(&self, copy: u64) -> Result<CopyUse> {
        use_copy(&self.files, copy)
    }

    /// Returns all copies, the one that was used longest ago first.
    ///
    /// # Errors
    /// The index cannot be read.
    pub fn copies(&self) -> Result<Vec<CopyRow>> {
        Ok(self.files.index.lock().copies()?)
    }

    /// Returns the metadata that the node could not keep in a copy.
    ///
    /// # Errors
    /// [`Error::UnknownCopy`]; the index cannot be read.
    pub fn unkept(&self, copy: u64) -> Result<UnkeptCounts> {
        Ok(self.files.row(copy)?.unkept)
    }

    /// Notes that a copy cannot be served: a reader found that it was changed.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn mark_damaged(&self, copy: u64) -> Result<()> {
        self.files.set_state(copy, CopyState::Damaged)
    }

    /// Removes cached copies whose time is over, and then further ones, the one that was used longest
    /// ago first, until the set `wanted` fits into `quota`. Copies of that set, copies that a job or a
    /// running cast uses, and pinned ones, stay. If the set cannot fit, all copies stay.
    ///
    /// # Errors
    /// [`Error::CacheFull`] if too little can go; a copy cannot be removed.
    pub fn evict(&self, wanted: Option<&Catalogue>, quota: Option<u64>) -> Result<PurgeReport> {
        let (now, mut report) = (self.files.now(), PurgeReport::default());
        let rows = self.cached()?;
        let hash = wanted.map(|catalogue| catalogue.hash());
        let is_wanted = |row: &CopyRow| hash.is_some() && NodeFiles::hash_of(row) == hash;
        let may_go = |row: &&CopyRow| row.jobs.is_empty() && !row.is_pinned && !is_wanted(row);
        let needed = match rows.iter().any(is_wanted) {
            true => 0,
            false => wanted.map_or(0, |catalogue| catalogue.bytes()),
        };
        if let (Some(_), Some(quota)) = (wanted, quota) {
            self.check_quota((needed, quota), &rows, &may_go)?;
        }
        let is_over = |row: &&CopyRow| row.expires.is_some_and(|expires| expires <= now);
        for row in rows.iter().filter(may_go).filter(is_over) {
            if let Some(one) = purge_unused(&self.files, row)? {
                report.add(one);
            }
        }
        let Some(quota) = quota else {
            return Ok(report);
        };
        let rows = self.cached()?;
        let sum = |sum: u64, row: &CopyRow| sum.saturating_add(row.bytes);
        let mut used = rows.iter().fold(0, sum);
        for row in rows.iter().filter(may_go) {
            if used.saturating_add(needed) <= quota {
                break;
            }
            if let Some(one) = purge_unused(&self.files, row)? {
                report.add(one);
                used = used.saturating_sub(row.bytes);
            }
        }
        match used.saturating_add(needed) <= quota {
            true => Ok(report),
            false => Err(self.cache_full((needed, quota), used)),
        }
    }

    /// Returns an error if the cache has no room even after all copies that may go have gone.
    fn check_quota(
        &self,
        (needed, quota): (u64, u64),
        rows: &[CopyRow],
        may_go: &dyn Fn(&&CopyRow) -> bool,
    ) -> Result<()> {
        let mut used = 0_u64;
        for row in rows {
            if !may_go(&row) || is_used(&self.files, row)? {
                used = used.saturating_add(row.bytes);
            }
        }
        match used.saturating_add(needed) <= quota {
            true => Ok(()),
            false => Err(self.cache_full((needed, quota), used)),
        }
    }

    fn cache_full(&self, (needed, quota): (u64, u64), used: u64) -> Error {
        Error::CacheFull {
            path: self.path(),
            needed,
            quota,
            used,
        }
    }

    fn cached(&self) -> Result<Vec<CopyRow>> {
        let mut rows = self.copies()?;
        rows.retain(|row| row.is_cached);
        Ok(rows)
    }

    /// Removes copies: the entries that the store placed, and nothing else. A copy that is named by
    /// its number and whose place is another directory now is forgotten, and its entries stay. The
    /// report names copies that cannot be removed, or that a process receives or uses.
    ///
    /// # Errors
    /// The index cannot be read or written.
    pub fn purge(&self, what: &PurgeWhat) -> Result<PurgeReport> {
        let mut report = PurgeReport::default();
        for row in self.copies()?.iter().filter(|row| is_meant(what, row)) {
            match purge_copy(&self.files, row) {
                Ok(one) => report.add(one),
                Err(Error::OtherPlace { path, copy }) if *what == PurgeWhat::Copy(copy) => {
                    self.files.index.lock().remove(copy)?;
                    self.files.forget_files(row)?;
                    report.keep(KeptEntry::of_other_place(path));
                }
                Err(error) => report.staying.push(StayingCopy::of(row.id, &error)),
            }
        }
        Ok(report)
    }

    /// Returns the last time at which a process was at work on an unfinished copy of a set.
    ///
    /// # Errors
    /// The index cannot be read.
    pub fn last_use(&self, hash: SetHash) -> Result<Option<Duration>> {
        let rows = self.copies()?;
        let is_unfinished = |row: &&CopyRow| {
            row.state == CopyState::Unfinished && NodeFiles::hash_of(row) == Some(hash)
        };
        Ok(rows.iter().filter(is_unfinished).map(|row| row.used).max())
    }

    /// Checks a copy: its entries, and with `pace` its content. `pace` receives the bytes before
    /// they are hashed, may wait, and stops the check with `false`. A copy that is not sound is not
    /// served any more.
    ///
    /// # Errors
    /// [`Error::UnknownCopy`]; [`Error::Unusable`] if the copy is unfinished or its place is gone;
    /// [`Error::Stopped`].
    pub fn verify(&self, copy: u64, pace: &mut dyn FnMut(u64) -> bool) -> Result<CheckReport> {
        self.check(copy, pace, false)
    }

    /// Checks a copy as [`verify`](NodeStore::verify) does, but does not hash content again that this
    /// process hashed within the last day and that has not changed since.
    ///
    /// # Errors
    /// As [`verify`](NodeStore::verify).
    pub fn verify_daily(
        &self,
        copy: u64,
        pace: &mut dyn FnMut(u64) -> bool,
    ) -> Result<CheckReport> {
        self.check(copy, pace, true)
    }

    fn check(
        &self,
        copy: u64,
        pace: &mut dyn FnMut(u64) -> bool,
        believes_proof: bool,
    ) -> Result<CheckReport> {
        let now = self.files.now();
        let row = self.files.row(copy)?;
        let unusable = Error::Unusable { copy };
        if !matches!(row.state, CopyState::Held | CopyState::Damaged) {
            return Err(unusable);
        }
        let (Some(catalogue), Some(place)) =
            (self.files.catalogue_of(&row)?, self.files.place_of(&row)?)
        else {
            self.mark_damaged(copy)?;
            return Err(unusable);
        };
        let mut report = CheckReport::default();
        let mut walk = PlacedWalk {
            catalogue: &catalogue,
            ids: None,
            holder: place.dir.clone(),
            place: place.path.clone(),
            finds_extra: true,
            is_removing: false,
        };
        let seen = check_entries(&mut walk, row.unkept, &mut report)?;
        let proof = ContentProof::of(&seen, now).filter(|_| report.is_sound());
        let is_proven = |proof: &ContentProof| self.files.proofs.lock().has(copy, proof);
        if row.state == CopyState::Held && believes_proof && proof.as_ref().is_some_and(is_proven) {
            return Ok(report);
        }
        let dir: DirRef = place.dir.clone();
        let mut reader = UnitReader::of_copy(&catalogue, &dir, b"")?;
        check_content(&catalogue, &mut reader, pace, &mut report)?;
        let proof = proof.filter(|_| report.is_sound());
        self.files.proofs.lock().set(copy, proof);
        let state = match report.is_sound() {
            true => CopyState::Held,
            false => CopyState::Damaged,
        };
        self.files.set_state(copy, state)?;
        Ok(report)
    }

    /// Returns whether a path is the directory of the node, lies in it, or holds it. Such a source
    /// would contain the copies that are made of it.
    ///
    /// # Errors
    /// The path cannot be opened.
    pub fn overlaps(&self, path: &Path) -> Result<bool> {
        overlaps(path, &self.files.path)
    }

    /// Finishes what crashes interrupted: complete copies get their final names, removals go on, and
    /// ACLs and links of jobs become those that the index asks for.
    /// Unfinished copies that were not used for a week are removed.
    /// Returns the number of entries that were removed.
    ///
    /// # Errors
    /// The index cannot be read; a place cannot be read.
    pub fn sweep(&self) -> Result<u64> {
        let mut removed = 0u64;
        for row in &self.copies()? {
            let done = match row.state {
                CopyState::Publishing => recover(&self.files, row).map(|_| 0),
                CopyState::Leaving => purge_copy(&self.files, row).map(|report| report.entries),
                CopyState::Held => self.finish_replacement(row).map(|()| 0),
                CopyState::Unfinished if self.is_abandoned(row) => {
                    purge_copy(&self.files, row).map(|report| report.entries)
                }
                CopyState::Unfinished | CopyState::Damaged => Ok(0),
            };
            match done {
                Ok(entries) => removed = removed.saturating_add(entries),
                // The next reception of this set tells the user.
                Err(Error::Occupied { .. } | Error::OtherPlace { .. } | Error::Busy { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.sweep_catalogues()?;
        self.sweep_outboxes()?;
        self.settle_sometimes()?;
        Ok(removed)
    }

    /// Whether no process was at work on an unfinished copy for long.
    fn is_abandoned(&self, row: &CopyRow) -> bool {
        self.files.now().saturating_sub(row.used) > UNFINISHED_AGE
    }

    /// Goes on with the removal of the older version that a copy replaced.
    fn finish_replacement(&self, row: &CopyRow) -> Result<()> {
        let Ok(Some(place)) = self.files.place_of(row) else {
            return Ok(());
        };
        match self.files.find_private(row, &place)? {
            Some(_) => recover(&self.files, row).map(drop),
            None => Ok(()),
        }
    }

    /// Removes catalogues that no copy needs, the links to them, and unfinished files, once they are
    /// older than a day.
    fn sweep_catalogues(&self) -> Result<()> {
        let dir = &self.files.catalogues;
        let rows = self.copies()?;
        for name in names_in(&**dir).map_err(failed_at(b"catalogues", c"."))? {
            let is_old = |meta: driftless_model::Meta| {
                let now = self.files.now().as_secs().cast_signed();
                now.saturating_sub(meta.mtime.sec) > LEFTOVER_AGE.as_secs().cast_signed()
            };
            let is_needed = rows
                .iter()
                .any(|row| row.hash.as_bytes() == name.as_bytes());
            if !is_needed && dir.look(&name).is_ok_and(is_old) {
                let _the_next_sweep_tries_again = dir.remove(&name);
            }
        }
        Ok(())
    }

    /// Returns the absolute path of the directory of the node.
    pub fn path(&self) -> PathBuf {
        plain_path(&self.files.path)
    }
}

/// Returns whether a source is the directory of a store, lies in it, or holds it. The directory need
/// not exist, and is not made.
///
/// # Errors
/// The source cannot be opened.
pub fn overlaps(source: &Path, store: &Path) -> Result<bool> {
    let pool = HandlePool::new(8);
    let (dir, is_dir) = match locate(source, Side::Source, &pool)? {
        Place::Dir(dir) => (dir, true),
        Place::Entry { parent, .. } | Place::Missing { parent, .. } => (parent, false),
    };
    let place = store.ancestors().find_map(|above| {
        let place = locate(above, Side::Replica, &pool).ok()?;
        Some((place, above == store))
    });
    // A missing directory is that above it, and nothing lies in it.
    let (own, is_made) = match place {
        None => return Ok(false),
        Some((Place::Dir(dir), is_whole)) => (dir, is_whole),
        Some((Place::Entry { parent, .. } | Place::Missing { parent, .. }, _)) => (parent, false),
    };
    let failed = |fault| own_file(b".")(fault);
    let own = own.lineage().map_err(failed)?;
    let source = dir.lineage().map_err(failed)?;
    let first = |above: &[driftless_tree::Ancestor]| above.first().map(|dir| dir.id);
    let is_in = |id: Option<(u64, u64)>, above: &[driftless_tree::Ancestor]| {
        id.is_some_and(|id| above.iter().any(|dir| dir.id == id))
    };
    Ok(is_made && is_in(first(&own), &source) || is_dir && is_in(first(&source), &own))
}
