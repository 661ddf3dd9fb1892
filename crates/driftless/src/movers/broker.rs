//! Movers that take their work from RabbitMQ: the coordinator's side and the mover's.

use super::crew::Crew;
use crate::args::{MoverArgs, QueueArgs};
use crate::exit::Exit;
use crate::output::Output;
use crate::signals::Signals;
use crate::units::show_counted;
use driftless_engine::message::{Order, Report, decode, encode};
use driftless_engine::{Brief, Carrying, Delivered, Desk, Exchange, Failure, Lease, Line, Moment, Outcome, Share, Word};
use driftless_queue::{Broker, Consumer, Control, Credentials, Error, Job, Publisher, Seat, Url};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The class of what no route takes.
pub const WORK: &str = "work";
/// Where the password may stand.
const PASSWORD: &str = "DRIFTLESS_QUEUE_PASSWORD";
/// How long one call for the broker waits.
const CALL: Duration = Duration::from_secs(1);
/// How long the broker may take no messages, or be out of reach, before the run ends; it goes on when it is run again.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long a question about the queues may take; what it is asked for does not depend on the answer.
const QUESTION: Duration = Duration::from_secs(5);
/// The same while a share is worked off, which may be lost meanwhile.
const QUESTION_AT_WORK: Duration = Duration::from_secs(1);
/// Messages of movers that are handed out and not noted yet.
const PREFETCH: u16 = 64;
/// A mover that fails so many shares one after the other ends: something is wrong with its host.
const FAILURES_MAX: u32 = 5;
/// Pause after the first of them; it doubles with each.
const PAUSE: Duration = Duration::from_secs(1);
/// A mover that got nothing for so long waits for work, and says so; between two shares of a full queue passes less.
const WAITS: Duration = Duration::from_millis(20);
/// So many movers that take no part in a run are named.
const MISFITS_MAX: usize = 64;
/// Between two looks at whether another coordinator is there than the one whose run this mover does not fit.
const LOOK_FOR_OTHER: Duration = Duration::from_secs(2);
/// Between two looks at whether anybody takes the work.
const LOOK: Duration = Duration::from_secs(10);

/// The broker that is meant, or what is wrong with the arguments.
pub fn broker(args: &QueueArgs) -> Result<Broker, Error> {
    let url: Url = args.queue.as_deref().unwrap_or_default().parse()?;
    let credentials = match (&args.queue_credentials, std::env::var(PASSWORD)) {
        (Some(path), _) => Credentials::from_file(path)?,
        (None, Ok(password)) => Credentials::from_value(password),
        (None, Err(_)) => return Err(Error::NoPassword),
    };
    let broker = Broker::new(url, credentials)?.with_patience(PATIENCE);
    Ok(match &args.queue_ca {
        Some(path) => broker.with_certificates(certificates(path)?),
        None => broker,
    })
}

/// The user's own file of certificates.
#[allow(clippy::disallowed_methods, reason = "our own file, no part of a replicated tree")]
fn certificates(path: &std::path::Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| Error::Credentials { path: path.to_owned(), why: driftless_model::cause(&error) })
}

/// The coordinator's way to its movers.
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
    output: &'a Output,
    stop: &'a AtomicBool,
    /// The last that is dropped: nobody else coordinates the job as long as anything of this is left.
    seat: Seat,
}

impl<'a> BrokerExchange<'a> {
    /// Connects; `classes` are those of the routes, in the order of the routes.
    ///
    /// # Errors
    /// The broker refuses, cannot be reached, or a name is not allowed.
    pub fn open(broker: &Broker, name: &str, routes: &[String], output: &'a Output, stop: &'a AtomicBool) -> Result<Self, Error> {
        let classes: Vec<String> = std::iter::once(WORK.to_owned()).chain(routes.iter().cloned()).collect();
        let names: Vec<&str> = classes.iter().map(String::as_str).collect();
        let job = Job::new(name, &names)?;
        // Before anything is taken from the queues: it may be another's.
        let seat = Seat::take(broker, &job, &own_words())?;
        Ok(BrokerExchange {
            seat,
            publisher: Publisher::open(broker, &job)?,
            results: Consumer::open(broker, &job, &job.results(), PREFETCH)?,
            control: Control::open(broker, &job)?.with_limit(QUESTION),
            job,
            classes,
            misfits: BTreeSet::new(),
            tickets: HashMap::new(),
            next_ticket: 0,
            looked: Instant::now(),
            output,
            stop,
        })
    }

