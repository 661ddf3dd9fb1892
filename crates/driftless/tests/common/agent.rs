//! An agent of a node that runs, and what stands in for a shim in a program.

use super::driftless;
use super::mirror::Mirror;
use driftless_testkit::scratch::scratch_folder;
use driftless_testkit::{Driftless, EVENT_MAX, Host, Outcome, Running};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest an agent takes for anything that is waited for here.
const LIMIT: Duration = EVENT_MAX;

/// The keys of a mirror that follows announcements alone.
pub const POSTS: &str = "detect = [\"announcements\"]\ndelete = true\n";

/// A mirror that follows announcements alone, an agent beside it, and what stands in for a program
/// that announces. What an agent tells when it begins has been compared.
pub fn at_work(source: &Path) -> (Mirror, Agent, Shim) {
    let mirror = Mirror::of(source, POSTS);
    let agent = Agent::beside(&mirror, "");
    agent.wait_for("it begins", |status| {
        status["trees"][0]["gaps"]["count"].as_u64() > Some(0)
    });
    agent.wait_until_told();
    mirror.barrier();
    let shim = agent.shim();
    (mirror, agent, shim)
}

/// An agent, and where its files are.
pub struct Agent {
    folder: TempDir,
    /// Where mirrors listen.
    mirrors: PathBuf,
    /// What is put before its commands.
    words: Vec<String>,
    running: Option<Running>,
}

impl Agent {
    /// Starts one of this tree for mirrors that listen in a folder; `keys` are further lines.
    pub fn of(tree: &Path, mirrors: &Path, keys: &str) -> Agent {
        let mut agent = Agent::not_started(tree, mirrors, keys);
        agent.start();
        agent
    }

    /// Starts one for this mirror.
    pub fn beside(mirror: &Mirror, keys: &str) -> Agent {
        Agent::of(&mirror.source, &mirror.runtime_folder(), keys)
    }

    /// One that does not run yet.
    pub fn not_started(tree: &Path, mirrors: &Path, keys: &str) -> Agent {
        let folder = scratch_folder();
        // Other users find the socket, the counters and the spool.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), open).expect("changed");
        let agent = Agent {
            folder,
            mirrors: mirrors.to_owned(),
            words: Vec::new(),
            running: None,
        };
        agent.configure(tree, keys);
        agent
    }

    /// The same on a host of a lab.
    pub fn on(mut self, host: &Host) -> Agent {
        self.words = host.words();
        self
    }

    /// Writes another configuration.
    pub fn configure(&self, tree: &Path, keys: &str) {
        let (map, spool) = (self.map(), self.spool());
        let shim = match keys.contains("detect") && !keys.contains("shim") {
            true => String::new(),
            false => format!("[shim]\nmap = {map:?}\nspool = {spool:?}\n"),
        };
        let text = format!("name = \"node\"\ntrees = [{tree:?}]\n{keys}{shim}");
        fs::write(self.config(), text).expect("a file");
    }

