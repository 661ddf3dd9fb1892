//! Which names of the source are hard links of one file: what happens to a file under one name
//! happens under all, and only one is told of.
//!
//! Names are learnt when entries are looked at. Of a file that gets its second name the first is
//! not known here, and nobody tells of it: then all has to be compared. So it is with a file that
//! was changed by a name that is gone or left out ([`Sought`]).

use crate::dirty::{below_of, reaches};
pub use crate::sought::InodeId;
use crate::sought::Sought;
use driftless_model::{RelPath, Scope};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Names that are known at once. With more, each link that is met puts the rest in doubt.
const NAMES_MAX: usize = 500_000;

/// Stands for files that are in doubt when these are too many to be told apart.
const ANY_FILE: InodeId = (0, 0);

/// A name of a file that has several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linked {
    /// The name.
    pub path: RelPath,
    /// The file.
    pub inode: InodeId,
    /// How many names it has, those outside of the source too.
    pub names: u64,
}

/// The files of which one of the names that were met `is_meant`.
pub(crate) fn files_of(linked: &[Linked], is_meant: impl Fn(&RelPath) -> bool) -> HashSet<InodeId> {
    let meant = linked.iter().filter(|one| is_meant(&one.path));
    meant.map(|one| one.inode).collect()
}

/// A file with several names.
#[derive(Debug, Default)]
struct Group {
    names: BTreeSet<RelPath>,
    /// How many more it had when all was compared: these are outside of the source.
    outside: u64,
}

/// All names that are known.
#[derive(Debug, Default)]
pub struct LinkNames {
    of: BTreeMap<RelPath, InodeId>,
    groups: HashMap<InodeId, Group>,
    /// Files that have more names than are known, and when that was found. More may be learnt soon
    /// of what is looked at beside.
    incomplete: BTreeMap<InodeId, Duration>,
    /// All was compared, and there was room for each name of a file with several.
    are_all: bool,
    sought: Arc<Sought>,
    /// Files that were looked for, since when, and whose names are known by now.
    found: Vec<(InodeId, Duration)>,
}

impl LinkNames {
    /// None yet. Who compares entries asks `sought` about each.
    pub fn seeking(sought: Arc<Sought>) -> LinkNames {
        LinkNames {
            sought,
            ..LinkNames::default()
        }
    }

    /// All names of the file that has this one; none if it is not known to have others.
    pub fn of(&self, path: &RelPath) -> impl Iterator<Item = &RelPath> {
        let group = self.of.get(path).and_then(|inode| self.groups.get(inode));
        group.into_iter().flat_map(|group| &group.names)
    }

    /// All names of a file; none if it is not known to have several.
    pub fn names_of(&self, file: InodeId) -> impl Iterator<Item = &RelPath> {
        let group = self.groups.get(&file);
        group.into_iter().flat_map(|group| &group.names)
    }

    /// Whether no file in the source has several names of which none is known.
    pub fn are_all_known(&self) -> bool {
        self.are_all
    }

    /// A file of which no name is known has one in the source, for all that is known of it.
    pub fn lost(&mut self, now: Duration, file: InodeId) {
        // What was looked for when all was compared is found, however often it changed meanwhile.
        if self.sought.lost(now, file) && !self.incomplete.contains_key(&file) {
            self.doubt(now, file);
        }
    }

    /// Takes the names that were found of files that were lost, and since when these were.
    pub fn take_found(&mut self) -> Vec<(RelPath, Duration)> {
        let found = std::mem::take(&mut self.found).into_iter();
        let names = found.flat_map(|(file, since)| {
            let names = self.names_of(file).cloned();
            names.map(move |name| (name, since))
        });
        names.collect()
    }

    fn doubt(&mut self, now: Duration, file: InodeId) {
        let is_known = self.incomplete.len() < NAMES_MAX || self.incomplete.contains_key(&file);
        self.incomplete
            .insert(if is_known { file } else { ANY_FILE }, now);
    }

    /// The file that has this name; `None` if it is not known to have others.
    pub fn file_at(&self, path: &RelPath) -> Option<InodeId> {
        self.of.get(path).copied()
    }

