//! File systems that were mounted below a tree of a job and are not there now. A directory on which
//! nothing is mounted shows nothing of what the tree has there: nothing is brought from it or into
//! it, and no replica with such a directory becomes the active side.

use super::Failure;
use crate::exit::Exit;
use driftless_engine::{Options, mounted_below, not_gone};
use driftless_mirror::job::Job;
use driftless_mirror::worded::shown;
use driftless_model::RelPath;
use std::collections::BTreeSet;

/// Places that are named.
const NAMED_MAX: usize = 3;

/// Refuses a tree of a job, such as `the replica /srv/a`, below which something is not mounted any
/// more. The options name the tree as their source, and what is known to have been mounted there.
pub fn refuse(job: &Job, tree: &str, options: &Options) -> Result<(), Failure> {
    let gone = gone(options);
    if gone.is_empty() {
        return Ok(());
    }
    let mut places: Vec<String> = gone.iter().take(NAMED_MAX).map(shown).collect();
    if gone.len() > NAMED_MAX {
        places.push(format!("{} more places", gone.len() - NAMED_MAX));
    }
    let why = format!(
        "{}: {tree}: cannot tell what it has at {}: the file system there is not mounted now; mount it, or, if it was permanently removed, add --forget-mounts (nothing was changed)",
        job.name,
        places.join(", ")
    );
    Err((Exit::Refused, why))
}

/// Returns the known places on which nothing is mounted. A file that something is mounted on is no
/// directory that could be entered, so the list of the kernel is asked, too.
pub fn gone(options: &Options) -> BTreeSet<RelPath> {
    let known = &options.known_mounts;
    if known.is_empty() {
        return BTreeSet::new();
    }
    let listed: BTreeSet<RelPath> = match options.source.host {
        None => mounted_below(&options.source.plain_path()),
        Some(_) => BTreeSet::new(),
    }
    .into_iter()
    .map(|(place, _)| place)
    .collect();
    let there = not_gone(options);
    let is_gone = |place: &&RelPath| !there.contains(*place) && !listed.contains(*place);
    known.iter().filter(is_gone).cloned().collect()
}
