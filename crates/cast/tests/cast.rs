//! Casts to node processes on this machine.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Cluster, report_of, run_node, stop, wait_until};
use driftless_cast::{CastEvent, CastSettings, Error, cast};
use driftless_testkit::{FsKind, Profile, Scratch, build_tree};
use rustix::process::Signal;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Variable of the environment with the folder of a cluster.
const FOLDER: &str = "DRIFTLESS_TEST_CLUSTER";
/// Bytes of the large file of a cast that is interrupted.
const LARGE: usize = 12 << 20;

/// The process of a node, which other tests start.
#[test]
#[ignore = "other tests start this process"]
fn node_process() {
    run_node();
}

/// The process of a coordinator, which other tests start and kill.
#[test]
#[ignore = "other tests start this process"]
fn coordinator_process() {
    let folder = std::env::var_os(FOLDER).expect("the folder of the cluster");
    let cluster = Cluster::found(folder.as_ref(), 2);
    cluster.cast(&slow(&cluster));
}

/// Returns settings with which the large file takes seconds.
fn slow(cluster: &Cluster) -> CastSettings {
    let mut settings = cluster.settings();
    settings.transfer.bytes_per_second_max = Some(2 << 20);
    settings
}

#[test]
fn whole_tree_arrives_at_each_node() {
    let cluster = Cluster::new(4);
    build_tree(&cluster.path("src"), 1, &Profile::small());
    cluster.write("large", 9 << 20);
    let report = cluster.cast(&cluster.settings());
    cluster.assert_complete(&report);
    for node in &report.nodes {
        cluster.assert_equal(&node.node);
        assert_eq!(node.set.as_ref(), Some(&report.set));
        assert!(node.received_bytes >= 9 << 20, "{node:?}");
    }
}

#[test]
fn tree_without_content_arrives() {
    let cluster = Cluster::new(2);
    fs::create_dir(cluster.path("src/empty")).expect("a folder");
    cluster.write("nothing", 0);
    let report = cluster.cast(&cluster.settings());
    cluster.assert_complete(&report);
    cluster.assert_equal("n1");
    cluster.assert_equal("n2");
}

#[test]
fn killed_node_does_not_stop_others() {
    let cluster = Cluster::new(4);
    cluster.write("large", LARGE);
    let running = cluster.start(slow(&cluster));
    cluster.events.wait_for_units("n2", 10);
    cluster.set_dead("n2", true);
    cluster.signal("n2", Signal::KILL);
    let report = running.join().expect("a report");
    for node in ["n1", "n3", "n4"] {
        assert!(report_of(&report, node).is_complete, "{report:#?}");
        cluster.assert_equal(node);
    }
    let killed = report_of(&report, "n2");
    assert!(!killed.is_complete && killed.reason.is_some(), "{killed:?}");
    assert!(killed.received_bytes > 0, "{killed:?}");
    assert!(!cluster.has_copy("n2"));
}

#[test]
fn restarted_node_fetches_what_it_lacks() {
    let cluster = Cluster::new(3);
    cluster.write("large", LARGE);
    let running = cluster.start(slow(&cluster));
    cluster.events.wait_for_units("n2", 20);
    cluster.signal("n2", Signal::KILL);
    let report = running.join().expect("a report");
    cluster.assert_complete(&report);
    cluster.assert_equal("n2");
    let restarted = report_of(&report, "n2");
    assert!(restarted.held_bytes > 0, "{restarted:?}");
    assert!(restarted.received_bytes < LARGE as u64, "{restarted:?}");
}

#[test]
fn stopped_node_does_not_stop_others() {
    let cluster = Cluster::new(4);
    cluster.write("large", LARGE);
    let mut settings = slow(&cluster);
    settings.limits.give_up_ms = 10_000;
    let running = cluster.start(settings);
    cluster.events.wait_for_units("n2", 10);
    cluster.set_dead("n2", true);
    cluster.signal("n2", Signal::STOP);
    let report = running.join().expect("a report");
    for node in ["n1", "n3", "n4"] {
        assert!(report_of(&report, node).is_complete, "{report:#?}");
        cluster.assert_equal(node);
    }
    assert!(!report_of(&report, "n2").is_complete);
}

#[test]
fn stopped_cast_is_resumed() {
    let cluster = Cluster::new(2);
    cluster.write("large", LARGE);
    let running = cluster.start(slow(&cluster));
    cluster.events.wait_for_units("n2", 20);
    stop(&cluster);
    let report = running.join().expect("a report");
    assert!(report.is_stopped && !report.is_complete(), "{report:#?}");
    assert!(!cluster.has_copy("n2"));
    cluster.stop.store(false, Ordering::Relaxed);
    let report = cluster.cast(&cluster.settings());
    cluster.assert_complete(&report);
    for node in &report.nodes {
        assert!(node.held_bytes > 0, "{node:?}");
        cluster.assert_equal(&node.node);
    }
}

#[test]
fn commit_at_the_end_counts() {
    let cluster = Cluster::new(1);
    // Many files, so that the commit takes a while.
    for number in 0..3000 {
        cluster.write(&number.to_string(), 100);
    }
    let mut settings = cluster.settings();
    settings.limits.tick_ms = 5;
    let running = cluster.start(settings);
    cluster.events.wait("all units", |event| match event {
        CastEvent::Progress { nodes } => nodes.iter().any(|node| node.bytes >= 300_000),
        // The commit was faster than the next report of progress.
        CastEvent::Ended(_) => true,
        _ => false,
    });
    stop(&cluster);
    let report = running.join().expect("a report");
    assert!(report_of(&report, "n1").is_complete, "{report:#?}");
    cluster.assert_equal("n1");
}

