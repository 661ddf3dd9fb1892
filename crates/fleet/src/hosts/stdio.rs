//! A mover whose coordinator is at the other end of its standard streams.

use crate::executor::Executor;
use crate::hosts::GREETING;
use crate::hosts::frames::{read_message, write_message};
use driftless_engine::message::{Order, Report, VERSION, decode, encode, reports};
use driftless_engine::{Failure, Lease, Line, Moment, Outcome};
use driftless_lock::Mutex;
use std::collections::VecDeque;
use std::io::{self, BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use thiserror::Error;
use tracing::error;

/// The coordinator hung up while a batch was carried out, or takes no messages.
#[derive(Debug, Error)]
#[error("the coordinator is gone")]
pub struct CoordinatorGone;

/// Works for the coordinator at the other end of the standard streams, until it hangs up or `stop`
/// is set.
///
/// # Errors
/// It hung up too early; somebody else gets the batch.
pub fn serve(mut executor: Executor, stop: &AtomicBool) -> Result<(), CoordinatorGone> {
    let reports_out = Arc::new(Mutex::new(io::stdout()));
    greet(&mut *reports_out.lock()).map_err(|_| CoordinatorGone)?;
    let (order, orders) = channel();
    let (yields, gone, signs) = (
        Arc::<AtomicBool>::default(),
        Arc::<AtomicBool>::default(),
        Arc::new(Signs::default()),
    );
    let mut line = StdioLine {
        out: reports_out.clone(),
        yields: yields.clone(),
        gone: gone.clone(),
        signs: signs.clone(),
    };
    let asked = yields.clone();
    std::thread::spawn(move || read_orders(&order, &asked, &gone, &signs));
    while !stop.load(Relaxed) {
        let (brief, run, id, batch) = match orders.recv_timeout(Duration::from_secs(1)) {
            Ok(Order::Batch {
                brief,
                run,
                id,
                batch,
            }) => (brief, run, id, batch),
            // A sign of life, for a coordinator that has no work either, is not needed: ssh itself
            // watches the connection.
            Ok(Order::Yield | Order::Heard) | Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        yields.store(false, Relaxed);
        let done = executor.work_off((run, id), (&brief, &batch), &mut line, stop);
        let said = said_of(done, (run, id), executor.name())?;
        let written = said
            .iter()
            .try_for_each(|report| write_message(&mut *reports_out.lock(), &encode(report)));
        written.map_err(|_| CoordinatorGone)?;
    }
    Ok(())
}

fn greet(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{GREETING}{VERSION}")?;
    out.flush()
}

/// What the coordinator is told of a batch; nothing where it took the batch away.
fn said_of(
    done: Result<Outcome, Failure>,
    (run, id): (u64, u64),
    mover: &str,
) -> Result<Vec<Report>, CoordinatorGone> {
    let failed = |reason, is_misfit| {
        vec![Report::Failed {
            id,
            mover: mover.to_owned(),
            reason,
            is_misfit,
        }]
    };
    match done {
        Ok(outcome) => Ok(reports((run, id), fastrand::u64(..), mover, outcome)),
        Err(Failure::Dropped) => Err(CoordinatorGone),
        Err(Failure::Misfit(reason)) => Ok(failed(reason, true)),
        Err(Failure::Here(reason) | Failure::Stale(reason)) => Ok(failed(reason, false)),
    }
}

fn read_orders(order: &Sender<Order>, yields: &AtomicBool, gone: &AtomicBool, signs: &Signs) {
    let mut input = BufReader::new(io::stdin());
    while let Ok(Some(message)) = read_message(&mut input) {
        match decode(&message) {
            Ok(Order::Yield) => yields.store(true, Relaxed),
            Ok(Order::Heard) => signs.answered(),
            Ok(batch) => drop(order.send(batch)),
            Err(unclear) => {
                error!("{unclear}");
                break;
            }
        }
    }
    gone.store(true, Relaxed);
}

/// Signs of life of this mover, each of which the coordinator answers in turn. What comes after a
/// pause may be an old answer, so it tells of the moment of the question.
#[derive(Default)]
struct Signs {
    sent: Mutex<VecDeque<Moment>>,
    lease: Mutex<Option<Arc<Lease>>>,
}

impl Signs {
    fn answered(&self) {
        let asked = self.sent.lock().pop_front();
        if let (Some(asked), Some(lease)) = (asked, &*self.lease.lock()) {
            lease.heard(asked);
        }
    }
}

struct StdioLine {
    out: Arc<Mutex<io::Stdout>>,
    yields: Arc<AtomicBool>,
    gone: Arc<AtomicBool>,
    signs: Arc<Signs>,
}

impl Line for StdioLine {
    fn alive(&mut self, report: Report) {
        self.signs.sent.lock().push_back(Moment::now());
        if write_message(&mut *self.out.lock(), &encode(&report)).is_err() {
            self.gone.store(true, Relaxed);
        }
    }

    fn is_hungry(&mut self) -> bool {
        self.yields.load(Relaxed)
    }

    fn is_lost(&mut self) -> bool {
        self.gone.load(Relaxed)
    }

    fn begin(&mut self, lease: &Arc<Lease>) {
        *self.signs.lease.lock() = Some(lease.clone());
    }

    fn ask_for_sign(&mut self, _lease: &Lease) {
        // Each of this mover's is answered.
    }
}
