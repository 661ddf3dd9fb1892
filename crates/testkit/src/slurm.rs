//! A real Slurm for one test: a controller and nodes with networks, mounts and host names of their
//! own, and a munge of its own.
//!
//! The controller and each node run on a host of a [`Lab`]. Several clusters therefore run on one
//! machine at the same time, and all may use the same ports and addresses. Nothing below
//! `/etc/slurm` or `/etc/munge` is read or changed. Every process of a cluster, the tasks of its
//! jobs included, stays in the networks of its lab, and so the lab finds and ends all of them.
//!
//! A task sees the mounts of its node, because it descends from the `slurmd` there. The folder
//! [`Slurm::node_dir`] is another one on each node, as a local disk is.

use crate::hosts::{Host, LET_GO, Lab};
use crate::processes;
use crate::program::write_program;
use crate::scratch::{must_run, scratch_folder};
use crate::wait::{EVENT_MAX, wait_slowly_until, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Host of the controller; here users submit their jobs.
const HEAD: &str = "head";
/// Partition of all nodes, the default.
pub const PARTITION_ALL: &str = "all";
/// Partition of the first half of the nodes.
pub const PARTITION_HALF: &str = "half";
/// Commands of Slurm that tests use.
const PROGRAMS: [&str; 6] = ["sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun"];
/// Lifetime of credentials, for tests that do not wait for requeued jobs. Slurm does not start a
/// requeued job before the credentials of its first run have expired (slurm.conf(5), `AuthInfo`).
const CREDENTIAL_SECONDS: u64 = 120;
/// Lifetime of credentials for tests that wait for requeued jobs.
const CREDENTIAL_SECONDS_MIN: u64 = 8;
/// Bytes of a log that a failed test shows.
const SHOWN_BYTES_MAX: usize = 4 << 10;

/// Becomes a host: gives it a name, the names of the others and its own disk, and stays.
const HOLD: &str = r#"
set -e
hostname "$1"
mount --bind "$2" /etc/hosts
if [ -n "$3" ]; then mount --bind "$3" "$4"; fi
echo ready
exec sleep infinity
"#;

/// Waits until the test has ended, even by a signal, and then ends what is left of its cluster.
const GUARD: &str = r#"
folder=$1
shift
cat >/dev/null
for name; do
    ip netns pids "$name" | xargs -r kill -s KILL
    ip netns delete "$name"
done 2>/dev/null
rm -rf -- "$folder"
"#;

/// A running cluster. Dropping it ends all of its processes and removes its namespaces, mounts and
/// folders.
#[derive(Debug)]
pub struct Slurm {
    // The fields are dropped in this order: the guard removes the folder after the lab has ended
    // all processes.
    places: Vec<Place>,
    _munged: Daemon,
    controller: Option<Daemon>,
    lab: Lab,
    guard: Guard,
}

/// The controller's host or a node.
#[derive(Debug)]
struct Place {
    name: String,
    holder: Daemon,
    slurmd: Option<Daemon>,
}

impl Slurm {
    /// Starts a cluster of nodes `n1`, `n2` and so on, one processor each, and waits until all are
    /// idle. Needs root, `slurmctld`, `slurmd`, `slurm-client` and `munge`.
    pub fn start(nodes: usize) -> Slurm {
        Slurm::start_in(Lab::new(nodes + 1), CREDENTIAL_SECONDS)
    }

    /// Starts a cluster in which a requeued job runs again within seconds.
    pub fn start_for_requeues(nodes: usize) -> Slurm {
        Slurm::start_in(Lab::new(nodes + 1), CREDENTIAL_SECONDS_MIN)
    }

    /// Starts a cluster whose links carry at most so many bytes a second, each way.
    pub fn start_limited(nodes: usize, bytes_per_second_max: u64) -> Slurm {
        let lab = Lab::limited(nodes + 1, bytes_per_second_max);
        Slurm::start_in(lab, CREDENTIAL_SECONDS)
    }

    fn start_in(lab: Lab, credential_seconds: u64) -> Slurm {
        let guard = Guard::start(&lab);
        let folder = &guard.folder;
        prepare_folder(folder, &lab, credential_seconds);
        let places: Vec<Place> = lab
            .hosts()
            .iter()
            .enumerate()
            .map(|(number, host)| Place::new(folder, number, host))
            .collect();
        let munged = start_munged(folder);
        let mut slurm = Slurm {
            places,
            _munged: munged,
            controller: None,
            lab,
            guard,
        };
        slurm.restart();
        for name in slurm.node_names() {
            slurm.start_slurmd(&name);
        }
        slurm.wait_until_idle(&slurm.node_names());
        slurm
    }

    /// Names of all nodes.
    pub fn node_names(&self) -> Vec<String> {
        self.nodes().map(|node| node.name.clone()).collect()
    }

    /// Address of a node, or of the host `head`, in the network of the cluster.
    pub fn address(&self, name: &str) -> IpAddr {
        self.host(name).address()
    }

    /// The host of a node, or of the controller (`head`).
    pub fn host(&self, name: &str) -> &Host {
        self.lab.host(self.number_of(name))
    }

    /// A program on the host of the controller, as root, in the caller's directory.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.command_in_node(HEAD, program)
    }

    /// A program on the host of the controller, as another user without supplementary groups.
    pub fn command_as(&self, uid: u32, gid: u32, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={gid}")]);
        command.args(["--clear-groups", "--"]).arg(program);
        command
    }

    /// A program on a node, as root, in the caller's directory. The process that is started becomes
    /// that of the program.
    pub fn command_in_node(&self, name: &str, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(entrance(&self.guard.folder, name));
        command.arg(program);
        command
    }

    /// A folder with stand-ins of the commands of Slurm: each runs on the host of the controller,
    /// whichever network the caller is in.
    pub fn programs(&self) -> PathBuf {
        self.stand_ins("bin-root", "")
    }

    /// The same as [`programs`](Slurm::programs), as another user without supplementary groups.
    pub fn programs_as(&self, uid: u32, gid: u32) -> PathBuf {
        let user = format!("setpriv --reuid={uid} --regid={gid} --clear-groups --");
        self.stand_ins(&format!("bin-{uid}-{gid}"), &user)
    }

    fn stand_ins(&self, name: &str, user: &str) -> PathBuf {
        let folder = self.guard.folder.join(name);
        if folder.exists() {
            return folder;
        }
        fs::create_dir(&folder).expect("a folder");
        let enter = entrance(&self.guard.folder, HEAD).display().to_string();
        for program in PROGRAMS {
            let text = format!("#!/bin/sh\nexec {enter} {user} /usr/bin/{program} \"$@\"\n");
            write_program(&folder.join(program), &text);
        }
        folder
    }

    /// A folder that every host sees at the same path and every user may write to, as a shared file
    /// system is.
    pub fn shared_dir(&self) -> PathBuf {
        self.guard.folder.join("shared")
    }

    /// A folder at the same path on each node, with other content on each.
    pub fn node_dir(&self) -> PathBuf {
        self.guard.folder.join("node")
    }

    /// The content of [`node_dir`](Slurm::node_dir) on one node, as the test itself sees it.
    pub fn disk_of(&self, name: &str) -> PathBuf {
        disk(&self.guard.folder, name)
    }

    /// Runs a command of Slurm as root on the host of the controller and returns its output.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output();
        let output = output.expect("Slurm is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {errors}{}",
            self.log()
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Stops the `slurmd` of a node. Tasks that run there, and other processes, run on.
    pub fn stop_node(&mut self, name: &str) {
        self.place_mut(name).slurmd = None;
    }

    /// Starts the `slurmd` of a node again and waits until the controller may use the node.
    pub fn start_node(&mut self, name: &str) {
        self.start_slurmd(name);
        self.wait_until_idle(&[name.to_owned()]);
    }

    /// Ends all processes of a node at once, and unmounts its folder, as a loss of power does. The
    /// controller takes the node for down, which it otherwise does after minutes (slurm.conf(5),
    /// `SlurmdTimeout`), and starts its jobs again.
    pub fn crash_node(&mut self, name: &str) {
        let number = self.number_of(name);
        let holder = self.places[number].holder.child.id();
        let host = self.lab.host(number);
        let rest = || {
            let mut found = host.processes();
            found.retain(|pid| *pid != holder);
            found
        };
        assert!(processes::end_all(rest), "a process does not end");
        self.place_mut(name).slurmd = None;
        let mut unmount = self.command_in_node(name, "umount");
        must_run(unmount.arg("--lazy").arg(self.node_dir()));
        let name = format!("NodeName={name}");
        self.run("scontrol", &["update", &name, "State=DOWN", "Reason=power"]);
    }

    /// Mounts the folder of a node again after a crash, and starts its `slurmd`. A node that is marked
    /// as down comes up once the `slurmd` has registered.
    pub fn boot_node(&mut self, name: &str) {
        let mut look = self.command_in_node(name, "mountpoint");
        let look = look.arg("-q").arg(self.node_dir()).status();
        if !look.expect("mountpoint").success() {
            let mut mount = self.command_in_node(name, "mount");
            must_run(
                mount
                    .arg("--bind")
                    .args([self.disk_of(name), self.node_dir()]),
            );
        }
        self.start_slurmd(name);
    }

    /// Kills the controller, as a crash does. Jobs of the last seconds may be lost: the controller
    /// saves its state with a delay.
    pub fn kill(&mut self) {
        self.controller = None;
    }

    /// Stops the controller, which saves its state first.
    pub fn stop(&mut self) {
        if let Some(controller) = self.controller.take() {
            controller.stop();
        }
    }

    /// Starts the controller with the state that it saved, and waits until it answers. A running
    /// controller is stopped first.
    pub fn restart(&mut self) {
        self.stop();
        let mut command = self.command("slurmctld");
        self.controller = Some(Daemon::start(command.arg("-D")));
        self.wait_for("the controller answers", |slurm| {
            let ping = slurm.command("scontrol").arg("ping").output();
            ping.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(" is UP"))
        });
    }

    /// The end of what the controller logged.
    pub fn log(&self) -> String {
        let text = fs::read(self.guard.folder.join("slurmctld.log")).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(SHOWN_BYTES_MAX)..]).into_owned()
    }

    fn start_slurmd(&mut self, name: &str) {
        let mut command = self.command_in_node(name, "slurmd");
        let slurmd = Daemon::start(command.args(["-D", "-N", name]));
        self.place_mut(name).slurmd = Some(slurmd);
    }

    fn wait_until_idle(&self, names: &[String]) {
        let names = names.join(",");
        let partition = format!("--partition={PARTITION_ALL}");
        self.wait_for("the nodes are idle", |slurm| {
            let arguments = ["-h", "-N", "-o", "%t", "--nodes", &names, &partition];
            let states = slurm.run("sinfo", &arguments);
            !states.is_empty() && states.lines().all(|state| state == "idle")
        });
    }

    fn wait_for(&self, what: &str, ready: impl Fn(&Slurm) -> bool) {
        let deadline = Instant::now() + EVENT_MAX / 2;
        wait_slowly_until(what, || {
            assert!(Instant::now() < deadline, "{what}: never\n{}", self.log());
            ready(self)
        });
    }

    fn nodes(&self) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(|place| place.name != HEAD)
    }

    fn number_of(&self, name: &str) -> usize {
        let number = self.places.iter().position(|place| place.name == name);
        number.unwrap_or_else(|| panic!("no node {name}"))
    }

    fn place_mut(&mut self, name: &str) -> &mut Place {
        let found = self.places.iter_mut().find(|place| place.name == name);
        found.unwrap_or_else(|| panic!("no node {name}"))
    }
}

