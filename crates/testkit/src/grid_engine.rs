//! A real Grid Engine: a qmaster and several execution daemons, each on a [`Machine`] of its own.
//!
//! The programs are Debian's (`gridengine-master`, `gridengine-exec`, `gridengine-client`). Root
//! directory, cell, spool and configuration are in the folder of the machines, so the machine's own
//! `/var/lib/gridengine` is neither used nor changed. The settings of the cell are those of Debian's
//! `init_cluster`, with a scheduler that runs each second.
//!
//! Users of jobs are those of the machine: root and the ordinary user. The latter has no home: submit
//! with `-cwd`.

use crate::machines::{Machine, Machines};
use crate::program::write_program;
use crate::scratch::must_run;
use crate::wait::wait_slowly_until;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// Folder of Debian's programs. Those in `/usr/bin` only set the environment.
const PROGRAMS: &str = "/usr/lib/gridengine";
/// Folder of Debian's templates of configuration files.
const TEMPLATES: &str = "/usr/share/gridengine";
/// Architecture in paths below the root directory; a name, whichever machine it is.
const ARCHITECTURE: &str = "lx-amd64";
/// The user that owns the spool.
const ADMINISTRATOR: &str = "sgeadmin";
const CELL: &str = "cell";
const QMASTER_PORT: u16 = 6444;
const EXECD_PORT: u16 = 6445;
/// Name of the machine of the qmaster.
const HEAD: &str = "gehead";
/// The only queue. A host runs two tasks at a time.
const QUEUE_SETTINGS: &[(&str, &str)] = &[
    ("qname", "all.q"),
    ("slots", "2"),
    ("pe_list", PARALLEL_ENVIRONMENT),
    ("load_thresholds", "NONE"),
    ("shell", "/bin/sh"),
    ("shell_start_mode", "unix_behavior"),
];
/// The parallel environment. Its jobs take slots of as many hosts as possible.
const PARALLEL_ENVIRONMENT: &str = "spread";
const SCHEDULE: &[(&str, &str)] = &[
    ("schedule_interval", "0:0:1"),
    ("flush_submit_sec", "1"),
    ("flush_finish_sec", "1"),
    ("job_load_adjustments", "NONE"),
];
/// Settings of the parallel environment after its name (sge_pe(5)).
const ENVIRONMENT: &str = "slots 999\nuser_lists NONE\nxuser_lists NONE\nstart_proc_args NONE\n\
    stop_proc_args NONE\nallocation_rule $round_robin\ncontrol_slaves FALSE\njob_is_first_task TRUE\n\
    urgency_slots min\naccounting_summary FALSE\nqsort_args NONE\n";
/// Settings of an execution host after its name (host_conf(5)).
const HOST: &str = "load_scaling NONE\ncomplex_values NONE\nuser_lists NONE\nxuser_lists NONE\n\
    projects NONE\nxprojects NONE\nusage_scaling NONE\nreport_variables NONE\n";
/// Group IDs by which an execution daemon knows the processes of its jobs (sge_conf(5), `gid_range`).
/// It ends whatever has one of them, so hosts that share process IDs must not share group IDs.
const GROUPS_PER_HOST: u64 = 50;
const GROUPS_PER_TEST: u64 = 4000;
const GROUP_MIN: u64 = 1_000_000;
const GROUPS_MAX: u64 = 1_000_000_000;
/// Programs of users and administrators.
const COMMANDS: &[&str] = &[
    "qacct", "qalter", "qconf", "qdel", "qhold", "qhost", "qmod", "qrls", "qselect", "qstat",
    "qsub",
];

/// A running Grid Engine. Dropping it ends it and all its jobs.
#[derive(Debug)]
pub struct GridEngine {
    machines: Machines,
    qmaster: Option<Child>,
    execds: Vec<Option<Child>>,
}

impl Drop for GridEngine {
    fn drop(&mut self) {
        for number in 0..self.machines.all().len() {
            self.machines.end_processes(number);
        }
        for daemon in self
            .qmaster
            .iter_mut()
            .chain(self.execds.iter_mut().flatten())
        {
            let _ = daemon.wait();
        }
    }
}

