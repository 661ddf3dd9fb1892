//! Casts to a daemon, questions of local users, and measurements.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Cluster, Daemon, patient, run_node};
use driftless_cast::{
    CastNode, CastPlace, ContentLimits, DoctorSettings, PurgeSelection, TlsIdentity, examine,
    node_info, purge_node, verify_node,
};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// The process of a node, which other tests start.
#[test]
#[ignore = "other tests start this process"]
fn node_process() {
    run_node();
}

#[test]
fn daemon_serves_a_cast_and_its_users() {
    let cluster = Cluster::new(2);
    cluster.write("file", 300_000);
    let identity = TlsIdentity::generate().expect("a key");
    let daemon = Daemon::start(&cluster, &identity);
    let mut settings = cluster.settings();
    settings.identity = Some(identity);
    settings.nodes[0] = daemon.node();
    settings.place = CastPlace::Directory(cluster.path("n1/to"));
    settings.nodes.truncate(1);
    settings.content = ContentLimits {
        job: Some("job-1".into()),
        ..ContentLimits::default()
    };
    let report = cluster.cast(&settings);
    cluster.assert_complete(&report);
    let copy = cluster.copy("n1");
    let options = driftless_testkit::Options::default();
    driftless_testkit::assert_equal(&cluster.path("src"), &copy, &options, "n1");

    let info = node_info(&daemon.dir).expect("an answer");
    assert!(info.has_daemon && info.copies.len() == 1, "{info:?}");
    assert_eq!(info.copies[0].jobs, ["job-1"]);
    assert_eq!(info.copies[0].state, "complete");
    let sound = verify_node(&daemon.dir, None).expect("an answer");
    assert!(sound.len() == 1 && sound[0].is_sound, "{sound:?}");
    fs::write(copy.join("file"), "changed").expect("a file");
    let damaged = verify_node(&daemon.dir, Some(info.copies[0].copy)).expect("an answer");
    assert!(!damaged[0].is_sound, "{damaged:?}");
    assert!(verify_node(&daemon.dir, Some(99)).is_err());
    // The next cast repairs the copy.
    let report = cluster.cast(&settings);
    cluster.assert_complete(&report);
    driftless_testkit::assert_equal(&cluster.path("src"), &copy, &options, "n1");
    check_staying_copy(&cluster, &daemon);
    let purged = purge_node(&daemon.dir, &PurgeSelection::All).expect("an answer");
    assert!(purged.copies >= 1 && !copy.exists(), "{purged:?}");
    let dir = daemon.dir.clone();
    drop(daemon);
    let info = node_info(&dir).expect("an answer");
    assert!(!info.has_daemon && info.copies.is_empty(), "{info:?}");
}

/// Checks what the daemon reports of a copy whose place is another directory for a while.
fn check_staying_copy(cluster: &Cluster, daemon: &Daemon) {
    let (to, moved) = (cluster.path("n1/to"), cluster.path("n1/moved"));
    fs::rename(&to, &moved).expect("moved");
    fs::create_dir(&to).expect("a folder");
    let purged = purge_node(&daemon.dir, &PurgeSelection::All).expect("an answer");
    let reason = &purged.staying[0].reason;
    assert!(purged.copies == 0 && !purged.is_busy(), "{purged:?}");
    assert!(reason.contains("another directory"), "{reason}");
    fs::remove_dir(&to).expect("removed");
    fs::rename(&moved, &to).expect("moved back");
}

#[test]
fn daemon_refuses_an_unknown_coordinator() {
    let cluster = Cluster::new(1);
    cluster.write("file", 10);
    let daemon = Daemon::start(&cluster, &TlsIdentity::generate().expect("a key"));
    let mut settings = cluster.settings();
    settings.identity = Some(TlsIdentity::generate().expect("a key"));
    settings.nodes[0] = daemon.node();
    settings.limits.join_ms = 1000;
    settings.start_wait = Duration::from_millis(100);
    let report = cluster.cast(&settings);
    assert!(!report.is_complete(), "{report:#?}");
    assert!(node_info(&daemon.dir).expect("an answer").copies.is_empty());
}

#[test]
fn second_name_of_a_daemon_fails() {
    let cluster = Cluster::new(2);
    cluster.write("file", 10);
    let identity = TlsIdentity::generate().expect("a key");
    let daemon = Daemon::start(&cluster, &identity);
    let mut settings = cluster.settings();
    settings.identity = Some(identity);
    for (at, name) in ["n1", "alias"].into_iter().enumerate() {
        settings.nodes[at] = CastNode {
            name: name.into(),
            ..daemon.node()
        };
    }
    settings.place = CastPlace::Directory(cluster.path("n1/to"));
    let report = format!("{:?}", cluster.cast(&settings));
    let refused = report.matches("already under another name").count();
    assert_eq!(refused, 1, "{report}");
    let info = node_info(&daemon.dir).expect("an answer");
    assert_eq!(info.copies.len(), 1, "{info:?}");
}

/// Returns settings for measurements of all nodes.
fn doctor(cluster: &Cluster, place: PathBuf) -> DoctorSettings {
    let settings = cluster.settings();
    DoctorSettings {
        nodes: settings.nodes,
        ssh: settings.ssh,
        identity: None,
        authority_pem: None,
        place: Some(place),
        link_time: Duration::from_millis(200),
        disk_bytes: 1 << 20,
        transfer: patient(),
    }
}

#[test]
fn doctor_measures_allowed_directories_only() {
    let cluster = Cluster::new(1);
    let identity = TlsIdentity::generate().expect("a key");
    let daemon = Daemon::start(&cluster, &identity);
    let link = cluster.path("n1/to/out");
    std::os::unix::fs::symlink(cluster.path("src"), &link).expect("a link");
    for (place, is_allowed) in [
        (cluster.path("n1/to"), true),
        (cluster.path("src"), false),
        (link, false),
    ] {
        let settings = DoctorSettings {
            nodes: vec![daemon.node()],
            identity: Some(identity.clone()),
            ..doctor(&cluster, place.clone())
        };
        let health = examine(&settings, &mut |_| {}, &cluster.stop).expect("results");
        let has_measured = health[0].disk_write_bytes_per_second.is_some();
        assert_eq!(has_measured, is_allowed, "{place:?}: {health:?}");
        assert_eq!(health[0].faults.is_empty(), is_allowed, "{place:?}");
    }
}

#[test]
fn doctor_measures_each_node() {
    let cluster = Cluster::new(3);
    cluster.set_dead("n3", true);
    let settings = doctor(&cluster, cluster.path("n1"));
    let mut reported = 0;
    let health = examine(&settings, &mut |_| reported += 1, &cluster.stop).expect("results");
    assert_eq!((health.len(), reported), (3, 3));
    for node in &health[..2] {
        assert!(node.faults.is_empty(), "{node:?}");
        assert!(node.from_here.is_some_and(|link| link.bytes_per_second > 0));
        assert!(node.hash_bytes_per_second > Some(0));
    }
    assert!(health[0].from_predecessor.is_none());
    assert!(health[1].from_predecessor.is_some(), "{:?}", health[1]);
    assert_eq!(health[2].faults.len(), 1, "{:?}", health[2]);
}
