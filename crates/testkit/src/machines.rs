//! Hosts of a [`Lab`] with names of their own: each has a host name, an `/etc/hosts` and one private
//! folder.
//!
//! Servers such as those of a batch system recognise their host by its name, and daemons of several
//! hosts use one path. A machine shares the users, programs and all other files of the real one, and
//! its process IDs.
//!
//! Tests may share machines in a `static`, which is never dropped. Therefore a guard process reads a
//! pipe. At its end, also after a kill of the test, the guard ends all processes of the machines and
//! removes their namespaces and files. Their mounts end with their last process.

use crate::accounts::ORDINARY_ID;
use crate::hosts::{Host, LET_GO, Lab};
use crate::processes;
use crate::scratch::scratch_folder;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Makes the namespaces of a machine, prints a byte and waits for the end of its standard input. Its
/// arguments are the host name, the file of hosts, and a private folder with its common path.
const HOLD: &str = r#"
hostname "$1" && mount --bind "$2" /etc/hosts && mount --bind "$3" "$4" && printf . && exec cat
"#;

/// Enters the namespaces of the process $1 in the current directory, and runs the rest. `setns` moves
/// a process to the root directory.
const ENTER: &str = r#"
at=/proc/$1/ns; shift
exec nsenter --net="$at/net" --uts="$at/uts" --mount="$at/mnt" --wdns="$PWD" -- "$@"
"#;

/// Waits for the end of its standard input, ends what runs in the namespaces after $1, and removes
/// the namespaces and the folder $1.
const GUARD: &str = r#"
cat >/dev/null
folder=$1; shift
for name; do
	while pids=$(ip netns pids "$name" 2>/dev/null) && [ -n "$pids" ]; do kill -s KILL $pids; sleep 0.02; done
	ip netns delete "$name"
done 2>/dev/null
rm -rf -- "$folder"
"#;

/// Machines that reach each other by name, and nothing else. Needs root.
#[derive(Debug)]
pub struct Machines {
    guard: Child,
    machines: Vec<Machine>,
    lab: Lab,
    folder: PathBuf,
}

/// A host with a name.
#[derive(Debug)]
pub struct Machine {
    name: String,
    /// Process whose namespaces the machine has.
    holder: Child,
}

impl Machines {
    /// Makes one machine for each name.
    pub fn new(names: &[String]) -> Machines {
        let lab = Lab::new(names.len());
        let folder = scratch_folder().keep();
        fs::create_dir(folder.join("node")).expect("the common path of private folders");
        let lines = names
            .iter()
            .zip(lab.hosts())
            .map(|(name, host)| format!("{} {name}\n", host.address()));
        let hosts: String = ["127.0.0.1 localhost\n".to_owned()]
            .into_iter()
            .chain(lines)
            .collect();
        fs::write(folder.join("hosts"), hosts).expect("names of hosts");
        let guard = start_guard(&folder, &lab);
        let machines = names
            .iter()
            .zip(lab.hosts())
            .map(|(name, host)| Machine::new(name, host, &folder))
            .collect();
        Machines {
            guard,
            machines,
            lab,
            folder,
        }
    }

    /// Returns the machines in the order of their names.
    pub fn all(&self) -> &[Machine] {
        &self.machines
    }

    /// The host of the lab below the machine of this number.
    pub fn host(&self, number: usize) -> &Host {
        self.lab.host(number)
    }

    /// A folder that all machines share with the test. It is removed with them.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of a folder that is another one on each machine.
    pub fn node_dir(&self) -> PathBuf {
        self.folder.join("node")
    }

    /// The path at which the test finds the private folder of a machine.
    pub fn node_dir_of(&self, number: usize) -> PathBuf {
        private_folder(&self.folder, &self.machines[number].name)
    }

    /// Kills all processes of a machine, as a power failure does.
    pub fn end_processes(&self, number: usize) {
        let holder = self.machines[number].holder.id();
        let host = self.lab.host(number);
        let rest = || {
            let mut found = host.processes();
            found.retain(|pid| *pid != holder);
            found
        };
        assert!(processes::end_all(rest), "a process does not end");
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        for machine in &mut self.machines {
            let _ = machine.holder.wait();
        }
    }
}

