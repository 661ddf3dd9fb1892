//! What all threads of a run share.

use crate::clock::now;
use crate::monitor::{Monitor, Progress};
use crate::options::Options;
use crate::shared::lease::Lease;
use crate::shared::role::Part;
use crate::sync::deletes::DeletePlan;
use crate::sync::entry::Intent;
use crate::sync::ground::Ground;
use crate::sync::hashes::HashesKept;
use crate::sync::links::Links;
use crate::sync::nested::NestedMarks;
use crate::sync::owners::Owners;
use crate::sync::pending::Pending;
use crate::sync::task::Task;
use crate::sync::visit::Visit;
use crate::tally::Tally;
use crate::trees::changes::Changes;
use crate::trees::mounts::Mounts;
use crate::underway::UnderWay;
use driftless_lock::Mutex;
use driftless_model::{Class, Durability, Fault, Problem, Receipt, RelPath, Stamp, Unkept};
use driftless_mover::Terms;
use driftless_pool::{Queue, Stride};
use driftless_reconcile::Rules;
use driftless_state::Ledger;
use driftless_tree::{DirMutRef, DirRef, Halt, Spared};
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Paths that wait for room; more are reported at once.
const POSTPONED_MAX: usize = 10_000;

/// Problems that are known to have been reported: 8 bytes each. Of more, some may be reported
/// twice.
const REPORTED_MAX: usize = 1 << 16;

/// A run in progress.
pub struct Run<'r> {
    /// What was asked.
    pub options: &'r Options,
    /// Who watches.
    pub monitor: &'r dyn Monitor,
    /// Set from outside to end the run early.
    pub stop: &'r AtomicBool,
    /// What waits.
    pub queue: Queue<Task>,
    /// What was done.
    pub tally: Tally,
    /// Hard-link groups.
    pub links: LinkGroups,
    /// Directory in which paths of hard links begin, if runs share them; else the replica's root.
    pub links_above: Option<LinkRoot>,
    /// Held from the look at the index of directories until a relocated one has its new place there.
    pub relocating: Mutex<()>,
    /// What is to be removed at the end.
    pub deletes: DeletePlan,
    /// Content that is known to be equal from an interrupted run.
    pub ledger: Option<Mutex<Ledger>>,
    /// Large files that were begun.
    pub under_way: Arc<UnderWay>,
    /// When it began.
    pub started: Instant,
    /// When the run began, by the clock on the wall.
    pub began: Stamp,
    /// One directory of each file system of the replica that was met.
    pub file_systems: Mutex<HashMap<u64, DirMutRef>>,
    /// What holds for all runs between these roots.
    pub ground: Ground,
    /// The root directories.
    pub roots: (DirRef, Option<DirMutRef>),
    /// Both are on one machine.
    pub one_machine: bool,
    /// Paths for which there was no room; they are tried again after the deletes. `None` without
    /// permission to postpone them, and once they are tried again.
    no_room: Mutex<Option<Vec<RelPath>>>,
    /// Paths for which there was no room after the deletes either; `None` before and after that.
    still_no_room: Mutex<Option<Vec<RelPath>>>,
    reported: Mutex<HashSet<u64>>,
    lost: AtomicBool,
    cut_off: AtomicBool,
    /// Operations that were submitted to other hosts and are not complete.
    pub pending: Pending,
    /// File systems that are mounted below the source.
    pub mounts: Mounts,
    /// Names of large directories that are kept in mind.
    pub hashes_kept: HashesKept,
    /// In which steps large files are copied.
    pub stride: Stride,
    /// Which owners can be given on the replica.
    pub owners: Owners,
    /// An owner that cannot be told from others was met, and that was told.
    pub has_told_unmapped: AtomicBool,
    /// What was met so far that is not kept.
    pub unkept: Mutex<Unkept>,
    /// Times that the replica's file systems were seen to give in the place of others, by device,
    /// in seconds since 1970.
    pub ends_of_time: Mutex<HashSet<(u64, i64)>>,
    /// Of a dry run: names that it would have replaced by now, for each file of the replica that has
    /// several, by device and inode.
    pub names_lost: Mutex<HashMap<(u64, u64), u64>>,
    /// Which part of a run it is.
    pub part: Part<'r>,
    /// The name of the replica of a single file.
    pub renamed: Option<CString>,
    /// How entries are compared.
    pub rules: Rules,
    /// It is about a single file.
    pub is_single: bool,
    /// It was asked about few paths, so that one thread may be enough.
    pub is_few: bool,
    /// It goes once more through directories, to what was put off in them.
    pub is_second: bool,
    /// What is to be done before the first change of the replica; `None` where the holder of the
    /// replica has done it.
    pub changes: Option<Arc<Changes>>,
    /// Of a mover, which does not hold the replica itself: as long as this is not over, it may
    /// change it.
    pub lease: Option<Arc<Lease>>,
    /// Since when changes of an earlier copy (`--link-dest`) may not be durable.
    pub basis_since: Option<Stamp>,
    /// Of a dry run: where a replica that is not there yet would be made.
    pub above: Option<DirMutRef>,
    /// Unfinished replicas within the replica.
    pub nested: NestedMarks,
}