    /// Its configuration.
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("node.toml")
    }

    /// What shims map.
    pub fn map(&self) -> PathBuf {
        self.folder.path().join("run/shim.map")
    }

    /// Where they write what the agent does not take.
    pub fn spool(&self) -> PathBuf {
        self.folder.path().join("spool/shim")
    }

    /// A command about it.
    pub fn command(&self) -> Driftless {
        driftless()
            .through(&self.words)
            .arg("watch")
            .arg(self.config())
            .env("XDG_STATE_HOME", self.folder.path().join("state"))
            .env("DRIFTLESS_RUNTIME_DIR", &self.mirrors)
    }

    /// Starts it, and waits until it answers.
    pub fn start(&mut self) {
        let running = self.command().limit(Duration::from_secs(600)).spawn();
        self.running = Some(running);
        self.wait_for("it runs", |status| status["is_running"] == true);
    }

    /// Starts it if it was ended.
    pub fn start_if_ended(&mut self) {
        if self.running.is_none() {
            self.start();
        }
    }

    fn end(&mut self, signal: Signal) -> Outcome {
        let running = self.running.take().expect("it runs");
        running.signal(signal);
        running.wait()
    }

    /// Ends it cleanly.
    pub fn stop(&mut self) -> Outcome {
        self.end(Signal::TERM).expect(143)
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _its_end = self.end(Signal::KILL);
    }

    /// Stops it from doing anything, or has it go on.
    pub fn freeze(&self, is_frozen: bool) {
        let signal = if is_frozen {
            Signal::STOP
        } else {
            Signal::CONT
        };
        self.running.as_ref().expect("it runs").signal(signal);
    }

    /// Has it read nothing for a while.
    pub fn freeze_for_a_moment(&self) {
        self.freeze(true);
        std::thread::sleep(Duration::from_millis(50));
        self.freeze(false);
    }

    /// How it stands; nothing if there is no answer.
    pub fn told(&self) -> Option<Value> {
        let told = self.command().arg("--status").arg("--json").run();
        serde_json::from_str(&told.stdout_text()).ok()
    }

    /// How it stands.
    pub fn status(&self) -> Value {
        self.told().expect("it answers")
    }

    /// Waits until it stands so.
    pub fn wait_for(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        let began = Instant::now();
        while !self.told().as_ref().is_some_and(&is_so) {
            assert!(began.elapsed() < LIMIT, "{what}: {:?}", self.told());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until mirrors have taken all that it has heard.
    pub fn wait_until_told(&self) {
        self.wait_for("all is told", |status| {
            let mirrors = status["mirrors"].as_array().expect("a list");
            status["trees"][0]["waiting"] == 0 && !mirrors.is_empty()
        });
    }

    /// Waits until so many words are durable.
    pub fn wait_until_kept(&self, words: u64) {
        let state = self.folder.path().join("state/driftless/watch-node.db");
        let kept = || {
            let said = std::process::Command::new("sqlite3")
                .arg("-readonly")
                .arg(&state)
                .arg("SELECT count(*) FROM waiting")
                .output();
            String::from_utf8(said.expect("sqlite3 runs").stdout).expect("text")
        };
        let began = Instant::now();
        while kept().trim() != words.to_string() {
            assert!(began.elapsed() < LIMIT, "{}", kept());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// How often it has missed something.
    pub fn gaps(&self) -> u64 {
        self.status()["trees"][0]["gaps"]["count"]
            .as_u64()
            .expect("a number")
    }

    /// What a program with a shim knows of it.
    pub fn shim(&self) -> Shim {
        Shim::of(&self.map())
    }
}

/// What stands in for a shim: what the map file says, as it is documented.
pub struct Shim {
    socket: PathBuf,
    spool: PathBuf,
    gaps: PathBuf,
    datagrams: UnixDatagram,
}

impl Shim {
    /// As the file says.
    pub fn of(map: &Path) -> Shim {
        let bytes = fs::read(map).expect("a map");
        assert!(bytes.starts_with(b"DRFTSHM1"));
        assert_eq!(bytes[8..12], 1u32.to_ne_bytes(), "announce");
        let text = |at: usize| {
            let end = bytes[at..].iter().position(|byte| *byte == 0);
            let text = &bytes[at..at + end.expect("an end")];
            PathBuf::from(std::ffi::OsStr::from_bytes(text))
        };
        Shim {
            socket: text(16),
            spool: text(128),
            gaps: text(640),
            datagrams: UnixDatagram::unbound().expect("a socket"),
        }
    }

    /// A message.
    pub fn message(kind: char, paths: &[&Path]) -> Vec<u8> {
        let mut message = format!("DS1{kind}").into_bytes();
        for path in paths {
            message.extend(path.as_os_str().as_bytes());
            message.push(0);
        }
        message
    }

    /// Says what happened to a path, or two.
    pub fn say(&self, kind: char, paths: &[&Path]) {
        let message = Shim::message(kind, paths);
        let began = Instant::now();
        // It waits, as no shim does: each test says where it does not.
        while self.datagrams.send_to(&message, &self.socket).is_err() {
            assert!(began.elapsed() < LIMIT, "the agent takes nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends bytes if they are taken at once.
    pub fn try_send(&self, bytes: &[u8]) -> bool {
        self.datagrams.set_nonblocking(true).expect("set");
        self.datagrams.send_to(bytes, &self.socket).is_ok()
    }

    /// Writes a message to where it is read later.
    pub fn write(&self, kind: char, paths: &[&Path]) {
        let message = Shim::message(kind, paths);
        let length = (message.len() + 8) as u16;
        let record = [&length.to_ne_bytes()[..], &[7; 8], &message].concat();
        let own = self
            .spool
            .join(rustix::process::geteuid().as_raw().to_string());
        loop {
            let mut options = OpenOptions::new();
            let open = options.create(true).append(true).mode(0o600);
            let mut file = open.open(&own).expect("a file");
            file.write_all(&record).expect("written");
            if file.metadata().expect("it is open").nlink() > 0 {
                return;
            }
        }
    }

    /// Counts a gap of a tree.
    pub fn count_gap(&self, tree: u64) {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).open(&self.gaps);
        let file = file.expect("the counters");
        let mut number = [0; 8];
        file.read_exact_at(&mut number, tree * 8).expect("read");
        let number = u64::from_ne_bytes(number) + 1;
        file.write_all_at(&number.to_ne_bytes(), tree * 8)
            .expect("written");
    }
}
