//! The mirrors that this user can ask about: those of the job files in the configuration folders,
//! and those that have a state.

use super::{Failure, asking, exit_if_behind, kept, operators};
use crate::args::JobArgs;
use crate::command::job;
use crate::exit::Exit;
use crate::output::mirror as say;
use crate::own;
use driftless_mirror::ask::{Answer, Ask};
use driftless_mirror::status::Status;
use driftless_model::cause;
use driftless_state::mirror::{JobRow, MirrorState, Role};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Prints one line, or one JSON object, for each replica of each mirror. With `check`, the exit
/// code says whether one of them is further behind than its RPO, or the active side.
pub fn list(json: bool, check: bool) -> Result<Exit, Failure> {
    let states = kept_jobs()?;
    let jobs = known_jobs(&states)?;
    if jobs.is_empty() && !json {
        say::line(&format!(
            "no mirrors: there is no job file in {}, and no state of this user",
            job::folders_in_words()
        ));
    }
    let mut is_behind = false;
    for (name, typed) in jobs {
        match active(&name, typed.as_deref(), &states) {
            Ok(rows) if rows.is_empty() => {}
            Ok(rows) => {
                is_behind = true;
                rows.iter().for_each(|row| say::listed_active(row, json));
                continue;
            }
            Err((_, why)) => {
                say::complaint(&why);
                continue;
            }
        }
        match standing(&name, typed) {
            Ok(replicas) => {
                is_behind |= replicas.iter().any(Status::is_behind);
                replicas.iter().for_each(|one| say::listed(one, json));
            }
            Err((code, why)) => {
                is_behind |= code == Exit::Refused;
                say::complaint(&why);
            }
        }
    }
    Ok(exit_if_behind(check && is_behind))
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
fn known_jobs(states: &[JobRow]) -> Result<BTreeMap<String, Option<PathBuf>>, Failure> {
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
    for state in states {
        jobs.entry(state.about.name.clone()).or_insert(None);
    }
    Ok(jobs)
}

/// Returns what is known of those replicas of a job that are the active side, or about to be. They
/// are those that its file names, or without one all of which there is a state.
fn active(name: &str, typed: Option<&Path>, states: &[JobRow]) -> Result<Vec<JobRow>, Failure> {
    if let Some(job) = typed.and_then(|typed| job::read(typed).ok()) {
        return job::active(&job);
    }
    let of_job = states.iter().filter(|row| row.about.name == name);
    let active = of_job.filter(|row| row.role.role != Role::Following);
    Ok(active.cloned().collect())
}

/// Returns what the states of this user say of jobs, once for each replica.
fn kept_jobs() -> Result<Vec<JobRow>, Failure> {
    let Some(folder) = own::state_places().into_iter().next() else {
        return Ok(Vec::new());
    };
    let states = files_of(&folder, ".db")?;
    Ok(states.iter().filter_map(|state| job_of(state)).collect())
}

/// Returns the job whose mirror has this state; `None` for other databases.
fn job_of(state: &Path) -> Option<JobRow> {
    let file = state.file_name()?.to_str()?;
    let is_mirror = file.starts_with("mirror-");
    let view = is_mirror.then(|| MirrorState::look(state))?;
    view.ok()?.job().ok()
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
