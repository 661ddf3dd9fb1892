//! How many threads are admitted, from what was done and what it cost.
//!
//! Concurrency is found, not configured. As long as threads mostly wait for the file system, more
//! of them are admitted, by a factor of four; when that does not raise the rate, or makes each
//! entry dearer for the processors, the step is taken back and tried again later. When the
//! processors are busy with more threads than they need, threads that wait for each other's locks
//! are what they are busy with, and fewer are admitted. So a file system that answers at once gets
//! two threads per core, and one that takes half a millisecond a request gets over a hundred.
//!
//! Nothing here asks what time it is: whoever measures says when.

use std::time::{Duration, Instant};

/// Between two samples.
pub const TICK: Duration = Duration::from_millis(10);
/// Above this share of the processors' time the processors are the limit.
const BUSY_SHARE: f64 = 0.7;
/// A step multiplies the threads by this.
pub const STEP: usize = 4;
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

/// What was done until a moment, and what it cost.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// Entries that are done.
    pub work: u64,
    /// Processor time of this process.
    pub cpu_seconds: f64,
    /// Threads that find nothing to do.
    pub idle: usize,
    /// Threads that wait for what no further thread would make faster.
    pub held_up: usize,
}

/// The machine and the work, as far as they bound how many threads there are.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Processors.
    pub cores: usize,
    /// Threads that are admitted at least, and to begin with.
    pub least: usize,
    /// Threads that are admitted at most.
    pub most: usize,
    /// How long each request takes at least.
    pub delay: Duration,
}

/// A step up that has to prove itself.
#[derive(Debug)]
struct Trial {
    from: usize,
    rate: f64,
    cost: f64,
    began: Sample,
    ticks: u32,
}

/// Finds how many threads to admit.
#[derive(Debug)]
pub struct Adapt {
    bounds: Bounds,
    trial: Option<Trial>,
    hold_off: Duration,
    quiet_until: Instant,
    last: Sample,
    /// Ticks that a request takes at least.
    delay_ticks: u32,
}

impl Adapt {
    /// Begins, with the first sample; returns how many threads to begin with, too.
    pub fn new(bounds: Bounds, first: Sample) -> (Adapt, usize) {
        let at_once = (bounds.delay.as_micros() / REQUEST.as_micros()) as usize;
        let begin = at_once.clamp(bounds.least, bounds.most);
        // From a far host answers come in bursts, in which the processors are busy for a tick; too
        // few threads would wait in between.
        let least = bounds.least.max(begin / STEP);
        let adapt = Adapt {
            bounds: Bounds { least, ..bounds },
            trial: None,
            hold_off: HOLD_OFF,
            quiet_until: first.at,
            last: first,
            delay_ticks: (bounds.delay.as_secs_f64() / TICK.as_secs_f64()).ceil() as u32,
        };
        (adapt, begin)
    }

    /// More threads than so many cannot be had.
    pub fn bound(&mut self, most: usize) {
        self.bounds.most = most;
    }

