//! What the broker, the movers and the lines between them are like at a moment, and what becomes of
//! them as time passes.

use super::described_batch;
use super::turn::Turn;
use driftless_engine::message::{Order, Report, decode, encode};
use driftless_engine::{Batch, Failure, Lease, Moment, Options, Outcome, Word};
use fastrand::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Jobs that make the same replica equal, each to a source of its own.
pub const JOBS: usize = 2;
/// Classes of work: what no route takes, and large files.
pub const CLASSES: usize = 2;
/// The job and the class of each mover.
const MOVERS: [(usize, usize); 6] = [(0, 1), (0, 1), (0, 0), (0, 0), (1, 0), (1, 1)];
/// Everybody who is awake does something at least every so many milliseconds.
const STEP_MAX: u64 = 250;
/// In one of so many steps, something goes wrong.
const ACCIDENT: u32 = 60;
/// A broker notices that somebody is gone after so many milliseconds. Less than a lease lasts would
/// be another world: there, who is cut off loses the batch to others before knowing it.
const CUT: std::ops::Range<u64> = 20_000..45_000;
/// Steps in which all lives come to their end, or never.
const STEPS_MAX: u64 = 400_000;

/// A batch on its way.
#[derive(Clone)]
pub struct Message {
    pub job: usize,
    pub body: Vec<u8>,
    pub attempts: u32,
}

/// A mover's line to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Up,
    /// Nothing comes through, and neither side knows.
    Cut,
    /// Both sides know that it is gone.
    Closed,
}

/// Who may change the replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// Movers of no run.
    Nobody,
    /// Those of a run of this job; which one is known with its first batch.
    Run { job: usize, run: Option<u64> },
}

pub struct Mover {
    job: usize,
    class: usize,
    pub turn: Arc<Turn>,
    pub lease: Option<Arc<Lease>>,
    pub link: Link,
    /// It asks for batches: it knows of a coordinator.
    pub consumes: bool,
    pub is_dead: bool,
    /// It waits for a batch.
    pub is_idle: bool,
    /// How often it went on.
    pub slices: u64,
    /// What the broker has given it, and not heard of since.
    held: Option<(u64, Message)>,
    /// The batch that it carries out.
    batch: Option<(u64, u64)>,
    /// A change takes up to so many milliseconds.
    pace: u64,
    ready_at: u64,
    sleeps_until: Option<u64>,
    closes_at: Option<u64>,
    frozen: Option<Moment>,
}

/// What somebody does before a mover carries out a batch.
pub type Before = Box<dyn FnMut(&Batch) + Send>;

/// Who goes on.
pub enum Act {
    Hands(usize),
    Eyes(usize),
    Kill(usize),
}

/// The world at a moment.
pub struct State {
    pub rng: Rng,
    options: [Options; JOBS],
    pub replica: PathBuf,
    base: Instant,
    /// Milliseconds since it began.
    pub millis: u64,
    pub work: [[VecDeque<Message>; CLASSES]; JOBS],
    pub results: [VecDeque<Vec<u8>>; JOBS],
    pub unacknowledged: [BTreeMap<u64, Vec<u8>>; JOBS],
    pub parked: [Vec<(Vec<u8>, String)>; JOBS],
    pub movers: Vec<Mover>,
    /// The broker knows of a coordinator that listens.
    coordinated: [bool; JOBS],
    /// When the broker notices that it does not.
    deaf_at: [Option<u64>; JOBS],
    pub holder: Holder,
    tickets: u64,
    steps: u64,
    /// Accidents that may still happen.
    pub accidents: u32,
    /// What happened, for whoever looks into a failure.
    pub history: Vec<String>,
    /// Somebody who changes the trees while the run goes on.
    pub before: Option<Before>,
    /// Leases do not end: the clock of a mover stands still while it carries out a batch.
    pub breaks_leases: bool,
    /// How often somebody went on who did not hold the replica.
    pub judged: u64,
    pub failure: Option<String>,
    pub is_over: bool,
}

impl State {
    pub fn new(seed: u64, options: [Options; JOBS], replica: PathBuf) -> State {
        let mut rng = Rng::with_seed(seed);
        let mover = |(job, class)| Mover {
            job,
            class,
            turn: Arc::new(Turn::new()),
            lease: None,
            link: Link::Up,
            consumes: true,
            is_dead: false,
            is_idle: true,
            slices: 0,
            held: None,
            batch: None,
            pace: 1,
            ready_at: 0,
            sleeps_until: None,
            closes_at: None,
            frozen: None,
        };
        State {
            options,
            replica,
            base: Instant::now(),
            millis: 0,
            work: Default::default(),
            results: Default::default(),
            unacknowledged: Default::default(),
            parked: Default::default(),
            movers: MOVERS.into_iter().map(mover).collect(),
            coordinated: [false; JOBS],
            deaf_at: [None; JOBS],
            holder: Holder::Nobody,
            tickets: 0,
            steps: 0,
            accidents: rng.u32(0..12),
            rng,
            history: Vec::new(),
            before: None,
            breaks_leases: false,
            judged: 0,
            failure: None,
            is_over: false,
        }
    }

