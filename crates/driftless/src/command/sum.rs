//! `driftless sum`: what is asked for, who is told what is found, and the exit code.

mod dialect;
mod report;
mod sources;

use crate::args::{AlgorithmArg, SumArgs};
use crate::exit::Exit;
use crate::signals;
use driftless_remote::check_syntax;
use driftless_verify::{LEAF_BYTES_DEFAULT, SumOptions};
use report::{Report, Tally, Task};
use sources::Source;
use std::path::Path;

impl SumArgs {
    /// The leaf size of the hash trees that are wanted, if any are.
    fn leaf_bytes(&self) -> Option<u64> {
        self.tree
            .as_ref()
            .map(|_| self.leaf_size.unwrap_or(LEAF_BYTES_DEFAULT))
    }

    fn task(&self) -> Task {
        if self.manifest {
            Task::Manifest
        } else if self.check.is_some() || self.check_tree.is_some() {
            Task::Check
        } else {
            Task::List
        }
    }

    /// What cannot be said with conflicts of options alone.
    fn refuse_nonsense(&self) -> Result<(), String> {
        self.paths
            .iter()
            .try_for_each(|path| refuse_foreign(path))?;
        let algorithm = self.algorithm.unwrap_or(AlgorithmArg::Blake3);
        match self {
            _ if self.manifest && self.paths.len() != 1 => {
                Err("--manifest is made of one directory".into())
            }
            _ if self.tree.is_some() && algorithm != AlgorithmArg::Blake3 => {
                Err("hash trees (--tree) are made with blake3 only".into())
            }
            _ => Ok(()),
        }
    }
}

/// Refuses the address of a tree elsewhere, unless a file has this name.
#[allow(
    clippy::disallowed_methods,
    reason = "it is only found out what the user means"
)]
fn refuse_foreign(path: &Path) -> Result<(), String> {
    match check_syntax(path.as_os_str()) {
        Err(error) if path.symlink_metadata().is_err() => Err(format!(
            "{error}; sums are made on the host of the files: ssh HOST driftless sum PATH"
        )),
        _ => Ok(()),
    }
}

/// Hashes or verifies; returns the exit code.
pub fn run(args: &SumArgs) -> Exit {
    if let Err(message) = args.refuse_nonsense() {
        eprintln!("driftless: {message}");
        return Exit::Usage;
    }
    let signals = signals::watch();
    let begun =
        Source::open(args).and_then(|source| Ok((source, Report::new(args, &signals.stop)?)));
    let (source, report) = match begun {
        Ok(begun) => begun,
        Err(message) => {
            eprintln!("driftless: {message}");
            return Exit::CouldNotRun;
        }
    };
    let options = SumOptions {
        jobs: args.jobs,
        manifest: args.manifest,
        left_out: report.own_files(),
    };
    driftless_verify::sum(&options, source.targets(args), &report, &signals.stop);
    let is_stopped = signals.number() > 0;
    let complete = !is_stopped && !source.is_broken();
    report.end(complete, |tally| {
        exit_code(tally, args.task(), complete, signals.number())
    })
}

fn exit_code(tally: &Tally, task: Task, complete: bool, signal: u8) -> Exit {
    match tally {
        _ if signal > 0 => Exit::Signal(signal),
        Tally {
            failed: Some(_), ..
        } => Exit::CouldNotRun,
        _ if !complete => Exit::CouldNotRun,
        _ if tally.different + tally.missing > 0 => Exit::Different,
        _ if tally.problems > 0 => Exit::Problems,
        // A list that says nothing proves nothing.
        _ if task == Task::Check && tally.files == 0 => Exit::CouldNotRun,
        _ => Exit::Equal,
    }
}
