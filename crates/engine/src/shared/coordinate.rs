//! A run whose work is divided among movers: hands out shares, keeps what comes of them, and does at the end what only the whole
//! run can decide.
//!
//! First everything below the root is walked, by the movers; then files with several names are made, one name of each; then, here, their
//! other names are linked, what the source lacks is removed, and the directories that several movers shared are finished. What
//! is known stands in a [`Record`], so that a coordinator that was killed goes on where it was. A share is settled by the first outcome
//! that comes; a second one, of a mover that was thought dead, is passed over, but waited for. Whatever was settled in an earlier life of
//! the run is looked at once more before the end ([`life`](crate::shared::life)).

mod begin;
mod trust;

use crate::clock::Clock;
use crate::monitor::{Monitor, Progress};
use crate::options::Options;
use crate::sample::Sample;
use crate::shared::brief::Brief;
use crate::shared::exchange::{Exchange, PartOfOutcome, Word};
use crate::shared::facts::{BEGUN, Facts, LINKS, decoded, encoded, fact, path_in};
use crate::shared::handed::Handed;
use crate::shared::life::Life;
use crate::shared::names::{alike_in_share, handed_on};
use crate::shared::noted::{add_shares, note_outcome, settle_pieces};
use crate::shared::plan::{LINK_NAMES_MAX, Lead, leads, pack};
use crate::shared::role::{Left, Part};
use crate::shared::share::{Outcome, Piece, Share};
use crate::shared::unfinished::Unfinished;
use crate::sync::run::Run;
use crate::sync::{End, Summary, begin_root, delete, end_run, or_cut_off, prepare_replica, try_postponed, walk};
use crate::tally::Counts;
use crate::trees::changes::{Changes, Locks, hold};
use crate::trees::error::RunError;
use crate::trees::marks::tell_source;
use crate::trees::mounts::mounted_here;
use crate::trees::roots::{Roots, open_roots};
use crate::underway::LargeFiles;
use begin::{Birth, TOTAL};
use driftless_model::{Act, Class, EntryName, Problem, RelPath, Scope, Selection, Side, Stamp, Work, escape_text};
use driftless_pool::descriptors;
use driftless_state::Record;
use driftless_tree::{DirMutRef, DirRef, HandlePool};
use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use trust::Trust;

/// How long a word from a mover is waited for at a time.
const WAIT: Duration = Duration::from_millis(100);
/// A share that nobody has worked on for so long, while nothing waits for a mover, is handed out again.
const SILENCE: Duration = Duration::from_secs(60);
/// Between two looks for shares that nobody works on, or that nobody could work off.
const LOOK: Duration = Duration::from_secs(5);
/// Shares that a run is divided into at first and whenever a mover leaves some to others, for each mover that is known.
const SHARES_PER_MOVER: usize = 3;
/// A mover that has not been heard of for so long does not count.
const AWAY: Duration = Duration::from_secs(15);
/// A mover that is at work on what another one has done is waited for as long as it says so with no longer pauses than this.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// And not for longer than this: a share takes five minutes at most, and some time to come to its end.
const LATE_MAX: Duration = Duration::from_secs(330);
/// Between two looks whether one is at work.
const REST: Duration = Duration::from_millis(10);
/// How often it is noted that the coordinator lives.
const NOTE: Duration = Duration::from_secs(60);
/// For so long movers that are called back may take to come to rest.
const REST_MAX: Duration = Duration::from_secs(10);
/// A sample of the source is used for so long.
const SAMPLE: Duration = Duration::from_secs(2);
/// Open shares that are read at a time.
const SHARES: usize = 1000;

/// What a coordinator works with.
pub struct By<'a> {
    /// The way to the movers.
    pub exchange: &'a mut dyn Exchange,
    /// What is known of the run.
    pub record: &'a mut Record,
    /// What time it is.
    pub clock: &'a dyn Clock,
}

/// Makes the replica equal to the source, with the help of movers. A connection that is lost is an end ([`End::CutOff`]).
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
    or_cut_off(try_coordinate((options, brief), monitor, stop, by), options, |end| Summary::of_nothing(clock.now() - began, end))
}

