//! Where other file systems begin below both trees of a pool: hosts may see different ones there.

use driftless_model::{RelPath, Scope};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Places that one word tells.
const PLACES_MAX: usize = 500;
/// Bytes of their paths.
const BYTES_MAX: usize = 64 << 10;

/// The topmost places below both trees on which something is mounted, as one host sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crossings {
    source: BTreeSet<RelPath>,
    replica: BTreeSet<RelPath>,
    /// There are more than one word tells, and none is told.
    are_too_many: bool,
}

impl Crossings {
    /// Those at these paths of the source and of the replica.
    pub fn new(source: BTreeSet<RelPath>, replica: BTreeSet<RelPath>) -> Crossings {
        Crossings {
            source: topmost(source),
            replica: topmost(replica),
            are_too_many: false,
        }
    }

    /// As they are told to others.
    #[must_use]
    pub fn told(self) -> Crossings {
        let places = || self.source.iter().chain(&self.replica);
        let bytes: usize = places().map(|path| path.as_bytes().len()).sum();
        if places().count() <= PLACES_MAX && bytes <= BYTES_MAX {
            return self;
        }
        Crossings {
            are_too_many: true,
            ..Crossings::default()
        }
    }

    /// Whether there are more than were told.
    pub fn are_too_many(&self) -> bool {
        self.are_too_many
    }

    /// Those of the source.
    pub fn of_source(&self) -> &BTreeSet<RelPath> {
        &self.source
    }

    /// Whether a look at a path, so far below, may come to one: it lies at or below one, or around
    /// it. Of the roots themselves no look at the entry alone does.
    pub fn are_met(&self, path: &RelPath, scope: Scope) -> bool {
        let goes_below = !path.is_root() || scope == Scope::Subtree;
        let meets = |place: &RelPath| path.is_within(place) || goes_below && place.is_within(path);
        self.source.iter().chain(&self.replica).any(meets)
    }
}

/// Those of the paths that do not lie below others of them.
fn topmost(paths: BTreeSet<RelPath>) -> BTreeSet<RelPath> {
    let is_topmost = |path: &&RelPath| !path.above().any(|above| paths.contains(&above));
    paths.iter().filter(is_topmost).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    fn paths(texts: &[&str]) -> BTreeSet<RelPath> {
        texts.iter().map(|text| path(text)).collect()
    }

    #[test]
    fn what_lies_at_below_or_around_a_place_meets_it() {
        let crossings = Crossings::new(paths(&["a/b", "a/b/c"]), paths(&["d"]));
        assert_eq!(crossings.of_source(), &paths(&["a/b"]), "the topmost");
        for (at, is_met) in [
            ("a", true),
            ("a/b", true),
            ("a/b/c/e", true),
            ("a/bc", false),
            ("a/e", false),
            ("d", true),
            ("d/e", true),
            ("e", false),
        ] {
            assert_eq!(crossings.are_met(&path(at), Scope::Entry), is_met, "{at}");
        }
        let root = RelPath::root();
        assert!(!crossings.are_met(&root, Scope::Entry));
        assert!(crossings.are_met(&root, Scope::Subtree));
        assert!(!Crossings::default().are_met(&root, Scope::Subtree));
    }

    #[test]
    fn more_than_a_word_tells_are_told_as_too_many() {
        let many: Vec<String> = (0..=PLACES_MAX).map(|place| place.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let few = Crossings::new(paths(&many[1..]), BTreeSet::new());
        assert_eq!(few.clone().told(), few);
        assert!(
            Crossings::new(paths(&many), BTreeSet::new())
                .told()
                .are_too_many()
        );
    }
}
