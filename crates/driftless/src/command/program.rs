//! The user's own program that moves content (`--copy-with`).
//!
//! The command is cut into words here, as a shell would, and no shell reads them. The program has a
//! process group of its own, so that what it starts can be ended with it, and the user's own umask.
//! It cannot ask anybody anything: its input is empty, its output is thrown away, and of what it
//! says on standard error the end is kept.

use crate::own;
use driftless_engine::{Carrier, Undone, Unusable};
use driftless_model::{cause, escape};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Access;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid,
};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What is kept of what a program says on standard error, in bytes.
const COMPLAINT_BYTES_MAX: usize = 4096;
/// What a program may have said before it ended and nobody has read, in bytes: a pipe holds no more
/// (pipe(7)).
const PIPE_BYTES: usize = 64 * 1024;
/// Between two looks at whether the run was stopped.
const TICK: Duration = Duration::from_millis(20);
/// How long a program has to end after it was asked to.
const PARTING_GRACE: Duration = Duration::from_secs(2);
/// A file that is a shell everywhere (POSIX, `sh`).
const SHELL: &str = "/bin/sh";

/// A command line with places for two paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    program: OsString,
    arguments: Vec<Vec<Piece>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Source,
    Replica,
}

/// Reads a command line; an error says what is wrong with it.
pub fn template(text: &str) -> Result<Template, String> {
    let words = shell_words::split(text).map_err(|error| error.to_string())?;
    let (program, arguments) = words.split_first().ok_or("it names no program")?;
    let arguments = arguments
        .iter()
        .map(|word| pieces(word))
        .collect::<Result<Vec<_>, _>>()?;
    for (piece, sign, what) in [
        (Piece::Source, "%s", "the source file"),
        (Piece::Replica, "%d", "the file that is to be made"),
    ] {
        if !arguments.iter().flatten().any(|found| *found == piece) {
            return Err(format!(
                "{sign}, which stands for the path of {what}, is missing"
            ));
        }
    }
    Ok(Template {
        program: program.into(),
        arguments,
    })
}

fn pieces(word: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut text, mut chars) = (Vec::new(), String::new(), word.chars());
    while let Some(char) = chars.next() {
        let path = match (char, if char == '%' { chars.next() } else { None }) {
            ('%', Some('s')) => Piece::Source,
            ('%', Some('d')) => Piece::Replica,
            ('%', Some('%')) => {
                text.push('%');
                continue;
            }
            ('%', other) => {
                let other = other.map(String::from).unwrap_or_default();
                return Err(format!(
                    "\"%{other}\" stands for nothing: %s, %d and %% are known"
                ));
            }
            (char, _) => {
                text.push(char);
                continue;
            }
        };
        pieces.extend([Piece::Text(std::mem::take(&mut text)), path]);
    }
    pieces.push(Piece::Text(text));
    Ok(pieces)
}

fn filled(pieces: &[Piece], source: &Path, replica: &Path) -> OsString {
    let text = |piece: &Piece| match piece {
        Piece::Text(text) => OsString::from(text),
        Piece::Source => source.into(),
        Piece::Replica => replica.into(),
    };
    pieces.iter().map(text).collect()
}

/// The program, ready to be started.
#[derive(Debug)]
pub struct Program {
    template: Template,
    /// The user's own. A run has none, because it sets modes as the source has them; what the
    /// program makes elsewhere, such as a log, must not be open to everybody for that reason.
    umask: u32,
}

impl Program {
    /// The program of a template.
    pub fn new(template: Template) -> Program {
        Program {
            template,
            umask: own::umask(),
        }
    }

    /// A process has no umask of its own before it runs, so a shell sets it and becomes the
    /// program; it reads none of the words.
    fn start(&self, source: &Path, replica: &Path) -> io::Result<Child> {
        let Template { program, arguments } = &self.template;
        let mut command = Command::new(SHELL);
        command
            .arg("-c")
            .arg(format!("umask {:04o} && exec \"$@\"", self.umask))
            .arg("driftless")
            .arg(program);
        command.args(
            arguments
                .iter()
                .map(|pieces| filled(pieces, source, replica)),
        );
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
    }
}

impl Carrier for Program {
    fn check(&self) -> Result<(), Unusable> {
        let program = &self.template.program;
        let shown = escape(program.as_bytes());
        let tried = found(program)
            .ok_or_else(|| Unusable(format!("--copy-with: \"{shown}\" cannot be found")))?;
        rustix::fs::access(&tried, Access::EXEC_OK).map_err(|errno| {
            let why = cause(&errno.into());
            Unusable(format!("--copy-with: \"{shown}\" cannot be started: {why}"))
        })
    }

    fn carry(
        &self,
        source: &Path,
        replica: &Path,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(), Undone> {
        let child = self
            .start(source, replica)
            .map_err(|error| Undone::Failed(format!("it cannot be started: {}", cause(&error))))?;
        let mut attended = Attended::new(child);
        let was_stopped = attended.wait(stopped);
        let ended = attended.reap();
        match ended {
            _ if was_stopped => Err(Undone::Stopped),
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Undone::Failed(attended.explain(status))),
            Err(error) => Err(Undone::Failed(format!(
                "its end is not known: {}",
                cause(&error)
            ))),
        }
    }
}

