//! What each promise means for the trees before and after a run: a judge that knows modes, names
//! and contents, and nothing of how the product works.

use super::choice::{Choice, MOUNT, Selected, parents_of, property};
use super::run::{REFUSED, Runs};
use super::table::Table;
use super::{Difference, Options, Snapshot, compare};
use std::collections::BTreeSet;

/// Most seconds that `--modify-window=2` lets two times differ.
const WINDOW_SECONDS: f64 = 2.0;

/// The runs of a choice of options, with what their table says of them.
pub struct Judge<'a> {
    runs: Runs<'a>,
    table: &'a Table,
    /// Paths outside of the selection: on the source, and on the replica before the run.
    unselected: BTreeSet<String>,
    protected: BTreeSet<String>,
}

impl<'a> Judge<'a> {
    pub fn new(runs: Runs<'a>, table: &'a Table) -> Judge<'a> {
        let mut judge = Judge {
            runs,
            table,
            unselected: BTreeSet::new(),
            protected: BTreeSet::new(),
        };
        judge.unselected = judge.find_unselected();
        judge.protected = judge.find_protected();
        judge
    }

    /// Returns the runs with all faults that were found.
    pub fn decide(mut self) -> Runs<'a> {
        if self.choice().has("--dry-run") {
            return self.runs;
        }
        let unexplained: Vec<String> = self
            .runs
            .problems
            .iter()
            .filter(|path| !self.is_explained(path))
            .cloned()
            .collect();
        self.runs
            .add("exit", unexplained, "problem without a cause");
        let found = self.wider();
        self.runs
            .add("P1", found, "wider than before and on the source");
        let found = self.unequal();
        self.runs.add("P2", found, "not equal");
        let found = self.touched_outside();
        self.runs.add("P4", found, "outside of the selection");
        self.runs
    }

    fn choice(&self) -> &Choice {
        self.runs.choice
    }

    fn source(&self) -> &Snapshot {
        &self.runs.stage.source
    }

    fn selected(&self) -> Selected<'_> {
        Selected {
            source: self.source(),
            listed: &self.runs.stage.listed,
        }
    }

    fn gives_up(&self, promise: &str) -> bool {
        let names = &self.choice().names;
        names.iter().any(|name| self.table.gives_up(name, promise))
    }

    fn is_deletion_refused(&self) -> bool {
        self.runs.code == REFUSED
    }

    /// All paths of the source and of the replica that are not chosen.
    fn find_unselected(&self) -> BTreeSet<String> {
        let trees = [self.source(), &self.runs.before, &self.runs.after];
        let all = trees
            .into_iter()
            .flat_map(|tree| names(tree).map(move |path| (path, tree)));
        let is_outside = |(path, tree): &(&str, &Snapshot)| {
            let tree = if has(self.source(), path) {
                self.source()
            } else {
                tree
            };
            !self
                .choice()
                .is_selected(path, is_dir(tree, path), &self.selected())
        };
        all.filter(is_outside)
            .map(|(path, _)| path.to_owned())
            .collect()
    }

    /// Paths of the replica that no run may touch: those that are not chosen, and those that the
    /// source lacks, unless they may be deleted.
    fn find_protected(&self) -> BTreeSet<String> {
        let bare = self.choice().without_rules();
        let choice = if self.gives_up("P4") {
            &bare
        } else {
            self.choice()
        };
        let (source, before, listed) = (self.source(), &self.runs.before, &self.runs.stage.listed);
        let is_chosen = |path: &str, tree: &Snapshot| {
            choice.is_selected(path, is_dir(tree, path), &self.selected())
        };
        let is_protected = |path: &&str| {
            let is_extra = !has(source, path);
            let may_go = self.choice().may_delete(path, listed) && !self.is_deletion_refused();
            let gives_way = self.choice().deletes()
                && !self.is_deletion_refused()
                && parents_of(path).any(|parent| self.is_conflict(parent));
            !is_chosen(path, before)
                || !is_extra && !is_chosen(path, source)
                || is_extra && !may_go && !gives_way
        };
        let is_judged = |path: &&str| *path != "." && *path != MOUNT;
        let all = names(before).filter(is_judged).filter(is_protected);
        all.map(str::to_owned).collect()
    }

    /// Whether the source has something else where the replica has a directory.
    fn is_conflict(&self, path: &str) -> bool {
        has(self.source(), path) && !is_dir(self.source(), path) && is_dir(&self.runs.before, path)
    }

    /// Whether a problem of a path follows from the trees: of a directory in the place of something
    /// else, or of a group whose content cannot be told to differ.
    fn is_explained(&self, path: &str) -> bool {
        let mut all = parents_of(path).chain([path]);
        all.any(|one| self.is_conflict(one)) || self.is_silent_group(path)
    }

    /// All names of the file of the source that has this name.
    fn group(&self, path: &str) -> Vec<String> {
        let inode = property(self.source(), path, "inode").to_owned();
        let is_of = |name: &&str| property(self.source(), name, "inode") == inode;
        names(self.source())
            .filter(is_of)
            .map(str::to_owned)
            .collect()
    }

    fn is_silent_group(&self, path: &str) -> bool {
        self.group(path).iter().any(|name| self.is_silent(name))
    }

    /// Whether a file differs from the source in its content alone, and no option compares that.
    fn is_silent(&self, path: &str) -> bool {
        let compares = |name: &String| self.table.compares(name);
        if self.choice().names.iter().any(compares) {
            return false;
        }
        let is_linked = self.choice().has("--link-dest") && !self.choice().has("--verify");
        self.looks_alike(&self.runs.before, path)
            || is_linked && self.looks_alike(&self.runs.earlier, path)
    }

    fn looks_alike(&self, tree: &Snapshot, path: &str) -> bool {
        let (source, of) = (self.source(), |kind: &str| property(tree, path, kind));
        let is_same = |kind: &str| property(source, path, kind) == of(kind);
        let window = if self.gives_up("P2") {
            WINDOW_SECONDS
        } else {
            0.0
        };
        let is_near = seconds_apart(property(source, path, "mtime"), of("mtime")) <= window;
        of("type") == "RegularFile"
            && is_same("type")
            && is_same("size")
            && is_near
            && !is_same("content")
    }

    /// Rights of persons that neither the source gives nor an untouched entry gave before.
    fn wider(&self) -> Vec<String> {
        let stage = self.runs.stage;
        let mut found = Vec::new();
        for right in self.runs.rights.difference(&stage.source_rights) {
            let (uid, _, text) = right;
            let path = text.split_once(' ').expect("a right and a path").1;
            let is_judged = has(self.source(), path) && !self.unselected.contains(path);
            let was = stage.replica_rights.contains(right) && self.is_quiet(path);
            if is_judged && !was && !self.is_given_up(*uid, path) {
                found.push(format!("{right:?}: {}", self.shown(path)));
            }
        }
        for path in names(self.source()).filter(|path| !self.unselected.contains(*path)) {
            let bits = |tree: &Snapshot| set_id(property(tree, path, "mode"));
            let more = bits(&self.runs.after) & !bits(self.source());
            let was = self.is_quiet(path) && bits(&self.runs.before) & more == more;
            let is_kept = self.gives("--no-mode") && self.is_kept(path);
            if more != 0 && !was && !is_kept {
                found.push(format!("set-id bits of {path}: {}", self.shown(path)));
            }
        }
        found
    }

    /// Whether the run has left an entry as it was, in all that rights depend on; of a directory,
    /// also all below it.
    fn is_quiet(&self, path: &str) -> bool {
        let kinds = ["type", "content", "target", "uid", "gid", "acls"];
        let is_same = |kind: &&str| {
            property(&self.runs.before, path, kind) == property(&self.runs.after, path, kind)
        };
        let is_within = |changed: &String| {
            path == "." || changed == path || parents_of(changed).any(|parent| parent == path)
        };
        kinds.iter().all(is_same)
            && (!is_dir(&self.runs.after, path) || !self.runs.changed.iter().any(is_within))
    }

    /// Whether the run has an option that gives up P1.
    fn gives(&self, option: &str) -> bool {
        self.choice().has(option) && self.table.gives_up(option, "P1")
    }

    /// Whether a right of a user is one that the page gives up, or that the owner of the source's
    /// entry can give to himself.
    fn is_given_up(&self, uid: u32, path: &str) -> bool {
        let owns = |tree: &Snapshot, one: &str| property(tree, one, "uid") == uid.to_string();
        let owns_both = |one: &str| owns(self.source(), one) && owns(&self.runs.after, one);
        let any = |is_so: &dyn Fn(&str) -> bool| parents_of(path).chain([path, "."]).any(is_so);
        any(&owns_both)
            || self.gives("--no-owner") && any(&|one| owns(&self.runs.after, one))
            || self.gives("--no-acls") && any(&|one| self.keeps_acl(one))
            || self.gives("--no-mode") && (path == "." || self.is_kept(path))
    }

    /// Whether the replica had the entry before, under this name or another, and all that rights
    /// depend on is as it was. Of a directory, nothing was made or changed in it or below it.
    fn is_kept(&self, path: &str) -> bool {
        let (before, after) = (&self.runs.before, &self.runs.after);
        let kinds = ["inode", "type", "content", "uid", "gid", "mode", "acls"];
        let is_same = |name: &str| {
            kinds
                .iter()
                .all(|kind| property(before, name, kind) == property(after, path, kind))
        };
        let is_within = |made: &String| parents_of(made).any(|parent| parent == path);
        names(before).any(is_same) && !self.runs.made.iter().any(is_within)
    }

    /// Whether an entry has an ACL, and had one before, under this name or another.
    fn keeps_acl(&self, path: &str) -> bool {
        let (before, after) = (&self.runs.before, &self.runs.after);
        let has_acl = |tree: &Snapshot, name: &str| !property(tree, name, "acls").is_empty();
        let is_it = |name: &str| {
            let inode = property(before, name, "inode");
            inode == property(after, path, "inode") && has_acl(before, name)
        };
        has_acl(after, path) && names(before).any(is_it)
    }

    /// Differences of what was chosen, and neither left out by an option nor a problem.
    fn unequal(&self) -> Vec<String> {
        let has = |name: &str| self.choice().has(name);
        let options = Options {
            mode: !has("--no-mode"),
            owner: !has("--no-owner"),
            group: !has("--no-group"),
            mtime: !has("--no-times"),
            atime: has("--atimes"),
            xattrs: !has("--no-xattrs"),
            acls: !has("--no-acls"),
            holes: false,
            hard_links: !has("--no-hard-links"),
            ignore: self
                .unselected
                .iter()
                .map(|path| path.clone().into())
                .collect(),
            ..Options::default()
        };
        let found = compare(&self.runs.stage.src, &self.runs.place.dst, &options);
        let is_fault = |difference: &&Difference| !self.is_excused(difference);
        found
            .iter()
            .filter(is_fault)
            .map(ToString::to_string)
            .collect()
    }

    /// Whether a difference is one that the options ask for, or that is reported.
    fn is_excused(&self, difference: &Difference) -> bool {
        let path = String::from_utf8_lossy(&difference.path).into_owned();
        let has = |name: &str| self.choice().has(name);
        let group = || self.group(&path);
        let is_problem = self.unselected.contains(&path)
            || parents_of(&path).any(|parent| self.runs.problems.contains(parent))
            || self.runs.problems.contains(&path)
            || group().iter().any(|name| self.runs.problems.contains(name));
        let narrows = has("--no-group") || has("--no-acls") || has("--no-owner");
        is_problem
            || match difference.kind {
                "extra" => !self.had_to_go(&path),
                "content" | "hard_link" => self.is_silent_group(&path),
                "mtime" => {
                    has("--modify-window")
                        && seconds_apart(&difference.a, &difference.b) <= WINDOW_SECONDS
                }
                "mode" => narrows && mode(&difference.b) & !mode(&difference.a) == 0,
                "acls" => has("--no-group"),
                _ => false,
            }
    }

    /// Whether the run had to delete what the source lacks.
    fn had_to_go(&self, path: &str) -> bool {
        let holds = |one: &String| parents_of(one).any(|parent| parent == path);
        self.choice().may_delete(path, &self.runs.stage.listed)
            && !self.is_deletion_refused()
            && !self.protected.iter().any(holds)
    }

    fn touched_outside(&self) -> Vec<String> {
        let changed = |path: &&String| {
            let kept = |tree: &Snapshot| {
                let all = tree.get(path.as_bytes()).cloned().unwrap_or_default();
                let is_kept = |(kind, _): &(&str, String)| *kind != "ctime";
                all.into_iter().filter(is_kept).collect::<Vec<_>>()
            };
            kept(&self.runs.before) != kept(&self.runs.after)
        };
        let all = self.protected.iter().filter(changed);
        all.map(|path| format!("{path}: {}", self.shown(path)))
            .collect()
    }

    /// What an entry was and is, for a message.
    fn shown(&self, path: &str) -> String {
        let of = |tree: &Snapshot| {
            let kinds = ["type", "uid", "gid", "mode", "acls", "mtime", "size"];
            kinds
                .map(|kind: &str| property(tree, path, kind).to_owned())
                .join(" ")
        };
        let (source, before, after) = (self.source(), &self.runs.before, &self.runs.after);
        format!(
            "source {}; before {}; after {}",
            of(source),
            of(before),
            of(after)
        )
    }
}

fn names(tree: &Snapshot) -> impl Iterator<Item = &str> {
    tree.keys()
        .map(|path| std::str::from_utf8(path).expect("names of the test are text"))
}

fn has(tree: &Snapshot, path: &str) -> bool {
    tree.contains_key(path.as_bytes())
}

fn is_dir(tree: &Snapshot, path: &str) -> bool {
    property(tree, path, "type") == "Directory"
}

fn mode(text: &str) -> u32 {
    u32::from_str_radix(text, 8).unwrap_or(0)
}

fn set_id(text: &str) -> u32 {
    mode(text) & 0o6000
}

fn seconds_apart(a: &str, b: &str) -> f64 {
    let parts = |text: &str| {
        let (seconds, nanoseconds) = text.split_once('.').unwrap_or((text, "0"));
        let of = |text: &str| text.parse::<i64>().unwrap_or(i64::MIN / 4);
        (of(seconds), of(nanoseconds))
    };
    let ((a, a_part), (b, b_part)) = (parts(a), parts(b));
    ((a - b) as f64 + (a_part - b_part) as f64 / 1e9).abs()
}
