//! Results of jobs at nodes: listed, sealed, read through an agent, and discarded.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Cluster, LONG, patient, run_node, wait_until};
use driftless_cast::{
    CastNode, ContentLimits, DaemonSettings, DaemonTrust, EndedRelay, ExpectedPeer, NodeAccess,
    NodeDaemon, OrderFault, OrderSettings, OutboxReader, SealMove, SealOutcome, SealedPath,
    TlsIdentity, discard_outbox, end_job, list_outbox, list_sealed, relay_outbox, seal_outbox,
    sealed_names,
};
use driftless_testkit::write_program;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

static NO_STOP: AtomicBool = AtomicBool::new(false);

/// The process of a node, which other tests start.
#[test]
#[ignore = "other tests start this process"]
fn node_process() {
    run_node();
}

/// A daemon whose agents are a shell script, with a cached copy and an outbox of the job `job`.
struct Site {
    cluster: Cluster,
    node: CastNode,
    orders: OrderSettings,
    stop: Arc<AtomicBool>,
    running: Option<JoinHandle<()>>,
}

impl Site {
    fn new(agent: &str) -> Site {
        let cluster = Cluster::new(1);
        cluster.write("file", 1000);
        let program = cluster.path("agent");
        write_program(&program, &format!("#!/bin/sh\n{agent}\n"));
        let identity = TlsIdentity::generate().expect("a key");
        let mut node = common::node_settings(&cluster.path("n1"));
        node.program = Some(program);
        let settings = DaemonSettings {
            node,
            trust: DaemonTrust::Keys(vec![identity.key()]),
            places: Vec::new(),
        };
        let daemon = NodeDaemon::start(&settings).expect("a daemon");
        let access = NodeAccess::Daemon {
            host: "127.0.0.1".into(),
            port: daemon.address().port(),
            peer: ExpectedPeer::Key(daemon.key()),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let running = std::thread::spawn(move || daemon.run(&stopped).expect("its end"));
        let name = "n1".into();
        let mut site = Site {
            node: CastNode { name, access },
            orders: OrderSettings {
                ssh: None,
                identity: Some(identity),
                authority_pem: None,
                transfer: patient(),
                parallel_max: 1,
            },
            cluster,
            stop,
            running: Some(running),
        };
        site.cast();
        site
    }

    fn cast(&mut self) {
        let mut settings = self.cluster.settings();
        settings.identity = self.orders.identity.clone();
        settings.nodes = vec![self.node.clone()];
        settings.content = ContentLimits {
            job: Some("job".into()),
            has_outbox: true,
            ..ContentLimits::default()
        };
        let report = self.cluster.cast(&settings);
        self.cluster.assert_complete(&report);
    }

    fn outbox(&self) -> PathBuf {
        self.cluster.path("n1/store/outbox/job")
    }

    fn names(&self) -> Vec<Vec<u8>> {
        let listed = list_outbox(
            &self.orders,
            std::slice::from_ref(&self.node),
            "job",
            &NO_STOP,
        );
        listed.expect("outcomes")[0].names.clone().expect("names")
    }

    fn seal(&self, moves: &[(&[u8], &[u8])]) -> Vec<SealOutcome> {
        let order = |(name, path): &(&[u8], &[u8])| SealMove {
            name: name.to_vec().try_into().expect("a name"),
            path: SealedPath::parse(path).expect("a path"),
        };
        let moves: Vec<SealMove> = moves.iter().map(order).collect();
        seal_outbox(&self.orders, &self.node, ("job", &moves), &NO_STOP).expect("outcomes")
    }

    fn seal_one(&self) {
        fs::write(self.outbox().join("1"), "one").expect("written");
        assert_eq!(self.seal(&[(b"1", b"1")]), [SealOutcome::Sealed]);
    }

    /// Runs a relay, with `client` at the other end of its stream.
    fn relay<T: Send>(
        &self,
        stop: &AtomicBool,
        client: impl FnOnce(UnixStream) -> T + Send,
    ) -> (Result<EndedRelay, OrderFault>, T) {
        let (own, other) = UnixStream::pair().expect("streams");
        std::thread::scope(|scope| {
            let client = scope.spawn(move || client(other));
            let reader = OutboxReader {
                job: "job",
                stream: &own,
                pace: None,
            };
            let ended = relay_outbox(&self.orders, &self.node, &reader, stop);
            drop(own);
            (ended, client.join().expect("the client"))
        })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(running) = self.running.take() {
            let _panic_was_printed = running.join();
        }
    }
}

#[test]
fn results_are_sealed_and_discarded_by_order() {
    let site = Site::new("exit 1");
    for at in 0..5000 {
        fs::write(site.outbox().join(at.to_string()), "").expect("written");
    }
    fs::write(site.outbox().join("log \u{1}"), "text").expect("written");
    assert_eq!(site.names().len(), 5001);
    let outcomes = site.seal(&[
        (b"7", b"n1/7"),
        (b"log \x01", b"n1/log"),
        (b"none", b"none"),
    ]);
    let (sealed, missing) = (SealOutcome::Sealed, SealOutcome::Missing);
    assert_eq!(outcomes, [sealed.clone(), sealed.clone(), missing]);
    assert_eq!(site.seal(&[(b"7", b"n1/7")]), [sealed]);
    let nodes = [site.node.clone()];
    let listed = list_sealed(&site.orders, &nodes, "job", &NO_STOP).expect("outcomes");
    assert_eq!(listed[0].names, Ok(vec![b"n1".to_vec()]));
    let ended = end_job(&site.orders, &nodes, "job", &NO_STOP).expect("outcomes");
    assert!(
        !ended[0].is_ended() && ended[0].staying.len() == 1,
        "{ended:?}"
    );
    let path = |path: &[u8]| SealedPath::parse(path).expect("a path");
    let paths = [path(b"n1/7"), path(b"n1/7"), path(b"n1/log")];
    let discarded = discard_outbox(&site.orders, &site.node, ("job", &paths), &NO_STOP);
    assert_eq!(discarded, Ok(vec![None, None, None]));
    for at in 0..5000 {
        let _one_is_sealed = fs::remove_file(site.outbox().join(at.to_string()));
    }
    let ended = end_job(&site.orders, &nodes, "job", &NO_STOP).expect("outcomes");
    assert!(ended[0].is_ended() && !site.outbox().exists(), "{ended:?}");
}

#[test]
fn discard_of_a_generation_keeps_later_results() {
    let site = Site::new("exit 1");
    for name in ["7", "8"] {
        fs::write(site.outbox().join(name), name).expect("written");
    }
    // Two gateways collect, and one of them was stopped for a while.
    assert_eq!(site.seal(&[(b"7", b"first/n1/7")]), [SealOutcome::Sealed]);
    assert_eq!(site.seal(&[(b"8", b"second/n1/8")]), [SealOutcome::Sealed]);
    let path = |path: &[u8]| SealedPath::parse(path).expect("a path");
    let names = |below: Option<&[u8]>| {
        let below = below.map(path);
        sealed_names(&site.orders, &site.node, ("job", below.as_ref()), &NO_STOP)
    };
    assert_eq!(names(None), Ok(vec![b"first".to_vec(), b"second".to_vec()]));
    assert_eq!(names(Some(b"second/n1")), Ok(vec![b"8".to_vec()]));
    assert!(names(Some(b"second/n1/8")).is_err(), "no directory");
    let first = [path(b"first")];
    let discarded = discard_outbox(&site.orders, &site.node, ("job", &first), &NO_STOP);
    assert_eq!(discarded, Ok(vec![None]));
    assert_eq!(names(None), Ok(vec![b"second".to_vec()]));
    assert_eq!(names(Some(b"first")), Ok(Vec::new()));
}

#[test]
fn strangers_give_no_orders_about_results() {
    let mut site = Site::new("cat");
    site.seal_one();
    site.orders.identity = None;
    let (ended, ()) = site.relay(&NO_STOP, |_| ());
    assert!(
        matches!(ended, Err(OrderFault::Unreachable(_))),
        "{ended:?}"
    );
    let paths = [SealedPath::parse(b"1").expect("a path")];
    let discarded = discard_outbox(&site.orders, &site.node, ("job", &paths), &NO_STOP);
    assert!(discarded.is_err());
    assert!(site.cluster.path("n1/store/outbox/.sealed/job/1").exists());
}

#[test]
fn relay_carries_bytes_and_ends_both_ways() {
    let site = Site::new("echo \"$@\" >&2; cat; echo over; exit 7");
    let (ended, ()) = site.relay(&NO_STOP, |_| ());
    assert!(
        matches!(ended, Err(OrderFault::Failed(_))),
        "nothing is sealed: {ended:?}"
    );
    site.seal_one();
    let sent = vec![7; 3_000_000];
    let (ended, received) = site.relay(&NO_STOP, |mut stream| {
        let mut upload = stream.try_clone().expect("a stream");
        let bytes = sent.clone();
        let sending = std::thread::spawn(move || {
            upload.write_all(&bytes).expect("sent");
            upload.shutdown(Shutdown::Write).expect("closed");
        });
        let mut received = Vec::new();
        stream.read_to_end(&mut received).expect("received");
        sending.join().expect("its end");
        received
    });
    assert_eq!(received, [&sent[..], b"over\n"].concat());
    let ended = ended.expect("a relay");
    assert_eq!(ended.code, Some(7));
    let sealed = site.cluster.path("n1/store/outbox/.sealed/job");
    let words = format!(
        "agent --only {} --read-only --without-landlock",
        sealed.display()
    );
    assert_eq!(ended.detail, words);
}

#[test]
fn slow_client_holds_up_the_agent() {
    // Longer than the silence after which a peer counts as dead.
    let site = Site::new("head -c 200000000 /dev/zero; echo done > \"$3/done\"");
    site.seal_one();
    let done = site.cluster.path("n1/store/outbox/.sealed/job/done");
    let (ended, bytes) = site.relay(&NO_STOP, |mut stream| {
        std::thread::sleep(Duration::from_secs(7));
        assert!(!done.exists(), "the agent was not held up");
        std::io::copy(&mut stream, &mut std::io::sink()).expect("received")
    });
    assert_eq!(ended.expect("a relay").code, Some(0));
    assert_eq!(bytes, 200_000_000);
}

#[test]
fn stopped_relay_ends_its_agent() {
    let site = Site::new("echo $$ > \"$3/pid\"; exec sleep 600");
    site.seal_one();
    let pid = site.cluster.path("n1/store/outbox/.sealed/job/pid");
    let stop = AtomicBool::new(false);
    let begin = Instant::now();
    let (ended, pid) = site.relay(&stop, |_stream| {
        wait_until("the agent runs", || {
            fs::read_to_string(&pid).is_ok_and(|pid| !pid.is_empty())
        });
        stop.store(true, Relaxed);
        fs::read_to_string(&pid).expect("a number")
    });
    assert!(
        matches!(ended, Err(OrderFault::Unreachable(_))),
        "{ended:?}"
    );
    let process = PathBuf::from(format!("/proc/{}", pid.trim()));
    wait_until("the agent ends", || !process.exists());
    assert!(begin.elapsed() < LONG);
}
