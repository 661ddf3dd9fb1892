//! Where the replica comes from, as its mark says: written as soon as it is known, since a mirror may
//! run for months before it settles its mark.

use super::Changes;
use crate::clock::MachineClock;
use driftless_reconcile::Mark;
use std::sync::atomic::Ordering::Relaxed;

impl Changes {
    /// The source from which the replica was filled, as the mark says.
    pub fn filled(&self) -> Option<u128> {
        let begun = self.begun.lock();
        begun.mark.as_ref().unwrap_or(&self.found).filled
    }

    /// Has the mark say which trees lead to the replica, if it does not. Where it cannot, whoever
    /// closes a ring is not told.
    pub fn tell_upstream(&self, upstream: &[u128]) {
        let is_told = |mark: &Mark| mark.upstream == upstream;
        self.write(is_told, |mark| mark.upstream = upstream.to_vec());
    }

    /// Has the mark say from which source the replica was filled, if that is known.
    pub fn tell_filled(&self, source: Option<u128>) {
        if source.is_some() {
            let is_told = |mark: &Mark| mark.filled == source;
            self.write(is_told, |mark| mark.filled = source);
        }
    }

    /// Changes the mark and writes it durably, unless it says so already.
    fn write(&self, is_told: impl Fn(&Mark) -> bool, tell: impl FnOnce(&mut Mark)) {
        let is_told = is_told(self.begun.lock().mark.as_ref().unwrap_or(&self.found));
        if is_told || self.name.is_some() || self.is_unmarked.load(Relaxed) {
            return;
        }
        // Why it is refused is told with the first change.
        if self.begin(&MachineClock).is_err() {
            return;
        }
        match &mut self.begun.lock().mark {
            Some(mark) => {
                tell(mark);
                let _the_next_life_tries_again = self.root.set_mark(&mark.encode(), true);
            }
            None => self.is_unmarked.store(true, Relaxed),
        }
    }
}
