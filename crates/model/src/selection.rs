//! Which parts of a tree a run looks at: all of it, or the paths of a list and what lies below them.
//!
//! A list becomes a tree of names, so that parents are met once, before and after their children.

use crate::{RelPath, Scope, Work};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node of the tree of chosen paths. Memory grows with the list that was given, not with the trees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The entry and everything below it is chosen.
    pub whole: bool,
    /// Chosen names below this one; not looked at when `whole`.
    pub children: BTreeMap<Box<[u8]>, Arc<Selection>>,
}

impl Selection {
    /// The whole tree.
    pub fn all() -> Self {
        Selection { whole: true, children: BTreeMap::new() }
    }

    /// The union of pieces of work.
    pub fn of(works: &[Work]) -> Self {
        let mut root = Selection::default();
        works.iter().for_each(|work| root.add(&work.path, work.scope));
        root
    }

    fn add(&mut self, path: &RelPath, scope: Scope) {
        let mut node = self;
        for name in path.names() {
            if node.whole {
                return;
            }
            node = Arc::make_mut(node.children.entry(name.into()).or_default());
        }
        node.whole |= scope == Scope::Subtree;
    }
}

impl Drop for Selection {
    /// Lets go of deep paths one name after the other: recursion would overflow the stack.
    fn drop(&mut self) {
        let mut rest: Vec<Arc<Selection>> = std::mem::take(&mut self.children).into_values().collect();
        while let Some(node) = rest.pop() {
            if let Some(mut last) = Arc::into_inner(node) {
                rest.extend(std::mem::take(&mut last.children).into_values());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_any_depth_is_let_go_of() {
        let path = RelPath::from_names(std::iter::repeat_n(&b"d"[..], 200_000));
        drop(Selection::of(&[Work { path, scope: Scope::Entry }]));
    }

    #[test]
    fn a_listed_directory_covers_what_is_listed_below_it() {
        let work = |text: &str| Work { path: RelPath::parse(text.as_bytes()).unwrap(), scope: Scope::Subtree };
        let chosen = Selection::of(&[work("a/b"), work("a/b/c"), work("d")]);
        assert!(!chosen.whole);
        assert!(chosen.children[&b"a"[..]].children[&b"b"[..]].whole);
        assert!(chosen.children[&b"a"[..]].children[&b"b"[..]].children.is_empty());
        assert!(chosen.children[&b"d"[..]].whole);
    }
}
