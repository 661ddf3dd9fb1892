//! What a mirror does between its two trees: it opens them, keeps them open, and makes equal what
//! it is given. When they are out of reach it says why, and opens them anew when it is asked again.

mod again;
mod chosen;
mod closed;
mod company;
mod crossings;
mod last_replica;
mod onlooker;
mod place;
mod renames;
mod snapshot;
mod walk;

use crate::comparing::Comparing;
use crate::dirty::{Dirty, Failed, Move, Taken};
use crate::foreign::foreign;
use crate::gathered::{Gathered, PROBLEMS_MAX, Silent};
use crate::herald::News;
use crate::link_names::{InodeId, Linked, files_of};
use crate::sought::Sought;
use crate::worded;
use company::Company;
use driftless_detect::snapshot::Provider;
use driftless_engine::{
    Bin, Counts, End, Limits, MachineClock, Options, Purged, RunError, Sizes, Summary, Trees, now,
};
use driftless_lock::{Mutex, RwLock};
use driftless_model::{
    self as model, Act, Class, DeleteLimit, Level, Policy, Problem, RelPath, Scope, Selection,
};
use driftless_remote::Reach;
use driftless_session::{Connections, connect};
use driftless_state::DirectoryIndex;
pub use last_replica::{LastReplica, ReplicaHere};
use place::SeenInPlace;
use rustix::fd::OwnedFd;
use rustix::fs::fstat;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

/// How often it is looked whether the paths of both trees still lead to what is open.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Finds out how the trees are to be opened, which may need the hosts that they are on.
type Prepare = dyn Fn() -> Result<Options, RunError> + Send + Sync;

/// Both trees of a mirror.
pub struct Hands {
    policy: Policy,
    prepare: Box<Prepare>,
    /// What `prepare` came to.
    options: RwLock<Option<Options>>,
    /// That may not hold any more.
    is_outdated: AtomicBool,
    reach: Reach,
    /// The replica that was filled before, by its mark: no other one is.
    known: Mutex<Option<u128>>,
    /// By what the runs of this mirror are told from those of others; 0 until that is known.
    owner: AtomicU64,
    /// Which directory the replica was when it was opened last.
    pub last_replica: LastReplica,
    /// The snapshot that is read in the source's place.
    snapshot: RwLock<Option<PathBuf>>,
    /// The snapshot that the replica was made equal to.
    equal_to: RwLock<Option<PathBuf>>,
    /// The source's directory, where the kernel tells of changes.
    pub watched: Option<OwnedFd>,
    /// Another directory stands at the source's path by now than the one that the kernel tells of.
    is_deaf: AtomicBool,
    /// When it was looked last whether the paths of both trees lead to what is open.
    looked: Mutex<Option<Instant>>,
    in_place: SeenInPlace,
    open: RwLock<Option<Arc<Open>>>,
    /// Who closes the replica to others while nothing is done there.
    keeper: Option<Mutex<Box<dyn Provider>>>,
    /// Whether it does; otherwise it only opens what an earlier life has closed.
    closes: bool,
    /// Others are told what was changed.
    pub tells: bool,
    /// Files of which each name that is met is told.
    pub sought: Arc<Sought>,
    /// Places of the source's directories, if they are kept.
    pub directories: Option<Arc<Mutex<DirectoryIndex>>>,
    /// Progress of the comparison that runs now.
    pub comparing: Arc<Comparing>,
    /// Who else changes the replica.
    company: Company,
}

/// Trees that are open, and the connections that they are reached by.
struct Open {
    trees: Trees,
    /// Where they are.
    places: Options,
    _connections: Mutex<Connections>,
}

/// A piece of work.
#[derive(Debug)]
pub struct Work {
    /// What is to be made equal.
    pub taken: Taken,
    /// How many entries may go for it.
    pub delete_limit: Option<DeleteLimit>,
    /// Both trees were equal then, but for what is told of: what differs although the source was not
    /// changed since was changed on the replica.
    pub equal_at: Option<Duration>,
    /// Not everything that changed the source since then was heard of.
    pub unheard_since: Option<model::Stamp>,
    /// Nobody else changed the replica when it was begun.
    pub is_alone: bool,
}

