//! A source and some nodes on loopback addresses. Each node is a process: the test program, which
//! starts itself through a script in the place of ssh.
#![allow(clippy::disallowed_methods, dead_code)]

use driftless_cast::{
    CastEvent, CastMonitor, CastNode, CastPlace, CastReport, CastSettings, ContentLimits,
    CopyRights, DaemonSettings, DaemonTrust, ExpectedPeer, NodeAccess, NodeDaemon, NodeReport,
    NodeSettings, PlanLimits, RackTopology, SshStart, TlsIdentity, TransferSettings, cast,
    serve_one_cast,
};
use driftless_model::Keep;
use driftless_remote::Reach;
use driftless_testkit::write_program;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufReader, Write, stdin, stdout};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait for an event.
pub const LONG: Duration = Duration::from_secs(60);
/// Variables of the environment of a node process.
const DIR: &str = "DRIFTLESS_TEST_NODE_DIR";

/// A source, nodes, and the events of a cast.
pub struct Cluster {
    folder: PathBuf,
    _made: Option<tempfile::TempDir>,
    pub names: Vec<String>,
    pub events: Arc<Events>,
    pub stop: Arc<AtomicBool>,
}

/// Events that have arrived.
#[derive(Default)]
pub struct Events {
    all: Mutex<Vec<CastEvent>>,
    changed: Condvar,
}

impl CastMonitor for Events {
    fn event(&self, event: CastEvent) {
        self.all.lock().expect("a lock").push(event);
        self.changed.notify_all();
    }
}

impl Events {
    /// Waits until an event matches.
    pub fn wait(&self, what: &str, is_it: impl Fn(&CastEvent) -> bool) {
        let begin = Instant::now();
        let mut all = self.all.lock().expect("a lock");
        while !all.iter().any(&is_it) {
            assert!(begin.elapsed() < LONG, "{what}: not seen; events: {all:#?}");
            let tick = Duration::from_millis(100);
            all = self.changed.wait_timeout(all, tick).expect("a lock").0;
        }
    }

    /// Waits until a node holds units, and not all.
    pub fn wait_for_units(&self, node: &str, units: u64) {
        self.wait("progress", |event| match event {
            CastEvent::Progress { nodes } => nodes
                .iter()
                .any(|progress| progress.node == node && progress.units >= units),
            _ => false,
        });
    }

    /// Whether an event matched.
    pub fn has(&self, is_it: impl Fn(&CastEvent) -> bool) -> bool {
        self.all.lock().expect("a lock").iter().any(is_it)
    }

    /// Returns the events as text.
    pub fn text(&self) -> String {
        let all = self.all.lock().expect("a lock");
        let shown = all.iter().filter(|event| {
            !matches!(event, CastEvent::Progress { .. } | CastEvent::Hashed { .. })
        });
        shown.map(|event| format!("{event:?}\n")).collect()
    }
}

impl Cluster {
    /// Makes directories for nodes `n1` and so on.
    pub fn new(nodes: usize) -> Cluster {
        let made = driftless_testkit::scratch::scratch_folder();
        let cluster = Cluster {
            folder: made.path().to_owned(),
            _made: Some(made),
            names: (1..=nodes).map(|number| format!("n{number}")).collect(),
            events: Arc::default(),
            stop: Arc::default(),
        };
        fs::create_dir(cluster.path("src")).expect("a folder");
        for name in &cluster.names {
            fs::create_dir_all(cluster.path(name).join("to")).expect("a folder");
        }
        let script = cluster.path("ssh");
        let line = format!(
            "#!/bin/sh\nshift\nexport {DIR}='{}'/\"$1\"\n[ -e \"${DIR}/dead\" ] && exit 255\necho Welcome to $1\neval \"exec $2\"\n",
            cluster.folder.display()
        );
        write_program(&script, &line);
        cluster
    }

    /// Returns the cluster that another process has made.
    pub fn found(folder: &Path, nodes: usize) -> Cluster {
        Cluster {
            folder: folder.to_owned(),
            _made: None,
            names: (1..=nodes).map(|number| format!("n{number}")).collect(),
            events: Arc::default(),
            stop: Arc::default(),
        }
    }