    fn queue(&self, class: u8) -> Result<String, String> {
        let class = self.classes.get(usize::from(class)).ok_or_else(|| format!("no class of work has the number {class}"))?;
        self.job.work(class).map_err(|error| error.to_string())
    }

    /// Movers that listen to a queue of each class; where the broker does not say, none.
    fn consumers(&mut self, queue: impl Fn(&Job, &str) -> Result<String, Error>) -> usize {
        let queues: Vec<String> = self.classes.iter().filter_map(|class| queue(&self.job, class).ok()).collect();
        queues.iter().filter_map(|queue| self.control.count(queue).ok()).map(|count| count.consumers as usize).sum()
    }

    /// Says so if work waits that nobody takes.
    fn look(&mut self) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        if let Some(blocked) = self.publisher.blocked() {
            self.output.note(&format!("the broker takes no messages since {} s: {}", blocked.since.elapsed().as_secs(), blocked.why));
        }
        for count in self.control.counts().unwrap_or_default() {
            let class = self.classes.iter().find(|class| self.job.work(class).is_ok_and(|queue| queue == count.queue));
            if let Some(class) = class.filter(|_| count.ready > 0 && count.consumers == 0) {
                self.output.note(&format!("no mover takes work of the class \"{class}\" of job \"{}\"; start one", self.job.name()));
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
                    self.output.note(&driftless_model::escape(said.as_bytes()));
                }
                None
            }
            Err(unclear) => {
                self.output.note(&format!("{}: {unclear}", self.job.results()));
                let _it_comes_again = delivery.park(&unclear.to_string(), &self.publisher, CALL);
                None
            }
        }
    }
}

/// Who coordinates, for the eyes of others.
fn own_words() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let since = driftless_model::moment(driftless_engine::now().sec);
    format!("process {} on {host}, since {since}", std::process::id())
}

/// Calls until it works, or the broker has been away for too long, or the run is stopped.
fn patiently<T>(stop: &AtomicBool, mut call: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let began = Instant::now();
    loop {
        match call() {
            Err(Error::Blocked { .. } | Error::Unconfirmed { .. } | Error::Lost { .. } | Error::Nacked { .. })
                if began.elapsed() < PATIENCE && !stop.load(Relaxed) =>
            {
                std::thread::sleep(CALL / 10);
            }
            other => return other,
        }
    }
}

