//! The work that waits, and the threads that wait for work.
//!
//! Pieces of large files go before everything else, and shares of directories that others are busy
//! with after everything else: many threads in one directory get in each other's way. In between,
//! as long as little waits the oldest item is taken first, so that wide directories and large files
//! are found early; when much waits the newest is, so that the walk goes down before it goes on and
//! what waits stays bounded. Where it takes a while until an item can be worked on, because another
//! host is asked for it when it is added, younger ones are left aside. The queue knows how many
//! threads are idle; a thread that holds much work asks [`hungry`](Queue::hungry) and gives half of
//! it away.

use driftless_lock::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[derive(Debug)]
struct State<T> {
    first: VecDeque<T>,
    main: VecDeque<T>,
    last: VecDeque<T>,
    /// Threads that hold an item.
    active: usize,
    /// Threads that may take items; the others sleep.
    admitted: usize,
    stopped: bool,
    /// Items that were added last and are left for a while, since what they need is on its way.
    young: usize,
}

/// Up to this many waiting items the oldest is taken first.
const OLDEST_FIRST_MAX: usize = 256;

impl<T> State<T> {
    fn is_empty(&self) -> bool {
        self.first.is_empty() && self.main.is_empty() && self.last.is_empty()
    }

    fn next(&mut self) -> Option<T> {
        self.first
            .pop_front()
            .or_else(|| self.next_main())
            .or_else(|| self.last.pop_front())
    }

    fn next_main(&mut self) -> Option<T> {
        let waiting = self.main.len();
        if waiting <= OLDEST_FIRST_MAX + self.young {
            return self.main.pop_front();
        }
        // About the newest that is not young: the last takes its place.
        self.main.swap_remove_back(waiting - 1 - self.young)
    }
}

/// A queue of items for a pool of threads. The work is over when nothing waits and nobody holds an
/// item.
#[derive(Debug)]
pub struct Queue<T> {
    state: Mutex<State<T>>,
    for_items: Condvar,
    for_turn: Condvar,
    idle: AtomicUsize,
    waiting: AtomicUsize,
}

impl<T> Queue<T> {
    /// An empty queue that admits `admitted` threads.
    pub fn new(admitted: usize) -> Self {
        let state = State {
            first: VecDeque::new(),
            main: VecDeque::new(),
            last: VecDeque::new(),
            active: 0,
            admitted,
            stopped: false,
            young: 0,
        };
        Queue {
            state: Mutex::new(state),
            for_items: Condvar::new(),
            for_turn: Condvar::new(),
            idle: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }

    /// Adds an item.
    pub fn push(&self, item: T) {
        let mut state = self.lock();
        state.main.push_back(item);
        self.added(state);
    }

    /// Adds an item that is taken when there is nothing else.
    pub fn push_last(&self, item: T) {
        let mut state = self.lock();
        state.last.push_back(item);
        self.added(state);
    }

    /// Adds an item that is taken before all that are not.
    pub fn push_first(&self, item: T) {
        let mut state = self.lock();
        state.first.push_back(item);
        self.added(state);
    }

    fn added(&self, state: MutexGuard<'_, State<T>>) {
        self.count(&state);
        drop(state);
        if self.idle.load(Relaxed) > 0 {
            self.for_items.notify_one();
        }
    }

    fn count(&self, state: &State<T>) {
        self.waiting.store(
            state.first.len() + state.main.len() + state.last.len(),
            Relaxed,
        );
    }

    /// How many items wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Whether threads are idle that find nothing to take.
    pub fn hungry(&self) -> bool {
        self.idle.load(Relaxed) > self.waiting.load(Relaxed)
    }

    /// Leaves the `young` items that were added last for a while, as long as there are others.
    pub fn leave_young(&self, young: usize) {
        self.lock().young = young;
    }

    /// How many threads may take items.
    pub fn admitted(&self) -> usize {
        self.lock().admitted
    }

    /// How many admitted threads are idle.
    pub fn idle(&self) -> usize {
        self.idle.load(Relaxed)
    }

    /// Takes the next item for thread number `index`, waiting for one; `None` when the work is
    /// over. An item that was taken before must be [`done`](Queue::done).
    pub fn take(&self, index: usize) -> Option<T> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            if index >= state.admitted {
                if !state.is_empty() {
                    self.for_items.notify_one();
                }
                state = self.for_turn.wait(state);
                continue;
            }
            if let Some(item) = state.next() {
                self.count(&state);
                state.active += 1;
                return Some(item);
            }
            if state.active == 0 {
                self.end(&mut state);
                return None;
            }
            self.idle.fetch_add(1, Relaxed);
            state = self.for_items.wait(state);
            self.idle.fetch_sub(1, Relaxed);
        }
    }

    /// Says that something is under way that is no item of this queue; the work is not over before
    /// it is [`done`](Queue::done).
    pub fn hold(&self) {
        self.lock().active += 1;
    }

    /// Whether the work is over.
    pub fn is_over(&self) -> bool {
        self.lock().stopped
    }

    /// Says that an item that was taken is done, after whatever it led to was added.
    pub fn done(&self) {
        let mut state = self.lock();
        state.active -= 1;
        if state.active == 0 && state.is_empty() {
            self.end(&mut state);
        }
    }

    fn end(&self, state: &mut State<T>) {
        state.stopped = true;
        self.for_items.notify_all();
        self.for_turn.notify_all();
    }

    /// Changes how many threads are admitted.
    pub fn admit(&self, admitted: usize) {
        self.lock().admitted = admitted;
        self.for_turn.notify_all();
        self.for_items.notify_all();
    }

    /// Waits until the work is over, at most for `limit`; returns whether it is.
    pub fn wait_over(&self, limit: std::time::Duration) -> bool {
        let mut state = self.lock();
        if !state.stopped {
            state = self.for_turn.wait_for(state, limit);
        }
        state.stopped
    }

    /// Opens an ended queue for another round of work.
    pub fn reopen(&self) {
        self.lock().stopped = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn what_was_added_last_is_left_for_a_while() {
        let queue = Queue::new(1);
        queue.leave_young(100);
        let many = OLDEST_FIRST_MAX as u64 + 101;
        (0..many).for_each(|item| queue.push(item));
        let take = || {
            let item = queue.take(0);
            queue.done();
            item
        };
        assert_eq!(take(), Some(many - 101), "the newest that is not young");
        assert_eq!(
            (take(), take()),
            (Some(0), Some(1)),
            "the oldest when little waits"
        );
        let mut rest: Vec<u64> = (3..many).filter_map(|_| take()).collect();
        rest.sort_unstable();
        assert_eq!(
            rest,
            (2..many)
                .filter(|item| *item != many - 101)
                .collect::<Vec<_>>(),
            "and all in the end"
        );
    }

    #[test]
    fn the_work_is_over_when_nothing_waits_and_nobody_works() {
        let queue = Queue::new(4);
        let sum = AtomicU64::new(0);
        queue.push(12u64);
        std::thread::scope(|scope| {
            for index in 0..6 {
                let (queue, sum) = (&queue, &sum);
                scope.spawn(move || {
                    while let Some(n) = queue.take(index) {
                        sum.fetch_add(1, Relaxed);
                        (0..n).for_each(|i| match i % 3 {
                            0 => queue.push(i),
                            1 => queue.push_first(i),
                            _ => queue.push_last(i),
                        });
                        queue.done();
                    }
                });
            }
        });
        // An item n leads to items 0..n: 2^n in all.
        assert_eq!(sum.into_inner(), 1 << 12);
        assert!(queue.wait_over(std::time::Duration::ZERO) && queue.waiting() == 0);
    }
}
