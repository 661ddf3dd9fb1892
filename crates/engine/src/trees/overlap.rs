//! Trees that lie one within the other.
//!
//! A replica below its source is legitimate where the run leaves it out: on another file system
//! with `--one-file-system`, excluded, or not on the list. All else is refused before anything is
//! touched. What is found only on the way, since a directory can be mounted at several places, is
//! not entered: no run goes into its own replica.

use crate::options::Options;
use crate::trees::error::RunError;
use crate::trees::replica::Replica;
use driftless_model::{EntryName, Fault, Meta, RelPath, SNAPSHOTS, Selection};
use driftless_tree::{Ancestor, DirRef, Endpoint};
use std::ffi::CString;

/// Why a directory of the source is not entered.
pub const OWN_REPLICA: &str = "it is the replica of this run, mounted below the source; exclude it";

/// Why a directory of the replica is not entered.
pub const OWN_SOURCE: &str = "it is the source of this run, mounted below the replica; exclude it";

/// A directory between the source and a replica below it, or that replica.
#[derive(Debug)]
struct Step {
    /// Its name, if that could be found out.
    name: Option<EntryName>,
    /// The device of its file system.
    device: u64,
}

/// Refuses a replica in its source that the run would come to, and a source in its replica.
pub fn refuse_overlap(
    options: &Options,
    source: &DirRef,
    replica: &Replica,
) -> Result<(), RunError> {
    if !options.is_one_machine() {
        return refuse_shared(options, source, replica);
    }
    let (Replica::There(near) | Replica::Missing(near, _)) = replica;
    let exists = matches!(replica, Replica::There(_));
    let unusable = |root: &Endpoint, fault: Fault| RunError::Unusable {
        path: root.to_string(),
        cause: fault.to_string(),
    };
    let above_source = source
        .lineage()
        .map_err(|fault| unusable(&options.source, fault))?;
    let above_replica = near
        .lineage()
        .map_err(|fault| unusable(&options.replica, fault))?;
    let (source, near) = (above_source[0].id, above_replica[0].id);
    if exists && source == near {
        return Err(RunError::Same(options.replica.to_string()));
    }
    if let Some(levels) = above_replica.iter().position(|level| level.id == source) {
        let way = way_down(&above_replica[..levels], replica, near.0);
        return if is_left_out(options, source.0, &way) {
            Ok(())
        } else {
            Err(replica_inside(options, source.0, &way))
        };
    }
    if exists && is_within(&above_source, near) {
        return Err(source_inside(options));
    }
    Ok(())
}

/// Refuses the same of trees of two hosts that share a file system: there, devices have other
/// numbers on each host. The way from one root up to the other is gone down again from the other
/// side, and leads to the same directory.
fn refuse_shared(options: &Options, source: &DirRef, replica: &Replica) -> Result<(), RunError> {
    let (near, missing) = match replica {
        Replica::There(near) => (near.clone() as DirRef, None),
        Replica::Missing(near, name) => (near.clone() as DirRef, Some(name)),
    };
    if let Some(mut way) = way_between(source, &near, missing.is_some()) {
        let device = source.first_meta().dev;
        let device_there = way.last().map_or(device, |step| step.device);
        way.extend(missing.map(|name| Step {
            name: Some(name.as_c_str().into()),
            device: device_there,
        }));
        return if is_left_out(options, device, &way) {
            Ok(())
        } else {
            Err(replica_inside(options, device, &way))
        };
    }
    let within = || way_between(&near, source, false);
    if missing.is_none() && within().is_some_and(|way| !is_in_snapshots(&way)) {
        return Err(source_inside(options));
    }
    Ok(())
}

