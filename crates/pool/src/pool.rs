//! The pool of threads, and how many of them are at work.
//!
//! Concurrency is found, not configured. As long as threads mostly wait for the file system, more
//! of them are admitted, by a factor of four; when that does not raise the rate, or makes each
//! entry dearer for the processors, the step is taken back and tried again later. When the
//! processors are busy with more threads than they need, threads that wait for each other's locks
//! are what they are busy with, and fewer are admitted. So a file system that answers at once gets
//! two threads per core, and one that takes half a millisecond a request gets over a hundred.

use crate::concurrency::{Concurrency, cores};
use crate::queue::Queue;
use rustix::time::{ClockId, clock_gettime};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

/// Threads at most, however slow the file system is.
pub const THREADS_MAX: usize = 256;
/// Threads a core to begin with.
pub const THREADS_PER_CORE: usize = 2;
/// Between two looks at the rate.
const TICK: Duration = Duration::from_millis(10);
/// Between two reports of progress.
const PROGRESS: Duration = Duration::from_millis(100);
/// Above this share of the processors' time the processors are the limit.
const BUSY_SHARE: f64 = 0.7;
/// A step multiplies the threads by this.
const STEP: usize = 4;
/// A step must raise the rate by this factor to be kept.
const GAIN: f64 = 1.15;
/// A step may raise the processor time of an entry by this factor.
const COST_GROWTH_MAX: f64 = 1.5;
/// Ticks that a step is given to show its effect, and how many of these pass before it is measured:
/// what new threads begin takes some requests until it counts.
const TRIAL_TICKS: u32 = 5;
const WARM_UP_TICKS: u32 = 2;
/// How long nothing is tried after a step that was taken back; doubles each time.
const HOLD_OFF: Duration = Duration::from_millis(100);
/// Processor time of a request, about: as many threads as fit into the delay of a far host keep its
/// line busy.
const REQUEST: Duration = Duration::from_micros(150);
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
    adaptive: bool,
    threads_max: usize,
    spawned: usize,
    admitted: usize,
    /// Fewer are never admitted.
    least: usize,
    trial: Option<Trial>,
    hold_off: Duration,
    quiet_until: Instant,
    last: Sample,
    /// Ticks that a request takes at least.
    delay_ticks: u32,
}

/// A step up that has to prove itself.
struct Trial {
    from: usize,
    rate: f64,
    cost: f64,
    began: Sample,
    ticks: u32,
}

#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    work: u64,
    cpu_seconds: f64,
}