impl Exchange for BrokerExchange<'_> {
    fn send(&mut self, brief: &Brief, run: u64, id: u64, share: &Share) -> Result<(), String> {
        let queue = self.queue(share.class)?;
        let body = encode(&Order::Share { brief: Box::new(brief.clone()), run, id, share: share.clone() });
        let sent = patiently(self.stop, || self.publisher.publish(&queue, &body, CALL));
        sent.map(drop).map_err(|error| error.to_string())
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Word>, String> {
        self.look();
        self.seat.keep().map_err(|error| error.to_string())?;
        if self.publisher.outstanding() > 0 {
            let _sent_again_with_the_next_call = self.publisher.flush(limit);
        }
        match self.results.next(limit) {
            Ok(delivery) => Ok(delivery.and_then(|delivery| self.word(delivery))),
            Err(error) => Err(error.to_string()),
        }
    }

    fn accept(&mut self, ticket: u64) {
        // On a connection that is lost it comes again, and is passed over then.
        let _stale = self.tickets.remove(&ticket).map(driftless_queue::Delivery::ack);
    }

    fn waits(&mut self) -> Result<bool, String> {
        let work: Vec<String> = self.classes.iter().filter_map(|class| self.job.work(class).ok()).collect();
        // What cannot be counted now may well wait.
        Ok(self.control.counts().map_or(true, |counts| counts.iter().any(|count| count.ready > 0 && work.contains(&count.queue))))
    }

    fn idle(&mut self) -> usize {
        self.consumers(Job::idle)
    }

    fn at_work(&mut self) -> usize {
        // In this order: one that takes a share meanwhile counts.
        let idle = self.idle();
        self.consumers(Job::work).saturating_sub(idle)
    }

    fn call_back(&mut self) -> Result<(), String> {
        // They look at the mark of the replica, and at whether somebody listens.
        self.clear(false)
    }

    fn dismiss(&mut self, _mover: &str, _why: &str) {
        // It refuses what it is sent.
    }

    fn parked(&mut self, run: u64) -> Result<Vec<(u64, String)>, String> {
        let parked = self.control.parked(driftless_queue::LISTED_MAX).unwrap_or_default();
        let ours = parked.into_iter().filter_map(|parked| match decode(&parked.body) {
            Ok(Order::Share { run: of, id, .. }) if of == run => {
                Some((id, format!("{} (tried {})", parked.reason, show_counted(parked.attempts.into(), "time", "times"))))
            }
            _ => None,
        });
        Ok(ours.collect())
    }

    fn clear(&mut self, words: bool) -> Result<(), String> {
        let work = self.classes.iter().filter_map(|class| self.job.work(class).ok());
        let others = [self.job.results(), self.job.parked()].into_iter().filter(|_| words);
        let queues: Vec<String> = work.chain(others).collect();
        for queue in queues {
            patiently(self.stop, || self.control.purge_queue(&queue)).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// A mover on the queue: works until it is told to end.
pub fn serve(args: &MoverArgs, crew: Crew, signals: &Signals) -> Exit {
    match (Server { args, crew, signals }).serve() {
        Ok(()) if signals.number() > 0 => Exit::Signal(signals.number()),
        Ok(()) => Exit::Equal,
        Err((code, error)) => {
            eprintln!("driftless mover: {error}");
            code
        }
    }
}

type Ended = (Exit, String);

/// The exit code and the words for an error of the queue.
pub fn queue_error(error: &Error) -> Ended {
    let usage =
        matches!(error, Error::Url { .. } | Error::PasswordInUrl | Error::NoPassword | Error::Name { .. } | Error::Credentials { .. });
    let code = match error {
        Error::Taken { .. } => Exit::Locked,
        _ if usage => Exit::Usage,
        _ => Exit::NoQueue,
    };
    (code, error.to_string())
}

struct Server<'a> {
    args: &'a MoverArgs,
    crew: Crew,
    signals: &'a Signals,
}

/// What a mover works with.
struct Lines {
    job: Job,
    queue: String,
    /// The queue of those who have nothing to do.
    idle: String,
    publisher: Publisher,
    /// None while nobody coordinates the job: shares wait in their queue then. Or this mover sits out.
    consumer: Option<Consumer>,
    /// Whose run this mover does not fit, in that coordinator's words, and when it looked last whether somebody else is there.
    sits_out: Option<(String, Instant)>,
    control: Control,
    broker: Broker,
}

impl Server<'_> {
    fn serve(mut self) -> Result<(), Ended> {
        let broker = broker(&self.args.queue).map_err(|error| queue_error(&error))?;
        let mut lines = self.open(&broker).map_err(|error| queue_error(&error))?;
        eprintln!("driftless mover: ready for \"{}\" of job \"{}\" at {}", self.args.class, self.job_name(), broker.url());
        let (mut idle, mut failures) = (Instant::now(), 0);
        while !self.signals.stop.load(Relaxed) {
            let next = lines.next().map_err(|error| queue_error(&error))?;
            let Some(delivery) = next else {
                if self.args.idle.is_some_and(|limit| idle.elapsed() >= limit) {
                    return Ok(());
                }
                continue;
            };
            let mut working = Working { crew: &mut self.crew, leave: &self.signals.stop };
            match driftless_engine::serve(delivery, &mut lines, &mut working) {
                Ok(()) => failures = 0,
                Err(reason) => {
                    failures += 1;
                    eprintln!("driftless mover: {reason}");
                    self.pause(failures)?;
                }
            }
            idle = Instant::now();
        }
        Ok(())
    }

    fn job_name(&self) -> &str {
        self.args.queue.job.as_deref().unwrap_or_default()
    }

    fn open(&self, broker: &Broker) -> Result<Lines, Error> {
        let job = Job::new(self.job_name(), &[&self.args.class])?;
        let (queue, idle) = (job.work(&self.args.class)?, job.idle(&self.args.class)?);
        Ok(Lines {
            publisher: Publisher::open(broker, &job)?,
            consumer: Some(Consumer::open(broker, &job, &queue, 1)?),
            sits_out: None,
            control: Control::open(broker, &job)?.with_limit(QUESTION_AT_WORK),
            broker: broker.clone(),
            job,
            queue,
            idle,
        })
    }

    /// A host that fails may do so at once, and must not empty the queue that way.
    fn pause(&self, failures: u32) -> Result<(), Ended> {
        if failures >= FAILURES_MAX {
            return Err((Exit::CouldNotRun, format!("{failures} shares failed one after the other; this mover ends")));
        }
        let until = Instant::now() + PAUSE * 2u32.pow(failures - 1);
        while Instant::now() < until && !self.signals.stop.load(Relaxed) {
            std::thread::sleep(CALL / 10);
        }
        Ok(())
    }
}

/// A crew that takes its shares from a queue.
struct Working<'a> {
    crew: &'a mut Crew,
    leave: &'a AtomicBool,
}

