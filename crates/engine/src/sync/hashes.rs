//! A bound on the names of large directories whose hashes a run keeps at a time.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Names of large directories whose hashes are kept at a time: 18 MiB.
pub const HASHES_MAX: usize = 1 << 20;

/// How many hashes of names are kept.
#[derive(Debug, Default)]
pub struct HashesKept(AtomicUsize);

impl HashesKept {
    /// Takes room for so many more; returns whether there was any.
    pub fn take(&self, count: usize) -> bool {
        let fits = self.0.fetch_add(count, Relaxed) + count <= HASHES_MAX;
        if !fits {
            self.give(count);
        }
        fits
    }

    /// Gives back the room of so many.
    pub fn give(&self, count: usize) {
        self.0.fetch_sub(count, Relaxed);
    }
}
