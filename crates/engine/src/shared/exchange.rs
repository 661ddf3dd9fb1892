//! The way between the coordinator of a run and its movers, whatever carries it.

use crate::shared::batch::{Batch, Outcome};
use crate::shared::brief::Brief;
use crate::shared::encoding::decoded;
use crate::tally::Counts;
use crate::trees::error::Unreachable;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The way to the movers.
pub trait Exchange {
    /// Hands a batch of the run out, to the mover that takes its class first. It may be handed out
    /// again if a mover is lost.
    ///
    /// # Errors
    /// The movers cannot be reached for longer than they may be away.
    fn send(&mut self, brief: &Brief, run: u64, id: u64, batch: &Batch) -> Result<(), Unreachable>;
    /// Hands a batch out again that a mover could not read, though the coordinator can: to another
    /// host if there is a way to choose one. `why` names the mover and the path.
    ///
    /// # Errors
    /// As with [`Exchange::send`].
    fn send_elsewhere(
        &mut self,
        brief: &Brief,
        (run, id): (u64, u64),
        batch: &Batch,
        _why: &str,
    ) -> Result<(), Unreachable> {
        self.send(brief, run, id, batch)
    }
    /// Has movers that take a batch from now on know the run by this brief, where a batch is not on
    /// its way before one takes it.
    fn renew(&mut self, _brief: &Brief) {}
    /// The next word of a mover; none if there is none within `limit`.
    ///
    /// # Errors
    /// As with [`Exchange::send`].
    fn next(&mut self, limit: Duration) -> Result<Option<Word>, Unreachable>;
    /// The word with this ticket was noted and need not come again.
    fn accept(&mut self, ticket: u64);
    /// Whether batches wait for a mover to take them.
    ///
    /// # Errors
    /// As with [`Exchange::send`].
    fn waits(&mut self) -> Result<bool, Unreachable>;
    /// How many movers have nothing to do, as far as is known.
    fn idle(&mut self) -> usize;
    /// How many movers are at work, or about to say that they are not, as far as is known.
    fn at_work(&mut self) -> usize;
    /// Tells movers to drop what they have in hand, where they do not hear it by the replica's
    /// mark.
    ///
    /// # Errors
    /// As with [`Exchange::send`].
    fn call_back(&mut self) -> Result<(), Unreachable>;
    /// Gives a mover that is not believed any more no further batches, where it does not refuse
    /// them itself by what the brief says.
    fn dismiss(&mut self, mover: &str, why: &str);
    /// Batches of the run that nobody could work off, each with the reason. One may be named more
    /// than once.
    ///
    /// # Errors
    /// As with [`Exchange::send`].
    fn parked(&mut self, run: u64) -> Result<Vec<(u64, String)>, Unreachable>;
    /// Forgets all batches that wait for movers, and with `words`, all that was said of earlier
    /// runs.
    ///
    /// # Errors
    /// As with [`Exchange::send`].
    fn clear(&mut self, words: bool) -> Result<(), Unreachable>;
}

/// A sign of life: a mover is at work on a batch, and has done so much of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Alive {
    /// The run.
    pub run: u64,
    /// The batch.
    pub id: u64,
    /// Who.
    pub mover: String,
    /// What was counted so far.
    pub counts: Counts,
}

/// A part of what came of a batch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PartOfOutcome {
    /// The run.
    pub run: u64,
    /// The batch.
    pub id: u64,
    /// The try: parts belong together only if this agrees.
    pub attempt: u64,
    /// Its place among the parts.
    pub number: u32,
    /// There are no more.
    pub last: bool,
    /// Who.
    pub mover: String,
    /// The part, as [`Outcome`] in postcard.
    pub outcome: Vec<u8>,
}

impl PartOfOutcome {
    /// What the part says; none if it is no such part.
    pub fn read(&self) -> Option<Outcome> {
        decoded(&self.outcome)
    }
}

/// What a mover says.
#[derive(Debug, Clone)]
pub enum Word {
    /// It is at work.
    Alive(Box<Alive>),
    /// What came of a batch, with a ticket for [`Exchange::accept`].
    Part(PartOfOutcome, u64),
}
