//! Programs that make, list and compare snapshots.

use super::provider::SnapshotError;
use std::ffi::OsStr;
use std::io::{ErrorKind, Read};
use std::process::{ChildStderr, ChildStdout, Command, Stdio};

/// What a program says that fails is told up to so many bytes.
const TOLD_BYTES_MAX: u64 = 4096;

/// A program with its arguments, that reads nothing.
pub(super) struct Program<'a> {
    name: &'a str,
    command: Command,
}

impl<'a> Program<'a> {
    pub(super) fn new<A: AsRef<OsStr>>(
        name: &'a str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::null());
        command.stderr(Stdio::piped()).env("LC_ALL", "C");
        Program { name, command }
    }

    /// The same with a variable of its environment.
    pub(super) fn with(mut self, variable: &str, value: &OsStr) -> Self {
        self.command.env(variable, value);
        self
    }

    /// Runs it to its end; what it prints is of no interest.
    pub(super) fn run(mut self) -> Result<(), SnapshotError> {
        self.command.stdout(Stdio::null());
        self.read(|_nothing| Ok(()))
    }

    /// Runs it, and has `read` read what it prints.
    pub(super) fn print<T>(
        mut self,
        read: impl FnOnce(&mut ChildStdout) -> Result<T, SnapshotError>,
    ) -> Result<T, SnapshotError> {
        self.command.stdout(Stdio::piped());
        self.read(|printed| {
            let printed = printed.expect("it is piped");
            let result = read(printed)?;
            // A program whose last words nobody takes is ended for it.
            let _its_status_tells = std::io::copy(printed, &mut std::io::sink());
            Ok(result)
        })
    }

    fn read<T>(
        mut self,
        read: impl FnOnce(Option<&mut ChildStdout>) -> Result<T, SnapshotError>,
    ) -> Result<T, SnapshotError> {
        let failed = |what: String| SnapshotError::Program {
            program: self.name.to_owned(),
            what,
        };
        let spawned = self.command.spawn();
        let mut child = spawned.map_err(|error| failed(not_started(&error)))?;
        let (mut printed, mut said) = (child.stdout.take(), child.stderr.take());
        let (result, said) = std::thread::scope(|scope| {
            let words = scope.spawn(|| said.as_mut().map(text).unwrap_or_default());
            let result = read(printed.as_mut());
            if result.is_err() {
                let _it_may_have_ended = child.kill();
            }
            (result, words.join().unwrap_or_default())
        });
        let status = child.wait().map_err(|error| failed(error.to_string()))?;
        // What it says itself is nearer to the cause than that its output breaks off.
        match (status.code(), result) {
            (Some(0), result) | (None, result @ Err(_)) => result,
            _ => Err(failed(match said.trim() {
                "" => format!("{status}, without a message"),
                said => format!("{status}: {said}"),
            })),
        }
    }
}

/// Returns why a program does not start, and what to do.
fn not_started(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "cannot start: no directory of PATH has this program; \
                                install it, or give the job another detector (detect)"
            .into(),
        _ => format!("cannot start it: {}", driftless_model::cause(error)),
    }
}

/// What a program says of errors, to its end.
fn text(pipe: &mut ChildStderr) -> String {
    let mut text = Vec::new();
    let _as_far_as_it_goes = pipe.take(TOLD_BYTES_MAX).read_to_end(&mut text);
    let _nobody_wants_more = std::io::copy(pipe, &mut std::io::sink());
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str) -> Program<'static> {
        Program::new("sh", ["-c", text])
    }

    #[test]
    fn its_output_is_read_and_its_failure_is_told_in_its_own_words() {
        let read = |program: Program<'_>| {
            program.print(|printed| {
                let mut one = [0];
                printed
                    .read_exact(&mut one)
                    .map_err(|_| SnapshotError::NotFit {
                        path: String::new(),
                        why: "too short",
                    })?;
                Ok(one)
            })
        };
        // More than a pipe holds, of which one byte is wanted.
        assert_eq!(read(shell("seq 100000")).unwrap(), *b"1");
        let told = |program| read(program).unwrap_err().to_string();
        let failed = told(shell("echo 1; echo why >&2; exit 3"));
        assert_eq!(failed, "sh: exit status: 3: why");
        assert!(told(shell("exec true")).contains("too short"));
        let absent = Program::new("no-such-program", ["x"]).run().unwrap_err();
        assert!(
            absent
                .to_string()
                .starts_with("no-such-program: cannot start: no directory of PATH has"),
            "{absent}"
        );
        let long = told(shell("seq 100000 >&2; exit 1"));
        assert!(long.len() < 5000);
    }
}
