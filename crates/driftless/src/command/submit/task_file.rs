//! Task files: from the parsed file to a submission.

use super::{CommandSource, PlannedSubmission, absolute, pattern, request};
use crate::args::SubmitArgs;
use crate::command::reach::Unreached;
use crate::command::site::usage;
use crate::exit::Exit;
use driftless_batch::BatchKind;
use driftless_gateway::CopyKeeping;
use driftless_model::{cause, quote};
use driftless_taskfile::{
    Cleanup, DataPath, ParameterRange, TASK_FILE_BYTES_MAX, TaskFile, WorkloadManager,
};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Returns the submission that a task file asks for.
pub(super) fn planned(args: &SubmitArgs, path: &Path) -> Result<PlannedSubmission, Unreached> {
    let parsed = TaskFile::parse(&read(path)?);
    let tasks = parsed.map_err(|error| usage(&format!("{}: {error}", quote(path))))?;
    let mut request = request(args, absolute(&expanded(&tasks.data)?)?)?;
    if let (None, Some(results)) = (&request.results, &tasks.results) {
        let path = PathBuf::from(OsString::from_vec(results.text()));
        request.results = pattern(Some(path))?;
    }
    request.keeping = match tasks.cleanup {
        Cleanup::PurgeAll => CopyKeeping::Purge,
        Cleanup::Keep => CopyKeeping::Stay,
        Cleanup::KeepFor(time) => CopyKeeping::Seconds(time.as_secs()),
    };
    Ok(PlannedSubmission {
        request,
        source: CommandSource::Tasks(Box::new(tasks)),
    })
}

#[allow(
    clippy::disallowed_methods,
    reason = "the user's own file, no part of a replicated tree"
)]
fn read(path: &Path) -> Result<Vec<u8>, Unreached> {
    let mut text = Vec::new();
    // One byte more than the parser takes: it tells that the file is too long.
    let bytes_max = (TASK_FILE_BYTES_MAX as u64).saturating_add(1);
    let read = File::open(path).and_then(|file| file.take(bytes_max).read_to_end(&mut text));
    read.map(|_| text).map_err(|error| {
        let (path, cause) = (quote(path), cause(&error));
        (
            Exit::CouldNotRun,
            format!("{path}: cannot read the task file: {cause}"),
        )
    })
}

/// Returns the batch system that a task file names.
pub(super) fn kind_of(system: WorkloadManager) -> BatchKind {
    match system {
        WorkloadManager::Slurm => BatchKind::Slurm,
        WorkloadManager::GridEngine => BatchKind::GridEngine,
        WorkloadManager::Pbs | WorkloadManager::Torque => BatchKind::Pbs,
    }
}

/// Returns the paths of the data, with globs replaced by the paths that match.
fn expanded(data: &[DataPath]) -> Result<Vec<PathBuf>, Unreached> {
    let mut paths = Vec::new();
    for one in data {
        match one.is_glob {
            false => paths.push(one.path.clone()),
            true => paths.extend(matches(&one.path)?),
        }
    }
    Ok(paths)
}

fn matches(pattern: &Path) -> Result<Vec<PathBuf>, Unreached> {
    let shown = quote(pattern);
    let text = pattern.to_str();
    let text = text.ok_or_else(|| usage(&format!("{shown}: a pattern must be UTF-8")))?;
    let found = glob::glob(text).map_err(|error| usage(&format!("{shown}: {error}")))?;
    let found: Result<Vec<PathBuf>, _> = found.collect();
    let found = found.map_err(|error| (Exit::CouldNotRun, format!("{shown}: {error}")))?;
    match found.is_empty() {
        true => Err((
            Exit::CouldNotRun,
            format!("{shown}: no file matches; no job was submitted"),
        )),
        false => Ok(found),
    }
}

