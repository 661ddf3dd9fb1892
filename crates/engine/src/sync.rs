//! One run from its beginning to its end: open, lock, walk, delete, make durable, sum up.

pub mod closed;
pub mod comparisons;
pub mod deletes;
pub mod doubt;
pub mod entered;
pub mod entries;
pub mod entry;
pub mod files;
pub mod finish;
pub mod frozen;
pub mod grouped;
pub mod hashes;
pub mod kept;
pub mod links;
pub mod listed;
pub mod namesakes;
pub mod nested;
pub mod owners;
pub mod pending;
pub mod protect;
pub mod protected;
pub mod removal;
pub mod room;
pub mod root;
pub mod run;
pub mod spelling;
pub mod stored;
pub mod submit;
pub mod task;
pub mod twice;
pub mod unkept;
pub mod unmounted;
pub mod visit;
pub mod walk;
pub mod whereabouts;
pub mod worker;

use crate::clock::{Clock, MachineClock};
use crate::monitor::Monitor;
use crate::options::{Durability, Options};
use crate::sync::closed::mark_closed;
use crate::sync::deletes::PlanError;
use crate::sync::root::tell_root;
use crate::sync::run::Run;
use crate::sync::task::Task;
use crate::sync::visit::{Begin, Visit};
use crate::sync::walk::forget_inherited;
use crate::tally::{Counts, WHOLE_WALK, add};
use crate::trees::changes::{Changes, Locks, Watch, hold};
use crate::trees::error::RunError;
use crate::trees::marks::{doubt_of_basis, tell_source};
use crate::trees::precautions::refuse_doubt;
use crate::trees::replica::Replica;
use crate::trees::roots::{Roots, open_roots};
use driftless_model::{Class, Fault, RelPath, Scope, Selection, Side, Work, Xattrs, errno};
use driftless_pool::{descriptors, drive};
use driftless_reconcile::{Ending, lacks_change_time};
use driftless_tree::{DirMutRef, DirRef, HandlePool, Place};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// All entries were accounted for.
    Complete,
    /// It was asked to stop.
    Stopped,
    /// The disk did not keep what it was given.
    Lost,
    /// The connection to a host was lost: which, and why.
    CutOff(String),
    /// The plan of deletes was refused; all else was done.
    Refused(String),
    /// The plan of deletes was lost; all else was done.
    NoPlan(String),
}

/// What a run did.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Counters.
    pub counts: Counts,
    /// How long it took.
    pub elapsed: Duration,
    /// How it ended.
    pub end: End,
    /// Paths below the source on which file systems are mounted.
    pub mounts: BTreeSet<RelPath>,
}

impl Summary {
    /// Of a run that did nothing before its end.
    pub fn of_nothing(elapsed: Duration, end: End) -> Summary {
        Summary { counts: Counts::default(), elapsed, end, mounts: BTreeSet::new() }
    }
}

/// Makes the replica equal to the source. A connection that is lost is an end ([`End::CutOff`]), however early.
pub fn sync(options: &Options, monitor: &dyn Monitor, stop: &AtomicBool) -> Result<Summary, RunError> {
    sync_by(&MachineClock, options, monitor, stop)
}

/// Makes the replica equal to the source, by this clock as far as movers of earlier runs are given time.
pub fn sync_by(clock: &dyn Clock, options: &Options, monitor: &dyn Monitor, stop: &AtomicBool) -> Result<Summary, RunError> {
    let began = Instant::now();
    or_cut_off(try_sync(options, (monitor, stop, clock)), options, |end| Summary::of_nothing(began.elapsed(), end))
}

/// Whatever could not be done because a line was lost, the loss is why it ended.
pub fn or_cut_off<T>(done: Result<T, RunError>, options: &Options, ended: impl FnOnce(End) -> T) -> Result<T, RunError> {
    match (done, options.lost()) {
        (Err(_), Some(loss)) => Ok(ended(End::CutOff(loss.why))),
        (done, _) => done,
    }
}

fn try_sync(options: &Options, outside: Outside<'_>) -> Result<Summary, RunError> {
    let (directories, mut threads_max) = descriptors();
    if let Some(carrier) = &options.carrier {
        carrier.check().map_err(RunError::NoCarrier)?;
        // A program's standard error and its private directory want descriptors, too.
        threads_max = threads_max.div_ceil(2);
    }
    let pool = HandlePool::new(directories);
    match open_roots(options, &pool)? {
        Roots::Trees { source, replica } => sync_trees(options, outside, (source, replica), threads_max),
        Roots::Entries { source, replica } => sync_entry(options, outside, (source, replica), threads_max),
    }
}

type Outside<'a> = (&'a dyn Monitor, &'a AtomicBool, &'a dyn Clock);