impl<'r, C: Workload> Pool<'r, C> {
    fn new(workload: &'r C, threads_max: usize) -> Self {
        let (adaptive, least) = match workload.concurrency() {
            Concurrency::Auto => (true, cores() * THREADS_PER_CORE),
            Concurrency::Fixed(threads) => (false, threads),
        };
        let threads_max = if adaptive {
            threads_max.min(THREADS_MAX)
        } else {
            threads_max
        };
        let least = least.clamp(1, threads_max);
        let delay = workload.delay();
        let at_once = (delay.as_micros() / REQUEST.as_micros()) as usize;
        let admitted = if adaptive {
            at_once.clamp(least, threads_max)
        } else {
            least
        };
        // From a far host answers come in bursts, in which the processors are busy for a tick; too
        // few threads would wait in between.
        let least = least.max(admitted / STEP);
        let last = Sample::take(workload);
        let (trial, hold_off, quiet_until) = (None, HOLD_OFF, Instant::now());
        workload
            .queue()
            .leave_young(if delay > TICK { YOUNG } else { 0 });
        let delay_ticks = (delay.as_secs_f64() / TICK.as_secs_f64()).ceil() as u32;
        Pool {
            workload,
            adaptive,
            threads_max,
            spawned: 0,
            admitted,
            least,
            trial,
            hold_off,
            quiet_until,
            last,
            delay_ticks,
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
        while !self.workload.queue().wait_over(TICK) {
            if reported.elapsed() >= PROGRESS {
                self.workload.tell(self.admitted);
                reported = Instant::now();
            }
            if self.adaptive {
                self.adapt(scope);
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

    fn adapt<'scope, 'env>(&mut self, scope: &'scope Scope<'scope, 'env>)
    where
        'r: 'scope,
    {
        let now = Sample::take(self.workload);
        let since = std::mem::replace(&mut self.last, now);
        let target = match self.trial.take() {
            Some(trial) => self.judge(trial, &now),
            None => self.try_more(&since, &now),
        };
        if let Some(threads) = target {
            self.admit(scope, threads);
        }
    }

    /// Keeps a step that raised the rate, takes back one that did not.
    fn judge(&mut self, mut trial: Trial, now: &Sample) -> Option<usize> {
        trial.ticks += 1;
        if trial.ticks == WARM_UP_TICKS + self.delay_ticks {
            trial.began = *now;
        }
        if trial.ticks < TRIAL_TICKS + 2 * self.delay_ticks {
            self.trial = Some(trial);
            return None;
        }
        let (rate, cost) = (now.rate_since(&trial.began), now.cost_since(&trial.began));
        if rate > 0.0 && rate >= trial.rate * GAIN && cost <= trial.cost * COST_GROWTH_MAX {
            self.hold_off = HOLD_OFF;
            return None;
        }
        Some(self.step_back(now, trial.from))
    }

    fn step_back(&mut self, now: &Sample, to: usize) -> usize {
        self.quiet_until = now.at + self.hold_off;
        self.hold_off *= 2;
        to
    }

    fn try_more(&mut self, since: &Sample, now: &Sample) -> Option<usize> {
        let hungry = self.workload.queue().idle() > self.admitted / 4;
        let busy = now.busy_since(since) > BUSY_SHARE;
        if busy && self.admitted > self.least {
            return Some(self.step_back(now, (self.admitted / STEP).max(self.least)));
        }
        let held_up = self.workload.held_up() > self.admitted / 2;
        if hungry
            || busy
            || held_up
            || self.admitted >= self.threads_max
            || now.at < self.quiet_until
        {
            return None;
        }
        self.trial = Some(Trial {
            from: self.admitted,
            rate: now.rate_since(since),
            cost: now.cost_since(since),
            began: *now,
            ticks: 0,
        });
        Some(self.admitted * STEP)
    }
}

impl Sample {
    fn take(workload: &impl Workload) -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu_seconds = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
        Sample {
            at: Instant::now(),
            work: workload.work_done(),
            cpu_seconds,
        }
    }

    fn seconds_since(&self, since: &Sample) -> f64 {
        self.at.duration_since(since.at).as_secs_f64().max(1e-6)
    }

    fn rate_since(&self, since: &Sample) -> f64 {
        (self.work - since.work) as f64 / self.seconds_since(since)
    }

    /// Processor seconds an entry; without any, none.
    fn cost_since(&self, since: &Sample) -> f64 {
        (self.cpu_seconds - since.cpu_seconds) / (self.work - since.work).max(1) as f64
    }

    /// Share of all processors' time that this process used.
    fn busy_since(&self, since: &Sample) -> f64 {
        (self.cpu_seconds - since.cpu_seconds) / self.seconds_since(since) / cores() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers after `delay`, and never does anything.
    struct Still {
        queue: Queue<()>,
        delay: Duration,
    }

    impl Workload for Still {
        type Item = ();

        fn queue(&self) -> &Queue<()> {
            &self.queue
        }

        fn concurrency(&self) -> Concurrency {
            Concurrency::Auto
        }

        fn work_done(&self) -> u64 {
            0
        }

        fn work(&self, _index: usize) {}

        fn delay(&self) -> Duration {
            self.delay
        }

        fn tell(&self, _jobs: usize) {}
    }

    /// Threads to begin with, and those that are left when the processors are busy for many ticks.
    fn at_first_and_when_busy(delay: Duration) -> (usize, usize) {
        let workload = Still {
            queue: Queue::new(1),
            delay,
        };
        let mut pool = Pool::new(&workload, THREADS_MAX);
        let first = pool.admitted;
        for _ in 0..10 {
            let since = Sample::take(&workload);
            let now = Sample {
                at: since.at + TICK,
                cpu_seconds: since.cpu_seconds + TICK.as_secs_f64() * cores() as f64,
                ..since
            };
            pool.admitted = pool.try_more(&since, &now).unwrap_or(pool.admitted);
        }
        (first, pool.admitted)
    }

    #[test]
    fn bursts_of_answers_leave_a_far_host_a_quarter_of_its_threads() {
        let few = cores() * THREADS_PER_CORE;
        assert_eq!(
            at_first_and_when_busy(Duration::ZERO),
            (few.min(THREADS_MAX), few.min(THREADS_MAX))
        );
        assert_eq!(
            at_first_and_when_busy(Duration::from_millis(200)),
            (THREADS_MAX, (THREADS_MAX / STEP).max(few).min(THREADS_MAX))
        );
    }
}