fn try_coordinate(
    (options, brief): (&Options, &mut Brief),
    monitor: &dyn Monitor,
    stop: &AtomicBool,
    by: By<'_>,
) -> Result<Summary, RunError> {
    let By { exchange, record, clock } = by;
    let (directories, threads_max) = descriptors();
    let (roots, single, locks) = open_both(options, directories)?;
    let birth = Birth::of(options, (&roots, &single, &locks), monitor, (record, clock))?;
    tell_source(options, (&roots.0, single.is_some()), monitor);
    if let (source, Some(replica)) = &roots {
        brief.set_roots(source.first_meta(), replica.first_meta());
        brief.set_rights(replica.rights());
    }
    if single.is_none() {
        let mounts = mounted_here(options, &roots.0);
        options.note_mounts(&mounts.keys().cloned().collect());
        brief.add_mounts(mounts);
    }
    brief.set_held(birth.changes.held());
    let settled_since = birth.tell_suspects(brief);
    let started = clock.now();
    let (name, renamed) = single.unzip();
    let mut coordinator = Coordinator {
        options,
        brief,
        roots: roots.clone(),
        trust: Trust::default(),
        sampled: None,
        settled_since,
        monitor,
        stop,
        exchange,
        record,
        clock,
        single: name,
        life: birth.life,
        noted: started,
        started,
        total: birth.counted,
        alive: BTreeMap::new(),
        sent: BTreeMap::new(),
        movers: BTreeMap::new(),
        last_look: started,
        lost: false,
        changes: birth.changes.clone(),
    };
    let end = coordinator.divide();
    if !matches!(end, Ok(End::Complete)) {
        coordinator.call_movers_back();
        let end = end?;
        coordinator.note_life()?;
        return Ok(Summary { counts: coordinator.total, ..Summary::of_nothing(clock.now() - started, end) });
    }
    coordinator.wait_for_late_movers()?;
    coordinator.note_ending()?;
    coordinator.end_here(roots, (renamed, Some(birth.changes)), threads_max)
}

type Pair = (DirRef, Option<DirMutRef>);

/// The names of a single file on the source and on the replica.
type Single = Option<(CString, CString)>;

fn open_both(options: &Options, directories: usize) -> Result<(Pair, Single, Locks), RunError> {
    match open_roots(options, &HandlePool::new(directories))? {
        Roots::Trees { source, replica } => {
            let (replica, _, locks) = prepare_replica(options, &source, replica)?;
            Ok(((source, replica), None, locks))
        }
        Roots::Entries { source, replica } => {
            let locks = hold(options, &replica.0, Some(&replica.1))?;
            Ok(((source.0, Some(replica.0)), Some((source.1, replica.1)), locks))
        }
    }
}

struct Coordinator<'a> {
    options: &'a Options,
    brief: &'a mut Brief,
    roots: Pair,
    trust: Trust,
    /// When a sample of the source was taken last.
    sampled: Option<Instant>,
    /// Since when changes of the replica may not be durable that are settled.
    settled_since: Option<Stamp>,
    monitor: &'a dyn Monitor,
    stop: &'a AtomicBool,
    exchange: &'a mut dyn Exchange,
    record: &'a mut Record,
    clock: &'a dyn Clock,
    /// The name of a single file on the source.
    single: Option<CString>,
    life: Life,
    /// When it was noted last that it lives.
    noted: Instant,
    started: Instant,
    total: Counts,
    /// Shares in hand: when they were heard of last, and what was counted then.
    alive: BTreeMap<u64, (Instant, Counts)>,
    /// When shares that are not in hand were handed out.
    sent: BTreeMap<u64, Instant>,
    /// When each mover was heard of last.
    movers: BTreeMap<String, Instant>,
    last_look: Instant,
    lost: bool,
    changes: Arc<Changes>,
}

