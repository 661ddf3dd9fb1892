//! What is noted of a run that movers share, in a [`Record`] that outlives the coordinator.

use crate::monitor::Monitor;
use crate::shared::part::joined;
use crate::shared::share::{Outcome, Piece, Share};
use crate::sync::alike::{note_alike, note_misspelt};
use driftless_model::{EntryName, RelPath};
use driftless_reconcile::{Fingerprint, Ranges};
use driftless_state::{Batch, Fact, Record, StoreError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Facts that are read at a time.
const FACTS: usize = 1000;

/// What stands in the record beside the open shares.
pub mod fact {
    /// What was counted.
    pub const TOTAL: u8 = 0;
    /// Parts of outcomes whose last part has not come.
    pub const PART: u8 = 1;
    /// Names of files that have several.
    pub const LINK: u8 = 2;
    /// Directories that are to be finished.
    pub const DIR: u8 = 3;
    /// What the source lacks.
    pub const EXTRA: u8 = 4;
    /// Entries for which there was no room.
    pub const NO_ROOM: u8 = 5;
    /// Large files that several movers copy.
    pub const FILE: u8 = 6;
    /// How far the run has come.
    pub const STAGE: u8 = 7;
    /// File systems that are mounted below the source.
    pub const MOUNT: u8 = 8;
    /// The life of the run in which the rest was noted.
    pub const LIFE: u8 = 9;
    /// Names that the replica may take for one with others.
    pub const ALIKE: u8 = 10;
    /// What is to be respelt.
    pub const MISSPELT: u8 = 11;
}

/// How far the run has come, as facts whose order is that of their keys: the first shares were made, those of the links, and what is
/// left for the coordinator alone was begun.
pub const BEGUN: &[u8] = b"1-begun";
pub const LINKS: &[u8] = b"2-links";
pub const ENDING: &[u8] = b"3-ending";

/// A large file whose bytes are copied by several movers: what was copied, and how many pieces are open.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Divided {
    path: RelPath,
    source: Fingerprint,
    copied: Ranges,
    pieces: u64,
    class: u8,
    alone: bool,
}

/// What the record answers.
pub type Noted<T> = Result<T, StoreError>;

/// All facts of a kind, read as they are wanted.
pub struct Facts<'a> {
    record: &'a Record,
    kind: u8,
    read: VecDeque<Fact>,
    after: Vec<u8>,
}

impl<'a> Facts<'a> {
    /// All of `kind`.
    pub fn of(record: &'a Record, kind: u8) -> Self {
        Facts { record, kind, read: VecDeque::new(), after: Vec::new() }
    }

    /// The next one.
    pub fn next(&mut self) -> Noted<Option<Fact>> {
        self.peek()?;
        Ok(self.read.pop_front())
    }

    /// The one that comes next.
    pub fn peek(&mut self) -> Noted<Option<&Fact>> {
        if self.read.is_empty() {
            self.read = self.record.facts(self.kind, &self.after, FACTS)?.into();
            self.read.back().into_iter().for_each(|(key, _)| self.after.clone_from(key));
        }
        Ok(self.read.front())
    }
}

/// A plain value as it stands in the record.
pub fn encoded(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).expect("plain values can be encoded")
}

/// The value that stands in the record; none if it is of another kind.
pub fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}

/// Keys are not empty, so that they come after "nothing"; the root's path is.
pub fn keyed(path: &RelPath) -> Vec<u8> {
    [b"/", path.as_bytes()].concat()
}

/// The path that a key holds.
pub fn path_in(key: &[u8]) -> Option<RelPath> {
    RelPath::parse(key.strip_prefix(b"/")?).ok()
}

/// Adds open shares.
pub fn add_shares(batch: &Batch<'_>, shares: &[Share]) -> Noted<()> {
    shares.iter().try_for_each(|share| batch.add_item(&encoded(share)).map(drop))
}

