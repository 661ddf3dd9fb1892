//! A run whose work is divided among movers: hands out batches, keeps what comes of them, and does
//! at the end what only the whole run can decide.
//!
//! First everything below the root is walked, by the movers; then files with several names are
//! made, one name of each; then, here, their other names are linked, what the source lacks is
//! removed, and the directories that several movers shared are finished. What is known stands in a
//! [`Record`], so that a coordinator that was killed goes on where it was. A batch is settled by
//! the first outcome that comes; a second one, of a mover that was thought dead, is passed over,
//! but waited for. Whatever was settled in an earlier life of the run is looked at once more before
//! the end ([`life`](crate::shared::life)).

mod batches;
mod begin;
mod end;
mod standing;
mod trust;
mod unread;

use crate::clock::Clock;
use crate::monitor::{Monitor, Progress};
use crate::options::Options;
use crate::sample::Sample;
use crate::shared::batch::Batch;
use crate::shared::brief::Brief;
use crate::shared::exchange::Exchange;
use crate::shared::noted::add_batches;
use crate::shared::plan::{Leads, lead_piece, pack};
use crate::sync::begin::prepare_replica;
use crate::sync::ending::{End, Summary, or_cut_off};
use crate::tally::Counts;
use crate::trees::changes::Changes;
use crate::trees::error::RunError;
use crate::trees::locks::{Locks, hold};
use crate::trees::marks::tell_source;
use crate::trees::mounts::{mounted_here, mounted_in_replica};
use crate::trees::roots::{Roots, open_roots};
use crate::underway::LargeFiles;
use begin::Birth;
use driftless_model::Stamp;
use driftless_pool::descriptors;
use driftless_state::{Life, LinkName, Record, Stage, StateError};
use driftless_tree::{DirMutRef, DirRef, HandlePool};
use standing::StandingBatches;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use trust::Trust;
use unread::UnreadOutcomes;

/// How long a word from a mover is waited for at a time.
const WAIT: Duration = Duration::from_millis(100);
/// A batch that nobody has worked on for so long, while nothing waits for a mover, is handed out
/// again.
const SILENCE: Duration = Duration::from_secs(60);
/// Between two looks for batches that nobody works on, or that nobody could work off.
const BATCHES_INTERVAL: Duration = Duration::from_secs(5);
/// Batches that a run is divided into at first and whenever a mover leaves some to others, for each
/// mover that is known.
const BATCHES_PER_MOVER: usize = 3;
/// A mover that has not been heard of for so long does not count.
const AWAY: Duration = Duration::from_secs(15);
/// A mover that is at work on what another one has done is waited for as long as it says so with no
/// longer pauses than this.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// And not for longer than this: a batch takes five minutes at most, and some time to come to its
/// end.
const LATE_MAX: Duration = Duration::from_secs(330);
/// Between two looks whether one is at work.
const REST_INTERVAL: Duration = Duration::from_millis(10);
/// How often it is noted that the coordinator lives.
const NOTE: Duration = Duration::from_secs(60);
/// For so long movers that are called back may take to come to rest.
const REST_MAX: Duration = Duration::from_secs(10);
/// A sample of the source is used for so long.
const SAMPLE: Duration = Duration::from_secs(2);
/// Open batches that are read at a time.
const BATCHES: usize = 1000;

/// What a coordinator works with.
pub struct By<'a> {
    /// The way to the movers.
    pub exchange: &'a mut dyn Exchange,
    /// What is known of the run.
    pub record: &'a mut Record,
    /// What time it is.
    pub clock: &'a dyn Clock,
}

/// Makes the replica equal to the source, with the help of movers. A connection that is lost is an
/// end ([`End::CutOff`]).
///
/// # Errors
/// The run did not begin; or the movers, or the record, were lost. Running again goes on.
pub fn coordinate(
    (options, brief): (&Options, &mut Brief),
    monitor: &dyn Monitor,
    stop: &AtomicBool,
    by: By<'_>,
) -> Result<Summary, RunError> {
    let (clock, began) = (by.clock, by.clock.now());
    or_cut_off(
        try_coordinate((options, brief), monitor, stop, by),
        options,
        |end| Summary::of_nothing(clock.now() - began, end),
    )
}

