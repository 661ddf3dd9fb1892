//! What becomes of a batch that a queue has delivered to a mover.
//!
//! It is acknowledged when all that came of it was said, and not before: whatever happens to the
//! mover, another one gets it.

use crate::shared::batch::{Batch, Outcome};
use crate::shared::brief::Brief;
use crate::shared::lease::Over;
use crate::shared::message::{Order, Report, Unclear, decode, encode, reports};
use crate::sync::ending::End;
use crate::trees::error::{RunError, Unreachable};
use driftless_tree::random_id;

/// Tries after which a batch is parked.
pub const ATTEMPTS_MAX: u32 = 8;

/// Why a batch was not carried out.
#[derive(Debug)]
pub enum Failure {
    /// The batch was taken away, or the mover was told to end at once.
    Dropped,
    /// It belongs to a run that holds the replica no longer, and why that is known. No mover can
    /// carry it out.
    Stale(String),
    /// This host cannot carry it out now, and why.
    Here(String),
    /// The user of this mover cannot carry out any batch of the run, and why.
    Misfit(String),
}

/// This mover did not carry out a batch, which is for another one: why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MoverFailed(String);

impl From<Unreachable> for MoverFailed {
    fn from(cause: Unreachable) -> Self {
        MoverFailed(cause.to_string())
    }
}

/// What came of a batch that was worked off. `over` says why it ended before its time, if it did.
///
/// # Errors
/// It was not carried out, and why.
pub fn carried(
    done: Result<(Outcome, End), RunError>,
    over: Option<Over>,
) -> Result<Outcome, Failure> {
    match (done, over) {
        (Ok((outcome, End::Complete | End::Lost)), _) => Ok(outcome),
        (Ok((_, End::CutOff(why))), _) => {
            Err(Failure::Here(format!("the connection was lost: {why}")))
        }
        (Ok(_), None | Some(Over::Unwanted)) => Err(Failure::Dropped),
        (Ok(_), Some(Over::NotHeld(why))) => Err(Failure::Stale(why)),
        (Ok(_), Some(Over::OtherTree)) => Err(Failure::Here(
            "the replica is not the one that the coordinator sees".into(),
        )),
        (Ok(_), Some(Over::Unknown(why))) => Err(Failure::Here(why)),
        (Err(error @ RunError::Misfit { .. }), _) => Err(Failure::Misfit(error.to_string())),
        (Err(error @ RunError::NotHeld { .. }), _) => Err(Failure::Stale(error.to_string())),
        (Err(error), _) => Err(Failure::Here(error.to_string())),
    }
}

/// A batch as a queue delivers it. One that is only dropped is delivered again when the mover's
/// connection ends.
pub trait Delivered {
    /// The message.
    fn body(&self) -> &[u8];
    /// How often it was tried before.
    fn attempts(&self) -> u32;
}

/// A mover's place at a queue.
pub trait Desk {
    /// What it is given.
    type Delivery: Delivered;
    /// Whether a coordinator listens to what movers say, and the queue has taken nothing away from
    /// this one.
    fn is_coordinated(&mut self) -> bool;
    /// Takes no batches until a coordinator is there.
    fn wait_for_coordinator(&mut self);
    /// Takes the batch out of the queue: it was carried out, or no mover can do that.
    fn acknowledge(&mut self, delivery: Self::Delivery);
    /// Gives it back to another mover, as if it had not been delivered.
    fn give_back(&mut self, delivery: Self::Delivery);
    /// Gives it back to another mover without counting this as a try; this mover takes nothing more
    /// as long as the same coordinator is there.
    fn sit_out(&mut self, delivery: Self::Delivery);
    /// Gives it back, so that a mover tries it again.
    fn try_again(&mut self, delivery: Self::Delivery);
    /// Puts it aside: no mover tries it again.
    ///
    /// # Errors
    /// The queue takes no messages.
    fn park(&mut self, delivery: Self::Delivery, reason: &str) -> Result<(), Unreachable>;
    /// Sends a report to the coordinator.
    ///
    /// # Errors
    /// The queue takes no messages.
    fn report(&mut self, body: &[u8]) -> Result<(), Unreachable>;
    /// Waits until the queue has all reports.
    ///
    /// # Errors
    /// It takes no messages.
    fn flush(&mut self) -> Result<(), Unreachable>;
    /// Tells the reader of the mover's log.
    fn note(&mut self, text: &str);
}