/// The file that a word of a command means (execvp(3)).
fn found(program: &OsStr) -> Option<PathBuf> {
    let is_file =
        |path: &PathBuf| rustix::fs::stat(path).is_ok_and(|st| st.st_mode & 0o170_000 == 0o100_000);
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(is_file);
    }
    let paths = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let all: Vec<PathBuf> = std::env::split_paths(&paths)
        .map(|folder| folder.join(program))
        .filter(is_file)
        .collect();
    let runs = |path: &&PathBuf| rustix::fs::access(*path, Access::EXEC_OK).is_ok();
    all.iter().find(runs).or(all.first()).cloned()
}

/// A program that runs, and what it has said.
struct Attended {
    child: Child,
    group: Pid,
    stderr: Option<ChildStderr>,
    said: Vec<u8>,
}

impl Attended {
    fn new(mut child: Child) -> Attended {
        let stderr = child.stderr.take();
        Attended {
            group: Pid::from_child(&child),
            child,
            stderr,
            said: Vec::new(),
        }
    }

    /// Waits for its end, and sees to it when the run is stopped; returns whether it was.
    fn wait(&mut self, stopped: &dyn Fn() -> bool) -> bool {
        let mut asked: Option<Instant> = None;
        let mut pause = Duration::from_millis(1);
        while !self.has_ended() {
            match asked {
                None if stopped() => {
                    asked = Some(Instant::now());
                    self.end(Signal::TERM);
                }
                Some(since) if since.elapsed() >= PARTING_GRACE => self.end(Signal::KILL),
                _ => {}
            }
            if self.stderr.is_some() {
                self.hear(TICK);
            } else {
                std::thread::sleep(pause);
                pause = (pause * 2).min(TICK);
            }
        }
        asked.is_some()
    }

    /// Whether it has ended. It is not waited for yet, so its number still is its own.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(
            waitid(WaitId::Pid(self.group), options),
            Ok(None) | Err(rustix::io::Errno::INTR)
        )
    }

    fn end(&self, signal: Signal) {
        let _it_may_have_ended = kill_process_group(self.group, signal);
    }

    /// Ends what it left behind, which must not write on, and returns how it ended itself.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        self.end(Signal::KILL);
        let mut left = PIPE_BYTES;
        while let Some(got @ 1..) = self.hear(Duration::ZERO) {
            left = left.saturating_sub(got);
            if left == 0 {
                break;
            }
        }
        let ended = self.child.wait();
        let since = Instant::now();
        while test_kill_process_group(self.group).is_ok() && since.elapsed() < PARTING_GRACE {
            std::thread::sleep(Duration::from_millis(1));
        }
        ended
    }

    /// Keeps the end of what it says within `wait`; returns how many bytes came, `None` if nothing
    /// did.
    fn hear(&mut self, wait: Duration) -> Option<usize> {
        let stderr = self.stderr.as_mut()?;
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: wait.subsec_nanos().into(),
        };
        if !matches!(
            poll(&mut [PollFd::new(stderr, PollFlags::IN)], Some(&timeout)),
            Ok(1..)
        ) {
            return None;
        }
        let mut bytes = [0; 1024];
        let got = stderr.read(&mut bytes).unwrap_or(0);
        if got == 0 {
            self.stderr = None;
        }
        self.said.extend_from_slice(&bytes[..got]);
        let excess = self.said.len().saturating_sub(COMPLAINT_BYTES_MAX);
        self.said.drain(..excess);
        Some(got)
    }

    fn explain(&self, status: ExitStatus) -> String {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("it ended with exit code {code}"),
            (None, signal) => format!("signal {} ended it", signal.unwrap_or(0)),
        };
        let lines = self
            .said
            .split(|byte| *byte == b'\n')
            .map(<[u8]>::trim_ascii);
        lines
            .rev()
            .find(|line| !line.is_empty())
            .map_or(how.clone(), |line| format!("{how}: {}", escape(line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let Template { program, arguments } = template(text).expect("a command");
        let filled = arguments
            .iter()
            .map(|pieces| filled(pieces, Path::new("/from"), Path::new("/to")));
        std::iter::once(program)
            .chain(filled)
            .map(|word| word.into_string().expect("text"))
            .collect()
    }

    #[test]
    fn paths_stand_wherever_their_signs_do() {
        assert_eq!(words("cp %s %d"), ["cp", "/from", "/to"]);
        assert_eq!(
            words("dd if=%s of=%d bs=1M"),
            ["dd", "if=/from", "of=/to", "bs=1M"]
        );
        assert_eq!(
            words("x %d%s%s 100%% '%%s'"),
            ["x", "/to/from/from", "100%", "%s"]
        );
        assert_eq!(
            words("'my copy' 'a b' \"%s\" \\%d ''"),
            ["my copy", "a b", "/from", "/to", ""]
        );
    }

    #[test]
    fn commands_that_cannot_work_are_refused() {
        for text in [
            "",
            "cp",
            "cp %s",
            "cp %d",
            "cp %s %d %",
            "cp %s %d %x",
            "cp '%s %d",
            "cp %%s %%d",
            "%s %d",
        ] {
            assert!(template(text).is_err(), "{text}");
        }
    }
}
