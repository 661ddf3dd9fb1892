//! Ends of jobs, and names of jobs, at many nodes without a cast.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Cluster, Daemon, patient, run_node};
use driftless_cast::{
    CastNode, ContentLimits, EndedJob, OrderFault, OrderSettings, TlsIdentity, end_job, list_jobs,
};
use driftless_store::NodeStore;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The process of a node, which other tests start.
#[test]
#[ignore = "other tests start this process"]
fn node_process() {
    run_node();
}

/// Nodes `n1`, a daemon, and `n2` and `n3`, which ssh starts.
struct Site {
    cluster: Cluster,
    daemon: Daemon,
    nodes: Vec<CastNode>,
    orders: OrderSettings,
}

impl Site {
    fn new() -> Site {
        let cluster = Cluster::new(3);
        cluster.write("file", 300_000);
        let identity = TlsIdentity::generate().expect("a key");
        let daemon = Daemon::start(&cluster, &identity);
        let settings = cluster.settings();
        let mut nodes = settings.nodes.clone();
        nodes[0] = daemon.node();
        let orders = OrderSettings {
            ssh: settings.ssh,
            identity: Some(identity),
            authority_pem: None,
            transfer: patient(),
            parallel_max: 2,
        };
        Site {
            cluster,
            daemon,
            nodes,
            orders,
        }
    }

    fn cast(&self, content: ContentLimits) {
        let mut settings = self.cluster.settings();
        settings.identity = self.orders.identity.clone();
        settings.nodes = self.nodes.clone();
        settings.content = content;
        let report = self.cluster.cast(&settings);
        self.cluster.assert_complete(&report);
    }

    fn cast_job(&self, job: &str) {
        self.cast(ContentLimits {
            job: Some(job.into()),
            ..ContentLimits::default()
        });
    }

    fn end(&self, job: &str) -> Vec<EndedJob> {
        let stop = AtomicBool::new(false);
        end_job(&self.orders, &self.nodes, job, &stop).expect("outcomes")
    }

    fn jobs(&self, prefix: &str) -> Vec<Result<Vec<String>, OrderFault>> {
        let stop = AtomicBool::new(false);
        let found = list_jobs(&self.orders, &self.nodes, prefix, &stop).expect("outcomes");
        found.into_iter().map(|node| node.jobs).collect()
    }
}

fn open(dir: &Path) -> NodeStore {
    NodeStore::open(dir, Arc::new(|| Duration::from_secs(9))).expect("a store")
}

#[test]
fn ended_job_leaves_no_copy() {
    let site = Site::new();
    site.cast_job("gw-1");
    let link = site.daemon.dir.join("jobs/gw-1/src/file");
    assert_eq!(fs::read(&link).expect("there").len(), 300_000);
    let names = |names: &[&str]| Ok(names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(
        site.jobs("gw-"),
        [names(&["gw-1"]), names(&["gw-1"]), names(&["gw-1"])]
    );
    assert_eq!(site.jobs("other"), [names(&[]), names(&[]), names(&[])]);

    site.cluster.set_dead("n3", true);
    let ended = site.end("gw-1");
    assert_eq!(
        ended.iter().map(|node| node.copies).collect::<Vec<_>>(),
        [1, 1, 0]
    );
    assert_eq!((ended[0].bytes, ended[0].is_ended()), (300_000, true));
    let fault = ended[2].fault.clone();
    assert!(
        matches!(fault, Some(OrderFault::Unreachable(_))),
        "{fault:?}"
    );
    assert!(!link.exists() && !site.cluster.has_copy("n2"));

    site.cluster.set_dead("n3", false);
    let ended = site.end("gw-1");
    assert_eq!(
        ended.iter().map(|node| node.copies).collect::<Vec<_>>(),
        [0, 0, 1]
    );
    assert!(ended.iter().all(EndedJob::is_ended), "{ended:?}");
    assert_eq!(site.jobs(""), [names(&[]), names(&[]), names(&[])]);
}

#[test]
fn needed_and_busy_copies_stay() {
    let site = Site::new();
    site.cast_job("one");
    site.cast_job("two");
    let ended = site.end("one");
    assert!(ended.iter().all(EndedJob::is_ended), "{ended:?}");
    assert!(ended[1].kept[0].reason.contains("job \"two\""), "{ended:?}");
    let store = open(&site.cluster.path("n2/store"));
    let copy = store.copies().expect("read")[0].id;
    let in_use = store.use_copy(copy).expect("used");
    let ended = site.end("two");
    assert_eq!(
        ended.iter().map(|node| node.copies).collect::<Vec<_>>(),
        [1, 0, 1]
    );
    assert!(ended[1].is_busy() && !ended[1].is_ended(), "{ended:?}");
    drop(in_use);
    assert_eq!(site.end("two")[1].copies, 1);

    site.cast(ContentLimits {
        job: Some("three".into()),
        seconds_max: Some(1000),
        ..ContentLimits::default()
    });
    let store = open(&site.daemon.dir);
    let copy = store.copies().expect("read")[0].id;
    store.pin(copy, true).expect("pinned");
    let ended = site.end("three");
    assert_eq!(ended[0].kept[0].reason, "it is pinned");
    assert!(
        ended[1].kept[0].reason.starts_with("its lifetime"),
        "{ended:?}"
    );
}

#[test]
fn copies_of_a_reader_are_closed() {
    const READER: u32 = 65_533;
    let site = Site::new();
    let mut settings = site.cluster.settings();
    settings.identity = site.orders.identity.clone();
    settings.nodes = site.nodes.clone();
    settings.content.reader = Some(READER);
    let refused = driftless_cast::cast(&settings, &*site.cluster.events, &site.cluster.stop);
    assert!(refused.is_err(), "a reader without a job");
    settings.content.job = Some("job".into());
    let report = site.cluster.cast(&settings);
    if !rustix::process::geteuid().is_root() {
        let reason = report.nodes[0].reason.clone().unwrap_or_default();
        assert!(
            reason.contains("run the daemon of the node as root"),
            "{reason}"
        );
        return;
    }
    site.cluster.assert_complete(&report);
    let set = report.set.clone();
    let dir = site.daemon.dir.join("sets").join(set);
    let mode = || fs::metadata(&dir).expect("there").permissions().mode() & 0o7777;
    assert_eq!(mode(), 0o750);
    assert!(site.daemon.dir.join("jobs/job/src/file").exists());
    settings.content.job = Some("other".into());
    settings.content.reader = Some(READER - 1);
    let report = site.cluster.cast(&settings);
    site.cluster.assert_complete(&report);
    let ended = site.end("job");
    assert_eq!(ended[0].kept.len(), 1, "{ended:?}");
    assert_eq!(mode(), 0o750);
    assert_eq!(site.end("other")[0].copies, 1);
    assert!(!dir.exists());
}

#[test]
fn strangers_end_no_job() {
    let site = Site::new();
    site.cast_job("one");
    let orders = OrderSettings {
        identity: None,
        ..site.orders.clone()
    };
    let stop = AtomicBool::new(false);
    let ended = end_job(&orders, &site.nodes[..1], "one", &stop).expect("outcomes");
    assert!(!ended[0].is_ended(), "{ended:?}");
    assert!(site.daemon.dir.join("jobs/one").exists());
    assert!(end_job(&site.orders, &site.nodes, "", &stop).is_err());
    assert!(list_jobs(&site.orders, &site.nodes, "a\n", &stop).is_err());
}
