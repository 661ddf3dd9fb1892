//! The batch systems of tests, in one form.

use driftless_testkit::{GridEngine, Pbs, Slurm};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A batch system with nodes that have their own addresses and disks.
pub trait Cluster {
    /// Word of `driftless gateway --system`.
    const SYSTEM: &'static str;
    /// Command that submits a job, with options that keep its output away.
    const SUBMIT: &'static [&'static str];

    fn start(nodes: usize) -> Self;
    fn node_names(&self) -> Vec<String>;
    fn address(&self, name: &str) -> IpAddr;
    /// A program of root on the head node.
    fn command(&self, program: &str) -> Command;
    /// A program of a user on the head node.
    fn command_as(&self, uid: u32, program: &str) -> Command;
    /// A program of root on a node.
    fn command_in_node(&self, name: &str, program: &str) -> Command;
    fn shared_dir(&self) -> PathBuf;
    fn node_dir(&self) -> PathBuf;
    /// The content of [`node_dir`](Cluster::node_dir) of a node, for the test.
    fn disk_of(&self, name: &str) -> PathBuf;
    /// Command that removes a job.
    fn cancel(&self, job: &str) -> Command;
    /// Command that prints what nodes offer: features, complex values or resources.
    fn offers(&self) -> Command;

    /// Removes a job.
    fn remove(&self, job: &str) {
        must(&mut self.cancel(job));
    }
}

/// Runs a program, and returns its output.
pub fn must(command: &mut Command) -> Output {
    let output = command.output().expect("an output");
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn as_user(mut command: Command, uid: u32, program: &str) -> Command {
    command.args([format!("--reuid={uid}"), format!("--regid={uid}")]);
    command.args(["--clear-groups", "--"]).arg(program);
    command
}

impl Cluster for Slurm {
    const SYSTEM: &'static str = "slurm";
    const SUBMIT: &'static [&'static str] = &["sbatch", "--output=/dev/null"];

    fn start(nodes: usize) -> Self {
        Slurm::start(nodes)
    }

    fn node_names(&self) -> Vec<String> {
        Slurm::node_names(self)
    }

    fn address(&self, name: &str) -> IpAddr {
        Slurm::address(self, name)
    }

    fn command(&self, program: &str) -> Command {
        Slurm::command(self, program)
    }

    fn command_as(&self, uid: u32, program: &str) -> Command {
        as_user(self.command("setpriv"), uid, program)
    }

    fn command_in_node(&self, name: &str, program: &str) -> Command {
        Slurm::command_in_node(self, name, program)
    }

    fn shared_dir(&self) -> PathBuf {
        Slurm::shared_dir(self)
    }

    fn node_dir(&self) -> PathBuf {
        Slurm::node_dir(self)
    }

    fn disk_of(&self, name: &str) -> PathBuf {
        Slurm::disk_of(self, name)
    }

    fn cancel(&self, job: &str) -> Command {
        let mut cancel = self.command("scancel");
        cancel.arg(job);
        cancel
    }

    fn offers(&self) -> Command {
        let mut offers = self.command("sinfo");
        offers.args(["-h", "-o", "%f"]);
        offers
    }
}

impl Cluster for GridEngine {
    const SYSTEM: &'static str = "grid-engine";
    const SUBMIT: &'static [&'static str] = &["qsub", "-cwd", "-j", "y", "-o", "/dev/null"];

    fn start(nodes: usize) -> Self {
        GridEngine::start(nodes)
    }

    fn node_names(&self) -> Vec<String> {
        self.host_names()
    }

    fn address(&self, name: &str) -> IpAddr {
        let machines = self.machines();
        machines
            .host(number_of(
                &machines
                    .all()
                    .iter()
                    .map(|one| one.name())
                    .collect::<Vec<_>>(),
                name,
            ))
            .address()
    }

    fn command(&self, program: &str) -> Command {
        GridEngine::command(self, program)
    }

    fn command_as(&self, uid: u32, program: &str) -> Command {
        as_user(self.command("setpriv"), uid, program)
    }

    fn command_in_node(&self, name: &str, program: &str) -> Command {
        let names = self.host_names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.command_in_host(number_of(&names, name), program)
    }

    fn shared_dir(&self) -> PathBuf {
        self.shared()
    }

    fn node_dir(&self) -> PathBuf {
        GridEngine::node_dir(self)
    }

    fn disk_of(&self, name: &str) -> PathBuf {
        let names = self.host_names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.node_dir_of(number_of(&names, name))
    }

    fn cancel(&self, job: &str) -> Command {
        let mut cancel = self.command("qdel");
        cancel.arg(job);
        cancel
    }

    fn offers(&self) -> Command {
        let mut offers = self.command("qhost");
        offers.arg("-F");
        offers
    }
}

impl Cluster for Pbs {
    const SYSTEM: &'static str = "pbs";
    const SUBMIT: &'static [&'static str] = &["qsub", "-j", "oe", "-o", "/dev/null"];

    fn start(nodes: usize) -> Self {
        Pbs::start(nodes)
    }

    fn node_names(&self) -> Vec<String> {
        Pbs::node_names(self)
    }

    fn address(&self, name: &str) -> IpAddr {
        let machines = self.machines();
        let names: Vec<&str> = machines.all().iter().map(|one| one.name()).collect();
        machines.host(number_of(&names, name)).address()
    }

    fn command(&self, program: &str) -> Command {
        Pbs::command(self, program)
    }

    fn command_as(&self, uid: u32, program: &str) -> Command {
        as_user(self.command("setpriv"), uid, program)
    }

    fn command_in_node(&self, name: &str, program: &str) -> Command {
        let machines = self.machines();
        let names: Vec<&str> = machines.all().iter().map(|one| one.name()).collect();
        machines.all()[number_of(&names, name)].command(program)
    }

    fn shared_dir(&self) -> PathBuf {
        self.shared()
    }

    fn node_dir(&self) -> PathBuf {
        Pbs::node_dir(self)
    }

    fn disk_of(&self, name: &str) -> PathBuf {
        let machines = self.machines();
        let names: Vec<&str> = machines.all().iter().map(|one| one.name()).collect();
        machines.node_dir_of(number_of(&names, name))
    }

    fn cancel(&self, job: &str) -> Command {
        let mut cancel = self.command("qdel");
        cancel.arg(job);
        cancel
    }

    fn offers(&self) -> Command {
        let mut offers = self.command("pbsnodes");
        offers.args(["-a", "-F", "json"]);
        offers
    }
}

fn number_of(names: &[&str], name: &str) -> usize {
    let number = names.iter().position(|one| *one == name);
    number.unwrap_or_else(|| panic!("no node {name}"))
}