fn sync_trees(
    options: &Options,
    (monitor, stop, clock): Outside<'_>,
    (source, replica): (DirRef, Replica),
    threads_max: usize,
) -> Result<Summary, RunError> {
    let above = match &replica {
        Replica::Missing(above, _) if options.dry_run => Some(above.clone()),
        _ => None,
    };
    let basis = open_basis(options)?;
    let (replica, made, locks) = prepare_replica(options, &source, replica)?;
    let changes = replica.as_ref().map(|root| Changes::of(options, root, None, &locks)).transpose()?;
    let takes_over = match &changes {
        Some(changes) if !options.dry_run => changes.take_over(clock)?,
        _ => false,
    };
    let before = match &replica {
        Some(dir) if takes_over => Some((unusable(options, dir.meta())?, unusable(options, dir.xattrs(&options.keep))?)),
        Some(dir) if !made => Some((*dir.first_meta(), unusable(options, dir.xattrs(&options.keep))?)),
        _ => None,
    };
    let mut run = Run::new(options, monitor, stop, (source.clone(), replica.clone()));
    run.above = above;
    run.basis_since = basis.as_ref().map_or(Ok(None), |basis| doubt_of_basis(options, basis, monitor))?;
    tell_source(options, (&source, false), monitor);
    let _watch = run.watch(changes);
    if let Some(replica) = replica.as_ref().filter(|_| !made && !options.report_only) {
        tell_root(&run, source.first_meta(), replica);
    }
    let selection = options.selection.clone().unwrap_or_else(|| Arc::new(Selection::all()));
    let (parent, name, weight) = (None, CString::default(), WHOLE_WALK);
    let begin = Begin { parent, name, source, replica, basis, selection, before, replaced: None, weight };
    add(&run.tally.seen, 1);
    let mut visit = Visit::begin(begin);
    run.find_closed(&mut visit);
    let walked = walk(&mut run, visit, threads_max);
    let end = delete(&run, threads_max);
    let tried = try_postponed(&mut run, threads_max);
    run.report_split_groups();
    run.look_again_at_roots();
    let summary = end_run(&run, end);
    run.changes.as_ref().map_or(Ok(()), |changes| changes.outcome())?;
    // What was done before the line was lost is not forgotten.
    if matches!(summary.end, End::CutOff(_)) { Ok(summary) } else { walked.and(tried).map(|()| summary) }
}

/// Locks the replica, refuses it on doubt, makes it if it is missing; tells whether it was made.
pub fn prepare_replica(options: &Options, source: &DirRef, replica: Replica) -> Result<(Option<DirMutRef>, bool, Locks), RunError> {
    let mut locks = match &replica {
        _ if options.dry_run || options.report_only && matches!(replica, Replica::Missing(..)) => Locks::default(),
        Replica::There(dir) => hold(options, dir, None)?,
        // Who works on a tree that it would lie in is found before it is made.
        Replica::Missing(parent, name) => hold(options, parent, Some(name))?,
    };
    if let (true, Replica::There(replica)) = (options.delete && !options.report_only, &replica) {
        refuse_doubt(options, source, replica)?;
    }
    let (replica, made) = open_replica(options, source, replica)?;
    if let Some(new) = replica.as_ref().filter(|_| made) {
        locks = hold(options, new, None)?.beside(locks);
    }
    Ok((replica, made, locks))
}

/// The root, as it is now, as a visit of a part of a run.
pub fn begin_root(run: &Run<'_>, selection: Selection, weight: u64) -> Result<Visit, RunError> {
    let (source, replica) = run.roots.clone();
    let before = match &replica {
        Some(replica) => Some((unusable(run.options, replica.meta())?, unusable(run.options, replica.xattrs(&run.options.keep))?)),
        None => None,
    };
    let begin = Begin {
        parent: None,
        name: CString::default(),
        source,
        replica,
        basis: None,
        selection: Arc::new(selection),
        before,
        replaced: None,
        weight,
    };
    let mut visit = Visit::begin(begin);
    run.part.assign(&mut visit);
    run.find_closed(&mut visit);
    if run.renamed.is_some() {
        (visit.borrowed, visit.renamed) = (true, run.renamed.clone());
    }
    Ok(visit)
}

/// Goes through everything below `visit`, and then through the hard links that would have taken too much memory to wait for.
pub fn walk(run: &mut Run<'_>, visit: Visit, threads_max: usize) -> Result<(), RunError> {
    go_through(run, visit, threads_max);
    look_at_put_off(run, threads_max)
}

fn look_at_put_off(run: &mut Run<'_>, threads_max: usize) -> Result<(), RunError> {
    while !run.stopped() {
        let paths = run.take_put_off();
        if paths.is_empty() {
            break;
        }
        look_again_at(run, paths, threads_max)?;
    }
    Ok(())
}

