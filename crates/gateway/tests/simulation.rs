//! Whole lives of jobs, with a batch system and nodes in memory. Another gateway takes over at each
//! call in turn, before its effect and after.
//!
//! `DRIFTLESS_SEEDS` sets the number of runs with random accidents, `DRIFTLESS_SEED` repeats one.
#![allow(clippy::disallowed_methods)]

#[path = "simulation/cluster.rs"]
mod cluster;

use cluster::{COLLECTIONS, Cluster, When};
use driftless_gateway::{JobId, ReleaseNeed, ReleasePolicy};
use std::time::Duration;

/// Runs with random accidents without a variable of the environment.
const SEEDS: u64 = 2;
/// Accidents of a run.
const ACCIDENTS: usize = 40;
const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];

fn policy(need: ReleaseNeed) -> ReleasePolicy {
    ReleasePolicy {
        need,
        seconds_max: None,
    }
}

/// Runs three jobs of two data sets to their end, and one that its user cancels.
fn run_all(cluster: &Cluster) {
    let first = cluster.submit("/data/a", policy(ReleaseNeed::First), 6);
    let second = cluster.submit("/data/a", policy(ReleaseNeed::All), 3);
    let third = cluster.submit("/data/b", policy(ReleaseNeed::Quorum(50)), 4);
    let cancelled = cluster.submit("/data/b", policy(ReleaseNeed::All), 4);
    cluster.cancel(&cancelled);
    cluster.wait_until_closed();
    for job in [&first, &second, &third] {
        cluster.check_ran(job);
    }
    cluster.check_nothing_is_left();
}

#[test]
fn jobs_run_where_their_data_is() {
    let cluster = Cluster::start(&NODES, None);
    run_all(&cluster);
    let calls = cluster.calls();
    assert!(calls > 20, "{calls} calls");
}

#[test]
fn takeover_at_each_call_loses_nothing() {
    let step = match std::env::var("DRIFTLESS_SEEDS") {
        Ok(_) => 1,
        Err(_) => 3,
    };
    for when in [When::Before, When::After] {
        for call in (1..60).step_by(step) {
            let cluster = Cluster::start(&NODES, Some((call, when)));
            run_all(&cluster);
        }
    }
}

#[test]
fn tasks_run_while_other_nodes_load() {
    let cluster = Cluster::start(&NODES, None);
    cluster.delay("n4", Duration::from_secs(1000));
    let job = cluster.submit("/data/a", policy(ReleaseNeed::First), 6);
    cluster.wait_until("all tasks ran", || cluster.ran(&job).len() == 6);
    assert!(!cluster.ran(&job).contains(&"n4".to_owned()));
    cluster.wait_until_closed();
    cluster.check_nothing_is_left();
}

#[test]
fn job_without_a_ready_node_stays_held() {
    let cluster = Cluster::start(&NODES, None);
    for node in NODES {
        cluster.delay(node, Duration::from_secs(1000));
    }
    let job = cluster.submit("/data/a", policy(ReleaseNeed::First), 1);
    cluster.wait_until("the job loads", || cluster.loads() > 0);
    assert_eq!(cluster.releases(&job), 0);
    cluster.cancel(&job);
    cluster.wait_until_closed();
    cluster.check_nothing_is_left();
}

#[test]
fn node_that_lost_its_copy_gets_it_again() {
    let cluster = Cluster::start(&NODES[..1], None);
    cluster.pause_tasks(true);
    let job = cluster.submit("/data/a", policy(ReleaseNeed::All), 2);
    cluster.wait_until("the job is released", || cluster.releases(&job) == 1);
    cluster.lose_copies("n1");
    // The comparison of references runs when a gateway begins to act.
    cluster.take_over();
    cluster.wait_until("the copy is there again", || cluster.has_copy("n1"));
    cluster.pause_tasks(false);
    cluster.wait_until_closed();
    cluster.check_ran(&job);
    cluster.check_nothing_is_left();
}

