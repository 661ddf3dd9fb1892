//! Results of a job: `driftless sync` collects the outbox of a node through `driftless relay`.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::agent;
use common::{USER, check_equal, driftless, stage, wait_until};
use driftless_cast::{
    CastEvent, CastMonitor, CastNode, CastPlace, CastSettings, CastSources, ContentLimits,
    CopyRights, EndedRelay, NodeAccess, OrderFault, OrderSettings, OutboxReader, PlanLimits,
    RackTopology, Reach, SealMove, SealOutcome, SealedPath, SshStart, TransferSettings, cast,
    discard_outbox, end_job, list_outbox, list_sealed, relay_outbox, seal_outbox,
};
use driftless_model::Keep;
use driftless_testkit::{Driftless, Profile, Scratch, attrs, build_tree, write_program};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Takes the words behind `--` and the name, as ssh does, and starts them.
const AS_SSH: &str =
    "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift 2\nexec sh -c \"$*\"\n";
static NO_STOP: AtomicBool = AtomicBool::new(false);

struct NoMonitor;

impl CastMonitor for NoMonitor {
    fn event(&self, _event: CastEvent) {}
}

/// A node that a script in the place of ssh starts, with an outbox of the job `job`.
struct Site {
    folder: Scratch,
    node: CastNode,
    orders: OrderSettings,
}

impl Site {
    fn new() -> Site {
        let (folder, src, _) = stage();
        attrs::set_mode(folder.path(), 0o755).expect("set");
        write_program(&folder.path().join("ssh"), AS_SSH);
        let ssh = folder.path().join("ssh").display().to_string();
        let dir = folder.path().join("node").display().to_string();
        let words = [
            "node",
            "--for-one-cast",
            "--listen",
            "127.0.0.1",
            "--dir",
            &dir,
        ];
        let reach = Reach {
            ssh: vec![ssh],
            agent: vec![agent().to_owned()],
            keep: Keep::default(),
            streams: None,
            compress: None,
            deploy: None,
            connecting: Duration::from_secs(60),
            stop: Arc::default(),
        };
        let orders = OrderSettings {
            ssh: Some(SshStart {
                reach,
                arguments: words.map(str::to_owned).to_vec(),
            }),
            identity: None,
            authority_pem: None,
            transfer: TransferSettings {
                silence_max: Duration::from_secs(5),
                ..TransferSettings::default()
            },
            parallel_max: 1,
        };
        let node = CastNode {
            name: "localhost".into(),
            access: NodeAccess::Ssh,
        };
        let site = Site {
            folder,
            node,
            orders,
        };
        common::put(&src.join("data"), "content");
        site.cast(&src);
        site
    }

