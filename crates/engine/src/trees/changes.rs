//! What a run does before its first change, and what it says of that when it is over: the lock that
//! other hosts see, and the mark.
//!
//! Before anything is changed, the replica's mark says durably that what was changed since now may
//! not be durable. It says so until the file systems have written everything out. A run that
//! changes nothing writes nothing.

mod doubt;
mod lending;
mod told;

use crate::clock::{Clock, MachineClock};
use crate::monitor::Monitor;
use crate::options::Options;
use crate::trees::error::{RunError, holder_words};
use crate::trees::held::{Held, MOVERS_NOTICE};
use crate::trees::locks::{Locks, left};
use crate::trees::marks::Marks;
use crate::trees::numbers::{boot_of, number, source_number};
use driftless_lock::Mutex;
use driftless_model::{Act, Durability, Fault, RelPath, Stamp, errno, escape};
use driftless_reconcile::{Ending, Mark, SOMEBODY, Scope, Unsettled};
use driftless_tree::{DirMutRef, Done, Hold, Holder, Lock, MarkText, Reach, random_id};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// What was changed so short before the run began counts as changed by it: file systems tell the
/// time in steps of up to two seconds (vfat), and the servers of one that has several do not quite
/// agree.
const MARGIN_SECONDS: i64 = 10;

/// How often a run looks after its locks.
const LOCKS_INTERVAL: Duration = Duration::from_secs(2);

/// Changes of a replica that a run makes, from the first to the flush of the last.
pub struct Changes {
    root: DirMutRef,
    /// The replica as the user named it.
    path: String,
    /// The name of a single file in `root`, which is not marked: it is made durable by itself.
    name: Option<CString>,
    /// What was locked when the run began.
    locks: Locks,
    /// The mark is made durable before anything else is changed. Where the user leaves that to the
    /// kernel, the order in which a journal writes things out has to do.
    is_durable: bool,
    scope: Scope,
    /// The run, and the boot of the replica's machine.
    now: (u128, u64),
    /// The run as its movers know it, if it has movers.
    movers: Option<u128>,
    /// The mark as it was found.
    found: Mark,
    /// What it said then, and those of directories above.
    texts: Vec<MarkText>,
    /// The marks of directories above the replica, which this run leaves as they are.
    above: Vec<(PathBuf, Mark)>,
    begun: Mutex<Begun>,
    is_refused: AtomicBool,
    /// The root takes no mark, so nothing is said there of what leads to it.
    is_unmarked: AtomicBool,
    /// When the locks were looked after last.
    last_look: Mutex<Instant>,
}

/// What was done before the first change.
#[derive(Default)]
struct Begun {
    own: Option<Unsettled>,
    /// The mark as it was written then.
    mark: Option<Mark>,
    /// Movers that were told to end may be at work still.
    leaves_movers: bool,
    hold: Option<Hold>,
    notes: Vec<String>,
    refusal: Option<RunError>,
    /// The lock of this run was taken away.
    is_unlocked: bool,
}

impl Changes {
    /// Reads the mark of a replica, or, with a `name`, prepares the change of that single file.
    ///
    /// # Errors
    /// The mark cannot be read, so nobody knows what of the replica is durable.
    pub fn of(
        options: &Options,
        root: &DirMutRef,
        name: Option<&CStr>,
        locks: &Locks,
    ) -> Result<Changes, RunError> {
        let run = match (options.run, options.owner) {
            (0, 0) => random_id(),
            (0, owner) => u128::from(owner) << 64 | random_id() & u128::from(u64::MAX),
            (run, _) => run,
        };
        let (scope, now) = (scope(options), (run, boot_of(&options.replica)));
        let texts = Marks::texts(&options.replica, root)?;
        let marks = Marks::of_texts(texts.clone(), scope);
        let Marks { own, above } = if name.is_some() {
            marks.of_entry(&options.replica)
        } else {
            marks
        };
        let found = own.unwrap_or_else(|| Mark::new(random_id()));
        let path = options.replica.to_string();
        let (begun, is_refused) = (Mutex::default(), AtomicBool::new(false));
        let (root, name, locks) = (root.clone(), name.map(CStr::to_owned), locks.clone());
        let last_look = Mutex::new(Instant::now());
        let is_durable = options.policy.durability != Durability::None;
        Ok(Changes {
            root,
            path,
            name,
            locks,
            is_durable,
            scope,
            now,
            movers: None,
            found,
            texts,
            above,
            begun,
            is_refused,
            is_unmarked: AtomicBool::new(false),
            last_look,
        })
    }

