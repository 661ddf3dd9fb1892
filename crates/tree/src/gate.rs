//! What has to be done before the first change of a tree, and the sentry that is asked before each
//! change.
//!
//! A run marks its replica before it changes anything there, and a run that changes nothing writes
//! nothing at all. Nobody knows beforehand which act will be the first, so every act that changes a
//! tree passes its gate. The thread that comes first does what is to be done, and the other threads
//! wait for it; from then on the gate costs a look at a flag.
//!
//! A mover works for a coordinator, and may change the tree only as long as the coordinator wants
//! it. So a sentry can stand at the gate, which lets each change through or refuses it; without a
//! sentry, that costs a look at a flag, too.

use crate::Done;
use driftless_lock::{Mutex, RwLock};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is done before the first change. If it fails, the change is not made, and it is tried again
/// before the next one.
pub type BeforeChange = Arc<dyn Fn() -> Done + Send + Sync>;

/// Lets each change through, or refuses it.
pub trait Sentry: Send + Sync {
    /// Lets a change through that is about to be made. Costs next to nothing as long as nothing
    /// unusual has happened.
    fn pass(&self) -> Done;
    /// Lets a change through on which much depends: first looks whether what it knows is still so.
    fn confirm(&self) -> Done;
}

/// The gate of a tree; open until it is shut.
#[derive(Default)]
pub struct Gate {
    is_shut: AtomicBool,
    before: Mutex<Option<BeforeChange>>,
    is_guarded: AtomicBool,
    sentry: RwLock<Option<Arc<dyn Sentry>>>,
}

impl Gate {
    /// From now on the first change waits for `before`; `None` opens the gate.
    pub fn set(&self, before: Option<BeforeChange>) {
        let mut kept = self.before.lock();
        self.is_shut.store(before.is_some(), Ordering::Release);
        *kept = before;
    }

    /// From now on `sentry` lets each change through or refuses it; `None` sends the sentry away.
    pub fn guard(&self, sentry: Option<Arc<dyn Sentry>>) {
        let mut kept = self.sentry.write();
        self.is_guarded.store(sentry.is_some(), Ordering::Release);
        *kept = sentry;
    }

    /// Lets a change through.
    pub fn pass(&self) -> Done {
        if self.is_guarded.load(Ordering::Acquire) {
            self.ask(|sentry| sentry.pass())?;
        }
        if self.is_shut.load(Ordering::Acquire) {
            self.open()
        } else {
            Ok(())
        }
    }

    /// Lets a change through on which much depends: the sentry looks anew.
    pub fn confirm(&self) -> Done {
        self.ask(|sentry| sentry.confirm())
            .and_then(|()| self.pass())
    }

    fn ask(&self, question: impl Fn(&dyn Sentry) -> Done) -> Done {
        // The lock is not held meanwhile: a thread that waits here must not keep the sentry from
        // being sent away.
        let sentry = self.sentry.read().clone();
        sentry.map_or(Ok(()), |sentry| question(&*sentry))
    }

    fn open(&self) -> Done {
        let mut before = self.before.lock();
        if let Some(act) = &*before {
            act()?;
            *before = None;
            self.is_shut.store(false, Ordering::Release);
        }
        Ok(())
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Gate")
            .field("is_shut", &self.is_shut)
            .field("is_guarded", &self.is_guarded)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Act, Fault, Side};
    use std::sync::atomic::AtomicUsize;

    /// Lets this many changes through.
    struct Few(AtomicUsize);

    impl Sentry for Few {
        fn pass(&self) -> Done {
            let left = self
                .0
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                });
            left.map(drop).map_err(|_| Fault {
                side: Side::Replica,
                act: Act::Change,
                errno: 11,
            })
        }

        fn confirm(&self) -> Done {
            self.pass()
        }
    }

    #[test]
    fn a_sentry_is_asked_before_each_change_until_it_is_sent_away() {
        let gate = Gate::default();
        gate.guard(Some(Arc::new(Few(AtomicUsize::new(3)))));
        assert_eq!((gate.pass(), gate.confirm()), (Ok(()), Ok(())));
        assert!(gate.pass().is_err() && gate.confirm().is_err());
        gate.guard(None);
        assert_eq!((gate.pass(), gate.confirm()), (Ok(()), Ok(())));
    }

    #[test]
    fn a_rename_that_is_refused_at_the_last_moment_leaves_both_names_as_they_are() {
        use crate::{Dir, DirMut, HandlePool, LocalDir};
        use rustix::fs::{Mode, OFlags, open};
        let folder = tempfile::tempdir().expect("a folder");
        for (name, content) in [("temp", "old"), ("name", "newer")] {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
            let file = open(folder.path().join(name), flags, Mode::RUSR).expect("a file");
            rustix::io::write(file, content.as_bytes()).expect("written");
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(folder.path(), flags, Mode::empty()).expect("open");
        let dir = LocalDir::root(&HandlePool::new(16), Side::Replica, fd).expect("root");
        dir.guard(Some(Arc::new(Few(AtomicUsize::new(0)))));
        assert!(dir.rename(c"temp", c"name").is_err());
        assert!(dir.take(&dir, c"temp", c"name").is_err());
        let size = |name| dir.look(name).expect("it is there").size;
        assert_eq!((size(c"name"), size(c"temp")), (5, 3));
        dir.guard(None);
        dir.rename(c"temp", c"name").expect("renamed");
        assert_eq!(size(c"name"), 3);
    }

    #[test]
    fn what_is_before_the_first_change_is_done_once_and_tried_again_when_it_fails() {
        let (gate, calls) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
        assert_eq!(gate.pass(), Ok(()));
        let counted = calls.clone();
        let refused = Fault {
            side: Side::Replica,
            act: Act::Mark,
            errno: 5,
        };
        gate.set(Some(Arc::new(move || {
            if counted.fetch_add(1, Ordering::Relaxed) == 0 {
                Err(refused)
            } else {
                Ok(())
            }
        })));
        assert_eq!(gate.pass(), Err(refused));
        assert_eq!((gate.pass(), gate.pass()), (Ok(()), Ok(())));
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }
}
