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
        for place in places_of(path) {
            if let Some(why) = within(options, &place) {
                return Err(format!("{option} {}: {why}", quote(path)));
            }
        }
    }
    Ok(())
}

/// Returns why nothing may be made at a place: a tree of the run would take it in. `None` if that
/// is not so.
fn within(options: &Options, place: &Path) -> Option<String> {
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
        let below = below(&root.path, place)
            .filter(|below| !is_left_out(options, side, (&root.path, place), below));
        if let Some(below) = below {
            return Some(why((side, &root.path), &below));
        }
    }
    None
}

/// Rules that leave out our own folders for state, where they lie below a root: what runs note
/// there is never the same on both sides.
pub fn rules_for_state(roots: [&Path; 2]) -> Vec<Rule> {
    let places: Vec<PathBuf> = own::state_places()
        .iter()
        .filter_map(|place| made_at(place, LINKS_MAX))
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

/// Symbolic links that the kernel follows on the way to one path (path_resolution(7)).
const LINKS_MAX: u32 = 40;

/// Returns where a regular file is, or would be made, without symbolic links. Of anything else
/// nothing is made. In the place of a link that leads to nothing a program either makes the file
/// that the link names, or one that replaces the link.
#[allow(
    clippy::disallowed_methods,
    reason = "the user's own file, no part of a replicated tree"
)]
fn places_of(path: &Path) -> Vec<PathBuf> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() => std::fs::canonicalize(path).into_iter().collect(),
        Ok(_) => Vec::new(),
        Err(_) => {
            let beside = path
                .file_name()
                .and_then(|name| Some(made_at(folder_of(path), LINKS_MAX)?.join(name)));
            beside.into_iter().chain(made_at(path, LINKS_MAX)).collect()
        }
    }
}

/// Returns where something is, or would be made, without symbolic links; `None` if its path has
/// too many of them, or ends in `..` below something that is missing.
#[allow(
    clippy::disallowed_methods,
    reason = "the user's own file, no part of a replicated tree"
)]
fn made_at(path: &Path, links_max: u32) -> Option<PathBuf> {
    if let Ok(real) = std::fs::canonicalize(path) {
        return Some(real);
    }
    let folder = folder_of(path);
    if let Ok(target) = std::fs::read_link(path) {
        return made_at(&folder.join(target), links_max.checked_sub(1)?);
    }
    let name = path.file_name()?;
    Some(made_at(folder, links_max)?.join(name))
}

/// Returns the folder that holds what a path names.
fn folder_of(path: &Path) -> &Path {
    let folder = path.parent();
    folder
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// The way from a root to a file that is that root, or lies below it, wherever the root is mounted.
fn below(root: &Path, place: &Path) -> Option<RelPath> {
    let Some(id) = id_at(root) else {
        return (made_at(root, LINKS_MAX).as_deref() == Some(place)).then(RelPath::root);
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
