//! Programs that make, list and compare snapshots.

use super::provider::SnapshotError;
use std::ffi::OsStr;
use std::io::Read;
use std::process::{Child, ChildStdout, Command, Stdio};

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

    /// Runs it to its end; what it prints is of no interest.
    pub(super) fn run(mut self) -> Result<(), SnapshotError> {
        self.command.stdout(Stdio::null());
        self.read(|_nothing| Ok(()))
    }

    /// Runs it, and has `read` read what it prints, to the end.
    pub(super) fn print<T>(
        mut self,
        read: impl FnOnce(ChildStdout) -> Result<T, SnapshotError>,
    ) -> Result<T, SnapshotError> {
        self.command.stdout(Stdio::piped());
        self.read(|printed| read(printed.expect("it is piped")))
    }

    fn read<T>(
        mut self,
        read: impl FnOnce(Option<ChildStdout>) -> Result<T, SnapshotError>,
    ) -> Result<T, SnapshotError> {
        let failed = |what: String| SnapshotError::Program {
            program: self.name.to_owned(),
            what,
        };
        let mut child = self
            .command
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let printed = child.stdout.take();
        let (result, said) = std::thread::scope(|scope| {
            let said = scope.spawn(|| said(&mut child));
            (read(printed), said.join().unwrap_or_default())
        });
        let status = child.wait().map_err(|error| failed(error.to_string()))?;
        // What it says itself is nearer to the cause than that its output breaks off.
        if !status.success() {
            let said = said.trim();
            return Err(failed(match said {
                "" => status.to_string(),
                said => format!("{status}: {said}"),
            }));
        }
        result
    }
}

/// What a program says of errors, to its end.
fn said(child: &mut Child) -> String {
    let mut text = Vec::new();
    if let Some(mut pipe) = child.stderr.take() {
        let _as_far_as_it_goes = (&mut pipe).take(TOLD_BYTES_MAX).read_to_end(&mut text);
        let _nobody_wants_more = std::io::copy(&mut pipe, &mut std::io::sink());
    }
    String::from_utf8_lossy(&text).into_owned()
}