/// Returns the way from `outer` down to `inner`, as `outer` shows it, if the first is above the
/// second, or, if `may_be_same`, is the second.
fn way_between(outer: &DirRef, inner: &DirRef, may_be_same: bool) -> Option<Vec<Step>> {
    // A host that does not tell its directories shows no overlap.
    let levels = inner.lineage().ok()?;
    let number = outer.first_meta().ino;
    let first = usize::from(!may_be_same);
    (first..levels.len())
        .filter(|at| levels[*at].id.1 == number)
        .find_map(|at| way_through(outer, &levels[..at], inner))
}

/// Returns the way from `outer` through the names of these levels, the innermost first, if it leads
/// to `inner`.
fn way_through(outer: &DirRef, levels: &[Ancestor], inner: &DirRef) -> Option<Vec<Step>> {
    let (mut at, mut way) = (outer.clone(), Vec::new());
    for level in levels.iter().rev() {
        let name = level.name.clone()?;
        at = at.enter(&CString::from(&name)).ok()?;
        way.push(Step {
            name: Some(name),
            device: at.first_meta().dev,
        });
    }
    is_alike(&at, inner).then_some(way)
}

/// Returns whether two hosts show the same directory: no call sets a
/// change time, so no other directory of the same number has the same.
fn is_alike(one: &DirRef, other: &DirRef) -> bool {
    let look = |dir: &DirRef| dir.meta_again().ok();
    look(one).zip(look(other)).is_some_and(|(one, other)| {
        let times = |meta: &Meta| (meta.ctime, meta.mtime);
        let is_told = one.ctime.nsec != 0;
        is_told && one.ino == other.ino && times(&one) == times(&other)
    })
}

/// Returns whether a way goes through the folder of snapshots of its beginning, which no listing
/// shows.
fn is_in_snapshots(way: &[Step]) -> bool {
    let first = way.first().and_then(|step| step.name.as_ref());
    way.len() > 1 && first.is_some_and(|name| name.as_bytes() == SNAPSHOTS.to_bytes())
}

fn source_inside(options: &Options) -> RunError {
    RunError::Inside {
        inner: "source",
        outer: "replica",
        path: options.source.to_string(),
        hint: String::new(),
    }
}

/// Whether one of these levels is that directory. What lies in its folder of snapshots does not lie
/// in it: no listing shows that folder.
fn is_within(levels: &[Ancestor], outer: (u64, u64)) -> bool {
    let found = levels.iter().position(|level| level.id == outer);
    let folder = found.and_then(|at| levels[..at].last());
    let is_snapshot = |folder: &Ancestor| {
        let name = folder.name.as_ref();
        found > Some(1) && name.is_some_and(|name| name.as_bytes() == SNAPSHOTS.to_bytes())
    };
    found.is_some() && !folder.is_some_and(is_snapshot)
}

/// From below the source to the replica.
fn way_down(levels: &[Ancestor], replica: &Replica, near_device: u64) -> Vec<Step> {
    let last = match replica {
        Replica::There(_) => None,
        Replica::Missing(_, name) => Some(Step {
            name: Some(name.as_c_str().into()),
            device: near_device,
        }),
    };
    let levels = levels.iter().rev().map(|level| Step {
        name: level.name.clone(),
        device: level.id.0,
    });
    levels.chain(last).collect()
}

fn is_left_out(options: &Options, source_device: u64, way: &[Step]) -> bool {
    if way
        .iter()
        .any(|step| options.is_foreign(step.device, source_device))
    {
        return true;
    }
    let names: Option<Vec<&[u8]>> = way
        .iter()
        .map(|step| step.name.as_ref().map(EntryName::as_bytes))
        .collect();
    names.is_some_and(|names| leaves_out(options, &names))
}

/// Whether the rules or the list leave out the directory with these names below the source, or one
/// above it.
pub fn leaves_out(options: &Options, names: &[&[u8]]) -> bool {
    let excluded = (1..=names.len()).any(|depth| {
        let path = RelPath::from_names(names[..depth].iter().copied());
        !options.policy.filter.takes(path.as_bytes(), true)
    });
    excluded
        || options
            .selection
            .as_ref()
            .is_some_and(|selection| !reaches(selection, names))
}

