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
    /// A few of the entries that are equal now, at which the coordinator looks.
    pub settled: Vec<Settled>,
}

impl Outcome {
    /// Cuts it into parts of about `bytes_max` at most, each of which says something of its own;
    /// the counts are in the first, and the few settled entries in the last.
    pub fn split(self, bytes_max: usize) -> Vec<Outcome> {
        let mut parts = Parts {
            ready: Vec::new(),
            part: Outcome {
                counts: self.counts,
                ..Outcome::default()
            },
            bytes: 0,
            bytes_max,
        };
        self.done
            .into_iter()
            .for_each(|done| parts.room(bytes_of(&done.path)).done.push(done));
        self.problems.into_iter().for_each(|problem| {
            parts
                .room(bytes_of(&problem.path) + problem.cause.len())
                .problems
                .push(problem)
        });
        for (class, piece) in self.rest {
            match piece {
                Piece::Entries(dir, names) => {
                    in_windows(names, |names, bytes| {
                        parts
                            .room(bytes_of(&dir) + bytes)
                            .rest
                            .push((class, Piece::Entries(dir.clone(), names)))
                    });
                }
                piece => parts.room(2 * BYTES_EACH).rest.push((class, piece)),
            }
        }
        self.links
            .into_iter()
            .for_each(|link| parts.room(bytes_of(&link.path)).links.push(link));
        for (dir, names) in self.extras {
            in_windows(names, |names, bytes| {
                parts
                    .room(bytes_of(&dir) + bytes)
                    .extras
                    .push((dir.clone(), names))
            });
        }
        self.no_room
            .into_iter()
            .for_each(|path| parts.room(bytes_of(&path)).no_room.push(path));
        self.mounts
            .into_iter()
            .for_each(|path| parts.room(bytes_of(&path)).mounts.push(path));
        self.unkept
            .into_iter()
            .for_each(|first| parts.room(bytes_of(&first.1)).unkept.push(first));
        self.unfinished.into_iter().for_each(|dir| {
            parts
                .room(bytes_of(&dir.0) + 2 * BYTES_EACH)
                .unfinished
                .push(dir)
        });
        for (dir, alike) in self.alike {
            let names = alike
                .earlier
                .iter()
                .chain([&alike.name])
                .map(|name| name.as_bytes().len() + 2)
                .sum::<usize>();
            parts.room(bytes_of(&dir) + names).alike.push((dir, alike));
        }
        for misspelt in self.misspelt {
            let names = misspelt.from.as_bytes().len() + misspelt.to.as_bytes().len();
            parts
                .room(bytes_of(&misspelt.dir) + names)
                .misspelt
                .push(misspelt);
        }
        for file in self.copied {
            parts
                .room(bytes_of(&file.0) + BYTES_EACH * (file.2.len() + 1))
                .copied
                .push(file);
        }
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
