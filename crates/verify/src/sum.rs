//! Sums of files and trees: what is asked, what is found, and what all threads of such a run share.
//!
//! The tasks are shares of the targets, directories, ranges of names, and large files. They wait in
//! order in an [`Ordered`](driftless_pool::Ordered), and the queue of the pool holds a ticket for
//! each. So any thread does the first task that waits, and what is found comes out as if one thread
//! had gone through everything: targets as they were given, names sorted by bytes, the content of a
//! directory in the place of its name. Pieces of large files are in the queue itself, before all
//! tickets.

mod file;
mod found;
mod hands;
mod hash;
mod run;
mod task;
mod walk;

pub use found::{BadTarget, Expected, Found, Sum, Target, What};
pub use run::{SumMonitor, SumOptions, Targets};

use crate::sum::hands::Hands;
use crate::sum::run::{Item, Sums};
use crate::sum::task::Task;
use driftless_pool::{Concurrency, Queue, Workload, descriptors, drive};
use driftless_tree::HandlePool;
use std::sync::atomic::AtomicBool;

/// Hashes the targets, and tells `monitor` what is found, in order. Returns when all are done, or
/// soon after `stop` is set.
pub fn sum(
    options: &SumOptions,
    targets: Targets<'_>,
    monitor: &dyn SumMonitor,
    stop: &AtomicBool,
) {
    let (directories, threads_max) = descriptors();
    let sums = Sums::new(
        (options, HandlePool::new(directories)),
        targets,
        monitor,
        stop,
    );
    sums.put(vec![0], Task::Targets(0));
    drive(&sums, threads_max);
}

impl Workload for Sums<'_> {
    type Item = Item;

    fn queue(&self) -> &Queue<Item> {
        &self.queue
    }

    fn concurrency(&self) -> Concurrency {
        self.options.jobs
    }

    fn work_done(&self) -> u64 {
        self.work_so_far()
    }

    fn work(&self, index: usize) {
        let mut hands = Hands::new(self);
        while let Some(item) = self.queue.take(index) {
            // A stopped run drops what waits.
            if !self.stopped() {
                match item {
                    Item::Ticket => self
                        .take()
                        .into_iter()
                        .for_each(|(place, task)| hands.carry_out(place, task)),
                    Item::Pieces(large, pieces) => hands.pieces(&large, pieces),
                }
            }
            self.queue.done();
        }
    }

    fn tell(&self, _jobs: usize) {
        self.tick();
    }
}
