//! A mover's place at the queues of a job: where it takes batches, says what came of them, and sees
//! who else is there.

use crate::queue::{CALL_TIMEOUT, PATIENCE, patiently};
use driftless_engine::message::{Report, encode};
use driftless_engine::{Delivered, Desk, Lease, Line, Moment, Unreachable};
use driftless_queue::{Broker, Consumer, Control, Error, Job, Publisher};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tracing::info;

/// How long a question about the queues may take while a batch is worked off, which may be lost
/// meanwhile.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(1);
/// A mover that got nothing for so long waits for work, and says so; between two batches of a full
/// queue passes less.
const WAITS: Duration = Duration::from_millis(20);
/// Between two looks at whether another coordinator is there than the one whose run this mover does
/// not fit.
const OTHER_INTERVAL: Duration = Duration::from_secs(2);

/// What a mover works with.
pub struct QueueDesk {
    job: Job,
    queue: String,
    /// The queue of those who have nothing to do.
    idle: String,
    publisher: Publisher,
    /// None while nobody coordinates the job: batches wait in their queue then. Or this mover sits
    /// out.
    consumer: Option<Consumer>,
    /// Whose run this mover does not fit, in that coordinator's words, and when it looked last
    /// whether somebody else is there.
    sits_out: Option<(String, Instant)>,
    control: Control,
    broker: Broker,
}

/// A delivery, as the mover that carries out batches knows it.
pub struct Delivery(driftless_queue::Delivery);

impl Delivered for Delivery {
    fn body(&self) -> &[u8] {
        self.0.body()
    }

    fn attempts(&self) -> u32 {
        self.0.attempts()
    }
}

impl Desk for QueueDesk {
    type Delivery = Delivery;

    fn is_coordinated(&mut self) -> bool {
        let results = self.job.results();
        self.consumer
            .as_mut()
            .and_then(|consumer| consumer.count(&results, QUESTION_TIMEOUT))
            .is_some_and(|results| results.consumers > 0)
    }

    fn wait_for_coordinator(&mut self) {
        self.consumer = None;
    }

    fn acknowledge(&mut self, delivery: Delivery) {
        let _or_it_is_done_twice = delivery.0.ack();
    }

    fn give_back(&mut self, delivery: Delivery) {
        let _it_comes_again = delivery.0.give_back();
    }

    fn sit_out(&mut self, delivery: Delivery) {
        // Else the next one comes when this one is gone.
        let _it_is_closed_below = self
            .consumer
            .as_mut()
            .map(|consumer| consumer.end(CALL_TIMEOUT));
        let _it_comes_again = delivery.0.hand_on(&self.publisher, CALL_TIMEOUT);
        self.consumer = None;
        let who = self
            .control
            .coordinator()
            .ok()
            .flatten()
            .unwrap_or_default();
        self.sits_out = Some((who, Instant::now()));
    }

    fn try_again(&mut self, delivery: Delivery) {
        let _it_comes_again = delivery.0.try_again(&self.publisher, CALL_TIMEOUT);
    }

    fn park(&mut self, delivery: Delivery, reason: &str) -> Result<(), Unreachable> {
        delivery
            .0
            .park(reason, &self.publisher, PATIENCE)
            .map_err(Unreachable::new)
    }

    fn report(&mut self, body: &[u8]) -> Result<(), Unreachable> {
        let publish = || {
            self.publisher
                .publish(&self.job.results(), body, CALL_TIMEOUT)
        };
        patiently(&AtomicBool::new(false), publish)
            .map(drop)
            .map_err(Unreachable::new)
    }

    fn flush(&mut self) -> Result<(), Unreachable> {
        patiently(&AtomicBool::new(false), || {
            self.publisher.flush(CALL_TIMEOUT)
        })
        .map(drop)
        .map_err(Unreachable::new)
    }

    fn note(&mut self, text: &str) {
        info!("{text}");
    }
}

impl QueueDesk {
    /// Takes the place of a mover that takes work of `class` of the job `name`.
    ///
    /// # Errors
    /// The broker refuses, cannot be reached, or a name is not allowed.
    pub fn open(broker: &Broker, name: &str, class: &str) -> Result<QueueDesk, Error> {
        let job = Job::new(name, &[class])?;
        let (queue, idle) = (job.work(class)?, job.idle(class)?);
        Ok(QueueDesk {
            publisher: Publisher::open(broker, &job)?,
            consumer: Some(Consumer::open(broker, &job, &queue, 1)?),
            sits_out: None,
            control: Control::open(broker, &job)?.with_limit(QUESTION_TIMEOUT),
            broker: broker.clone(),
            job,
            queue,
            idle,
        })
    }

    /// Takes batches again when somebody coordinates the job.
    fn look_for_coordinator(&mut self) -> Result<Option<Delivery>, Error> {
        std::thread::sleep(CALL_TIMEOUT / 5);
        if self.sits_out() {
            return Ok(None);
        }
        if self
            .control
            .count(&self.job.results())
            .is_ok_and(|results| results.consumers > 0)
        {
            self.consumer = Some(Consumer::open(&self.broker, &self.job, &self.queue, 1)?);
        }
        Ok(None)
    }

    /// Whether the coordinator whose run this mover does not fit is still the last that there was.
    fn sits_out(&mut self) -> bool {
        let Some((whose, looked)) = &mut self.sits_out else {
            return false;
        };
        if looked.elapsed() < OTHER_INTERVAL {
            return true;
        }
        *looked = Instant::now();
        match self.control.coordinator() {
            // It could not be told at first.
            Ok(Some(who)) if whose.is_empty() => *whose = who,
            Ok(Some(who)) if who != *whose => self.sits_out = None,
            _ => {}
        }
        self.sits_out.is_some()
    }

    /// The next batch; while there is none, others can see that one is waited for.
    ///
    /// # Errors
    /// The broker is out of reach for longer than a mover waits, or refuses.
    pub fn next(&mut self) -> Result<Option<Delivery>, Error> {
        let Some(consumer) = &mut self.consumer else {
            return self.look_for_coordinator();
        };
        let mut next = consumer.next(WAITS)?;
        if next.is_none() {
            let _they_see_it_later = self.control.enlist(&self.idle);
            next = consumer.next(CALL_TIMEOUT)?;
        }
        if next.is_some() {
            let _they_yield_in_vain = self.control.withdraw();
        }
        Ok(next.map(Delivery))
    }
}

impl Line for QueueDesk {
    fn alive(&mut self, report: Report) {
        if self.publisher.blocked().is_none() {
            let _the_next_one_does =
                self.publisher
                    .publish(&self.job.results(), &encode(&report), Duration::ZERO);
        }
    }

    fn is_hungry(&mut self) -> bool {
        self.control
            .count(&self.idle)
            .is_ok_and(|idle| idle.consumers > 0)
            && self
                .control
                .count(&self.queue)
                .is_ok_and(|work| work.ready == 0)
    }

    fn is_lost(&mut self) -> bool {
        !self.consumer.as_mut().is_some_and(Consumer::is_connected)
    }

    fn begin(&mut self, _lease: &Arc<Lease>) {}

    fn ask_for_sign(&mut self, lease: &Lease) {
        let asked = Moment::now();
        if self.is_coordinated() {
            lease.heard(asked);
        }
    }
}
