//! The limit to the silence of another host before its greeting.
//!
//! A command that connects may hang without a word: a server that accepts and says nothing, a
//! shell that waits, a wrapper that sleeps. Only the user can take long for a reason: while ssh
//! asks for a password or about a host key, the time does not count, within a bound of its own.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// Longest time that users may take for passwords and host keys. OpenSSH's server gives two minutes
/// for one login (sshd_config(5), `LoginGraceTime`).
const ASKING_MAX: Duration = Duration::from_secs(240);
/// Pause between two looks at the processes of the command.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Longest step that counts: this process may have been stopped meanwhile.
const STEP_MAX: Duration = Duration::from_secs(1);
/// Path under which ssh opens the terminal to ask (readpassphrase(3)).
const TERMINAL: &str = "/dev/tty";

/// Time that another host has been silent, and the most that it may be.
#[derive(Debug)]
pub struct SilenceLimit {
    command: u32,
    max: Duration,
    silent: Duration,
    asking: Duration,
    looked: Instant,
}

impl SilenceLimit {
    /// Starts the time of a command that connects.
    pub fn new(command: &Child, max: Duration) -> SilenceLimit {
        SilenceLimit {
            command: command.id(),
            max,
            silent: Duration::ZERO,
            asking: Duration::ZERO,
            looked: Instant::now(),
        }
    }

    /// Starts the time anew: the other side has taken something.
    pub fn restart(&mut self) {
        self.silent = Duration::ZERO;
    }

    /// Returns whether the host was silent for too long. Call it several times a second.
    pub fn is_over(&mut self) -> bool {
        let step = self.looked.elapsed();
        if step >= LOOK_INTERVAL {
            self.looked = Instant::now();
            let counted = if is_asking(self.command) {
                &mut self.asking
            } else {
                &mut self.silent
            };
            *counted += step.min(STEP_MAX);
        }
        self.silent >= self.max || self.asking >= ASKING_MAX
    }

    /// Returns the words for a silence that is over the limit: what did not come, within which
    /// time, and what to do.
    pub fn words(&self, awaited: &str) -> String {
        let seconds = (self.silent + self.asking).as_secs();
        format!(
            "no {awaited} within {seconds} s; check that this host answers to a command over the same connection"
        )
    }
}

/// Returns whether the process, or a process that it has started, asks the user something now: it
/// has the terminal open, or is a program for passwords.
fn is_asking(command: u32) -> bool {
    let mut all = vec![command];
    while let Some(pid) = all.pop() {
        if has_terminal(pid) || is_askpass(pid) {
            return true;
        }
        all.extend(children(pid));
    }
    false
}

#[allow(
    clippy::disallowed_methods,
    reason = "a folder of proc(5), no part of a replicated tree"
)]
fn has_terminal(pid: u32) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd"));
    open.into_iter()
        .flatten()
        .flatten()
        .any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == Path::new(TERMINAL)))
}

/// Returns whether the process runs the program that ssh starts in the place of a terminal
/// (ssh(1), `SSH_ASKPASS`).
#[allow(
    clippy::disallowed_methods,
    reason = "a file of proc(5), no part of a replicated tree"
)]
fn is_askpass(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let own = std::env::var_os("SSH_ASKPASS");
    // A script comes behind its interpreter.
    line.split(|byte| *byte == 0).take(2).any(|word| {
        let word = OsStr::from_bytes(word);
        let name = Path::new(word).file_name().unwrap_or_default();
        own.as_deref() == Some(word) || name.as_bytes().ends_with(b"askpass")
    })
}

#[allow(
    clippy::disallowed_methods,
    reason = "a file of proc(5), no part of a replicated tree"
)]
fn children(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}