/// What became of a piece of work.
pub struct Outcome {
    /// What it was.
    pub taken: Taken,
    /// Not everything that changed the source since then was heard of.
    pub unheard_since: Option<model::Stamp>,
    /// Nobody else changed the replica when it was begun.
    pub is_alone: bool,
    /// Where it was carried out, until it is written out.
    on: Option<Arc<Open>>,
    /// All of it was made equal, whether or not that could be written out.
    pub was_carried_out: bool,
    /// Renames that could not be carried out.
    pub not_moved: Vec<Move>,
    /// What was done.
    pub counts: Counts,
    /// Entries that the replica lacked before.
    pub created: u64,
    /// Paths that have a problem.
    pub problems: Vec<Problem>,
    /// Paths that were changed.
    pub changed: Vec<RelPath>,
    /// The same as it is told others, where somebody is told.
    pub news: News,
    /// Of these, what somebody else has changed on the replica.
    pub foreign: Vec<RelPath>,
    /// Names of files that have several.
    pub linked: Vec<Linked>,
    /// What a member leaves to its lead.
    pub for_lead: Vec<(RelPath, Dirty)>,
    /// What was looked at in its place, where changes may have been missed.
    pub narrowed: Option<Vec<model::Work>>,
    /// How it ended.
    pub end: Ended,
}

/// How a piece of work ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// What has no problem is equal and durable.
    Done,
    /// The trees are out of reach, and nothing is known of what was done.
    Away(String),
    /// The mirror is to stop.
    Stopped,
    /// Times do not say what has changed.
    Wide,
}

impl Outcome {
    /// What was looked at.
    pub fn works(&self) -> Vec<model::Work> {
        self.narrowed.clone().unwrap_or_else(|| self.taken.works())
    }

    /// Files with several names of which one was in doubt.
    pub fn doubtful_files(&self) -> HashSet<InodeId> {
        files_of(&self.linked, |path| self.taken.doubts(path))
    }

    /// Where what failed is to be tried again.
    pub fn failed(&self) -> BTreeMap<RelPath, Failed> {
        let mut failed = BTreeMap::new();
        for problem in &self.problems {
            failed.insert(problem.path.clone(), why_of(problem));
        }
        if self.problems.len() >= PROBLEMS_MAX {
            let all = self.taken.paths.keys().cloned();
            failed.extend(all.map(|path| (path, Failed::Problem(Class::Skip))));
        }
        failed
    }
}

/// Whether a problem is one that the user should hear of: what is tried again at once is none.
pub fn is_to_be_told(problem: &Problem) -> bool {
    why_of(problem) != Failed::Gone
}

/// The engine leaves a directory that the source lacks, and tells it as a removal that it did not
/// make.
fn why_of(problem: &Problem) -> Failed {
    match (problem.act, problem.class) {
        (Act::RemoveDirectory, Class::Changing) => Failed::Gone,
        (_, class) => Failed::Problem(class),
    }
}

impl Hands {
    /// For the trees that `prepare` names, as the user does; nothing is opened yet.
    pub fn new(
        policy: Policy,
        prepare: impl Fn() -> Result<Options, RunError> + Send + Sync + 'static,
        reach: Reach,
    ) -> Hands {
        Hands {
            policy,
            prepare: Box::new(prepare),
            options: RwLock::new(None),
            is_outdated: AtomicBool::new(false),
            reach,
            known: Mutex::new(None),
            owner: AtomicU64::new(0),
            last_replica: Default::default(),
            snapshot: RwLock::new(None),
            equal_to: RwLock::new(None),
            watched: None,
            is_deaf: AtomicBool::new(false),
            looked: Mutex::new(None),
            in_place: SeenInPlace::default(),
            open: RwLock::new(None),
            keeper: None,
            closes: false,
            tells: false,
            sought: Arc::default(),
            directories: None,
            comparing: Arc::default(),
            company: Company::default(),
        }
    }

    /// Closes both trees, and the replica to others. Nothing may be in work.
    pub fn shut(&self) {
        self.close();
        if let Err(why) = self.close_replica(true) {
            tracing::warn!("the replica stays writable: {why}");
        }
    }

    /// Finds out anew how the trees are to be opened, when they are opened the next time: somebody
    /// else may have worked on them meanwhile.
    pub fn prepare_anew(&self) {
        self.is_outdated.store(true, Relaxed);
    }