    pub fn tell(&mut self, what: String) {
        self.history.push(format!("{:>9} ms  {what}", self.millis));
    }

    pub fn now(&self) -> Instant {
        self.base + Duration::from_millis(self.millis)
    }

    /// This moment, as a mover's lease sees it.
    pub fn moment(&self, index: usize) -> Moment {
        self.movers[index]
            .frozen
            .unwrap_or(Moment::after(Duration::from_millis(
                1_000_000 + self.millis,
            )))
    }

    /// A step of time, at most until then; says who goes on.
    pub fn advance(&mut self, until: u64) -> Vec<Act> {
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "the run does not come to its end");
        self.millis = until.min(self.millis + self.rng.u64(1..=STEP_MAX));
        let mut acts = Vec::new();
        if self.accidents > 0 && self.rng.u32(0..ACCIDENT) == 0 {
            self.accidents -= 1;
            acts.extend(self.accident());
        }
        for job in 0..JOBS {
            if self.deaf_at[job].is_some_and(|at| at <= self.millis) {
                self.notices(job);
            }
        }
        let mut order: Vec<usize> = (0..self.movers.len()).collect();
        self.rng.shuffle(&mut order);
        order
            .into_iter()
            .for_each(|index| self.goes_on(index, &mut acts));
        acts
    }

    fn goes_on(&mut self, index: usize, acts: &mut Vec<Act>) {
        let now = self.millis;
        if self.movers[index].closes_at.is_some_and(|at| at <= now) {
            self.close(index);
        }
        if self.movers[index]
            .sleeps_until
            .is_some_and(|until| until > now)
        {
            return;
        }
        let wakes = self.movers[index].sleeps_until.take().is_some();
        if wakes {
            self.tell(format!("mover {index} wakes"));
        }
        let is_ready = wakes || self.movers[index].ready_at <= now;
        if is_ready {
            self.movers[index].ready_at = now + self.rng.u64(0..self.movers[index].pace.max(1));
        }
        // Which of its threads is first, nobody knows.
        match (is_ready, self.rng.bool()) {
            (true, true) => acts.extend([Act::Hands(index), Act::Eyes(index)]),
            (true, false) => acts.extend([Act::Eyes(index), Act::Hands(index)]),
            (false, _) => acts.push(Act::Eyes(index)),
        }
    }

    fn accident(&mut self) -> Option<Act> {
        let index = self.rng.usize(..self.movers.len());
        match self.rng.u8(0..8) {
            0 => return (!self.movers[index].is_idle).then_some(Act::Kill(index)),
            1 => {
                self.tell(format!("the broker closes the connection of mover {index}"));
                self.close(index);
            }
            2 => {
                self.tell(format!("mover {index} is cut off"));
                let at = self.millis + self.rng.u64(CUT);
                let mover = &mut self.movers[index];
                if mover.link == Link::Up {
                    (mover.link, mover.closes_at) = (Link::Cut, Some(at));
                }
            }
            3 | 4 => self.put_to_sleep(index),
            5 => {
                let job = self.rng.usize(..JOBS);
                self.tell(format!("the coordinator of job {job} loses its connection"));
                self.return_results(job);
            }
            6 => self.double(),
            _ => {
                let job = self.rng.usize(..JOBS);
                self.tell(format!("the broker loses the work of job {job} that waits"));
                self.work[job].iter_mut().for_each(VecDeque::clear);
            }
        }
        None
    }

    /// A mover is stopped, for moments or for long.
    pub fn put_to_sleep(&mut self, index: usize) {
        let span = if self.rng.bool() {
            self.rng.u64(0..3000)
        } else {
            self.rng.u64(0..200_000)
        };
        let drops = self.rng.u64(CUT);
        self.tell(format!("mover {index} sleeps for {span} ms"));
        let now = self.millis;
        let mover = &mut self.movers[index];
        mover.sleeps_until = Some(now + span);
        if drops < span && mover.closes_at.is_none() {
            mover.closes_at = Some(now + drops);
        }
    }

    /// The broker knows that a mover is gone, and so does the mover as soon as it looks.
    fn close(&mut self, index: usize) {
        let mover = &mut self.movers[index];
        (mover.link, mover.closes_at) = (Link::Closed, None);
        if let Some((number, _)) = mover.held {
            self.hand_back(index, number, 1);
        }
    }

    pub fn kill(&mut self, index: usize) {
        self.tell(format!("mover {index} dies"));
        self.close(index);
        self.movers[index].is_dead = true;
    }

    /// A mover waits for its next batch, on a connection that stands.
    pub fn is_ready(&mut self, index: usize) {
        let mover = &mut self.movers[index];
        if mover.is_dead {
            (mover.is_dead, mover.sleeps_until) = (false, None);
        }
        (mover.lease, mover.batch, mover.pace, mover.is_idle) = (None, None, 300, true);
    }

    pub fn fails(&mut self, index: usize, why: &str) {
        self.tell(format!("mover {index} fails: {why}"));
        self.movers[index].ready_at = self.millis + 1000;
    }

    /// What the broker gives a mover that asks for a batch.
    pub fn deliver(&mut self, index: usize) -> Option<(u64, Message)> {
        let (job, class) = (self.movers[index].job, self.movers[index].class);
        if self.movers[index].link == Link::Closed {
            self.movers[index].link = Link::Up;
        }
        let is_coordinated = self.is_coordinated(index);
        let mover = &mut self.movers[index];
        mover.consumes |= is_coordinated;
        if mover.link != Link::Up || !mover.consumes {
            return None;
        }
        let message = self.work[job][class].pop_front()?;
        self.tickets += 1;
        (mover.held, mover.is_idle) = (Some((self.tickets, message.clone())), false);
        Some((self.tickets, message))
    }

    /// What a mover was given with this number is for others again, if the broker has not taken it
    /// away.
    pub fn hand_back(&mut self, index: usize, number: u64, attempts: u32) {
        let held = self.movers[index].held.take_if(|(held, _)| *held == number);
        if let Some((_, message)) = held {
            let Ok(Order::Batch { batch, .. }) = decode(&message.body) else {
                return;
            };
            let again = Message {
                attempts: message.attempts + attempts,
                ..message
            };
            self.work[again.job][usize::from(batch.class)].push_front(again);
        }
    }

    pub fn settle(&mut self, index: usize, number: u64) {
        self.movers[index].held.take_if(|(held, _)| *held == number);
    }

    pub fn publish(&mut self, message: Message) {
        let Ok(Order::Batch { batch, .. }) = decode(&message.body) else {
            return;
        };
        self.work[message.job][usize::from(batch.class)].push_back(message);
    }

    pub fn park(&mut self, index: usize, body: Vec<u8>, why: &str) {
        let job = self.movers[index].job;
        self.parked[job].push((body, why.to_owned()));
    }

    /// A report of a mover, which may come twice.
    pub fn report(&mut self, index: usize, body: &[u8]) {
        let job = self.movers[index].job;
        let times = 1 + usize::from(self.rng.u8(0..10) == 0);
        self.results[job].extend(std::iter::repeat_n(body.to_vec(), times));
    }

    pub fn sign(&mut self, index: usize, report: &Report) {
        let mover = &self.movers[index];
        if mover.link == Link::Up && !mover.is_dead {
            self.results[mover.job].push_back(encode(report));
        }
    }

    /// Whether others have nothing to do.
    pub fn is_hungry(&self, index: usize) -> bool {
        let mover = &self.movers[index];
        let waits =
            |other: &Mover| (other.job, other.class) == (mover.job, mover.class) && is_idle(other);
        mover.link == Link::Up
            && self.movers.iter().any(waits)
            && self.work[mover.job][mover.class].is_empty()
    }

    pub fn is_coordinated(&self, index: usize) -> bool {
        let mover = &self.movers[index];
        mover.link == Link::Up && !mover.is_dead && self.coordinated[mover.job]
    }

    /// Movers of a job that are at work, or idle, as the broker knows.
    pub fn count(&self, job: usize, at_work: bool) -> usize {
        self.movers
            .iter()
            .filter(|mover| {
                mover.job == job
                    && if at_work {
                        mover.held.is_some()
                    } else {
                        is_idle(mover)
                    }
            })
            .count()
    }

    /// Whether a mover carries out a batch of a run that does not hold the replica.
    pub fn is_foreign(&self, index: usize) -> bool {
        let mover = &self.movers[index];
        let Some((run, _)) = mover.batch else {
            return false;
        };
        match self.holder {
            Holder::Nobody => true,
            Holder::Run { job, run: now } => job != mover.job || now.is_some_and(|now| now != run),
        }
    }

    /// A batch is begun; returns the options of its run, and whether it leaves all that it can to
    /// others.
    pub fn begin_batch(
        &mut self,
        index: usize,
        (run, id): (u64, u64),
        batch: &Batch,
    ) -> (Options, bool) {
        let (yields, pace) = (
            self.rng.u8(0..4) == 0,
            *self.rng.choice(&[1, 100, 500, 3000]).expect("one of them"),
        );
        self.tell(format!(
            "mover {index} carries out {id}{}: {}",
            if yields { " and leaves much" } else { "" },
            described_batch(batch)
        ));
        if let Some(before) = &mut self.before {
            before(batch);
        }
        let frozen = self.breaks_leases.then(|| self.moment(index));
        let mover = &mut self.movers[index];
        (mover.batch, mover.pace, mover.frozen) = (Some((run, id)), pace, frozen);
        (self.options[mover.job].clone(), yields)
    }

    pub fn end_batch(
        &mut self,
        index: usize,
        done: &std::thread::Result<Result<Outcome, Failure>>,
    ) {
        let (mover, what) = (
            &mut self.movers[index],
            match done {
                Ok(Ok(_)) => "has carried it out".to_owned(),
                Ok(Err(why)) => format!("has not: {why:?}"),
                Err(_) => "panics".to_owned(),
            },
        );
        (mover.batch, mover.frozen) = (None, None);
        self.tell(format!("mover {index} {what}"));
    }

    /// A life of the coordinator begins: it holds the replica, and the broker knows.
    pub fn begins(&mut self, job: usize) {
        (self.coordinated[job], self.deaf_at[job]) = (true, None);
        self.holder = match self.holder {
            Holder::Run { job: held, run } if held == job => Holder::Run { job, run },
            _ => Holder::Run { job, run: None },
        };
        self.tell(format!("job {job} holds the replica"));
    }

    /// A run is over, and nobody holds the replica.
    pub fn lets_go(&mut self) {
        self.holder = Holder::Nobody;
        self.tell("nobody holds the replica".into());
    }

    /// Nobody coordinates the job any more; the broker may notice it late.
    pub fn loses_coordinator(&mut self, job: usize) {
        if self.coordinated[job] && self.deaf_at[job].is_none() {
            self.tell(format!("the coordinator of job {job} is gone"));
            let late = if self.rng.bool() {
                0
            } else {
                self.rng.u64(0..CUT.end)
            };
            self.deaf_at[job] = Some(self.millis + late);
        }
    }

    /// The next one of the job gets its seat when the broker has noticed that the last is gone.
    pub fn seat_free_in(&self, job: usize) -> u64 {
        self.deaf_at[job].map_or(0, |at| at.saturating_sub(self.millis) + 1)
    }

    /// The coordinator is stopped; returns for how long.
    pub fn coordinator_sleeps(&mut self, job: usize) -> u64 {
        let span = self.rng.u64(0..100_000);
        self.tell(format!("the coordinator of job {job} sleeps for {span} ms"));
        self.deaf_at[job] =
            Some(self.millis + self.rng.u64(CUT)).filter(|at| *at < self.millis + span);
        span
    }

    pub fn coordinator_wakes(&mut self, job: usize) {
        self.tell(format!("the coordinator of job {job} wakes"));
        (self.coordinated[job], self.deaf_at[job]) = (true, None);
    }

    fn notices(&mut self, job: usize) {
        (self.coordinated[job], self.deaf_at[job]) = (false, None);
        self.return_results(job);
    }

    /// What was delivered and not acknowledged comes again.
    fn return_results(&mut self, job: usize) {
        let returned: Vec<Vec<u8>> = std::mem::take(&mut self.unacknowledged[job])
            .into_values()
            .collect();
        returned
            .into_iter()
            .rev()
            .for_each(|body| self.results[job].push_front(body));
    }

    fn double(&mut self) {
        let job = self.rng.usize(..JOBS);
        let Some(index) =
            (!self.results[job].is_empty()).then(|| self.rng.usize(..self.results[job].len()))
        else {
            return;
        };
        self.tell("a result comes twice".into());
        let again = self.results[job][index].clone();
        self.results[job].push_back(again);
    }

    /// The next word that reaches a coordinator; it may be on its way for long.
    pub fn next_word(&mut self, job: usize) -> Option<Word> {
        if self.rng.u8(0..4) == 0 {
            return None;
        }
        let body = self.results[job].pop_front()?;
        match decode(&body).expect("a report") {
            Report::Alive(sign) => Some(Word::Alive(Box::new(sign))),
            Report::Part(part) => {
                let last = if part.last { ", the last" } else { "" };
                self.tell(format!(
                    "job {job} hears of {}, part {}{last}",
                    part.id, part.number
                ));
                self.tickets += 1;
                self.unacknowledged[job].insert(self.tickets, body);
                Some(Word::Part(part, self.tickets))
            }
            Report::Failed { .. } => None,
        }
    }
}

fn is_idle(mover: &Mover) -> bool {
    mover.link == Link::Up && mover.consumes && mover.held.is_none()
}
