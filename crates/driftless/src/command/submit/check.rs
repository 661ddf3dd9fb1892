//! Check of a command before `submit --dry-run` prints it: the dry run refuses what the submission would
//! refuse. It runs no command of the batch system and asks no gateway.

use driftless_batch::{BatchKind, CommandSettings, HeldRequest, JobInput, JobMark};
use std::ffi::OsString;
use std::io::{IsTerminal, stdin};
use std::path::Path;

/// Refuses a command that cannot be submitted. `named` is the batch system of a task file.
pub(super) fn check(named: Option<BatchKind>, command: &[OsString]) -> Result<(), String> {
    let has_grid_engine = std::env::var_os("SGE_ROOT").is_some();
    let program = command.first().and_then(|word| Path::new(word).file_name());
    match named {
        Some(kind) => check_for(kind, command),
        None if program.is_some_and(|name| name == "sbatch") => {
            check_for(BatchKind::Slurm, command)
        }
        None if has_grid_engine => check_for(BatchKind::GridEngine, command),
        // Without the variable, either batch system may have this qsub.
        None => check_for(BatchKind::GridEngine, command)
            .or_else(|why| check_for(BatchKind::Pbs, command).map_err(|_| why)),
    }
}

fn check_for(kind: BatchKind, command: &[OsString]) -> Result<(), String> {
    let needs_input = input_for(kind, command, JobInput::Bytes(b""))?.is_some();
    if needs_input {
        let is_empty = stdin().is_terminal()
            || input_for(kind, command, JobInput::Standard)?.is_none_or(|input| input.is_empty());
        if is_empty {
            return Err("the job script is missing: name it behind sbatch or qsub".into());
        }
    }
    let args = command.get(1..).unwrap_or_default();
    let fault = driftless_batch::script_fault(kind, args).map_err(|error| error.to_string())?;
    fault.map_or(Ok(()), Err)
}

/// Returns the script on the standard input, if the command reads one.
fn input_for(
    kind: BatchKind,
    command: &[OsString],
    input: JobInput<'_>,
) -> Result<Option<Vec<u8>>, String> {
    let system = driftless_batch::system(kind, CommandSettings::default());
    let submission = system.submission(&HeldRequest {
        command,
        mark: &JobMark::of(0),
        variables: &[],
        input,
    });
    let submission = submission.map_err(|error| error.to_string())?;
    Ok(submission.input)
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "files of the test, no part of a tree"
)]
mod tests {
    use super::*;

    #[test]
    fn dry_run_refuses_what_submission_refuses() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("job.sh"), "#!/bin/sh\n").unwrap();
        std::fs::write(path("text"), "true\n").unwrap();
        let check = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            super::check(None, &words)
        };
        let script = path("job.sh");
        check(&["sbatch", "--array=1-5", &script]).unwrap();
        check(&["sbatch", "--wrap=true"]).unwrap();
        check(&["qsub", "-t", "1-5", &script]).unwrap();
        check(&["qsub", "-b", "y", "true"]).unwrap();
        for wrong in [
            &["sbatch", "--wait", &script] as &[&str],
            &["sbatch", "-M", "x", &script],
            &["sbatch", "--test-only", &script],
            &["sbatch", "-n1", ":", "-n2", &script],
            &["sbatch", &path("missing.sh")],
            &["sbatch", &path("text")],
            &["qsub", "-I", "-z", &path("missing.sh")],
            &["qsub", &path("missing.sh")],
        ] {
            check(wrong).unwrap_err();
        }
        let grid_engine = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            super::check(Some(BatchKind::GridEngine), &words)
        };
        grid_engine(&["qsub", "-sync", "y", &script]).unwrap_err();
    }
}