    fn options(&self) -> Result<Options, RunError> {
        let is_outdated = self.is_outdated.load(Relaxed);
        if let Some(options) = self.options.read().as_ref().filter(|_| !is_outdated) {
            return Ok(options.clone());
        }
        let options = (self.prepare)()?;
        *self.options.write() = Some(options.clone());
        self.is_outdated.store(false, Relaxed);
        Ok(options)
    }

    /// The replica that an earlier life has filled, by its mark, and by what all lives of the mirror
    /// are told from others.
    pub fn expect(&self, replica: Option<u128>, owner: u64) {
        *self.known.lock() = replica;
        self.owner.store(owner, Relaxed);
    }

    /// The replica that was filled, by its mark; `None` before anything was.
    pub fn known(&self) -> Option<u128> {
        *self.known.lock()
    }

    fn know(&self, open: &Open) {
        let mut known = self.known.lock();
        *known = known.or_else(|| open.trees.identity());
    }

    /// Opens both trees, unless they are open.
    ///
    /// # Errors
    /// Why not, for a person.
    pub fn open(&self) -> Result<(), RunError> {
        self.opened().map(drop)
    }

    fn opened(&self) -> Result<Arc<Open>, RunError> {
        let mut open = self.open.write();
        if let Some(open) = &*open {
            return Ok(open.clone());
        }
        let mut options = self.options()?;
        options.known_replica = *self.known.lock();
        options.owner = self.owner.load(Relaxed);
        options.first_roots = Some(self.in_place.roots.clone());
        options.replica_mounts = Some(self.last_replica.met.clone());
        self.company.apply(&mut options)?;
        let snapshot = self.snapshot.read().clone();
        let live = snapshot.map(|snapshot| {
            let snapshot = snapshot.into();
            std::mem::replace(&mut options.source, snapshot)
        });
        self.close_replica(false)
            .map_err(|cause| RunError::Unusable {
                path: options.replica.to_string(),
                cause,
            })?;
        let connections = connect(&mut options, &self.reach, Duration::ZERO)
            .map_err(|error| RunError::CutOff(error.to_string()))?;
        options.comes_from = live.or_else(|| Some(options.source.clone()));
        let trees = Trees::open(&options, &Silent, &MachineClock)?;
        self.refuse_unwatched(&trees)?;
        let here = Some(&options.replica.path).filter(|_| options.replica.host.is_none());
        let run = trees.last_run();
        self.last_replica
            .notice(trees.replica_id(), here.cloned(), run);
        if options.known_replica.is_some() && trees.was_changed_by_another() {
            self.last_replica.was_changed();
        }
        let new = Arc::new(Open {
            trees,
            places: options,
            _connections: Mutex::new(connections),
        });
        *open = Some(new.clone());
        Ok(new)
    }

    /// The kernel tells of the directory that was at the source's path when it was asked to.
    fn refuse_unwatched(&self, trees: &Trees) -> Result<(), RunError> {
        let reads_it = self.snapshot.read().is_none();
        let Some(watched) = self.watched.as_ref().filter(|_| reads_it) else {
            return Ok(());
        };
        let is_it = fstat(watched).is_ok_and(|now| (now.st_dev, now.st_ino) == trees.source_id());
        if is_it {
            return Ok(());
        }
        self.is_deaf.store(true, Relaxed);
        Err(RunError::CutOff(
            "another directory stands at the source's path than the kernel was asked about: the mirror begins anew".into(),
        ))
    }

    /// Whether nothing would be heard of the directory that is the source by now.
    pub fn is_deaf(&self) -> bool {
        self.is_deaf.load(Relaxed)
    }

    /// Looks now and then whether the paths of both trees still lead to what is open, and before
    /// the work is done in any case if the roots are part of it.
    fn look_again(&self, trees: &Trees, taken: &Taken) -> Result<(), RunError> {
        let mut looked = self.looked.lock();
        let is_due = looked.is_none_or(|last| last.elapsed() >= LOOK_EVERY);
        if is_due || taken.paths.contains_key(&RelPath::root()) {
            let began = crate::clock::now();
            trees.look_again()?;
            self.in_place.after(began);
            // Somebody may have closed it meanwhile.
            if let Err(why) = self.close_replica(false) {
                tracing::warn!("the replica cannot be opened: {why}");
            }
            *looked = Some(Instant::now());
        }
        Ok(())
    }

