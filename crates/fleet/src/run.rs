//! A run that others share, from the coordinator's side.

use driftless_engine::{
    Brief, By, Exchange, MachineClock, Monitor, Options, RunError, Summary, coordinate,
};
use driftless_session::{Before, Connections, Earlier, Passed, Witness, repeat};
use driftless_state::Record;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// What is coordinated: the run, the connections to its trees, and what each mover is told of it.
pub struct Shared<'a> {
    /// The run.
    pub options: &'a mut Options,
    /// The connections to its trees.
    pub connections: &'a mut Connections,
    /// What each mover is told of it.
    pub brief: Brief,
}

/// Coordinates a run, in as many passes as the connections to its trees take. What movers did
/// stands in the record, however often connections are lost.
///
/// # Errors
/// The run did not begin, or no mover is left, or the record cannot be written.
pub fn run(
    mut shared: Shared<'_>,
    (monitor, witness): (&dyn Monitor, &dyn Witness),
    stop: &AtomicBool,
    (exchange, record): (&mut dyn Exchange, &mut Record),
) -> Result<(Summary, Earlier), RunError> {
    let (began, mut earlier) = (Instant::now(), Earlier::default());
    let pass = |options: &mut Options, _: &Before<'_>| {
        let by = By {
            exchange,
            record,
            clock: &MachineClock,
        };
        let summary = coordinate((options, &mut shared.brief), monitor, stop, by)?;
        Ok(Passed {
            counts: summary.counts,
            end: summary.end.clone(),
            result: summary,
        })
    };
    let passed = repeat(
        (shared.options, shared.connections),
        witness,
        (&mut earlier, false),
        pass,
    )?;
    Ok((
        Summary {
            end: passed.end,
            elapsed: began.elapsed(),
            ..passed.result
        },
        earlier,
    ))
}