/// What carries batches out.
pub trait Carrying<D> {
    /// Who it is.
    fn name(&self) -> &str;
    /// Carries a batch out.
    ///
    /// # Errors
    /// It was not carried out.
    fn carry_out(
        &mut self,
        batch: (u64, u64),
        what: (&Brief, &Batch),
        desk: &mut D,
    ) -> Result<Outcome, Failure>;
}

/// Has a delivery carried out, sends what came of it, and only then acknowledges.
///
/// # Errors
/// This mover failed; the batch is for another one.
pub fn serve<D: Desk>(
    delivery: D::Delivery,
    desk: &mut D,
    crew: &mut dyn Carrying<D>,
) -> Result<(), MoverFailed> {
    let (brief, run, id, batch) = match decode(delivery.body()) {
        Ok(Order::Batch {
            brief,
            run,
            id,
            batch,
        }) => (brief, run, id, batch),
        Ok(Order::Yield | Order::Heard) => return park(delivery, "it is no batch of a run", desk),
        // Another mover may be of that version.
        Err(unclear @ Unclear::Version(_)) if delivery.attempts() < ATTEMPTS_MAX => {
            desk.try_again(delivery);
            return Err(MoverFailed(unclear.to_string()));
        }
        Err(unclear) => return park(delivery, &unclear.to_string(), desk),
    };
    if delivery.attempts() >= ATTEMPTS_MAX {
        return park(
            delivery,
            "the movers that tried it ended or lost their connection",
            desk,
        );
    }
    if !desk.is_coordinated() {
        desk.give_back(delivery);
        desk.wait_for_coordinator();
        return Ok(());
    }
    if let Some(why) = brief.distrusts(crew.name()) {
        let why = format!("the coordinator does not believe this mover: {why}");
        desk.try_again(delivery);
        return Err(MoverFailed(why));
    }
    let done = crew.carry_out((run, id), (&brief, &batch), desk);
    let mover = crew.name();
    let tried = Tried {
        run,
        id,
        mover,
        done,
    };
    settle(delivery, tried, desk)
}

/// What became of a batch.
struct Tried<'a> {
    run: u64,
    id: u64,
    mover: &'a str,
    done: Result<Outcome, Failure>,
}

/// Sends what came of a batch, and only then lets go of its delivery.
fn settle<D: Desk>(
    delivery: D::Delivery,
    Tried {
        run,
        id,
        mover,
        done,
    }: Tried<'_>,
    desk: &mut D,
) -> Result<(), MoverFailed> {
    match done {
        Ok(outcome) => {
            report((run, id), (mover, outcome), desk)?;
            desk.acknowledge(delivery);
            Ok(())
        }
        Err(Failure::Dropped) => Ok(()),
        // The run that holds the replica now has batches of its own, or hands this one out again.
        Err(Failure::Stale(reason)) => {
            desk.note(&format!("a batch is dropped: {reason}"));
            desk.acknowledge(delivery);
            Ok(())
        }
        Err(Failure::Misfit(reason)) => {
            desk.note(&format!("{reason}; it takes no part in this run"));
            // The coordinator hears of it; otherwise it would wait for movers in vain.
            let said = desk.report(&encode(&Report::Failed {
                id,
                mover: mover.to_owned(),
                reason,
                is_misfit: true,
            }));
            desk.sit_out(delivery);
            Ok(said?)
        }
        Err(Failure::Here(reason)) if delivery.attempts() + 1 >= ATTEMPTS_MAX => {
            park(delivery, &format!("{mover}: {reason}"), desk).and(Err(MoverFailed(reason)))
        }
        Err(Failure::Here(reason)) => {
            desk.try_again(delivery);
            Err(MoverFailed(reason))
        }
    }
}

fn park<D: Desk>(delivery: D::Delivery, reason: &str, desk: &mut D) -> Result<(), MoverFailed> {
    desk.note(&format!("a batch is parked: {reason}"));
    Ok(desk.park(delivery, reason)?)
}

fn report<D: Desk>(
    batch: (u64, u64),
    (mover, outcome): (&str, Outcome),
    desk: &mut D,
) -> Result<(), MoverFailed> {
    for report in reports(batch, random_id() as u64, mover, outcome) {
        desk.report(&encode(&report))?;
    }
    Ok(desk.flush()?)
}
