//! A bound on bytes that many threads share.

use driftless_lock::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// Between two looks at whether to wait on for room.
const TICK: Duration = Duration::from_millis(100);

/// Bytes that are taken and given back.
pub struct Budget {
    used: Mutex<Used>,
    room: Condvar,
    bytes_max: u64,
}

/// Bytes that are taken, and how many threads wait for room.
#[derive(Default)]
struct Used {
    bytes: u64,
    waiting: usize,
    /// There is no bound any more.
    is_open: bool,
}

impl Budget {
    /// Nothing of `bytes_max` is taken.
    pub fn new(bytes_max: u64) -> Self {
        Budget {
            used: Mutex::default(),
            room: Condvar::new(),
            bytes_max,
        }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock()
    }

    /// Takes bytes, waiting until there is room. A thread that wants more than there is at all
    /// waits until nothing is taken.
    pub fn take(&self, bytes: u64) {
        let mut used = self.used();
        let mut waited = false;
        while self.is_short(&used, bytes) {
            used.waiting += 1;
            used = self.room.wait(used);
            used.waiting -= 1;
            waited = true;
        }
        self.enter(&mut used, bytes, waited);
    }

    /// Takes bytes if there is room for them.
    pub fn try_take(&self, bytes: u64) -> bool {
        let mut used = self.used();
        let fits = !self.is_short(&used, bytes);
        used.bytes += if fits { bytes } else { 0 };
        fits
    }

    fn is_short(&self, used: &Used, bytes: u64) -> bool {
        used.bytes > 0 && used.bytes + bytes > self.bytes_max && !used.is_open
    }

    /// Takes what there is room for. Who was woken wakes the next while there is plenty; what is
    /// left is for those who are awake.
    fn enter(&self, used: &mut Used, bytes: u64, waited: bool) {
        used.bytes += bytes;
        if waited {
            self.tell(used);
        }
    }

    /// Takes bytes, waiting until there is room; they are given back when the result is dropped.
    pub fn taken(self: &Arc<Self>, bytes: u64) -> Taken {
        self.take(bytes);
        Taken {
            budget: self.clone(),
            bytes,
        }
    }

    /// Takes bytes, waiting no longer than `wanted` says, which is asked now and then.
    pub fn taken_while<E>(
        self: &Arc<Self>,
        bytes: u64,
        mut wanted: impl FnMut() -> Result<(), E>,
    ) -> Result<Taken, E> {
        let mut used = self.used();
        let mut waited = false;
        while self.is_short(&used, bytes) {
            used.waiting += 1;
            used = self.room.wait_for(used, TICK);
            used.waiting -= 1;
            waited = true;
            wanted()?;
        }
        self.enter(&mut used, bytes, waited);
        drop(used);
        Ok(Taken {
            budget: self.clone(),
            bytes,
        })
    }

    /// Whether somebody who takes so many bytes has to wait.
    pub fn is_short_of(&self, bytes: u64) -> bool {
        self.is_short(&self.used(), bytes)
    }

    /// Lets everybody through who waits, and all who come.
    pub fn open(&self) {
        self.used().is_open = true;
        self.room.notify_all();
    }

    /// Takes bytes without waiting.
    pub fn overdraw(&self, bytes: u64) {
        self.used().bytes += bytes;
    }

    /// Gives bytes back.
    pub fn give(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut used = self.used();
        used.bytes -= bytes;
        self.tell(&used);
    }

    /// Wakes one of those who wait, if there is plenty of room: to wake him for each byte costs
    /// more than it gains. To wake nobody costs a system call, too.
    fn tell(&self, used: &Used) {
        if used.waiting > 0 && used.bytes < self.bytes_max / 2 {
            self.room.notify_one();
        }
    }
}

/// Bytes of a budget, given back when this is dropped.
pub struct Taken {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

/// Bytes of a shared account, for which nobody waits; given back when this is dropped.
#[derive(Default)]
pub struct Room(Arc<AtomicU64>, u64);

impl Room {
    /// Takes so many bytes, if no more than `bytes_max` are taken then.
    pub fn take(used: &Arc<AtomicU64>, bytes: u64, bytes_max: u64) -> Option<Room> {
        let room = Room(used.clone(), bytes);
        (used.fetch_add(bytes, Relaxed) + bytes <= bytes_max).then_some(room)
    }

    /// None of an account yet.
    pub fn none(used: &Arc<AtomicU64>) -> Room {
        Room(used.clone(), 0)
    }

    /// Takes so many bytes more; `false` if more than `bytes_max` would be taken then.
    pub fn grow(&mut self, bytes: u64, bytes_max: u64) -> bool {
        let more = Room::take(&self.0, bytes, bytes_max);
        more.is_some_and(|mut more| {
            self.1 += std::mem::take(&mut more.1);
            true
        })
    }

    /// Gives back all but so many bytes.
    pub fn shrink(&mut self, bytes: u64) {
        let excess = self.1.saturating_sub(bytes);
        self.0.fetch_sub(excess, Relaxed);
        self.1 -= excess;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_is_taken_than_there_is_and_everybody_gets_on() {
        let (budget, held, most) = (Budget::new(100), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for seed in 0..8 {
                let (budget, held, most) = (&budget, &held, &most);
                scope.spawn(move || {
                    for round in 0..500 {
                        let bytes = (seed * 31 + round * 17) % 60 + 1;
                        budget.take(bytes);
                        most.fetch_max(held.fetch_add(bytes, Relaxed) + bytes, Relaxed);
                        held.fetch_sub(bytes, Relaxed);
                        budget.give(bytes);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 100);
    }

    #[test]
    fn room_that_cannot_be_had_is_not_taken() {
        let used = Arc::default();
        let mut first = Room::take(&used, 60, 100).expect("there is room");
        assert!(Room::take(&used, 50, 100).is_none());
        first.shrink(50);
        let second = Room::take(&used, 50, 100).expect("some was given back");
        drop((first, second));
        assert_eq!(used.load(Relaxed), 0);
    }
}
