//! Whether a run still holds the replica, as its agent sees it.
//!
//! A mover asks before it submits anything. The agent may get to that much later: many operations
//! are under way at a time, and its process may have been stopped, or its machine. So it looks at
//! the replica's mark itself, before each change that it makes: the mark names the run whose movers
//! may be at work, and a run that takes the replica over changes it and waits longer than what was
//! seen there holds.

use driftless_lock::Mutex;
use driftless_model::{Act, Fault, Side, errno};
use driftless_reconcile::Mark;
use driftless_tree::{DirMut, DirMutRef, Done, MarkText, Sentry};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What was seen in the mark is looked at again after so long.
const MARK_INTERVAL: Duration = Duration::from_secs(1);
/// A look that took longer says nothing of now.
const LOOK_HOLDS: Duration = Duration::from_secs(3);
/// So many looks in a row that took longer are enough.
const LOOKS_MAX: u32 = 5;

/// Lets changes through as long as the mark of a replica names a run.
pub struct Hold {
    /// The replica's root, which the client has open.
    root: Weak<dyn DirMut>,
    identity: u128,
    movers: u128,
    /// Changes pass until then without a look, in milliseconds by a clock that goes on while the
    /// machine sleeps.
    until: AtomicU64,
    is_over: AtomicBool,
    looking: Mutex<()>,
}

/// Milliseconds by that clock (clock_gettime(2), `CLOCK_BOOTTIME`).
fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32).as_millis() as u64
}

impl Hold {
    /// Has every change of the tree of `root` wait for a look at its mark.
    pub fn guard(root: &DirMutRef, identity: u128, movers: u128) {
        let (until, is_over, looking) =
            (AtomicU64::new(0), AtomicBool::new(false), Mutex::default());
        root.guard(Some(Arc::new(Hold {
            root: Arc::downgrade(root),
            identity,
            movers,
            until,
            is_over,
            looking,
        })));
    }

    fn may_pass(&self) -> bool {
        !self.is_over.load(Ordering::Acquire) && now() < self.until.load(Ordering::Acquire)
    }

    /// Looks until a look was short enough to say something. One thread does; the others wait for
    /// what it sees.
    fn look(&self, is_known: impl Fn() -> bool) -> Done {
        let _one = self.looking.lock();
        for _ in 0..LOOKS_MAX {
            if is_known() {
                return Ok(());
            }
            let asked = now();
            let is_held = match self.root.upgrade() {
                Some(root) if !self.is_over.load(Ordering::Acquire) => {
                    self.is_named(&root.marks(false)?)
                }
                _ => false,
            };
            if !is_held {
                self.is_over.store(true, Ordering::Release);
                return Err(refused());
            }
            self.until
                .store(asked + MARK_INTERVAL.as_millis() as u64, Ordering::Release);
            if now() < asked + LOOK_HOLDS.as_millis() as u64 {
                return Ok(());
            }
        }
        Err(refused())
    }

    /// Whether the run is the one that these marks name.
    fn is_named(&self, texts: &[MarkText]) -> bool {
        let Some(marks) = texts
            .iter()
            .map(|found| Mark::decode(&found.text))
            .collect::<Option<Vec<Mark>>>()
        else {
            return false;
        };
        let one = marks.into_iter().reduce(|mut mark, other| {
            mark.take_over(other);
            mark
        });
        one.is_some_and(|mark| mark.identity == self.identity && mark.movers == Some(self.movers))
    }
}

fn refused() -> Fault {
    Fault {
        side: Side::Replica,
        act: Act::Change,
        errno: errno::EAGAIN,
    }
}

impl Sentry for Hold {
    fn pass(&self) -> Done {
        if self.may_pass() {
            Ok(())
        } else {
            self.look(|| self.may_pass())
        }
    }

    fn confirm(&self) -> Done {
        self.look(|| false)
    }
}
