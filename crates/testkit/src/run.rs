//! Runs the real binary and reads what it says.
//!
//! Every run has a time limit and a process group of its own, so a test that hangs or panics leaves
//! nothing behind.

use crate::wait::EVENT_MAX;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SHOWN_BYTES_MAX: usize = 3000;
const SHOWN_PROBLEMS_MAX: usize = 30;

/// A run to be: the binary, its arguments, as whom, for how long.
#[derive(Clone, Debug)]
pub struct Driftless {
    bin: PathBuf,
    wrapper: Vec<OsString>,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    user: Option<(u32, u32)>,
    limit: Duration,
}

impl Driftless {
    /// A run of the binary at `bin` without arguments, as the current user, for at most
    /// [`EVENT_MAX`].
    pub fn new(bin: impl AsRef<Path>) -> Driftless {
        Driftless {
            bin: bin.as_ref().to_owned(),
            wrapper: Vec::new(),
            arguments: Vec::new(),
            variables: Vec::new(),
            user: None,
            limit: EVENT_MAX,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Driftless {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Driftless {
        self.arguments.extend(
            arguments
                .into_iter()
                .map(|argument| argument.as_ref().to_owned()),
        );
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Driftless {
        self.variables
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Runs the binary through another program, such as `strace` or `prlimit`, whose arguments come
    /// first.
    #[must_use]
    pub fn through<A: AsRef<OsStr>>(mut self, wrapper: impl IntoIterator<Item = A>) -> Driftless {
        self.wrapper.extend(
            wrapper
                .into_iter()
                .map(|argument| argument.as_ref().to_owned()),
        );
        self
    }

    /// Runs as another user, without supplementary groups.
    #[must_use]
    pub fn as_user(mut self, uid: u32, gid: u32) -> Driftless {
        self.user = Some((uid, gid));
        self
    }

    /// The longest the run may take; a longer one is killed and the test panics.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Driftless {
        self.limit = limit;
        self
    }

    /// Starts it and waits for its end.
    pub fn run(self) -> Outcome {
        self.spawn().wait()
    }

    /// Starts it.
    pub fn spawn(self) -> Running {
        let mut command = self.command();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        Running {
            shown: format!("{command:?}"),
            stdout: Some(collect(child.stdout.take().expect("piped"))),
            stderr: Some(collect(child.stderr.take().expect("piped"))),
            child,
            started: Instant::now(),
            limit: self.limit,
        }
    }

    fn command(&self) -> Command {
        let mut words = self
            .wrapper
            .iter()
            .map(OsString::as_os_str)
            .chain([self.bin.as_os_str()]);
        let mut command = Command::new(words.next().expect("at least the binary"));
        command.args(words).args(&self.arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

/// A run that has started; dropping it kills it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    shown: String,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    started: Instant,
    limit: Duration,
}

impl Running {
    /// The process id of the binary, or of the program it runs through.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal to the run and all it started.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.group(), signal);
    }

    /// Waits for its end up to `time`; true if it has ended.
    pub fn ends_within(&self, time: Duration) -> bool {
        let Ok(pidfd) = pidfd_open(self.group(), PidfdFlags::empty()) else {
            return true;
        };
        let deadline = Instant::now() + time;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => (),
                ready => return ready.expect("poll a pidfd") > 0,
            }
        }
    }

    /// Waits for its end; panics, with the run killed, when it takes longer than its limit.
    pub fn wait(mut self) -> Outcome {
        let left = self.limit.saturating_sub(self.started.elapsed());
        let in_time = self.ends_within(left);
        if !in_time {
            self.signal(Signal::KILL);
        }
        let status = self.child.wait().expect("wait for the run");
        let text =
            |thread: Option<JoinHandle<Vec<u8>>>| thread.expect("once").join().expect("reader");
        let outcome = Outcome {
            shown: std::mem::take(&mut self.shown),
            status,
            stdout: text(self.stdout.take()),
            stderr: text(self.stderr.take()),
            elapsed: self.started.elapsed(),
        };
        assert!(
            in_time,
            "took longer than {:?}\n{}",
            self.limit,
            outcome.describe()
        );
        outcome
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.stdout.is_some() {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    shown: String,
    status: ExitStatus,
    /// Everything it wrote to its standard output.
    pub stdout: Vec<u8>,
    /// Everything it wrote to its standard error.
    pub stderr: Vec<u8>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Outcome {
    /// The exit code, or 128 plus the number of the signal that ended it.
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Panics with all output unless the exit code is this one.
    #[must_use = "or write `let _ =`: the outcome has more to check"]
    pub fn expect(self, code: i32) -> Outcome {
        assert_eq!(self.code(), code, "exit code\n{}", self.describe());
        self
    }

    /// Its standard error as text.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Its standard output as text.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Command, code, problems and the end of the output, for the message of a failed test.
    pub fn describe(&self) -> String {
        let show = |bytes: &[u8]| {
            let cut = bytes.len().saturating_sub(SHOWN_BYTES_MAX);
            String::from_utf8_lossy(&bytes[cut..]).into_owned()
        };
        let (out, err, text) = (show(&self.stdout), show(&self.stderr), self.stdout_text());
        let is_problem = |line: &&str| line.contains("\"event\":\"problem\"");
        let problems: Vec<&str> = text
            .lines()
            .filter(is_problem)
            .take(SHOWN_PROBLEMS_MAX)
            .collect();
        let problems = problems.join("\n");
        format!(
            "{}\n-> {}\n--- problems\n{problems}\n--- stdout\n{out}\n--- stderr\n{err}",
            self.shown, self.status
        )
    }

    /// Every line of `--json` output; panics on a line that is not an object.
    pub fn events(&self) -> Vec<Value> {
        let lines = self
            .stdout
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        let parse = |line: &[u8]| {
            serde_json::from_slice::<Value>(line)
                .ok()
                .filter(Value::is_object)
        };
        lines
            .map(|line| {
                parse(line).unwrap_or_else(|| {
                    panic!(
                        "not JSON: {}\n{}",
                        String::from_utf8_lossy(line),
                        self.describe()
                    )
                })
            })
            .collect()
    }

    /// The events of one name.
    pub fn events_named(&self, name: &str) -> Vec<Value> {
        self.events()
            .into_iter()
            .filter(|event| event["event"] == name)
            .collect()
    }

    /// The one summary event; panics if there is not exactly one.
    pub fn summary(&self) -> Value {
        let mut found = self.events_named("summary");
        assert_eq!(found.len(), 1, "one summary\n{}", self.describe());
        found.remove(0)
    }

    /// A number of the summary; panics if it is not there.
    pub fn count(&self, field: &str) -> u64 {
        let summary = self.summary();
        summary[field]
            .as_u64()
            .unwrap_or_else(|| panic!("no number {field} in {summary}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_code_come_back() {
        let outcome = Driftless::new("/bin/sh")
            .args(["-c", "echo '{\"event\":\"summary\",\"seen\":3}'; exit 5"])
            .run();
        assert_eq!(outcome.clone().expect(5).count("seen"), 3);
    }

    #[test]
    fn another_user_is_really_another_user() {
        let outcome = Driftless::new("/usr/bin/id").as_user(65534, 65534).run();
        assert!(
            outcome.stdout_text().starts_with("uid=65534"),
            "{}",
            outcome.describe()
        );
        assert!(
            !outcome.stdout_text().contains("(root)"),
            "{}",
            outcome.describe()
        );
    }

    #[test]
    #[should_panic(expected = "took longer")]
    fn a_run_over_its_limit_is_killed() {
        let _ = Driftless::new("/bin/sh")
            .args(["-c", "sleep 600 | cat"])
            .limit(Duration::from_millis(50))
            .run();
    }

    #[test]
    fn a_signal_shows_as_128_and_its_number() {
        let running = Driftless::new("/bin/sleep").arg("600").spawn();
        running.signal(Signal::KILL);
        assert_eq!(running.wait().code(), 137);
    }
}
