//! What is not kept, and counts as no problem: a line each, with a number and the first entry that
//! was met.

use crate::units::show_entries;
use driftless_engine::Counts;
use driftless_model::{RelPath, Sort, Unkept};

/// Kinds of what is not kept, each with the first entry that had it.
#[derive(Debug, Default)]
pub struct Firsts(Vec<(Unkept, RelPath)>);

impl Firsts {
    /// Adds kinds that were met for the first time.
    pub fn add(&mut self, what: Unkept, path: &RelPath) {
        self.0.push((what, path.clone()));
    }

    /// What of one sort was met, and where first.
    fn of_sort(&self, sort: Sort) -> (Unkept, Option<&RelPath>) {
        let mut of_sort = self
            .0
            .iter()
            .map(|(what, path)| (what.of_sort(sort), path))
            .filter(|(what, _)| !what.is_empty());
        let first = of_sort.next();
        let all = of_sort.fold(
            first.map_or(Unkept::NONE, |first| first.0),
            |all, (what, _)| all | what,
        );
        (all, first.map(|first| first.1))
    }

    /// What is told at the end of a run.
    pub fn lines(&self, counts: &Counts) -> Vec<String> {
        let root = [
            ("the owners", counts.unkept_owners),
            (
                "capabilities and trusted attributes",
                counts.unkept_privileges,
            ),
        ];
        let root = root.into_iter().filter_map(|(what, count)| {
            of_entries(what, count).map(|words| words + ", which only root can give")
        });
        let sorts = Sort::ALL.into_iter().filter_map(|sort| {
            let (all, first) = self.of_sort(sort);
            let (name, count) = match sort {
                Sort::Flags => (
                    format!("inode flags ({})", all.words().join(", ")),
                    counts.unkept_flags,
                ),
                Sort::Acls => (all.words().join(", "), counts.unkept_acls),
            };
            let example = first.map_or_else(String::new, |path| format!(", such as \"{path}\""));
            of_entries(&name, count).map(|words| words + &example)
        });
        let links = of_entries("owners and times", counts.unkept_links)
            .map(|words| words + " that are symbolic links, which the file system would follow");
        root.chain(links).chain(sorts).collect()
    }
}

fn of_entries(what: &str, count: u64) -> Option<String> {
    (count > 0).then(|| format!("{what} of {}", show_entries(count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sort_is_a_line_with_all_its_kinds_and_the_first_entry() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).expect("a path");
        let mut firsts = Firsts::default();
        firsts.add(Unkept::NFS4_ACL, &path("a"));
        firsts.add(Unkept::IMMUTABLE | Unkept::SAMBA_ACL, &path("b"));
        firsts.add(Unkept::APPEND_ONLY, &path("c"));
        let counts = Counts {
            unkept_flags: 2,
            unkept_acls: 1,
            unkept_owners: 1234,
            unkept_links: 3,
            ..Counts::default()
        };
        assert_eq!(
            firsts.lines(&counts),
            [
                "the owners of 1,234 entries, which only root can give",
                "owners and times of 3 entries that are symbolic links, which the file system would follow",
                "inode flags (immutable, append-only) of 2 entries, such as \"b\"",
                "NFSv4 ACLs, Samba's NT ACLs of 1 entry, such as \"a\"",
            ]
        );
        assert!(firsts.lines(&Counts::default()).is_empty());
    }
}