#[test]
fn hanging_cast_delays_no_lost_copy() {
    let cluster = Cluster::start(&NODES[..2], None);
    cluster.delay("n2", Duration::from_secs(1000));
    cluster.pause_tasks(true);
    let job = cluster.submit("/data/a", policy(ReleaseNeed::First), 2);
    cluster.wait_until("n1 offers the data", || cluster.offers("n1"));
    cluster.lose_copies("n1");
    cluster.take_over();
    cluster.wait_until("n1 has the data again", || cluster.has_copy("n1"));
    cluster.wait_until("n1 offers it again", || cluster.offers("n1"));
    cluster.pause_tasks(false);
    cluster.wait_until_closed();
    cluster.check_ran(&job);
    cluster.check_nothing_is_left();
}

#[test]
fn empty_lists_of_jobs_end_none() {
    let cluster = Cluster::start(&NODES[..1], None);
    let job = cluster.submit("/data/a", policy(ReleaseNeed::First), 40);
    cluster.wait_until("a task ran", || !cluster.ran(&job).is_empty());
    cluster.pause_tasks(true);
    cluster.empty_lists(true);
    let lists = cluster.lists();
    cluster.wait_until("some lists were empty", || cluster.lists() > lists + 10);
    assert_eq!(cluster.stage(&job), "released");
    assert!(cluster.has_copy("n1"));
    cluster.empty_lists(false);
    cluster.pause_tasks(false);
    cluster.wait_until_closed();
    cluster.check_ran(&job);
    cluster.check_nothing_is_left();
}

#[test]
fn reused_number_releases_no_stranger() {
    let cluster = Cluster::start(&NODES[..1], None);
    cluster.delay("n1", Duration::from_secs(1000));
    let job = cluster.submit("/data/a", policy(ReleaseNeed::First), 1);
    cluster.wait_until("the job loads", || cluster.loads() > 0);
    cluster.reuse_number(&job);
    cluster.delay("n1", Duration::ZERO);
    cluster.wait_until_closed();
    assert_eq!(cluster.releases(&job), 0);
    cluster.check_nothing_is_left();
}

#[test]
fn slow_lists_cost_no_lease() {
    let cluster = Cluster::start(&NODES[..1], None);
    let _second = cluster.second_gateway();
    // Longer than the lease.
    cluster.slow_down(Duration::from_secs(3));
    let job = cluster.submit("/data/a", policy(ReleaseNeed::First), 1);
    cluster.wait_until("the task ran", || cluster.ran(&job).len() == 1);
    assert_eq!(cluster.releases(&job), 1);
    cluster.slow_down(Duration::ZERO);
}

#[test]
fn requeued_job_gets_its_data_again() {
    let cluster = Cluster::start(&NODES[..2], None);
    let job = cluster.submit("/data/a", policy(ReleaseNeed::All), 2);
    cluster.wait_until_closed();
    cluster.run_more(&job, 2);
    cluster.wait_until("its tasks ran again", || cluster.ran(&job).len() == 4);
    cluster.wait_until_closed();
    cluster.check_ran(&job);
    cluster.check_nothing_is_left();
}

#[test]
fn burst_of_submissions_succeeds() {
    let cluster = Cluster::start(&NODES[..1], None);
    cluster.delay("n1", Duration::from_secs(1000));
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| cluster.submit("/data/a", policy(ReleaseNeed::First), 1));
        }
    });
}

#[test]
fn job_reads_one_version_of_its_data() {
    for call in (1..50).step_by(7) {
        let cluster = Cluster::start(&NODES[..2], Some((call, When::After)));
        cluster.pause_tasks(true);
        let job = cluster.submit("/data/a", policy(ReleaseNeed::First), 10_000);
        cluster.wait_until("the job is released", || cluster.releases(&job) == 1);
        cluster.pause_tasks(false);
        cluster.wait_until("a task ran", || !cluster.ran(&job).is_empty());
        cluster.pause_tasks(true);
        cluster.change_data();
        for node in &NODES[..2] {
            cluster.lose_copies(node);
        }
        cluster.take_over();
        let is_told = || {
            let fault = cluster.fault(&job);
            fault.is_some_and(|fault| fault.contains("the data changed"))
        };
        cluster.wait_until("the change is told", is_told);
        assert!(!cluster.has_copy("n1") && !cluster.has_copy("n2"));
        cluster.cancel(&job);
        cluster.wait_until_closed();
        cluster.check_nothing_is_left();
    }
}

