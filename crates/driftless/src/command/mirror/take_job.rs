//! The end of a mirror whose job a command needs for itself.

use super::Failure;
use crate::command::held::{Held, Holder};
use crate::command::job;
use crate::exit::Exit;
use crate::output::mirror as say;
use crate::signals::Signals;
use driftless_mirror::ask::Ask;
use driftless_mirror::control;
use driftless_mirror::job::Job;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A mirror that was asked to end has so much time for what it is at.
const END_MAX: Duration = Duration::from_secs(120);
/// A mirror ends within this time, unless it is in the middle of something or hangs.
const END_SOON: Duration = Duration::from_secs(1);
/// Between two looks at whether it has ended.
const END_LOOK: Duration = Duration::from_millis(50);

/// Holds the job. A mirror that has it is asked to end; one that does not do so at once is named, and
/// a signal ends the wait.
pub fn take_job(job: &Job, signals: &Signals) -> Result<Held, Failure> {
    let (began, socket) = (Instant::now(), job::socket(&job.name)?);
    let mut is_told = false;
    loop {
        let held = job::hold(job);
        if !matches!(held, Err((Exit::Locked, _))) {
            return held;
        }
        let holder = job::holder(&job.name)?;
        if signals.stop.load(Relaxed) || began.elapsed() >= END_MAX {
            let failure = not_taken(job, holder, signals.number());
            return Err(failure);
        }
        if !is_told && began.elapsed() >= END_SOON {
            say::complaint(&waits_for(job, holder));
            is_told = true;
        }
        let _it_may_just_have_ended = control::ask_within(&socket, &Ask::End, Some(END_SOON));
        std::thread::sleep(END_LOOK);
    }
}

/// Says that the end of a mirror is waited for.
fn waits_for(job: &Job, holder: Option<Holder>) -> String {
    let (name, holder) = (&job.name, holder.unwrap_or_else(Holder::unknown));
    let (process, way_out, limit) = (&holder.words, holder.way_out(), END_MAX.as_secs());
    format!(
        "{name}: waiting for up to {limit} s until its mirror ({process}) has ended; if it hangs, {way_out}"
    )
}

/// Says that a mirror has not ended, and that nothing was done; `signal` has ended the wait, if it
/// is not 0.
fn not_taken(job: &Job, holder: Option<Holder>, signal: u8) -> Failure {
    let (name, holder) = (&job.name, holder.unwrap_or_else(Holder::unknown));
    let (process, way_out) = (&holder.words, holder.way_out());
    let why = format!(
        "{name}: its mirror ({process}) has not ended: {way_out}, and give the command again (nothing was changed)"
    );
    let code = match signal {
        0 => Exit::Locked,
        signal => Exit::Signal(signal),
    };
    (code, why)
}