    /// Keeps a node from starting, or lets it start again.
    pub fn set_dead(&self, node: &str, is_dead: bool) {
        let file = self.path(node).join("dead");
        if is_dead {
            fs::write(file, "").expect("a file");
        } else {
            fs::remove_file(file).expect("a file");
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the tree that a node has received.
    pub fn copy(&self, node: &str) -> PathBuf {
        self.path(node).join("to/src")
    }

    /// Writes a file of random bytes into the source.
    pub fn write(&self, name: &str, bytes: usize) {
        let mut content = vec![0; bytes];
        fastrand::Rng::with_seed(bytes as u64 + name.len() as u64).fill(&mut content);
        fs::write(self.path("src").join(name), content).expect("a file");
    }

    /// Returns settings for a cast to all nodes. All have the same place, so each node replaces
    /// the word NODE by its own folder.
    pub fn settings(&self) -> CastSettings {
        let program = std::env::current_exe().expect("the test program");
        let program = program.to_str().expect("a path").to_owned();
        let arguments = ["node_process", "--exact", "--ignored", "--nocapture"];
        CastSettings {
            sources: vec![self.path("src")].into(),
            nodes: self
                .names
                .iter()
                .map(|name| CastNode {
                    name: name.clone(),
                    access: NodeAccess::Ssh,
                })
                .collect(),
            source_name: "source".into(),
            topology: RackTopology::default(),
            dir: self.path("origin"),
            place: CastPlace::Cache,
            keep: Keep::default(),
            rights: CopyRights::OfSource,
            content: ContentLimits::default(),
            ssh: Some(SshStart {
                reach: Reach {
                    ssh: vec![self.path("ssh").to_str().expect("a path").to_owned()],
                    agent: vec![program],
                    keep: Keep::default(),
                    streams: None,
                    compress: None,
                    deploy: None,
                    connecting: LONG,
                    stop: Arc::clone(&self.stop),
                },
                arguments: arguments.map(str::to_owned).to_vec(),
            }),
            identity: None,
            authority_pem: None,
            transfer: patient(),
            limits: PlanLimits::default(),
            start_wait: LONG,
        }
    }

    /// Casts, and returns the report.
    pub fn cast(&self, settings: &CastSettings) -> CastReport {
        let report = cast(settings, &*self.events, &self.stop);
        report.unwrap_or_else(|error| panic!("{error}\n{}", self.events.text()))
    }

    /// Starts a cast in a thread.
    pub fn start(&self, settings: CastSettings) -> std::thread::JoinHandle<CastReport> {
        let (events, stop) = (Arc::clone(&self.events), Arc::clone(&self.stop));
        std::thread::spawn(move || {
            let report = cast(&settings, &*events, &stop);
            report.unwrap_or_else(|error| panic!("{error}\n{}", events.text()))
        })
    }

    /// Sends a signal to the process of a node.
    pub fn signal(&self, node: &str, signal: Signal) {
        kill_process(self.pid(node), signal).expect("a process");
    }

    /// Sends a signal to the process of a node, unless the process has ended.
    pub fn try_signal(&self, node: &str, signal: Signal) {
        let pid = self.pid(node);
        let program = fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero()));
        let is_own = program.ok() == std::env::current_exe().ok();
        if is_own {
            let _it_has_ended = kill_process(pid, signal);
        }
    }

    /// Kills what is left of a node, and lets it start again.
    pub fn revive(&self, node: &str) {
        self.try_signal(node, Signal::KILL);
        let _it_was_not_dead = fs::remove_file(self.path(node).join("dead"));
    }

    /// Waits until no process of a node is there.
    pub fn wait_for_end(&self, node: &str) {
        let pid = self.pid(node).as_raw_nonzero();
        let path = format!("/proc/{pid}/status");
        // A process that its parent has not waited for yet is at its end, too.
        wait_until("the end of a node", || {
            let status = fs::read_to_string(&path).unwrap_or_default();
            status.is_empty() || status.contains("State:\tZ")
        });
    }

    fn pid(&self, node: &str) -> Pid {
        let pid = fs::read_to_string(self.path(node).join("pid")).expect("a pid");
        Pid::from_raw(pid.parse().expect("a number")).expect("a pid")
    }

