//! Files that a run writes for the user besides its replica, such as a log: never within the trees
//! that it works on.
//!
//! On the replica such a file is one that the source lacks, or something of the source takes its
//! place; on the source it changes while it is copied, and is never equal. So it is refused before
//! it is made, unless the run leaves it out. The folder in which all runs keep what they know may
//! lie in a tree, as in a home: every run leaves it out.

use crate::output::product::id_at;
use crate::own;
use driftless_engine::{Options, leaves_out_file, rule_for, rule_for_dir};
use driftless_model::{RelPath, Rule, Side, quote};
use driftless_remote::Target;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Refuses files that lie within a tree of the run. Each has the option that names it.
pub fn refuse_within_trees(
    outputs: &[(&str, Option<&Path>)],
    options: &Options,
) -> Result<(), String> {
    for (option, path) in outputs
        .iter()
        .filter_map(|(option, path)| Some((option, (*path)?)))
    {
        let Some(place) = place_of(path) else {
            continue;
        };
        for (side, root) in [
            (Side::Source, &options.source),
            (Side::Replica, &options.replica),
        ] {
            let Some(root) = Target::parse(root.path.as_os_str())
                .ok()
                .filter(|target| target.host.is_none())
            else {
                continue;
            };
            let Some(below) = below(&root.path, &place)
                .filter(|below| !is_left_out(options, side, (&root.path, &place), below))
            else {
                continue;
            };
            return Err(format!(
                "{option} {}: {}",
                quote(path),
                why((side, &root.path), &below)
            ));
        }
    }
    Ok(())
}

/// Rules that leave out our own folders for state, where they lie below a root: what runs note
/// there is never the same on both sides.
pub fn rules_for_state(roots: [&Path; 2]) -> Vec<Rule> {
    let places: Vec<PathBuf> = own::state_places()
        .iter()
        .filter_map(|place| real_path(place))
        .collect();
    let here =
        |root: &&Path| Target::parse(root.as_os_str()).is_ok_and(|target| target.host.is_none());
    let paths = roots
        .into_iter()
        .filter(here)
        .flat_map(|root| places.iter().filter_map(|place| below(root, place)));
    let rules = paths
        .filter(|path| !path.is_root())
        .filter_map(|path| rule_for_dir(&path));
    rules
        .filter_map(|rule| Rule::new(false, &rule).ok())
        .collect()
}

#[allow(
    clippy::disallowed_methods,
    reason = "our own folder, no part of a replicated tree"
)]
fn real_path(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()
}

fn why((side, root): (Side, &Path), below: &RelPath) -> String {
    let (what, root) = (side.word(), quote(root));
    if below.is_root() {
        return format!("it is the {what} of this run, {root}; name another file");
    }
    let what_for = match side {
        Side::Source => "where it would change while it is copied",
        Side::Replica => "where the run would delete or replace it",
    };
    let rule = rule_for(below)
        .map(|rule| format!(", or leave it out with --exclude '{rule}'"))
        .unwrap_or_default();
    format!("it lies in the {what} of this run, {root}, {what_for}; name a file elsewhere{rule}")
}

/// Where a regular file is, or would be made, without symbolic links. Of anything else nothing is
/// made.
#[allow(
    clippy::disallowed_methods,
    reason = "the user's own file, no part of a replicated tree"
)]
fn place_of(path: &Path) -> Option<PathBuf> {
    match std::fs::metadata(path) {
        Ok(meta) => std::fs::canonicalize(path).ok().filter(|_| meta.is_file()),
        Err(_) => {
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            Some(std::fs::canonicalize(folder).ok()?.join(path.file_name()?))
        }
    }
}

/// The way from a root to a file that is that root, or lies below it, wherever the root is mounted.
fn below(root: &Path, place: &Path) -> Option<RelPath> {
    let Some(id) = id_at(root) else {
        return (place_of(root).as_deref() == Some(place)).then(RelPath::root);
    };
    let at = place.ancestors().find(|above| id_at(above) == Some(id))?;
    RelPath::parse(place.strip_prefix(at).ok()?.as_os_str().as_bytes()).ok()
}

/// Whether the run neither copies nor deletes it.
#[allow(
    clippy::disallowed_methods,
    reason = "a path that the user named, no part of a replicated tree"
)]
fn is_left_out(
    options: &Options,
    side: Side,
    (root, place): (&Path, &Path),
    below: &RelPath,
) -> bool {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|meta| meta.dev());
    let is_foreign = || {
        options.policy.one_file_system
            && side == Side::Source
            && place.parent().is_some_and(|at| device(at) != device(root))
    };
    let goes_all_the_same = options.policy.delete_excluded && side == Side::Replica;
    !below.is_root() && (is_foreign() || !goes_all_the_same && leaves_out_file(options, below))
}
