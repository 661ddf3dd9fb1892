//! A stand-in for OpenPBS, which Debian lacks: a server with a scheduler, and its commands.
//!
//! The program `pbs.py` runs real jobs on [`Machines`], with the users and holds of OpenPBS, and
//! prints the forms of OpenPBS 23.06. Its head says what they follow. The first machine is that of
//! the server, and each other machine is a node of two processors.

use crate::machines::{Machine, Machines};
use crate::program::write_program;
use crate::wait::wait_until;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = include_str!("pbs/pbs.py");
/// Name of the machine of the server.
const HEAD: &str = "pbshead";
const COMMANDS: &[&str] = &[
    "pbsnodes", "qalter", "qdel", "qhold", "qmgr", "qrls", "qstat", "qsub",
];

/// A running server. Dropping it ends it and all its jobs.
#[derive(Debug)]
pub struct Pbs {
    machines: Machines,
    server: Option<Child>,
}

impl Pbs {
    /// Starts a server and as many nodes. Needs root.
    pub fn start(nodes: usize) -> Pbs {
        let names: Vec<String> = (1..=nodes).map(|number| format!("pbs{number}")).collect();
        let machines = Machines::new(&[&[HEAD.to_owned()], names.as_slice()].concat());
        let mut pbs = Pbs {
            machines,
            server: None,
        };
        pbs.write_files();
        pbs.start_server();
        pbs
    }

    /// Names of the nodes.
    pub fn node_names(&self) -> Vec<String> {
        let nodes = &self.machines.all()[1..];
        nodes.iter().map(|node| node.name().to_owned()).collect()
    }

    /// The machines: the first is that of the server, and the others are the nodes.
    pub fn machines(&self) -> &Machines {
        &self.machines
    }

    /// A command of root on the machine of the server, in the current directory of the test. Names of
    /// commands of PBS are found first.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.with_path(self.head().command(program))
    }

    /// A command of the ordinary user on the machine of the server.
    pub fn command_as_user(&self, program: impl AsRef<OsStr>) -> Command {
        self.with_path(self.head().command_as_user(program))
    }

    /// A folder of the commands. They work on each machine and in the test itself, and for each user.
    pub fn commands(&self) -> PathBuf {
        self.machines.folder().join("commands")
    }

    /// A folder that all machines and the test share, and that each user may write to.
    pub fn shared(&self) -> PathBuf {
        self.machines.folder().join("shared")
    }

    /// The path of a folder that is another one on each node, for a node daemon.
    pub fn node_dir(&self) -> PathBuf {
        self.machines.node_dir()
    }

    /// Ends the server. Jobs that run go on.
    pub fn stop_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Starts the server and waits until it listens.
    pub fn start_server(&mut self) {
        let folder = self.server_folder();
        let log = fs::File::create(folder.join("log")).expect("a log");
        let mut command = Command::new("python3");
        command
            .arg(folder.join("pbs.py"))
            .arg(&folder)
            .arg("server")
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        self.server = Some(command.spawn().expect("python3 is installed"));
        let socket = folder.join("socket");
        wait_until("the server listens", || {
            UnixStream::connect(&socket).is_ok()
        });
    }

    fn head(&self) -> &Machine {
        &self.machines.all()[0]
    }

    fn server_folder(&self) -> PathBuf {
        self.machines.folder().join("server")
    }

    fn with_path(&self, mut command: Command) -> Command {
        let path = format!(
            "{}:/usr/bin:/bin:/usr/sbin:/sbin",
            self.commands().display()
        );
        command.env("PATH", path).stdin(Stdio::null());
        command
    }

    fn write_files(&self) {
        let folder = self.server_folder();
        for name in [&folder, &self.commands(), &self.shared()] {
            fs::create_dir(name).expect("a folder");
        }
        fs::set_permissions(self.shared(), fs::Permissions::from_mode(0o1777))
            .expect("open to all");
        fs::write(folder.join("pbs.py"), PROGRAM).expect("the program");
        let nodes = self.machines.all()[1..].iter();
        let nodes: serde_json::Map<_, _> = nodes
            .map(|node| (node.name().to_owned(), node.words().into()))
            .collect();
        let nodes = serde_json::Value::from(nodes).to_string();
        fs::write(folder.join("nodes.json"), nodes).expect("the nodes");
        for name in COMMANDS {
            let path = self.commands().join(name);
            let folder = folder.display();
            let text = format!("#!/bin/sh\nexec python3 {folder}/pbs.py {folder} {name} \"$@\"\n");
            write_program(&path, &text);
        }
    }
}

impl Drop for Pbs {
    fn drop(&mut self) {
        self.stop_server();
        for number in 0..self.machines.all().len() {
            self.machines.end_processes(number);
        }
    }
}
