//! Starts a site's own command for alarms: mail, chat, a ticket.
//!
//! A thread of its own, so that the mirror never waits for it. The first alarm is told at once, what
//! comes after it is collected; one command runs at a time, for a limited time. What it gets, it gets
//! on standard input as a file that is there as a whole: a command that does not read it holds up
//! nothing. None of our files is inherited, and no signal is blocked; the umask, which the mirror has
//! given up, is the one that is handed in.

use super::Alarm;
use crate::worded::counted;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use driftless_model::cause;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

/// Alarms that wait; what is more is counted only.
const ALARMS_MAX: usize = 1000;
/// How often it is looked whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Sets the umask and becomes the command, whose words no shell reads.
const BECOME: &str = "umask \"$1\"; shift; exec \"$@\"";
/// What is for us alone (sd_notify(3)).
const NOT_INHERITED: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// How often a command is started, and for how long it runs.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// From the end of one to the beginning of the next at least.
    pub pause: Duration,
    /// A command that takes longer is ended.
    pub limit: Duration,
    /// From a command that could not be started to the next try: no descriptor was left, say.
    pub again: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            pause: Duration::from_secs(60),
            limit: Duration::from_secs(60),
            again: Duration::from_secs(2),
        }
    }
}

/// Where alarms are told.
#[derive(Debug, Clone)]
pub struct Caller {
    alarms: Sender<Alarm>,
    left_out: Arc<AtomicU64>,
}

impl Caller {
    /// Has a command be started for alarms, with this umask.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(words: Vec<String>, umask: u32, pace: Pace) -> io::Result<Caller> {
        let (alarms, told) = bounded(ALARMS_MAX);
        let left_out = Arc::new(AtomicU64::new(0));
        let serving = Serving {
            words,
            umask,
            pace,
            left_out: left_out.clone(),
            failed: None,
        };
        Builder::new()
            .name("on_problem".into())
            .spawn(move || serving.serve(&told))?;
        Ok(Caller { alarms, left_out })
    }

    /// Tells of an alarm, and waits for nothing.
    pub fn tell(&self, alarm: Alarm) {
        if let Err(TrySendError::Full(_)) = self.alarms.try_send(alarm) {
            self.left_out.fetch_add(1, Relaxed);
        }
    }
}

struct Serving {
    words: Vec<String>,
    umask: u32,
    pace: Pace,
    left_out: Arc<AtomicU64>,
    /// Why the last command failed; told once.
    failed: Option<String>,
}

impl Serving {
    fn serve(mut self, told: &Receiver<Alarm>) {
        let mut next = Instant::now();
        while let Ok(first) = told.recv() {
            thread::sleep(next.saturating_duration_since(Instant::now()));
            let mut alarms: Vec<Alarm> = [first].into_iter().chain(told.try_iter()).collect();
            while !self.call(&alarms) {
                thread::sleep(self.pace.again);
                let free = ALARMS_MAX.saturating_sub(alarms.len());
                alarms.extend(told.try_iter().take(free));
            }
            next = Instant::now() + self.pace.pause;
        }
    }

    /// Tells of alarms; false if the command could not be started.
    fn call(&mut self, alarms: &[Alarm]) -> bool {
        let left_out = self.left_out.swap(0, Relaxed);
        let started = self.start(alarms, left_out);
        let was_started = started.is_ok();
        let failed = match started {
            Ok(child) => self.wait(child),
            Err(error) => {
                self.left_out.fetch_add(left_out, Relaxed);
                Some(format!(
                    "cannot start: {}; the mirror retries",
                    cause(&error)
                ))
            }
        };
        if let Some(why) = failed.as_ref().filter(|_| self.failed != failed) {
            tracing::error!("on_problem: {}: {why}", self.words[0]);
        }
        self.failed = failed;
        was_started
    }

