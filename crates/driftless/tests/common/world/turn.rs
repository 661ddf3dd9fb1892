//! Threads of which one goes on at a time: the world, and the hands and the eyes of a mover.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    World,
    /// What makes changes.
    Hands,
    /// What looks after a batch meanwhile.
    Eyes,
}

struct Inner {
    who: Who,
    has_eyes: bool,
    is_free: bool,
    is_gone: bool,
}

/// The turn of one mover.
pub struct Turn {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Turn {
    pub fn new() -> Turn {
        Turn {
            inner: Mutex::new(Inner {
                who: Who::World,
                has_eyes: false,
                is_free: false,
                is_gone: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.inner());
        self.changed.notify_all();
    }

    fn wait_until<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        is_so: impl Fn(&Inner) -> bool,
    ) -> MutexGuard<'a, Inner> {
        while !is_so(&inner) {
            inner = self
                .changed
                .wait(inner)
                .unwrap_or_else(PoisonError::into_inner);
        }
        inner
    }

    /// The world lets the hands or the eyes go on, until they give the turn back.
    pub fn hand_to(&self, who: Who) {
        let mut inner = self.inner();
        if inner.is_gone || who == Who::Eyes && !inner.has_eyes {
            return;
        }
        inner.who = who;
        self.changed.notify_all();
        drop(self.wait_until(inner, |inner| inner.who == Who::World));
    }

    /// The hands give their turn back, and go on when they get the next one.
    pub fn pause(&self) {
        let mut inner = self.inner();
        if inner.who != Who::Hands || inner.is_free {
            return;
        }
        inner.who = Who::World;
        self.changed.notify_all();
        drop(self.wait_until(inner, |inner| inner.who == Who::Hands));
    }

    /// The hands wait for their first turn.
    pub fn begin(&self) {
        drop(self.wait_until(self.inner(), |inner| inner.who == Who::Hands));
    }

    /// The hands have come to their end.
    pub fn end(&self) {
        self.change(|inner| (inner.who, inner.is_gone, inner.has_eyes) = (Who::World, true, false));
    }

    /// Hands that are free do not wait.
    pub fn set_free(&self, is_free: bool) {
        self.change(|inner| inner.is_free = is_free);
    }

    pub fn open_eyes(&self) {
        self.change(|inner| inner.has_eyes = true);
    }

    pub fn close_eyes(&self) {
        self.change(|inner| inner.has_eyes = false);
    }

    /// The eyes wait for their turn; says whether there is one.
    pub fn wait_for_eyes(&self) -> bool {
        self.wait_until(self.inner(), |inner| {
            !inner.has_eyes || inner.who == Who::Eyes
        })
        .has_eyes
    }

    /// The eyes give their turn back.
    pub fn blink(&self) {
        self.change(|inner| inner.who = Who::World);
    }
}
