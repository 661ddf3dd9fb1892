//! The job that a mirror had last, as its state keeps it. What has failed under another job is tried at
//! once: a key that was in the way may have another value, such as a limit for deletes.

use crate::job::Job;
use driftless_state::mirror::Cursor;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// Name of the cursor that holds the hash of the job.
pub(crate) const CURSOR: &str = "job";

/// Returns what the state keeps of a job.
pub(crate) fn cursor(job: &Job, at: Duration) -> Cursor {
    let hash = xxh3_64(format!("{job:?}").as_bytes());
    Cursor {
        detector: CURSOR.into(),
        position: hash.to_be_bytes().to_vec(),
        at,
    }
}

/// Returns whether a state keeps another job; one that keeps none may be of this one.
pub(crate) fn is_other(kept: Option<Cursor>, job: &Job) -> bool {
    kept.is_some_and(|kept| kept.position != cursor(job, kept.at).position)
}
