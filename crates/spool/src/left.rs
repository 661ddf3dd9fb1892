//! Files that programs have open and say no more of, since they may have forbidden themselves to
//! (seccomp(2)). Each is told when its process has ended, and now and then before.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Processes that are waited for at a time: each takes a descriptor.
const PROCESSES_MAX: usize = 200;
/// Files that one of them leaves.
const FILES_MAX: usize = 100;
/// How often a file is told whose process goes on: it may have been closed.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// What processes have left.
#[derive(Debug, Default)]
pub(crate) struct Left(HashMap<Pid, Process>);

#[derive(Debug)]
struct Process {
    handle: OwnedFd,
    /// Messages that say of a file each that it was written.
    messages: BTreeSet<Vec<u8>>,
    told: Duration,
}

impl Process {
    /// Whether it has ended (pidfd_open(2)).
    fn has_ended(&self) -> bool {
        let mut asked = [PollFd::new(&self.handle, PollFlags::IN)];
        let at_once = Timespec::default();
        poll(&mut asked, Some(&at_once)).is_ok_and(|count| count > 0)
    }
}

impl Left {
    /// A process has left a file, of which a message says that it was written. False if nobody can
    /// wait for it.
    pub(crate) fn keep(&mut self, process: Pid, message: &[u8], now: Duration) -> bool {
        // Its number may be that of an earlier one, whose files are told all the same.
        let known = self.0.get_mut(&process).filter(|known| !known.has_ended());
        if let Some(known) = known {
            let is_kept = known.messages.contains(message);
            if !is_kept && known.messages.len() < FILES_MAX {
                return known.messages.insert(message.to_vec());
            }
            return is_kept;
        }
        if self.0.len() >= PROCESSES_MAX || self.0.contains_key(&process) {
            return false;
        }
        let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) else {
            return false;
        };
        let new = Process {
            handle,
            messages: BTreeSet::from([message.to_vec()]),
            told: now,
        };
        self.0.insert(process, new);
        true
    }

    /// What is to be told now: of processes that have ended, and of those that go on for long.
    pub(crate) fn due(&mut self, now: Duration) -> Vec<Vec<u8>> {
        self.older(now, TOLD_EVERY)
    }

    /// Returns everything that is left; processes that go on are still waited for.
    pub(crate) fn all(&mut self, now: Duration) -> Vec<Vec<u8>> {
        self.older(now, Duration::ZERO)
    }

    /// Returns what was left by processes that have ended, and what was not told for so long.
    fn older(&mut self, now: Duration, age: Duration) -> Vec<Vec<u8>> {
        let mut due = Vec::new();
        self.0.retain(|_, process| {
            let has_ended = process.has_ended();
            if has_ended || now >= process.told + age {
                process.told = now;
                due.extend(process.messages.iter().cloned());
            }
            !has_ended
        });
        due
    }

    /// All that is left, of which nobody hears any more.
    pub(crate) fn take_all(&mut self) -> Vec<Vec<u8>> {
        let all = std::mem::take(&mut self.0).into_values();
        all.flat_map(|process| process.messages).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process that ends when it is let go.
    fn sleeper() -> (Child, Pid) {
        let mut sleeper = Command::new("cat");
        let sleeper = sleeper.stdin(Stdio::piped()).stdout(Stdio::null());
        let child = sleeper.spawn().unwrap();
        let process = Pid::from_raw(child.id().cast_signed()).unwrap();
        (child, process)
    }

    #[test]
    fn files_are_told_now_and_then_and_when_their_process_has_ended() {
        let at = Duration::from_secs;
        let (mut left, (mut child, process)) = (Left::default(), sleeper());
        for message in ["one", "two", "one"] {
            assert!(left.keep(process, message.as_bytes(), at(0)));
        }
        assert!(left.due(at(59)).is_empty());
        assert_eq!(left.due(at(60)), [b"one", b"two"]);
        assert!(left.due(at(119)).is_empty());
        assert_eq!(left.all(at(119)), [b"one", b"two"]);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!left.keep(process, b"three", at(119)), "it has ended");
        assert_eq!(left.due(at(119)), [b"one", b"two"]);
        assert!(left.due(at(500)).is_empty());
        assert!(!left.keep(process, b"four", at(500)), "it is gone");
    }

    #[test]
    fn what_is_left_has_bounds_and_an_end() {
        let (mut left, (mut child, process)) = (Left::default(), sleeper());
        let keep = |left: &mut Left, number: usize| {
            left.keep(process, number.to_string().as_bytes(), Duration::ZERO)
        };
        assert!((0..FILES_MAX).all(|number| keep(&mut left, number)));
        assert!(!keep(&mut left, FILES_MAX) && keep(&mut left, 0));
        assert_eq!(left.take_all().len(), FILES_MAX);
        assert!(left.take_all().is_empty());
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
