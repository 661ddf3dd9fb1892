//! What an agent is to carry out, and the threads that wait for it.
//!
//! To wake a thread costs as much as a short request, so threads take several of these at a time,
//! and no more of them are woken than are needed for that. Where requests take long, each wakes a
//! thread of its own.

use crate::agent::objects::Call;
use driftless_lock::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Requests that a thread takes at a time, at most.
const HANDFUL_MAX: usize = 16;
/// How long a thread may have to do with what it takes.
const HANDFUL_TIME: Duration = Duration::from_micros(250);
/// Weight of the last burst in what is known of a request's time.
const LAST: f64 = 0.2;

/// Waiting requests.
#[derive(Default)]
pub struct CallQueue {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Call>,
    threads: usize,
    asleep: usize,
    /// Seconds that a request takes.
    each: f64,
    over: bool,
}

/// Requests that one thread carries out one after the other.
#[derive(Default)]
pub struct Burst {
    calls: VecDeque<Call>,
    taken: Option<(Instant, usize)>,
}

impl CallQueue {
    /// Adds requests.
    pub fn push(&self, calls: impl IntoIterator<Item = Call>) {
        let mut state = self.state.lock();
        if !state.over {
            state.waiting.extend(calls);
            self.wake(state.wanted());
        }
    }

    fn wake(&self, threads: usize) {
        for _ in 0..threads {
            self.more.notify_one();
        }
    }

    /// A thread that will take requests is about to be started.
    pub fn join(&self) {
        self.state.lock().threads += 1;
    }

    /// Whether requests wait although all threads are at work. If some sleep, one is woken: those
    /// that are awake have more to do than was thought.
    pub fn is_short_of_threads(&self) -> bool {
        let state = self.state.lock();
        if !state.waiting.is_empty() && state.asleep > 0 {
            self.more.notify_one();
        }
        !state.waiting.is_empty() && state.asleep == 0
    }

    /// Fills the burst, waiting for requests; false when there will be none.
    pub fn take(&self, burst: &mut Burst) -> bool {
        let mut state = self.state.lock();
        if let Some((since, count)) = burst.taken.take() {
            let last = since.elapsed().as_secs_f64() / count.max(1) as f64;
            state.each += LAST * (last - state.each);
        }
        while state.waiting.is_empty() && !state.over {
            state.asleep += 1;
            state = self.more.wait(state);
            state.asleep -= 1;
        }
        let count = state.burst().min(state.waiting.len());
        burst.calls.extend(state.waiting.drain(..count));
        burst.taken = Some((Instant::now(), count));
        !burst.calls.is_empty()
    }

    /// Ends all threads. What waits is dropped: nobody wants it any more.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.over = true;
        let dropped = std::mem::take(&mut state.waiting);
        drop(state);
        drop(dropped);
        self.more.notify_all();
    }
}

impl State {
    /// Requests that a thread takes at a time.
    fn burst(&self) -> usize {
        ((HANDFUL_TIME.as_secs_f64() / self.each.max(1e-9)) as usize).clamp(1, HANDFUL_MAX)
    }

    /// How many threads are to be woken for what waits. Those that are awake come back soon, unless
    /// requests take long.
    fn wanted(&self) -> usize {
        let burst = self.burst();
        let awake = if burst > 1 {
            self.threads - self.asleep
        } else {
            0
        };
        self.waiting
            .len()
            .div_ceil(burst)
            .saturating_sub(awake)
            .min(self.asleep)
    }
}

impl Burst {
    /// The next request. If those before it took longer than was thought, the others go back to
    /// `calls`.
    pub fn next(&mut self, calls: &CallQueue) -> Option<Call> {
        let next = self.calls.pop_front()?;
        if let Some((since, count)) = &mut self.taken
            && !self.calls.is_empty()
            && since.elapsed() > 2 * HANDFUL_TIME
        {
            *count -= self.calls.len();
            let mut state = calls.state.lock();
            let put_back = self.calls.drain(..).rev();
            if !state.over {
                put_back.for_each(|call| state.waiting.push_front(call));
                calls.wake(state.waiting.len().min(state.asleep));
            }
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::wire::Request;
    use std::sync::{Arc, Weak};

    fn calls(numbers: std::ops::Range<u64>) -> impl Iterator<Item = Call> {
        let requests = Arc::new(Budget::new(u64::MAX));
        numbers.map(move |number| {
            let (request, room) = (Request::Meta { at: 0 }, requests.taken(0));
            Call {
                number,
                request,
                data: Vec::new(),
                compressed: false,
                stream: Weak::new(),
                room,
            }
        })
    }

    fn all(burst: &mut Burst, from: &CallQueue) -> Vec<u64> {
        std::iter::from_fn(|| burst.next(from))
            .map(|call| call.number)
            .collect()
    }

    #[test]
    fn short_requests_are_taken_several_at_a_time_and_long_ones_one_by_one() {
        let (waiting, mut burst) = (CallQueue::default(), Burst::default());
        waiting.push(calls(0..40));
        assert!(waiting.take(&mut burst));
        assert_eq!(all(&mut burst, &waiting), (0..16).collect::<Vec<_>>());
        burst.taken = Some((Instant::now() - Duration::from_secs(1), 16));
        assert!(waiting.take(&mut burst));
        assert_eq!(all(&mut burst, &waiting), [16]);
    }

    #[test]
    fn what_a_slow_request_holds_up_goes_back_in_its_order() {
        let (waiting, mut burst) = (CallQueue::default(), Burst::default());
        waiting.push(calls(0..4));
        assert!(waiting.take(&mut burst));
        assert_eq!(burst.next(&waiting).map(|call| call.number), Some(0));
        burst.taken = Some((Instant::now() - Duration::from_secs(1), 4));
        assert_eq!(burst.next(&waiting).map(|call| call.number), Some(1));
        assert!(burst.next(&waiting).is_none());
        let mut other = Burst::default();
        assert!(waiting.take(&mut other));
        assert_eq!(all(&mut other, &waiting), [2, 3]);
    }

    #[test]
    fn what_waits_when_the_end_comes_is_dropped() {
        let (waiting, mut burst) = (CallQueue::default(), Burst::default());
        waiting.push(calls(0..4));
        waiting.end();
        waiting.push(calls(4..8));
        assert!(!waiting.take(&mut burst));
    }
}
