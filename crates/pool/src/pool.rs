//! The pool of threads: it starts them, and has [`Adapt`] find how many of them are at work.

use crate::adapt::{Adapt, Bounds, Sample, TICK};
use crate::concurrency::{Concurrency, cores};
use crate::queue::Queue;
use rustix::time::{ClockId, clock_gettime};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

/// Threads at most, however slow the file system is.
pub const THREADS_MAX: usize = 256;
/// Threads a core to begin with.
pub const THREADS_PER_CORE: usize = 2;
/// Between two reports of progress.
const PROGRESS: Duration = Duration::from_millis(100);
/// Directories that are asked for ahead of the thread that enters them when the host is far away.
const YOUNG: usize = 1024;
/// Bytes of content that count as much as one entry.
pub const BYTES_PER_ENTRY: u64 = 64 * 1024;
/// Stack of a thread. Nothing here recurses.
const STACK_BYTES: usize = 512 * 1024;

/// What a pool works on: a queue, and what a thread does with an item of it.
pub trait Workload: Sync {
    /// What waits in the queue.
    type Item;
    /// What waits.
    fn queue(&self) -> &Queue<Self::Item>;
    /// How many threads the user asked for.
    fn concurrency(&self) -> Concurrency;
    /// What was done so far, in entries; [`BYTES_PER_ENTRY`] of content count as one.
    fn work_done(&self) -> u64;
    /// Takes and carries out items as thread number `index` until the work is over.
    fn work(&self, index: usize);
    /// How many threads listen for answers besides.
    fn listeners(&self) -> usize {
        0
    }
    /// Goes on with what is answered, as listener number `index`, until the work is over.
    fn listen(&self, _index: usize) {}
    /// How long each request takes at least, of which the pool need not find out first.
    fn delay(&self) -> Duration {
        Duration::ZERO
    }
    /// How many threads wait for what no further thread would make faster.
    fn held_up(&self) -> usize {
        0
    }
    /// Tells the monitor how far it is, with `jobs` threads at work.
    fn tell(&self, jobs: usize);
}

/// Runs what is in the queue to its end. `threads_max` bounds the pool.
pub fn drive<C: Workload>(workload: &C, threads_max: usize) {
    workload.queue().reopen();
    std::thread::scope(|scope| Pool::new(workload, threads_max).watch(scope));
}

struct Pool<'r, C> {
    workload: &'r C,
    /// What finds how many threads there are to be, where the user has not said.
    adapt: Option<Adapt>,
    threads_max: usize,
    spawned: usize,
    admitted: usize,
}

impl<'r, C: Workload> Pool<'r, C> {
    fn new(workload: &'r C, threads_max: usize) -> Self {
        let delay = workload.delay();
        workload
            .queue()
            .leave_young(if delay > TICK { YOUNG } else { 0 });
        let (adapt, admitted, threads_max) = match workload.concurrency() {
            Concurrency::Fixed(threads) => (None, threads.clamp(1, threads_max), threads_max),
            Concurrency::Auto => {
                let (cores, most) = (cores(), threads_max.min(THREADS_MAX));
                let least = (cores * THREADS_PER_CORE).clamp(1, most);
                let bounds = Bounds {
                    cores,
                    least,
                    most,
                    delay,
                };
                let (adapt, begin) = Adapt::new(bounds, sample(workload));
                (Some(adapt), begin, most)
            }
        };
        Pool {
            workload,
            adapt,
            threads_max,
            spawned: 0,
            admitted,
        }
    }

    fn watch<'scope, 'env>(&mut self, scope: &'scope Scope<'scope, 'env>)
    where
        'r: 'scope,
    {
        let workload = self.workload;
        (0..workload.listeners())
            .for_each(|index| drop(scope.spawn(move || workload.listen(index))));
        self.admit(scope, self.admitted);
        let mut reported = Instant::now();
        while !workload.queue().wait_over(TICK) {
            if reported.elapsed() >= PROGRESS {
                workload.tell(self.admitted);
                reported = Instant::now();
            }
            let admitted = self.admitted;
            let see = |adapt: &mut Adapt| adapt.see(sample(workload), admitted);
            if let Some(threads) = self.adapt.as_mut().and_then(see) {
                self.admit(scope, threads);
            }
        }
    }

    fn admit<'scope, 'env>(&mut self, scope: &'scope Scope<'scope, 'env>, threads: usize)
    where
        'r: 'scope,
    {
        let (workload, mut threads) = (self.workload, threads.clamp(1, self.threads_max));
        while self.spawned < threads {
            let index = self.spawned;
            let thread = Builder::new()
                .name(format!("mover-{index}"))
                .stack_size(STACK_BYTES);
            if thread
                .spawn_scoped(scope, move || workload.work(index))
                .is_err()
            {
                // No more threads to be had: this many it is.
                threads = index.max(1);
                self.threads_max = threads;
                self.adapt.iter_mut().for_each(|adapt| adapt.bound(threads));
                break;
            }
            self.spawned += 1;
        }
        self.admitted = threads;
        workload.queue().admit(threads);
        if self.spawned == 0 {
            // Not even one: this thread does the work, and nobody is told meanwhile how far it is.
            self.spawned = 1;
            workload.work(0);
        }
    }
}

/// What was done until now, and what it cost.
fn sample(workload: &impl Workload) -> Sample {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    Sample {
        at: Instant::now(),
        work: workload.work_done(),
        cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
        idle: workload.queue().idle(),
        held_up: workload.held_up(),
    }
}
