//! What a call costs that makes one changed file equal, between trees that stay open: for the
//! benchmark.
//!
//! `often SOURCE REPLICA CALLS` makes a tree of a thousand files in SOURCE and then, so many times,
//! changes one of them and has it made equal. It prints, in microseconds a call, the time on the
//! clock and the processor time in the program and in the kernel.

#![allow(
    clippy::disallowed_methods,
    reason = "the tree that is copied is its own"
)]

use driftless_engine::{MachineClock, Monitor, Options, Progress, Trees};
use driftless_model::{Policy, Problem, Receipt, RelPath, Scope, Selection, Work};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Files in the source.
const FILES: u32 = 1000;

struct Quiet;

impl Monitor for Quiet {
    fn wants_receipts(&self) -> bool {
        false
    }

    fn receipt(&self, _receipt: &Receipt) {}

    fn problem(&self, problem: &Problem) {
        panic!("{problem}");
    }

    fn progress(&self, _progress: &Progress) {}
}

/// Processor time of this thread so far, in the program and in the kernel (getrusage(2),
/// RUSAGE_THREAD).
fn processor_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn path(index: u32) -> String {
    format!("dir{}/file{index}", index % 10)
}

fn main() {
    let mut words = std::env::args().skip(1);
    let mut word = || words.next().expect("often SOURCE REPLICA CALLS");
    let (source, replica, calls) = (word(), word(), word().parse::<u32>().expect("a number"));
    for index in 0..FILES {
        let file = Path::new(&source).join(path(index));
        fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
        fs::write(file, b"before").expect("a file");
    }
    let (from, to) = (PathBuf::from(&source), PathBuf::from(replica));
    let options = Options {
        source: from.into(),
        replica: to.into(),
        ..Options::default()
    };
    let (policy, stop) = (Policy::default(), AtomicBool::new(false));
    let trees = Trees::open(&options, &Quiet, &MachineClock).expect("two trees");
    let _first = trees
        .reconcile(&Arc::new(Selection::all()), &policy, &Quiet, &stop)
        .expect("the first copy");
    let (mut wall, mut processor) = (Duration::ZERO, 0.0);
    for round in 0..calls.div_ceil(FILES) {
        (0..FILES).for_each(|index| {
            fs::write(
                Path::new(&source).join(path(index)),
                format!("content {round}"),
            )
            .expect("a file")
        });
        // A file that changed this very moment is looked at again a moment later, in case it
        // changes once more unseen.
        std::thread::sleep(Duration::from_millis(100));
        for index in 0..FILES {
            let work = Work {
                path: RelPath::parse(path(index).as_bytes()).expect("a path"),
                scope: Scope::Entry,
            };
            let selection = Arc::new(Selection::of(&[work]));
            let (began, before) = (Instant::now(), processor_seconds());
            let summary = trees
                .reconcile(&selection, &policy, &Quiet, &stop)
                .expect("it is made equal");
            (wall, processor) = (
                wall + began.elapsed(),
                processor + processor_seconds() - before,
            );
            assert_eq!(summary.counts.changed, 1, "{:?}", summary.counts);
        }
    }
    trees.flush(&Quiet).expect("it is durable");
    let each = 1e6 / f64::from(calls.div_ceil(FILES) * FILES);
    println!(
        "{{\"wall_us\": {:.1}, \"processor_us\": {:.1}}}",
        wall.as_secs_f64() * each,
        processor * each
    );
}
