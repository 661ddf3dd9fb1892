//! What is made of a drawn entry: agreement, drift, or a change that is too young to be called
//! drift. Decided on values alone.

use crate::inspect::{Found, Seen};
use driftless_model::{Action, Fault, Kind, Meta, Receipt, RelPath, Stamp, What};

/// Result of the comparison of a drawn entry.
#[derive(Debug, Clone, Copy)]
pub enum Draw<'a> {
    /// Equal on both sides.
    Same,
    /// On the replica only.
    ReplicaOnly,
    /// Different, as the receipt says.
    Differs(&'a Receipt),
    /// Not comparable: an error at the entry, or at a directory above it.
    Failed,
}

/// Outcome of a drawn entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Equal on both sides.
    Same,
    /// Different.
    Differs(Box<Mismatch>),
    /// On neither side any more.
    Vanished,
    /// Not comparable.
    Failed,
}

/// Class of a drawn entry in the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Equal on both sides.
    Same,
    /// Different, and changed a moment ago.
    Recent,
    /// Different.
    Drift,
}

/// A drawn entry that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// What would make it equal: `Create` what the replica lacks, `Delete` what the source lacks.
    /// With what differs otherwise.
    pub receipt: Receipt,
    /// When it was last changed, on either side.
    pub changed: Stamp,
    /// It was changed just before or during the audit.
    pub recent: bool,
}

impl Verdict {
    /// How the entry stands; `None` if that is not known.
    pub fn standing(&self) -> Option<Standing> {
        match self {
            Verdict::Same => Some(Standing::Same),
            Verdict::Differs(mismatch) if mismatch.recent => Some(Standing::Recent),
            Verdict::Differs(_) => Some(Standing::Drift),
            Verdict::Vanished | Verdict::Failed => None,
        }
    }
}

impl Found {
    /// What was found.
    pub fn meta(self) -> Option<Meta> {
        if let Found::There(meta) = self {
            Some(meta)
        } else {
            None
        }
    }

    /// Why nothing is known.
    pub fn fault(self) -> Option<Fault> {
        if let Found::Unknown(fault) = self {
            Some(fault)
        } else {
            None
        }
    }
}

impl Seen {
    /// The entry on the source, or else on the replica.
    pub fn meta(&self) -> Option<Meta> {
        self.source.meta().or(self.replica.meta())
    }
}

/// Decides what came of an entry. `seen` is what a second look found, which is there for all that
/// does not simply agree; what was changed since `since` is recent.
pub fn judge(path: &RelPath, draw: Draw<'_>, seen: Option<&Seen>, since: Stamp) -> Verdict {
    let (draw, seen) = match (draw, seen) {
        (Draw::Same, _) => return Verdict::Same,
        (_, None) => return Verdict::Failed,
        (draw, Some(seen)) => (draw, seen),
    };
    let differs = |receipt: Receipt, is_new: bool| {
        Verdict::Differs(Box::new(Mismatch {
            receipt,
            changed: seen.changed,
            recent: is_new || seen.changed >= since,
        }))
    };
    let one_sided = |meta: Meta, action| {
        let size = if meta.kind == Kind::File {
            meta.size
        } else {
            0
        };
        let (path, kind, what) = (path.clone(), meta.kind, What::default());
        Receipt {
            path,
            kind,
            action,
            what,
            size,
            values: Vec::new(),
            ranges: Vec::new(),
        }
    };
    match (seen.source, seen.replica, draw) {
        (Found::Missing(..), Found::Missing(..), _) => Verdict::Vanished,
        (Found::There(meta), Found::Missing(..), _) => {
            differs(one_sided(meta, Action::Create), false)
        }
        (Found::Missing(..), Found::There(meta), _) => {
            differs(one_sided(meta, Action::Delete), false)
        }
        // The source lacked it a moment ago.
        (Found::There(meta), Found::There(_), Draw::ReplicaOnly) => {
            differs(one_sided(meta, Action::Delete), true)
        }
        (Found::There(_), Found::There(_), Draw::Differs(receipt)) => {
            differs(receipt.clone(), receipt.action == Action::Create)
        }
        _ => Verdict::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::Act;
    use driftless_model::Side;

    const SINCE: Stamp = Stamp { sec: 100, nsec: 5 };
    const OLD: Stamp = Stamp { sec: 100, nsec: 4 };

    fn there(kind: Kind) -> Found {
        let stamp = OLD;
        let (mode, uid, gid, size, blocks, nlink, dev, ino, rdev) = (0o644, 0, 0, 7, 8, 1, 1, 1, 0);
        Found::There(Meta {
            kind,
            mode,
            uid,
            gid,
            size,
            blocks,
            mtime: stamp,
            atime: stamp,
            ctime: stamp,
            nlink,
            dev,
            ino,
            rdev,
            unkept: driftless_model::Unkept::NONE,
        })
    }

    fn receipt(action: Action) -> Receipt {
        let path = RelPath::parse(b"a").expect("a path");
        Receipt {
            path,
            kind: Kind::File,
            action,
            what: What::MODE,
            size: 7,
            values: Vec::new(),
            ranges: Vec::new(),
        }
    }

    /// `same`, `vanished`, `failed`, or `drift` or `recent` and what would make it equal.
    fn outcome(draw: Draw<'_>, source: Found, replica: Found, changed: Stamp) -> String {
        let seen = Seen {
            source,
            replica,
            changed,
        };
        match judge(&RelPath::root(), draw, Some(&seen), SINCE) {
            Verdict::Same => "same".into(),
            Verdict::Vanished => "vanished".into(),
            Verdict::Failed => "failed".into(),
            Verdict::Differs(mismatch) => {
                let word = if mismatch.recent { "recent" } else { "drift" };
                format!("{word} {}", mismatch.receipt.action.word())
            }
        }
    }

    #[test]
    fn what_came_of_an_entry_follows_from_a_second_look() {
        let (file, none) = (there(Kind::File), Found::Missing(0, OLD));
        let unknown = Found::Unknown(Fault {
            side: Side::Source,
            act: Act::LookAt,
            errno: 13,
        });
        let (meta, create) = (receipt(Action::Meta), receipt(Action::Create));
        let cases = [
            (Draw::Same, none, none, OLD, "same"),
            (Draw::ReplicaOnly, none, file, OLD, "drift delete"),
            (Draw::ReplicaOnly, none, file, SINCE, "recent delete"),
            (Draw::ReplicaOnly, none, none, OLD, "vanished"),
            (Draw::ReplicaOnly, file, file, OLD, "recent delete"),
            (Draw::ReplicaOnly, unknown, file, OLD, "failed"),
            (Draw::Differs(&create), file, none, OLD, "drift create"),
            (Draw::Differs(&create), file, none, SINCE, "recent create"),
            (Draw::Differs(&create), file, file, OLD, "recent create"),
            (Draw::Differs(&meta), file, file, OLD, "drift meta"),
            (Draw::Differs(&meta), file, file, SINCE, "recent meta"),
            (Draw::Differs(&meta), none, file, OLD, "drift delete"),
            (Draw::Differs(&meta), none, none, OLD, "vanished"),
            (Draw::Differs(&meta), file, unknown, OLD, "failed"),
            (Draw::Failed, file, file, OLD, "failed"),
            (Draw::Failed, none, file, SINCE, "recent delete"),
            (Draw::Failed, none, none, OLD, "vanished"),
        ];
        for (draw, source, replica, changed, expected) in cases {
            assert_eq!(
                outcome(draw, source, replica, changed),
                expected,
                "{draw:?} {source:?} {replica:?} {changed:?}"
            );
        }
    }
}
