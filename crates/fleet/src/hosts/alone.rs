//! The coordinator's own host in the place of movers: carries out the batches that no mover can.
//!
//! It works in a thread of the coordinator's process, with trees that are opened for it alone. The
//! coordinator looks at its outcomes as at those of a mover.

use crate::executor::Executor;
use crate::hosts::OWN;
use crate::hosts::handle::{FAILURES_MAX, NO_TICKET, PAUSE};
use crate::hosts::waiting::{Shared, leave_out_own, pause, put_back_own, take_own};
use driftless_engine::message::{Report, reports};
use driftless_engine::{Failure, Lease, Line, Moment, Word};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;

/// Carries out batches until the run is over, or too many in a row have failed.
pub fn serve(mut executor: Executor, index: usize, shared: &Arc<Shared>, say: Sender<Word>) {
    let mut line = OwnLine {
        shared: shared.clone(),
        say,
    };
    let (leaves, mut failures) = (AtomicBool::new(false), 0);
    while let Some(batch) = take_own(shared, index) {
        let (run, id, brief) = (batch.run, batch.id, shared.brief_of(&batch));
        let done = executor.work_off((run, id), (&brief, &batch.batch), &mut line, &leaves);
        shared.state.lock().busy.remove(&index);
        let why = match done {
            Ok(outcome) => {
                failures = 0;
                reports((run, id), fastrand::u64(..), OWN, outcome)
                    .into_iter()
                    .for_each(|report| line.pass_on(report));
                continue;
            }
            // This process slept for so long that it lost its lease, or the run is over.
            Err(Failure::Dropped) => {
                put_back_own(shared, batch, None);
                continue;
            }
            Err(Failure::Misfit(why) | Failure::Here(why) | Failure::Stale(why)) => why,
        };
        failures += 1;
        put_back_own(shared, batch, Some(&why));
        if failures >= FAILURES_MAX {
            return leave_out_own(shared, &why);
        }
        pause(shared, PAUSE * 2u32.pow(failures - 1));
    }
    let dismissed = shared.state.lock().dismissed.get(OWN).cloned();
    dismissed.iter().for_each(|why| leave_out_own(shared, why));
}

/// Way to the coordinator, which is in the same process.
struct OwnLine {
    shared: Arc<Shared>,
    say: Sender<Word>,
}

impl OwnLine {
    fn pass_on(&self, report: Report) {
        let word = match report {
            Report::Alive(sign) => Word::Alive(Box::new(sign)),
            Report::Part(part) => Word::Part(part, NO_TICKET),
            Report::Failed { .. } => return,
        };
        let _the_run_may_be_over = self.say.send(word);
    }
}

impl Line for OwnLine {
    fn alive(&mut self, report: Report) {
        self.pass_on(report);
    }

    fn is_hungry(&mut self) -> bool {
        false
    }

    fn is_lost(&mut self) -> bool {
        self.shared.state.lock().over
    }

    fn begin(&mut self, lease: &Arc<Lease>) {
        lease.heard(Moment::now());
    }

    fn ask_for_sign(&mut self, lease: &Lease) {
        // The coordinator lives as long as this process does.
        lease.heard(Moment::now());
    }
}