#[test]
fn refusals_of_the_batch_system_are_repeated() {
    let cluster = Cluster::start(&NODES, None);
    cluster.fail_calls(5);
    run_all(&cluster);
}

#[test]
fn job_of_another_user_is_left_alone() {
    let cluster = Cluster::start(&NODES, None);
    let stolen = cluster.submit_as("/data/a", "mallory");
    let own = cluster.submit("/data/b", policy(ReleaseNeed::First), 1);
    cluster.wait_until("the own job ran", || cluster.ran(&own).len() == 1);
    assert_eq!(cluster.releases(&stolen), 0);
    assert_eq!(cluster.stage(&stolen), "prepared");
}

#[test]
fn two_gateways_release_each_job_once() {
    let cluster = Cluster::start(&NODES, None);
    let other = cluster.second_gateway();
    run_all(&cluster);
    drop(other);
}

#[test]
fn jobs_without_rights_exclude_nodes() {
    let cluster = Cluster::without_rights(&NODES);
    run_all(&cluster);
}

#[test]
fn silent_node_delays_no_other_job() {
    let cluster = Cluster::start(&NODES, None);
    cluster.silence(&["n4"]);
    // More jobs than casts at a time. The casts of the first ones wait for the node.
    let submit = |number: u32| {
        let data = format!("/data/{}", number % 3);
        cluster.submit(&data, policy(ReleaseNeed::Quorum(75)), 1)
    };
    let jobs: Vec<_> = (0..12).map(submit).collect();
    for job in &jobs {
        cluster.wait_until("the job ran", || cluster.ran(job).len() == 1);
    }
    // The node keeps its references until it answers.
    cluster.silence(&[]);
    cluster.wait_until_closed();
}

#[test]
fn node_that_answers_again_gets_all_data() {
    let cluster = Cluster::start(&NODES, None);
    cluster.silence(&["n4"]);
    let submit = |_| cluster.submit("/data/a", policy(ReleaseNeed::All), 1);
    let jobs: Vec<_> = (0..20).map(submit).collect();
    cluster.wait_until("all jobs wait for the node", || {
        cluster.loads() >= 20 && cluster.waiting_for("n4") == 20
    });
    let before = (cluster.probes(), cluster.loads());
    cluster.wait_until("the node is asked", || cluster.probes() > before.0);
    // One question to the node serves all jobs, and none of them casts to it.
    assert_eq!(cluster.loads(), before.1);
    cluster.silence(&[]);
    cluster.wait_until_closed();
    for job in &jobs {
        cluster.check_ran(job);
    }
    cluster.check_nothing_is_left();
}

#[test]
fn collections_at_a_time_are_limited() {
    let cluster = Cluster::start(&NODES, None);
    cluster.hold_up(true);
    let first = cluster.submit("/data/a", policy(ReleaseNeed::All), 8);
    let second = cluster.submit("/data/b", policy(ReleaseNeed::All), 8);
    cluster.wait_until("nodes are collected from at the same time", || {
        cluster.collecting().0 == COLLECTIONS
    });
    let calls = cluster.calls();
    cluster.wait_until("the gateway goes on", || cluster.calls() > calls + 20);
    cluster.hold_up(false);
    cluster.wait_until_closed();
    assert_eq!(cluster.collecting(), (0, COLLECTIONS));
    cluster.check_ran(&first);
    cluster.check_ran(&second);
    cluster.check_nothing_is_left();
}