    /// It has movers, who know it by this number: before the first.
    pub fn set_movers(&mut self, run: u64) {
        self.movers = Some(movers_number(run));
    }

    /// By what movers know that they may change the replica; nothing where it has no mark.
    pub fn held(&self) -> Option<Held> {
        let begun = self.begun.lock();
        begun.mark.as_ref().and_then(|mark| {
            Some(Held {
                identity: mark.identity,
                movers: mark.movers?,
                is_hidden: self.root.rights().trusted,
            })
        })
    }

    /// Since when what was changed on the replica is to be compared.
    pub fn suspect_since(&self) -> Option<Stamp> {
        self.doubt_above()
            .map(|(_, since)| since)
            .chain(self.own_doubt())
            .min()
    }

    /// Returns since when this run may have changed the replica, by the replica's clock, or `None`
    /// if the replica takes no mark.
    pub fn changed_since(&self) -> Option<Stamp> {
        self.begun.lock().own.as_ref().map(|own| own.since)
    }

    /// Since when changes may not be durable, for a run that does not know whether what it did in
    /// an earlier life was made durable.
    pub fn suspect_since_of_all(&self) -> Option<Stamp> {
        self.suspect_since()
            .into_iter()
            .chain(self.found.suspect_since(0, self.now.1))
            .min()
    }

    /// What the mark said when it was found: which replica this is, and which run has changed it
    /// last.
    pub fn found_mark(&self) -> Option<(u128, u128)> {
        (self.name.is_none() && self.found.run != 0)
            .then_some((self.found.identity, self.found.run))
    }

    /// Which replica this is: as the mark says, or will say.
    pub fn identity(&self) -> u128 {
        self.found.identity
    }

    /// What the mark says now, if this run has made it so.
    pub fn own_mark(&self) -> Option<(u128, u128)> {
        self.begun
            .lock()
            .own
            .as_ref()
            .map(|own| (self.found.identity, own.run))
    }

    /// It is the run with this number that makes them: before the first.
    pub fn set_run(&mut self, run: u128) {
        self.now.0 = run;
    }

    fn own_doubt(&self) -> Option<Stamp> {
        self.found.suspect_since(self.now.0, self.now.1)
    }

    fn doubt_above(&self) -> impl Iterator<Item = (&PathBuf, Stamp)> {
        self.above
            .iter()
            .filter_map(|(path, mark)| Some((path, mark.suspect_since(self.now.0, self.now.1)?)))
    }

    /// Has the first change of the tree wait for [`begin`](Changes::begin), until what is returned
    /// is dropped.
    pub fn watch(self: &Arc<Self>) -> Watch {
        let changes = self.clone();
        self.root
            .before_change(Some(Arc::new(move || changes.begin(&MachineClock))));
        Watch(self.root.clone())
    }

    /// Where movers of an earlier run may be at work, they are given time to notice that it is
    /// over, before anything is looked at. Says whether that was so.
    ///
    /// # Errors
    /// Nothing may be changed.
    pub fn take_over(&self, clock: &dyn Clock) -> Result<bool, RunError> {
        let takes_over = self.name.is_none()
            && self
                .found
                .movers
                .is_some_and(|movers| Some(movers) != self.movers);
        if takes_over {
            // Why it is refused is what counts.
            let _refusal = self.begin(clock);
            self.outcome()?;
        }
        Ok(takes_over)
    }

