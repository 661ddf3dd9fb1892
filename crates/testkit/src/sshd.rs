//! A real OpenSSH server for one test, with keys, accounts and settings of its own, and the
//! settings of clients that reach it.
//!
//! The machine's own server, keys and `~/.ssh` are neither used nor changed. One can log in as root
//! and as the ordinary user. Clients check the server's key: a test that reaches another server
//! than its own fails.

use crate::accounts::{ORDINARY_ID, ORDINARY_NAME, prepare_logins};
use crate::attrs;
use crate::hosts::Host;
use crate::processes;
use crate::scratch::{must_run, scratch_folder};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The name of the server in a client's settings that logs in as root.
pub const FAR: &str = "far";
/// The name of the server in a client's settings that logs in as the ordinary user.
pub const FAR_USER: &str = "far-user";

/// sshd starts itself anew for each connection and wants to know where it is (sshd(8)).
const PROGRAM: &str = "/usr/sbin/sshd";
const START_SECONDS_MAX: u64 = 120;
/// Between looking for a free port and listening on it, another test may take it.
const PORTS_TRIED_MAX: u32 = 10;
/// A host of a lab has all ports free.
const HOST_PORT: u16 = 22;
/// Each session has this variable, so that whatever it leaves behind is found.
const MARK: &str = "DRIFTLESS_TEST_SSHD";

/// A running server; dropping it ends it and whatever its sessions have started.
#[derive(Debug)]
pub struct Sshd {
    folder: tempfile::TempDir,
    address: SocketAddr,
    listener: Child,
    mark: String,
    clients: AtomicU32,
}

impl Sshd {
    /// Starts one on a free port of the loopback interface; needs root.
    pub fn start() -> Sshd {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let free_port = || {
            TcpListener::bind((loopback, 0))
                .and_then(|probe| probe.local_addr())
                .expect("a free port")
        };
        let started =
            (0..PORTS_TRIED_MAX).find_map(|_| Sshd::try_start(free_port(), Command::new(PROGRAM)));
        started.expect("a port that stays free")
    }

    /// Starts one on a host of a lab.
    pub fn start_on(host: &Host) -> Sshd {
        let address = SocketAddr::new(host.address(), HOST_PORT);
        Sshd::try_start(address, host.command(PROGRAM)).expect("a host that has no server yet")
    }

    /// `None` if somebody else has the port.
    fn try_start(address: SocketAddr, mut command: Command) -> Option<Sshd> {
        static SERVERS: AtomicU32 = AtomicU32::new(0);
        prepare_logins();
        let folder = scratch_folder();
        let mark = format!(
            "{}-{}",
            std::process::id(),
            SERVERS.fetch_add(1, Ordering::Relaxed)
        );
        make_keys(folder.path());
        // What a user's own shell does when it starts is none of a test's business.
        fs::create_dir(folder.path().join("home")).expect("a home");
        attrs::set_mode(&folder.path().join("home"), 0o755).expect("open to all");
        write(
            &folder.path().join("sshd_config"),
            &server_settings(folder.path(), address, &mark),
        );
        command
            .arg("-D")
            .arg("-f")
            .arg(folder.path().join("sshd_config"))
            .arg("-E")
            .arg(folder.path().join("log"));
        let listener = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let listener = listener.unwrap_or_else(|e| panic!("cannot start {PROGRAM}: {e}"));
        let mut server = Sshd {
            folder,
            address,
            listener,
            mark,
            clients: AtomicU32::new(0),
        };
        server.listens().then_some(server)
    }

