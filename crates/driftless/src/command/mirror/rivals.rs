//! Other jobs of this user whose mirrors run on this host: a replica belongs to one job, and two
//! trees are kept equal in one direction.
//!
//! A mirror that is paused has let go of its trees, so no lock tells of it.

use super::{Failure, places};
use crate::command::job;
use crate::exit::Exit;
use crate::own;
use driftless_mirror::job::Job;
use driftless_model::cause;
use driftless_state::mirror::{About, MirrorState};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Refuses a job that would work against another one whose mirror runs, paused or not.
///
/// Asked when this mirror answers others itself: of two that begin at the same time, at least one
/// sees the other.
pub fn refuse(job: &Job) -> Result<(), Failure> {
    refuse_if(job, clash)
}

/// Refuses a job whose replica the running mirror of another job changes.
pub fn refuse_at_replica(job: &Job) -> Result<(), Failure> {
    refuse_if(job, same_replica)
}

/// Source and replica.
type Trees = (PathBuf, PathBuf);

fn refuse_if(job: &Job, why: fn(&Trees, &About) -> Option<String>) -> Result<(), Failure> {
    let others = others(job)?;
    for one in job.apart() {
        let trees = places::trees(&one.source, &one.replicas[0]);
        for other in &others {
            if let Some(why) =
                why(&trees, other).filter(|_| job::runs(&other.name).unwrap_or(false))
            {
                return Err((Exit::Refused, format!("{}: {why}", job.name)));
            }
        }
    }
    Ok(())
}

/// Why two jobs cannot be kept at the same time, if so. Trees that lie within those of another job
/// may be left out there.
fn clash(trees: &Trees, other: &About) -> Option<String> {
    let (source, replica) = trees;
    let (name, its) = (&other.name, places::trees(&other.source, &other.replica));
    let turned = || {
        format!(
            "the job {name}, whose mirror runs, keeps the same trees equal in the other direction, and each would undo what the other does: stop one of them"
        )
    };
    let is_turned = *source == its.1 && *replica == its.0;
    same_replica(trees, other).or_else(|| is_turned.then(turned))
}

/// Returns why two jobs cannot be kept that have one replica.
fn same_replica((_, replica): &Trees, other: &About) -> Option<String> {
    let (name, its) = (&other.name, places::trees(&other.source, &other.replica));
    (*replica == its.1).then(|| {
        format!(
            "its replica is that of the job {name}, whose mirror runs: stop one of them, or name another replica"
        )
    })
}

/// What other jobs of this user have had mirrors on this host.
#[allow(
    clippy::disallowed_methods,
    reason = "our own folder, no part of a replicated tree"
)]
fn others(job: &Job) -> Result<Vec<About>, Failure> {
    let failed = |why: String| (Exit::CouldNotRun, format!("{}: {why}", job.name));
    let folder = own::state_folder().map_err(failed)?;
    let entries = std::fs::read_dir(&folder).map_err(|error| failed(cause(&error)))?;
    let states = entries.flatten().map(|entry| entry.path());
    // What cannot be read is of another version, or about to go.
    let about = |path: PathBuf| Some(MirrorState::look(&path).ok()?.job().ok()?.about);
    let all = states.filter(|path| is_state(path)).filter_map(about);
    Ok(all.filter(|about| about.name != job.name).collect())
}

fn is_state(path: &Path) -> bool {
    let name = path.file_name().map_or(&b""[..], OsStr::as_bytes);
    name.starts_with(b"mirror-") && name.ends_with(b".db")
}