    /// The first change is about to be made. By this clock, movers of an earlier run are given
    /// time.
    pub fn begin(&self, clock: &dyn Clock) -> Done {
        let mut begun = self.begun.lock();
        if begun.mark.is_some() {
            return Ok(());
        }
        let refused = Fault {
            side: driftless_model::Side::Replica,
            act: Act::Change,
            errno: errno::EAGAIN,
        };
        if begun.refusal.is_some() {
            return Err(refused);
        }
        let done = self
            .keep_others_out(&mut begun)
            .and_then(|()| self.mark_as_found(&mut begun, clock));
        done.map_err(|refusal| {
            self.refuse(&mut begun, refusal);
            refused
        })
    }

    fn refuse(&self, begun: &mut Begun, refusal: RunError) {
        begun.refusal = Some(refusal);
        self.is_refused.store(true, Relaxed);
    }

    /// Looks after the locks, now and then. A run ends whose lock was taken away: another may be at
    /// work.
    pub fn look_after(&self) {
        let mut last = self.last_look.lock();
        if last.elapsed() >= LOCKS_INTERVAL {
            self.check_locks(&mut self.begun.lock());
            *last = Instant::now();
        }
    }

    fn check_locks(&self, begun: &mut Begun) {
        // A look that fails says nothing; should the disk be gone, others will notice.
        let is_kept = |hold: &Hold| hold.is_kept().unwrap_or(true);
        let kept = self
            .locks
            .holds
            .iter()
            .map(|hold| &**hold)
            .chain(&begun.hold)
            .all(is_kept);
        if !kept && begun.refusal.is_none() {
            self.refuse(begun, RunError::Unlocked(self.path.clone()));
            begun.is_unlocked = true;
        }
        if begun.is_unlocked {
            self.leave_doubt(begun);
        }
    }

    fn keep_others_out(&self, begun: &mut Begun) -> Result<(), RunError> {
        /// The file system has no locks, or nobody who keeps them (flock(2), fcntl(2)).
        const WITHOUT_LOCKS: [i32; 3] = [37, 38, 95];
        /// EPERM, EACCES, EROFS.
        const WITHOUT_RIGHTS: [i32; 3] = [1, 13, 30];
        if self.locks.is_everywhere {
            self.check_locks(begun);
            return begun.refusal.take().map_or(Ok(()), Err);
        }
        match self.root.lock(self.name.as_deref(), Reach::Everywhere) {
            Ok(Lock::Held(hold)) => begun.hold = Some(hold),
            Ok(Lock::Taken(holder)) => {
                return Err(RunError::Locked {
                    path: self.path.clone(),
                    holder,
                });
            }
            Ok(Lock::Left(name)) => return Err(left(&self.path, &name)),
            // Who may not write there does not change it either; what he may change below, the lock
            // of this host keeps.
            Ok(Lock::Missing(errno)) if WITHOUT_RIGHTS.contains(&errno) => {}
            Ok(Lock::Missing(errno)) => begun.notes.push(format!(
                "\"{}\": {} ({}): runs on other hosts are not kept out",
                self.path,
                if WITHOUT_LOCKS.contains(&errno) {
                    "its file system has no locks"
                } else {
                    "its lock cannot be taken there"
                },
                driftless_model::cause(&std::io::Error::from_raw_os_error(errno))
            )),
            Err(fault) => return Err(self.unusable(fault)),
        }
        Ok(())
    }

    /// Marks the replica, unless a run of another host has worked on it since this one began, and
    /// before it kept others out: what was compared may be so no longer, and what that run says of
    /// what is not durable has to stay.
    fn mark_as_found(&self, begun: &mut Begun, clock: &dyn Clock) -> Result<(), RunError> {
        if self.name.is_some() {
            return Ok(());
        }
        if !self.is_as_found().map_err(|fault| self.unusable(fault))? {
            return Err(RunError::Overtaken(self.path.clone()));
        }
        self.mark(begun, clock)
    }

