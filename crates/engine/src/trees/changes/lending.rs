//! A replica that others change for a run: its movers, and members of its pool.

use super::{Begun, Changes, movers_number};
use crate::clock::Clock;
use crate::trees::error::RunError;
use crate::trees::held::Held;
use driftless_reconcile::SOMEBODY;

impl Changes {
    /// Lends the replica to members, who know the run by this number; durably marked before. Says
    /// by what they know that it is lent; nothing where it takes no mark.
    ///
    /// # Errors
    /// Nothing may be changed any more.
    pub fn lend(&self, members: u64, clock: &dyn Clock) -> Result<Option<Held>, RunError> {
        // Why it is refused is what counts.
        let _refusal = self.begin(clock);
        self.outcome()?;
        let mut begun = self.begun.lock();
        begun.leaves_movers = true;
        self.hand_to(&mut begun, Some(movers_number(members)));
        drop(begun);
        Ok(self.held())
    }

    /// Whether others may still be changing what is lent to them.
    pub fn is_lent(&self) -> bool {
        self.begun.lock().leaves_movers
    }

    /// Tells movers, by the mark, that they may change nothing any more.
    pub fn call_back(&self) {
        let mut begun = self.begun.lock();
        begun.leaves_movers = true;
        self.hand_to(&mut begun, Some(SOMEBODY));
    }

    /// Says that no mover is at work any more, so that nobody has to wait for them.
    pub fn are_back(&self) {
        let mut begun = self.begun.lock();
        begun.leaves_movers = false;
        self.hand_to(&mut begun, None);
    }

    fn hand_to(&self, begun: &mut Begun, movers: Option<u128>) {
        self.check_locks(begun);
        // The mark of whoever has the lock now is not ours to write.
        if begun.refusal.is_some() {
            return;
        }
        if let Some(mark) = &mut begun.mark {
            mark.movers = movers;
            let _they_hear_it_otherwise = self.root.set_mark(&mark.encode(), false);
        }
    }
}
