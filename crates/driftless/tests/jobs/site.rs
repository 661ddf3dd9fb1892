//! A cluster with a batch system, node daemons and a gateway.

use crate::cluster::{Cluster, must};
use driftless_testkit::accounts::ORDINARY_ID;
use driftless_testkit::{wait_slowly_until, wait_until, write_program};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// User whose jobs run.
pub const USER: u32 = ORDINARY_ID;
/// Another user, who has a name on each Debian.
pub const OTHER: u32 = 1;
const PORT: u16 = 7400;
/// Time for the end of a job and the removal of its copies, on a loaded machine.
const CLOSED_MAX: Duration = Duration::from_secs(120);

/// A cluster with node daemons and a gateway.
pub struct Site<C: Cluster> {
    gateway: Option<Child>,
    daemons: Vec<Child>,
    /// User who runs daemons and gateway, if not root.
    user: Option<u32>,
    pub cluster: C,
    /// Key of the gateway.
    key: String,
    /// Folder that stands before others in the PATH of the gateway.
    pub first_in_path: Option<PathBuf>,
    /// Capabilities of the gateway, in the form of setpriv(1), if it has not all of root.
    pub capabilities: Option<String>,
}

impl<C: Cluster> Site<C> {
    /// Starts the daemons and the gateway of root.
    pub fn start(nodes: usize) -> Self {
        Self::with(nodes, None)
    }

    /// Starts a gateway of the ordinary user, who has no rights in Slurm.
    pub fn start_for_user(nodes: usize) -> Self {
        Self::with(nodes, Some(USER))
    }

    fn with(nodes: usize, user: Option<u32>) -> Self {
        let mut site = Site {
            gateway: None,
            daemons: Vec::new(),
            user,
            cluster: C::start(nodes),
            key: String::new(),
            first_in_path: None,
            capabilities: None,
        };
        fs::create_dir(site.shared().join("gateway")).expect("a folder");
        site.give(&site.shared().join("gateway"));
        let mut key = site.program();
        key.args(["node", "key", "--cast-dir"]);
        site.key = text_of(key.arg(site.shared().join("gateway/cast")));
        site.key = site.key.trim().to_owned();
        let mut lines = String::new();
        for name in site.cluster.node_names() {
            site.give(&site.cluster.disk_of(&name));
            let daemon = site.spawn_daemon(&name);
            site.daemons.push(daemon);
            let own = site.key_of(&name);
            let address = site.cluster.address(&name);
            writeln!(lines, "{name} {address}:{PORT} {own}").expect("a line");
        }
        fs::write(site.shared().join("nodes.txt"), lines).expect("a file");
        site.start_gateway();
        site
    }

    fn spawn_daemon(&self, name: &str) -> Child {
        let mut daemon = self.in_node(name);
        daemon.args(["node", "--ports", &PORT.to_string(), "--trust", &self.key]);
        daemon.arg("--dir").arg(self.store());
        spawn(&mut daemon, &self.log_of(name))
    }

    /// Kills the daemon of a node, as a crash of the node does.
    pub fn kill_daemon(&mut self, name: &str) {
        let daemon = &mut self.daemons[number_of_node(&self.cluster, name)];
        daemon.kill().expect("killed");
        daemon.wait().expect("ended");
    }

    /// Starts the daemon of a node again.
    pub fn start_daemon(&mut self, name: &str) {
        let number = number_of_node(&self.cluster, name);
        self.daemons[number] = self.spawn_daemon(name);
        self.key_of(name);
    }

    /// Returns the key of a daemon, once it runs.
    fn key_of(&self, name: &str) -> String {
        let mut key = None;
        wait_until("the daemon runs", || {
            let mut status = self.in_node(name);
            status
                .args(["node", "status", "--json", "--dir"])
                .arg(self.store());
            let output = status.output().expect("a status");
            let info: Option<Value> = serde_json::from_slice(&output.stdout).ok();
            key = info.and_then(|info| info["key"].as_str().map(str::to_owned));
            key.is_some()
        });
        key.expect("a key")
    }

