//! The threads that carry out work, beside the one that keeps a replica equal.
//!
//! The short lane does not wait until what it has made equal is durable: that takes as long as the
//! medium does, however little was changed. Another thread writes out what has come together
//! meanwhile, all at once and in its order; a piece of work is done when that is over.

use crate::dirty::Lane;
use crate::hands::{Hands, Outcome, Work};
use crate::herald::Desk;
use crate::message::Message;
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{Builder, JoinHandle};

/// Lanes, and how many threads each has.
pub(crate) const LANES: [(Lane, usize); 3] = [(Lane::Short, 1), (Lane::Long, 2), (Lane::Walk, 1)];

/// What the threads of a lane need.
#[derive(Clone)]
pub(crate) struct Equipment {
    /// What they work with.
    pub(crate) hands: Arc<Hands>,
    /// Where it is left what has changed, to be told others.
    pub(crate) desk: Desk,
    /// Has them give back what they are at.
    pub(crate) interrupt: Arc<AtomicBool>,
    /// Where they tell what became of it.
    pub(crate) outbox: Sender<Message>,
}

/// Starts the threads of a lane; they end with the sender of their work.
pub(crate) fn start(
    (lane, threads): (Lane, usize),
    works: &Receiver<Work>,
    equipment: &Equipment,
) -> io::Result<Vec<JoinHandle<()>>> {
    let name = format!("{lane:?}").to_lowercase();
    if lane == Lane::Short {
        return start_short(name, works.clone(), equipment);
    }
    let start_one = |_| {
        let (works, equipment) = (works.clone(), equipment.clone());
        spawn(name.clone(), move || {
            for work in works {
                let outcome = equipment.hands.carry_out(work, &equipment.interrupt);
                equipment.tell(outcome);
            }
        })
    };
    (0..threads).map(start_one).collect()
}

fn start_short(
    name: String,
    works: Receiver<Work>,
    equipment: &Equipment,
) -> io::Result<Vec<JoinHandle<()>>> {
    let (carried_out, unwritten) = unbounded::<Outcome>();
    let (short, writer) = (equipment.clone(), equipment.clone());
    let short = spawn(name, move || {
        for work in works {
            let outcome = short.hands.make_equal(work, &short.interrupt);
            if outcome.was_carried_out {
                let _nobody_listens_at_the_end = short.outbox.send(Message::CarriedOut);
            }
            let sent = carried_out.send(outcome);
            sent.expect("it is received for as long as this thread sends");
        }
    })?;
    let writer = spawn("writer".into(), move || {
        while let Ok(first) = unwritten.recv() {
            let mut outcomes: Vec<Outcome> =
                [first].into_iter().chain(unwritten.try_iter()).collect();
            writer.hands.write_out(&mut outcomes);
            outcomes
                .into_iter()
                .for_each(|outcome| writer.tell(outcome));
        }
    })?;
    Ok(vec![short, writer])
}

impl Equipment {
    fn tell(&self, mut outcome: Outcome) {
        self.desk.leave(&mut outcome);
        let _nobody_listens_at_the_end = self.outbox.send(Message::Done(Box::new(outcome)));
    }
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name).spawn(work)
}