/// Goes through these paths once more. The directories that lead there were counted before.
fn look_again_at(run: &mut Run<'_>, paths: Vec<RelPath>, threads_max: usize) -> Result<(), RunError> {
    let works: Vec<Work> = paths.into_iter().map(|path| Work { path, scope: Scope::Subtree }).collect();
    run.is_second = true;
    let visit = begin_root(run, Selection::of(&works), 0)?;
    add(&run.tally.seen, u64::from(!visit.borrowed));
    go_through(run, visit, threads_max);
    run.is_second = false;
    Ok(())
}

/// Goes through everything below `visit`. Hard-link groups none of whose names was there come last: then it is known.
fn go_through(run: &Run<'_>, visit: Visit, threads_max: usize) {
    run.queue.push(Task::Again(Arc::new(visit)));
    drive(run, threads_max);
    loop {
        let elected = run.links.elect();
        if elected.is_empty() || run.stopped() {
            return;
        }
        elected.into_iter().for_each(|(visit, name)| run.queue.push(Task::Waiter(visit, name)));
        drive(run, threads_max);
    }
}

fn open_basis(options: &Options) -> Result<Option<DirRef>, RunError> {
    let Some(path) = &options.link_dest else { return Ok(None) };
    let basis = options.replica.at(path.clone());
    match basis.locate(Side::Replica, &HandlePool::new(64))? {
        Place::Dir(dir) => Ok(Some(dir)),
        _ => Err(RunError::Unusable { path: basis.to_string(), cause: "--link-dest names no directory".into() }),
    }
}

/// Opens or makes the replica's root; tells whether it was made.
fn open_replica(options: &Options, source: &DirRef, replica: Replica) -> Result<(Option<DirMutRef>, bool), RunError> {
    match replica {
        Replica::There(dir) => Ok((Some(dir), false)),
        Replica::Missing(..) if options.report_only => Err(RunError::NoReplica(options.replica.to_string())),
        Replica::Missing(..) if options.dry_run => Ok((None, true)),
        Replica::Missing(parent, name) => {
            // A source that cannot be listed leaves no empty replica behind.
            source.list().map_err(|fault| RunError::Unusable { path: options.source.to_string(), cause: fault.to_string() })?;
            // Over a line, whether it was made is heard of with the first answer.
            let made = parent.make_dir(&name).and_then(|dir| forget_inherited(&dir).map(|()| dir));
            let made = made.and_then(|dir| mark_closed(options, &dir).map(|()| dir));
            match made {
                // A moment ago it was not there.
                Err(fault) if fault.errno == errno::EEXIST => Err(RunError::Locked { path: options.replica.to_string(), holder: None }),
                made => Ok((Some(unusable(options, made)?), true)),
            }
        }
    }
}

fn unusable<T>(options: &Options, done: Result<T, Fault>) -> Result<T, RunError> {
    done.map_err(|fault| RunError::Unusable { path: options.replica.to_string(), cause: fault.to_string() })
}

/// A single file, symbolic link or node: its directory is only borrowed.
fn sync_entry(
    options: &Options,
    (monitor, stop, _): Outside<'_>,
    ((source_dir, name), replica): ((DirRef, CString), (DirMutRef, CString)),
    threads_max: usize,
) -> Result<Summary, RunError> {
    let locks = if options.dry_run { Locks::default() } else { hold(options, &replica.0, Some(&replica.1))? };
    let changes = Changes::of(options, &replica.0, Some(&replica.1), &locks)?;
    let replica_dir = replica.0;
    let mut run = Run::new(options, monitor, stop, (source_dir.clone(), Some(replica_dir.clone())));
    (run.is_single, run.renamed) = (true, Some(replica.1.clone()));
    let _watch = run.watch(Some(changes));
    tell_source(options, (&source_dir, true), monitor);
    let path = RelPath::from_names([name.to_bytes()]);
    let selection = Arc::new(Selection::of(&[Work { path, scope: Scope::Entry }]));
    let before = Some((*replica_dir.first_meta(), Xattrs::default()));
    let begin = Begin {
        parent: None,
        name: CString::default(),
        source: source_dir,
        replica: Some(replica_dir),
        basis: None,
        selection,
        before,
        replaced: None,
        weight: WHOLE_WALK,
    };
    let visit = Visit::begin(begin).borrow_for(replica.1);
    go_through(&run, visit, threads_max);
    let end = delete(&run, threads_max);
    let tried = try_postponed(&mut run, threads_max);
    let summary = end_run(&run, end);
    run.changes.as_ref().map_or(Ok(()), |changes| changes.outcome())?;
    if matches!(summary.end, End::CutOff(_)) { Ok(summary) } else { tried.map(|()| summary) }
}

