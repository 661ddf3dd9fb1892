//! How much of the large files that were begun is still to be moved: what the share of the walk
//! alone does not show.
//!
//! A small file is looked at and done in one go, so the share of the walk that is over tells of it.
//! A large one may be the last entry of all and still take longer than all others together: its
//! bytes are known, so they are counted from its beginning.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Large files of a run: bytes, and shares of the walk in the unit of `Tally::walked`. Never
/// decreases.
#[derive(Debug, Default)]
pub struct UnderWay {
    bytes_begun: AtomicU64,
    bytes_done: AtomicU64,
    walk_begun: AtomicU64,
    walk_done: AtomicU64,
}

/// What is under way at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LargeFiles {
    /// Bytes of the large files that were begun.
    pub bytes_begun: u64,
    /// Those of them that were moved, or are not to be moved any more.
    pub bytes_done: u64,
    /// Share of the walk that the begun ones are.
    pub walk_begun: u64,
    /// That of what is done of them.
    pub walk_done: u64,
}

impl UnderWay {
    /// The numbers now.
    pub fn now(&self) -> LargeFiles {
        // Done before begun: so it is never more.
        let (bytes_done, walk_done) = (self.bytes_done.load(Relaxed), self.walk_done.load(Relaxed));
        LargeFiles {
            bytes_begun: self.bytes_begun.load(Relaxed),
            bytes_done,
            walk_begun: self.walk_begun.load(Relaxed),
            walk_done,
        }
    }
}

/// One large file from its beginning to its end, however it ends: then nothing of it is under way
/// any more.
#[derive(Debug)]
pub struct Begun {
    all: Arc<UnderWay>,
    bytes: u64,
    walk: u64,
    done: AtomicU64,
}

impl Begun {
    /// Begins a file of which `bytes` are to be moved, and which is the share `walk`.
    pub fn new(all: &Arc<UnderWay>, bytes: u64, walk: u64) -> Self {
        all.bytes_begun.fetch_add(bytes, Relaxed);
        all.walk_begun.fetch_add(walk, Relaxed);
        Begun {
            all: all.clone(),
            bytes,
            walk,
            done: AtomicU64::new(0),
        }
    }

    /// So many bytes more are done.
    pub fn advance(&self, bytes: u64) {
        let before = self.done.fetch_add(bytes, Relaxed).min(self.bytes);
        let after = (before + bytes).min(self.bytes);
        let part = |bytes: u64| {
            (u128::from(self.walk) * u128::from(bytes) / u128::from(self.bytes.max(1))) as u64
        };
        self.all.bytes_done.fetch_add(after - before, Relaxed);
        self.all
            .walk_done
            .fetch_add(part(after) - part(before), Relaxed);
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.advance(self.bytes);
        if self.bytes == 0 {
            self.all.walk_done.fetch_add(self.walk, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_under_way_when_all_have_ended_however_they_did() {
        let all = Arc::<UnderWay>::default();
        let (a, b) = (Begun::new(&all, 100, 1 << 20), Begun::new(&all, 0, 77));
        a.advance(30);
        assert_eq!(
            all.now(),
            LargeFiles {
                bytes_begun: 100,
                bytes_done: 30,
                walk_begun: (1 << 20) + 77,
                walk_done: 314_572
            }
        );
        drop((a, b));
        let now = all.now();
        assert_eq!(
            (now.bytes_begun, now.walk_begun),
            (now.bytes_done, now.walk_done)
        );
    }
}