#[test]
fn held_jobs_ask_for_nodes_together() {
    let cluster = Cluster::start(&NODES, None);
    cluster.drain(&NODES);
    let submit = |_| cluster.submit("/data/a", policy(ReleaseNeed::First), 1);
    let jobs: Vec<_> = (0..100).map(submit).collect();
    let has_fault = || cluster.with_fault("no node is up") == 100;
    cluster.wait_until("all jobs know the cause", has_fault);
    let before = (cluster.questions(), cluster.calls());
    cluster.wait_until("turns pass", || cluster.calls() > before.1 + 40);
    let (more, calls) = (cluster.questions() - before.0, cluster.calls() - before.1);
    assert!(
        more <= calls - more,
        "{more} of {calls} calls ask for nodes"
    );
    cluster.drain(&[]);
    for job in &jobs {
        cluster.wait_until("the job ran", || cluster.ran(job).len() == 1);
    }
}

#[test]
fn results_wait_for_room_at_their_destination() {
    let cluster = Cluster::start(&NODES, None);
    cluster.fill(true);
    let job = cluster.submit("/data/a", policy(ReleaseNeed::All), 6);
    cluster.wait_until("the gateway shows the fault", || cluster.has_result_fault());
    cluster.wait_until("all tasks ran", || cluster.ran(&job).len() == 6);
    assert_ne!(cluster.stage(&job), "closed");
    cluster.fill(false);
    cluster.wait_until_closed();
    cluster.check_ran(&job);
    assert!(!cluster.has_result_fault());
    cluster.check_nothing_is_left();
}

#[test]
fn failed_table_loses_no_results() {
    let cluster = Cluster::start(&NODES, None);
    let job = paused_job(&cluster, 4);
    cluster.hide_results(true);
    cluster.pause_tasks(false);
    cluster.wait_until("all tasks ran", || cluster.ran(&job).len() == 4);
    let lists = cluster.lists();
    cluster.wait_until("turns pass", || cluster.lists() > lists + 10);
    assert_eq!(cluster.count_arrived(&job), 0);
    cluster.hide_results(false);
    cluster.wait_until_closed();
    cluster.check_ran(&job);
    cluster.check_nothing_is_left();
}

#[test]
fn silent_node_holds_up_no_other_results() {
    let cluster = Cluster::start(&NODES, None);
    cluster.pause_tasks(true);
    let job = cluster.submit("/data/a", policy(ReleaseNeed::All), 8);
    cluster.wait_until("the job is released", || cluster.releases(&job) == 1);
    cluster.silence(&["n2"]);
    cluster.pause_tasks(false);
    cluster.wait_until("all tasks ran", || cluster.ran(&job).len() == 8);
    cluster.wait_until("other nodes are empty", || {
        cluster.nodes_with_results() <= 1
    });
    cluster.wait_until("the gateway shows the fault", || cluster.has_result_fault());
    cluster.silence(&[]);
    cluster.wait_until_closed();
    cluster.check_ran(&job);
    cluster.check_nothing_is_left();
}

/// Starts a job whose tasks are paused, and waits until it is released.
fn paused_job(cluster: &Cluster, tasks: u64) -> JobId {
    cluster.pause_tasks(true);
    let job = cluster.submit("/data/a", policy(ReleaseNeed::All), tasks);
    cluster.wait_until("the job is released", || cluster.releases(&job) == 1);
    cluster.start_tasks();
    turns_pass(cluster);
    job
}

fn turns_pass(cluster: &Cluster) {
    let calls = cluster.calls();
    cluster.wait_until("turns pass", || cluster.calls() > calls + 40);
}

#[test]
fn late_node_replaces_no_newer_results() {
    let cluster = Cluster::start(&NODES, None);
    let job = paused_job(&cluster, 1);
    assert_eq!(cluster.running_on(&job), ["n1"]);
    cluster.silence(&["n1"]);
    cluster.requeue(&job, "n1");
    cluster.start_tasks();
    assert_eq!(cluster.running_on(&job), ["n2"]);
    turns_pass(&cluster);
    cluster.pause_tasks(false);
    cluster.wait_until("the last run is collected", || {
        cluster.arrived(&job, 0).0.as_deref() == Some("n2")
    });
    // Another gateway has not seen the runs.
    cluster.take_over();
    cluster.silence(&[]);
    cluster.wait_until_closed();
    let expected = (Some("n2".to_owned()), vec!["n1".to_owned()]);
    assert_eq!(cluster.arrived(&job, 0), expected);
    assert_eq!(cluster.earlier_runs(&job), [("n1".to_owned(), 1)]);
    cluster.check_nothing_is_left();
}

