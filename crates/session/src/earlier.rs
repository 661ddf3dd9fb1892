//! What the passes of a run did before the last one, each of which was cut off when a connection
//! was lost.

use driftless_engine::Counts;

/// What the passes before the last one did, each of them cut off.
#[derive(Debug, Clone, Copy, Default)]
pub struct Earlier {
    /// How often a connection was lost, and the run went on.
    pub lost: u64,
    /// Entries made equal; the last pass met them again.
    pub changed: u64,
    deleted: u64,
    mismatched: u64,
    bytes_copied: u64,
    bytes_compared: u64,
    /// Those of the pass that came furthest.
    furthest: Counts,
    /// The most that any pass saw, resumed and knew, so that getting further shows.
    best: [u64; 4],
}

impl Earlier {
    /// Adds a pass; `acts` unless it only looked. Tells whether it got anywhere.
    pub fn add(&mut self, counts: &Counts, acts: bool) -> bool {
        self.lost += 1;
        let reached = [
            counts.seen,
            counts.walked,
            counts.bytes_resumed,
            counts.known_equal,
        ];
        let is_further = reached.iter().zip(&self.best).any(|(now, best)| now > best);
        let has_acted = acts && counts.changed + counts.deleted > 0;
        self.best
            .iter_mut()
            .zip(reached)
            .for_each(|(best, now)| *best = now.max(*best));
        if counts.walked >= self.furthest.walked {
            self.furthest = *counts;
        }
        self.bytes_compared += counts.bytes_compared;
        if acts {
            self.changed += counts.changed;
            self.deleted += counts.deleted;
            self.mismatched += counts.mismatched;
            self.bytes_copied += counts.bytes_copied;
        }
        is_further || has_acted
    }

    /// Entries that they deleted.
    pub fn deleted(&self) -> u64 {
        self.deleted
    }

    /// Leaves out the entries of the pass that was added last, since it is the last of all and
    /// tells of them itself.
    pub(crate) fn leave_out(&mut self, last: &Counts) {
        self.changed = self.changed.saturating_sub(last.changed);
    }

    /// The counters of the last pass with what was done before.
    pub fn with(&self, last: &Counts) -> Counts {
        Counts {
            deleted: last.deleted + self.deleted,
            mismatched: last.mismatched + self.mismatched,
            bytes_copied: last.bytes_copied + self.bytes_copied,
            bytes_compared: last.bytes_compared + self.bytes_compared,
            ..*last
        }
    }

    /// The counters of a pass that may not have come as far as one before it, with what was done
    /// before: entries are those of the pass that came furthest.
    pub fn so_far(&self, now: &Counts) -> Counts {
        let entries = if now.walked >= self.furthest.walked {
            now
        } else {
            &self.furthest
        };
        let acts = Counts {
            deleted: now.deleted,
            mismatched: now.mismatched,
            bytes_copied: now.bytes_copied,
            bytes_compared: now.bytes_compared,
            ..*entries
        };
        self.with(&acts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_did_adds_up_and_entries_are_those_of_the_last() {
        let cut = Counts {
            seen: 10,
            same: 2,
            changed: 7,
            failed: 1,
            deleted: 3,
            bytes_copied: 70,
            walked: 50,
            ..Counts::default()
        };
        let last = Counts {
            seen: 12,
            same: 9,
            changed: 3,
            deleted: 1,
            bytes_copied: 30,
            walked: 100,
            ..Counts::default()
        };
        let mut earlier = Earlier::default();
        assert!(
            earlier.add(&cut, true),
            "the first pass always gets somewhere"
        );
        let all = earlier.with(&last);
        assert!(all.adds_up());
        assert_eq!(
            (
                all.seen,
                all.changed,
                all.deleted,
                all.bytes_copied,
                earlier.changed
            ),
            (12, 3, 4, 100, 7)
        );
        // A dry run deletes nothing, so nothing is counted twice.
        let mut looked = Earlier::default();
        looked.add(&cut, false);
        assert_eq!((looked.with(&last).deleted, looked.changed), (1, 0));
    }

    #[test]
    fn a_new_pass_does_not_fall_behind_the_one_that_was_cut_off() {
        let cut = Counts {
            seen: 10,
            same: 10,
            bytes_copied: 5,
            walked: 50,
            ..Counts::default()
        };
        let mut earlier = Earlier::default();
        earlier.add(&cut, true);
        let behind = earlier.so_far(&Counts {
            seen: 2,
            bytes_copied: 1,
            walked: 10,
            ..Counts::default()
        });
        assert_eq!(
            (behind.seen, behind.walked, behind.bytes_copied),
            (10, 50, 6)
        );
        let before = earlier.so_far(&Counts {
            seen: 11,
            walked: 60,
            ..Counts::default()
        });
        assert_eq!(
            (before.seen, before.walked, before.bytes_copied),
            (11, 60, 5)
        );
    }

    #[test]
    fn a_pass_that_neither_acts_nor_comes_further_is_no_progress() {
        let pass = |seen, changed| Counts {
            seen,
            changed,
            ..Counts::default()
        };
        let mut earlier = Earlier::default();
        let cases = [
            (10, 0, true, true),
            (10, 0, true, false),
            (9, 0, true, false),
            (11, 0, true, true),
            (5, 1, true, true),
            (5, 1, false, false),
        ];
        for (seen, changed, acts, expected) in cases {
            assert_eq!(
                earlier.add(&pass(seen, changed), acts),
                expected,
                "{seen} {changed} {acts}"
            );
        }
    }
}
