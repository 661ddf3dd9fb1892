//! Paths of which none stands below another: where all below each of some paths is meant, these say
//! the same with the fewest.

use super::Move;
use driftless_model::RelPath;
use std::collections::BTreeSet;

/// The uppermost of some paths.
#[derive(Debug, Clone, Default)]
pub(super) struct Tops(BTreeSet<RelPath>);

impl Tops {
    /// Both names of each of these renames.
    pub(super) fn of<'a>(moves: impl Iterator<Item = &'a Move>) -> Tops {
        let mut tops = Tops::default();
        moves.for_each(|one| tops.insert_both(one));
        tops
    }

    /// Both names of a rename.
    pub(super) fn insert_both(&mut self, renamed: &Move) {
        self.insert(&renamed.from);
        self.insert(&renamed.to);
    }

    /// All below `path` is meant, too.
    pub(super) fn insert(&mut self, path: &RelPath) {
        if self.has_above(path) {
            return;
        }
        let below: Vec<RelPath> = self.below(path).cloned().collect();
        for path in below {
            self.0.remove(&path);
        }
        self.0.insert(path.clone());
    }

    /// Where a rename takes something of what is meant, all at its new name is meant, too. The old
    /// names stay.
    pub(super) fn follow(&mut self, renamed: &Move) {
        if self.is_near(&renamed.from) {
            self.insert(&renamed.to);
        }
    }

    /// Whether one of them is `path`, or stands above it or below it.
    pub(super) fn is_near(&self, path: &RelPath) -> bool {
        self.has_above(path) || self.below(path).next().is_some()
    }

    /// Each of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &RelPath> {
        self.0.iter()
    }

    /// Them, or the whole tree where they are more than `max`.
    pub(super) fn at_most(self, max: usize) -> Vec<RelPath> {
        match self.0.len() > max {
            true => vec![RelPath::root()],
            false => self.0.into_iter().collect(),
        }
    }

    /// Whether `path` is one of them or stands below one.
    pub(super) fn has_above(&self, path: &RelPath) -> bool {
        self.0.contains(path) || path.above().any(|dir| self.0.contains(&dir))
    }

    fn below(&self, path: &RelPath) -> impl Iterator<Item = &RelPath> {
        let at = self.0.get(path).into_iter();
        at.chain(self.0.range::<[u8], _>(path.below()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    fn renamed(from: &str, to: &str) -> Move {
        Move {
            from: path(from),
            to: path(to),
            since: Duration::ZERO,
            is_dir: true,
        }
    }

    #[test]
    fn none_stands_below_another() {
        let moves = [
            renamed("a/b", "a-b"),
            renamed("a", "c"),
            renamed("c/d", "a/e"),
        ];
        let tops = Tops::of(moves.iter());
        assert_eq!(tops.clone().at_most(3), ["a", "a-b", "c"].map(path));
        assert_eq!(tops.at_most(2), [RelPath::root()]);
    }

    #[test]
    fn what_a_rename_takes_from_above_or_below_is_followed() {
        for (from, is_taken) in [("a", true), ("a/b", true), ("a/b/c", true), ("a/c", false)] {
            let mut tops = Tops::default();
            tops.insert(&path("a/b"));
            tops.follow(&renamed(from, "d"));
            assert_eq!(tops.is_near(&path("d")), is_taken, "{from}");
            assert!(tops.is_near(&path("a/b")), "{from}");
        }
    }
}
