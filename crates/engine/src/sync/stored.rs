//! Names that the replica's file system stores in a spelling of its own, whatever that is: nothing
//! goes under it.

use crate::sync::hashes::HASHES_MAX;
use crate::sync::run::Run;
use crate::trees::folding::in_other_case;
use crate::trees::looks::{believed_twice, there};
use driftless_model::{Kind, RelPath};
use driftless_tree::{DirMutRef, DirRef, Done, NameHashes, has_names_as_given, windows};
use std::collections::HashSet;
use std::ffi::CString;

/// The inodes of a directory of the replica that are found by a name of the source which no listing
/// of the replica shows. `names` are to go from there.
///
/// Where the file system is not known to have names as they were given, that costs two listings
/// even if they show all of them. The rules say nothing of those names, unless what they leave out
/// is to go.
pub fn stored_otherwise(
    run: &Run<'_>,
    (path, names): (&RelPath, &[CString]),
    (source, replica): (&DirRef, &DirMutRef),
) -> Done<HashSet<(u64, u64)>> {
    if has_as_given(replica, names) {
        return Ok(HashSet::new());
    }
    let mut shown = NameHashes::default();
    for names in windows(replica)? {
        let names = names?;
        // What has no room here is looked at.
        if shown.len() < HASHES_MAX {
            shown.add(&names);
        }
    }
    let options = run.options;
    let mut found = HashSet::new();
    for names in windows(source)? {
        let names = names?;
        for name in (0..names.len())
            .map(|number| names.get(number).0)
            .filter(|name| !shown.contains(name))
        {
            let Some(meta) = there(believed_twice(|| replica.look(name)))? else {
                continue;
            };
            let is_dir = meta.kind == Kind::Dir;
            if !options.policy.delete_excluded
                || options
                    .policy
                    .filter
                    .takes(path.join(name.to_bytes()).as_bytes(), is_dir)
            {
                found.insert(meta.id());
            }
        }
    }
    Ok(found)
}

/// Whether the replica's directory is known to have names as they were given. A directory that
/// takes names for one in Unicode form does so in case as well (ext4's and tmpfs's `casefold`).
fn has_as_given(replica: &DirMutRef, names: &[CString]) -> bool {
    if !replica.as_local().is_some_and(has_names_as_given) {
        return false;
    }
    match names.iter().find_map(|name| in_other_case(name)) {
        Some(other) => matches!(there(replica.look(&other)), Ok(None)),
        None => names.iter().all(|name| name.to_bytes().is_ascii()),
    }
}
