//! The mirrors that this user can ask about: those of the job files in the configuration folders,
//! and those that have a state.

use super::{Failure, asking, kept, operators};
use crate::args::JobArgs;
use crate::command::job;
use crate::exit::Exit;
use crate::output::mirror as say;
use crate::own;
use driftless_mirror::ask::{Answer, Ask};
use driftless_mirror::status::Status;
use driftless_model::cause;
use driftless_state::mirror::MirrorState;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Prints one line, or one JSON object, for each replica of each mirror. With `check`, the exit
/// code says whether one of them is further behind than its RPO.
pub fn list(json: bool, check: bool) -> Result<Exit, Failure> {
    let jobs = known_jobs()?;
    if jobs.is_empty() && !json {
        say::line(&format!(
            "no mirrors: there is no job file in {}, and no state of this user",
            job::folders_in_words()
        ));
    }
    let mut is_behind = false;
    for (name, typed) in jobs {
        match standing(&name, typed) {
            Ok(replicas) => {
                is_behind |= replicas.iter().any(Status::is_behind);
                replicas.iter().for_each(|one| say::listed(one, json));
            }
            Err((_, why)) => say::complaint(&why),
        }
    }
    Ok(match check && is_behind {
        true => Exit::Behind,
        false => Exit::Equal,
    })
}

/// Returns how each replica of a job stands, or was left if its mirror does not run. `typed` names
/// the job file, if one is known.
fn standing(name: &str, typed: Option<PathBuf>) -> Result<Vec<Status>, Failure> {
    let args = JobArgs {
        job: typed.clone().unwrap_or_else(|| name.into()),
    };
    match asking::ask_or_not_running(&args, &Ask::Status)? {
        Some(Answer::Status(replicas)) => Ok(replicas),
        Some(_) => Err((Exit::Bug, "the mirror gave another answer".into())),
        None if typed.is_some() => kept::statuses(&args.job),
        None => Err((
            Exit::CouldNotRun,
            format!(
                "{name}: not running, and its job file is not in {}: driftless mirror status FILE",
                job::folders_in_words()
            ),
        )),
    }
}

/// Returns all jobs by name, with what names the job file, if one is known.
fn known_jobs() -> Result<BTreeMap<String, Option<PathBuf>>, Failure> {
    let mut jobs = BTreeMap::new();
    for folder in job::folders() {
        for file in files_of(&folder, ".toml")? {
            let stem = PathBuf::from(file.file_stem().unwrap_or_default());
            if let Some(name) = job::name_in(&file) {
                jobs.entry(name).or_insert(Some(stem));
            }
        }
    }
    for name in operators::jobs() {
        jobs.entry(name).or_insert(None);
    }
    if let Some(folder) = own::state_places().into_iter().next() {
        for state in files_of(&folder, ".db")? {
            if let Some(name) = name_of_state(&state) {
                jobs.entry(name).or_insert(None);
            }
        }
    }
    Ok(jobs)
}

/// Returns the name of the job whose mirror has this state; `None` for other databases.
fn name_of_state(state: &Path) -> Option<String> {
    let file = state.file_name()?.to_str()?;
    let is_mirror = file.starts_with("mirror-");
    let view = is_mirror.then(|| MirrorState::look(state))?;
    Some(view.ok()?.job().ok()?.about.name)
}

/// Returns the files of a folder whose names end in `end`; none if the folder does not exist.
#[allow(
    clippy::disallowed_methods,
    reason = "the user's own folders, no part of a replicated tree"
)]
fn files_of(folder: &Path, end: &str) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: io::Error| {
        let why = format!("{}: cannot list it: {}", folder.display(), cause(&error));
        (Exit::CouldNotRun, why)
    };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let file = entry.map_err(failed)?.path();
        if file.to_string_lossy().ends_with(end) {
            found.push(file);
        }
    }
    Ok(found)
}