    /// Closes both trees: nothing of them is held any more when all work is over.
    pub fn close(&self) {
        let left = self.open.write().take();
        if let Some(open) = left {
            self.last_replica.left_by(open.trees.last_run());
        }
        self.company.closed();
    }

    /// Says in the replica's mark that all is durable; waits for what is in work.
    ///
    /// # Errors
    /// Why not, for a person.
    pub fn settle(&self) -> Result<(), String> {
        self.keep_directories();
        let open = self.open.read().clone();
        let Some(open) = open else { return Ok(()) };
        open.trees
            .flush(&Silent)
            .inspect_err(|_| self.close())
            .map_err(|error| error.to_string())
    }

    /// Whether both trees are closed; nothing while they are being opened, which is not waited for.
    pub fn is_closed(&self) -> Option<bool> {
        self.open.try_read().map(|open| open.is_none())
    }

    /// Whether both trees are open.
    pub fn is_open(&self) -> bool {
        self.open.read().is_some()
    }

    /// Removes from the trash of the replica what `limits` do not allow; `None` while the trees are
    /// closed. It does not keep them open, nor does anything wait for it.
    pub fn purge(
        &self,
        limits: Limits,
        known: &mut Sizes,
        is_over: &dyn Fn() -> bool,
    ) -> Option<Result<Purged, String>> {
        let places = self.open.read().as_ref().map(|open| open.places.clone())?;
        let bin = Bin::of(&places).map_err(|error| error.to_string());
        Some(bin.and_then(|bin| {
            bin.purge(limits, known, is_over)
                .map_err(|fault| fault.to_string())
        }))
    }

    /// Makes equal what was taken, durably.
    pub fn carry_out(&self, work: Work, stop: &AtomicBool) -> Outcome {
        let mut outcome = self.make_equal(work, stop);
        self.write_out(std::slice::from_mut(&mut outcome));
        outcome
    }

    /// Makes durable what was made equal, all of it at once.
    pub fn write_out(&self, outcomes: &mut [Outcome]) {
        let mut last: Option<(Arc<Open>, Ended)> = None;
        for outcome in outcomes {
            let Some(open) = outcome.on.take() else {
                continue;
            };
            outcome.end = match &last {
                Some((same, end)) if Arc::ptr_eq(same, &open) => end.clone(),
                _ => match open.trees.write_out(&Silent) {
                    Ok(()) => Ended::Done,
                    Err(error) => Ended::Away(error.to_string()),
                },
            };
            if outcome.end != Ended::Done {
                self.close();
            }
            last = Some((open, outcome.end.clone()));
        }
    }

    /// Makes equal what was taken. It may not be durable before it is
    /// [written out](Hands::write_out).
    pub fn make_equal(&self, work: Work, stop: &AtomicBool) -> Outcome {
        let Work {
            taken,
            delete_limit,
            equal_at,
            unheard_since,
            is_alone,
        } = work;
        let policy = Policy {
            delete_limit,
            ..self.policy.clone()
        };
        let gathered = Gathered {
            directories: self.directories.clone().filter(|_| !self.has_company()),
            comparing: taken.is_walk().then(|| self.comparing.clone()),
            ..self.gathers(taken.gap().or(unheard_since))
        };
        self.begin_walk(&gathered);
        let mut outcome = Outcome {
            taken,
            unheard_since,
            is_alone,
            on: None,
            was_carried_out: false,
            not_moved: Vec::new(),
            counts: Counts::default(),
            created: 0,
            problems: Vec::new(),
            changed: Vec::new(),
            news: News::default(),
            foreign: Vec::new(),
            linked: Vec::new(),
            for_lead: Vec::new(),
            narrowed: None,
            end: Ended::Done,
        };
        let done = self.opened().and_then(|open| {
            self.look_again(&open.trees, &outcome.taken)?;
            self.lend(&open)?;
            let end = self.work_where_alike((&open, &policy), &mut outcome, (&gathered, stop))?;
            self.know(&open);
            outcome.was_carried_out = end == Ended::Done;
            outcome.on = outcome.was_carried_out.then_some(open);
            if let Some(equal_at) = equal_at
                && let Some(open) = &outcome.on
            {
                outcome.foreign = foreign(&open.trees, &gathered.changed.lock(), equal_at);
            }
            Ok(end)
        });
        self.end_walk(&gathered, matches!(done, Ok(Ended::Done)));
        self.gather_news(&gathered, &mut outcome);
        outcome.created = gathered.created.into_inner();
        outcome.problems = gathered.problems.into_inner();
        for problem in &mut outcome.problems {
            problem.cause = worded::for_job(&problem.cause);
        }
        let changed = gathered.changed.into_inner().into_iter();
        outcome.changed = changed.map(|made| made.path).collect();
        outcome.linked = gathered.linked.into_inner();
        match done {
            Ok(end) => outcome.end = end,
            Err(error) => outcome.end = Ended::Away(error.to_string()),
        }
        if matches!(outcome.end, Ended::Away(_)) {
            self.close();
        }
        outcome
    }

