//! Hashing one file: a small one at once, a large one in pieces that all threads share.
//!
//! After a file was read in more than one step, it is looked at again: if it has changed, what was
//! hashed may be a state that it never had.

use crate::algorithm::{Algorithm, Digest};
use crate::content::{BUFFER_BYTES, Unread};
use crate::hashtree::{HashTree, Leaf};
use crate::subtree::{Merge, pieces_of};
use crate::sum::found::{Found, Sum, Target, What};
use driftless_lock::Mutex;
use driftless_model::{Entry, Keep, Kind, Meta, Side, Xattrs};
use driftless_pool::Position;
use driftless_tree::{Dir, Done, ReadFile};
use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// From this many bytes on, a file is a task of its own.
const LARGE_BYTES: u64 = 4 * 1024 * 1024;

/// Bytes of a piece, unless the leaves of a hash tree say otherwise.
const PIECE_BYTES: u64 = 1024 * 1024;

/// The most leaves of one tree: they are held in memory while the file is hashed, and so many take
/// 8 GiB.
const LEAVES_MAX: u64 = 1 << 28;

/// Returns attributes of which all were read: a manifest names no entry without them.
pub fn all_xattrs(read: Done<Xattrs>) -> Done<Xattrs> {
    read.and_then(|xattrs| xattrs.all_read(Side::Source))
}

/// An open file that is to be hashed.
pub struct HashFile {
    pub(super) target: Arc<Target>,
    path: Vec<u8>,
    pub(super) file: Box<dyn ReadFile>,
    pub(super) meta: Meta,
    pub(super) range: Range<u64>,
    /// The extended attributes, if they are wanted for a manifest.
    xattrs: Option<Xattrs>,
}

impl HashFile {
    /// Opens a file; if it cannot be hashed, returns what is found at its path instead.
    pub fn open(
        target: &Arc<Target>,
        path: Vec<u8>,
        (dir, name): (&dyn Dir, &CStr),
        manifest: bool,
    ) -> Result<Self, Box<Found>> {
        let opened = dir.open_file(name).and_then(|file| {
            let meta = file.meta()?;
            let xattrs = manifest
                .then(|| all_xattrs(file.xattrs(&Keep::default())))
                .transpose()?;
            Ok((file, meta, xattrs))
        });
        let (file, meta, xattrs) = match opened {
            Ok(opened) => opened,
            Err(fault) => return Err(Box::new(Found::problem(target, path, fault))),
        };
        let range = match range_of(target.range.as_ref(), &meta) {
            Ok(range) => range,
            Err(cause) => {
                return Err(Box::new(Found {
                    target: Some(target.clone()),
                    path,
                    what: What::without_sum(target, cause),
                }));
            }
        };
        Ok(HashFile {
            target: target.clone(),
            path,
            file,
            meta,
            range,
            xattrs,
        })
    }

    /// Device and inode.
    pub fn id(&self) -> (u64, u64) {
        self.meta.id()
    }

    pub(super) fn length(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Whether it is a task of its own.
    pub fn is_large(&self) -> bool {
        self.length() >= LARGE_BYTES
    }

    pub(super) fn piece_bytes(&self) -> u64 {
        self.target.leaf_bytes.unwrap_or(PIECE_BYTES)
    }

    /// How many pieces can be hashed independently of each other.
    pub fn pieces(&self) -> u64 {
        if self.target.algorithm == Algorithm::Blake3 {
            pieces_of(self.length(), self.piece_bytes())
        } else {
            1
        }
    }

    /// What is found at the path of a file, by what came of hashing it.
    pub(super) fn found(&self, hashed: Result<(Digest, Option<HashTree>), Unread>) -> Found {
        let (target, path) = (Some(self.target.clone()), self.path.clone());
        let hashed = hashed.and_then(|hashed| {
            if self.has_changed()? {
                Err(Unread::Short)
            } else {
                Ok(hashed)
            }
        });
        let what = match (hashed, &self.xattrs) {
            (Ok((digest, _)), Some(xattrs)) => What::Entry(
                Box::new(Entry {
                    meta: self.meta,
                    xattrs: xattrs.clone(),
                }),
                Some(digest),
            ),
            (Ok((digest, tree)), None) => What::Sum(Sum {
                digest,
                range: self.range.clone(),
                tree: tree.map(Box::new),
            }),
            (Err(Unread::Fault(fault)), _) => What::Problem(fault.alone()),
            (Err(Unread::Short), _) => What::Problem(self.why_short().into()),
            (Err(Unread::Stopped), _) => What::Problem("the run was stopped".into()),
        };
        Found { target, path, what }
    }

    /// Why there were fewer bytes than the size says. Files of the kernel (sysfs(5)) have the size
    /// of a page, whatever is in them.
    fn why_short(&self) -> &'static str {
        let now = self.file.meta();
        let is_as_it_was = now.is_ok_and(|now| self.meta.unchanged(&now));
        if is_as_it_was {
            "it has fewer bytes than its size says (no sum)"
        } else {
            "it changed while it was read (no sum)"
        }
    }