impl Carrying<Lines> for Working<'_> {
    fn name(&self) -> &str {
        self.crew.name()
    }

    fn carry_out(&mut self, share: (u64, u64), what: (&Brief, &Share), lines: &mut Lines) -> Result<Outcome, Failure> {
        self.crew.work_off(share, what, lines, self.leave)
    }
}

/// A delivery, as whoever carries out shares knows it.
struct Delivery(driftless_queue::Delivery);

impl Delivered for Delivery {
    fn body(&self) -> &[u8] {
        self.0.body()
    }

    fn attempts(&self) -> u32 {
        self.0.attempts()
    }
}

impl Desk for Lines {
    type Delivery = Delivery;

    fn is_coordinated(&mut self) -> bool {
        let results = self.job.results();
        self.consumer.as_mut().and_then(|consumer| consumer.count(&results, QUESTION_AT_WORK)).is_some_and(|results| results.consumers > 0)
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
        let _it_is_closed_below = self.consumer.as_mut().map(|consumer| consumer.end(CALL));
        let _it_comes_again = delivery.0.hand_on(&self.publisher, CALL);
        self.consumer = None;
        let who = self.control.coordinator().ok().flatten().unwrap_or_default();
        self.sits_out = Some((who, Instant::now()));
    }

    fn try_again(&mut self, delivery: Delivery) {
        let _it_comes_again = delivery.0.try_again(&self.publisher, CALL);
    }

    fn park(&mut self, delivery: Delivery, reason: &str) -> Result<(), String> {
        delivery.0.park(reason, &self.publisher, PATIENCE).map_err(|error| error.to_string())
    }

    fn report(&mut self, body: &[u8]) -> Result<(), String> {
        let publish = || self.publisher.publish(&self.job.results(), body, CALL);
        patiently(&AtomicBool::new(false), publish).map(drop).map_err(|error| error.to_string())
    }

    fn flush(&mut self) -> Result<(), String> {
        patiently(&AtomicBool::new(false), || self.publisher.flush(CALL)).map(drop).map_err(|error| error.to_string())
    }

    fn note(&mut self, text: &str) {
        eprintln!("driftless mover: {text}");
    }
}

impl Lines {
    /// Takes shares again when somebody coordinates the job.
    fn look_for_coordinator(&mut self) -> Result<Option<Delivery>, Error> {
        std::thread::sleep(CALL / 5);
        if self.sits_out() {
            return Ok(None);
        }
        if self.control.count(&self.job.results()).is_ok_and(|results| results.consumers > 0) {
            self.consumer = Some(Consumer::open(&self.broker, &self.job, &self.queue, 1)?);
        }
        Ok(None)
    }

    /// Whether the coordinator whose run this mover does not fit is still the last that there was.
    fn sits_out(&mut self) -> bool {
        let Some((whose, looked)) = &mut self.sits_out else { return false };
        if looked.elapsed() < LOOK_FOR_OTHER {
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

    /// The next share; while there is none, others can see that one is waited for.
    fn next(&mut self) -> Result<Option<Delivery>, Error> {
        let Some(consumer) = &mut self.consumer else { return self.look_for_coordinator() };
        let mut next = consumer.next(WAITS)?;
        if next.is_none() {
            let _they_see_it_later = self.control.enlist(&self.idle);
            next = consumer.next(CALL)?;
        }
        if next.is_some() {
            let _they_yield_in_vain = self.control.withdraw();
        }
        Ok(next.map(Delivery))
    }
}

impl Line for Lines {
    fn alive(&mut self, report: Report) {
        if self.publisher.blocked().is_none() {
            let _the_next_one_does = self.publisher.publish(&self.job.results(), &encode(&report), Duration::ZERO);
        }
    }

    fn is_hungry(&mut self) -> bool {
        self.control.count(&self.idle).is_ok_and(|idle| idle.consumers > 0)
            && self.control.count(&self.queue).is_ok_and(|work| work.ready == 0)
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
