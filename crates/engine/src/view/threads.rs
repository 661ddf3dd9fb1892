//! Threads that read the views of many entries.
//!
//! A view takes several requests, each of which takes milliseconds on a slow file system. One
//! thread would hold up the coordinator, and with it all movers, for minutes at each batch. Each
//! thread has readers of its own, and takes entries beside each other, which share the way to them.

use crate::options::Throttle;
use driftless_pool::{Concurrency, Queue, Workload, drive};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Entries beside each other that one thread takes at a time.
const NEIGHBOURS: usize = 8;
/// Time for which the thread of the caller is enough: others take longer to start.
const FEW_TIME: Duration = Duration::from_millis(2);
/// Requests that an entry takes on both trees, about.
const REQUESTS: u32 = 8;

/// Number of threads that read views, and the monitor of their work.
pub struct ViewThreads<'a> {
    jobs: Concurrency,
    threads_max: usize,
    tell: &'a (dyn Fn() + Sync),
}

impl<'a> ViewThreads<'a> {
    /// Takes as many threads as a run with this throttle, at most `threads_max`, and calls `tell` a
    /// few times a second while they work. Under a limit on requests one thread reads, so that
    /// views, which do not count, add little to the load.
    pub fn of(throttle: &Throttle, threads_max: usize, tell: &'a (dyn Fn() + Sync)) -> Self {
        let jobs = match throttle.requests_per_second_max {
            Some(_) => Concurrency::Fixed(1),
            None => throttle.jobs,
        };
        ViewThreads {
            jobs,
            threads_max,
            tell,
        }
    }

    /// Calls `read` for each number below `count`, in any order. `begin` makes the `read` of each
    /// thread.
    pub fn read_each<R: FnMut(usize)>(&self, count: usize, begin: &(impl Fn() -> R + Sync)) {
        let (began, mut read, mut next) = (Instant::now(), begin(), 0);
        while next < count && began.elapsed() < FEW_TIME {
            read(next);
            next += 1;
        }
        drop(read);
        let shares = (count - next).div_ceil(NEIGHBOURS);
        if shares == 0 {
            return;
        }
        // The first views tell how slow a request is: a pool that finds out needs seconds.
        let delay = began.elapsed() / (next as u32).max(1) / REQUESTS;
        let reading = ViewReading {
            threads: self,
            begin,
            delay,
            queue: Queue::new(0),
            done: AtomicU64::new(0),
        };
        (next..count)
            .step_by(NEIGHBOURS)
            .for_each(|start| reading.queue.push(start..count.min(start + NEIGHBOURS)));
        drive(&reading, self.threads_max.min(shares));
    }
}

/// Entries whose views are read, as ranges of their numbers.
struct ViewReading<'a, B> {
    threads: &'a ViewThreads<'a>,
    begin: &'a B,
    /// Time of a request, about.
    delay: Duration,
    queue: Queue<Range<usize>>,
    done: AtomicU64,
}

impl<R: FnMut(usize), B: Fn() -> R + Sync> Workload for ViewReading<'_, B> {
    type Item = Range<usize>;

    fn queue(&self) -> &Queue<Range<usize>> {
        &self.queue
    }

    fn concurrency(&self) -> Concurrency {
        self.threads.jobs
    }

    fn work_done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    fn work(&self, index: usize) {
        let mut read = (self.begin)();
        while let Some(range) = self.queue.take(index) {
            for number in range {
                read(number);
                self.done.fetch_add(1, Relaxed);
            }
            self.queue.done();
        }
    }

    fn delay(&self) -> Duration {
        self.delay
    }

    fn tell(&self, _jobs: usize) {
        (self.threads.tell)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_lock::{Condvar, Mutex};
    use std::thread::current;

    /// Entries of the test.
    const COUNT: usize = 200;
    /// Time after which a thread that is alone stays alone.
    const LIMIT: Duration = Duration::from_secs(60);

    fn threads(throttle: &Throttle) -> ViewThreads<'_> {
        ViewThreads::of(throttle, 64, &|| {})
    }

    #[test]
    fn each_view_is_read_once() {
        for (count, jobs) in [(0, 4), (1, 4), (7, 1), (COUNT, 1), (COUNT, 4)] {
            let read = Mutex::new(Vec::new());
            let throttle = Throttle {
                jobs: Concurrency::Fixed(jobs),
                ..Throttle::default()
            };
            threads(&throttle).read_each(count, &|| {
                |number: usize| {
                    // The thread of the caller does not get far.
                    let began = Instant::now();
                    while number == 3 && began.elapsed() < FEW_TIME {}
                    read.lock().push(number);
                }
            });
            let mut read = read.into_inner();
            read.sort_unstable();
            assert!(read.into_iter().eq(0..count), "{count} by {jobs}");
        }
    }

    #[test]
    fn many_views_are_read_by_several_threads() {
        // Threads that wait for another one, and whether two have met.
        let (state, changed) = (Mutex::new((0, false)), Condvar::new());
        let (caller, began) = (current().id(), Instant::now());
        let throttle = Throttle::default();
        threads(&throttle).read_each(COUNT, &|| {
            |_number: usize| {
                if current().id() == caller {
                    while began.elapsed() < FEW_TIME {}
                    return;
                }
                let mut state = state.lock();
                state.0 += 1;
                while !state.1 && state.0 < 2 && began.elapsed() < LIMIT {
                    state = changed.wait_for(state, LIMIT);
                }
                (state.0, state.1) = (state.0 - 1, state.1 || state.0 > 1);
                changed.notify_all();
            }
        });
        assert!(state.into_inner().1, "each thread was alone");
    }

    #[test]
    fn limited_requests_leave_one_thread() {
        let throttle = Throttle {
            jobs: Concurrency::Fixed(8),
            requests_per_second_max: Some(100),
            ..Throttle::default()
        };
        assert_eq!(threads(&throttle).jobs, Concurrency::Fixed(1));
    }
}
