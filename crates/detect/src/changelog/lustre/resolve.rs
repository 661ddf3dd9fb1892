//! Records become changes: names below directories that are looked up by their numbers.
//!
//! A directory is looked up where it is now, which is where the entry is to be looked at. A record
//! of a directory that is gone needs nothing, since the one that says so stands in the same log.
//! Scopes are those of btrfs.

use super::record::{Fid, Kind, Record};
use driftless_model::{Change, EntryName, Hint, RelPath, Scope};
use std::collections::{BTreeMap, HashMap};

/// Where a file or directory is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// At these paths of the source; a directory has one.
    At {
        /// All of them.
        paths: Vec<RelPath>,
        /// Whether it is one.
        is_directory: bool,
    },
    /// It is not there any more.
    Gone,
    /// It is in the same file system, and not below the source.
    Elsewhere,
}

/// Looks files and directories up by their numbers, as `lfs fid2path` does.
pub trait Fids {
    /// Why something could not be looked up. Being gone is no error.
    type Error;

    /// Where it is now.
    fn place(&mut self, fid: Fid) -> Result<Place, Self::Error>;
}

/// What these records come to: moves first, each part in the order of the paths. Each number is
/// looked up once.
///
/// Fails if a number cannot be looked up.
pub fn changes<F: Fids>(records: &[Record], fids: &mut F) -> Result<Vec<Change>, F::Error> {
    let mut work = Resolver {
        fids,
        known: HashMap::new(),
        origins: origins(records),
        changes: BTreeMap::new(),
    };
    for record in records {
        work.add(record)?;
    }
    let (mut all, others): (Vec<Change>, Vec<Change>) = work
        .changes
        .into_values()
        .partition(|change| change.hint.is_some());
    all.extend(others);
    Ok(all)
}

/// A name in a directory.
type Named = (Fid, EntryName);

/// What stood under a name before the first record: itself, nothing, or what was elsewhere. Only
/// names that records have given something else have a row.
fn origins(records: &[Record]) -> HashMap<Named, Option<Named>> {
    let mut origins = HashMap::new();
    for record in records {
        let named = record.parent.zip(record.name.clone());
        match (record.kind, named, &record.source) {
            (Kind::Made | Kind::Linked, Some(name), _) => drop(origins.insert(name, None)),
            (Kind::Unlinked | Kind::Removed, Some(name), _) => drop(origins.remove(&name)),
            (Kind::Renamed, Some(name), Some(source)) => {
                let from = (source.parent, source.name.clone());
                let origin = origins.remove(&from).unwrap_or(Some(from));
                origins.insert(name, origin);
            }
            _ => (),
        }
    }
    origins
}

struct Resolver<'a, F> {
    fids: &'a mut F,
    known: HashMap<Fid, Place>,
    origins: HashMap<Named, Option<Named>>,
    changes: BTreeMap<RelPath, Change>,
}

impl<F: Fids> Resolver<'_, F> {
    fn add(&mut self, record: &Record) -> Result<(), F::Error> {
        let named = record.parent.zip(record.name.as_ref());
        match (record.kind, named, &record.source) {
            (Kind::Read, _, _) => Ok(()),
            (Kind::Made | Kind::Unlinked, Some(name), _) => self.name(name, Scope::Entry),
            // What was in it may have gone before, with nobody to say where that was.
            (Kind::Removed, Some(name), _) => self.name(name, Scope::Subtree),
            (Kind::Linked, Some(name), _) => {
                self.target(record)?;
                self.name(name, Scope::Entry)
            }
            (Kind::Renamed, Some(name), Some(source)) => {
                let scope = self.scope(source.fid)?;
                self.name((source.parent, &source.name), scope)?;
                self.arrival(name, scope)
            }
            // Type 9 of older versions: what is gone from a directory by a rename.
            (Kind::Renamed, Some(name), None) => self.name(name, Scope::Subtree),
            (Kind::Changed, _, _) if record.target.is_some() => self.target(record),
            _ => self.doubt(record),
        }
    }

    fn place(&mut self, fid: Fid) -> Result<Place, F::Error> {
        if let Some(place) = self.known.get(&fid) {
            return Ok(place.clone());
        }
        let place = self.fids.place(fid)?;
        self.known.insert(fid, place.clone());
        Ok(place)
    }

    fn paths(&mut self, fid: Fid) -> Result<Vec<RelPath>, F::Error> {
        Ok(match self.place(fid)? {
            Place::At { paths, .. } => paths,
            Place::Gone | Place::Elsewhere => Vec::new(),
        })
    }

    /// How far a change of place of this entry reaches.
    fn scope(&mut self, fid: Fid) -> Result<Scope, F::Error> {
        Ok(match self.place(fid)? {
            Place::At {
                is_directory: false,
                ..
            } => Scope::Entry,
            Place::At { .. } | Place::Gone | Place::Elsewhere => Scope::Subtree,
        })
    }

    fn name(&mut self, name: (Fid, &EntryName), scope: Scope) -> Result<(), F::Error> {
        for path in self.names(name)? {
            self.tell(Change {
                path,
                scope,
                hint: None,
            });
        }
        Ok(())
    }

    /// The paths of a name, where its directory is now.
    fn names(&mut self, (parent, name): (Fid, &EntryName)) -> Result<Vec<RelPath>, F::Error> {
        let directories = self.paths(parent)?.into_iter();
        Ok(directories
            .map(|directory| directory.join(name.as_bytes()))
            .collect())
    }

    /// What was renamed to this name, with where it was before all records.
    fn arrival(&mut self, name: (Fid, &EntryName), scope: Scope) -> Result<(), F::Error> {
        let key = (name.0, name.1.clone());
        let origin = self.origins.get(&key).cloned().flatten();
        let mut hint = None;
        if let Some((parent, name)) = origin.filter(|origin| *origin != key) {
            hint = self.names((parent, &name))?.pop().map(Hint::MovedFrom);
        }
        for path in self.names(name)? {
            self.tell(Change {
                path,
                scope,
                hint: hint.clone(),
            });
        }
        Ok(())
    }

    /// All names of the entry.
    fn target(&mut self, record: &Record) -> Result<(), F::Error> {
        let Some(fid) = record.target else {
            return Ok(());
        };
        for path in self.paths(fid)? {
            self.tell(Change::entry(path));
        }
        Ok(())
    }

    /// A record that says nothing that is understood: all below the directory that it names, or
    /// below the entry; if it names none, everything.
    fn doubt(&mut self, record: &Record) -> Result<(), F::Error> {
        let Some(fid) = record.parent.or(record.target) else {
            self.tell(Change::subtree(RelPath::root()));
            return Ok(());
        };
        for path in self.paths(fid)? {
            self.tell(Change::subtree(path));
        }
        Ok(())
    }

    /// Of several changes of one path, the scope and the hint are kept that say more.
    fn tell(&mut self, change: Change) {
        let known = self.changes.entry(change.path.clone());
        let known = known.or_insert_with(|| change.clone());
        if change.scope == Scope::Subtree {
            known.scope = Scope::Subtree;
        }
        if change.hint.is_some() {
            known.hint = change.hint;
        }
    }
}