    /// Whether no other run has marked the replica, or a directory above it, since this one began.
    fn is_as_found(&self) -> Done<bool> {
        // A network file system may remember attributes.
        self.root.meta_again()?;
        Ok(self.root.marks(true)? == self.texts)
    }

    /// The clock of the file system shows itself in what it makes, so the mark is written twice.
    fn mark(&self, begun: &mut Begun, clock: &dyn Clock) -> Result<(), RunError> {
        let mut mark = Mark {
            run: self.now.0,
            movers: self.movers_at_work(),
            ..self.found.clone()
        };
        let waits = mark.hand_to(self.movers);
        let now = match self.root.set_mark(&mark.encode(), false) {
            Ok(now) => now,
            Err(fault) => return self.unmarked(fault, waits, begun),
        };
        let since = before(now);
        let Scope {
            source, entries, ..
        } = self.scope;
        let own = Unsettled {
            since,
            run: self.now.0,
            source,
            entries,
            boot: self.now.1,
            is_left: false,
        };
        mark.begin(own.clone());
        match self.root.set_mark(&mark.encode(), self.is_durable) {
            Ok(_) => {
                (begun.own, begun.mark) = (Some(own), Some(mark));
                if waits {
                    begun
                        .notes
                        .push("movers of an earlier run may have been active; this run waited until they had stopped".into());
                    clock.sleep(MOVERS_NOTICE);
                }
                Ok(())
            }
            Err(fault) => self.unmarked(fault, waits, begun),
        }
    }

    /// Whose movers may be at work, as the mark says now that nobody else can change it.
    fn movers_at_work(&self) -> Option<u128> {
        let marks = Marks::read_own(&self.root, self.scope).ok().flatten();
        marks.map_or(self.found.movers, |mark| mark.movers)
    }

    /// A root that takes no mark is no reason to copy nothing; a disk that keeps none is.
    fn unmarked(&self, fault: Fault, has_movers: bool, begun: &mut Begun) -> Result<(), RunError> {
        // Movers of an earlier run who cannot be told that it is over would go on.
        if has_movers || fault.errno == errno::EIO || fault.is_cut_off() {
            return Err(self.unusable(fault));
        }
        let after = "after a crash, compare it with verify --level media";
        begun.notes.push(format!(
            "\"{}\": {fault}; so changes that are not on disk cannot be recorded: {after}",
            self.path
        ));
        Ok(())
    }

    fn unusable(&self, fault: Fault) -> RunError {
        RunError::Unusable {
            path: self.path.clone(),
            cause: fault.to_string(),
        }
    }

