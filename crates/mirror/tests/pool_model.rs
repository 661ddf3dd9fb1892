//! Several processes make the same entries equal at once, in a model: any of them may be slow, be
//! stopped between any two steps and go on later, or be killed. When nothing is left to do, the
//! replica is as the source is, whatever the order was.
//!
//! The steps are those of the engine and of a pool (docs/internals/mirror.md): look at the source,
//! copy, look at it again, give the copy its name, set the times of the directory around it, and
//! look at all of that until nothing was changed.

use fastrand::Rng;
use std::collections::{BTreeSet, VecDeque};

/// Entries of the one directory.
const ENTRIES: usize = 3;
/// What stands in the place of the directory's time while something in it was just changed.
const DISTURBED: u32 = u32::MAX;

/// A tree: the content of each entry, or none; and the time of the directory around them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tree {
    entries: [Option<u32>; ENTRIES],
    time: u32,
}

/// Where a process is with its message.
#[derive(Debug, Clone)]
enum Step {
    /// It has none.
    Idle,
    /// It is about to look at the source's entry.
    Look,
    /// It has seen this, and copies it.
    Copied(Option<u32>),
    /// The source was still the same: the copy gets its name next.
    Publish(Option<u32>),
    /// It looks at the directory's time.
    LookAround,
    /// It sets the time that it has seen.
    SetTime(u32),
}

#[derive(Debug, Clone)]
struct Process {
    step: Step,
    entry: usize,
    /// It has changed something since it last began to look.
    has_changed: bool,
}

struct Model {
    random: Rng,
    source: Tree,
    replica: Tree,
    queue: VecDeque<usize>,
    processes: Vec<Process>,
    changes_left: usize,
    looks_again: bool,
    clock: u32,
}

impl Model {
    fn new(seed: u64, looks_again: bool) -> Model {
        let tree = Tree {
            entries: [None; ENTRIES],
            time: 0,
        };
        let idle = Process {
            step: Step::Idle,
            entry: 0,
            has_changed: false,
        };
        Model {
            random: Rng::with_seed(seed),
            source: tree.clone(),
            replica: tree,
            queue: VecDeque::new(),
            processes: vec![idle; 3],
            changes_left: 12,
            looks_again,
            clock: 0,
        }
    }

    /// Runs to its end; whether both trees are equal then.
    fn ends_equal(mut self) -> bool {
        loop {
            let busy: Vec<usize> = (0..self.processes.len())
                .filter(|at| self.is_busy(*at))
                .collect();
            if busy.is_empty() && self.changes_left == 0 {
                return self.source == self.replica;
            }
            let choice = self.random.usize(..busy.len() + 1);
            match busy.get(choice) {
                Some(at) if self.changes_left > 0 && self.random.u8(..40) == 0 => self.kill(*at),
                Some(at) => self.advance(*at),
                None if self.changes_left > 0 => self.change(),
                None => {}
            }
        }
    }

    fn is_busy(&self, at: usize) -> bool {
        !matches!(self.processes[at].step, Step::Idle) || !self.queue.is_empty()
    }

    /// The source changes, and that is announced afterwards.
    fn change(&mut self) {
        self.changes_left -= 1;
        self.clock += 1;
        let entry = self.random.usize(..ENTRIES);
        let is_removed = self.random.u8(..3) == 0;
        self.source.entries[entry] = (!is_removed).then_some(self.clock);
        self.source.time = self.clock;
        self.queue.push_back(entry);
    }

    /// What it had comes to the queue again; a name that it had asked for may be given or not.
    fn kill(&mut self, at: usize) {
        if let Step::Publish(_) = self.processes[at].step
            && self.random.bool()
        {
            self.advance(at);
        }
        let process = &mut self.processes[at];
        if !matches!(process.step, Step::Idle) {
            self.queue.push_front(process.entry);
            process.step = Step::Idle;
        }
    }

    fn advance(&mut self, at: usize) {
        let Process {
            step,
            entry,
            has_changed,
        } = self.processes[at].clone();
        let (mut entry, mut has_changed) = (entry, has_changed);
        let step = match step {
            Step::Idle => match self.queue.pop_front() {
                Some(next) => {
                    (entry, has_changed) = (next, false);
                    Step::Look
                }
                None => Step::Idle,
            },
            Step::Look => match self.source.entries[entry] {
                seen if seen == self.replica.entries[entry] => Step::LookAround,
                seen => Step::Copied(seen),
            },
            Step::Copied(seen) if seen == self.source.entries[entry] => Step::Publish(seen),
            Step::Copied(_) => Step::Look,
            Step::Publish(seen) => {
                self.replica.entries[entry] = seen;
                self.replica.time = DISTURBED;
                has_changed = true;
                Step::LookAround
            }
            Step::LookAround if self.source.time != self.replica.time => {
                Step::SetTime(self.source.time)
            }
            Step::LookAround => self.after_a_look(&mut has_changed),
            Step::SetTime(seen) => {
                self.replica.time = seen;
                has_changed = true;
                self.after_a_look(&mut has_changed)
            }
        };
        self.processes[at] = Process {
            step,
            entry,
            has_changed,
        };
    }

    fn after_a_look(&self, has_changed: &mut bool) -> Step {
        match std::mem::take(has_changed) && self.looks_again {
            true => Step::Look,
            false => Step::Idle,
        }
    }
}

#[test]
fn the_last_state_wins_where_all_look_until_nothing_was_changed() {
    for seed in 0..20_000 {
        assert!(Model::new(seed, true).ends_equal(), "seed {seed}");
    }
}

#[test]
fn without_that_an_older_state_may_stay() {
    let wrong: BTreeSet<u64> = (0..20_000)
        .filter(|seed| !Model::new(*seed, false).ends_equal())
        .collect();
    assert!(wrong.len() > 10, "{}", wrong.len());
}
