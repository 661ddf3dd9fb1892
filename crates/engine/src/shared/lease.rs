//! What a mover may do, and for how long: it changes the replica only while its run holds that.
//!
//! The run holds the lock, and not the mover. So a mover looks: the replica's mark names the run
//! whose movers may be at work, and its coordinator gives a sign of life. What it knows of
//! that gets old within seconds. A mover that slept, because its process was stopped or its
//! machine, knows nothing until it has looked again: before each change a sentry in the gate of the
//! tree asks what time it is.
//!
//! A run that takes the replica over changes the mark first and then waits for [`MOVERS_NOTICE`];
//! by then what each mover knows is too old. What a mover has asked of the kernel, or of a file
//! server, before it was stopped is done when it goes on, one call for each thread: nobody can take
//! that back. Nor can a machine know that it slept whose clock slept, too.

use crate::clock::MachineClock;
use crate::shared::brief::Brief;
use crate::trees::held::Held;
use crate::trees::marks::Marks;
use driftless_lock::{Condvar, Mutex};
use driftless_model::{Act, Fault, Side, errno};
use driftless_reconcile::{Mark, Scope};
use driftless_tree::{DirMutRef, Done, Sentry};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// For so long what was read in the mark holds.
const MARK_HOLDS: Duration = Duration::from_secs(3);

/// A coordinator that gave no sign of life for so long is gone.
const SIGN_HOLDS: Duration = Duration::from_secs(15);

/// A mover that did nothing for so long may have slept, and asks before it goes on.
const NAP: Duration = Duration::from_millis(500);

/// Between two looks at the mark.
const MARK_INTERVAL: Duration = Duration::from_secs(1);

/// Between two moments at which a mover knows that it is awake.
const TICK: Duration = Duration::from_millis(50);

/// A moment by a clock that goes on while the machine sleeps (clock_gettime(2), `CLOCK_BOOTTIME`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// This one.
    pub fn now() -> Moment {
        let now = clock_gettime(ClockId::Boottime);
        Moment(Duration::new(
            now.tv_sec.cast_unsigned(),
            now.tv_nsec as u32,
        ))
    }

    /// So long after the clock began.
    pub fn after(span: Duration) -> Moment {
        Moment(span)
    }

    fn to(self, later: Moment) -> Duration {
        later.0.saturating_sub(self.0)
    }
}

/// The clock that a lease is kept by.
pub trait LeaseClock: Send + Sync {
    /// This moment. It is asked for before each change, by the thread that makes it.
    fn moment(&self) -> Moment;
    /// A change waits until more is known; `wait` does that for a while.
    fn rest(&self, wait: &dyn Fn());
}

impl LeaseClock for MachineClock {
    fn moment(&self) -> Moment {
        Moment::now()
    }

    fn rest(&self, wait: &dyn Fn()) {
        wait();
    }
}

/// Why a mover may not change the replica any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Over {
    /// Nobody wants it any more: the batch was taken away, or the coordinator is gone.
    Unwanted,
    /// The replica is no longer its run's, in words.
    NotHeld(String),
    /// It is not the replica that the coordinator sees.
    OtherTree,
    /// Whether it is cannot be found out, and why.
    Unknown(String),
}

/// What a mover may do as long as it carries out a batch.
pub struct Lease {
    /// Changes pass until then, in milliseconds by the clock of [`Moment`].
    until: AtomicU64,
    is_over: AtomicBool,
    clock: Arc<dyn LeaseClock>,
    known: Mutex<Known>,
    changed: Condvar,
    /// The replica while it is open, and what its mark has to say; nothing where no mark can be
    /// seen.
    mark: Mutex<Option<(DirMutRef, Option<Held>)>>,
}

/// What a mover knows, and since when.
struct Known {
    /// It is awake.
    awake: Moment,
    /// It woke up, or began: what it learned before that says nothing of now.
    woke: Moment,
    /// The mark was as it has to be.
    marked: Option<Moment>,
    /// There is no mark to look at, so that nothing hangs on it.
    unmarked: bool,
    /// The coordinator gave a sign of life.
    heard: Option<Moment>,
    over: Option<Over>,
}

impl Known {
    /// Until when changes may pass, as far as is known.
    fn until(&self) -> Option<Duration> {
        let fresh = |moment: Option<Moment>| moment.filter(|moment| *moment >= self.woke);
        let heard = fresh(self.heard)?.0 + SIGN_HOLDS;
        let marked = if self.unmarked {
            heard
        } else {
            fresh(self.marked)?.0 + MARK_HOLDS
        };
        self.over
            .is_none()
            .then(|| (self.awake.0 + NAP).min(heard).min(marked))
    }
}

impl Default for Lease {
    fn default() -> Self {
        Lease::by(Arc::new(MachineClock))
    }
}