    /// Waits until it says that it listens; false if the port is taken.
    fn listens(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(START_SECONDS_MAX);
        loop {
            let ended = self.listener.try_wait().expect("look at sshd").is_some();
            let log = self.log();
            if log.contains("Server listening on") {
                return true;
            }
            if log.contains("Address already in use") {
                return false;
            }
            assert!(
                !ended && Instant::now() < deadline,
                "sshd does not start: {log}"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Where it listens; on a host of a lab, that is in the network of the lab.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process that listens, which is the parent of all connections.
    pub fn pid(&self) -> u32 {
        self.listener.id()
    }

    /// Everything that it has logged.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.path().join("log")).unwrap_or_default())
            .into_owned()
    }

    /// A client that root runs.
    pub fn client(&self) -> SshClient {
        self.client_via(self.address)
    }

    /// A client that root runs and that connects to another address, such as that of a
    /// [`Relay`](crate::Relay).
    pub fn client_via(&self, address: SocketAddr) -> SshClient {
        self.make_client(address, 0)
    }

    /// A client that the ordinary user runs. Whom it logs in as is another matter.
    pub fn client_of_user(&self, address: SocketAddr) -> SshClient {
        self.make_client(address, ORDINARY_ID)
    }

    /// ssh takes a private key only from its owner's hands, so each client has a copy.
    fn make_client(&self, address: SocketAddr, owner: u32) -> SshClient {
        let number = self.clients.fetch_add(1, Ordering::Relaxed);
        let file = |name: &str| self.folder.path().join(format!("{name}{number}"));
        let (config, key) = (file("ssh_config"), file("key"));
        fs::copy(self.folder.path().join("login"), &key).expect("copy the key");
        attrs::set_owner(&key, owner, owner).expect("give the key away");
        write(&config, &client_settings(self.folder.path(), address, &key));
        SshClient { config }
    }

    /// From now on whoever logs in gets this command, whatever he asks for, and nothing else of ssh
    /// (sshd(8), "AUTHORIZED_KEYS FILE FORMAT").
    pub fn force_command(&self, command: &str) {
        let key = fs::read_to_string(self.folder.path().join("login.pub")).expect("a public key");
        let command = command.replace('"', "\\\"");
        write(
            &self.folder.path().join("authorized_keys"),
            &format!("restrict,command=\"{command}\" {key}"),
        );
    }

    /// The processes of all sessions, those of the server included: what was started by them and
    /// has not ended.
    pub fn sessions(&self) -> Vec<u32> {
        let mut found = processes::descendants(self.pid());
        found.extend(processes::with_variable(&format!("{MARK}={}", self.mark)));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Kills all sessions and what they have started, as if the far machine had lost its power; the
    /// server goes on.
    pub fn kill_sessions(&self) {
        assert!(
            processes::end_all(|| self.sessions()),
            "a session does not end: {:?}",
            self.sessions()
        );
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // Stopped, it begins no new session, and is still the parent of those that it has.
        let _ = kill_process(Pid::from_child(&self.listener), Signal::STOP);
        processes::end_all(|| self.sessions());
        let _ = self.listener.kill();
        let _ = self.listener.wait();
    }
}

/// The settings of a client that knows a server as [`FAR`] and [`FAR_USER`]; they go with the
/// server.
#[derive(Clone, Debug)]
pub struct SshClient {
    config: PathBuf,
}

impl SshClient {
    /// Its settings, for `ssh -F`.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// `ssh -F FILE` in one string, as for an option that takes a command; there is nothing in it
    /// to be quoted.
    pub fn words(&self) -> String {
        format!("ssh -F {}", self.config.display())
    }

    /// `ssh -F FILE`; what follows is a name of the server and a command.
    pub fn command(&self) -> Command {
        self.given_to(Command::new("ssh"))
    }

    /// The same on a host of a lab.
    pub fn command_on(&self, host: &Host) -> Command {
        self.given_to(host.command("ssh"))
    }

    fn given_to(&self, mut ssh: Command) -> Command {
        ssh.arg("-F").arg(&self.config).stdin(Stdio::null());
        ssh
    }
}

/// The server's key, the one key that may log in, and what clients know.
fn make_keys(folder: &Path) {
    for name in ["host", "login"] {
        let mut keygen = Command::new("ssh-keygen");
        must_run(
            keygen
                .args([
                    "-q",
                    "-t",
                    "ed25519",
                    "-N",
                    "",
                    "-C",
                    "driftless-test",
                    "-f",
                ])
                .arg(folder.join(name)),
        );
    }
    let public = |name: &str| {
        fs::read_to_string(folder.join(name).with_extension("pub")).expect("a public key")
    };
    write(&folder.join("authorized_keys"), &public("login"));
    write(
        &folder.join("known_hosts"),
        &format!("{FAR} {}", public("host")),
    );
}

/// See sshd_config(5). Many may begin at once, which the defaults take for an attack. The default
/// key exchange, made against computers that nobody has yet, takes a fifth of a second of each
/// login.
fn server_settings(folder: &Path, address: SocketAddr, mark: &str) -> String {
    let folder = folder.display();
    format!(
        "ListenAddress {address}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized_keys\nPidFile none\n\
         UsePAM no\nStrictModes no\nUseDNS no\nPermitRootLogin yes\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nMaxStartups 1000\nMaxSessions 1000\nLogLevel VERBOSE\nPrintMotd no\n\
         KexAlgorithms curve25519-sha256\n\
         Subsystem sftp internal-sftp\n\
         SetEnv {MARK}={mark} HOME={folder}/home\n"
    )
}

/// See ssh_config(5).
fn client_settings(folder: &Path, address: SocketAddr, key: &Path) -> String {
    let (folder, key, host, port) = (
        folder.display(),
        key.display(),
        address.ip(),
        address.port(),
    );
    format!(
        "Host {FAR} {FAR_USER}\n HostName {host}\n Port {port}\n HostKeyAlias {FAR}\n UserKnownHostsFile {folder}/known_hosts\n \
         GlobalKnownHostsFile /dev/null\n StrictHostKeyChecking yes\n UpdateHostKeys no\n IdentityFile {key}\n \
         IdentitiesOnly yes\n IdentityAgent none\n BatchMode yes\n ConnectTimeout 10\n LogLevel ERROR\n\
         Host {FAR}\n User root\nHost {FAR_USER}\n User {ORDINARY_NAME}\n"
    )
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
}