    fn work(
        &self,
        (trees, policy): (&Trees, &Policy),
        outcome: &mut Outcome,
        (gathered, stop): (&Gathered, &AtomicBool),
    ) -> Result<Ended, RunError> {
        let began = now();
        if self.has_company() {
            // Another member may have made equal one of the names by now: that would be renamed.
            outcome.not_moved = outcome.taken.moves.clone();
        } else {
            self.relocate((trees, policy), outcome, stop)?;
        }
        if !outcome.taken.paths.is_empty() {
            if let Some(end) = self.narrow(outcome, stop) {
                return Ok(end);
            }
            let selection = Arc::new(chosen::selection(&outcome.works()));
            let summary = trees.reconcile(&selection, policy, gathered, stop)?;
            outcome.counts = summary.counts;
            if let Some(end) = Self::not_done(&summary, outcome, gathered) {
                return Ok(end);
            }
            let end = Self::compare_content((trees, policy), outcome, (gathered, stop))?;
            if end == Ended::Done && self.has_company() {
                let (on, from) = ((trees, policy), (gathered, stop));
                return self.look_until_equal(on, outcome, from, began);
            }
            return Ok(end);
        }
        Ok(Ended::Done)
    }

    /// Compares the content of what was found equal by sizes and times that do not vouch for it.
    fn compare_content(
        (trees, policy): (&Trees, &Policy),
        outcome: &mut Outcome,
        (gathered, stop): (&Gathered, &AtomicBool),
    ) -> Result<Ended, RunError> {
        let unlike = gathered.take_unlike();
        let mut works = gathered.found_equal(outcome.taken.doubtful());
        if works.is_empty() && unlike.is_empty() {
            return Ok(Ended::Done);
        }
        let is_meant = |path: &RelPath| unlike.contains(path) || outcome.taken.doubts(path);
        let names = gathered.names_of_files(is_meant);
        let names = names.into_iter().chain(unlike.iter().cloned());
        works.extend(names.map(|path| model::Work {
            path,
            scope: Scope::Entry,
        }));
        let policy = Policy {
            level: policy.level.max(Level::Content),
            ..policy.clone()
        };
        let selection = Arc::new(Selection::of(&works));
        let summary = trees.reconcile(&selection, &policy, gathered, stop)?;
        outcome.counts.changed += summary.counts.changed;
        outcome.counts.bytes_copied += summary.counts.bytes_copied;
        Ok(Self::not_done(&summary, outcome, gathered).unwrap_or(Ended::Done))
    }

    /// How the work ended, unless all of it was done.
    fn not_done(summary: &Summary, outcome: &Outcome, gathered: &Gathered) -> Option<Ended> {
        match &summary.end {
            End::Complete => None,
            End::Stopped => Some(Ended::Stopped),
            End::Lost => Some(Ended::Away(
                "data written to the replica was lost; check its disk and mount".into(),
            )),
            End::CutOff(why) => Some(Ended::Away(why.clone())),
            // All else was done; the deletes are a problem of what was asked for.
            End::Refused(why) | End::NoPlan(why) => {
                gathered.refuse(&outcome.taken, why);
                None
            }
        }
    }
}