    fn cast(&self, src: &Path) {
        let settings = CastSettings {
            sources: CastSources::Paths(vec![src.to_owned()]),
            nodes: vec![self.node.clone()],
            source_name: "source".into(),
            topology: RackTopology::default(),
            dir: self.path("origin"),
            place: CastPlace::Cache,
            keep: Keep::default(),
            rights: CopyRights::ReadOnly,
            content: ContentLimits {
                job: Some("job".into()),
                reader: Some(USER),
                has_outbox: true,
                ..ContentLimits::default()
            },
            ssh: self.orders.ssh.clone(),
            identity: None,
            authority_pem: None,
            transfer: self.orders.transfer.clone(),
            limits: PlanLimits::default(),
            start_wait: Duration::from_secs(2),
        };
        let report = cast(&settings, &NoMonitor, &NO_STOP).expect("a cast");
        assert!(report.is_complete(), "{report:#?}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn nodes(&self) -> [CastNode; 1] {
        [self.node.clone()]
    }

    fn sealed(&self) -> PathBuf {
        self.path("node/outbox/.sealed/job")
    }

    /// Seals all results as `n1/NAME`.
    fn seal_all(&self) {
        let listed = list_outbox(&self.orders, &self.nodes(), "job", &NO_STOP).expect("outcomes");
        let names = listed[0].names.clone().expect("names");
        let order = |name: &Vec<u8>| SealMove {
            name: name.clone().try_into().expect("a name"),
            path: SealedPath::parse(&[&b"n1/"[..], name].concat()).expect("a path"),
        };
        let moves: Vec<SealMove> = names.iter().map(order).collect();
        let sealed = seal_outbox(&self.orders, &self.node, ("job", &moves), &NO_STOP);
        assert!(
            sealed
                .expect("sealed")
                .iter()
                .all(|one| *one == SealOutcome::Sealed)
        );
    }

    /// Connects the next client of a socket to the agent of the node, until `stop` is set.
    fn relay(&self, socket: &UnixListener, stop: &AtomicBool) -> Result<EndedRelay, OrderFault> {
        let (stream, _) = socket.accept().expect("a client");
        let reader = OutboxReader {
            job: "job",
            stream: &stream,
            pace: None,
        };
        relay_outbox(&self.orders, &self.node, &reader, stop)
    }

    /// Returns the run that collects the results, by the user.
    fn collect(&self, socket: &str) -> Driftless {
        let ssh = format!("{} relay {}", agent(), self.path(socket).display());
        let run = driftless()
            .arg("sync")
            .args(["--ssh", &ssh, "--streams", "1"]);
        let run = run.arg(format!("node:{}", self.sealed().display()));
        run.arg(self.path("dst")).as_user(USER, USER)
    }

    fn listen(&self, name: &str) -> UnixListener {
        let socket = UnixListener::bind(self.path(name)).expect("a socket");
        attrs::set_owner(&self.path(name), USER, USER).expect("given");
        socket
    }
}

fn fill(outbox: &Path) {
    let profile = Profile {
        large: false,
        ..Profile::user(USER, USER)
    };
    for (task, seed) in [("1", 71), ("2", 72)] {
        let dir = outbox.join(task);
        fs::create_dir(&dir).expect("made");
        attrs::set_owner(&dir, USER, USER).expect("given");
        build_tree(&dir, seed, &profile);
    }
    let mut content = vec![0; 24 << 20];
    fastrand::Rng::with_seed(73).fill(&mut content);
    common::put(&outbox.join("log"), content);
    attrs::set_owner(&outbox.join("log"), USER, USER).expect("given");
}

/// Collects a part of the results, and cuts the connection.
fn cut_half_way(site: &Site) {
    let (socket, stop) = (site.listen("first.sock"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let relay = scope.spawn(|| site.relay(&socket, &stop));
        let running = site.collect("first.sock").args(["--bwlimit", "4M"]).spawn();
        wait_until("some results have arrived", || site.path("dst/n1").exists());
        stop.store(true, Relaxed);
        let cut = relay.join().expect("its end");
        assert!(matches!(cut, Err(OrderFault::Unreachable(_))), "{cut:?}");
        running.signal(Signal::TERM);
        assert!(running.wait().code() != 0);
    });
}

#[test]
fn cut_collection_of_results_is_resumed() {
    let site = Site::new();
    let outbox = site.path("node/outbox/job");
    let meta = fs::metadata(&outbox).expect("an outbox");
    assert_eq!((meta.uid(), meta.mode() & 0o7777), (USER, 0o700));
    fill(&outbox);
    let ended = end_job(&site.orders, &site.nodes(), "job", &NO_STOP).expect("outcomes");
    assert!(!ended[0].is_ended(), "{ended:?}");
    site.seal_all();
    assert!(fs::read_dir(&outbox).expect("there").next().is_none());
    fs::create_dir(site.path("dst")).expect("made");
    attrs::set_owner(&site.path("dst"), USER, USER).expect("given");
    cut_half_way(&site);

    let socket = site.listen("second.sock");
    std::thread::scope(|scope| {
        let relay = scope.spawn(|| site.relay(&socket, &NO_STOP));
        let _ = site.collect("second.sock").run().expect(0);
        let ended = relay.join().expect("its end").expect("a relay");
        assert_eq!(ended.code, Some(0), "{ended:?}");
    });
    // The directories above the results belong to no group of the user.
    for task in ["1", "2"] {
        let (sealed, copy) = (site.sealed().join("n1"), site.path("dst/n1"));
        check_equal(&sealed.join(task), &copy.join(task), task);
    }
    let log = |path: PathBuf| fs::read(path).expect("a result");
    assert!(log(site.sealed().join("n1/log")) == log(site.path("dst/n1/log")));

    let sealed = list_sealed(&site.orders, &site.nodes(), "job", &NO_STOP).expect("outcomes");
    assert_eq!(sealed[0].names, Ok(vec![b"n1".to_vec()]));
    let paths = [SealedPath::parse(b"n1").expect("a path")];
    let discarded = discard_outbox(&site.orders, &site.node, ("job", &paths), &NO_STOP);
    assert_eq!(discarded, Ok(vec![None]));
    let ended = end_job(&site.orders, &site.nodes(), "job", &NO_STOP).expect("outcomes");
    assert!(ended[0].is_ended() && !outbox.exists(), "{ended:?}");
}