    /// Whether nothing may be changed.
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Relaxed)
    }

    /// Why nothing was changed, if nothing might be.
    ///
    /// # Errors
    /// That.
    pub fn outcome(&self) -> Result<(), RunError> {
        self.begun.lock().refusal.take().map_or(Ok(()), Err)
    }

    /// Tells what the monitor should know of the replica, once.
    pub fn tell(&self, monitor: &dyn Monitor) {
        let at_work = self.at_work();
        if let Some(holder) = &at_work {
            let who = holder_words(holder.as_ref());
            monitor.note(&format!(
                "another run works on the replica{who}: its changes so far are compared by content"
            ));
        }
        let earlier = match &at_work {
            Some(holder) => self.doubt_before(holder.as_ref()),
            None => self.own_doubt(),
        };
        if earlier.is_some() {
            monitor.note("an earlier run was not made durable: what was changed on the replica since then is compared by content");
        }
        if let Some((path, _)) = self.doubt_above().next() {
            let path = escape(path.as_os_str().as_bytes());
            let what = "what was changed on the replica since then is compared by content";
            monitor.note(&format!("an earlier run was not made durable, on \"{path}\", in which the replica lies: {what}"));
        }
    }

    /// Returns since when the replica is in doubt because of runs before the one at work. What that
    /// one says of itself is no earlier run's: a mark that several runs have written does not name
    /// it, but its time does.
    fn doubt_before(&self, holder: Option<&Holder>) -> Option<Stamp> {
        let doubt = self.found.suspect_since(self.found.run, self.now.1);
        let began = holder.and_then(|holder| holder.since);
        let is_before = |since: &Stamp| {
            began.is_none_or(|began| since.sec < began.saturating_sub(MARGIN_SECONDS))
        };
        doubt.filter(is_before)
    }

    /// Who is at work on the replica meanwhile, where this run changes nothing and has no lock.
    fn at_work(&self) -> Option<Option<Holder>> {
        if self.name.is_some() || !self.locks.holds.is_empty() || self.own_doubt().is_none() {
            return None;
        }
        match self.root.lock(None, Reach::Seen) {
            Ok(Lock::Taken(holder)) => Some(holder),
            _ => None,
        }
    }

    /// What the run looks at.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The run is over, and has come to this end.
    pub fn end(&self, options: &Options, ending: &Ending, monitor: &dyn Monitor) {
        let mut begun = self.begun.lock();
        begun.notes.iter().for_each(|note| monitor.note(note));
        // Who has the lock now says what has become of what was changed.
        self.check_locks(&mut begun);
        if self.name.is_some() || !options.applies() || begun.refusal.is_some() {
            return;
        }
        let mut mark = self.found.settled(begun.own.as_ref(), self.now, ending);
        if begun.leaves_movers {
            mark.movers = Some(SOMEBODY);
        }
        if let Some(told) = &begun.mark {
            mark.upstream.clone_from(&told.upstream);
            mark.filled = told.filled;
        }
        self.keep_doubt(&begun, &mut mark);
        // A run that changes nothing makes no mark.
        if begun.own.is_some() || self.found.run != 0 {
            mark.filled = ending.filled.or(mark.filled);
        }
        if mark != self.found {
            let _it_says_more_than_it_must_if_that_fails = self.settle(&mut begun, &mark);
        }
    }

    /// A run that has changed nothing keeps nobody out until now: another may have something to say
    /// of what is not durable.
    fn settle(&self, begun: &mut Begun, mark: &Mark) -> Done {
        let is_own =
            begun.own.is_some() || self.keep_others_out(begun).is_ok() && self.is_as_found()?;
        if !is_own {
            return Ok(());
        }
        // The clock may have been put back since the run began: what it has changed may look older
        // than that.
        let mut put_back = mark.clone();
        put_back.put_back_to(before(self.root.set_mark(&mark.encode(), false)?));
        if put_back == *mark {
            Ok(())
        } else {
            self.root.set_mark(&put_back.encode(), false).map(drop)
        }
    }
}

/// Opens the tree's gate when it is dropped: what was to be done before the first change holds on
/// to the tree.
pub struct Watch(DirMutRef);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.before_change(None);
    }
}

/// The number of a run as the mark has it for those who help: never that of nobody.
fn movers_number(run: u64) -> u128 {
    1 << 64 | u128::from(run)
}

/// A moment at which nothing was changed yet that is changed from now on.
fn before(now: Stamp) -> Stamp {
    Stamp {
        sec: now.sec.saturating_sub(MARGIN_SECONDS),
        ..now
    }
}

/// What a run with these options looks at.
pub fn scope(options: &Options) -> Scope {
    let filter = &options.policy.filter;
    let chosen = options
        .selection
        .as_ref()
        .filter(|selection| !selection.whole);
    let has_bounds = filter.size_min.is_some() || filter.size_max.is_some();
    Scope {
        source: source_number(options, &RelPath::root()),
        entries: number(
            format!("{filter:?} {chosen:?} {}", options.policy.one_file_system).as_bytes(),
        ),
        whole: !filter.has_rules()
            && !has_bounds
            && chosen.is_none()
            && !options.policy.one_file_system,
    }
}
