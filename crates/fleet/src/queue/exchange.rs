//! The coordinator's way to movers that take their work from RabbitMQ.

use crate::queue::{CALL_TIMEOUT, patiently};
use crate::tried;
use driftless_engine::message::{Order, Report, decode, encode};
use driftless_engine::{Batch, Brief, Exchange, Unreachable, Word};
use driftless_queue::{Broker, Consumer, Control, Error, Job, Publisher, Seat};
use driftless_session::Witness;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long a question about the queues may take; what it is asked for does not depend on the
/// answer.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Messages of movers that are handed out and not noted yet.
const PREFETCH: u16 = 64;
/// So many movers that take no part in a run are named.
const MISFITS_MAX: usize = 64;
/// Between two looks at whether anybody takes the work.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// The coordinator's side of the queues of a job.
pub struct BrokerExchange<'a> {
    publisher: Publisher,
    results: Consumer,
    control: Control,
    job: Job,
    classes: Vec<String>,
    /// Movers that take no part in the run.
    misfits: BTreeSet<String>,
    tickets: HashMap<u64, driftless_queue::Delivery>,
    next_ticket: u64,
    looked: Instant,
    witness: &'a dyn Witness,
    stop: &'a AtomicBool,
    /// The last that is dropped: nobody else coordinates the job as long as anything of this is
    /// left.
    seat: Seat,
}

impl<'a> BrokerExchange<'a> {
    /// Connects; `classes` are those of the routes, in the order of the routes.
    ///
    /// # Errors
    /// The broker refuses, cannot be reached, or a name is not allowed.
    pub fn open(
        broker: &Broker,
        name: &str,
        routes: &[String],
        witness: &'a dyn Witness,
        stop: &'a AtomicBool,
    ) -> Result<Self, Error> {
        let classes: Vec<String> = std::iter::once(crate::queue::WORK.to_owned())
            .chain(routes.iter().cloned())
            .collect();
        let names: Vec<&str> = classes.iter().map(String::as_str).collect();
        let job = Job::new(name, &names)?;
        // Before anything is taken from the queues: it may be another's.
        let seat = Seat::take(broker, &job, &own_words())?;
        Ok(BrokerExchange {
            seat,
            publisher: Publisher::open(broker, &job)?,
            results: Consumer::open(broker, &job, &job.results(), PREFETCH)?,
            control: Control::open(broker, &job)?.with_limit(QUESTION_TIMEOUT),
            job,
            classes,
            misfits: BTreeSet::new(),
            tickets: HashMap::new(),
            next_ticket: 0,
            looked: Instant::now(),
            witness,
            stop,
        })
    }

    fn queue(&self, class: u8) -> Result<String, Unreachable> {
        let class = self
            .classes
            .get(usize::from(class))
            .ok_or_else(|| Unreachable::new(format!("no class of work has the number {class}")))?;
        self.job.work(class).map_err(Unreachable::new)
    }

    /// Movers that listen to a queue of each class; where the broker does not say, none.
    fn consumers(&mut self, queue: impl Fn(&Job, &str) -> Result<String, Error>) -> usize {
        let queues: Vec<String> = self
            .classes
            .iter()
            .filter_map(|class| queue(&self.job, class).ok())
            .collect();
        queues
            .iter()
            .filter_map(|queue| self.control.count(queue).ok())
            .map(|count| count.consumers as usize)
            .sum()
    }

    /// Says so if work waits that nobody takes.
    fn look(&mut self) {
        if self.looked.elapsed() < LOOK_INTERVAL {
            return;
        }
        self.looked = Instant::now();
        if let Some(blocked) = self.publisher.blocked() {
            self.witness.note(&format!(
                "the broker takes no messages since {} s: {}",
                blocked.since.elapsed().as_secs(),
                blocked.why
            ));
        }
        for count in self.control.counts().unwrap_or_default() {
            let class = self
                .classes
                .iter()
                .find(|class| self.job.work(class).is_ok_and(|queue| queue == count.queue));
            if let Some(class) = class.filter(|_| count.ready > 0 && count.consumers == 0) {
                self.witness.note(&format!(
                    "no mover takes work of the class \"{class}\" of job \"{}\"; start one",
                    self.job.name()
                ));
            }
        }
    }

