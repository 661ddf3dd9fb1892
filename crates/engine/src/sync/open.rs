//! Both trees of a job, opened once and then made equal often: also at the same time, and path by
//! path.
//!
//! What is found out once stays: the roots and their handles, the lock and the mark, what the file
//! systems can do, buffers. Each call is a small run of its own, which neither waits for another
//! nor makes anything durable; [`Trees::flush`] does that for all of them.

use crate::clock::Clock;
use crate::monitor::Monitor;
use crate::options::Options;
use crate::sync::begin::{begin_root, open_basis, prepare_replica, unusable};
use crate::sync::borrowed::Borrowed;
use crate::sync::ending::{End, Summary, ending, make_durable, or_cut_off, sum_up};
use crate::sync::ground::Ground;
use crate::sync::run::Run;
use crate::sync::stages::{delete, try_postponed, walk};
use crate::sync::visit::{Sides, Visit};
use crate::sync::whereabouts::where_it_was;
use crate::tally::{WHOLE_WALK, add};
use crate::trees::changes::{Changes, Watch};
use crate::trees::error::RunError;
use crate::trees::locks::Locks;
use crate::trees::marks::doubt_of_basis;
use crate::trees::replica::Replica;
use crate::trees::rings::{Origin, refuse_ring};
use crate::trees::roots::{Roots, open_roots};
use driftless_lock::{Mutex, RwLock};
use driftless_model::{Meta, Policy, RelPath, Selection, Side, Stamp, Xattrs};
use driftless_pool::descriptors;
use driftless_reconcile::Ending;
use driftless_tree::{Dir, DirMutRef, DirRef, Endpoint, HandlePool};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// A source and its replica, open.
pub struct Trees {
    options: Options,
    ground: Ground,
    threads_max: usize,
    locks: Locks,
    /// What is done before the first change, and undone by a flush: a thread that reconciles reads
    /// it, the one that flushes writes it.
    pub(crate) changes: RwLock<Option<(Arc<Changes>, Option<Watch>)>>,
    /// One directory of each further file system of the replica that was changed.
    file_systems: Mutex<HashMap<u64, DirMutRef>>,
    /// How the last call ended that looked at all, if that was after the last flush: what earlier
    /// runs have left in doubt, it has compared.
    compared: Mutex<Option<Ending>>,
    /// The disk did not keep what it was given.
    is_lost: AtomicBool,
    /// Whose turn it is, where completions of all calls come by one connection and each would hear
    /// those of the others.
    turn: Mutex<()>,
    /// What the first run has to know of the roots.
    first: Mutex<Option<First>>,
    /// The tree that is asked what leads to it.
    origin: Option<Origin>,
    /// Where another process holds the replica: what this one may do.
    borrowed: Option<Borrowed>,
}

/// The roots as they were found.
struct First {
    /// What the replica's was like; `None` if it was made.
    before: Option<(Meta, Xattrs)>,
    basis: Option<DirRef>,
}

impl Trees {
    /// Opens both trees, locks the replica, and makes it if it is missing. `clock` gives movers of
    /// an earlier run time to end.
    ///
    /// # Errors
    /// A root is no directory or cannot be used, a guard refuses, or another run is at work on the
    /// replica.
    pub fn open(
        options: &Options,
        monitor: &dyn Monitor,
        clock: &dyn Clock,
    ) -> Result<Trees, RunError> {
        let (directories, threads_max) = descriptors();
        let pool = HandlePool::new(directories);
        if options.passes_by_leases {
            pool.pass_by_leases();
        }
        match open_roots(options, &pool)? {
            Roots::Trees { source, replica } => {
                Trees::between(options, (monitor, clock), (source, replica), threads_max)
            }
            Roots::Entries { .. } => Err(RunError::NotTrees(options.source.to_string())),
        }
    }

    /// Opens the trees between roots that are open.
    pub(crate) fn between(
        options: &Options,
        (monitor, clock): (&dyn Monitor, &dyn Clock),
        (source, replica): (DirRef, Replica),
        threads_max: usize,
    ) -> Result<Trees, RunError> {
        let basis = open_basis(options, &source, &replica)?;
        let (replica, made, locks) = prepare_replica(options, &source, replica)?;
        let borrowed = match (&options.lent, &replica) {
            (Some(lent), Some(replica)) => Some(Borrowed::of((options, lent), &source, replica)?),
            _ => None,
        };
        let changes = replica
            .as_ref()
            // The mark of a replica that is lent is that of whoever lends it.
            .filter(|_| borrowed.is_none())
            .map(|root| changes_of(options, root, &locks))
            .transpose()?;
        let takes_over = match &changes {
            Some(changes) if options.applies() => changes.take_over(clock)?,
            _ => false,
        };
        let before = match &replica {
            Some(dir) if takes_over => Some((
                unusable(options, dir.meta())?,
                unusable(options, dir.xattrs(&options.policy.keep))?,
            )),
            Some(dir) if !made => Some((
                *dir.first_meta(),
                unusable(options, dir.xattrs(&options.policy.keep))?,
            )),
            _ => None,
        };
        let origin = Origin::of(options, &source);
        let ground = Ground::of(options, (source, replica));
        let trees = Trees {
            options: options.clone(),
            ground,
            threads_max,
            locks,
            changes: RwLock::new(changes.map(|changes| watched(options, changes, monitor))),
            file_systems: Mutex::default(),
            compared: Mutex::default(),
            is_lost: AtomicBool::new(false),
            turn: Mutex::default(),
            first: Mutex::new(Some(First { before, basis })),
            origin,
            borrowed,
        };
        trees.refuse_ring()?;
        Ok(trees)
    }

