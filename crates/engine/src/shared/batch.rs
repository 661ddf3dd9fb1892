//! A batch of a run: what a mover on another host takes at a time, and what comes of it. Plain
//! values that can be sent and stored.
//!
//! A batch is carried out like a run of its own, but for what only the whole run can decide: what
//! the source lacks, groups of hard links, directories whose entries are divided among several
//! movers. These go back to the coordinator, as does what the mover does not get to
//! when it is asked to leave some for others.

use crate::shared::handed::{Misspelt, Namesake};
use crate::shared::settled::Settled;
use crate::shared::unfinished::Unfinished;
use crate::tally::Counts;
use driftless_model::{Action, EntryName, Kind, Problem, Receipt, RelPath, Unkept, What};
use driftless_reconcile::{Fingerprint, Ranges};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A part of a run. Safe to carry out twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Piece {
    /// The root and all below it.
    Root,
    /// Entries of a directory, each with all below it; not the directory itself.
    Entries(RelPath, Vec<EntryName>),
    /// Bytes of a large file, which was like this when its copy was begun.
    Bytes(RelPath, Fingerprint, Range<u64>),
    /// A large file of which these bytes were copied by others.
    Rest(RelPath, Fingerprint, Ranges),
}

/// What a mover takes at a time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Its parts.
    pub pieces: Vec<Piece>,
    /// Which class of work it belongs to: the number of a [`Route`] and one more, 0 for what no
    /// route takes.
    pub class: u8,
    /// Files with several names are made like all others; the coordinator links their
    /// names.
    pub alone: bool,
    /// How much of the whole walk it is, in the unit of [`Counts::walked`].
    pub walk: u64,
    /// Which of its names the replica may take for one with others, by directory: known when it is
    /// handed out.
    pub alike: Vec<(RelPath, Vec<Namesake>)>,
}

/// Files of at least so many bytes are work of a class of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Size in bytes.
    pub size_min: u64,
    /// The name of the class.
    pub class: String,
}

/// What was done to an entry: a [`Receipt`] that travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    path: RelPath,
    kind: Kind,
    action: Action,
    what: What,
    size: u64,
}

impl From<&Receipt> for Done {
    fn from(receipt: &Receipt) -> Self {
        Done {
            path: receipt.path.clone(),
            kind: receipt.kind,
            action: receipt.action,
            what: receipt.what,
            size: receipt.size,
        }
    }
}

impl From<Done> for Receipt {
    fn from(done: Done) -> Self {
        let Done {
            path,
            kind,
            action,
            what,
            size,
        } = done;
        Receipt {
            path,
            kind,
            action,
            what,
            size,
            values: Vec::new(),
            ranges: Vec::new(),
        }
    }
}

/// A name of a file that has several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkName {
    /// Device and inode of the source.
    pub id: (u64, u64),
    /// Where.
    pub path: RelPath,
    /// Its size in bytes.
    pub size: u64,
    /// The replica has something of this name.
    pub there: bool,
}

/// What comes of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// What was counted; what is given back is not among it.
    pub counts: Counts,
    /// What was done, if anybody wants to know.
    pub done: Vec<Done>,
    /// Paths with problems.
    pub problems: Vec<Problem>,
    /// What is left for others, each with its class.
    pub rest: Vec<(u8, Piece)>,
    /// Names of files that have several.
    pub links: Vec<LinkName>,
    /// Names of the replica that the source lacks.
    pub extras: Vec<(RelPath, Vec<EntryName>)>,
    /// Entries for which there was no room.
    pub no_room: Vec<RelPath>,
    /// Directories that are to be finished.
    pub unfinished: Vec<(RelPath, Unfinished)>,
    /// Names of directories that are to be finished, which the replica may take for one with
    /// others.
    pub alike: Vec<(RelPath, Namesake)>,
    /// What is to be respelt in such directories.
    pub misspelt: Vec<Misspelt>,
    /// Paths below the source on which file systems are mounted.
    pub mounts: Vec<RelPath>,
    /// What entries have that their copies do not get: each kind with the first that was met.
    pub unkept: Vec<(Unkept, RelPath)>,
    /// Bytes of large files that others finish; they are durable.
    pub copied: Vec<(RelPath, Fingerprint, Ranges)>,
    /// Sample of the entries that are equal now, at which the coordinator looks.
    pub settled: Vec<Settled>,
}