impl Lease {
    /// A lease that is kept by this clock.
    pub fn by(clock: Arc<dyn LeaseClock>) -> Lease {
        let now = clock.moment();
        let known = Known {
            awake: now,
            woke: now,
            marked: None,
            unmarked: false,
            heard: None,
            over: None,
        };
        Lease {
            until: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            clock,
            known: Mutex::new(known),
            changed: Condvar::new(),
            mark: Mutex::default(),
        }
    }

    /// The mover is awake. Called at least every [`NAP`] by a thread that does nothing else.
    pub fn tick(&self) {
        let now = self.clock.moment();
        self.learn(|known| {
            if known.awake.to(now) >= NAP {
                known.woke = now;
            }
            known.awake = now;
        });
    }

    /// The coordinator wanted the batch at this moment, or later.
    pub fn heard(&self, at: Moment) {
        self.learn(|known| known.heard = known.heard.max(Some(at)));
    }

    /// Whether a sign of life of the coordinator is missing: what was heard is older than the
    /// mover's sleep.
    pub fn wants_sign(&self) -> bool {
        let known = self.known.lock();
        known.heard.is_none_or(|heard| heard < known.woke)
    }

    /// Whether the coordinator gave no sign of life for so long that it must be gone.
    pub fn is_unheard(&self) -> bool {
        let now = self.clock.moment();
        let known = self.known.lock();
        // Who slept asks first.
        known.heard.unwrap_or(known.woke).max(known.woke).to(now) >= SIGN_HOLDS
    }

    /// From now on nothing may be changed. The first reason counts.
    pub fn end(&self, over: Over) {
        self.learn(|known| {
            known.over.get_or_insert(over);
        });
        self.is_over.store(true, Ordering::Release);
    }

    /// Why nothing may be changed any more, if nothing may.
    pub fn over(&self) -> Option<Over> {
        self.known.lock().over.clone()
    }