    pub fn start_gateway(&mut self) {
        let mut gateway = match &self.capabilities {
            Some(capabilities) => {
                let mut words = self.cluster.command("setpriv");
                words.arg(format!("--bounding-set=-all,{capabilities}"));
                words.args(["--inh-caps=-all", "--no-new-privs", "--", bin()]);
                words
            }
            None => self.program(),
        };
        gateway.args(["gateway", "--system", C::SYSTEM]);
        gateway
            .arg("--nodes")
            .arg(self.cluster.node_names().join(","));
        gateway
            .arg("--daemons")
            .arg(self.shared().join("nodes.txt"));
        gateway.arg("--node-dir").arg(self.store());
        gateway.arg("--dir").arg(self.shared().join("gateway"));
        gateway.arg("--gateway").arg(self.socket());
        if self.user.is_some() {
            gateway.arg("--without-rights");
        }
        if let Some(folder) = &self.first_in_path {
            let path = with_first(folder, &gateway);
            gateway.env("PATH", path);
        }
        self.gateway = Some(spawn(&mut gateway, &self.log_of("gateway")));
        wait_until("the gateway answers", || self.list(&[]).status.success());
    }

    pub fn kill_gateway(&mut self) {
        if let Some(mut gateway) = self.gateway.take() {
            gateway.kill().expect("killed");
            gateway.wait().expect("ended");
        }
    }

    pub fn shared(&self) -> PathBuf {
        self.cluster.shared_dir()
    }

    pub fn store(&self) -> PathBuf {
        self.cluster.node_dir().join("store")
    }

    pub fn socket(&self) -> PathBuf {
        self.shared().join("gateway.sock")
    }

    fn log_of(&self, name: &str) -> PathBuf {
        self.shared().join(format!("{name}.log"))
    }

    /// Gives a folder to the user of the gateway, and closes it to others.
    fn give(&self, path: &Path) {
        if let Some(user) = self.user {
            chown(path, Some(user), Some(user)).expect("given");
        }
    }

    /// Driftless on the head node, as the user of the gateway.
    fn program(&self) -> Command {
        match self.user {
            Some(user) => self.cluster.command_as(user, bin()),
            None => self.cluster.command(bin()),
        }
    }

    /// Driftless on a node, as the user of the gateway.
    fn in_node(&self, name: &str) -> Command {
        match self.user {
            Some(user) => self.command_in_node_as(name, user, bin()),
            None => self.cluster.command_in_node(name, bin()),
        }
    }

