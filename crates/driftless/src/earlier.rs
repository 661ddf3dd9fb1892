//! What the passes of a run did before the last one, each of which was cut off when a connection was lost.

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
        let reached = [counts.seen, counts.walked, counts.bytes_resumed, counts.known_equal];
        let is_further = reached.iter().zip(&self.best).any(|(now, best)| now > best);
        let has_acted = acts && counts.changed + counts.deleted > 0;
        self.best.iter_mut().zip(reached).for_each(|(best, now)| *best = now.max(*best));
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

    /// The same of a pass that may not have come as far as one before it: entries are those of the one that came furthest.
    pub fn so_far(&self, now: &Counts) -> Counts {
        let entries = if now.walked >= self.furthest.walked { now } else { &self.furthest };
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