/// Whether the rules or the list leave out the regular file at a path below the source or the
/// replica, or a directory above it.
pub fn leaves_out_file(options: &Options, path: &RelPath) -> bool {
    let names: Vec<&[u8]> = path.names().collect();
    let above = names.split_last().map_or(&names[..], |(_, above)| above);
    let is_unlisted = || {
        options
            .selection
            .as_ref()
            .is_some_and(|selection| !reaches(selection, &names))
    };
    !options.policy.filter.takes(path.as_bytes(), false)
        || leaves_out(options, above)
        || is_unlisted()
}

/// A rule that leaves out the regular file at a path and nothing else, as it can be typed within
/// quotes; none if it cannot.
pub fn rule_for(path: &RelPath) -> Option<String> {
    let rule = typed_pattern(&path.names().collect::<Vec<_>>())?;
    rule.strip_suffix('/').map(str::to_owned)
}

/// A rule that leaves out the directory at a path with all below it, and nothing else; none where a
/// name is not UTF-8.
pub fn rule_for_dir(path: &RelPath) -> Option<String> {
    pattern(&path.names().collect::<Vec<_>>())
}

/// Whether what is chosen includes the entry at the end of these names, or something below it.
fn reaches(selection: &Selection, names: &[&[u8]]) -> bool {
    let mut node = selection;
    for name in names {
        match node.children.get(*name) {
            _ if node.is_listed() => return true,
            Some(below) => node = below,
            None => return false,
        }
    }
    true
}

fn replica_inside(options: &Options, source_device: u64, way: &[Step]) -> RunError {
    let names: Option<Vec<&[u8]>> = way
        .iter()
        .map(|step| step.name.as_ref().map(EntryName::as_bytes))
        .collect();
    let exclude = names
        .and_then(|names| typed_pattern(&names))
        .map(|pattern| format!("--exclude '{pattern}'"));
    let foreign = way
        .iter()
        .any(|step| step.device != source_device)
        .then(|| "--one-file-system".to_owned());
    let ways: Vec<String> = exclude.into_iter().chain(foreign).collect();
    let hint = if ways.is_empty() {
        String::new()
    } else {
        format!("; leave it out with {}", ways.join(" or "))
    };
    RunError::Inside {
        inner: "replica",
        outer: "source",
        path: options.replica.to_string(),
        hint,
    }
}

/// A pattern for these names as it can be typed within quotes; none if it cannot.
pub fn typed_pattern(names: &[&[u8]]) -> Option<String> {
    pattern(names).filter(|pattern| !pattern.chars().any(|c| c == '\'' || c.is_control()))
}