    /// Asserts that each node has the data set.
    pub fn assert_complete(&self, report: &CastReport) {
        let events = self.events.text();
        assert!(report.is_complete(), "{report:#?}\n{events}");
    }

    /// Asserts that a node has the tree of the source.
    pub fn assert_equal(&self, node: &str) {
        let copy = self.cached(node);
        let options = driftless_testkit::Options::default();
        driftless_testkit::assert_equal(&self.path("src"), &copy, &options, node);
    }

    /// Returns the newest cached tree of a node.
    pub fn cached(&self, node: &str) -> PathBuf {
        let sets = self.path(node).join("store/sets");
        let mut found: Vec<PathBuf> = entries(&sets)
            .into_iter()
            .map(|set| set.join("src"))
            .filter(|path| path.exists())
            .collect();
        found.sort_by_key(|path| {
            let meta = fs::symlink_metadata(path).expect("metadata");
            (meta.ctime(), meta.ctime_nsec())
        });
        found
            .pop()
            .unwrap_or_else(|| panic!("{node} has no copy; events: {}", self.events.text()))
    }

    /// Whether a tree of the source is at a node under its final name.
    pub fn has_copy(&self, node: &str) -> bool {
        let sets = self.path(node).join("store/sets");
        entries(&sets).iter().any(|set| set.join("src").exists())
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).collect()
}

/// Returns limits for a machine that is busy with other tests.
pub fn patient() -> TransferSettings {
    TransferSettings {
        silence_max: Duration::from_secs(5),
        ..TransferSettings::default()
    }
}

/// Returns the settings of the node in a directory.
pub fn node_settings(dir: &Path) -> NodeSettings {
    NodeSettings {
        listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
        transfer: patient(),
        ..NodeSettings::new(dir.join("store"))
    }
}

/// Runs as the process of a node.
pub fn run_node() {
    let dir = PathBuf::from(std::env::var_os(DIR).expect("the directory of the node"));
    fs::write(dir.join("pid"), std::process::id().to_string()).expect("a file");
    let settings = node_settings(&dir);
    let input = BufReader::new(stdin());
    let result = serve_one_cast(&settings, input, stdout(), &AtomicBool::new(false));
    if let Err(error) = result {
        let _nobody_reads_it = writeln!(std::io::stderr(), "{error}");
        std::process::exit(1);
    }
}

/// Waits until a condition holds.
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sets the flag that stops a cast.
pub fn stop(cluster: &Cluster) {
    cluster.stop.store(true, Ordering::Relaxed);
}

/// Returns the report of a node.
pub fn report_of<'r>(report: &'r CastReport, node: &str) -> &'r NodeReport {
    let found = report.nodes.iter().find(|report| report.node == node);
    found.expect("a report")
}

/// A daemon in a thread.
pub struct Daemon {
    pub access: NodeAccess,
    pub dir: PathBuf,
    stop: Arc<AtomicBool>,
    running: Option<JoinHandle<()>>,
}

impl Daemon {
    pub fn start(cluster: &Cluster, coordinator: &TlsIdentity) -> Daemon {
        let node = node_settings(&cluster.path("n1"));
        let dir = node.dir.clone();
        let settings = DaemonSettings {
            node,
            trust: DaemonTrust::Keys(vec![coordinator.key()]),
            places: vec![cluster.path("n1/to")],
        };
        let daemon = NodeDaemon::start(&settings).expect("a daemon");
        let access = NodeAccess::Daemon {
            host: "127.0.0.1".into(),
            port: daemon.address().port(),
            peer: ExpectedPeer::Key(daemon.key()),
        };
        assert!(NodeDaemon::start(&settings).is_err(), "a second daemon");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let running = std::thread::spawn(move || daemon.run(&stopped).expect("its end"));
        Daemon {
            access,
            dir,
            stop,
            running: Some(running),
        }
    }

    pub fn node(&self) -> CastNode {
        CastNode {
            name: "n1".into(),
            access: self.access.clone(),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(running) = self.running.take() {
            let _panic_was_printed = running.join();
        }
    }
}