impl GridEngine {
    /// Starts a qmaster and as many execution hosts, and waits until all hosts are up. Needs root.
    pub fn start(hosts: usize) -> GridEngine {
        let names: Vec<String> = (1..=hosts).map(|number| format!("ge{number}")).collect();
        let machines = Machines::new(&[&[HEAD.to_owned()], names.as_slice()].concat());
        let mut engine = GridEngine {
            machines,
            qmaster: None,
            execds: (0..hosts).map(|_| None).collect(),
        };
        engine.make_cell();
        engine.write_commands();
        engine.start_master();
        engine.configure();
        for number in 0..hosts {
            engine.start_execd(number);
        }
        wait_slowly_until("all execution hosts are up", || engine.down().is_empty());
        engine
    }

    /// Names of the execution hosts.
    pub fn host_names(&self) -> Vec<String> {
        let hosts = &self.machines.all()[1..];
        hosts.iter().map(|host| host.name().to_owned()).collect()
    }

    /// The machines: the first is that of the qmaster, and the others are the execution hosts.
    pub fn machines(&self) -> &Machines {
        &self.machines
    }

    /// A command of root on the machine of the qmaster, in the current directory of the test.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.with_environment(self.head().command(program))
    }

    /// A command of the ordinary user on the machine of the qmaster.
    pub fn command_as_user(&self, program: impl AsRef<OsStr>) -> Command {
        self.with_environment(self.head().command_as_user(program))
    }

    /// A command of root on an execution host, counted from 0.
    pub fn command_in_host(&self, number: usize, program: impl AsRef<OsStr>) -> Command {
        self.with_environment(self.machines.all()[1 + number].command(program))
    }

    /// Variables that a program on a machine needs to reach the qmaster.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let root = self.root().into_os_string();
        let port = |port: u16| OsString::from(port.to_string());
        vec![
            ("SGE_ROOT".into(), root),
            ("SGE_CELL".into(), CELL.into()),
            ("SGE_ARCH".into(), ARCHITECTURE.into()),
            ("SGE_QMASTER_PORT".into(), port(QMASTER_PORT)),
            ("SGE_EXECD_PORT".into(), port(EXECD_PORT)),
        ]
    }

    /// A folder of the commands of Grid Engine for root on no machine, such as the test itself. They
    /// run on the machine of the qmaster.
    pub fn commands(&self) -> PathBuf {
        self.machines.folder().join("commands")
    }

    /// A folder that all machines and the test share, and that each user may write to.
    pub fn shared(&self) -> PathBuf {
        self.machines.folder().join("shared")
    }

    /// The path of a folder that is another one on each host, for a node daemon.
    pub fn node_dir(&self) -> PathBuf {
        self.machines.node_dir()
    }

    /// The path at which the test finds the folder [`node_dir`](GridEngine::node_dir) of an execution
    /// host.
    pub fn node_dir_of(&self, number: usize) -> PathBuf {
        self.machines.node_dir_of(1 + number)
    }

    /// Kills everything on an execution host. The qmaster notices some seconds later.
    pub fn stop_host(&mut self, number: usize) {
        self.machines.end_processes(1 + number);
        if let Some(mut execd) = self.execds[number].take() {
            let _ = execd.wait();
        }
    }

    /// Starts the execution daemon of a host that was stopped, and waits until the host is up.
    pub fn start_host(&mut self, number: usize) {
        self.start_execd(number);
        let name = &self.host_names()[number];
        wait_slowly_until("the host is up", || !self.down().contains(name));
    }

    /// Returns the hosts that the qmaster does not reach.
    pub fn down(&self) -> Vec<String> {
        // Without a queue in this state, qselect prints nothing and exits with 1.
        let output = self.command("qselect").args(["-qs", "u"]).output();
        let output = String::from_utf8(output.expect("qselect").stdout).expect("text");
        let host = |instance: &str| instance.rsplit('@').next().map(str::to_owned);
        output.lines().filter_map(host).collect()
    }

    /// Ends the qmaster as an administrator does. Jobs that run go on.
    pub fn stop_master(&mut self) {
        if let Some(mut qmaster) = self.qmaster.take() {
            let _ = kill_process(Pid::from_child(&qmaster), Signal::TERM);
            let _ = qmaster.wait();
        }
    }

    /// Starts the qmaster and waits until it answers.
    pub fn start_master(&mut self) {
        let program = Path::new(PROGRAMS).join("sge_qmaster");
        self.qmaster = Some(self.start_daemon(self.command(program), "qmaster"));
        wait_slowly_until("the qmaster answers", || {
            let output = self.command("qconf").arg("-sh").output();
            output.expect("qconf").status.success()
        });
    }

    fn start_execd(&mut self, number: usize) {
        let program = Path::new(PROGRAMS).join("sge_execd");
        let command = self.command_in_host(number, program);
        let name = self.machines.all()[1 + number].name();
        self.execds[number] = Some(self.start_daemon(command, name));
    }

    /// Starts a daemon that stays the child of the test (`SGE_ND`).
    fn start_daemon(&self, mut command: Command, name: &str) -> Child {
        let log = self.machines.folder().join(format!("{name}.log"));
        let log = fs::File::options().create(true).append(true).open(log);
        let log = log.expect("a log");
        command
            .env("SGE_ND", "1")
            .current_dir("/")
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        command
            .spawn()
            .expect("the gridengine packages are installed")
    }

    fn head(&self) -> &Machine {
        &self.machines.all()[0]
    }

    fn root(&self) -> PathBuf {
        self.machines.folder().join("root")
    }

    fn spool(&self) -> PathBuf {
        self.machines.folder().join("spool")
    }

    fn with_environment(&self, mut command: Command) -> Command {
        command.envs(self.environment()).stdin(Stdio::null());
        command
    }

    /// Makes root directory, cell and an empty spool, as Debian's `init_cluster` does.
    fn make_cell(&self) {
        let (root, spool) = (self.root(), self.spool());
        let common = root.join(CELL).join("common");
        let below = |name: &str| spool.join(name);
        let folders = [
            common.clone(),
            below("qmaster/job_scripts"),
            below("db"),
            below("execd"),
        ];
        folders
            .into_iter()
            .for_each(|folder| fs::create_dir_all(folder).expect("a folder"));
        for open in [self.shared(), self.temporary()] {
            fs::create_dir(&open).expect("a folder");
            fs::set_permissions(open, fs::Permissions::from_mode(0o1777)).expect("open to all");
        }
        for name in ["bin", "lib", "utilbin"] {
            fs::create_dir(root.join(name)).expect("a folder");
            symlink(PROGRAMS, root.join(name).join(ARCHITECTURE)).expect("a link");
        }
        symlink(format!("{TEMPLATES}/util"), root.join("util")).expect("a link");
        write(&common.join("act_qmaster"), &format!("{HEAD}\n"));
        write(&common.join("bootstrap"), &bootstrap(&root, &spool));
        let owner = format!("{ADMINISTRATOR}:{ADMINISTRATOR}");
        must_run(
            Command::new("chown")
                .args(["-R", &owner])
                .args([&root, &spool]),
        );
        self.fill_spool();
    }

    fn fill_spool(&self) {
        let configuration = self.setting("configuration", &self.configuration());
        let template = |name: &str| format!("{TEMPLATES}/util/resources/{name}");
        let database = self.spool().join("db").display().to_string();
        let as_administrator = |program: &str, arguments: &[&str]| {
            let program = Path::new(PROGRAMS).join(program);
            let mut command = self.command("setpriv");
            command.args([
                "--reuid",
                ADMINISTRATOR,
                "--regid",
                ADMINISTRATOR,
                "--clear-groups",
            ]);
            must_run(command.arg(program).args(arguments));
        };
        as_administrator("spoolinit", &["berkeleydb", "libspoolb", &database, "init"]);
        let fill = |arguments: &[&str]| as_administrator("spooldefaults", arguments);
        fill(&["configuration", &configuration]);
        fill(&["complexes", &template("centry")]);
        fill(&["usersets", &template("usersets")]);
        fill(&["managers", ADMINISTRATOR, "root"]);
    }

    /// Root and system users may run jobs, and a host that is silent counts as down soon.
    fn configuration(&self) -> String {
        let template = format!("{TEMPLATES}/default-configuration");
        let template = fs::read_to_string(template).expect("gridengine-master is installed");
        let spool = self.spool().join("execd").display().to_string();
        with_settings(
            &template,
            &[
                ("execd_spool_dir", &spool),
                ("mailer", "/bin/true"),
                ("min_uid", "0"),
                ("min_gid", "0"),
                ("load_report_time", "00:00:01"),
                ("max_unheard", "00:00:10"),
            ],
        )
    }

    /// Writes commands that enter the machine of the qmaster.
    fn write_commands(&self) {
        fs::create_dir(self.commands()).expect("a folder");
        let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
        let words: Vec<String> = self
            .head()
            .words()
            .iter()
            .map(|word| quoted(word))
            .collect();
        let variables = self.environment().into_iter();
        let variables: String = variables
            .map(|(name, value)| format!("export {}={}\n", name.display(), value.display()))
            .collect();
        for name in COMMANDS {
            let path = self.commands().join(name);
            let words = words.join(" ");
            write_program(
                &path,
                &format!("#!/bin/sh\n{variables}exec {words} {PROGRAMS}/{name} \"$@\"\n"),
            );
        }
    }

    /// Tells the qmaster its hosts, queue and schedule.
    fn configure(&self) {
        let hosts = self.host_names();
        let all = [&[HEAD.to_owned()], hosts.as_slice()].concat().join(",");
        self.qconf(&["-as", &all]);
        self.qconf(&["-ah", &all]);
        for host in &hosts {
            self.add_host(host);
        }
        let group = format!("group_name @allhosts\nhostlist {}\n", hosts.join(" "));
        self.qconf(&["-Ahgrp", &self.setting("hostgroup", &group)]);
        let environment = format!("pe_name {PARALLEL_ENVIRONMENT}\n{ENVIRONMENT}");
        self.qconf(&["-Ap", &self.setting("environment", &environment)]);
        self.qconf(&["-Aq", &self.setting("queue", &self.queue())]);
        let schedule = with_settings(&self.qconf(&["-ssconf"]), SCHEDULE);
        self.qconf(&["-Msconf", &self.setting("schedule", &schedule)]);
    }

    fn add_host(&self, name: &str) {
        let host = format!("hostname {name}\n{HOST}");
        self.qconf(&["-Ae", &self.setting("host", &host)]);
        // The name of the file is that of the host.
        self.qconf(&["-Aconf", &self.setting(name, &own_groups())]);
    }

    fn queue(&self) -> String {
        let folder = self.temporary().display().to_string();
        let own = [("hostlist", "@allhosts"), ("tmpdir", folder.as_str())];
        let template = with_settings(&self.qconf(&["-sq"]), QUEUE_SETTINGS);
        with_settings(&template, &own)
    }

    /// Returns the folder of the jobs' temporary folders. They have the names of jobs, so clusters must
    /// not share it.
    fn temporary(&self) -> PathBuf {
        self.machines.folder().join("tmp")
    }

    /// Writes a file for `qconf` and returns its path.
    fn setting(&self, name: &str, text: &str) -> String {
        let folder = self.machines.folder().join("settings");
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join(name);
        write(&path, text);
        path.display().to_string()
    }

    fn qconf(&self, arguments: &[&str]) -> String {
        let output = self
            .command("qconf")
            .args(arguments)
            .output()
            .expect("qconf");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "qconf {arguments:?}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    }
}