impl Place {
    /// Makes a host of the lab the host `head`, for number 0, or a node.
    fn new(folder: &Path, number: usize, host: &Host) -> Place {
        let name = place_name(number);
        let mut command = host.command("unshare");
        command.args(["--mount", "--uts", "--propagation", "slave", "--"]);
        command.args(["sh", "-c", &[LET_GO, HOLD].concat(), "hold", &name]);
        command.arg(folder.join("hosts"));
        if number > 0 {
            command.arg(disk(folder, &name)).arg(folder.join("node"));
        } else {
            command.args(["", ""]);
        }
        let mut holder = Daemon::start(command.stdout(Stdio::piped()));
        let mut line = String::new();
        let output = holder.child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("read");
        assert_eq!(line, "ready\n", "{name} has no mounts");
        let conf = folder.join("slurm.conf");
        let text = format!(
            "#!/bin/sh\nSLURM_CONF={}\nexport SLURM_CONF\n\
             exec nsenter --target {} --mount --net --uts --wdns=\"$PWD\" -- \"$@\"\n",
            conf.display(),
            holder.child.id()
        );
        write_program(&entrance(folder, &name), &text);
        Place {
            name,
            holder,
            slurmd: None,
        }
    }
}

/// A process that is killed and waited for on drop.
#[derive(Debug)]
struct Daemon {
    child: Child,
}

