//! The earlier copy that a run links to (`--link-dest`): a third tree, which the run must not change.
//!
//! Where the copy lies in the replica, the run deletes it or writes to it; where it lies in the
//! source, each link changes a file that is being copied; where the replica lies in it, all that
//! the run makes is part of it. Such a copy is refused before anything is touched, unless the run
//! leaves it out.

use crate::options::Options;
use crate::trees::error::RunError;
use crate::trees::overlap::{leaves_out, typed_pattern};
use crate::trees::replica::Replica;
use driftless_model::{RelPath, SNAPSHOTS};
use driftless_tree::{DirRef, Endpoint, descend, shown_below};
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// Refuses an earlier copy that the run would change.
pub fn refuse_changed_copy(
    options: &Options,
    (copy, at): (&DirRef, &Endpoint),
    source: &DirRef,
    replica: &Replica,
) -> Result<(), RunError> {
    let refuse = |why: &str, way: Option<&RelPath>| {
        let names = way.map(|way| way.names().collect::<Vec<_>>());
        let rule = names.and_then(|names| typed_pattern(&names));
        let rule = rule.map_or_else(String::new, |rule| {
            format!(", or leave it out with --exclude '{rule}'")
        });
        Err(RunError::Unusable {
            path: at.to_string(),
            cause: format!(
                "cannot be the earlier copy (--link-dest): {why}; name a copy that lies elsewhere{rule}"
            ),
        })
    };
    let (Replica::There(near) | Replica::Missing(near, _)) = replica;
    let near: DirRef = near.clone();
    if let Replica::There(root) = replica {
        if root.first_meta().id() == copy.first_meta().id() {
            return refuse("it is the replica of this run", None);
        }
        for way in ways((&near, &options.replica), (copy, at))? {
            if is_changed(options, source, way.as_ref()) {
                let rule = way.as_ref().filter(|_| !options.policy.delete_excluded);
                let why = "it lies in the replica of this run, which would delete or change it";
                return refuse(why, rule);
            }
        }
    }
    for way in ways_to_replica((copy, at), (&near, replica), options)? {
        if !is_left_out(options, way.as_ref()) {
            return refuse("the replica of this run lies in it", None);
        }
    }
    if !options.is_one_machine() {
        return Ok(());
    }
    for way in ways((source, &options.source), (copy, at))? {
        let devices = (copy.first_meta().dev, source.first_meta().dev);
        if !options.is_foreign(devices.0, devices.1) && !is_left_out(options, way.as_ref()) {
            let why = "it lies in the source of this run, and each link to it changes a file there";
            return refuse(why, way.as_ref());
        }
    }
    Ok(())
}

/// Returns the ways from the directory `outer` down to `inner`, none if that does not lie in it;
/// `None` for a way whose names are not known.
fn ways(
    (outer, outer_at): (&DirRef, &Endpoint),
    (inner, inner_at): (&DirRef, &Endpoint),
) -> Result<Vec<Option<RelPath>>, RunError> {
    let above = inner.lineage().map_err(|fault| RunError::Unusable {
        path: inner_at.to_string(),
        cause: fault.to_string(),
    })?;
    let outer_id = outer.first_meta().id();
    let levels = above.iter().position(|level| level.id == outer_id);
    let mut found = Vec::new();
    if let Some(levels) = levels.filter(|levels| *levels > 0) {
        let names = above[..levels].iter().rev();
        let names: Option<Vec<&[u8]>> = names
            .map(|level| level.name.as_ref().map(|name| name.as_bytes()))
            .collect();
        found.push(names.map(RelPath::from_names));
    }
    if outer_at.host.is_none() && inner_at.host.is_none() {
        let is_inner = |path: &RelPath| {
            let shown = descend(outer, path);
            shown.is_ok_and(|dir| dir.first_meta().id() == inner.first_meta().id())
        };
        let shown = shown_below(&outer_at.plain_path(), &inner_at.plain_path());
        found.extend(shown.into_iter().filter(is_inner).map(Some));
    }
    Ok(found)
}

/// Returns the ways from the earlier copy down to the replica, which may still have to be made.
fn ways_to_replica(
    (copy, at): (&DirRef, &Endpoint),
    (near, replica): (&DirRef, &Replica),
    options: &Options,
) -> Result<Vec<Option<RelPath>>, RunError> {
    let Replica::Missing(_, name) = replica else {
        return ways((copy, at), (near, &options.replica));
    };
    let above = options.replica.plain_path();
    let above = above.parent().map_or_else(PathBuf::new, Path::to_owned);
    let mut found = ways((copy, at), (near, &options.replica.at(above)))?;
    if near.first_meta().id() == copy.first_meta().id() {
        found.push(Some(RelPath::root()));
    }
    let to_name = |way: Option<RelPath>| way.map(|way| way.join(name.to_bytes()));
    Ok(found.into_iter().map(to_name).collect())
}

/// Whether the run leaves out the directory at the end of a way below a root. What lies in the
/// folder of snapshots is left out by each run.
fn is_left_out(options: &Options, way: Option<&RelPath>) -> bool {
    let Some(way) = way else { return false };
    let names: Vec<&[u8]> = way.names().collect();
    let is_snapshot = names.len() > 1 && names[0] == SNAPSHOTS.to_bytes();
    is_snapshot || leaves_out(options, &names)
}

/// Whether the run deletes or changes what lies at the end of a way below its replica.
fn is_changed(options: &Options, source: &DirRef, way: Option<&RelPath>) -> bool {
    if is_left_out(options, way) && !options.policy.delete_excluded {
        return false;
    }
    options.policy.delete || way.is_none_or(|way| may_have(source, way))
}

/// Whether the source has something at a path, or that cannot be told.
fn may_have(source: &DirRef, path: &RelPath) -> bool {
    let Some((above, name)) = path.split_last() else {
        return true;
    };
    let name = CString::new(name).expect("names hold no NUL");
    match descend(source, &above).and_then(|dir| dir.look(&name)) {
        Ok(_) => true,
        Err(fault) => !fault.is_missing(),
    }
}