    pub fn command_in_node_as(&self, name: &str, uid: u32, program: &str) -> Command {
        let mut command = self.cluster.command_in_node(name, "setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}")]);
        command.args(["--clear-groups", "--"]).arg(program);
        command
    }

    /// Makes a directory with files that the ordinary user alone can read.
    pub fn make_data(&self, name: &str, bytes: usize) {
        self.make_data_of(USER, name, bytes);
    }

    /// Makes a directory with files that one user alone can read.
    pub fn make_data_of(&self, uid: u32, name: &str, bytes: usize) {
        let folder = self.shared().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        let content: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..))
            .take(bytes)
            .collect();
        fs::write(folder.join("part"), content).expect("a file");
        fs::write(folder.join("name"), "nr\n").expect("a file");
        for path in [folder.join("part"), folder.join("name"), folder.clone()] {
            chown(&path, Some(uid), Some(uid)).expect("given");
        }
        self.close_to_others(&folder);
    }

    pub fn close_to_others(&self, folder: &Path) {
        fs::set_permissions(folder, Permissions::from_mode(0o700)).expect("closed");
    }

    /// Makes a folder to which tasks may write.
    pub fn make_out(&self, name: &str) -> PathBuf {
        let folder = self.shared().join(name);
        fs::create_dir(&folder).expect("a folder");
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("open");
        folder
    }

    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.shared().join(name);
        write_program(&path, text);
        path
    }

    /// Submits a job as a user, and returns its number.
    pub fn submit(
        &self,
        uid: u32,
        data: &[&str],
        options: &[&str],
        job: impl FnOnce(&mut Command),
    ) -> String {
        let output = self.try_submit(uid, data, options, job);
        assert!(output.status.success(), "{output:?}");
        number_of(&String::from_utf8_lossy(&output.stdout))
    }

    pub fn try_submit(
        &self,
        uid: u32,
        data: &[&str],
        options: &[&str],
        job: impl FnOnce(&mut Command),
    ) -> Output {
        let mut submit = self.cluster.command_as(uid, bin());
        submit.arg("submit").args(options);
        for name in data {
            submit.arg("--data").arg(self.shared().join(name));
        }
        submit.arg("--gateway").arg(self.socket());
        submit.arg("--").args(C::SUBMIT);
        job(&mut submit);
        submit.current_dir(self.shared());
        submit.stdin(Stdio::null()).output().expect("a submission")
    }

    /// Submits the job of a task file as a user, and returns its number.
    pub fn submit_file(&self, uid: u32, file: &Path) -> String {
        // The user of tests has no home, which Grid Engine would enter (sge_request(5)).
        let defaults = self.shared().join(".sge_request");
        fs::write(defaults, "-cwd\n-j y\n-o /dev/null\n").expect("a file");
        let mut submit = self.cluster.command_as(uid, bin());
        submit.arg("submit").arg(file);
        submit.arg("--gateway").arg(self.socket());
        submit.current_dir(self.shared()).stdin(Stdio::null());
        number_of(&text_of(&mut submit))
    }

    /// Runs the example of the library as a user, and returns what it printed.
    pub fn run_example(&self, uid: u32, (results, job): (&Path, &Path)) -> String {
        let mut example = self.cluster.command_as(uid, example());
        example.arg(self.socket()).arg(results);
        example.args(C::SUBMIT).arg(job);
        example.current_dir(self.shared()).stdin(Stdio::null());
        text_of(&mut example)
    }

    fn list(&self, options: &[&str]) -> Output {
        let mut jobs = self.program();
        jobs.args(["jobs", "--json", "--gateway"])
            .arg(self.socket());
        jobs.args(options).output().expect("a list")
    }

    /// Returns all jobs that the gateway knows.
    pub fn jobs(&self) -> Vec<Value> {
        let output = self.list(&["--all"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().expect("lines of JSON")
    }

    /// Returns what the gateway knows of a job.
    pub fn job(&self, job: &str) -> Value {
        let found = self.jobs().into_iter().find(|one| one["job"] == job);
        found.unwrap_or(Value::Null)
    }

    pub fn stage_of(&self, job: &str) -> String {
        self.job(job)["stage"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub fn wait_for_stage(&self, job: &str, stage: &str) {
        wait_slowly_until(&format!("job {job} is {stage}"), || {
            self.stage_of(job) == stage
        });
    }

    /// Waits until a message of a job or of one of its nodes has a text.
    pub fn wait_for_fault(&self, job: &str, text: &str) {
        let has = |fault: &Value| fault.as_str().is_some_and(|fault| fault.contains(text));
        wait_slowly_until(&format!("job {job} tells \"{text}\""), || {
            let job = self.job(job);
            let nodes = job["nodes"].as_array().cloned().unwrap_or_default();
            has(&job["fault"]) || nodes.iter().any(|node| has(&node["fault"]))
        });
    }

    /// Returns the numbers of copies and of links of jobs on a node.
    pub fn held_by(&self, node: &str) -> [usize; 2] {
        let store = self.cluster.disk_of(node).join("store");
        ["sets", "jobs"].map(|folder| names_in(&store.join(folder)).len())
    }

    pub fn fault_of(&self, job: &str) -> Option<String> {
        self.job(job)["fault"].as_str().map(str::to_owned)
    }

    fn results(&self, job: &str, option: &str) -> Output {
        let mut results = self.cluster.command_as(USER, bin());
        results.args(["results", option, job, "--gateway"]);
        results.arg(self.socket()).output().expect("results")
    }

    /// Waits until the results of a job have arrived; returns the exit code of the command.
    pub fn wait_for_results(&self, job: &str) -> Option<i32> {
        self.results(job, "--wait").status.code()
    }

    /// Returns why results of a job were not collected.
    pub fn result_fault(&self, job: &str) -> Option<String> {
        let output = self.results(job, "--json").stdout;
        let line: Value = serde_json::from_slice(&output).ok()?;
        let nodes = line["nodes"].as_array()?;
        let fault = nodes.iter().find_map(|node| node["fault"].as_str());
        fault.map(str::to_owned)
    }

    /// Returns the path by which tasks of a job find their data.
    pub fn spool_of(&self, job: &str) -> PathBuf {
        let mark = self.job(job)["mark"].as_str().expect("a mark").to_owned();
        let first = self.cluster.node_names().remove(0);
        let links = self.cluster.disk_of(&first).join("store/jobs");
        let names = fs::read_dir(links).expect("links of jobs");
        let mut names = names.map(|name| name.expect("a name").file_name());
        let is_of_job = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(&mark);
        let name = names.find(is_of_job).expect("a link");
        self.store().join("jobs").join(name)
    }

    pub fn wait_until_closed(&self, job: &str) {
        let end = Instant::now() + CLOSED_MAX;
        while self.job(job)["stage"] != "closed" {
            let is_late = Instant::now() > end;
            assert!(!is_late, "{:#?}\n{}", self.jobs(), self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.log_of("gateway")).unwrap_or_default()
    }

    /// Checks that no node has a copy, a link of a job or a feature of a slot.
    pub fn check_nothing_is_left(&self) {
        let offers = must(&mut self.cluster.offers()).stdout;
        let offers = String::from_utf8_lossy(&offers).into_owned();
        assert!(!offers.contains("driftless_"), "{offers}");
        for name in self.cluster.node_names() {
            let store = self.cluster.disk_of(&name).join("store");
            for folder in ["sets", "jobs"] {
                let empty = || names_in(&store.join(folder)).is_empty();
                wait_slowly_until("the copies are removed", empty);
            }
        }
    }
}

impl<C: Cluster> Drop for Site<C> {
    fn drop(&mut self) {
        self.kill_gateway();
        for daemon in &mut self.daemons {
            let _it_may_have_ended = daemon.kill();
            let _it_was_killed = daemon.wait();
        }
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// Returns the PATH of a command with a folder before it.
fn with_first(folder: &Path, command: &Command) -> OsString {
    let of_command = command.get_envs().find(|(name, _)| *name == "PATH");
    let of_command = of_command.and_then(|(_, value)| value.map(OsStr::to_owned));
    let path = of_command.or_else(|| std::env::var_os("PATH"));
    let mut all = folder.as_os_str().to_owned();
    all.push(":");
    all.push(path.expect("a PATH"));
    all
}

/// Returns the number that a submission printed.
fn number_of(text: &str) -> String {
    text.trim().to_owned()
}

fn names_in(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).into_iter().flatten();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.ok().map(|entry| entry.file_name());
    let names = names
        .filter_map(name)
        .map(|name| name.to_string_lossy().into_owned());
    names.collect()
}

pub fn bin() -> &'static str {
    env!("CARGO_BIN_EXE_driftless")
}

/// Returns the example of the library, which cargo builds beside the program.
fn example() -> &'static str {
    static EXAMPLE: OnceLock<String> = OnceLock::new();
    EXAMPLE.get_or_init(|| {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--offline", "--quiet", "--workspace"]);
        cargo.args(["--example", "submit_and_wait"]);
        must(cargo.current_dir(env!("CARGO_MANIFEST_DIR")));
        let path = Path::new(bin()).with_file_name("examples/submit_and_wait");
        path.to_str().expect("text").to_owned()
    })
}

fn text_of(command: &mut Command) -> String {
    String::from_utf8(must(command).stdout).expect("text")
}

fn spawn(command: &mut Command, log: &Path) -> Child {
    let log = fs::File::options().create(true).append(true).open(log);
    let log = log.expect("a log");
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    child.spawn().expect("a process")
}

fn number_of_node(cluster: &impl Cluster, name: &str) -> usize {
    let names = cluster.node_names();
    let number = names.iter().position(|one| one == name);
    number.expect("a node")
}
