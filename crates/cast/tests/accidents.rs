//! Casts with random accidents: sound nodes complete beside the others, and the next cast repairs.
//!
//! `DRIFTLESS_SEEDS` sets the number of casts, `DRIFTLESS_SEED` repeats one of them.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Cluster, report_of, run_node, stop};
use driftless_cast::CastReport;
use driftless_testkit::{Profile, build_tree, mutate, remove_deep};
use fastrand::Rng;
use rustix::process::Signal;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// Casts without a variable of the environment.
const SEEDS: u64 = 2;
/// Milliseconds after the begin of a cast in which accidents happen.
const ACCIDENT_MS_MAX: u64 = 4_000;
/// Bytes of the file that makes a cast last seconds.
const LARGE: usize = 6 << 20;

/// The process of a node, which other tests start.
#[test]
#[ignore = "other tests start this process"]
fn node_process() {
    run_node();
}

/// Accident of a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Accident {
    /// Killed, and dead until the end.
    Dies,
    /// Killed, and started again by the coordinator.
    Restarts,
    /// Stopped until the end.
    Hangs,
    /// Stopped for a time.
    Pauses,
}

impl Accident {
    fn is_lasting(self) -> bool {
        matches!(self, Accident::Dies | Accident::Hangs)
    }
}

/// Milliseconds after the begin of a cast, a node, and its accident.
type NodeAccident = (u64, String, Accident);

/// Draws the accidents of a cast, in order of time.
fn accidents(rng: &mut Rng, names: &[String]) -> Vec<NodeAccident> {
    let kinds = [
        Accident::Dies,
        Accident::Restarts,
        Accident::Hangs,
        Accident::Pauses,
    ];
    let mut all: Vec<_> = names
        .iter()
        .filter_map(|name| {
            let kind = kinds.get(rng.usize(..2 * kinds.len()))?;
            Some((rng.u64(..ACCIDENT_MS_MAX), name.clone(), *kind))
        })
        .collect();
    all.sort_by_key(|(at, ..)| *at);
    all
}

fn happen(cluster: &Cluster, node: &str, accident: Accident, rng: &mut Rng) {
    // A node that has not started yet has no process.
    if !cluster.path(node).join("pid").exists() {
        return;
    }
    if accident.is_lasting() {
        cluster.set_dead(node, true);
    }
    match accident {
        Accident::Dies | Accident::Restarts => cluster.try_signal(node, Signal::KILL),
        Accident::Hangs => cluster.try_signal(node, Signal::STOP),
        Accident::Pauses => {
            cluster.try_signal(node, Signal::STOP);
            thread::sleep(Duration::from_millis(rng.u64(100..1_500)));
            cluster.try_signal(node, Signal::CONT);
        }
    }
}

/// Casts while accidents happen. In a few casts the coordinator is stopped, too.
fn cast_with(cluster: &Cluster, rng: &mut Rng) -> (CastReport, Vec<NodeAccident>) {
    let mut settings = cluster.settings();
    settings.transfer.bytes_per_second_max = Some(2 << 20);
    let accidents = accidents(rng, &cluster.names);
    let stops_at = (rng.u8(..5) == 0).then(|| rng.u64(..ACCIDENT_MS_MAX));
    let (begin, running) = (Instant::now(), cluster.start(settings));
    let wait_for = |at: u64| {
        let at = begin + Duration::from_millis(at);
        thread::sleep(at.saturating_duration_since(Instant::now()));
    };
    for (at, node, accident) in &accidents {
        wait_for(*at);
        happen(cluster, node, *accident, rng);
    }
    if let Some(at) = stops_at {
        wait_for(at);
        stop(cluster);
    }
    let report = running.join().expect("a report");
    cluster.stop.store(false, Ordering::Relaxed);
    (report, accidents)
}

/// Asserts what a cast with accidents promises.
fn check(cluster: &Cluster, report: &CastReport, accidents: &[NodeAccident]) {
    for node in &cluster.names {
        let outcome = report_of(report, node);
        let is_sound = !accidents
            .iter()
            .any(|(_, name, accident)| name == node && accident.is_lasting());
        assert!(
            outcome.is_complete || !is_sound || report.is_stopped,
            "{node} lacks the set: {report:#?}\n{}",
            cluster.events.text()
        );
        if outcome.is_complete {
            cluster.assert_equal(node);
        }
    }
}

fn run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let cluster = Cluster::new(rng.usize(3..=5));
    build_tree(&cluster.path("src"), seed, &Profile::small());
    cluster.write("large", LARGE);
    for version in 0..2 {
        let (report, accidents) = cast_with(&cluster, &mut rng);
        eprintln!(
            "seed {seed}, version {version}: {accidents:?}, stopped: {}",
            report.is_stopped
        );
        check(&cluster, &report, &accidents);
        for node in &cluster.names {
            cluster.revive(node);
        }
        let repeated = cluster.cast(&cluster.settings());
        cluster.assert_complete(&repeated);
        for node in &cluster.names {
            cluster.assert_equal(node);
            if report_of(&report, node).is_complete {
                assert_eq!(report_of(&repeated, node).received_bytes, 0, "{node}");
            }
        }
        mutate(&cluster.path("src"), seed, 10);
        fs::write(cluster.path("src/large"), vec![version; LARGE]).expect("a file");
    }
    remove_deep(&cluster.path("src")).expect("removed");
}

#[test]
fn sound_nodes_complete_beside_failing_ones() {
    let number = |name: &str| {
        let text = env::var(name).ok()?;
        text.parse::<u64>().ok()
    };
    match number("DRIFTLESS_SEED") {
        Some(seed) => run(seed),
        None => (0..number("DRIFTLESS_SEEDS").unwrap_or(SEEDS)).for_each(run),
    }
}