    fn refuse_ring(&self) -> Result<(), RunError> {
        let changes = self.changes();
        let own = changes.as_ref().map(|changes| changes.identity());
        let lent = self.options.lent.as_ref().map(|lent| lent.identity);
        match self.ground.roots.1.as_ref().zip(own.or(lent)) {
            Some(replica) => {
                let origin = self.origin.as_ref();
                refuse_ring(&self.options, origin, replica, changes.as_deref())
            }
            None => Ok(()),
        }
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn borrowed(&self) -> Option<&Borrowed> {
        self.borrowed.as_ref()
    }

    /// Makes what `selection` names equal, as `policy` says: a path, a directory without what is
    /// below it, with the names in it, a subtree, or all. A chosen path that the source lacks goes from the replica where
    /// the policy deletes; a directory with what is in it only as a subtree, and is a problem
    /// otherwise. Nothing is durable before a [flush](Trees::flush).
    /// Calls of many threads are under way at the same time, but for trees on other hosts: there
    /// they wait for each other.
    ///
    /// # Errors
    /// Nothing may be changed any more: another run has the replica, or its disk did not keep what
    /// it was given.
    pub fn reconcile(
        &self,
        selection: &Arc<Selection>,
        policy: &Policy,
        monitor: &dyn Monitor,
        stop: &AtomicBool,
    ) -> Result<Summary, RunError> {
        let options = Options {
            policy: policy.clone(),
            selection: (!selection.whole).then(|| selection.clone()),
            removes_chosen: true,
            known_mounts: self.known_mounts(),
            ..self.options.clone()
        };
        let _turn = self.takes_turns().then(|| self.turn.lock());
        self.refuse_lost()?;
        self.refuse_unlent()?;
        let changes = self.changes.read();
        let mut run = Run::new(&options, monitor, stop, self.ground.clone());
        run.is_few = !selection.whole;
        run.within(changes.as_ref().map(|(changes, _)| changes));
        if let (Some(borrowed), Some(lent)) = (&self.borrowed, &options.lent) {
            run.lease = Some(borrowed.lease().clone());
            run.rules.suspect_since = lent.suspect_since;
        }
        let summary = or_cut_off(self.go(&mut run, selection.clone()), &options, |end| {
            Summary::of_nothing(run.started.elapsed(), end)
        })?;
        self.file_systems
            .lock()
            .extend(std::mem::take(&mut *run.file_systems.lock()));
        self.is_lost.fetch_or(run.is_lost(), Relaxed);
        run.changes
            .as_ref()
            .map_or(Ok(()), |changes| changes.outcome())?;
        self.refuse_unlent()?;
        if let Some(changes) = run.changes.as_ref().filter(|_| selection.whole) {
            let whole = ending(&run, changes.scope(), (&summary.end, &summary.counts));
            if options.applies() {
                changes.tell_filled(whole.filled);
            }
            *self.compared.lock() = Some(whole).filter(|whole| whole.is_complete);
        }
        Ok(summary)
    }

    /// Where something was mounted in earlier runs, or when an earlier call looked.
    fn known_mounts(&self) -> Arc<BTreeSet<RelPath>> {
        match &self.options.mount_notes {
            // They began with what earlier runs had noted.
            Some(notes) => Arc::new(notes.all()),
            None => self.options.known_mounts.clone(),
        }
    }

    /// Whether the paths of both trees still lead to the directories that are open, and the replica
    /// not to its own source.
    ///
    /// # Errors
    /// One leads to another or to none, or its host is out of reach; or mirrors go round in a ring.
    pub fn look_again(&self) -> Result<(), RunError> {
        let (source, replica) = &self.ground.roots;
        look_again((Side::Source, &self.options.source), source)?;
        replica.as_ref().map_or(Ok(()), |replica| {
            look_again((Side::Replica, &self.options.replica), replica)
        })?;
        self.refuse_ring()
    }

    /// The device and inode number of the source's root.
    pub fn source_id(&self) -> (u64, u64) {
        self.ground.roots.0.first_meta().id()
    }

    /// The device and inode number of the replica's root; `None` if there is none yet.
    pub fn replica_id(&self) -> Option<(u64, u64)> {
        let replica = self.ground.roots.1.as_ref();
        replica.map(|replica| replica.first_meta().id())
    }

    /// Whether only one call may be under way at a time.
    fn takes_turns(&self) -> bool {
        let (source, replica) = &self.ground.roots;
        source.takes_submissions()
            || replica
                .as_ref()
                .is_some_and(|replica| replica.takes_submissions())
    }

    /// Nothing is known any more of what stands on a disk that did not keep what it was given.
    pub(crate) fn refuse_lost(&self) -> Result<(), RunError> {
        if self.is_lost.load(Relaxed) {
            Err(RunError::DiskLied(self.options.replica.to_string()))
        } else {
            Ok(())
        }
    }

    /// A replica that is not lent any more is left alone.
    fn refuse_unlent(&self) -> Result<(), RunError> {
        let borrowed = self.borrowed.as_ref();
        let refusal = borrowed.and_then(|borrowed| borrowed.refusal(&self.options));
        refusal.map_or(Ok(()), Err)
    }

    /// What a lost connection leaves may not be durable.
    fn refuse_cut_off(&self) -> Result<(), RunError> {
        let loss = self.options.lost();
        loss.map_or(Ok(()), |loss| Err(RunError::CutOff(loss.why)))
    }

    fn go(&self, run: &mut Run<'_>, selection: Arc<Selection>) -> Result<Summary, RunError> {
        let visit = self.root(run, selection)?;
        let (end, done) = self.through(run, visit);
        done.map(|()| sum_up(run, end))
    }

    /// Goes through everything below the root, and then through the deletes.
    pub(crate) fn through(&self, run: &mut Run<'_>, visit: Visit) -> (End, Result<(), RunError>) {
        let postponing = run.allow_postponing();
        let walked = walk(run, visit, self.threads_max);
        let end = delete(run, self.threads_max);
        let tried = try_postponed(run, postponing, self.threads_max);
        run.report_split_groups();
        (end, walked.and(tried))
    }

    /// The root as a visit: for the first run as it was found, for later ones as it is now.
    pub(crate) fn root(&self, run: &Run<'_>, selection: Arc<Selection>) -> Result<Visit, RunError> {
        add(&run.tally.seen, 1);
        let (source, replica) = self.ground.roots.clone();
        let Some(First { before, basis }) = self.first.lock().take() else {
            let now = source.meta().map_err(|fault| RunError::Unusable {
                path: self.options.source.to_string(),
                cause: fault.to_string(),
            })?;
            let visit = begin_root(run, (*selection).clone(), WHOLE_WALK)?;
            *visit.listed.lock() = now;
            return Ok(visit);
        };
        let sides = Sides {
            source,
            replica,
            before,
        };
        let mut visit = Visit::root(sides, selection, WHOLE_WALK);
        visit.basis = basis;
        run.find_closed(&mut visit);
        visit.narrowing = run.narrowing_of(&visit);
        Ok(visit)
    }

    /// Makes durable what was changed so far, and says so in the replica's mark. Calls at work are
    /// waited for.
    ///
    /// # Errors
    /// The disk did not keep what it was given, or somebody else has the replica.
    pub fn flush(&self, monitor: &dyn Monitor) -> Result<(), RunError> {
        let mut changes = self.changes.write();
        let never = AtomicBool::new(false);
        let mut run = Run::new(&self.options, monitor, &never, self.ground.clone());
        run.within(changes.as_ref().map(|(changes, _)| changes));
        run.file_systems = Mutex::new(std::mem::take(&mut *self.file_systems.lock()));
        make_durable(&run);
        self.is_lost.fetch_or(run.is_lost(), Relaxed);
        self.refuse_lost()?;
        self.refuse_cut_off()?;
        run.look_again_at_roots();
        let Some((done, watch)) = changes.take() else {
            return Ok(());
        };
        // What earlier runs have left in doubt is compared by a call that looks at all.
        let compared = self.compared.lock().take();
        let ending = Ending {
            scope: done.scope(),
            // What others have changed, to whom it is lent, they make durable themselves.
            is_flushed: !done.is_lent(),
            is_left: false,
            is_complete: compared.is_some(),
            is_all: compared.is_some_and(|whole| whole.is_all),
            filled: None,
            is_clear: compared.is_some_and(|whole| whole.is_clear),
        };
        done.end(&self.options, &ending, monitor);
        done.outcome()?;
        drop(watch);
        let root = self
            .ground
            .roots
            .1
            .as_ref()
            .expect("what is changed has a root");
        let next = changes_of(&self.options, root, &self.locks)?;
        *changes = Some(watched(&self.options, next, monitor));
        Ok(())
    }

    /// Makes durable what was changed so far. Unlike a [flush](Trees::flush), it waits for nobody,
    /// and the mark says of everything since the last flush that it may not be durable, which costs
    /// a comparison if the power fails.
    ///
    /// # Errors
    /// The disk did not keep what it was given.
    pub fn write_out(&self, monitor: &dyn Monitor) -> Result<(), RunError> {
        let _changes = self.changes.read();
        let never = AtomicBool::new(false);
        let mut run = Run::new(&self.options, monitor, &never, self.ground.clone());
        run.file_systems = Mutex::new(self.file_systems.lock().clone());
        make_durable(&run);
        self.is_lost.fetch_or(run.is_lost(), Relaxed);
        self.refuse_lost()?;
        self.refuse_cut_off()?;
        self.let_go(&run.file_systems.lock());
        Ok(())
    }

    /// Lets go of file systems that are durable, so that they can be unmounted. One that was
    /// changed since is here by another handle: whoever changed it makes it durable.
    fn let_go(&self, durable: &HashMap<u64, DirMutRef>) {
        let is_same = |device: &u64, dir: &DirMutRef| {
            let known = durable.get(device);
            known.is_some_and(|known| Arc::ptr_eq(known, dir))
        };
        let mut all = self.file_systems.lock();
        all.retain(|device, dir| !is_same(device, dir));
    }

    /// The changes of a single run between these trees, which ends them itself.
    pub(crate) fn changes(&self) -> Option<Arc<Changes>> {
        self.changes
            .read()
            .as_ref()
            .map(|(changes, _)| changes.clone())
    }

    /// Which replica this is, by its mark, as soon as it has one.
    pub fn identity(&self) -> Option<u128> {
        let changes = self.changes()?;
        let mark = changes.own_mark().or_else(|| changes.found_mark());
        mark.map(|(identity, _)| identity)
    }

    /// Returns the run that has changed the replica last, by its mark, as soon as it has one.
    pub fn last_run(&self) -> Option<u128> {
        let changes = self.changes()?;
        let mark = changes.own_mark().or_else(|| changes.found_mark());
        mark.map(|(_, run)| run)
    }

    /// Whether the replica was changed last by a run of somebody else than whose it is. A
    /// replica without a mark says nothing of that.
    pub fn was_changed_by_another(&self) -> bool {
        let found = self.changes().and_then(|changes| changes.found_mark());
        let owner = |(_, run): (u128, u128)| (run >> 64) as u64;
        found
            .map(owner)
            .is_some_and(|owner| owner != self.options.owner)
    }

    /// What holds for all runs.
    pub(crate) fn ground(&self) -> &Ground {
        &self.ground
    }

    /// Since when changes of an earlier copy (`--link-dest`) may not be durable, which is told.
    pub(crate) fn doubt_of_basis(&self, monitor: &dyn Monitor) -> Result<Option<Stamp>, RunError> {
        let first = self.first.lock();
        let basis = first.as_ref().and_then(|first| first.basis.as_ref());
        basis.map_or(Ok(None), |basis| {
            doubt_of_basis(&self.options, basis, monitor)
        })
    }

    /// Whether the replica's root was made just now.
    pub(crate) fn is_made(&self) -> bool {
        self.first
            .lock()
            .as_ref()
            .is_some_and(|first| first.before.is_none())
    }
}

/// The changes of a tree that the run holds.
fn changes_of(options: &Options, root: &DirMutRef, locks: &Locks) -> Result<Changes, RunError> {
    let mut changes = Changes::of(options, root, None, locks)?;
    if let Some(members) = options.members {
        changes.set_movers(members);
    }
    Ok(changes)
}

fn look_again<D: Dir + ?Sized>(
    (side, path): (Side, &Endpoint),
    root: &Arc<D>,
) -> Result<(), RunError> {
    if where_it_was(side, path, root).is_some() {
        return Ok(());
    }
    // It is not known where the path of a host leads that does not answer.
    if let Some(loss) = path.lost() {
        return Err(RunError::CutOff(loss.why));
    }
    Err(RunError::Unusable {
        path: path.to_string(),
        cause: "its path leads to another directory than before, or to none".into(),
    })
}

/// Changes that wait for what is due before the first of them, and have told what is known of the
/// replica.
pub fn watched(
    options: &Options,
    changes: Changes,
    monitor: &dyn Monitor,
) -> (Arc<Changes>, Option<Watch>) {
    let changes = Arc::new(changes);
    changes.tell(monitor);
    let watch = options.applies().then(|| changes.watch());
    (changes, watch)
}

impl Run<'_> {
    /// It makes these changes.
    pub(crate) fn within(&mut self, changes: Option<&Arc<Changes>>) {
        self.rules.suspect_since = changes.and_then(|changes| changes.suspect_since());
        self.changes = changes.cloned();
    }
}
