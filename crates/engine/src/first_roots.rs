//! Directories that a run found at its roots first, before it lost a connection.
//!
//! A run opens its trees anew after each lost connection. Meanwhile a user may unmount a file
//! system, mount another one, or replace a directory. The empty directory that stands there then
//! looks like a source from which everything was removed, or like a replica that is to be filled.
//! So each later pass compares the directories that it opens with those of the first pass.
//!
//! A mirror follows its source to another directory that a user puts in its place. It does not
//! follow the name of a host to another machine, unless that machine shows the same directory.

use driftless_lock::Mutex;
use driftless_model::Side;
use driftless_tree::{Dir, Done, Place};
use std::sync::Arc;

/// Identity of a directory, comparable across connections to its host.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    /// Boot of its host: device numbers mean nothing in another boot.
    machine: Vec<u8>,
    /// [`birthmark`](Dir::birthmark) of the directory.
    birthmark: Option<u128>,
    /// Device and inode number.
    id: (u64, u64),
}

impl Identity {
    fn of<D: Dir + ?Sized>(machine: Vec<u8>, dir: &Arc<D>) -> Done<Identity> {
        Ok(Identity {
            machine,
            birthmark: dir.birthmark()?,
            id: dir.first_meta().id(),
        })
    }

    /// Returns whether both are of one directory. A file system either tells times of birth or
    /// does not, so a directory with a birthmark is never one without.
    fn is_same(&self, now: &Identity) -> bool {
        let ((device, inode), (device_now, inode_now)) = (self.id, now.id);
        match (self.birthmark, now.birthmark) {
            (Some(first), Some(now)) => first == now,
            (None, None) => {
                inode == inode_now && (self.machine != now.machine || device == device_now)
            }
            _ => false,
        }
    }
}

/// Root as a pass found it.
#[derive(Debug, Clone)]
enum Found {
    /// The root is a directory.
    Dir(Identity),
    /// The root is another entry of this directory.
    Entry(Identity),
    /// The root is missing in this directory.
    Missing(Identity),
}

impl Found {
    fn machine(&self) -> &[u8] {
        let (Found::Dir(at) | Found::Entry(at) | Found::Missing(at)) = self;
        &at.machine
    }

    /// Returns whether a later pass may find `now`. The run itself makes a root that is missing.
    fn may_become(&self, now: &Found) -> bool {
        use Found::{Dir, Entry, Missing};
        match (self, now) {
            (Dir(first), Dir(now)) | (Entry(first) | Missing(first), Entry(now) | Missing(now)) => {
                first.is_same(now)
            }
            (Missing(_), Dir(_)) => true,
            (Dir(_), Entry(_) | Missing(_)) | (Entry(_), Dir(_)) => false,
        }
    }
}

/// Both roots as the first pass of a run found or made them.
#[derive(Debug, Default)]
pub struct FirstRoots {
    source: Mutex<Option<Found>>,
    replica: Mutex<Option<Found>>,
    /// Whether the source may become another directory of its machine. The replica, which its mark
    /// tells, may then become any.
    follows: bool,
}

impl FirstRoots {
    /// Returns those of a mirror, which notes no root before it opens one.
    pub fn of_mirror() -> FirstRoots {
        FirstRoots {
            follows: true,
            ..FirstRoots::default()
        }
    }

    /// Returns whether the root is the one that the first pass found; the first call notes it.
    ///
    /// # Errors
    /// The directory cannot be looked at.
    pub fn is_first<D: Dir + ?Sized>(
        &self,
        (side, machine): (Side, Vec<u8>),
        place: &Place<Arc<D>>,
    ) -> Done<bool> {
        let identity = Identity::of(machine, place.dir())?;
        let now = match place {
            Place::Dir(_) => Found::Dir(identity),
            Place::Entry { .. } => Found::Entry(identity),
            Place::Missing { .. } => Found::Missing(identity),
        };
        let mut first = self.of(side).lock();
        let is_followed = |first: &Found| {
            self.follows && (side == Side::Replica || first.machine() == now.machine())
        };
        let may_be = first
            .as_ref()
            .is_none_or(|first| is_followed(first) || first.may_become(&now));
        if may_be {
            *first = Some(now);
        }
        Ok(may_be)
    }

    /// Notes the directory that the run has made as the root of its replica.
    ///
    /// # Errors
    /// The directory cannot be looked at.
    pub fn note_made<D: Dir + ?Sized>(&self, machine: Vec<u8>, dir: &Arc<D>) -> Done {
        *self.replica.lock() = Some(Found::Dir(Identity::of(machine, dir)?));
        Ok(())
    }

    fn of(&self, side: Side) -> &Mutex<Option<Found>> {
        match side {
            Side::Source => &self.source,
            Side::Replica => &self.replica,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(machine: &str, birthmark: Option<u128>, id: (u64, u64)) -> Identity {
        Identity {
            machine: machine.into(),
            birthmark,
            id,
        }
    }

    #[test]
    fn directory_is_known_by_birth_or_by_number() {
        let (born, numbered) = (identity("a", Some(7), (1, 2)), identity("a", None, (1, 2)));
        let cases = [
            (&born, identity("a", Some(7), (1, 2)), true),
            (&born, identity("b", Some(7), (9, 2)), true),
            (&born, identity("a", Some(8), (1, 2)), false),
            (&born, numbered.clone(), false),
            (&numbered, born.clone(), false),
            (&numbered, identity("a", None, (1, 2)), true),
            (&numbered, identity("a", None, (1, 3)), false),
            (&numbered, identity("a", None, (9, 2)), false),
            (&numbered, identity("b", None, (9, 2)), true),
            (&numbered, identity("b", None, (1, 3)), false),
        ];
        for (number, (first, now, expected)) in cases.into_iter().enumerate() {
            assert_eq!(first.is_same(&now), expected, "case {number}");
        }
    }

    #[test]
    fn only_missing_root_may_become_directory() {
        let at = |birthmark| identity("a", Some(birthmark), (1, 2));
        let cases = [
            (Found::Dir(at(1)), Found::Dir(at(1)), true),
            (Found::Dir(at(1)), Found::Dir(at(2)), false),
            (Found::Dir(at(1)), Found::Missing(at(1)), false),
            (Found::Dir(at(1)), Found::Entry(at(1)), false),
            (Found::Missing(at(1)), Found::Dir(at(2)), true),
            (Found::Missing(at(1)), Found::Entry(at(1)), true),
            (Found::Missing(at(1)), Found::Missing(at(2)), false),
            (Found::Entry(at(1)), Found::Missing(at(1)), true),
            (Found::Entry(at(1)), Found::Entry(at(2)), false),
            (Found::Entry(at(1)), Found::Dir(at(2)), false),
        ];
        for (number, (first, now, expected)) in cases.into_iter().enumerate() {
            assert_eq!(first.may_become(&now), expected, "case {number}");
        }
    }
}