impl Machine {
    fn new(name: &str, host: &Host, folder: &Path) -> Machine {
        let private = private_folder(folder, name);
        fs::create_dir(&private).expect("a private folder");
        // Unmounts of the real machine must reach the copies of its mounts, or devices stay busy.
        let mut holder = host
            .command("unshare")
            .args(["--mount", "--propagation=slave", "--uts", "--"])
            .args(["sh", "-c", &[LET_GO, HOLD].concat(), "hold", name])
            .args([&folder.join("hosts"), &private, &folder.join("node")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare is installed");
        let mut ready = [0];
        let output = holder.stdout.as_mut().expect("a pipe");
        output
            .read_exact(&mut ready)
            .expect("a machine with a name and mounts");
        Machine {
            name: name.to_owned(),
            holder,
        }
    }

    /// Its host name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that root runs on it, in the current directory of the test.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        command(self.words(), program)
    }

    /// A command that the ordinary user runs on it.
    pub fn command_as_user(&self, program: impl AsRef<OsStr>) -> Command {
        command(self.words_as(ORDINARY_ID, ORDINARY_ID), program)
    }

    /// Words before a program and its arguments that run them here as root, as for
    /// [`Driftless::through`](crate::Driftless). The process that is started becomes that of the
    /// program.
    pub fn words(&self) -> Vec<String> {
        let holder = self.holder.id().to_string();
        ["sh", "-c", ENTER, "enter", &holder]
            .map(str::to_owned)
            .to_vec()
    }

    /// The same as another user, without supplementary groups.
    pub fn words_as(&self, uid: u32, gid: u32) -> Vec<String> {
        let mut words = self.words();
        let (uid, gid) = (format!("--reuid={uid}"), format!("--regid={gid}"));
        words.extend(["setpriv".to_owned(), uid, gid, "--clear-groups".to_owned()]);
        words
    }
}

fn command(words: Vec<String>, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg(program).stdin(Stdio::null());
    command
}

fn private_folder(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("node-{name}"))
}

fn start_guard(folder: &Path, lab: &Lab) -> Child {
    let mut command = Command::new("sh");
    command
        .args(["-c", GUARD, "guard"])
        .arg(folder)
        .args(lab.namespaces())
        .stdin(Stdio::piped())
        .process_group(0);
    command.spawn().expect("sh")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(command: &mut Command) -> String {
        let output = command.output().expect("it starts");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    fn two() -> Machines {
        Machines::new(&["one".to_owned(), "two".to_owned()])
    }

    #[test]
    fn machines_know_their_names_and_others() {
        let machines = two();
        for machine in machines.all() {
            assert_eq!(output(&mut machine.command("hostname")), machine.name());
        }
        let mut ask = machines.all()[0].command("getent");
        let address = machines.host(1).address().to_string();
        assert!(output(ask.args(["hosts", "two"])).starts_with(&address));
    }

    #[test]
    fn private_folders_have_one_path() {
        let machines = two();
        for (number, machine) in machines.all().iter().enumerate() {
            let file = machines.node_dir().join("name");
            let status = machine
                .command("sh")
                .args(["-c", "hostname >$0"])
                .arg(&file)
                .status();
            assert!(status.expect("sh").success());
            let seen = fs::read_to_string(machines.node_dir_of(number).join("name"));
            assert_eq!(seen.expect("a file").trim_end(), machine.name());
        }
        assert!(!machines.node_dir().join("name").exists());
    }

    #[test]
    fn ordinary_user_runs_in_current_directory() {
        let machines = two();
        let mut id = machines.all()[1].command_as_user("sh");
        id.args(["-c", "id -u; pwd"]).current_dir("/usr/lib");
        assert_eq!(output(&mut id), format!("{ORDINARY_ID}\n/usr/lib"));
    }

    #[test]
    fn nothing_is_left_of_machines() {
        let machines = two();
        let names: Vec<String> = machines.lab.namespaces().map(str::to_owned).collect();
        let folder = machines.folder().to_owned();
        let mut sleep = machines.all()[0]
            .command("sleep")
            .arg("600")
            .spawn()
            .expect("sleep");
        drop(machines);
        assert!(!sleep.wait().expect("wait").success());
        assert!(!folder.exists());
        let left = names
            .iter()
            .filter(|name| Path::new("/run/netns").join(name).exists());
        assert_eq!(left.count(), 0);
    }
}