fn try_coordinate(
    (options, brief): (&Options, &mut Brief),
    monitor: &dyn Monitor,
    stop: &AtomicBool,
    by: By<'_>,
) -> Result<Summary, RunError> {
    let by = By {
        exchange: &mut *by.exchange,
        record: &mut *by.record,
        clock: by.clock,
    };
    let mut coordinator = Coordinator::new((options, brief), monitor, stop, by)?;
    let done = match coordinator.divide() {
        Ok(End::Complete) => coordinator.complete(),
        early => coordinator.end_early(early),
    };
    or_cut_off(done, options, |end| coordinator.summary(end))
}

type Pair = (DirRef, Option<DirMutRef>);

/// The names of a single file on the source and on the replica.
type Single = Option<(CString, CString)>;

/// Both trees, opened, with the locks of the replica.
struct Opened {
    roots: Pair,
    single: Single,
    locks: Locks,
}

fn open_both(options: &Options, directories: usize) -> Result<Opened, RunError> {
    match open_roots(options, &HandlePool::new(directories))? {
        Roots::Trees { source, replica } => {
            let (replica, _, locks) = prepare_replica(options, &source, replica)?;
            Ok(Opened {
                roots: (source, replica),
                single: None,
                locks,
            })
        }
        Roots::Entries { source, replica } => {
            let locks = hold(options, &replica.0, Some(&replica.1))?;
            Ok(Opened {
                roots: (source.0, Some(replica.0)),
                single: Some((source.1, replica.1)),
                locks,
            })
        }
    }
}

/// What movers are told of the trees.
fn tell_trees(brief: &mut Brief, options: &Options, roots: &Pair, is_single: bool) {
    if let (source, Some(replica)) = roots {
        brief.set_roots(source.first_meta(), replica.first_meta());
        brief.set_rights(replica.rights());
    }
    brief.set_machines([&options.source, &options.replica]);
    if !is_single {
        let mounts = mounted_here(options, &roots.0);
        options.note_mounts(&mounts.entered);
        brief.add_mounts(mounts.met);
    }
    if let (source, Some(replica), false) = (&roots.0, &roots.1, is_single) {
        let replica = replica.clone() as DirRef;
        brief.set_replica_mounts(mounted_in_replica(options, (source, &replica)));
    }
}

struct Coordinator<'a> {
    options: &'a Options,
    brief: &'a mut Brief,
    roots: Pair,
    trust: Trust,
    unread: UnreadOutcomes,
    /// When a sample of the source was taken last.
    sampled: Option<Instant>,
    /// Since when changes of the replica may not be durable that are settled.
    settled_since: Option<Stamp>,
    /// When this process began, in seconds since 1970: later changes of the source are no sign of
    /// another tree.
    began: i64,
    monitor: &'a dyn Monitor,
    stop: &'a AtomicBool,
    exchange: &'a mut dyn Exchange,
    record: &'a mut Record,
    clock: &'a dyn Clock,
    single: Single,
    life: Life,
    /// When it was noted last that it lives.
    noted: Instant,
    started: Instant,
    total: Counts,
    /// Batches in hand: when they were heard of last, and what was counted then.
    alive: BTreeMap<u64, (Instant, Counts)>,
    /// Progress of the batches in hand.
    standing: StandingBatches,
    /// When batches that are not in hand were handed out.
    sent: BTreeMap<u64, Instant>,
    /// When each mover was heard of last.
    movers: BTreeMap<String, Instant>,
    last_look: Instant,
    lost: bool,
    threads_max: usize,
    changes: Arc<Changes>,
}

impl<'a> Coordinator<'a> {
    /// Opens both trees, takes the lock of the replica, and decides what becomes of the record.
    fn new(
        (options, brief): (&'a Options, &'a mut Brief),
        monitor: &'a dyn Monitor,
        stop: &'a AtomicBool,
        By {
            exchange,
            record,
            clock,
        }: By<'a>,
    ) -> Result<Self, RunError> {
        let (directories, threads_max) = descriptors();
        let opened = open_both(options, directories)?;
        let birth = Birth::of(options, &opened, monitor, (record, clock))?;
        let Opened { roots, single, .. } = opened;
        tell_source(options, (&roots.0, single.is_some()), monitor);
        tell_trees(brief, options, &roots, single.is_some());
        brief.set_held(birth.changes.held());
        let settled_since = birth.tell_suspects(brief);
        let started = clock.now();
        Ok(Coordinator {
            options,
            brief,
            roots,
            trust: Trust::default(),
            unread: UnreadOutcomes::default(),
            sampled: None,
            settled_since,
            began: clock.seconds().cast_signed(),
            monitor,
            stop,
            exchange,
            record,
            clock,
            single,
            life: birth.life,
            noted: started,
            started,
            total: birth.counted,
            alive: BTreeMap::new(),
            standing: StandingBatches::default(),
            sent: BTreeMap::new(),
            movers: BTreeMap::new(),
            last_look: started,
            lost: false,
            threads_max,
            changes: birth.changes,
        })
    }
}

