//! A bound on bytes that many threads share.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes that are taken and given back.
pub struct Budget {
    used: Mutex<u64>,
    room: Condvar,
    bytes_max: u64,
}

impl Budget {
    /// Nothing of `bytes_max` is taken.
    pub fn new(bytes_max: u64) -> Self {
        Budget { used: Mutex::new(0), room: Condvar::new(), bytes_max }
    }

    fn used(&self) -> MutexGuard<'_, u64> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes, waiting until there is room. Whoever wants more than there is at all waits until nothing is taken.
    pub fn take(&self, bytes: u64) {
        let mut used = self.used();
        while *used > 0 && *used + bytes > self.bytes_max {
            used = self.room.wait(used).unwrap_or_else(PoisonError::into_inner);
        }
        *used += bytes;
        if *used < self.bytes_max {
            // Who was woken wakes the next, as long as there is room.
            self.room.notify_one();
        }
    }

    /// Takes bytes without waiting.
    pub fn overdraw(&self, bytes: u64) {
        *self.used() += bytes;
    }

    /// Gives bytes back. Whoever waits sleeps until there is plenty of room: to wake him for each byte costs more than it gains.
    pub fn give(&self, bytes: u64) {
        let mut used = self.used();
        *used -= bytes;
        if *used < self.bytes_max / 2 {
            self.room.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
}
