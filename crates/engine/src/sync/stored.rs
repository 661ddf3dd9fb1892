//! Names that the replica's file system stores in a spelling of its own, whatever that is: nothing
//! goes under it.

use crate::sync::hashes::HASHES_MAX;
use crate::sync::run::Run;
use crate::trees::looks::{believed_twice, there};
use driftless_model::{Kind, RelPath};
use driftless_tree::{DirMutRef, DirRef, Done, NameHashes, windows};
use std::collections::HashSet;

/// The inodes of a directory of the replica that are found by a name of the source which no listing
/// of the replica shows.
///
/// Where the listing shows all of them, that costs the two listings. The rules say nothing of those
/// names, unless what they leave out is to go.
pub fn stored_otherwise(
    run: &Run<'_>,
    path: &RelPath,
    (source, replica): (&DirRef, &DirMutRef),
) -> Done<HashSet<(u64, u64)>> {
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