    /// An entry was renamed, with all below it.
    pub fn renamed(&mut self, from: &RelPath, to: &RelPath) {
        let found = self.at(from, Scope::Subtree);
        for (path, inode) in &found {
            self.of.remove(path);
            self.lose(path, *inode);
        }
        for (path, inode) in &found {
            self.learn(path.rebased(from, to), *inode);
        }
        // What is known of a file goes with its last name, which it may have got just now.
        found
            .iter()
            .for_each(|(_, inode)| self.forget_nameless(*inode));
    }

    /// Something was looked at, and these names were met there and no others; where all was, from
    /// `walked` on, these are all that there are. Returns the names that are to be looked at
    /// together with them.
    pub fn met(
        &mut self,
        now: Duration,
        looked_at: &[(RelPath, Scope)],
        linked: &[Linked],
        walked: Option<Duration>,
    ) -> BTreeSet<RelPath> {
        let before = walked.map(|began| (began, self.incomplete.clone()));
        if walked.is_some() {
            // What tells of names has room for no more, either.
            self.are_all = linked.len() < NAMES_MAX;
        }
        let outside = self.outside_of(linked);
        for (path, scope) in looked_at {
            self.cut(path, *scope);
        }
        for one in linked {
            self.learn(one.path.clone(), one.inode);
        }
        for (file, count) in outside {
            if let Some(group) = self.groups.get_mut(&file) {
                group.outside = count;
            }
        }
        if let Some((began, mut incomplete)) = before {
            // What was found meanwhile, the walk may have passed before.
            incomplete.retain(|_, since| *since > began);
            self.incomplete = incomplete;
        }
        let met: BTreeSet<&RelPath> = linked.iter().map(|one| &one.path).collect();
        let mut together = BTreeSet::new();
        for one in linked {
            let is_all = walked.is_some() && !self.incomplete.contains_key(&one.inode);
            if !self.is_complete(one, is_all) {
                self.doubt(now, one.inode);
            } else {
                self.incomplete.remove(&one.inode);
                let since = self.sought.met(one.inode);
                self.found.extend(since.map(|since| (one.inode, since)));
            }
            let group = self.groups.get(&one.inode);
            let names = group.into_iter().flat_map(|group| &group.names);
            if names.clone().any(|name| !met.contains(name)) {
                together.extend(names.cloned());
            }
        }
        if walked.is_some() {
            let incomplete = &self.incomplete;
            self.sought.compared(|file| incomplete.contains_key(file));
        }
        together
    }

    /// The file at a path has got names while all was looked at: they were not all met.
    pub fn lacks_names(&mut self, now: Duration, path: &RelPath) {
        let Some(inode) = self.file_at(path) else {
            return;
        };
        if let Some(group) = self.groups.get_mut(&inode) {
            group.outside = 0;
        }
        self.doubt(now, inode);
    }

    /// Whether files have names that are not known here.
    pub fn is_in_doubt(&self) -> bool {
        !self.incomplete.is_empty()
    }

    /// Whether all names of a file are known that there are in the source.
    fn is_complete(&mut self, one: &Linked, walked: bool) -> bool {
        let Some(group) = self.groups.get_mut(&one.inode) else {
            return walked;
        };
        let known = group.names.len() as u64;
        let outside = one.names.saturating_sub(known);
        group.outside = if walked {
            outside
        } else {
            group.outside.min(outside)
        };
        known + group.outside >= one.names
    }

    /// Of these files, how many names they have outside of the source.
    fn outside_of(&self, linked: &[Linked]) -> HashMap<InodeId, u64> {
        let of = |one: &Linked| Some((one.inode, self.groups.get(&one.inode)?.outside));
        let of = linked.iter().filter_map(of);
        of.filter(|(_, outside)| *outside > 0).collect()
    }

    fn learn(&mut self, path: RelPath, inode: InodeId) {
        if self.of.len() >= NAMES_MAX {
            self.are_all = false;
            return;
        }
        self.groups
            .entry(inode)
            .or_default()
            .names
            .insert(path.clone());
        if let Some(before) = self
            .of
            .insert(path.clone(), inode)
            .filter(|one| *one != inode)
        {
            self.leave(&path, before);
        }
    }

