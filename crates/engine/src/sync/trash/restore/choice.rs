//! Decides what becomes of an entry of the trash, by what was gathered before and by what the tree
//! has at its name. Entries come from the newest date to the oldest, so the first of a path is the
//! newest.

use driftless_model::{Kind, Meta, Scope};

/// An entry of the trash as it is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrashPiece {
    /// A directory that only leads to entries.
    Leading,
    /// A directory that was deleted.
    Dir,
    /// Another entry that was deleted.
    Other,
}

/// An entry that was gathered from newer dates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StagedEntry {
    /// No entry.
    Nothing,
    /// A directory that was made for entries below it, and has no attributes yet.
    Leading,
    /// A directory with its attributes.
    Dir,
    /// Another entry.
    Other,
}

/// An entry of the tree at the name that the restored entry is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupant {
    /// No entry.
    Nothing,
    /// A directory.
    Dir,
    /// Another entry.
    Other,
}

/// A decision about an entry of the trash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreChoice {
    /// Copies the entry and everything below it.
    Copy,
    /// Copies the attributes of a directory, and decides about each entry in it.
    Complete,
    /// Decides about each entry in a directory.
    Enter,
    /// Leaves the entry in the trash, because the tree has another at its name.
    Stay,
    /// Leaves the entry in the trash, because a newer one of its path comes back.
    Older,
}

impl TrashPiece {
    /// Returns the kind of piece of an entry.
    pub fn of(meta: &Meta, is_leading: bool) -> TrashPiece {
        match meta.kind {
            Kind::Dir if is_leading => TrashPiece::Leading,
            Kind::Dir => TrashPiece::Dir,
            _ => TrashPiece::Other,
        }
    }
}

impl StagedEntry {
    /// Returns the state of an entry that was gathered; `None` stands for no entry.
    pub fn of(found: Option<&Meta>, is_leading: bool) -> StagedEntry {
        match found.map(|meta| meta.kind) {
            None => StagedEntry::Nothing,
            Some(Kind::Dir) if is_leading => StagedEntry::Leading,
            Some(Kind::Dir) => StagedEntry::Dir,
            Some(_) => StagedEntry::Other,
        }
    }
}

impl Occupant {
    /// Returns the occupant of a name; `None` stands for no entry.
    pub fn of(found: Option<&Meta>) -> Occupant {
        match found.map(|meta| meta.kind) {
            None => Occupant::Nothing,
            Some(Kind::Dir) => Occupant::Dir,
            Some(_) => Occupant::Other,
        }
    }
}

impl RestoreChoice {
    /// Returns how much of the entry is copied at once; `None` if no part of it is.
    pub fn scope(self) -> Option<Scope> {
        match self {
            RestoreChoice::Copy => Some(Scope::Subtree),
            RestoreChoice::Complete => Some(Scope::Entry),
            RestoreChoice::Enter | RestoreChoice::Stay | RestoreChoice::Older => None,
        }
    }
}

/// Decides what becomes of an entry of the trash.
pub fn choose(piece: TrashPiece, gathered: StagedEntry, occupant: Occupant) -> RestoreChoice {
    match (piece, gathered, occupant) {
        (_, _, Occupant::Other) => RestoreChoice::Stay,
        (_, StagedEntry::Other, _) => RestoreChoice::Older,
        (TrashPiece::Other, StagedEntry::Nothing, Occupant::Dir) => RestoreChoice::Stay,
        (TrashPiece::Other, StagedEntry::Nothing, Occupant::Nothing) => RestoreChoice::Copy,
        (TrashPiece::Other, ..) => RestoreChoice::Older,
        (TrashPiece::Dir, StagedEntry::Nothing, Occupant::Nothing) => RestoreChoice::Copy,
        (TrashPiece::Dir, StagedEntry::Leading, Occupant::Nothing) => RestoreChoice::Complete,
        (TrashPiece::Leading | TrashPiece::Dir, ..) => RestoreChoice::Enter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_piece_of_each_path_comes_back() {
        use RestoreChoice::{Complete, Copy, Enter, Older, Stay};
        let gathered = [
            StagedEntry::Nothing,
            StagedEntry::Leading,
            StagedEntry::Dir,
            StagedEntry::Other,
        ];
        let occupants = [Occupant::Nothing, Occupant::Dir, Occupant::Other];
        // A row for each gathered entry, with a choice for each occupant.
        let table = [
            (
                TrashPiece::Leading,
                [
                    [Enter, Enter, Stay],
                    [Enter, Enter, Stay],
                    [Enter, Enter, Stay],
                    [Older, Older, Stay],
                ],
            ),
            (
                TrashPiece::Dir,
                [
                    [Copy, Enter, Stay],
                    [Complete, Enter, Stay],
                    [Enter, Enter, Stay],
                    [Older, Older, Stay],
                ],
            ),
            (
                TrashPiece::Other,
                [
                    [Copy, Stay, Stay],
                    [Older, Older, Stay],
                    [Older, Older, Stay],
                    [Older, Older, Stay],
                ],
            ),
        ];
        for (piece, rows) in table {
            for (gathered, row) in gathered.into_iter().zip(rows) {
                for (occupant, choice) in occupants.into_iter().zip(row) {
                    let case = (piece, gathered, occupant);
                    assert_eq!(choose(piece, gathered, occupant), choice, "{case:?}");
                }
            }
        }
    }
}