impl Daemon {
    fn start(command: &mut Command) -> Daemon {
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.process_group(0).spawn();
        let child = child.unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        Daemon { child }
    }
}

impl Daemon {
    /// Asks the process to end, and waits for its end.
    fn stop(mut self) {
        self.send(Signal::TERM);
        wait_until("a daemon has ended", || {
            self.child.try_wait().expect("a child").is_some()
        });
    }

    fn send(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Another process may have the number of a child that was waited for.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.send(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Owner of the folder; outlives the test.
#[derive(Debug)]
struct Guard {
    folder: PathBuf,
    child: Child,
}

impl Guard {
    fn start(lab: &Lab) -> Guard {
        let folder = scratch_folder().keep();
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "guard"]).arg(&folder);
        command.args(lab.namespaces()).stdin(Stdio::piped());
        let child = command.process_group(0).spawn().expect("sh");
        Guard { folder, child }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn place_name(number: usize) -> String {
    match number {
        0 => HEAD.to_owned(),
        _ => format!("n{number}"),
    }
}

/// A script that runs its arguments on a host.
fn entrance(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("enter-{name}"))
}

fn disk(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("disk-{name}"))
}

fn prepare_folder(folder: &Path, lab: &Lab, credential_seconds: u64) {
    let make = |path: PathBuf, mode| {
        fs::create_dir(&path).expect("a folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    // munged(8) wants its folder closed to writers but open to clients, and its key closed to all.
    make(folder.join("munge"), 0o755);
    make(folder.join("state"), 0o700);
    make(folder.join("node"), 0o755);
    make(folder.join("shared"), 0o1777);
    let mut hosts = "127.0.0.1 localhost\n".to_owned();
    for (number, host) in lab.hosts().iter().enumerate() {
        let name = place_name(number);
        hosts.push_str(&format!("{} {name}\n", host.address()));
        if number > 0 {
            make(disk(folder, &name), 0o755);
            make(folder.join(format!("spool-{name}")), 0o755);
        }
    }
    fs::write(folder.join("hosts"), hosts).expect("names of hosts");
    let text = configuration(folder, lab, credential_seconds);
    fs::write(folder.join("slurm.conf"), text).expect("configuration");
}

fn configuration(folder: &Path, lab: &Lab, credential_seconds: u64) -> String {
    let at = folder.display();
    let count = lab.hosts().len() - 1;
    let half = count.div_ceil(2);
    let head = lab.host(0).address();
    let mut text = format!(
        "ClusterName=driftless{}\nSlurmctldHost={HEAD}({head})\nSlurmUser=root\nSlurmdUser=root\n\
         AuthType=auth/munge\nAuthInfo=socket={at}/munge/socket,cred_expire={credential_seconds}\nMpiDefault=none\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nReturnToService=2\n\
         SlurmdParameters=config_overrides\nStateSaveLocation={at}/state\nSlurmdSpoolDir={at}/spool-%n\n\
         SlurmctldPidFile={at}/slurmctld.pid\nSlurmdPidFile={at}/slurmd-%n.pid\n\
         SlurmctldLogFile={at}/slurmctld.log\nSlurmdLogFile={at}/slurmd-%n.log\n\
         MinJobAge=2\nKillWait=2\nSchedulerType=sched/backfill\n\
         SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1,default_queue_depth=1000\n",
        std::process::id()
    );
    for (number, host) in lab.hosts().iter().enumerate().skip(1) {
        let (name, address) = (place_name(number), host.address());
        text.push_str(&format!("NodeName={name} NodeAddr={address} CPUs=1\n"));
    }
    text.push_str(&format!(
        "PartitionName={PARTITION_ALL} Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n\
         PartitionName={PARTITION_HALF} Nodes=n[1-{half}] MaxTime=INFINITE State=UP\n"
    ));
    text
}

fn start_munged(folder: &Path) -> Daemon {
    let below = |name: &str| folder.join("munge").join(name).display().to_string();
    let mut key = [0; 128];
    fastrand::fill(&mut key);
    fs::write(below("key"), key).expect("a key");
    let closed = fs::Permissions::from_mode(0o600);
    fs::set_permissions(below("key"), closed).expect("a mode");
    let mut command = Command::new(entrance(folder, HEAD));
    command.args(["munged", "--foreground"]);
    for (option, name) in [
        ("socket", "socket"),
        ("key-file", "key"),
        ("log-file", "log"),
        ("pid-file", "pid"),
        ("seed-file", "seed"),
    ] {
        command.arg(format!("--{option}={}", below(name)));
    }
    let daemon = Daemon::start(&mut command);
    wait_until("munged listens", || Path::new(&below("socket")).exists());
    daemon
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the processes that name a folder in their arguments.
    fn processes_that_name(folder: &Path) -> usize {
        let folder = folder.display().to_string();
        let entries = fs::read_dir("/proc").expect("list /proc").flatten();
        let arguments = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        arguments
            .filter(|text| String::from_utf8_lossy(text).contains(&folder))
            .count()
    }

    #[test]
    fn nothing_is_left_of_a_cluster() {
        let slurm = Slurm::start(1);
        let folder = slurm.guard.folder.clone();
        let names: Vec<PathBuf> = slurm
            .lab
            .namespaces()
            .map(|name| Path::new("/run/netns").join(name))
            .collect();
        let task = format!("--wrap=sleep 600 # {}", folder.display());
        slurm.run("sbatch", &["--output=/dev/null", &task]);
        slurm.wait_for("the task runs", |slurm| {
            slurm.run("squeue", &["-h", "-o", "%t"]) == "R\n"
        });
        assert!(names.iter().all(|name| name.exists()));
        drop(slurm);
        assert!(
            !names.iter().any(|name| name.exists()),
            "namespaces are left"
        );
        assert!(!folder.exists(), "the folder is left");
        assert_eq!(processes_that_name(&folder), 0, "processes are left");
    }
}