#[test]
fn cause_of_failed_starts_is_told_once() {
    let cluster = Cluster::new(2);
    cluster.write("file", 10);
    let words = "#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n";
    fs::write(cluster.path("ssh"), words).expect("a script");
    let mut settings = cluster.settings();
    settings.start_wait = Duration::from_millis(100);
    settings.limits.join_ms = 3000;
    let report = cluster.cast(&settings);
    for node in &report.nodes {
        let reason = node.reason.as_deref().unwrap_or_default();
        assert!(reason.contains("did not connect within 3 s"), "{reason}");
        assert!(reason.contains("Permission denied"), "{reason}");
    }
    let told = cluster.events.text();
    assert_eq!(told.matches("Unreachable").count(), 2, "{told}");
}

#[test]
fn cast_follows_a_killed_coordinator() {
    let cluster = Cluster::new(2);
    cluster.write("large", LARGE);
    let mut coordinator = Command::new(std::env::current_exe().expect("the test program"))
        .args(["coordinator_process", "--exact", "--ignored"])
        .env(FOLDER, cluster.path(""))
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    wait_until("received content", || {
        let written = |node: &str| {
            let file = cluster.path(node).join("store");
            disk_bytes(&file) > 2 << 20
        };
        written("n1") && written("n2")
    });
    coordinator.kill().expect("a process");
    coordinator.wait().expect("its end");
    let report = cluster.cast(&cluster.settings());
    cluster.assert_complete(&report);
    for node in &report.nodes {
        assert!(node.held_bytes > 0, "{node:?}");
        cluster.assert_equal(&node.node);
    }
}

/// Returns the bytes that all files below a folder take.
fn disk_bytes(folder: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => disk_bytes(&entry.path()),
        Ok(meta) => meta.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(of).sum()
}

#[test]
fn second_version_sends_only_changes() {
    let cluster = Cluster::new(3);
    for number in 0..20 {
        cluster.write(&format!("file{number}"), 500_000 + number);
    }
    let first = cluster.cast(&cluster.settings());
    cluster.assert_complete(&first);
    cluster.write("file7", 500_001);
    let second = cluster.cast(&cluster.settings());
    cluster.assert_complete(&second);
    assert_ne!(first.set, second.set);
    for node in &second.nodes {
        cluster.assert_equal(&node.node);
        assert!(node.received_bytes <= 600_000, "{node:?}");
    }
    // The same version again sends nothing.
    let third = cluster.cast(&cluster.settings());
    cluster.assert_complete(&third);
    assert!(third.nodes.iter().all(|node| node.received_bytes == 0));
}

#[test]
fn full_disk_fails_its_node_alone() {
    let cluster = Cluster::new(3);
    cluster.write("large", LARGE);
    let small = Scratch::new(FsKind::Tmpfs, 8);
    fs::remove_dir_all(cluster.path("n2")).expect("removed");
    std::os::unix::fs::symlink(small.path(), cluster.path("n2")).expect("a link");
    let report = cluster.cast(&cluster.settings());
    for node in ["n1", "n3"] {
        assert!(report_of(&report, node).is_complete, "{report:#?}");
        cluster.assert_equal(node);
    }
    let full = report_of(&report, "n2");
    let reason = full.reason.as_deref().unwrap_or_default();
    assert!(reason.contains("no room"), "{full:?}");
}

#[test]
fn late_node_joins_a_cast() {
    let cluster = Cluster::new(3);
    cluster.write("large", LARGE);
    cluster.set_dead("n3", true);
    let mut settings = slow(&cluster);
    settings.start_wait = Duration::from_millis(500);
    let running = cluster.start(settings);
    cluster.events.wait_for_units("n1", 10);
    cluster.set_dead("n3", false);
    let report = running.join().expect("a report");
    cluster.assert_complete(&report);
    cluster.assert_equal("n3");
    let is_refused = |event: &CastEvent| matches!(event, CastEvent::Unreachable { .. });
    assert!(cluster.events.has(is_refused));
}

#[test]
fn vanished_source_fails_no_complete_node() {
    let cluster = Cluster::new(2);
    cluster.write("large", LARGE);
    cluster.set_dead("n2", true);
    let mut settings = cluster.settings();
    settings.start_wait = Duration::from_millis(200);
    let running = cluster.start(settings);
    cluster
        .events
        .wait("the outcome of n1", |event| match event {
            CastEvent::Ended(report) => report.node == "n1",
            _ => false,
        });
    fs::remove_dir_all(cluster.path("src")).expect("removed");
    cluster.set_dead("n2", false);
    let report = running.join().expect("a report");
    cluster.assert_complete(&report);
}

#[test]
fn source_within_the_store_is_refused() {
    let cluster = Cluster::new(1);
    cluster.write("file", 10);
    let mut settings = cluster.settings();
    settings.dir = cluster.path("src/store");
    fs::create_dir(&settings.dir).expect("a folder");
    let refused = cast(&settings, &*cluster.events, &cluster.stop);
    assert!(matches!(refused, Err(Error::Overlap { .. })), "{refused:?}");
    settings.dir = cluster.path("origin");
    settings.nodes.clear();
    let refused = cast(&settings, &*cluster.events, &cluster.stop);
    assert!(matches!(refused, Err(Error::Settings(_))), "{refused:?}");
}