    fn word(&mut self, delivery: driftless_queue::Delivery) -> Option<Word> {
        match decode(delivery.body()) {
            Ok(Report::Alive(sign)) => {
                let _it_makes_no_difference = delivery.ack();
                Some(Word::Alive(Box::new(sign)))
            }
            Ok(Report::Part(part)) => {
                let ticket = self.next_ticket;
                self.next_ticket += 1;
                self.tickets.insert(ticket, delivery);
                Some(Word::Part(part, ticket))
            }
            Ok(Report::Failed { mover, reason, .. }) => {
                let _it_is_said_twice = delivery.ack();
                if self.misfits.len() < MISFITS_MAX && self.misfits.insert(mover.clone()) {
                    let said = format!("{mover}: {reason}; it takes no part in this run");
                    self.witness.note(&driftless_model::escape(said.as_bytes()));
                }
                None
            }
            Err(unclear) => {
                self.witness
                    .note(&format!("{}: {unclear}", self.job.results()));
                let _it_comes_again =
                    delivery.park(&unclear.to_string(), &self.publisher, CALL_TIMEOUT);
                None
            }
        }
    }
}

/// Who coordinates, for the eyes of others.
fn own_words() -> String {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let since = driftless_model::moment(driftless_engine::now().sec);
    format!("process {} on {host}, since {since}", std::process::id())
}

impl Exchange for BrokerExchange<'_> {
    fn send(&mut self, brief: &Brief, run: u64, id: u64, batch: &Batch) -> Result<(), Unreachable> {
        let queue = self.queue(batch.class)?;
        let body = encode(&Order::Batch {
            brief: Box::new(brief.clone()),
            run,
            id,
            batch: batch.clone(),
        });
        let sent = patiently(self.stop, || {
            self.publisher.publish(&queue, &body, CALL_TIMEOUT)
        });
        sent.map(drop).map_err(Unreachable::new)
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Word>, Unreachable> {
        self.look();
        self.seat.keep().map_err(Unreachable::new)?;
        if self.publisher.outstanding() > 0 {
            let _sent_again_with_the_next_call = self.publisher.flush(limit);
        }
        match self.results.next(limit) {
            Ok(delivery) => Ok(delivery.and_then(|delivery| self.word(delivery))),
            Err(error) => Err(Unreachable::new(error)),
        }
    }

    fn accept(&mut self, ticket: u64) {
        // On a connection that is lost it comes again, and is passed over then.
        let _stale = self
            .tickets
            .remove(&ticket)
            .map(driftless_queue::Delivery::ack);
    }

    fn waits(&mut self) -> Result<bool, Unreachable> {
        let work: Vec<String> = self
            .classes
            .iter()
            .filter_map(|class| self.job.work(class).ok())
            .collect();
        // What cannot be counted now may well wait.
        Ok(self.control.counts().map_or(true, |counts| {
            counts
                .iter()
                .any(|count| count.ready > 0 && work.contains(&count.queue))
        }))
    }

    fn idle(&mut self) -> usize {
        self.consumers(Job::idle)
    }

    fn at_work(&mut self) -> usize {
        // In this order: one that takes a batch meanwhile counts.
        let idle = self.idle();
        self.consumers(Job::work).saturating_sub(idle)
    }

    fn call_back(&mut self) -> Result<(), Unreachable> {
        // They look at the mark of the replica, and at whether somebody listens.
        self.clear(false)
    }

    fn dismiss(&mut self, _mover: &str, _why: &str) {
        // It refuses what it is sent.
    }

    fn parked(&mut self, run: u64) -> Result<Vec<(u64, String)>, Unreachable> {
        let parked = self
            .control
            .parked(driftless_queue::LISTED_MAX)
            .unwrap_or_default();
        let ours = parked
            .into_iter()
            .filter_map(|parked| match decode(&parked.body) {
                Ok(Order::Batch { run: of, id, .. }) if of == run => {
                    Some((id, tried(&parked.reason, parked.attempts)))
                }
                _ => None,
            });
        Ok(ours.collect())
    }

    fn clear(&mut self, words: bool) -> Result<(), Unreachable> {
        let work = self
            .classes
            .iter()
            .filter_map(|class| self.job.work(class).ok());
        let others = [self.job.results(), self.job.parked()]
            .into_iter()
            .filter(|_| words);
        let queues: Vec<String> = work.chain(others).collect();
        for queue in queues {
            patiently(self.stop, || self.control.purge_queue(&queue)).map_err(Unreachable::new)?;
        }
        Ok(())
    }
}