    /// Whether nothing may be changed any more.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn learn(&self, learn: impl FnOnce(&mut Known)) {
        let mut known = self.known.lock();
        learn(&mut known);
        self.until.store(
            known.until().map_or(0, |until| until.as_millis() as u64),
            Ordering::Release,
        );
        drop(known);
        self.changed.notify_all();
    }

    /// Stands guard over the tree of `replica`, in which nothing may be changed but for the run of
    /// `brief`.
    ///
    /// # Errors
    /// It is not that run's.
    pub fn guard(self: &Arc<Self>, replica: &DirMutRef, brief: &Brief) -> Result<(), Over> {
        self.guard_held(replica, brief.held())
    }

    /// The same for whoever `held` the replica and lets others change it.
    ///
    /// # Errors
    /// It is not that one's.
    pub fn guard_held(
        self: &Arc<Self>,
        replica: &DirMutRef,
        held: Option<Held>,
    ) -> Result<(), Over> {
        let held = held.filter(|held| !held.is_hidden || replica.rights().trusted);
        *self.mark.lock() = Some((replica.clone(), held));
        self.learn(|known| known.unmarked = held.is_none());
        replica.guard(Some(self.clone()));
        if let Some(held) = held {
            replica
                .hold(held.identity, held.movers)
                .map_err(|fault| Over::Unknown(fault.to_string()))?;
        }
        self.look();
        self.over().map_or(Ok(()), Err)
    }

    /// Lets go of the tree, when nobody uses it any more.
    pub fn leave(&self) {
        if let Some((replica, _)) = self.mark.lock().take() {
            replica.guard(None);
        }
    }

    /// Keeps the mover's knowledge fresh until `over`: that it is awake.
    pub fn tick_until(&self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            self.tick();
            std::thread::park_timeout(TICK);
        }
    }

    /// Looks whether the mark names its run. A file system that does not answer keeps this thread
    /// waiting, and nobody else.
    pub fn look_until(&self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            self.look_if_due();
            std::thread::park_timeout(TICK);
        }
    }

    /// Looks at the mark if it was not looked at for long.
    pub fn look_if_due(&self) {
        let now = self.clock.moment();
        let is_due = {
            let known = self.known.lock();
            known
                .marked
                .is_none_or(|marked| marked < known.woke || marked.to(now) >= MARK_INTERVAL)
        };
        if is_due {
            self.look();
        }
    }

    fn look(&self) {
        let Some((replica, Some(held))) = self.mark.lock().clone() else {
            return;
        };
        let asked = self.clock.moment();
        let found = Marks::read_own(
            &replica,
            Scope {
                source: 0,
                entries: 0,
                whole: false,
            },
        );
        match found.map(|mark| not_held(mark.as_ref(), held)) {
            Ok(None) => self.learn(|known| known.marked = Some(asked)),
            Ok(Some(over)) => self.end(over),
            // A lost line is made again, and a file system may answer the next time.
            Err(fault) if !fault.is_cut_off() && self.is_blind() => {
                self.end(Over::Unknown(fault.to_string()))
            }
            Err(_) => {}
        }
    }

    /// Whether the mark could not be read for so long that it is of no use to wait.
    fn is_blind(&self) -> bool {
        let now = self.clock.moment();
        let known = self.known.lock();
        known.marked.unwrap_or(known.woke).max(known.woke).to(now) >= SIGN_HOLDS
    }

    /// Waits until it is known whether changes may be made.
    fn wait(&self) -> Done {
        loop {
            if self.is_over() || self.over().is_some() {
                return Err(Fault {
                    side: Side::Replica,
                    act: Act::Change,
                    errno: errno::EAGAIN,
                });
            }
            let until = self.until.load(Ordering::Acquire);
            if self.may_pass() {
                return Ok(());
            }
            self.clock.rest(&|| self.wait_for_news(until));
        }
    }

    /// Whether a change may pass now. Nothing is held while the clock is asked: it may take its
    /// time to answer.
    fn may_pass(&self) -> bool {
        let now = self.clock.moment().0.as_millis() as u64;
        now < self.until.load(Ordering::Acquire)
    }

    /// Waits for a while, unless more has come to be known since changes might pass `until` then.
    fn wait_for_news(&self, until: u64) {
        let known = self.known.lock();
        if known.over.is_none() && self.until.load(Ordering::Acquire) == until {
            drop(self.changed.wait_for(known, TICK));
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Lease")
            .field("until", &self.until)
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

impl Sentry for Lease {
    fn pass(&self) -> Done {
        if self.may_pass() { Ok(()) } else { self.wait() }
    }

    fn confirm(&self) -> Done {
        self.pass()?;
        self.look();
        self.pass()
    }
}

/// Why movers of a run may not change a replica with this mark, if they may not.
fn not_held(mark: Option<&Mark>, held: Held) -> Option<Over> {
    match mark {
        Some(mark) if mark.identity == held.identity && mark.movers == Some(held.movers) => None,
        Some(mark) if mark.identity == held.identity => Some(Over::NotHeld(
            "the run that this batch belongs to is over, or another one works on the replica now"
                .into(),
        )),
        _ => Some(Over::OtherTree),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    fn known() -> Known {
        Known {
            awake: at(100),
            woke: at(50),
            marked: Some(at(99)),
            unmarked: false,
            heard: Some(at(95)),
            over: None,
        }
    }

    #[test]
    fn what_a_mover_knows_gets_old_and_sleep_makes_it_forget() {
        let cases = [
            (known(), Some(Duration::from_millis(100_500))),
            (
                Known {
                    marked: Some(at(97)),
                    ..known()
                },
                Some(Duration::from_secs(100)),
            ),
            (
                Known {
                    heard: Some(at(85)),
                    ..known()
                },
                Some(Duration::from_secs(100)),
            ),
            (
                Known {
                    woke: at(96),
                    ..known()
                },
                None,
            ),
            (
                Known {
                    woke: at(100),
                    ..known()
                },
                None,
            ),
            (
                Known {
                    heard: None,
                    ..known()
                },
                None,
            ),
            (
                Known {
                    marked: None,
                    ..known()
                },
                None,
            ),
            (
                Known {
                    marked: None,
                    unmarked: true,
                    ..known()
                },
                Some(Duration::from_millis(100_500)),
            ),
            (
                Known {
                    over: Some(Over::Unwanted),
                    ..known()
                },
                None,
            ),
        ];
        for (number, (known, until)) in cases.into_iter().enumerate() {
            assert_eq!(known.until(), until, "{number}");
        }
    }

    #[test]
    fn changes_wait_for_a_sign_and_end_with_the_lease() {
        let (lease, over) = (Arc::new(Lease::default()), AtomicBool::new(false));
        lease.learn(|known| known.unmarked = true);
        std::thread::scope(|scope| {
            scope.spawn(|| lease.tick_until(&over));
            let change = scope.spawn(|| lease.pass());
            assert!(!change.is_finished() && lease.wants_sign());
            lease.heard(Moment::now());
            assert_eq!(change.join().expect("the change"), Ok(()));
            assert_eq!(lease.confirm(), Ok(()));
            lease.end(Over::Unwanted);
            assert!(lease.pass().is_err() && lease.is_over());
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_mark_lets_the_movers_of_one_run_change_one_replica() {
        let held = Held {
            identity: 1,
            movers: 2,
            is_hidden: false,
        };
        let mark = |identity, movers| Mark {
            movers,
            ..Mark::new(identity)
        };
        assert_eq!(not_held(Some(&mark(1, Some(2))), held), None);
        for other in [
            Some(mark(1, Some(3))),
            Some(mark(1, None)),
            Some(mark(2, Some(2))),
            None,
        ] {
            assert!(not_held(other.as_ref(), held).is_some(), "{other:?}");
        }
    }
}
