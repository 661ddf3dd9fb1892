//! Commands of a batch system: started, limited in time and output.

use crate::{BatchError, BatchResult};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::string::FromUtf8Error;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of output that a command may print. A hundred thousand jobs are a tenth of it.
const OUTPUT_BYTES_MAX: u64 = 64 << 20;
/// Begins of variables by which a user chooses what commands print (squeue(1), sinfo(1)). A gateway
/// that saw few jobs would take the others for ended.
const CHOOSING: [&str; 3] = ["SQUEUE_", "SINFO_", "SLURM_CLUSTERS"];
/// Pause between two looks at a command that runs.
const TICK: Duration = Duration::from_millis(5);

/// Settings of the commands of a batch system.
#[derive(Debug, Clone)]
pub struct CommandSettings {
    /// Folder of the commands. The PATH is searched if `None`.
    pub folder: Option<PathBuf>,
    /// Variables that each command gets beside the environment of this process.
    pub env: Vec<(OsString, OsString)>,
    /// Time that a command may take.
    pub time_max: Duration,
}

impl Default for CommandSettings {
    fn default() -> Self {
        CommandSettings {
            folder: None,
            env: Vec::new(),
            time_max: Duration::from_secs(60),
        }
    }
}

/// Output of a command that ended.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    /// The command as a user would type it, for messages.
    pub command: String,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl CommandSettings {
    /// Returns the path of a command.
    pub(crate) fn program(&self, name: &str) -> OsString {
        match &self.folder {
            Some(folder) => folder.join(name).into_os_string(),
            None => name.into(),
        }
    }

    /// Runs a command to its end, in the language of the C locale.
    ///
    /// # Errors
    /// [`BatchError::Program`] if it cannot be started; [`BatchError::Unavailable`] if it takes too
    /// long or a signal ends it; [`BatchError::Output`] if it prints too much or no UTF-8. Exit codes
    /// are the caller's.
    pub(crate) fn run<S: AsRef<OsStr>>(
        &self,
        name: &str,
        args: &[S],
    ) -> BatchResult<CommandOutput> {
        self.run_with(name, args, String::from_utf8)
    }

    /// Runs a command whose output has texts of users, such as arguments of jobs. Replaces invalid
    /// UTF-8 and control characters, so that no user makes the output unreadable.
    ///
    /// # Errors
    /// As [`run`](CommandSettings::run).
    pub(crate) fn run_lossy<S: AsRef<OsStr>>(
        &self,
        name: &str,
        args: &[S],
    ) -> BatchResult<CommandOutput> {
        self.run_with(name, args, |bytes| Ok(printable(&bytes)))
    }

    /// Runs a command whose output has texts of users between control characters of the caller. Replaces
    /// invalid UTF-8.
    ///
    /// # Errors
    /// As [`run`](CommandSettings::run).
    pub(crate) fn run_replacing<S: AsRef<OsStr>>(
        &self,
        name: &str,
        args: &[S],
    ) -> BatchResult<CommandOutput> {
        let replaced = |bytes: Vec<u8>| Ok(String::from_utf8_lossy(&bytes).into_owned());
        self.run_with(name, args, replaced)
    }

    fn run_with<S: AsRef<OsStr>>(
        &self,
        name: &str,
        args: &[S],
        decode: impl FnOnce(Vec<u8>) -> std::result::Result<String, FromUtf8Error>,
    ) -> BatchResult<CommandOutput> {
        let shown = shown_command(name, args);
        let mut command = Command::new(self.program(name));
        for (variable, _) in std::env::vars_os().filter(|(variable, _)| chooses(variable)) {
            command.env_remove(variable);
        }
        command
            .args(args)
            .env("LC_ALL", "C")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().map_err(|cause| BatchError::Program {
            command: shown.clone(),
            cause,
        })?;
        let stdout = read_all(child.stdout.take());
        let stderr = read_all(child.stderr.take());
        let until = Instant::now() + self.time_max;
        let status = self.wait(&mut child, until, &shown)?;
        // A process of the command may hold the pipes open after its end.
        let text = |pipe: Receiver<Vec<u8>>| {
            let rest = until.saturating_duration_since(Instant::now()).max(TICK);
            pipe.recv_timeout(rest).ok()
        };
        let (Some(stdout), Some(stderr)) = (text(stdout), text(stderr)) else {
            return Err(self.too_slow(&shown));
        };
        if let Some(signal) = status.signal() {
            let text = format!("signal {signal} ended the command");
            return Err(BatchError::Unavailable {
                command: shown,
                text,
            });
        }
        if stdout.len() as u64 > OUTPUT_BYTES_MAX {
            return Err(unreadable(&shown, "more than 64 MiB"));
        }
        Ok(CommandOutput {
            stdout: decode(stdout).map_err(|_| unreadable(&shown, "no UTF-8"))?,
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
            command: shown,
            status,
        })
    }

    fn wait(&self, child: &mut Child, until: Instant, shown: &str) -> BatchResult<ExitStatus> {
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if Instant::now() < until => thread::sleep(TICK),
                _ => {
                    end(child);
                    return Err(self.too_slow(shown));
                }
            }
        }
    }

    fn too_slow(&self, shown: &str) -> BatchError {
        BatchError::Unavailable {
            command: shown.to_owned(),
            text: format!(
                "the command did not end within {} s",
                self.time_max.as_secs_f32()
            ),
        }
    }
}

