//! The record of a job, as the user meets it: a run that is not gone on with, and a file that
//! cannot be used.

use crate::exit::Exit;
use crate::output::Output;
use crate::own;
use driftless_state::{Found, Record, StateError, StateFile};
use std::path::Path;

/// Opens the record of a job. Says what became of an interrupted run that is not gone on with,
/// because the user says so (`fresh`) or because it is no use.
///
/// # Errors
/// The file cannot be used.
pub fn open(
    path: &Path,
    about: &str,
    (fresh, name): (bool, &str),
    output: &Output,
) -> Result<Record, StateError> {
    let mut record = match Record::open(path, about) {
        Err(error) if fresh && error.may_be_dropped() => {
            output.note(&format!("{error}; it is dropped, as --fresh says"));
            own::forget_database(path);
            Record::open(path, about)?
        }
        opened => opened?,
    };
    let why = match record.found() {
        Found::Other => "it had other options or trees, or was of another version of driftless",
        Found::Older => "it was of an earlier version of driftless",
        Found::Same if fresh => "as --fresh says",
        Found::Same | Found::Nothing => return Ok(record),
    };
    output.note(&format!(
        "cannot continue the interrupted run of job \"{name}\": {why}"
    ));
    if fresh {
        record.begin_anew()?;
    }
    Ok(record)
}

/// How a run begins anew whose record is no use.
const RUN_ANEW: &str = "begin anew with --fresh: what is equal is not copied again";

/// How a mirror begins anew whose state is no use. What SQLite keeps beside it belongs to it.
const MIRROR_ANEW: &str = "move it away, with what has -wal or -shm behind its name, and start the mirror again: all is compared, and what is equal is not copied again";

/// How an agent begins anew whose state is no use.
const WATCH_ANEW: &str = "move it away, with what has -wal or -shm behind its name, and start the watch daemon again: the mirrors compare all of its trees";

/// Remedy for a damaged index of a node.
const HOLDINGS_ANEW: &str =
    "move it away, with what has -wal or -shm behind its name: the next cast sends the data again";

/// Remedy for a damaged table of jobs.
const JOBS_ANEW: &str = "stop all gateways, move it away, and start them again: jobs that are held then stay held until their users release or cancel them";

/// The exit code, what is wrong with the file, and what now.
pub fn refusal(error: &StateError) -> (Exit, String) {
    let words = |now: &str| format!("{error}; {now}");
    let anew = |file: &StateFile| match file {
        StateFile::Record => RUN_ANEW,
        StateFile::Mirror => MIRROR_ANEW,
        StateFile::Watch => WATCH_ANEW,
        StateFile::Holdings => HOLDINGS_ANEW,
        StateFile::Jobs => JOBS_ANEW,
    };
    let now = match error {
        StateError::Damaged { file, .. } => words(anew(file)),
        StateError::Newer { file, .. } => {
            words(&format!("go on with that version, or {}", anew(file)))
        }
        StateError::Foreign { .. } => words("move it away"),
        StateError::OtherTrees { .. } => words("give the job another name, or move the file away"),
        StateError::Failed { .. } | StateError::Unready { .. } => error.to_string(),
    };
    (Exit::of_record(error), now)
}
