//! Names that the replica's file system stores in a spelling of its own, whatever that is: nothing
//! goes under it, nor under any other spelling that leads there.

use crate::sync::hashes::HASHES_MAX;
use crate::sync::run::Run;
use crate::trees::looks::{believed_twice, there};
use crate::trees::shown::has_as_given;
use driftless_model::{Kind, Meta, RelPath};
use driftless_reconcile::fold;
use driftless_tree::{DirMutRef, DirRef, Done, NameHashes, windows};
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};

/// Names that are to go and that no listing shows, by the inode that they lead to.
type Hidden<'a> = HashMap<(u64, u64), Vec<&'a CStr>>;

/// What stays in a directory of the replica, although names of it that lead there are to go.
#[derive(Default)]
pub struct Stored {
    /// Inodes that a name leads to which stays.
    inodes: HashSet<(u64, u64)>,
    /// Names that are others to the source, and to the replica the same as one that stays.
    names: HashSet<CString>,
}

/// What becomes of a name of the replica that is to go.
pub enum Kept {
    /// It goes.
    Not,
    /// It stays.
    Stays,
    /// It may be the same name as one that stays, or a further name of the same file.
    Untold,
}

impl Stored {
    /// Returns what becomes of a name that leads to an entry like `meta`.
    pub fn keeps(&self, name: &CStr, meta: &Meta) -> Kept {
        let is_single = meta.kind == Kind::Dir || meta.nlink == 1;
        match self.inodes.contains(&meta.id()) {
            true if is_single || self.names.contains(name) => Kept::Stays,
            true => Kept::Untold,
            false => Kept::Not,
        }
    }

    fn add(&mut self, id: (u64, u64), staying: &CStr, hidden: &Hidden<'_>) {
        self.inodes.insert(id);
        let folded = fold(staying.to_bytes());
        let same = hidden.get(&id).into_iter().flatten();
        self.names.extend(
            same.filter(|name| fold(name.to_bytes()) == folded)
                .map(|name| CString::from(*name)),
        );
    }
}

/// The inodes of a directory of the replica that stay: those that are found by a name of the source
/// which no listing of the replica shows, and those of names which are to go and which no listing
/// shows either, if any name of the source leads there. `names` are to go from there.
///
/// Where the file system is not known to have names as they were given, that costs two listings
/// even if they show all of them. The rules say nothing of those names, unless what they leave out
/// is to go.
pub fn stored_otherwise(
    run: &Run<'_>,
    (path, names): (&RelPath, &[CString]),
    (source, replica): (&DirRef, &DirMutRef),
) -> Done<Stored> {
    if has_as_given(replica, names) {
        return Ok(Stored::default());
    }
    let mut shown = NameHashes::default();
    let mut unseen: HashSet<&CStr> = names.iter().map(|name| &**name).collect();
    for names in windows(replica)? {
        let names = names?;
        // What has no room here is looked at.
        if shown.len() < HASHES_MAX {
            shown.add(&names);
        }
        (0..names.len()).for_each(|number| {
            unseen.remove(names.get(number).0);
        });
    }
    let mut hidden = Hidden::new();
    for name in unseen {
        if let Some(meta) = there(replica.look(name))? {
            hidden.entry(meta.id()).or_default().push(name);
        }
    }
    let mut stored = Stored::default();
    for names in windows(source)? {
        let names = names?;
        for name in (0..names.len())
            .map(|number| names.get(number).0)
            .filter(|name| !hidden.is_empty() || !shown.contains(name))
        {
            let Some(meta) = there(believed_twice(|| replica.look(name)))? else {
                continue;
            };
            let stays = hidden.contains_key(&meta.id()) || !shown.contains(name);
            if stays && (!run.options.policy.delete_excluded || takes(run, (path, name), &meta)) {
                stored.add(meta.id(), name, &hidden);
            }
        }
    }
    keep_protected(run, path, replica, &hidden, &mut stored)?;
    Ok(stored)
}

/// Adds what the rules leave out under the spelling that the replica lists.
fn keep_protected(
    run: &Run<'_>,
    path: &RelPath,
    replica: &DirMutRef,
    hidden: &Hidden<'_>,
    stored: &mut Stored,
) -> Done {
    let policy = &run.options.policy;
    if hidden.is_empty() || !policy.filter.has_rules() || policy.delete_excluded {
        return Ok(());
    }
    for names in windows(replica)? {
        let names = names?;
        for name in (0..names.len()).map(|number| names.get(number).0) {
            if let Some(meta) = there(replica.look(name))?
                && hidden.contains_key(&meta.id())
                && !takes(run, (path, name), &meta)
            {
                stored.add(meta.id(), name, hidden);
            }
        }
    }
    Ok(())
}

fn takes(run: &Run<'_>, (path, name): (&RelPath, &CStr), meta: &Meta) -> bool {
    let is_dir = meta.kind == Kind::Dir;
    let filter = &run.options.policy.filter;
    filter.takes(path.join(name.to_bytes()).as_bytes(), is_dir)
}
