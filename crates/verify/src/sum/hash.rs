//! Hashing files: small ones at once, large ones in pieces that all threads share.

use crate::algorithm::Digest;
use crate::content::{Unread, digest_range, hash_pieces, hash_single};
use crate::hashtree::HashTree;
use crate::subtree::Merge;
use crate::sum::file::{HashFile, Large};
use crate::sum::found::Found;
use crate::sum::hands::Hands;
use crate::sum::run::Item;
use driftless_pool::{cores, split_half};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The most bytes (but at least a piece) that a thread hashes between two looks at whether another
/// thread is idle or the run was stopped. Longer files have longer steps up to that, since each
/// step costs something.
const STEP_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// A large file is hashed in at least about so many steps, or in as many as it has pieces.
const STEPS_MIN: u64 = 16;

impl Hands<'_, '_> {
    /// Hashes a file from its beginning to its end.
    pub fn hash(&mut self, job: HashFile) -> Found {
        let hashed = match job.target.leaf_bytes {
            Some(leaf_bytes) => self
                .small_tree(&job, leaf_bytes)
                .map(|tree| (tree.root(), Some(tree))),
            None => self.digest(&job).map(|digest| (digest, None)),
        };
        self.sums.count_bytes(job.length());
        job.found(hashed)
    }

    /// The hash of a file. A file that the kernel calls empty may have content (proc(5)), so it is
    /// read to its end.
    fn digest(&mut self, job: &HashFile) -> Result<Digest, Unread> {
        let range = if job.meta.size == 0 {
            0..u64::MAX
        } else {
            job.range.clone()
        };
        let (stopped, buffer) = (|| self.sums.stopped(), &mut self.buffer);
        digest_range(&*job.file, range, job.target.algorithm, buffer, &stopped)
    }

    /// The tree of a file that one thread hashes.
    fn small_tree(&mut self, job: &HashFile, leaf_bytes: u64) -> Result<HashTree, Unread> {
        let (size, pieces) = (job.length(), job.pieces());
        let (root, leaves) = if pieces < 2 {
            hash_single(&*job.file, &job.range, &mut self.buffer)?
        } else {
            let (mut merge, mut leaves) = (Merge::new(pieces), Vec::new());
            hash_pieces(
                &*job.file,
                &job.range,
                (0..pieces, leaf_bytes),
                &mut self.buffer,
                &mut |index, leaf| {
                    merge.add(index, leaf);
                    leaves.push(leaf);
                },
            )?;
            (merge.root().expect("all pieces are there"), leaves)
        };
        Ok(HashTree::new(size, leaf_bytes, leaves, root)
            .expect("the hash was made from these leaves"))
    }

    /// Hashes a range of the pieces of a large file, and gives half of the rest away whenever
    /// another thread is idle.
    pub fn pieces(&mut self, large: &Arc<Large>, mut range: Range<u64>) {
        let (job, mut values) = (&large.job, Vec::new());
        let step = ((job.length() / STEPS_MIN).min(STEP_BYTES_MAX) / job.piece_bytes()).max(1);
        while !range.is_empty() && large.state.lock().failed.is_none() && !self.sums.stopped() {
            self.share(large, &mut range, step);
            let now = range.start..range.end.min(range.start + step);
            range.start = now.end;
            let of = (now.clone(), job.piece_bytes());
            let done = hash_pieces(
                &*job.file,
                &job.range,
                of,
                &mut self.buffer,
                &mut |index, value| values.push((index, value)),
            );
            match done {
                Ok(is_cached) => {
                    large.is_cached.store(is_cached, Ordering::Relaxed);
                    large.take_in(&mut values);
                }
                Err(unread) => large.state.lock().failed = Some(unread),
            }
            self.sums
                .count_bytes((now.end - now.start) * job.piece_bytes());
        }
        let is_last = large.pending.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && !self.sums.stopped() {
            let found = large.finish();
            self.sums.finish(large.place.clone(), vec![found]);
        }
    }

    /// Gives half of a range to an idle thread. Where the content is in the page cache, no thread
    /// waits for the file system, and one thread for each core is best.
    fn share(&self, large: &Arc<Large>, range: &mut Range<u64>, step: u64) {
        let enough = large.is_cached.load(Ordering::Relaxed)
            && large.pending.load(Ordering::Relaxed) >= cores();
        let wanted = range.end - range.start > step && !enough && self.sums.queue.hungry();
        if let Some(given) = wanted.then(|| split_half(range, 1)).flatten() {
            large.pending.fetch_add(1, Ordering::Relaxed);
            self.sums
                .queue
                .push_first(Item::Pieces(large.clone(), given));
        }
    }
}