    fn has_changed(&self) -> Result<bool, Unread> {
        let one_step = self.length() <= BUFFER_BYTES as u64 && self.target.leaf_bytes.is_none();
        Ok(!one_step && !self.meta.unchanged(&self.file.meta_again()?))
    }
}

/// The range of a file that is to be hashed, or why there is none.
fn range_of(wanted: Option<&Range<u64>>, meta: &Meta) -> Result<Range<u64>, String> {
    if meta.kind != Kind::File {
        return Err(format!("it is {} now", meta.kind.phrase()));
    }
    let Some(wanted) = wanted else {
        return Ok(0..meta.size);
    };
    let end = if wanted.end == u64::MAX {
        meta.size.max(wanted.start)
    } else {
        wanted.end
    };
    if end > meta.size {
        return Err(format!(
            "the range goes up to byte {end}, and the file has {} bytes",
            meta.size
        ));
    }
    Ok(wanted.start..end)
}

/// A file in pieces.
pub struct Large {
    pub(super) place: Position,
    pub(super) job: HashFile,
    /// Ranges of pieces that are waiting or being worked on.
    pub(super) pending: AtomicUsize,
    /// Whether what was hashed last was in the page cache.
    pub(super) is_cached: AtomicBool,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    merge: Merge,
    leaves: Option<Vec<Leaf>>,
    pub(super) failed: Option<Unread>,
}

impl Large {
    /// Begins with a file of at least two pieces.
    pub fn begin(place: Position, job: HashFile) -> Result<Self, (Position, Box<Found>)> {
        let pieces = job.pieces();
        if job.target.leaf_bytes.is_some() && pieces > LEAVES_MAX {
            let what = What::Problem(format!(
                "its tree would have {pieces} leaves, more than {LEAVES_MAX}; choose larger ones"
            ));
            return Err((
                place,
                Box::new(Found {
                    target: Some(job.target),
                    path: job.path,
                    what,
                }),
            ));
        }
        let leaves = job
            .target
            .leaf_bytes
            .map(|_| vec![[0; 32]; pieces as usize]);
        let state = Mutex::new(State {
            merge: Merge::new(pieces),
            leaves,
            failed: None,
        });
        Ok(Large {
            place,
            job,
            pending: AtomicUsize::new(1),
            is_cached: AtomicBool::new(false),
            state,
        })
    }

    /// The numbers of its pieces.
    pub fn all(&self) -> Range<u64> {
        0..self.job.pieces()
    }

    pub(super) fn take_in(&self, values: &mut Vec<(u64, Leaf)>) {
        let mut state = self.state.lock();
        for (index, value) in values.drain(..) {
            state.merge.add(index, value);
            if let Some(leaves) = &mut state.leaves {
                leaves[index as usize] = value;
            }
        }
    }

    pub(super) fn finish(&self) -> Found {
        let mut state = self.state.lock();
        let hashed = match state.failed {
            Some(unread) => Err(unread),
            None => {
                let root = state.merge.root().expect("all pieces are there");
                let tree = state.leaves.take().map(|leaves| {
                    HashTree::new(self.job.length(), self.job.piece_bytes(), leaves, root)
                        .expect("the hash was made from these leaves")
                });
                Ok((root, tree))
            }
        };
        self.job.found(hashed)
    }
}