#[test]
fn task_that_waits_again_keeps_its_results() {
    let cluster = Cluster::start(&NODES, None);
    let job = paused_job(&cluster, 2);
    cluster.requeue(&job, "n1");
    turns_pass(&cluster);
    assert_eq!(cluster.count_arrived(&job), 0);
    cluster.pause_tasks(false);
    cluster.wait_until_closed();
    cluster.check_ran(&job);
    // No answer has to show so short a run.
    let (last, aside) = cluster.arrived(&job, 0);
    assert!(last.is_some_and(|node| node != "n1"));
    assert!(aside.iter().all(|node| node == "n1"), "{aside:?}");
    cluster.check_nothing_is_left();
}

#[test]
fn restarted_task_is_not_collected() {
    let cluster = Cluster::start(&NODES, None);
    let job = paused_job(&cluster, 2);
    cluster.hold_up(true);
    cluster.end_task(&job, 0);
    cluster.wait_until("its collection begins", || cluster.collecting().0 == 1);
    cluster.run_again(&job, "n1", 0);
    cluster.hold_up(false);
    turns_pass(&cluster);
    assert_eq!(cluster.count_arrived(&job), 0);
    cluster.pause_tasks(false);
    cluster.wait_until_closed();
    cluster.check_ran(&job);
    cluster.check_nothing_is_left();
}

#[test]
fn name_of_no_task_waits_for_the_job() {
    let cluster = Cluster::start(&NODES, None);
    let job = paused_job(&cluster, 2);
    cluster.leave(&job, "n1", (2024, false));
    cluster.end_task(&job, 0);
    cluster.wait_until("a task is collected", || cluster.count_arrived(&job) == 1);
    turns_pass(&cluster);
    cluster.check_faults();
    cluster.leave(&job, "n1", (2024, true));
    cluster.pause_tasks(false);
    cluster.wait_until_closed();
    assert_eq!(cluster.arrived(&job, 2024).0.as_deref(), Some("n1"));
    cluster.check_nothing_is_left();
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn results_survive_random_accidents() {
    let run = |seed: u64| {
        println!("seed {seed}: DRIFTLESS_SEED={seed} repeats it");
        run_with_accidents(&mut fastrand::Rng::with_seed(seed));
    };
    match number("DRIFTLESS_SEED") {
        Some(seed) => run(seed),
        None => (0..number("DRIFTLESS_SEEDS").unwrap_or(SEEDS)).for_each(run),
    }
}

/// Lets gateways lose the lease, nodes fall silent, destinations fill up and calls fail while jobs run.
fn run_with_accidents(rng: &mut fastrand::Rng) {
    let cluster = Cluster::start(&NODES, None);
    let other = cluster.second_gateway();
    let needs = [
        ReleaseNeed::First,
        ReleaseNeed::All,
        ReleaseNeed::Quorum(50),
    ];
    let data = ["/data/a", "/data/b"];
    let submit = |tasks| {
        let need = needs[tasks as usize % needs.len()];
        cluster.submit(data[tasks as usize % data.len()], policy(need), tasks)
    };
    let jobs: Vec<_> = (0..5).map(|_| submit(rng.u64(3..30))).collect();
    for _ in 0..ACCIDENTS {
        match rng.u8(..6) {
            0 => cluster.take_over(),
            1 => cluster.fill(true),
            2 => cluster.silence(&NODES[..rng.usize(1..3)]),
            3 => cluster.fail_calls(4),
            4 => cluster.hold_up(true),
            _ => cluster.calm(),
        }
        std::thread::sleep(Duration::from_millis(rng.u64(..30)));
    }
    cluster.calm();
    cluster.wait_until_closed();
    jobs.iter().for_each(|job| cluster.check_ran(job));
    cluster.check_nothing_is_left();
    drop(other);
}
