//! The standard library's locks, without their poison: a thread that panicked ends the run, and who
//! comes after it need not be told again.
//!
//! Not `parking_lot`: its locks spin before they sleep, and where every processor is busy (a copy
//! with both ends of a line on one machine) that costs more than the sleep: 8 % of the time of a
//! first copy over ssh with two processors.

use std::sync::{self, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Duration;

/// One at a time: [`sync::Mutex`].
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Around a value, and free.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// The value, when nobody else can have it any more.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for its turn.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if another has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value, of a lock that nobody else can hold.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Many that read, or one that writes: [`sync::RwLock`].
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Around a value, and free.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until nobody writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if another writes.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.0.try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits until nobody reads or writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads that sleep until something has changed: [`sync::Condvar`].
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// With nobody asleep.
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Gives the lock up, sleeps until it is woken (or for no reason), and has the lock again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Condvar::wait`], and no longer than `limit`.
    pub fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
        self.0
            .wait_timeout(guard, limit)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Wakes one of those asleep.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all of them.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::{Condvar, Mutex, RwLock};
    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_thread_that_panicked_with_a_lock_leaves_it_usable() {
        let (mutex, shared) = (Mutex::new(1), RwLock::new(1));
        let panicked = thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let (mut one, mut other) = (mutex.lock(), shared.write());
                (*one, *other) = (2, 2);
                panic!("with both locks");
            });
            holder.join()
        });
        assert!(panicked.is_err());
        assert_eq!(*mutex.lock(), 2);
        assert_eq!(mutex.try_lock().map(|guard| *guard), Some(2));
        assert_eq!(*shared.read(), 2);
        assert_eq!(*shared.write(), 2);
        assert_eq!(mutex.into_inner(), 2);
    }

    #[test]
    fn a_lock_that_is_held_cannot_be_had() {
        let mutex = Mutex::new(());
        let held = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(held);
        assert!(mutex.try_lock().is_some());
    }

    #[test]
    fn who_waits_is_woken_or_comes_back_by_himself() {
        let (ready, changed) = (Mutex::new(false), Condvar::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                *ready.lock() = true;
                changed.notify_all();
            });
            let mut is_ready = ready.lock();
            while !*is_ready {
                is_ready = changed.wait(is_ready);
            }
        });
        assert!(*changed.wait_for(ready.lock(), Duration::from_millis(1)));
    }
}
