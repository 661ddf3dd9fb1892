//! Finds and ends processes that a rig has started but is not the parent of: sessions of a server,
//! whatever runs on a host.
//!
//! A process is found by what the rig has given it (a namespace, an ancestor, a variable), never by
//! its name, so that nothing else on the machine can be meant.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::time::{Duration, Instant};

/// What is killed ends at once, unless it hangs in the kernel.
const END_SECONDS_MAX: u64 = 60;

/// Kills what `find` finds and waits for its end, until it finds nothing more; false if something
/// would not end.
pub(crate) fn end_all(find: impl Fn() -> Vec<u32>) -> bool {
    let deadline = Instant::now() + Duration::from_secs(END_SECONDS_MAX);
    loop {
        let found = find();
        if found.is_empty() {
            return true;
        }
        if Instant::now() > deadline || !found.into_iter().all(end) {
            return false;
        }
    }
}

/// Kills one process and waits until it runs no more, which a process that nobody has waited for
/// does not either.
fn end(pid: u32) -> bool {
    let Some(pid) = Pid::from_raw(pid as i32) else {
        return false;
    };
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
        return true;
    };
    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    let limit = Timespec {
        tv_sec: END_SECONDS_MAX as i64,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
}

/// Every process that has not ended, with its parent.
fn all() -> Vec<(u32, u32)> {
    let entries = fs::read_dir("/proc").expect("list /proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, living_parent(pid)?)))
        .collect()
}

/// The parent of a process; `None` if it is gone or has ended (proc_pid_stat(5): state and parent
/// follow the name).
fn living_parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        None
    } else {
        fields.next()?.parse().ok()
    }
}

/// All processes that descend from `ancestor` without a gap.
pub(crate) fn descendants(ancestor: u32) -> Vec<u32> {
    let all = all();
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(of) = found.get(next).copied() {
        found.extend(
            all.iter()
                .filter(|(_, parent)| *parent == of)
                .map(|(pid, _)| *pid),
        );
        next += 1;
    }
    found.split_off(1)
}

/// All processes that were started with this variable, `NAME=value`.
pub(crate) fn with_variable(variable: &str) -> Vec<u32> {
    let has = |pid: u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|word| word == variable.as_bytes())
    };
    all()
        .into_iter()
        .map(|(pid, _)| pid)
        .filter(|pid| has(*pid))
        .collect()
}

/// All processes in a network namespace, given by device and inode of its file; a process whose
/// first thread is elsewhere, such as the test itself, is none of them.
pub(crate) fn in_network(namespace: (u64, u64)) -> Vec<u32> {
    use std::os::unix::fs::MetadataExt;
    let is_in = |pid: u32| {
        fs::metadata(format!("/proc/{pid}/ns/net"))
            .is_ok_and(|meta| (meta.dev(), meta.ino()) == namespace)
    };
    all()
        .into_iter()
        .map(|(pid, _)| pid)
        .filter(|pid| is_in(*pid))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn what_was_left_behind_is_found_by_its_variable_and_ended() {
        let mark = format!("DRIFTLESS_TEST_MARK={}", std::process::id());
        let (name, value) = mark.split_once('=').expect("a variable");
        let shell = Command::new("sh")
            .args(["-c", "sleep 600 & sleep 600 &"])
            .env(name, value)
            .stdin(Stdio::null())
            .status();
        assert!(shell.expect("sh").success());
        assert_eq!(
            with_variable(&mark).len(),
            2,
            "the shell has ended, its children have not"
        );
        assert!(end_all(|| with_variable(&mark)));
        assert!(with_variable(&mark).is_empty());
    }

    #[test]
    fn children_of_children_are_descendants() {
        let mut shell = Command::new("sh")
            .args(["-c", "(sleep 600; true) & echo; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh");
        let mut line = [0];
        std::io::Read::read_exact(shell.stdout.as_mut().expect("piped"), &mut line)
            .expect("a line");
        let below = || descendants(shell.id());
        let is_complete = || below().len() >= 2;
        crate::wait_until("a shell in a shell has its sleep", is_complete);
        assert!(end_all(below));
        shell.wait().expect("its children are gone");
    }
}
