//! Paths that are remembered until something ends, each under a number. There is room for a few;
//! what finds none is a gap.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Longer paths are not remembered.
const PATH_BYTES_MAX: usize = 1024;

const FREE: usize = 0;
/// One thread reads or writes it.
const BUSY: usize = 1;
const FULL: usize = 2;

/// What becomes of a place after it was looked at.
pub enum Fate {
    Stays,
    StaysAs { key: usize, len: usize },
    Goes,
}

struct Place {
    state: AtomicUsize,
    key: AtomicUsize,
    len: AtomicUsize,
    path: UnsafeCell<([u8; PATH_BYTES_MAX], usize)>,
}

// SAFETY: the path belongs to the thread that has made the state `BUSY`.
unsafe impl Sync for Place {}

/// Room for `COUNT` paths.
pub struct Places<const COUNT: usize> {
    all: [Place; COUNT],
}

impl<const COUNT: usize> Places<COUNT> {
    pub const fn new() -> Places<COUNT> {
        Places {
            all: [const {
                Place {
                    state: AtomicUsize::new(FREE),
                    key: AtomicUsize::new(0),
                    len: AtomicUsize::new(0),
                    path: UnsafeCell::new(([0; PATH_BYTES_MAX], 0)),
                }
            }; COUNT],
        }
    }

    /// Remembers a path under a number, and with a length of anything; false if there is no room.
    pub fn keep(&self, key: usize, len: usize, path: &[u8]) -> bool {
        let is_free = |place: &&Place| place.has_become(FREE);
        let Some(place) = self.all.iter().find(is_free) else {
            return false;
        };
        // SAFETY: it is this thread's.
        let kept = unsafe { &mut *place.path.get() };
        let is_kept = crate::sys::put(&mut kept.0, 0, path).is_some();
        kept.1 = path.len();
        place.key.store(key, Relaxed);
        place.len.store(len, Relaxed);
        place
            .state
            .store(if is_kept { FULL } else { FREE }, Release);
        is_kept
    }

    /// Shows the paths whose number and length are meant, and does with each as is said. Returns
    /// how many have gone.
    pub fn each(
        &self,
        is_meant: impl Fn(usize, usize) -> bool,
        mut shown: impl FnMut(usize, usize, &[u8]) -> Fate,
    ) -> usize {
        let mut gone = 0;
        for place in &self.all {
            let of = || (place.key.load(Relaxed), place.len.load(Relaxed));
            let (key, len) = of();
            let is_free = place.state.load(Acquire) == FREE;
            if is_free || !is_meant(key, len) || !place.has_become(FULL) {
                continue;
            }
            let (key, len) = of();
            // SAFETY: it is this thread's.
            let kept = unsafe { &*place.path.get() };
            let fate = match kept.0.get(..kept.1) {
                Some(path) if is_meant(key, len) => shown(key, len, path),
                _ => Fate::Stays,
            };
            place.settle(&fate);
            gone += usize::from(matches!(fate, Fate::Goes));
        }
        gone
    }
}

impl Place {
    /// Whether it was in this state, and is now this thread's.
    fn has_become(&self, from: usize) -> bool {
        let of = self.state.compare_exchange(from, BUSY, Acquire, Relaxed);
        of.is_ok()
    }

    fn settle(&self, fate: &Fate) {
        if let Fate::StaysAs { key, len } = fate {
            self.key.store(*key, Relaxed);
            self.len.store(*len, Relaxed);
        }
        let is_over = matches!(fate, Fate::Goes);
        self.state.store(if is_over { FREE } else { FULL }, Release);
    }
}
