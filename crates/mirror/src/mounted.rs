//! Places below a replica on which file systems are mounted, as the state of a mirror keeps them.
//!
//! A directory on which nothing is mounted any more shows nothing of what the mirror has put there.
//! A failover or failback must not take it for a directory that people have emptied, and the mirror
//! that saw what was mounted there does not run then.

use driftless_engine::{MOUNTS_MAX, MountNotes};
use driftless_lock::Mutex;
use driftless_model::{RelPath, SNAPSHOTS};
use driftless_state::mirror::Cursor;
use std::collections::BTreeSet;
use std::time::Duration;

/// Name of the cursor that holds the places: each path with a NUL behind it.
pub(crate) const ON_REPLICA: &str = "mounts.replica";
/// Folder in which ZFS mounts a snapshot while a program looks into it.
const OF_ZFS: &[u8] = b".zfs";

/// Places below a replica of any host where the engine has met something mounted, since the comparison
/// of all began that is at work, or was last.
#[derive(Debug, Default)]
pub(crate) struct Met(Mutex<BTreeSet<RelPath>>);

impl Met {
    /// Forgets all of them.
    pub(crate) fn forget(&self) {
        self.0.lock().clear();
    }
}

impl MountNotes for Met {
    fn met(&self, paths: &BTreeSet<RelPath>) {
        let mut met = self.0.lock();
        let room = MOUNTS_MAX.saturating_sub(met.len());
        met.extend(paths.iter().take(room).cloned());
    }

    fn all(&self) -> BTreeSet<RelPath> {
        self.0.lock().clone()
    }
}

/// Returns what the state keeps of these places.
pub(crate) fn cursor(places: &BTreeSet<RelPath>, at: Duration) -> Cursor {
    let paths = places.iter().map(|path| [path.as_bytes(), b"\0"].concat());
    Cursor {
        detector: ON_REPLICA.into(),
        position: paths.collect::<Vec<_>>().concat(),
        at,
    }
}

/// Returns the places that a state names.
pub(crate) fn places(cursor: Option<Cursor>) -> BTreeSet<RelPath> {
    let position = cursor.map(|cursor| cursor.position).unwrap_or_default();
    let paths = position.split(|byte| *byte == 0);
    let paths = paths.filter_map(|path| RelPath::parse(path).ok());
    paths.filter(|path| !path.is_root()).collect()
}

/// Returns whether a place is one of the tree, and not of its snapshots.
pub(crate) fn is_of_tree(place: &RelPath) -> bool {
    let mut names = place.names();
    !names.any(|name| name == OF_ZFS || name == SNAPSHOTS.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    #[test]
    fn places_are_read_as_they_were_kept() {
        for all in [&[][..], &["a"], &["a/b", "a b\nc", "d"]] {
            let all: BTreeSet<RelPath> = all.iter().map(|text| path(text)).collect();
            assert_eq!(places(Some(cursor(&all, Duration::ZERO))), all);
        }
        assert_eq!(places(None), BTreeSet::new());
    }

    #[test]
    fn mounts_of_snapshots_are_none_of_the_tree() {
        for (text, expected) in [
            ("big", true),
            ("a/.zfsx", true),
            (".zfs/snapshot/one", false),
            ("a/.driftless-snapshots/one", false),
        ] {
            assert_eq!(is_of_tree(&path(text)), expected, "{text}");
        }
    }
}