impl Coordinator<'_> {
    /// Has movers carry out all that can be divided among them.
    fn divide(&mut self) -> Result<End, RunError> {
        self.begin()?;
        self.walk_and_link()
    }

    /// The run ends before its time: whoever is at work for it comes to rest before the lock on the replica goes, or is named.
    fn call_movers_back(&mut self) {
        if self.options.lost().is_some() {
            return;
        }
        self.changes.call_back();
        let (began, mut answers) = (self.clock.now(), self.exchange.call_back().is_ok());
        while answers && self.exchange.at_work() > 0 && self.since(began) < REST_MAX {
            answers = match self.exchange.next(REST) {
                Ok(word) => word.map_or(Ok(()), |word| self.hear(word)).is_ok(),
                Err(_) => false,
            };
        }
        if answers && self.exchange.at_work() == 0 {
            return self.changes.are_back();
        }
        let is_awake = |heard: &Instant| self.since(*heard) < self.since(began) + AWAY;
        let names: Vec<&str> = self.movers.iter().filter(|(_, heard)| is_awake(heard)).map(|(mover, _)| &**mover).collect();
        let who = if names.is_empty() { "movers".to_owned() } else { names.join(", ") };
        self.monitor.note(&format!("not known to be at rest: {who}; the next run of this replica gives them time to notice"));
    }

    /// Has movers know the source by what it is like now, so that they are not put off by what has changed.
    fn sample(&mut self) {
        if self.sampled.is_none_or(|at| self.since(at) >= SAMPLE) {
            // What cannot be looked at here is a problem that movers meet, too.
            self.brief.set_sample(Sample::of(&self.roots.0).ok());
            self.exchange.renew(self.brief);
            self.sampled = Some(self.clock.now());
        }
    }

    fn clear(&mut self, words: bool) -> Result<(), RunError> {
        self.exchange.clear(words).map_err(RunError::NoMovers)
    }

    /// Hands out all open shares with a number above `after`.
    fn send_open(&mut self, after: u64) -> Result<(), RunError> {
        let mut after = after;
        loop {
            let items = self.record.items(after, SHARES)?;
            let Some(last) = items.last() else { return Ok(()) };
            after = last.id;
            for item in items {
                self.hand_out(item.id, &item.body)?;
            }
        }
    }

    fn hand_out(&mut self, id: u64, body: &[u8]) -> Result<(), RunError> {
        let Some(mut share) = decoded::<Share>(body) else { return Ok(()) };
        share.alike = alike_in_share(self.record, &share)?;
        self.sample();
        self.exchange.send(self.brief, self.record.run(), id, &share).map_err(RunError::NoMovers)?;
        self.sent.insert(id, self.clock.now());
        Ok(())
    }

    /// Until all shares are settled, those of the links, too, and all was looked at in this life.
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
        while self.record.open_items()? > 0 {
            if self.lost {
                self.clear(false)?;
                return Ok(End::Lost);
            }
            if self.stop.load(Relaxed) {
                self.clear(false)?;
                return Ok(End::Stopped);
            }
            if let Some(word) = self.exchange.next(WAIT).map_err(RunError::NoMovers)? {
                self.hear(word)?;
            }
            self.look_at_held()?;
            self.sample();
            self.tell();
            self.look_after_locks()?;
            if self.since(self.last_look) >= LOOK {
                self.look_after()?;
                self.last_look = self.clock.now();
            }
            if self.since(self.noted) >= NOTE {
                self.note_life()?;
            }
        }
        Ok(if self.lost { End::Lost } else { End::Complete })
    }

    fn look_after_locks(&mut self) -> Result<(), RunError> {
        self.changes.look_after();
        if self.changes.is_refused() {
            self.clear(false)?;
        }
        self.changes.outcome()
    }

    /// A share may have been in two hands, when the connection of one was lost: whoever still carries it out touches what is finished.
    fn wait_for_late_movers(&mut self) -> Result<(), RunError> {
        self.clear(false)?;
        let began = self.clock.now();
        let mut heard = began;
        let is_late = |at: Instant, now: Instant| now - at >= PAUSE_MAX || now - began >= LATE_MAX;
        while !is_late(heard, self.clock.now()) && !self.stop.load(Relaxed) && self.exchange.at_work() > 0 {
            if let Some(word) = self.exchange.next(REST).map_err(RunError::NoMovers)? {
                heard = self.clock.now();
                self.hear(word)?;
            }
        }
        Ok(())
    }

    /// When all is walked, one name of each file with several is made; says whether there was anything to do.
    fn next_stage(&mut self) -> Result<bool, RunError> {
        if !self.record.facts(fact::STAGE, BEGUN, 1)?.is_empty() {
            return Ok(false);
        }
        let mut shares = Vec::new();
        let mut after = Vec::new();
        let mut all: Vec<Lead> = Vec::new();
        loop {
            let facts = self.record.facts(fact::LINK, &after, LINK_NAMES_MAX)?;
            let Some((last, _)) = facts.last() else { break };
            after = last.clone();
            all.extend(leads(&facts, all.last().map(|lead| lead.id)));
            if all.len() >= LINK_NAMES_MAX {
                shares.extend(self.lead_shares(std::mem::take(&mut all)));
            }
        }
        shares.extend(self.lead_shares(all));
        let last = self.record.items(0, 1)?.first().map_or(0, |item| item.id);
        self.record.batch(|batch| {
            batch.put(fact::STAGE, LINKS, b"")?;
            add_shares(batch, &shares)
        })?;
        self.send_open(last)?;
        Ok(!shares.is_empty())
    }

    fn lead_shares(&mut self, leads: Vec<Lead>) -> Vec<Share> {
        let pieces = leads.into_iter().map(|lead| (self.brief.class_of(lead.size), lead.piece()));
        pack(pieces.collect(), self.wanted(), &Share { alone: true, ..Share::default() })
    }

    fn since(&self, at: Instant) -> Duration {
        self.clock.now() - at
    }

    /// How many shares are wanted when some are made.
    fn wanted(&mut self) -> usize {
        let at_work = self.alive.values().filter(|(heard, _)| self.since(*heard) < AWAY).count();
        SHARES_PER_MOVER * (at_work + self.exchange.idle()).max(1)
    }

    fn hear(&mut self, word: Word) -> Result<(), RunError> {
        match word {
            Word::Alive(sign) => {
                self.movers.insert(sign.mover, self.clock.now());
                if sign.run == self.record.run() && self.sent.contains_key(&sign.id) {
                    self.alive.insert(sign.id, (self.clock.now(), sign.counts));
                }
                Ok(())
            }
            Word::Part(part, ticket) => self.weigh(part, ticket),
        }
    }

    /// Notes a part of what came of a share, and if it is the last, all of it.
    fn note(&mut self, part: &PartOfOutcome) -> Result<(), RunError> {
        let PartOfOutcome { id, attempt, number, last, .. } = *part;
        let (wanted, mut total, monitor, options) = (self.wanted(), self.total, self.monitor, self.options);
        let try_key = [id.to_be_bytes(), attempt.to_be_bytes()].concat();
        let walked_before = total.walked;
        let mut lost = false;
        let settled = self.record.batch(|batch| {
            if !batch.is_open(id)? {
                return Ok(false);
            }
            if !last {
                batch.put(fact::PART, &[&try_key[..], &number.to_be_bytes()].concat(), &part.outcome)?;
                return Ok(false);
            }
            let share: Share = batch.settle(id)?.and_then(|body| decoded(&body)).unwrap_or_default();
            let parts = batch.take(fact::PART, &try_key)?;
            batch.take(fact::PART, &id.to_be_bytes())?;
            let mut rest = Vec::new();
            for outcome in parts.iter().filter_map(|part| decoded::<Outcome>(part)).chain(part.read()) {
                lost |= outcome.problems.iter().any(|problem| problem.class == Class::Stop);
                total.add(&outcome.counts);
                options.note_mounts(&outcome.mounts.iter().cloned().collect());
                note_outcome(batch, outcome, monitor, &mut rest)?;
            }
            settle_pieces(batch, &share, &mut rest)?;
            let walk = share.walk.saturating_sub(total.walked - walked_before);
            add_shares(batch, &pack(rest, wanted, &Share { pieces: Vec::new(), walk, ..share }))?;
            batch.put(fact::TOTAL, TOTAL, &encoded(&total))?;
            Ok(true)
        })?;
        if settled {
            self.total = total;
            self.lost |= lost;
            self.alive.remove(&id);
            self.sent.remove(&id);
            let newest = self.sent.keys().next_back().copied().unwrap_or(0).max(id);
            self.send_open(newest)?;
        }
        Ok(())
    }

    fn tell(&self) {
        let mut counts = self.total;
        self.alive.values().for_each(|(_, more)| counts.add(more));
        let jobs = self.movers.values().filter(|heard| self.since(**heard) < AWAY).count();
        self.monitor.progress(&Progress { counts, elapsed: self.since(self.started), large: LargeFiles::default(), jobs });
    }

    /// Looks for shares that nobody could work off, and for those that nobody works on.
    fn look_after(&mut self) -> Result<(), RunError> {
        for (id, reason) in self.exchange.parked(self.record.run()).map_err(RunError::NoMovers)? {
            self.give_up(id, &reason)?;
        }
        let silent = |at: &Instant| self.since(*at) > SILENCE;
        let silent: Vec<u64> = self
            .sent
            .iter()
            .filter(|(id, at)| silent(at) && self.alive.get(id).is_none_or(|(heard, _)| silent(heard)))
            .map(|(id, _)| *id)
            .collect();
        if silent.is_empty() || self.exchange.waits().map_err(RunError::NoMovers)? {
            return Ok(());
        }
        silent.into_iter().try_for_each(|id| self.hand_out_again(id))
    }

    /// A share that nobody could work off: what it was about is not equal.
    fn give_up(&mut self, id: u64, reason: &str) -> Result<(), RunError> {
        let mut total = self.total;
        let given_up = self.record.batch(|batch| {
            let Some(share) = batch.settle(id)?.and_then(|body| decoded::<Share>(&body)) else { return Ok(None) };
            let mut rest = Vec::new();
            settle_pieces(batch, &share, &mut rest)?;
            add_shares(batch, &pack(rest, 1, &Share { pieces: Vec::new(), ..share.clone() }))?;
            let paths = paths_of(&share);
            total.seen += paths.len() as u64;
            total.failed += paths.len() as u64;
            total.problems_skip += paths.len() as u64;
            batch.put(fact::TOTAL, TOTAL, &encoded(&total))?;
            Ok(Some(paths))
        })?;
        let Some(paths) = given_up else { return Ok(()) };
        self.total = total;
        self.sent.remove(&id);
        self.alive.remove(&id);
        for path in paths {
            let (act, cause) = (Act::MakeEqual, escape_text(reason));
            self.monitor.problem(&Problem { path, side: Side::Replica, act, cause, class: Class::Skip });
        }
        self.send_open(id)
    }

    /// What only the whole run can decide.
    fn end_here(
        &mut self,
        roots: Pair,
        (renamed, changes): (Option<CString>, Option<Arc<Changes>>),
        threads_max: usize,
    ) -> Result<Summary, RunError> {
        let mut run = Run::new(self.options, self.monitor, self.stop, roots);
        run.is_single = renamed.is_some();
        (run.renamed, run.started) = (renamed, self.started);
        (run.rules.suspect_since, run.changes) = (self.brief.suspect_since(), changes);
        run.tally.add(&self.total);
        let handed = Arc::new(handed_on(self.record)?);
        run.part = Part::End(Left { handed: handed.clone(), ..Left::default() });
        self.link_names(&mut run, threads_max)?;
        let mut extras = self.all(fact::EXTRA);
        while let Some((_, value)) = extras.next()? {
            let Some((dir, names)) = decoded::<(RelPath, Vec<EntryName>)>(&value) else { continue };
            run.deletes.add(&dir, &names.iter().map(CString::from).collect::<Vec<_>>());
        }
        let mut no_room = self.all(fact::NO_ROOM);
        while let Some((_, value)) = no_room.next()? {
            run.postpone_all(decoded(&value).into_iter());
        }
        let mut mounts = self.all(fact::MOUNT);
        while let Some((key, _)) = mounts.next()? {
            run.mounts.add(path_in(&key));
        }
        let end = delete(&run, threads_max);
        try_postponed(&mut run, threads_max)?;
        self.finish_directories(&mut run, handed, threads_max)?;
        run.look_again_at_roots();
        let summary = end_run(&run, end);
        run.changes.as_ref().map_or(Ok(()), |changes| changes.outcome())?;
        Ok(summary)
    }

    /// Makes the names of files that have several links to each other.
    fn link_names(&self, run: &mut Run<'_>, threads_max: usize) -> Result<(), RunError> {
        let mut facts = self.all(fact::LINK);
        while facts.peek()?.is_some() && !run.stopped() {
            let (mut works, mut groups, mut group) = (Vec::new(), 0, Vec::new());
            while facts.peek()?.is_some_and(|(key, _)| works.len() < LINK_NAMES_MAX || key.starts_with(&group)) {
                let Some((id, path)) =
                    facts.next()?.and_then(|(key, _)| key.split_at_checked(16).map(|(id, path)| (id.to_vec(), path.to_vec())))
                else {
                    break;
                };
                groups += u64::from(id != group);
                group = id;
                works.extend(path_in(&path).map(|path| Work { path, scope: Scope::Subtree }));
            }
            let before = run.tally.counts();
            let visit = begin_root(run, Selection::of(&works), 0)?;
            walk(run, visit, threads_max)?;
            count_once(run, &before, groups);
        }
        Ok(())
    }

    fn finish_directories(&self, run: &mut Run<'_>, handed: Arc<Handed>, threads_max: usize) -> Result<(), RunError> {
        let (mut left, mut dirs) = (HashMap::new(), self.all(fact::DIR));
        while let Some((key, value)) = dirs.next()? {
            left.extend(path_in(&key).zip(decoded::<Unfinished>(&value)));
        }
        if left.is_empty() || run.stopped() {
            return Ok(());
        }
        let works: Vec<Work> = left.keys().map(|path| Work { path: path.clone(), scope: Scope::Entry }).collect();
        let has_root = left.contains_key(&RelPath::root());
        run.part = Part::End(Left { dirs: left, handed });
        run.tally.seen.fetch_add(u64::from(has_root), Relaxed);
        let visit = begin_root(run, Selection::of(&works), 0)?;
        walk(run, visit, threads_max)
    }

    fn all(&self, kind: u8) -> Facts<'_> {
        Facts::of(self.record, kind)
    }
}

/// One name of each of so many files was counted when it was made, and is counted again since `before`: as the same, unless a mover that was
/// late has changed it meanwhile.
fn count_once(run: &Run<'_>, before: &Counts, groups: u64) {
    let (tally, now) = (&run.tally, run.tally.counts());
    let mut twice = groups;
    let counters = [
        (&tally.same, now.same - before.same),
        (&tally.changed, now.changed - before.changed),
        (&tally.failed, now.failed - before.failed),
    ];
    for (counter, new) in counters {
        let count = twice.min(new);
        counter.fetch_sub(count, Relaxed);
        tally.seen.fetch_sub(count, Relaxed);
        twice -= count;
    }
}

/// The paths that a share is about, as problems name them.
fn paths_of(share: &Share) -> Vec<RelPath> {
    let mut paths = Vec::new();
    for piece in &share.pieces {
        match piece {
            Piece::Root => paths.push(RelPath::root()),
            Piece::Entries(dir, names) => paths.extend(names.iter().map(|name| dir.join(name.as_bytes()))),
            Piece::Rest(path, ..) => paths.push(path.clone()),
            // Whoever finishes the file copies what is missing.
            Piece::Bytes(..) => {}
        }
    }
    paths
}