/// Group IDs that no other host has.
fn own_groups() -> String {
    static HOSTS: AtomicU64 = AtomicU64::new(0);
    let test = u64::from(std::process::id()) * GROUPS_PER_TEST % GROUPS_MAX;
    let host = HOSTS.fetch_add(1, Ordering::Relaxed) * GROUPS_PER_HOST;
    let first = GROUP_MIN + test + host;
    format!("gid_range {first}-{}\n", first + GROUPS_PER_HOST - 1)
}

fn bootstrap(root: &Path, spool: &Path) -> String {
    let (root, spool) = (root.display(), spool.display());
    format!(
        "admin_user {ADMINISTRATOR}\ndefault_domain none\nignore_fqdn false\nspooling_method berkeleydb\n\
         spooling_lib libspoolb\nspooling_params {spool}/db\nbinary_path {root}/bin\n\
         qmaster_spool_dir {spool}/qmaster\nsecurity_mode none\nlistener_threads 2\nworker_threads 2\n\
         scheduler_threads 1\n"
    )
}

/// Returns a configuration with other values of these names. Each must be in it.
fn with_settings(text: &str, settings: &[(&str, &str)]) -> String {
    let names = |line: &str, name: &str| line.split_whitespace().next() == Some(name);
    for (name, _) in settings {
        assert!(text.lines().any(|line| names(line, name)), "{name}: {text}");
    }
    let with = |line: &str| match settings.iter().find(|(name, _)| names(line, name)) {
        Some((name, value)) => format!("{name} {value}\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(with).collect()
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
}