    fn start(&self, alarms: &[Alarm], left_out: u64) -> io::Result<Child> {
        let first = &alarms[0];
        let mut command = Command::new("/bin/sh");
        command.args(["-c", BECOME, "sh", &format!("{:o}", self.umask)]);
        command.args(&self.words);
        NOT_INHERITED.iter().for_each(|name| {
            command.env_remove(name);
        });
        command
            .env("DRIFTLESS_JOB", &first.job)
            .env("DRIFTLESS_REPLICA", &first.replica)
            .env("DRIFTLESS_WHAT", first.what.word())
            .env("DRIFTLESS_WHY", first.why.replace('\0', " "))
            .env(
                "DRIFTLESS_COUNT",
                (alarms.len() as u64 + left_out).to_string(),
            )
            .stdin(lines(alarms)?)
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
    }

    /// Why it failed, if it did.
    fn wait(&self, mut child: Child) -> Option<String> {
        let began = Instant::now();
        loop {
            match child.try_wait() {
                Ok(Some(end)) if end.success() => return None,
                Ok(Some(end)) => return Some(format!("it ended with {end}")),
                Ok(None) if began.elapsed() < self.pace.limit => thread::sleep(LOOK_EVERY),
                Ok(None) => {
                    let _it_has_ended = kill_process_group(Pid::from_child(&child), Signal::KILL);
                    let _its_end_is_known = child.wait();
                    let limit = counted(self.pace.limit.as_secs(), "second", "seconds");
                    return Some(format!("it was ended after {limit}"));
                }
                Err(error) => return Some(error.to_string()),
            }
        }
    }
}

/// The alarms, one JSON object a line, as a file in memory.
fn lines(alarms: &[Alarm]) -> io::Result<File> {
    let mut file = File::from(memfd_create("alarms", MemfdFlags::CLOEXEC)?);
    for alarm in alarms {
        writeln!(file, "{}", alarm.json())?;
    }
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "a folder of the test, no part of a replicated tree"
)]
mod tests {
    use super::*;
    use crate::alarm::What;

    fn alarm(why: &str) -> Alarm {
        Alarm {
            what: What::Away,
            job: "projects".into(),
            replica: "far:/backup".into(),
            path: None,
            why: why.into(),
            at: Duration::ZERO,
        }
    }

    /// Limit of a wait for an event that must come, on a loaded machine.
    const EVENT_MAX: Duration = Duration::from_secs(300);

    /// Tells whether a process runs; one that its parent has not waited for does not
    /// (proc_pid_stat(5)).
    fn runs(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn the_first_is_told_at_once_and_others_together_after_a_pause() {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        let script = format!("echo $DRIFTLESS_COUNT >> {0}; cat >> {0}", told.display());
        let words = ["sh", "-c", &script].map(str::to_owned).to_vec();
        let pace = Pace {
            pause: Duration::from_secs(3),
            limit: EVENT_MAX,
            again: Duration::ZERO,
        };
        let caller = Caller::start(words, 0o022, pace).unwrap();
        let said = || std::fs::read_to_string(&told).unwrap_or_default();
        let wait_for = |lines: usize| {
            let began = Instant::now();
            while said().lines().count() < lines {
                assert!(began.elapsed() < EVENT_MAX, "{}", said());
                thread::sleep(Duration::from_millis(10));
            }
        };
        caller.tell(alarm("one"));
        wait_for(2);
        caller.tell(alarm("two"));
        caller.tell(alarm("three"));
        wait_for(5);
        let (first, second) = (said(), said());
        let counts = first.lines().filter(|line| line.len() == 1);
        assert_eq!(counts.collect::<Vec<_>>(), ["1", "2"]);
        assert!(second.contains("\"why\":\"three\""), "{second}");
    }

    #[test]
    fn a_command_that_does_not_end_is_ended_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let child = folder.path().join("child");
        let script = format!("sleep 600 & echo $! > {}; sleep 600", child.display());
        let serving = Serving {
            words: ["sh", "-c", &script].map(str::to_owned).to_vec(),
            umask: 0o022,
            pace: Pace {
                pause: Duration::ZERO,
                limit: Duration::from_secs(2),
                again: Duration::ZERO,
            },
            left_out: Arc::default(),
            failed: None,
        };
        let began = Instant::now();
        let call = serving.start(&[alarm("one")], 0).unwrap();
        let failed = serving.wait(call).unwrap();
        assert!(failed.contains("was ended"), "{failed}");
        let child = std::fs::read_to_string(child).unwrap();
        while runs(child.trim()) {
            assert!(began.elapsed() < EVENT_MAX, "its child lives on");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
