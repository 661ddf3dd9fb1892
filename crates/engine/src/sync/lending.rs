//! How whoever holds a replica lends it to others, and whoever works on one that is lent hears of
//! that.

use crate::clock::{Clock, MachineClock};
use crate::lent::{Lent, Shown};
use crate::sample::Sample;
use crate::shared::lease::{Moment, Over};
use crate::sync::open::Trees;
use crate::trees::error::RunError;
use driftless_tree::DirRef;

/// Seconds by which the clock of a file server may be behind that of this host.
const CLOCK_BEHIND: i64 = 10;

impl Trees {
    /// Lends the replica to members who know this run by a number; says what they must know. Nothing
    /// where the replica takes no mark, by which they would see that it is lent.
    ///
    /// # Errors
    /// Nothing may be changed any more, or a root cannot be looked at.
    pub fn lend(&self, members: u64) -> Result<Option<Lent>, RunError> {
        let Some(changes) = self.changes() else {
            return Ok(None);
        };
        let (source, replica) = &self.ground().roots;
        let Some(replica) = replica else {
            return Ok(None);
        };
        let sample = Sample::of(source).map_err(|fault| RunError::Unusable {
            path: source_path(self),
            cause: fault.to_string(),
        })?;
        let seen = replica.clone() as DirRef;
        let second = MachineClock.seconds().cast_signed() - CLOCK_BEHIND;
        let shown = Shown::of((source, &seen), &self.options().policy.keep, second);
        let held = changes.lend(members, &MachineClock)?;
        Ok(held.map(|held| Lent {
            identity: held.identity,
            members: held.movers,
            is_hidden: held.is_hidden,
            source: sample,
            rights: replica.rights(),
            suspect_since: changes.suspect_since(),
            shown,
        }))
    }

    /// Nobody to whom the replica was lent works on it any more, and what they did is durable.
    pub fn take_back(&self) {
        if let Some(changes) = self.changes() {
            changes.are_back();
        }
    }

    /// The process that lends the replica was heard of.
    pub fn heard_of_lender(&self) {
        if let Some(borrowed) = self.borrowed() {
            borrowed.lease().heard(Moment::now());
        }
    }

    /// The process that lends the replica is not heard of any more: nothing is changed from now on.
    pub fn give_up(&self) {
        if let Some(borrowed) = self.borrowed() {
            borrowed.lease().end(Over::Unwanted);
        }
    }
}

fn source_path(trees: &Trees) -> String {
    trees.options().source.to_string()
}