    /// How many threads to admit from now on, if other than the `admitted`.
    pub fn see(&mut self, now: Sample, admitted: usize) -> Option<usize> {
        let since = std::mem::replace(&mut self.last, now);
        match self.trial.take() {
            Some(trial) => self.judge(trial, &now),
            None => self.try_more(&since, &now, admitted),
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

    fn try_more(&mut self, since: &Sample, now: &Sample, admitted: usize) -> Option<usize> {
        let Bounds {
            cores, least, most, ..
        } = self.bounds;
        let busy = now.busy_since(since) / cores as f64 > BUSY_SHARE;
        if busy && admitted > least {
            return Some(self.step_back(now, (admitted / STEP).max(least)));
        }
        let (hungry, held_up) = (now.idle > admitted / 4, now.held_up > admitted / 2);
        if hungry || busy || held_up || admitted >= most || now.at < self.quiet_until {
            return None;
        }
        self.trial = Some(Trial {
            from: admitted,
            rate: now.rate_since(since),
            cost: now.cost_since(since),
            began: *now,
            ticks: 0,
        });
        Some(admitted * STEP)
    }
}

impl Sample {
    fn seconds_since(&self, since: &Sample) -> f64 {
        self.at.duration_since(since.at).as_secs_f64().max(1e-6)
    }

    /// Entries a second.
    fn rate_since(&self, since: &Sample) -> f64 {
        (self.work - since.work) as f64 / self.seconds_since(since)
    }

    /// Processor seconds an entry; without any, none.
    fn cost_since(&self, since: &Sample) -> f64 {
        (self.cpu_seconds - since.cpu_seconds) / (self.work - since.work).max(1) as f64
    }

    /// Processors that this process kept busy.
    fn busy_since(&self, since: &Sample) -> f64 {
        (self.cpu_seconds - since.cpu_seconds) / self.seconds_since(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORES: usize = 4;

    /// A machine whose time passes by hand: what is done in a tick, and what it costs, follow from
    /// how many threads there are.
    struct Machine {
        adapt: Adapt,
        admitted: usize,
        now: Sample,
    }

    impl Machine {
        fn new(delay: Duration) -> Machine {
            let bounds = Bounds {
                cores: CORES,
                least: 2 * CORES,
                most: 256,
                delay,
            };
            let now = Sample {
                at: Instant::now(),
                work: 0,
                cpu_seconds: 0.0,
                idle: 0,
                held_up: 0,
            };
            let (adapt, admitted) = Adapt::new(bounds, now);
            Machine {
                adapt,
                admitted,
                now,
            }
        }

        /// Ticks, in each of which so many threads do `work` entries and keep `cores` busy; returns
        /// the most threads that there were.
        fn pass(&mut self, ticks: u32, each: impl Fn(usize) -> (u64, f64)) -> usize {
            let mut most = self.admitted;
            for _ in 0..ticks {
                let (work, cores) = each(self.admitted);
                self.now.at += TICK;
                self.now.work += work;
                self.now.cpu_seconds += cores * TICK.as_secs_f64();
                let target = self.adapt.see(self.now, self.admitted);
                self.admitted = target.map_or(self.admitted, |threads| threads.clamp(1, 256));
                most = most.max(self.admitted);
            }
            most
        }
    }

    #[test]
    fn a_slow_file_system_gets_all_threads() {
        let mut machine = Machine::new(Duration::ZERO);
        machine.pass(50, |threads| (threads as u64 * 20, 0.001 * threads as f64));
        assert_eq!(machine.admitted, 256);
    }

    #[test]
    fn a_step_that_gains_nothing_is_taken_back_and_tried_less_and_less() {
        let mut machine = Machine::new(Duration::ZERO);
        let is_limited = |_: usize| (100, 0.1);
        assert_eq!(machine.pass(TRIAL_TICKS + 1, is_limited), 8 * CORES);
        assert_eq!(machine.admitted, 2 * CORES);
        let pauses: Vec<u32> = (0..3)
            .map(|_| {
                let pause = (0..1000).take_while(|_| machine.pass(1, is_limited) == 2 * CORES);
                let ticks = pause.count() as u32;
                machine.pass(TRIAL_TICKS, is_limited);
                ticks
            })
            .collect();
        assert!(
            pauses[0] >= 9 && pauses[1] > pauses[0] && pauses[2] > pauses[1],
            "{pauses:?}"
        );
    }

    #[test]
    fn a_step_that_makes_each_entry_dearer_is_taken_back() {
        let mut machine = Machine::new(Duration::ZERO);
        // Twice the entries for four times the processors.
        let each = |threads: usize| if threads > 8 { (200, 2.4) } else { (100, 0.6) };
        machine.pass(TRIAL_TICKS + 1, each);
        assert_eq!(machine.admitted, 2 * CORES);
    }

    #[test]
    fn threads_that_find_nothing_to_do_or_wait_for_one_another_are_enough() {
        for (idle, held_up) in [(2 * CORES, 0), (0, 2 * CORES)] {
            let mut machine = Machine::new(Duration::ZERO);
            (machine.now.idle, machine.now.held_up) = (idle, held_up);
            assert_eq!(machine.pass(50, |_| (100, 0.1)), 2 * CORES);
        }
    }

    #[test]
    fn more_than_can_be_had_are_not_asked_for() {
        let mut machine = Machine::new(Duration::ZERO);
        machine.adapt.bound(2 * CORES);
        assert_eq!(machine.pass(50, |_| (100, 0.1)), 2 * CORES);
    }

    #[test]
    fn bursts_of_answers_leave_a_far_host_a_quarter_of_its_threads() {
        let busy = |_: usize| (0, CORES as f64);
        for (delay, first, left) in [
            (Duration::ZERO, 2 * CORES, 2 * CORES),
            (Duration::from_millis(200), 256, 256 / STEP),
        ] {
            let mut machine = Machine::new(delay);
            assert_eq!(machine.admitted, first);
            machine.pass(10, busy);
            assert_eq!(machine.admitted, left);
        }
    }
}
