//! Which parts of a tree a run looks at: all of it, or the paths of a list and what lies below
//! them.
//!
//! A list becomes a tree of names, so that parents are met once, before and after their children.

use crate::{RelPath, Scope, Work};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node of the tree of chosen paths. Memory grows with the list that was given, not with the
/// trees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The entry and everything below it is chosen.
    pub whole: bool,
    /// The entry, the names in it and what is no directory in it are chosen; a directory in it only
    /// where the replica has none, and then with all below.
    pub names: bool,
    /// Chosen names below this one; when `whole`, those that were chosen by themselves as well.
    pub children: BTreeMap<Box<[u8]>, Arc<Selection>>,
}

impl Selection {
    /// The whole tree.
    pub fn all() -> Self {
        Selection {
            whole: true,
            names: false,
            children: BTreeMap::new(),
        }
    }

    /// Whether all names in the directory are looked at.
    pub fn is_listed(&self) -> bool {
        self.whole || self.names
    }

    /// The union of pieces of work.
    pub fn of(works: &[Work]) -> Self {
        let mut root = Selection::default();
        works
            .iter()
            .for_each(|work| root.add(&work.path, work.scope));
        root
    }

    fn add(&mut self, path: &RelPath, scope: Scope) {
        let mut node = self;
        for name in path.names() {
            node = Arc::make_mut(node.children.entry(name.into()).or_default());
        }
        match scope {
            Scope::Entry => {}
            Scope::Names => node.names = true,
            Scope::Subtree => node.whole = true,
        }
    }

    /// What of the directory `name` in a directory of which this is chosen is chosen.
    pub fn below(self: &Arc<Self>, name: &[u8]) -> Option<Arc<Selection>> {
        match self.children.get(name) {
            Some(known) if self.whole && !known.whole => Some(Arc::new(Selection {
                whole: true,
                names: false,
                children: known.children.clone(),
            })),
            None if self.whole && self.children.is_empty() => Some(self.clone()),
            None if self.whole => Some(Arc::new(Selection::all())),
            known => known.cloned(),
        }
    }

    /// The paths that were chosen at `path`, where this is, and below, in order.
    pub fn chosen(&self, path: RelPath) -> Vec<RelPath> {
        let (mut chosen, mut left) = (Vec::new(), vec![(path, self)]);
        while let Some((path, node)) = left.pop() {
            left.extend(
                node.children
                    .iter()
                    .rev()
                    .map(|(name, below)| (path.join(name), &**below)),
            );
            if node.is_listed() || node.children.is_empty() {
                chosen.push(path);
            }
        }
        chosen
    }
}

impl Drop for Selection {
    /// Lets go of deep paths one name after the other: recursion would overflow the stack.
    fn drop(&mut self) {
        let mut rest: Vec<Arc<Selection>> =
            std::mem::take(&mut self.children).into_values().collect();
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
        drop(Selection::of(&[Work {
            path,
            scope: Scope::Entry,
        }]));
    }

    #[test]
    fn a_listed_directory_covers_what_is_listed_below_it_and_that_is_still_known() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).unwrap();
        let work = |text: &&str| Work {
            path: path(text),
            scope: Scope::Subtree,
        };
        let list = ["a/b", "a/b/c/e", "d"];
        for list in [list, [list[1], list[2], list[0]]] {
            let root = Arc::new(Selection::of(&list.iter().map(work).collect::<Vec<_>>()));
            assert_eq!(
                root.chosen(RelPath::root()),
                ["a/b", "a/b/c/e", "d"].map(path)
            );
            let a = root.below(b"a").unwrap();
            let b = a.below(b"b").unwrap();
            assert_eq!([&root, &a, &b].map(|node| node.whole), [false, false, true]);
            for (names, chosen) in [
                (&["c"][..], &["a/b/c", "a/b/c/e"][..]),
                (&["c", "e"], &["a/b/c/e"]),
                (&["x", "y"], &["a/b/x/y"]),
            ] {
                let node = names
                    .iter()
                    .fold(b.clone(), |node, name| node.below(name.as_bytes()).unwrap());
                assert!(node.whole, "{names:?}");
                assert_eq!(
                    node.chosen(path(&format!("a/b/{}", names.join("/")))),
                    chosen.iter().map(|text| path(text)).collect::<Vec<_>>()
                );
            }
            assert!(root.below(b"d").unwrap().below(b"any").unwrap().whole);
            assert!(root.below(b"other").is_none());
        }
    }
}