/// A rule that matches the directory with these names and nothing else; none where a name is not
/// UTF-8.
fn pattern(names: &[&[u8]]) -> Option<String> {
    let mut pattern = String::new();
    for name in names {
        let name = std::str::from_utf8(name).ok()?;
        pattern.push('/');
        for c in name.chars() {
            if "*?[]{}\\".contains(c) {
                pattern.push('\\');
            }
            pattern.push(c);
        }
    }
    pattern.push('/');
    Some(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Filter, Policy, Rule, Scope, Work};
    use std::sync::Arc;

    fn way(path: &str, devices: &[u64]) -> Vec<Step> {
        let step = |(name, device): (&str, &u64)| Step {
            name: EntryName::try_from(name.as_bytes().to_vec()).ok(),
            device: *device,
        };
        path.split('/').zip(devices).map(step).collect()
    }

    fn options(exclude: &[&str], listed: Option<&str>, one_file_system: bool) -> Options {
        let rules = exclude
            .iter()
            .map(|pattern| Rule::new(false, pattern).expect("a rule"))
            .collect();
        let work = |path: &str| Work {
            path: RelPath::parse(path.as_bytes()).expect("a path"),
            scope: Scope::Subtree,
        };
        let selection = listed.map(|path| Arc::new(Selection::of(&[work(path)])));
        let policy = Policy {
            filter: Filter {
                rules,
                ..Filter::default()
            },
            one_file_system,
            ..Policy::default()
        };
        Options {
            policy,
            selection,
            ..Options::default()
        }
    }

    #[test]
    fn a_replica_below_the_source_is_left_out_by_a_rule_a_list_or_another_file_system() {
        let cases: [(Options, &[u64], bool); 10] = [
            (options(&[], None, false), &[1, 1], false),
            (options(&[], None, false), &[1, 2], false),
            (options(&[], None, true), &[1, 1], false),
            (options(&[], None, true), &[1, 2], true),
            (options(&[], None, true), &[2, 1], true),
            (options(&["/mnt/backup"], None, false), &[1, 1], true),
            (options(&["/mnt/"], None, false), &[1, 1], true),
            (options(&["/backup"], None, false), &[1, 1], false),
            (options(&[], Some("home"), false), &[1, 1], true),
            (options(&[], Some("mnt/backup/a"), false), &[1, 1], false),
        ];
        for (options, devices, left_out) in cases {
            assert_eq!(
                is_left_out(&options, 1, &way("mnt/backup", devices)),
                left_out,
                "{options:?} {devices:?}"
            );
        }
        assert!(
            !is_left_out(
                &options(&["*"], None, false),
                1,
                &[Step {
                    name: None,
                    device: 1
                }]
            ),
            "a name that is not known"
        );
    }

    #[test]
    fn a_snapshot_of_a_tree_does_not_lie_in_it() {
        let levels = |names: &[&str]| -> Vec<Ancestor> {
            let level = |(id, name): (usize, &&str)| Ancestor {
                id: (1, id as u64),
                name: EntryName::try_from(name.as_bytes().to_vec()).ok(),
            };
            names.iter().enumerate().map(level).collect()
        };
        let folder = ".driftless-snapshots";
        for (names, outer, expected) in [
            (["s", folder, "tree", "top"], 2, false),
            (["s", folder, "tree", "top"], 3, true),
            (["s", folder, "tree", "top"], 9, false),
            (["s", "snapshots", "tree", "top"], 2, true),
            ([folder, "tree", "top", "top"], 1, true),
        ] {
            assert_eq!(
                is_within(&levels(&names), (1, outer)),
                expected,
                "{names:?} {outer}"
            );
        }
    }

    #[test]
    fn the_rule_that_is_advised_leaves_the_replica_out() {
        for path in ["a", "mnt/backup", "[a]*/b?{c}/d\\e"] {
            let way = way(path, &[1, 1, 1]);
            let names: Vec<&[u8]> = way
                .iter()
                .filter_map(|step| step.name.as_ref().map(EntryName::as_bytes))
                .collect();
            let rule = pattern(&names).expect("it is text");
            assert!(
                is_left_out(&options(&[&rule], None, false), 1, &way),
                "{rule}"
            );
        }
    }

    #[test]
    fn a_file_is_left_out_by_the_rule_that_is_advised_by_one_above_or_by_a_list() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).expect("a path");
        let odd = path("a/[b]*/c?{d}\\e");
        let rule = rule_for(&odd).expect("it is text");
        let cases = [
            (options(&[], None, false), path("a/b"), false),
            (options(&["/a/"], None, false), path("a/b"), true),
            (options(&["b/"], None, false), path("a/b"), false),
            (options(&["b"], None, false), path("a/b"), true),
            (options(&[], Some("a"), false), path("a/b"), false),
            (options(&[], Some("a/c"), false), path("a/b"), true),
            (options(&[&rule], None, false), odd, true),
            (options(&[&rule], None, false), path("a/b/cxd\\e"), false),
        ];
        for (options, path, left_out) in cases {
            assert_eq!(
                leaves_out_file(&options, &path),
                left_out,
                "{options:?} {path}"
            );
        }
    }
}