/// Returns whether a variable chooses what commands print.
fn chooses(variable: &OsStr) -> bool {
    let name = variable.to_string_lossy();
    CHOOSING.iter().any(|begin| name.starts_with(begin))
}

/// Ends a command and the processes that it started.
fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _it_may_have_ended = kill_process_group(group, Signal::KILL);
    }
    let _it_was_killed = child.wait();
}

/// Reads a pipe to its end in a thread of its own, so that no command waits for room in it.
fn read_all(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    let read = move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            let _what_came_is_judged = pipe.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut bytes);
        }
        let _the_caller_may_be_gone = send.send(bytes);
    };
    // Without a thread, the caller finds the channel closed and reports the command.
    let _started = thread::Builder::new().name("output".into()).spawn(read);
    receive
}

/// Replaces what XML forbids (section 2.2 of XML 1.0): invalid UTF-8, control characters, U+FFFE and U+FFFF.
fn printable(bytes: &[u8]) -> String {
    let is_plain = |letter: char| match letter {
        '\t' | '\n' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        other => !other.is_control(),
    };
    let replaced = |letter: char| match is_plain(letter) {
        true => letter,
        false => char::REPLACEMENT_CHARACTER,
    };
    String::from_utf8_lossy(bytes)
        .chars()
        .map(replaced)
        .collect()
}

fn unreadable(shown: &str, line: &str) -> BatchError {
    BatchError::Output {
        command: shown.to_owned(),
        line: line.to_owned(),
    }
}

/// Returns a command as a user would type it. Long ones are shortened.
fn shown_command<S: AsRef<OsStr>>(name: &str, args: &[S]) -> String {
    const CHARS_MAX: usize = 200;
    let mut shown = name.to_owned();
    for arg in args {
        shown.push(' ');
        shown.push_str(&arg.as_ref().to_string_lossy());
    }
    match shown.chars().nth(CHARS_MAX) {
        Some(_) => shown.chars().take(CHARS_MAX).chain("...".chars()).collect(),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, time_max: Duration) -> BatchResult<CommandOutput> {
        let settings = CommandSettings {
            time_max,
            ..CommandSettings::default()
        };
        settings.run("sh", &["-c", script])
    }

    #[test]
    fn output_and_exit_code_are_returned() {
        let ended = shell("echo out; echo err >&2; exit 3", Duration::from_secs(60)).unwrap();
        assert_eq!(
            (ended.stdout.as_str(), ended.stderr.as_str()),
            ("out\n", "err\n")
        );
        assert_eq!(ended.status.code(), Some(3));
    }

    #[test]
    fn texts_of_users_are_made_printable() {
        let settings = CommandSettings::default();
        let script = r"printf 'a\001b\200c\td\357\277\276\n'";
        assert!(settings.run("sh", &["-c", script]).is_err());
        let ended = settings.run_lossy("sh", &["-c", script]).unwrap();
        assert_eq!(ended.stdout, "a\u{fffd}b\u{fffd}c\td\u{fffd}\n");
        let ended = settings.run_replacing("sh", &["-c", script]).unwrap();
        assert_eq!(ended.stdout, "a\u{1}b\u{fffd}c\td\u{fffe}\n");
    }

    #[test]
    fn slow_command_ends_with_its_children() {
        let began = Instant::now();
        let error = shell("sleep 600 & wait", Duration::from_millis(100)).unwrap_err();
        assert!(error.may_pass(), "{error}");
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn killed_command_may_answer_later() {
        let error = shell("echo 1; kill -KILL $$", Duration::from_secs(60)).unwrap_err();
        assert!(error.may_pass(), "{error}");
        assert!(error.to_string().contains("signal 9"), "{error}");
    }

    #[test]
    fn missing_command_is_named() {
        let settings = CommandSettings {
            folder: Some("/nonexistent".into()),
            ..CommandSettings::default()
        };
        let error = settings.run("squeue", &["-h"]).unwrap_err().to_string();
        assert!(
            error.starts_with("squeue -h: cannot start the program"),
            "{error}"
        );
    }

    #[test]
    fn choices_of_a_user_are_known() {
        for variable in ["SQUEUE_USERS", "SINFO_PARTITION", "SLURM_CLUSTERS"] {
            assert!(chooses(variable.as_ref()), "{variable}");
        }
        for variable in ["SLURM_CONF", "SGE_ROOT", "PATH"] {
            assert!(!chooses(variable.as_ref()), "{variable}");
        }
    }

    #[test]
    fn endless_output_is_refused() {
        let error = shell("yes", Duration::from_secs(60)).unwrap_err();
        assert!(error.to_string().contains("more than 64 MiB"), "{error}");
    }
}