/// Hard-link groups of the names that runs meet.
pub type LinkGroups = Links<(Arc<Visit>, CString)>;

/// A directory that has the replicas of several runs below it, which share hard links.
pub struct LinkRoot {
    /// The directory.
    pub dir: DirMutRef,
    /// Path of the replica of this run in it.
    pub below: RelPath,
}

impl LinkRoot {
    /// Returns the path in this directory of what has a path in the replica of the run.
    pub fn path(&self, path: &RelPath) -> RelPath {
        RelPath::from_names(self.below.names().chain(path.names()))
    }
}

/// Permission of a run to postpone entries for which there is no room. The holder passes it to the
/// stage that tries these entries again or hands them on. A run without permission reports them.
#[must_use = "postponed entries are lost unless a stage tries them again or hands them on"]
pub struct Postponing(());

/// Keeps a path in a list, if that is there and has room.
fn keep_for_later(list: &Mutex<Option<Vec<RelPath>>>, path: impl FnOnce() -> RelPath) -> bool {
    let mut list = list.lock();
    let kept = list.as_mut().filter(|paths| paths.len() < POSTPONED_MAX);
    kept.map(|paths| paths.push(path())).is_some()
}

/// Seconds since 1970.
fn seconds_now() -> u64 {
    now().sec.cast_unsigned()
}

impl<'r> Run<'r> {
    /// A run that has not begun.
    pub fn new(
        options: &'r Options,
        monitor: &'r dyn Monitor,
        stop: &'r AtomicBool,
        ground: Ground,
    ) -> Self {
        let roots = ground.roots.clone();
        let keeps_own = roots.1.as_ref().is_some_and(|replica| !replica.may_give());
        Run {
            rules: Rules {
                keeps_own,
                ..options.rules()
            },
            options,
            monitor,
            stop,
            queue: Queue::new(1),
            tally: Tally::default(),
            links: Links::new(),
            links_above: None,
            relocating: Mutex::default(),
            deletes: DeletePlan::after(options.deleted_before),
            ledger: options.ledger.as_ref().map(|notes| {
                Mutex::new(Ledger::open(
                    &notes.path,
                    seconds_now,
                    notes.age_max.as_secs(),
                ))
            }),
            under_way: Arc::default(),
            started: Instant::now(),
            began: now(),
            has_told_unmapped: AtomicBool::new(false),
            owners: Owners::of(ground.rights.as_ref(), &options.policy.keep),
            file_systems: Mutex::default(),
            roots,
            ground,
            one_machine: options.is_one_machine(),
            no_room: Mutex::default(),
            still_no_room: Mutex::default(),
            reported: Mutex::default(),
            lost: AtomicBool::new(false),
            cut_off: AtomicBool::new(false),
            pending: Pending::default(),
            mounts: Mounts::default(),
            hashes_kept: HashesKept::default(),
            stride: Stride::default(),
            unkept: Mutex::default(),
            ends_of_time: Mutex::default(),
            names_lost: Mutex::default(),
            part: Part::Whole,
            renamed: None,
            is_single: false,
            is_few: false,
            is_second: false,
            changes: None,
            lease: None,
            basis_since: None,
            above: None,
            nested: NestedMarks::default(),
        }
    }

    fn is_refused(&self) -> bool {
        self.changes
            .as_ref()
            .is_some_and(|changes| changes.is_refused())
            || self.lease.as_ref().is_some_and(|lease| lease.is_over())
    }