/// Carries out the plan of deletes.
pub fn delete(run: &Run<'_>, threads_max: usize) -> End {
    if run.stopped() {
        return End::Stopped;
    }
    match run.carry_out_deletes(&mut || drive(run, threads_max)) {
        Ok(()) => End::Complete,
        Err(error @ PlanError::Refused(_)) => End::Refused(without(&error, run)),
        Err(error @ PlanError::Spool(_)) => End::NoPlan(without(&error, run)),
    }
}

/// Why nothing was deleted, and what was all the same.
fn without(error: &PlanError, run: &Run<'_>) -> String {
    let before = match run.options.deleted_before {
        0 => String::new(),
        deleted => format!(", but for {deleted} before the connection was lost"),
    };
    let displaced = match run.tally.counts().deleted {
        0 => String::new(),
        deleted => format!(", but for {deleted} in directories that were replaced"),
    };
    format!("{error}{before}{displaced}")
}

/// Tries again what there was no room for before the deletes.
pub fn try_postponed(run: &mut Run<'_>, threads_max: usize) -> Result<(), RunError> {
    let paths = run.postponed();
    if paths.is_empty() || run.stopped() || run.roots.1.is_none() {
        return Ok(());
    }
    look_again_at(run, paths, threads_max)?;
    look_at_put_off(run, threads_max)
}

pub fn end_run(run: &Run<'_>, mut end: End) -> Summary {
    make_durable(run);
    if let Some(why) = run.cut_off() {
        end = End::CutOff(why);
    } else if run.is_lost() {
        end = End::Lost;
    } else if run.stopped() {
        end = End::Stopped;
    }
    if let Some(ledger) = &run.ledger {
        ledger.lock().flush();
    }
    let counts = run.tally.counts();
    if let Some(changes) = &run.changes {
        let ending = ending(run, changes.scope(), (&end, &counts));
        changes.end(run.options, &ending, run.monitor);
        if !run.options.dry_run && !changes.is_refused() {
            run.settle_nested(&ending);
        }
    }
    Summary { counts, elapsed: run.started.elapsed(), end, mounts: run.mounts.take() }
}

/// What the end of a run says of what is on the replica.
fn ending(run: &Run<'_>, scope: driftless_reconcile::Scope, (end, counts): (&End, &Counts)) -> Ending {
    let is_flushed = !matches!(end, End::Lost | End::CutOff(_));
    let leaves = run.options.durability == Durability::None;
    let is_complete = is_complete(end, counts);
    let is_all = is_complete && *end == End::Complete && counts.only_on_replica == 0 && counts.skipped() == 0;
    // What vanished is on the replica as it was, unless it goes from there.
    let is_clear = counts.kept_in_doubt == 0 && !hides_changes(run, counts) && (run.options.delete || counts.skipped_vanished == 0);
    Ending { scope, is_flushed: is_flushed && !leaves, is_left: is_flushed && leaves, is_complete, is_all, is_clear }
}

/// Whether nobody can tell when what only the replica has was changed. Where there are change times, the root has one that is later than
/// the time that was set.
fn hides_changes(run: &Run<'_>, counts: &Counts) -> bool {
    let root = run.roots.1.as_ref().filter(|_| counts.only_on_replica > 0);
    root.is_some_and(|root| root.meta().is_ok_and(|meta| lacks_change_time(&meta)))
}

/// Whether everything that was to be looked at was looked at, and is equal.
fn is_complete(end: &End, counts: &Counts) -> bool {
    let has_ended = matches!(end, End::Complete | End::Refused(_) | End::NoPlan(_));
    has_ended && counts.failed == 0 && counts.problems() == counts.problems_partly
}

impl Run<'_> {
    /// Has the first change of the replica wait for what is due before it, until what is returned is dropped.
    fn watch(&mut self, changes: Option<Changes>) -> Option<Watch> {
        let changes = Arc::new(changes?);
        changes.tell(self.monitor);
        self.rules.suspect_since = changes.suspect_since();
        let watch = (!self.options.dry_run).then(|| changes.watch());
        self.changes = Some(changes);
        watch
    }
}

/// One syncfs(2) for each file system of the replica, also when this run changed nothing: an earlier one may have been killed
/// before its own. A failure means that nothing is known of what was written.
fn make_durable(run: &Run<'_>) {
    if run.options.dry_run || run.options.durability == Durability::None {
        return;
    }
    let others = run.file_systems.lock();
    for dir in run.roots.1.iter().chain(others.values()) {
        match dir.sync_all() {
            Err(fault) if !fault.is_cut_off() => {
                run.problem(RelPath::root(), fault, Class::Stop);
                run.lose();
            }
            _ => {}
        }
    }
}
