//! What has to be done before a tree is changed for the first time.
//!
//! A run marks its replica before it changes anything there, and a run that changes nothing writes nothing at all. Which act will be the
//! first nobody knows beforehand, so every act that changes a tree passes its gate. Whoever comes first does what is to be done, and the
//! others wait for it; from then on the gate costs a look at a flag.

use crate::Done;
use crate::handles::lock;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Done before the first change. Where it fails, the change is not made.
pub type BeforeChange = Arc<dyn Fn() -> Done + Send + Sync>;

/// The gate of a tree; open until it is shut.
#[derive(Default)]
pub struct Gate {
    is_shut: AtomicBool,
    before: Mutex<Option<BeforeChange>>,
}

impl Gate {
    /// From now on the first change waits for `before`; `None` opens the gate.
    pub fn set(&self, before: Option<BeforeChange>) {
        let mut kept = lock(&self.before);
        self.is_shut.store(before.is_some(), Ordering::Release);
        *kept = before;
    }

    /// Lets a change through.
    pub fn pass(&self) -> Done {
        if self.is_shut.load(Ordering::Acquire) { self.open() } else { Ok(()) }
    }

    fn open(&self) -> Done {
        let mut before = lock(&self.before);
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
        out.debug_struct("Gate").field("is_shut", &self.is_shut).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Act, Fault, Side};
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn what_is_before_the_first_change_is_done_once_and_tried_again_when_it_fails() {
        let (gate, calls) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
        assert_eq!(gate.pass(), Ok(()));
        let counted = calls.clone();
        let refused = Fault { side: Side::Replica, act: Act::Mark, errno: 5 };
        gate.set(Some(Arc::new(move || if counted.fetch_add(1, Ordering::Relaxed) == 0 { Err(refused) } else { Ok(()) })));
        assert_eq!(gate.pass(), Err(refused));
        assert_eq!((gate.pass(), gate.pass()), (Ok(()), Ok(())));
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }
}
