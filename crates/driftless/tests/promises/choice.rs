//! Options of a run as the test gives them, and what of the trees they choose, told by other means
//! than the product has.

use super::Snapshot;
use super::plan::{Kind, Plan};
use super::stage::Place;
use std::collections::BTreeSet;

/// Bounds of `--min-size` and `--max-size`.
const SIZE_MIN: u64 = 1024;
const SIZE_MAX: u64 = 20 << 10;
/// Rules of `--filter-from`.
pub const RULES: &str = "- *.tmp\n- build/\n";
/// A directory on which another file system is mounted.
pub const MOUNT: &str = "mnt";

/// Options of one run.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The options by their names, in the order of the table.
    pub names: Vec<String>,
}

impl Choice {
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// The same without rules, whose paths `--delete-excluded` removes.
    pub fn without_rules(&self) -> Choice {
        let is_rule =
            |name: &String| ["--include", "--exclude", "--filter-from"].contains(&name.as_str());
        let names = self.names.iter().filter(|name| !is_rule(name)).cloned();
        Choice {
            names: names.collect(),
        }
    }

    /// Whether the run removes what the source lacks.
    pub fn deletes(&self) -> bool {
        ["--delete", "--delete-excluded", "--max-delete"]
            .iter()
            .any(|name| self.has(name))
    }

    /// The arguments, each once.
    pub fn words(&self, place: &Place) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        for word in self.names.iter().flat_map(|name| words_of(name, place)) {
            if !words.contains(&word) {
                words.push(word);
            }
        }
        words
    }

    /// Whether the rules and the list choose a path.
    fn is_named(&self, path: &str, is_dir: bool, listed: &BTreeSet<String>) -> bool {
        let parents = parents_of(path).map(|parent| (parent, true));
        let by_rules = |(path, is_dir)| !self.is_excluded(path, is_dir);
        let is_listed = || {
            let is_above = |name: &String| name.starts_with(&format!("{path}/"));
            path == "."
                || listed.contains(path)
                || parents_of(path).any(|parent| listed.contains(parent))
                || listed.iter().any(is_above)
        };
        parents.chain([(path, is_dir)]).all(by_rules) && (!self.has("--files-from") || is_listed())
    }

    /// Whether the rules exclude a path by itself.
    fn is_excluded(&self, path: &str, is_dir: bool) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        if self.has("--include") && name.starts_with("keep") {
            return false;
        }
        self.has("--exclude") && name.ends_with(".o")
            || self.has("--filter-from") && (name.ends_with(".tmp") || name == "build" && is_dir)
    }

    /// Whether an entry that the source has is left out by what it is.
    fn is_left_out(&self, path: &str, source: &Snapshot) -> bool {
        let of = |kind: &str| property(source, path, kind);
        let size: u64 = of("size").parse().unwrap_or(0);
        match of("type") {
            "RegularFile" => {
                self.has("--min-size") && size < SIZE_MIN
                    || self.has("--max-size") && size > SIZE_MAX
            }
            "Symlink" => self.has("--no-symlinks"),
            "Fifo" | "Socket" => self.has("--no-specials"),
            "CharacterDevice" | "BlockDevice" => self.has("--no-devices"),
            _ => self.has("--one-file-system") && path == MOUNT,
        }
    }

    /// Whether a path is of the selection: its names are chosen, and neither it nor a directory
    /// above it is left out on the source.
    pub fn is_selected(&self, path: &str, is_dir: bool, trees: &Selected<'_>) -> bool {
        let mut all = parents_of(path).chain([path]);
        self.is_named(path, is_dir, trees.listed)
            && !all.any(|one| self.is_left_out(one, trees.source))
    }

    /// Whether `--delete` may remove what the source lacks at this path.
    pub fn may_delete(&self, path: &str, listed: &BTreeSet<String>) -> bool {
        let is_below = || parents_of(path).any(|parent| listed.contains(parent));
        self.deletes() && (!self.has("--files-from") || is_below())
    }
}

/// What a selection is judged by.
#[derive(Clone, Copy)]
pub struct Selected<'a> {
    pub source: &'a Snapshot,
    pub listed: &'a BTreeSet<String>,
}

/// The directories above a path, without the root and the path itself.
pub fn parents_of(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// A property of an entry; empty if the tree has no such entry.
pub fn property<'a>(tree: &'a Snapshot, path: &str, kind: &str) -> &'a str {
    let all = tree.get(path.as_bytes()).into_iter().flatten();
    all.filter(|(name, _)| *name == kind)
        .map(|(_, value)| &value[..])
        .next()
        .unwrap_or_default()
}

/// The arguments that stand for an option of the table.
fn words_of(name: &str, place: &Place) -> Vec<String> {
    let value = match name {
        "--delete-excluded" => return vec!["--delete".into(), name.into()],
        "--max-delete" => return vec!["--delete".into(), "--max-delete=3".into()],
        "--include" => "keep*".to_owned(),
        "--exclude" => "*.o".to_owned(),
        "--filter-from" => place.rules.clone(),
        "--files-from" => place.list.clone(),
        "--min-size" => SIZE_MIN.to_string(),
        "--max-size" => SIZE_MAX.to_string(),
        "--modify-window" => "2".to_owned(),
        "--link-dest" => place.earlier.display().to_string(),
        "--copy-with" => "dd if=%s of=%d bs=1M status=none".to_owned(),
        _ => return vec![name.into()],
    };
    vec![format!("{name}={value}")]
}

/// Paths for `--files-from`: a directory with all below, and two entries of others.
pub fn list_of(source: &Plan) -> BTreeSet<String> {
    let is_other = |(path, entry): &(&String, &super::plan::Entry)| {
        entry.kind != Kind::Dir && path.contains('/') && !path.starts_with("a/")
    };
    let others = source.0.iter().filter(is_other).step_by(3).take(2);
    let others = others.map(|(path, _)| path.clone());
    others.chain(["a".to_owned()]).collect()
}
