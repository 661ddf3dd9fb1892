//! Ending the agent that an earlier stream of the same run has started.
//!
//! When a network falls silent, the server on the other host may take hours to notice, and the
//! agent that it has started keeps the replica's lock all the while. The run that was cut off is
//! known by a token that its agents are started with, so the next one finds it in the list of
//! processes (proc(5)) and ends it, with what it holds. A user can end nobody else's.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::fs::Timespec;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, getpid, pidfd_open, pidfd_send_signal};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The arguments that a token follows.
const BEFORE_TOKEN: [&str; 2] = ["--run", "--again"];
/// What an agent is started with.
const AGENT: &str = "agent";
/// Where they stand if a key has a command of its own (ssh(1), "ENVIRONMENT").
const WANTED: &[u8] = b"SSH_ORIGINAL_COMMAND=";
/// How long an agent may take to be gone; one that waits for a disk may take longer, and the lock
/// says so then.
const ENDING_SECONDS_MAX: i64 = 10;

/// Ends the agents of this user that were started with `token`, but this one, and waits until they
/// are gone.
#[allow(
    clippy::disallowed_methods,
    reason = "the kernel's list of processes, no part of a replicated tree"
)]
pub fn end_earlier(token: &str) {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    for pid in numbers
        .filter_map(Pid::from_raw)
        .filter(|pid| *pid != getpid())
    {
        // Opened before it is looked at, so that it cannot be another by the time it is ended.
        if let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
            && is_agent_of(pid, token)
        {
            let _it_may_be_gone = pidfd_send_signal(&process, Signal::KILL);
            wait(&process);
        }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the kernel's list of processes, no part of a replicated tree"
)]
fn is_agent_of(pid: Pid, token: &str) -> bool {
    let folder = format!("/proc/{}", pid.as_raw_nonzero());
    let is_own = fs::metadata(&folder).is_ok_and(|meta| meta.uid() == geteuid().as_raw());
    let read = |file: &str| {
        if is_own {
            fs::read(format!("{folder}/{file}")).unwrap_or_default()
        } else {
            Vec::new()
        }
    };
    let (arguments, environment) = (read("cmdline"), read("environ"));
    let words: Vec<_> = arguments
        .split(|byte| *byte == 0)
        .map(String::from_utf8_lossy)
        .collect();
    let is_agent = words.iter().any(|word| *word == AGENT);
    let wanted = environment
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(WANTED))
        .filter(|_| is_agent);
    let wanted = wanted
        .and_then(|wanted| shell_words::split(&String::from_utf8_lossy(wanted)).ok())
        .unwrap_or_default();
    follows(&words, token) || follows(&wanted, token)
}

/// Whether the token is among the words, as one that says whose an agent is.
fn follows(words: &[impl AsRef<str>], token: &str) -> bool {
    words
        .windows(2)
        .any(|pair| BEFORE_TOKEN.contains(&pair[0].as_ref()) && pair[1].as_ref() == token)
}

fn wait(process: &OwnedFd) {
    let limit = Timespec {
        tv_sec: ENDING_SECONDS_MAX,
        tv_nsec: 0,
    };
    let _it_is_gone_or_takes_long = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit));
}