impl Coordinator<'_> {
    /// Has movers carry out all that can be divided among them.
    fn divide(&mut self) -> Result<End, RunError> {
        self.begin()?;
        self.walk_and_link()
    }

    /// Ends a run whose batches are all settled.
    fn complete(&mut self) -> Result<Summary, RunError> {
        self.wait_for_late_movers()?;
        self.note_ending()?;
        self.end_here()
    }

    /// Ends a run before its time.
    fn end_early(&mut self, end: Result<End, RunError>) -> Result<Summary, RunError> {
        self.call_movers_back();
        let summary = self.summary(end?);
        self.note_life()?;
        Ok(summary)
    }

    /// Sums up a run that ended before its time.
    fn summary(&self, end: End) -> Summary {
        Summary {
            counts: self.counted(),
            ..Summary::of_nothing(self.since(self.started), end)
        }
    }

    /// The run ends before its time: movers come to rest before the replica's lock is released.
    /// Those that are not known to be at rest are named.
    fn call_movers_back(&mut self) {
        if self.options.lost().is_some() {
            return;
        }
        self.changes.call_back();
        let (began, mut answers) = (self.clock.now(), self.exchange.call_back().is_ok());
        while answers && self.exchange.at_work() > 0 && self.since(began) < REST_MAX {
            answers = match self.exchange.next(REST_INTERVAL) {
                Ok(word) => word.map_or(Ok(()), |word| self.hear(word)).is_ok(),
                Err(_) => false,
            };
        }
        // Their last words tell how far they came.
        while answers && self.since(began) < REST_MAX {
            answers = match self.exchange.next(Duration::ZERO) {
                Ok(Some(word)) => self.hear(word).is_ok(),
                Ok(None) => break,
                Err(_) => false,
            };
        }
        if answers && self.exchange.at_work() == 0 {
            return self.changes.are_back();
        }
        let is_awake = |heard: &Instant| self.since(*heard) < self.since(began) + AWAY;
        let names: Vec<&str> = self
            .movers
            .iter()
            .filter(|(_, heard)| is_awake(heard))
            .map(|(mover, _)| &**mover)
            .collect();
        let who = if names.is_empty() {
            "movers".to_owned()
        } else {
            names.join(", ")
        };
        self.monitor.note(&format!(
            "may still write: {who}; the next run of this replica waits until they have stopped"
        ));
    }

    /// Has movers know the source by what it is like now, so that they are not put off by what has
    /// changed.
    fn sample(&mut self) {
        if self.sampled.is_none_or(|at| self.since(at) >= SAMPLE) {
            // What cannot be looked at here is a problem that movers meet, too.
            self.brief.set_sample(Sample::of(&self.roots.0).ok());
            self.exchange.renew(self.brief);
            self.sampled = Some(self.clock.now());
        }
    }

    fn clear(&mut self, words: bool) -> Result<(), RunError> {
        Ok(self.exchange.clear(words)?)
    }

    /// Until all batches are settled, those of the links, too, and all was looked at in this life.
    fn walk_and_link(&mut self) -> Result<End, RunError> {
        loop {
            let end = self.settle_all()?;
            if end != End::Complete {
                return Ok(end);
            }
            if self.life.is_second_hand {
                self.look_again()?;
            } else if !self.next_stage()? {
                return Ok(end);
            }
        }
    }

    fn settle_all(&mut self) -> Result<End, RunError> {
        while self.record.open_batches()? > 0 {
            if self.lost {
                self.clear(false)?;
                return Ok(End::Lost);
            }
            if self.stop.load(Relaxed) {
                self.clear(false)?;
                return Ok(End::Stopped);
            }
            if let Some(word) = self.exchange.next(WAIT)? {
                self.hear(word)?;
            }
            self.look_at_held()?;
            self.sample();
            self.tell();
            self.look_after_locks()?;
            if self.since(self.last_look) >= BATCHES_INTERVAL {
                self.look_after()?;
                self.name_standing();
                self.last_look = self.clock.now();
            }
            if self.since(self.noted) >= NOTE {
                self.note_life()?;
            }
        }
        Ok(if self.lost { End::Lost } else { End::Complete })
    }

    /// Names the hosts whose batches stand still.
    fn name_standing(&mut self) {
        self.standing.retain(|id| self.alive.contains_key(&id));
        let due = self.standing.take_due(self.clock.now());
        due.iter().for_each(|words| self.monitor.note(words));
    }

    fn look_after_locks(&mut self) -> Result<(), RunError> {
        self.changes.look_after();
        if self.changes.is_refused() {
            self.clear(false)?;
        }
        self.changes.outcome()
    }

    /// Waits for movers that carry out a batch which another has finished, since the coordinator
    /// took them for lost: they still touch what is done.
    fn wait_for_late_movers(&mut self) -> Result<(), RunError> {
        self.clear(false)?;
        let began = self.clock.now();
        let mut heard = began;
        let is_late = |at: Instant, now: Instant| now - at >= PAUSE_MAX || now - began >= LATE_MAX;
        while !is_late(heard, self.clock.now())
            && !self.stop.load(Relaxed)
            && self.exchange.at_work() > 0
        {
            if let Some(word) = self.exchange.next(REST_INTERVAL)? {
                heard = self.clock.now();
                self.hear(word)?;
            }
        }
        Ok(())
    }

    /// When all is walked, one name of each file with several is made; says whether there was
    /// anything to do.
    fn next_stage(&mut self) -> Result<bool, RunError> {
        if self
            .record
            .stage()?
            .is_some_and(|stage| stage >= Stage::Links)
        {
            return Ok(false);
        }
        let leads = chosen_leads(self.record)?;
        let batches: Vec<Batch> = leads
            .into_iter()
            .flat_map(|leads| self.lead_batches(leads))
            .collect();
        self.record.transaction(|transaction| {
            transaction.set_stage(Stage::Links)?;
            add_batches(transaction, &batches)
        })?;
        // Nothing else is open.
        self.send_open(0)?;
        Ok(!batches.is_empty())
    }

    fn lead_batches(&mut self, leads: Vec<LinkName>) -> Vec<Batch> {
        let pieces = leads
            .into_iter()
            .map(lead_piece)
            .map(|(size, piece)| (self.brief.class_of(size), piece));
        pack(
            pieces.collect(),
            self.wanted(),
            &Batch {
                alone: true,
                ..Batch::default()
            },
        )
    }

    fn since(&self, at: Instant) -> Duration {
        self.clock.now() - at
    }

    /// How many batches are wanted when some are made.
    fn wanted(&mut self) -> usize {
        let at_work = self
            .alive
            .values()
            .filter(|(heard, _)| self.since(*heard) < AWAY)
            .count();
        BATCHES_PER_MOVER * (at_work + self.exchange.idle()).max(1)
    }

    /// Returns what is settled, with what movers have reported of the batches in hand.
    fn counted(&self) -> Counts {
        let mut counts = self.total;
        self.alive.values().for_each(|(_, more)| counts.add(more));
        counts
    }

    fn tell(&self) {
        self.monitor.progress(&self.progress());
    }

    /// Returns how far the run is, with the number of movers at work.
    fn progress(&self) -> Progress {
        let counts = self.counted();
        let jobs = self
            .movers
            .values()
            .filter(|heard| self.since(**heard) < AWAY)
            .count();
        Progress {
            counts,
            elapsed: self.since(self.started),
            large: LargeFiles::default(),
            jobs,
        }
    }
}

/// Of each file with several names the one that is made first, so many files at a time.
fn chosen_leads(record: &Record) -> Result<Vec<Vec<LinkName>>, StateError> {
    let (mut chosen, mut leads, mut names) = (Vec::new(), Leads::default(), record.links());
    while let Some(name) = names.next_row()? {
        leads.add(name);
        chosen.extend(leads.take_many());
    }
    chosen.push(leads.take_all());
    Ok(chosen)
}