/// Returns the command of a batch system for the script and its tasks. It need not be the batch system
/// that the file names, unless the file has options for that one.
pub(super) fn command(kind: BatchKind, tasks: &TaskFile) -> Result<Vec<OsString>, String> {
    let named = kind_of(tasks.system);
    if kind != named && !tasks.options.is_empty() {
        return Err(format!(
            "the task file has options for {named}, and the gateway serves {kind}; correct WLM_SYSTEM and OPTIONS"
        ));
    }
    let program = match kind {
        BatchKind::Slurm => "sbatch",
        BatchKind::GridEngine | BatchKind::Pbs => "qsub",
    };
    let mut words: Vec<OsString> = vec![program.into()];
    words.extend(tasks.options.iter().map(OsString::from));
    if let Some(range) = &tasks.parameters {
        words.extend(array(kind, range).into_iter().map(OsString::from));
    }
    let at = words.len();
    words.push(script_word(&tasks.script));
    words.extend(tasks.arguments.iter().cloned());
    let found = driftless_batch::script_at(kind, &words[1..]).map_err(|error| error.to_string())?;
    match found {
        Some(found) if found + 1 == at => Ok(words),
        _ => Err(format!(
            "OPTIONS: {program} would take another word than {} for the script; write options with their values there, and the script in DO",
            quote(&tasks.script)
        )),
    }
}

/// Returns the script as a word that is no option.
fn script_word(script: &Path) -> OsString {
    match script.as_os_str().as_bytes().starts_with(b"-") {
        true => Path::new(".").join(script).into_os_string(),
        false => script.as_os_str().to_owned(),
    }
}

/// Returns the options of an array of tasks (sbatch(1), qsub(1)).
fn array(kind: BatchKind, range: &ParameterRange) -> Vec<String> {
    let (start, stop, step) = (range.start, range.stop, range.step);
    let tasks = format!("{start}-{stop}:{step}");
    let most = range.tasks_at_once_max;
    let with_most = || most.map_or_else(|| tasks.clone(), |most| format!("{tasks}%{most}"));
    match kind {
        BatchKind::Slurm => vec![format!("--array={}", with_most())],
        BatchKind::Pbs => vec!["-J".into(), with_most()],
        BatchKind::GridEngine => {
            let mut words = vec!["-t".into(), tasks];
            words.extend(
                most.into_iter()
                    .flat_map(|most| ["-tc".into(), most.to_string()]),
            );
            words
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<OsString> {
        let tasks = TaskFile::parse(text.as_bytes()).expect("a task file");
        command(kind_of(tasks.system), &tasks).expect("a command")
    }

    fn file(system: &str, execute: &str) -> String {
        format!("WLM {{ WLM_SYSTEM = {system}; }} DATA {{ TRANSFER /d; }} EXECUTE {{ {execute} }}")
    }

    #[test]
    fn arrays_have_the_options_of_each_system() {
        let execute = "DO run.sh a parms=[1:20;2]%4;";
        for (system, expected) in [
            ("SLURM", "sbatch --array=1-20:2%4 run.sh a"),
            ("SGE", "qsub -t 1-20:2 -tc 4 run.sh a"),
            ("PBS", "qsub -J 1-20:2%4 run.sh a"),
        ] {
            let words: Vec<&str> = expected.split(' ').collect();
            assert_eq!(of(&file(system, execute)), words, "{system}");
        }
        assert_eq!(of(&file("SLURM", "DO run.sh;")), ["sbatch", "run.sh"]);
    }

    #[test]
    fn script_is_that_of_the_file() {
        for system in ["SLURM", "SGE", "PBS"] {
            let words = of(&file(system, "DO -e.sh -x;"));
            assert_eq!(words[1..], ["./-e.sh", "-x"], "{system}");
            for (options, is_right) in [
                ("-N 2", true),
                ("", true),
                ("x.sh", false),
                ("-N 2 x.sh", false),
                ("-N", false),
                ("--", false),
            ] {
                let text = format!(
                    "WLM {{ WLM_SYSTEM = {system}; OPTIONS = \"{options}\"; }} DATA {{ TRANSFER /d; }} EXECUTE {{ DO run.sh a; }}"
                );
                let tasks = TaskFile::parse(text.as_bytes()).expect("a task file");
                let command = command(kind_of(tasks.system), &tasks);
                assert_eq!(command.is_ok(), is_right, "{system} {options}: {command:?}");
            }
        }
    }
}
