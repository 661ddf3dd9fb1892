//! Two options that meet: what each of them promises holds for the pair. The promises, and the
//! options that keep them, stand in `docs/promises.md`.
//!
//! Every pair of options runs on fresh copies of small random trees, and a judge that knows nothing
//! of the product compares what was with what is. `DRIFTLESS_SEED` chooses the trees, and
//! `DRIFTLESS_OPTIONS=--delete,--exclude` runs one pair alone.
#![allow(clippy::disallowed_methods)]

#[path = "promises/choice.rs"]
mod choice;
mod common;
#[path = "promises/judge.rs"]
mod judge;
#[path = "promises/plan.rs"]
mod plan;
#[path = "promises/run.rs"]
mod run;
#[path = "promises/stage.rs"]
mod stage;
#[path = "promises/table.rs"]
mod table;

use choice::Choice;
use common::campaign::{Campaign, count_of};
use driftless_testkit::{
    Difference, FsKind, Options, Outcome, Scratch, Snapshot, attrs, compare, remove_deep, snapshot,
    touched,
};
use judge::Judge;
use run::Fault;
use stage::Stage;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use table::Table;

const SEED: u64 = 1;
/// Pairs that run at a time in each test, and tests that share the pairs of a seed.
const THREADS: usize = 2;
const PARTS: usize = 3;
/// Most faults that a failure prints.
const SHOWN_MAX: usize = 40;

/// Returns the faults of a choice of options; `None` if the binary refuses them together.
fn faults_of(stage: &Stage, choice: &Choice, table: &Table) -> Option<Vec<Fault>> {
    let runs = run::run(stage, choice)?;
    Some(Judge::new(runs, table).decide().faults)
}

/// Every option alone, and every pair.
fn choices(table: &Table) -> Vec<Choice> {
    if let Ok(names) = std::env::var("DRIFTLESS_OPTIONS") {
        let names = names.split(',').map(str::to_owned).collect();
        return vec![Choice { names }];
    }
    let all: Vec<&String> = table.options().collect();
    let mut found = Vec::new();
    for (index, first) in all.iter().enumerate() {
        found.push(Choice {
            names: vec![(*first).clone()],
        });
        for second in &all[index + 1..] {
            let names = [first, second].map(|name| (*name).clone());
            found.push(Choice {
                names: names.to_vec(),
            });
        }
    }
    found
}

/// Runs one part of all choices of options on the trees of a seed, several at a time.
fn check_pairs(seed: u64, part: usize) {
    // What the run may give is bounded by the options alone.
    rustix::process::umask(rustix::fs::Mode::empty());
    let (table, stage) = (Table::read(), Stage::new(seed));
    let choices: Vec<Choice> = choices(&table)
        .into_iter()
        .skip(part)
        .step_by(PARTS)
        .collect();
    let (next, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let found: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let work = || {
        while let Some(choice) = choices.get(next.fetch_add(1, Relaxed)) {
            let Some(faults) = faults_of(&stage, choice, &table) else {
                refused.fetch_add(1, Relaxed);
                continue;
            };
            let options = choice.names.join(",");
            let line = |fault: &Fault| format!("{options}: {}: {}", fault.promise, fault.text);
            found
                .lock()
                .expect("the faults")
                .extend(faults.iter().map(line));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    let left = touched(&stage.source, &snapshot(&stage.src, true));
    assert!(left.is_empty(), "the source was touched: {left:#?}");
    let (all, refused) = (choices.len(), refused.into_inner());
    println!("seed {seed}: {all} choices of options, {refused} refused");
    let mut found = found.into_inner().expect("the faults");
    found.sort();
    let lines = found.iter().take(SHOWN_MAX).cloned().collect::<Vec<_>>();
    assert!(
        found.is_empty(),
        "DRIFTLESS_SEED={seed}: {} faults\n{}",
        found.len(),
        lines.join("\n")
    );
}

#[test]
fn every_option_is_on_the_page_of_promises() {
    let table = Table::read();
    table.check_words();
    table.check_options();
}

macro_rules! parts {
    ($($name:ident: $part:literal;)*) => {
        $(#[test]
        fn $name() {
            check_pairs(count_of("DRIFTLESS_SEED", SEED), $part);
        })*
    };
}

parts! {
    a_third_of_the_pairs_keeps_its_promises: 0;
    a_second_third_of_the_pairs_keeps_its_promises: 1;
    the_last_third_of_the_pairs_keeps_its_promises: 2;
}

#[test]
#[ignore = "hundreds of pairs for each seed: make campaign"]
fn pairs_of_options_keep_what_both_promise_often() {
    let mut campaign = Campaign::new("pairs of options");
    for seed in 100..100 + 4 * count_of("DRIFTLESS_SEEDS", 5) {
        campaign.run(format!("DRIFTLESS_SEED={seed}"), || {
            (0..PARTS).for_each(|part| check_pairs(seed, part));
        });
    }
    campaign.end();
}