/// Notes what came of a share. What is left for others goes to `rest`.
pub fn note_outcome(batch: &Batch<'_>, outcome: Outcome, monitor: &dyn Monitor, rest: &mut Vec<(u8, Piece)>) -> Noted<()> {
    outcome.done.into_iter().for_each(|done| monitor.receipt(&done.into()));
    outcome.problems.iter().for_each(|problem| monitor.problem(problem));
    outcome.unkept.iter().for_each(|(what, path)| monitor.unkept(*what, path));
    for link in outcome.links {
        let key = [&link.id.0.to_be_bytes()[..], &link.id.1.to_be_bytes(), &keyed(&link.path)].concat();
        batch.put(fact::LINK, &key, &encoded(&(link.size, link.there)))?;
    }
    for extra in outcome.extras {
        let first = extra.1.first().map_or(&b""[..], EntryName::as_bytes);
        batch.put(fact::EXTRA, &[&keyed(&extra.0), &b"\0"[..], first].concat(), &encoded(&extra))?;
    }
    for path in outcome.no_room {
        batch.put(fact::NO_ROOM, &keyed(&path), &encoded(&path))?;
    }
    for path in outcome.mounts {
        batch.put(fact::MOUNT, &keyed(&path), b"")?;
    }
    note_alike(batch, &outcome.alike)?;
    note_misspelt(batch, &outcome.misspelt)?;
    for (path, left) in outcome.unfinished {
        let held = batch.get(fact::DIR, &keyed(&path))?.and_then(|held| decoded(&held));
        batch.put(fact::DIR, &keyed(&path), &encoded(&held.map_or(left, |held| joined(held, left))))?;
    }
    for (path, source, copied) in outcome.copied {
        change_divided(batch, &path, &source, |file| copied.iter().for_each(|range| file.copied.add(range.clone())))?;
    }
    rest.extend(outcome.rest);
    Ok(())
}

/// Counts the pieces of large files: those that are settled, and those that are new. A file none of whose pieces is open any more is a
/// piece of its own again.
pub fn settle_pieces(batch: &Batch<'_>, share: &Share, rest: &mut Vec<(u8, Piece)>) -> Noted<()> {
    for (class, piece) in rest.iter() {
        if let Piece::Bytes(path, source, _) = piece {
            let new = Divided {
                path: path.clone(),
                source: source.clone(),
                copied: Ranges::default(),
                pieces: 0,
                class: *class,
                alone: share.alone,
            };
            let held = batch.get(fact::FILE, &file_key(path, source))?.and_then(|held| decoded::<Divided>(&held)).unwrap_or(new);
            batch.put(fact::FILE, &file_key(path, source), &encoded(&Divided { pieces: held.pieces + 1, ..held }))?;
        }
    }
    let settled: Vec<(RelPath, Fingerprint)> = share
        .pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Bytes(path, source, _) => Some((path.clone(), source.clone())),
            _ => None,
        })
        .collect();
    for (path, source) in settled {
        change_divided(batch, &path, &source, |file| file.pieces = file.pieces.saturating_sub(1))?;
        let key = file_key(&path, &source);
        let held = batch.get(fact::FILE, &key)?.and_then(|held| decoded::<Divided>(&held));
        if let Some(file) = held.filter(|file| file.pieces == 0) {
            batch.take(fact::FILE, &key)?;
            rest.push((file.class, Piece::Rest(file.path, file.source, file.copied)));
        }
    }
    Ok(())
}

fn file_key(path: &RelPath, source: &Fingerprint) -> Vec<u8> {
    [keyed(path), vec![0], encoded(source)].concat()
}

fn change_divided(batch: &Batch<'_>, path: &RelPath, source: &Fingerprint, change: impl FnOnce(&mut Divided)) -> Noted<()> {
    let key = file_key(path, source);
    let Some(mut file) = batch.get(fact::FILE, &key)?.and_then(|held| decoded::<Divided>(&held)) else { return Ok(()) };
    change(&mut file);
    batch.put(fact::FILE, &key, &encoded(&file))
}