    /// Whether the run ends early: it was asked to, or the disk lies.
    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed) || self.is_lost() || self.cut_off.load(Relaxed) || self.is_refused()
    }

    /// Whether an act failed because a connection was lost.
    pub fn was_told_cut_off(&self) -> bool {
        self.cut_off.load(Relaxed)
    }

    /// Whether the disk did not keep what it was given.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Relaxed)
    }

    /// Ends the run because the disk lies.
    pub fn lose(&self) {
        self.lost.store(true, Relaxed);
    }

    /// Keeps within the limit on bytes and, a block being a request, on requests.
    pub fn pace_bytes(&self, bytes: u64) {
        if let Some(pace) = &self.ground.paces.0 {
            pace.take(bytes, &|| self.stopped());
        }
        self.pace_request();
    }

    /// Waits as the limits demand, and says whether the run goes on.
    pub fn pace_or_stop(&self, bytes: u64) -> Result<(), Halt> {
        self.pace_bytes(bytes);
        if self.stopped() {
            Err(Halt::Stopped)
        } else {
            Ok(())
        }
    }

    /// Keeps within the limit on requests.
    pub fn pace_request(&self) {
        if let Some(pace) = &self.ground.paces.1 {
            pace.take(1, &|| self.stopped());
        }
    }

    /// Lets the run postpone entries for which there is no room.
    pub fn allow_postponing(&mut self) -> Postponing {
        let is_used = self.options.applies() || self.options.policy.delete;
        *self.no_room.lock() = is_used.then(Vec::new);
        Postponing(())
    }

    /// Keeps a path for which there was no room, if it is still to be tried again: deletes may make
    /// some, and so do other entries that fail. Returns whether it did.
    pub fn postpone(&self, path: impl Fn() -> RelPath, fault: &Fault) -> bool {
        let is_kept = |paths| keep_for_later(paths, &path);
        fault.lacks_room() && (is_kept(&self.no_room) || is_kept(&self.still_no_room))
    }

    /// Keeps a path that would take the place of a directory, if there is a limit on deletes, which
    /// the whole plan is held against when all is walked; returns whether it did.
    pub fn waits_for_the_whole(&self, path: impl FnOnce() -> RelPath) -> bool {
        let policy = &self.options.policy;
        let is_limited = policy.delete && policy.delete_limit.is_some();
        is_limited && keep_for_later(&self.no_room, path)
    }

    /// Shows the paths that are kept for later.
    pub fn with_kept<T>(&self, show: impl FnOnce(&[RelPath]) -> T) -> T {
        show(self.no_room.lock().as_deref().unwrap_or_default())
    }

    /// Keeps paths for which others had no room.
    pub fn postpone_all(&self, paths: impl Iterator<Item = RelPath>) {
        self.no_room.lock().get_or_insert_default().extend(paths);
    }

    /// Takes the paths that were postponed; no further ones are kept.
    pub fn postponed(&self, _permission: Postponing) -> Vec<RelPath> {
        self.no_room.lock().take().unwrap_or_default()
    }

    /// Has paths kept for which there is no room from now on, too.
    pub fn postpone_again(&self) {
        *self.still_no_room.lock() = Some(Vec::new());
    }

    /// Takes the paths for which there was still no room; no further ones are kept.
    pub fn postponed_again(&self) -> Vec<RelPath> {
        self.still_no_room.lock().take().unwrap_or_default()
    }

    /// What holds for all movers.
    pub fn terms(&self) -> Terms {
        let durability = self.options.policy.durability;
        // The directory around a single file has no mark that could say what is not durable, so the
        // file is made so before it gets its name.
        let is_single = self.is_single || self.renamed.is_some();
        Terms {
            rules: self.rules,
            sync_each: durability == Durability::File || is_single,
            sync_large: durability != Durability::None || is_single,
            verify: self.options.policy.read_back,
            own: self.options.own,
        }
    }

    /// Tells `act` what stays when something goes from the replica's directory at `dir`: what the
    /// rules protect, the source itself, and when the run is over, all that is still there.
    pub fn with_spared<T>(&self, dir: &RelPath, act: impl FnOnce(Spared<'_>) -> T) -> T {
        let is_over = || self.stopped();
        let protects =
            self.options.policy.filter.has_rules() && !self.options.policy.delete_excluded;
        act(Spared {
            rules: protects.then_some((&self.options.policy.filter, dir)),
            is_over: Some(&is_over),
            kept: self.one_machine.then(|| self.roots.0.first_meta().id()),
            ..Spared::NOTHING
        })
    }

    /// Reports a problem.
    pub fn problem(&self, path: RelPath, fault: Fault, class: Class) {
        // Where nothing may be changed, that is why the run ends, and no problem of a path.
        if self.is_refused() || class == Class::Partly && self.does_without(&fault) {
            return;
        }
        // One lost connection is one problem, and the end of the run says it.
        if fault.is_cut_off() {
            return self.cut_off.store(true, Relaxed);
        }
        let cause = self
            .frozen(&path, &fault)
            .map_or_else(|| fault.cause(), str::to_owned);
        self.report(&Problem {
            cause,
            ..Problem::new(path, fault, class)
        });
    }

    /// Reports what could not be removed, by its path below `dir`.
    pub fn report_stuck(&self, dir: &RelPath, stuck: Vec<(RelPath, Fault)>) {
        for (below, fault) in stuck {
            self.problem(
                RelPath::from_names(dir.names().chain(below.names())),
                fault,
                Class::Skip,
            );
        }
    }

    /// Reports a problem, if it is not one that was reported before: what one cause does to one
    /// path is one problem, whatever was tried first and next. Of an entry that was made equal but
    /// for some properties, each property is one.
    pub fn report(&self, problem: &Problem) {
        if !self.is_news(problem) {
            return;
        }
        self.tally.problem(problem.class);
        self.monitor.problem(problem);
    }

    fn is_news(&self, problem: &Problem) -> bool {
        let mut hasher = DefaultHasher::new();
        let property = (problem.class == Class::Partly).then_some(problem.act);
        (
            problem.path.as_bytes(),
            problem.side.word(),
            &problem.cause,
            property,
        )
            .hash(&mut hasher);
        let mut reported = self.reported.lock();
        let fits = reported.len() < REPORTED_MAX;
        if fits {
            reported.insert(hasher.finish())
        } else {
            !reported.contains(&hasher.finish())
        }
    }

    /// Reports what was done, if the monitor wants receipts; the path is made only then.
    pub fn receipt(&self, path: impl FnOnce() -> RelPath, intent: Intent) {
        if self.monitor.wants_receipts() {
            let Intent {
                kind,
                action,
                what,
                size,
                values,
                ranges,
                ..
            } = intent;
            self.monitor.receipt(&Receipt {
                path: path(),
                kind,
                action,
                what,
                size,
                values,
                ranges,
            });
        }
    }

    /// A look at the run for those who watch.
    pub fn progress(&self, jobs: usize) -> Progress {
        Progress {
            counts: self.tally.counts(),
            elapsed: self.started.elapsed(),
            large: self.under_way.now(),
            jobs,
        }
    }

    /// Whether the filters take an entry. The path is made only if there are rules.
    pub fn takes(&self, visit: &Visit, name: &CStr, is_dir: bool) -> bool {
        let filter = &self.options.policy.filter;
        !filter.has_rules() || filter.takes(visit.path_of(name).as_bytes(), is_dir)
    }

    /// Remembers a directory of each file system of the replica, to make all of them durable at the
    /// end.
    pub fn met_replica(&self, dir: &DirMutRef) {
        let device = dir.first_meta().dev;
        let known = self
            .roots
            .1
            .as_ref()
            .is_some_and(|root| root.first_meta().dev == device);
        if !known {
            self.file_systems
                .lock()
                .entry(device)
                .or_insert_with(|| dir.clone());
        }
    }
}

impl Run<'_> {
    /// Whether a directory of the source is the root of the replica.
    pub fn is_replica(&self, source: &DirRef) -> bool {
        let replica = self.roots.1.as_ref().filter(|_| self.one_machine);
        replica.is_some_and(|replica| replica.first_meta().id() == source.first_meta().id())
    }

    /// Whether a directory of the replica is the root of the source.
    pub fn is_source(&self, replica: &DirMutRef) -> bool {
        self.one_machine && self.roots.0.first_meta().id() == replica.first_meta().id()
    }
}

impl Run<'_> {
    /// Whether the run reaches this directory of the replica at another path, too, and therefore
    /// leaves it alone here.
    pub fn is_double(&self, parent: &Visit, name: &CStr) -> bool {
        !self.ground.doubles.is_empty() && self.ground.doubles.contains(&parent.path_of(name))
    }
}
