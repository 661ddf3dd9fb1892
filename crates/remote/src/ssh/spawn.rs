//! The command that carries a line: how it is started, and what OpenSSH is told besides what the
//! user has configured.

use crate::ssh::reach::{Reach, ReachError};
use rustix::fs::Access;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Longest time until a wait for the configuration of ssh sees that the run is to end.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// A shell that becomes its arguments, deaf to what is said to all in the foreground, by a
/// terminal, by who asks where the run stands (SIGUSR1), or by a batch system that warns all
/// processes of a job (SIGUSR2, SIGXCPU): the run hears that, and needs its lines to come to a clean
/// end. What asks for a password listens for itself while it does (readpassphrase(3)).
const DEAF: [&str; 4] = [
    "/bin/sh",
    "-c",
    "trap '' INT HUP USR1 USR2 XCPU && exec \"$@\"",
    "driftless",
];

/// Starts a command line on the host, with pipes to all its ends.
pub fn spawn_there(name: &str, reach: &Reach, command_line: &str) -> Result<Child, ReachError> {
    let program = reach.ssh.first().expect("a command is never empty");
    let failed = |cause| ReachError::NoSsh {
        command: program.clone(),
        cause,
    };
    check_program(program).map_err(failed)?;
    let mut command = Command::new(DEAF[0]);
    command.args(&DEAF[1..]).args(&reach.ssh);
    command.arg("--").arg(name).arg(command_line);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().map_err(failed)
}

/// Whether there is a program that can be started (execvp(3)). The shell would only say that it has
/// none.
///
/// # Errors
/// There is none, or it may not be started.
pub fn check_program(program: &str) -> io::Result<()> {
    let check = |path: &Path| rustix::fs::access(path, Access::EXEC_OK).map_err(io::Error::from);
    if program.contains('/') {
        return check(Path::new(program));
    }
    let paths = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let is_there = std::env::split_paths(&paths).any(|folder| check(&folder.join(program)).is_ok());
    if is_there {
        Ok(())
    } else {
        Err(ErrorKind::NotFound.into())
    }
}

/// How a host is reached, with what OpenSSH is told besides. It is asked for its configuration
/// once, not for each line.
pub fn tuned(name: &str, reach: &Reach) -> Reach {
    let mut reach = reach.clone();
    if is_openssh(&reach) {
        // A host that is cut off is noticed within seconds (ssh_config(5)). A connection that is
        // there already may be used, but others must not come to depend on this one.
        let fixed = [
            "ServerAliveInterval=3",
            "ServerAliveCountMax=3",
            "ControlMaster=no",
        ]
        .map(String::from);
        let settings = settings(&reach, &["--", name]);
        let cipher = fast_cipher(&settings, || {
            self::settings(&reach, &["-F", "none", "--", name])
        });
        let limit = (setting(&settings, "connecttimeout") == Some("none"))
            .then(|| format!("ConnectTimeout={}", connect_seconds(reach.connecting)));
        let options = fixed.into_iter().chain(cipher).chain(limit);
        reach
            .ssh
            .extend(options.flat_map(|option| ["-o".into(), option]));
        // A terminal would change the bytes of the line, whatever is configured (ssh(1)).
        reach.ssh.push("-T".into());
    }
    reach
}

/// Returns how long ssh has to connect and to agree on keys: less than the limit for a greeting, so
/// that the words of ssh are heard.
fn connect_seconds(greeting: Duration) -> u64 {
    (greeting.as_secs() * 3 / 4).max(1)
}

/// Returns the settings that ssh has for a host (ssh(1), `-G`). Returns nothing if ssh prints none,
/// or takes longer than a connection may: its configuration can run programs (`Match exec`).
fn settings(reach: &Reach, more: &[&str]) -> String {
    let (program, arguments) = reach.ssh.split_first().expect("a command is never empty");
    let mut command = Command::new(program);
    command.args(arguments).arg("-G").args(more);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    output_within(command, reach).unwrap_or_default()
}

/// Returns the output of a program that ends before the limit for a connection, and before the run
/// is to end.
fn output_within(mut command: Command, reach: &Reach) -> Option<String> {
    let begin = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
    let mut stdout = child.stdout.take().expect("it is piped");
    let (sender, receiver) = mpsc::channel();
    // A program that the child started may hold the pipe open when the child was killed.
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = stdout.read_to_end(&mut bytes);
        let _after_the_limit = sender.send(read.map(|_| bytes));
    });
    let read = loop {
        match receiver.recv_timeout(STOP_INTERVAL) {
            Ok(read) => break Some(read),
            Err(_) if reach.is_stopped() || begin.elapsed() > reach.connecting => break None,
            Err(_) => {}
        }
    };
    if read.is_none() {
        let _unless_it_ended = child.kill();
    }
    let _status = child.wait();
    let bytes = read?.ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn setting<'s>(settings: &'s str, name: &str) -> Option<&'s str> {
    settings
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

/// How a host is reached where nobody may be there to be asked for a password. The connection is
/// one of its own: what it would share with others may be what was lost. Of an option that is given
/// twice, the first counts.
pub fn silent(reach: &Reach) -> Reach {
    let mut silent = reach.clone();
    if is_openssh(reach) {
        let options = ["-o", "BatchMode=yes", "-o", "ControlPath=none"].map(String::from);
        silent.ssh.splice(1..1, options);
    }
    silent
}

/// Whether the command that connects takes OpenSSH's options.
fn is_openssh(reach: &Reach) -> bool {
    reach
        .ssh
        .first()
        .is_some_and(|program| Path::new(program).file_name() == Some(OsStr::new("ssh")))
}

/// The default cipher of OpenSSH (ChaCha20-Poly1305) takes three times as long as AES in Galois
/// counter mode where the processor has instructions for that: it is put first, unless the user's
/// configuration says anything about ciphers.
fn fast_cipher(settings: &str, without_files: impl FnOnce() -> String) -> Option<String> {
    let ciphers = setting(settings, "ciphers")?;
    let is_default = has_aes() && setting(&without_files(), "ciphers") == Some(ciphers);
    is_default.then(|| "Ciphers=^aes128-gcm@openssh.com,aes256-gcm@openssh.com".into())
}

fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}