    /// A name, or all at it and below.
    fn at(&self, path: &RelPath, scope: Scope) -> Vec<(RelPath, InodeId)> {
        let found = below_of(&self.of, path).filter(|(at, _)| reaches((path, scope), at));
        found.map(|(at, inode)| (at.clone(), *inode)).collect()
    }

    /// Forgets these.
    fn cut(&mut self, path: &RelPath, scope: Scope) {
        for (at, inode) in self.at(path, scope) {
            self.of.remove(&at);
            self.leave(&at, inode);
        }
    }

    fn leave(&mut self, path: &RelPath, inode: InodeId) {
        self.lose(path, inode);
        self.forget_nameless(inode);
    }

    fn lose(&mut self, path: &RelPath, inode: InodeId) {
        if let Some(group) = self.groups.get_mut(&inode) {
            group.names.remove(path);
        }
    }

    fn forget_nameless(&mut self, inode: InodeId) {
        let group = self.groups.get(&inode);
        if group.is_some_and(|group| group.names.is_empty()) {
            self.groups.remove(&inode);
            self.incomplete.remove(&inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(7);

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    fn linked(names: &[(&str, u64, u64)]) -> Vec<Linked> {
        let one = |(name, inode, names): &(&str, u64, u64)| Linked {
            path: path(name),
            inode: (1, *inode),
            names: *names,
        };
        names.iter().map(one).collect()
    }

    fn entries(names: &[&str]) -> Vec<(RelPath, Scope)> {
        names
            .iter()
            .map(|name| (path(name), Scope::Entry))
            .collect()
    }

    fn of(known: &LinkNames, name: &str) -> Vec<String> {
        known.of(&path(name)).map(ToString::to_string).collect()
    }

    #[test]
    fn names_of_a_file_are_known_from_a_walk_and_follow_renames() {
        let mut known = LinkNames::default();
        let all = [(RelPath::root(), Scope::Subtree)];
        let found = linked(&[("a/x", 7, 2), ("b", 7, 2), ("c", 8, 2)]);
        assert_eq!(known.met(NOW, &all, &found, Some(NOW)), BTreeSet::new());
        assert!(!known.is_in_doubt());
        assert_eq!(of(&known, "b"), ["a/x", "b"]);
        known.renamed(&path("a"), &path("d/e"));
        assert_eq!(of(&known, "b"), ["b", "d/e/x"]);
        assert_eq!(of(&known, "a/x"), [""; 0]);
        // The other name of c is outside of the source.
        let again = known.met(NOW, &entries(&["c"]), &linked(&[("c", 8, 2)]), None);
        assert_eq!(again, BTreeSet::new());
        assert!(!known.is_in_doubt(), "it is so still");
        known.met(NOW, &entries(&["c"]), &linked(&[("c", 8, 3)]), None);
        assert!(known.is_in_doubt(), "there is one more");
    }

    #[test]
    fn one_name_brings_the_others_and_one_too_few_is_doubt() {
        let mut known = LinkNames::default();
        let all = [(RelPath::root(), Scope::Subtree)];
        known.met(NOW, &all, &linked(&[("a", 7, 2), ("b", 7, 2)]), Some(NOW));
        let together = known.met(NOW, &entries(&["a"]), &linked(&[("a", 7, 2)]), None);
        assert_eq!((together.len(), known.is_in_doubt()), (2, false));
        let both = linked(&[("a", 7, 2), ("b", 7, 2)]);
        let together = known.met(NOW, &entries(&["a", "b"]), &both, None);
        assert!(together.is_empty(), "they were looked at together");
        known.met(NOW, &entries(&["new"]), &linked(&[("new", 9, 2)]), None);
        assert!(known.is_in_doubt(), "its other name is not known");
        known.met(NOW, &entries(&["late"]), &linked(&[("late", 9, 2)]), None);
        assert!(!known.is_in_doubt(), "it was looked at beside");
        known.met(NOW, &entries(&["b"]), &[], None);
        assert_eq!(of(&known, "a"), ["a"], "b has gone");
        known.met(NOW, &entries(&["a"]), &linked(&[("a", 7, 2)]), None);
        assert!(known.is_in_doubt(), "or is somewhere else");
    }

    #[test]
    fn a_file_that_was_lost_is_found_by_its_inode_and_followed_from_then_on() {
        let mut known = LinkNames::default();
        let all = [(RelPath::root(), Scope::Subtree)];
        let late = NOW + Duration::from_secs(1);
        known.lost(NOW, (1, 7));
        known.lost(NOW, (1, 8));
        assert!(known.is_in_doubt() && !known.are_all_known());
        assert!(known.sought.seeks((1, 7)));
        known.met(late, &all, &linked(&[("a", 7, 1)]), Some(late));
        assert!(!known.is_in_doubt() && known.are_all_known());
        assert_eq!(known.take_found(), [(path("a"), NOW)]);
        known.met(late, &entries(&["a"]), &linked(&[("a", 7, 1)]), None);
        assert_eq!(known.take_found(), [], "it was found before");
        assert_eq!(known.names_of((1, 7)).count(), 1);
        known.lost(late, (1, 8));
        assert!(!known.is_in_doubt(), "it is not in the source");
        known.met(late, &entries(&["b"]), &linked(&[("b", 8, 1)]), None);
        assert_eq!(known.names_of((1, 8)).count(), 1, "it came there");
    }

    #[test]
    fn what_is_lost_while_all_is_looked_at_is_looked_at_once_more() {
        let mut known = LinkNames::default();
        let all = [(RelPath::root(), Scope::Subtree)];
        let late = NOW + Duration::from_secs(1);
        known.lost(late, (1, 7));
        known.met(late, &all, &[], Some(NOW));
        assert!(
            known.is_in_doubt(),
            "nobody looked for it when it was passed"
        );
        known.met(late, &all, &linked(&[("a", 7, 1)]), Some(late));
        assert_eq!(known.take_found(), [(path("a"), late)]);
        known.met(late, &entries(&["a"]), &[], None);
        known.lost(late, (1, 9));
        known.met(late, &all, &linked(&[("c", 9, 1)]), Some(NOW));
        assert_eq!(known.take_found(), [(path("c"), late)]);
        assert!(!known.is_in_doubt(), "it is looked at again by its name");
    }

    #[test]
    fn what_gets_names_while_all_is_looked_at_stays_in_doubt() {
        let mut known = LinkNames::default();
        let all = [(RelPath::root(), Scope::Subtree)];
        let late = NOW + Duration::from_secs(1);
        known.met(late, &entries(&["b"]), &linked(&[("b", 8, 2)]), None);
        known.met(late, &all, &[], Some(NOW));
        assert!(known.is_in_doubt(), "it was passed before it got the name");
        let one = linked(&[("a", 7, 2)]);
        known.met(late, &all, &one, Some(late));
        assert!(!known.is_in_doubt(), "the other is outside");
        known.lacks_names(late, &path("a"));
        known.met(late, &entries(&["a"]), &one, None);
        assert!(known.is_in_doubt(), "the other was made meanwhile");
        known.renamed(&path("a"), &path("d"));
        assert!(known.is_in_doubt(), "it is so under its new name, too");
    }

    #[test]
    fn names_follow_a_rename_into_the_place_of_others() {
        let mut known = LinkNames::default();
        let all = [(RelPath::root(), Scope::Subtree)];
        let found = linked(&[("a/x", 7, 2), ("b", 7, 2), ("a/a/x", 8, 2), ("c", 8, 2)]);
        known.met(NOW, &all, &found, Some(NOW));
        known.renamed(&path("a"), &path("a/a"));
        assert_eq!(of(&known, "a/a/x"), ["a/a/x", "b"]);
        assert_eq!(of(&known, "a/a/a/x"), ["a/a/a/x", "c"]);
        known.met(NOW, &entries(&["a/a/x"]), &[], None);
        assert_eq!(of(&known, "b"), ["b"]);
    }
}