impl Outcome {
    /// Cuts it into parts of about `bytes_max` at most, each of which says something of its own;
    /// the counts are in the first, and the settled entries in the last.
    pub fn split(self, bytes_max: usize) -> Vec<Outcome> {
        let mut parts = Parts::of(self.counts, bytes_max);
        parts.add(
            self.done,
            |done| bytes_of(&done.path),
            |part| &mut part.done,
        );
        let of_problem = |problem: &Problem| bytes_of(&problem.path) + problem.cause.len();
        parts.add(self.problems, of_problem, |part| &mut part.problems);
        for (class, piece) in self.rest {
            parts.add_piece(class, piece);
        }
        parts.add(
            self.links,
            |link| bytes_of(&link.path),
            |part| &mut part.links,
        );
        for (dir, names) in self.extras {
            parts.add_names(dir, names, |part, found| part.extras.push(found));
        }
        parts.add(self.no_room, bytes_of, |part| &mut part.no_room);
        parts.add(self.mounts, bytes_of, |part| &mut part.mounts);
        parts.add(
            self.unkept,
            |first| bytes_of(&first.1),
            |part| &mut part.unkept,
        );
        let of_unfinished = |dir: &(RelPath, Unfinished)| bytes_of(&dir.0) + 2 * BYTES_EACH;
        parts.add(self.unfinished, of_unfinished, |part| &mut part.unfinished);
        parts.add(self.alike, bytes_of_alike, |part| &mut part.alike);
        parts.add(self.misspelt, bytes_of_misspelt, |part| &mut part.misspelt);
        let of_copied = |file: &(RelPath, Fingerprint, Ranges)| {
            bytes_of(&file.0) + BYTES_EACH * (file.2.len() + 1)
        };
        parts.add(self.copied, of_copied, |part| &mut part.copied);
        parts.part.settled = self.settled;
        parts.ready.push(parts.part);
        parts.ready
    }
}

/// Bytes that anything takes at least, counted generously.
const BYTES_EACH: usize = 64;

/// Bytes of names that stay together at most.
const WINDOW_BYTES: usize = 128 << 10;

fn bytes_of(path: &RelPath) -> usize {
    path.as_bytes().len() + BYTES_EACH
}

fn bytes_of_alike((dir, alike): &(RelPath, Namesake)) -> usize {
    let names = alike.earlier.iter().chain([&alike.name]);
    let bytes = names.map(|name| name.as_bytes().len() + 2);
    bytes_of(dir) + bytes.sum::<usize>()
}

fn bytes_of_misspelt(misspelt: &Misspelt) -> usize {
    bytes_of(&misspelt.dir) + misspelt.from.as_bytes().len() + misspelt.to.as_bytes().len()
}

/// Hands names out in windows, each with its bytes.
fn in_windows(names: Vec<EntryName>, mut each: impl FnMut(Vec<EntryName>, usize)) {
    let (mut window, mut bytes) = (Vec::new(), 0);
    for name in names {
        bytes += name.as_bytes().len() + 2;
        window.push(name);
        if bytes > WINDOW_BYTES {
            each(std::mem::take(&mut window), std::mem::take(&mut bytes));
        }
    }
    if !window.is_empty() {
        each(window, bytes);
    }
}

/// The parts of an outcome while it is cut.
struct Parts {
    ready: Vec<Outcome>,
    part: Outcome,
    bytes: usize,
    bytes_max: usize,
}

impl Parts {
    /// The first part, with the counts.
    fn of(counts: Counts, bytes_max: usize) -> Self {
        let part = Outcome {
            counts,
            ..Outcome::default()
        };
        Parts {
            ready: Vec::new(),
            part,
            bytes: 0,
            bytes_max,
        }
    }

    /// Adds each item to `list` of a part that has room for its bytes.
    fn add<T>(
        &mut self,
        items: Vec<T>,
        bytes: impl Fn(&T) -> usize,
        list: impl Fn(&mut Outcome) -> &mut Vec<T>,
    ) {
        for item in items {
            let bytes = bytes(&item);
            list(self.room(bytes)).push(item);
        }
    }

    /// Adds names of one directory, a window at a time.
    fn add_names(
        &mut self,
        dir: RelPath,
        names: Vec<EntryName>,
        add: impl Fn(&mut Outcome, (RelPath, Vec<EntryName>)),
    ) {
        in_windows(names, |names, bytes| {
            add(self.room(bytes_of(&dir) + bytes), (dir.clone(), names));
        });
    }

    fn add_piece(&mut self, class: u8, piece: Piece) {
        match piece {
            Piece::Entries(dir, names) => self.add_names(dir, names, |part, (dir, names)| {
                part.rest.push((class, Piece::Entries(dir, names)));
            }),
            piece => self.room(2 * BYTES_EACH).rest.push((class, piece)),
        }
    }

    /// The part that has room for so many bytes more.
    fn room(&mut self, bytes: usize) -> &mut Outcome {
        if self.bytes > 0 && self.bytes + bytes > self.bytes_max {
            self.ready.push(std::mem::take(&mut self.part));
            self.bytes = 0;
        }
        self.bytes += bytes;
        &mut self.part
    }
}
