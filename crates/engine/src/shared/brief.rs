//! What a mover must know of a run to carry out batches of it: a plain value that travels with
//! each.
//!
//! It holds no command, no password and no file name of the coordinator's host but the two trees.

use crate::options::Options;
use crate::sample::Sample;
use crate::shared::batch::Route;
use crate::trees::held::Held;
use crate::trees::mounts::common_inode;
use driftless_model::{Keep, Meta, Policy, RelPath, Side, Stamp};
use driftless_tree::{DirMutRef, DirRef, Endpoint, Rights};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Maps of a process that cannot read those of its namespace.
const UNREADABLE_IDS: &str = " / ";

/// Movers that are remembered as not to be believed; of more, the first is forgotten.
const DISTRUSTED_MAX: usize = 64;

/// What is asked of each mover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brief {
    source: Vec<u8>,
    replica: Vec<u8>,
    policy: Policy,
    known_mounts: Vec<RelPath>,
    /// What those show that are on the coordinator's host.
    mounted: Vec<(RelPath, Sample)>,
    /// Mounts below the replica on the coordinator's host, with inode numbers.
    replica_mounts: Vec<(RelPath, u64)>,
    chosen: bool,
    /// Which files are work of their own class, the largest first.
    pub routes: Vec<Route>,
    /// Whether receipts are wanted.
    pub receipts: bool,
    /// Inodes of the source and of the replica, or of the directories around single files, as
    /// the coordinator sees them.
    roots: (u64, u64),
    /// What the coordinator may do on the replica, once that is known.
    rights: Option<Rights>,
    /// Users and groups of the coordinator's namespace, if one of the trees is on its host.
    id_maps: Option<String>,
    /// Boots of the machines of the source and of the replica that are reached over ssh, as far as
    /// they tell.
    machines: [Option<Vec<u8>>; 2],
    /// What else shows which directory the source is.
    sample: Option<Sample>,
    /// By what a mover knows that the run holds the replica; nothing where the replica takes no
    /// mark.
    held: Option<Held>,
    /// Since when changes of the replica may not be durable.
    suspect_since: Option<Stamp>,
    /// Movers that are not believed any more, and why.
    distrusted: Vec<(String, String)>,
}

impl Brief {
    /// What movers must know of a run with these options, whose trees are what the user typed.
    pub fn of(options: &Options, routes: &[Route], receipts: bool) -> Brief {
        let typed = |root: &Endpoint| root.to_bytes();
        let mut routes = routes.to_vec();
        routes.sort_by_key(|route| std::cmp::Reverse(route.size_min));
        Brief {
            source: typed(&options.source),
            replica: typed(&options.replica),
            policy: options.policy.clone(),
            known_mounts: options.known_mounts.iter().cloned().collect(),
            mounted: Vec::new(),
            replica_mounts: Vec::new(),
            chosen: options.selection.is_some(),
            routes,
            receipts,
            roots: (0, 0),
            rights: None,
            id_maps: None,
            machines: [None, None],
            sample: None,
            held: None,
            suspect_since: None,
            distrusted: Vec::new(),
        }
    }

    /// This run, with no receipts wanted.
    #[must_use]
    pub fn without_receipts(&self) -> Brief {
        Brief {
            receipts: false,
            ..self.clone()
        }
    }

    /// Notes which directories the trees are.
    pub fn set_roots(&mut self, source: &Meta, replica: &Meta) {
        self.roots = (source.ino, replica.ino);
    }

    /// Notes what the coordinator may do on the replica.
    pub fn set_rights(&mut self, rights: Rights) {
        self.rights = Some(rights);
    }

    /// Notes the coordinator's namespace of users and groups, where movers see its numbers.
    pub fn set_id_maps(&mut self, maps: String) {
        self.id_maps = Some(maps);
    }

    /// Returns why a mover in a namespace with these maps sees and gives other owners than the
    /// coordinator, or `None` if it does not.
    pub fn other_ids(&self, maps: &str) -> Option<String> {
        let keep = &self.policy.keep;
        let own = self.id_maps.as_ref().filter(|_| keep.owner || keep.group)?;
        (own != maps).then(|| {
            if maps == UNREADABLE_IDS {
                return "this mover cannot tell its user namespace, in which owners and groups may have other numbers: it cannot read /proc/self/uid_map; mount /proc on its host (mount -t proc proc /proc), or leave owners out with --no-owner --no-group".into();
            }
            format!(
                "this mover is in another user namespace (its maps are \"{maps}\") than the coordinator (\"{own}\"), so owners and groups have other numbers; run movers outside of a user namespace, or leave owners out with --no-owner --no-group"
            )
        })
    }

    /// Notes the machines of the trees that each mover reaches over ssh by itself.
    pub fn set_machines(&mut self, trees: [&Endpoint; 2]) {
        let machine = |root: &Endpoint| root.host.is_some().then(|| root.machine());
        self.machines = trees.map(|root| machine(root).filter(|boot| !boot.is_empty()));
    }

    /// Returns why a mover whose trees are these reaches another machine than the coordinator, or
    /// `None` if it does not.
    pub fn other_machine(&self, trees: [&Endpoint; 2]) -> Option<String> {
        let is_other = |(root, own): &(&Endpoint, &Option<Vec<u8>>)| {
            let here = root.machine();
            !here.is_empty() && own.as_ref().is_some_and(|own| *own != here)
        };
        let (root, _) = trees.into_iter().zip(&self.machines).find(is_other)?;
        Some(format!(
            "\"{root}\": from this mover's host the name leads to another machine than from the coordinator's, or to one that was started again since; name the tree so that all hosts reach the same machine"
        ))
    }

    /// Why a mover with these rights would make something else of the replica than the coordinator
    /// does.
    pub fn misfit(&self, mover: &Rights) -> Option<String> {
        self.rights
            .as_ref()
            .and_then(|coordinator| misfit(&self.policy.keep, coordinator, mover))
    }

    /// Notes what is mounted at these paths of the source, and what it shows.
    pub fn add_mounts(&mut self, mounts: BTreeMap<RelPath, Option<Sample>>) {
        self.known_mounts.extend(mounts.keys().cloned());
        self.known_mounts.sort();
        self.known_mounts.dedup();
        self.mounted = mounts
            .into_iter()
            .filter_map(|(path, shown)| Some((path, shown?)))
            .collect();
    }

    /// Notes what is mounted below the replica on the coordinator's host, with inode numbers.
    pub fn set_replica_mounts(&mut self, mounts: Vec<(RelPath, u64)>) {
        self.replica_mounts = mounts;
    }

    /// Returns a path at which a mover with this replica has something else than what is mounted
    /// there on the coordinator's host.
    pub fn lacking_mount(&self, replica: &DirRef) -> Option<&RelPath> {
        let mut mounts = self.replica_mounts.iter();
        let is_other = |(path, ino): &&(RelPath, u64)| {
            common_inode(replica, path).is_some_and(|here| here != *ino)
        };
        mounts.find(is_other).map(|(path, _)| path)
    }

    /// Notes what shows which directory the source is.
    pub fn set_sample(&mut self, sample: Option<Sample>) {
        self.sample = sample;
    }

    /// Notes by what movers know that the run holds the replica.
    pub fn set_held(&mut self, held: Option<Held>) {
        self.held = held;
    }

    /// By what a mover knows that the run holds the replica.
    pub fn held(&self) -> Option<Held> {
        self.held
    }

    /// Whether both are about the same trees and the same run.
    #[must_use]
    pub fn is_of_one_run(&self, other: &Brief) -> bool {
        *self
            == Brief {
                sample: self.sample.clone(),
                distrusted: self.distrusted.clone(),
                ..other.clone()
            }
    }

    /// Notes that a mover is not believed any more, and why.
    pub fn distrust(&mut self, mover: &str, why: &str) {
        if self.distrusted.len() >= DISTRUSTED_MAX {
            self.distrusted.remove(0);
        }
        self.distrusted.push((mover.to_owned(), why.to_owned()));
    }

    /// Why a mover is not believed, if that is so.
    pub fn distrusts(&self, mover: &str) -> Option<&str> {
        self.distrusted
            .iter()
            .find(|(name, _)| name == mover)
            .map(|(_, why)| &**why)
    }

    /// Notes since when changes of the replica may not be durable, because an earlier run was not
    /// made so.
    pub fn set_suspect_since(&mut self, since: Option<Stamp>) {
        self.suspect_since = since;
    }

    /// Since when changes of the replica may not be durable.
    pub fn suspect_since(&self) -> Option<Stamp> {
        self.suspect_since
    }

    /// Which of the trees is not the one that the coordinator sees: a file system may
    /// not be mounted here.
    pub fn other_root(&self, source: &DirRef, replica: &DirMutRef) -> Option<Side> {
        let is_sampled = || {
            self.sample
                .as_ref()
                .is_none_or(|sample| sample.is_of(source))
        };
        match self.roots {
            (there, _) if there != source.first_meta().ino || !is_sampled() => Some(Side::Source),
            (_, there) if there != replica.first_meta().ino => Some(Side::Replica),
            _ => None,
        }
    }

    /// The source and the replica, as the user typed them.
    pub fn trees(&self) -> (PathBuf, PathBuf) {
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        (path(&self.source), path(&self.replica))
    }

    /// As options of a run whose trees were found at these places.
    pub fn options(&self, source: Endpoint, replica: Endpoint) -> Options {
        Options {
            source,
            replica,
            policy: self.policy.of_mover(),
            known_mounts: Arc::new(self.known_mounts.iter().cloned().collect()),
            mounted: Arc::new(self.mounted.iter().cloned().collect()),
            ..Options::default()
        }
    }

    /// Returns whether directories that stand in the way are left to the coordinator: it counts what
    /// is removed, and with `--delete` they may be full of what a mover does not see in the source.
    pub fn limited(&self) -> bool {
        self.policy.delete || self.policy.delete_limit.is_some()
    }

    /// Whether the user listed the paths that are looked at.
    pub fn chosen(&self) -> bool {
        self.chosen
    }

    /// The class of a file's content: the number of its route and one more, 0 without a route.
    pub fn class_of(&self, size: u64) -> u8 {
        let route = self.routes.iter().position(|route| size >= route.size_min);
        route.map_or(0, |index| index as u8 + 1)
    }
}

/// Why what a mover makes is not what the coordinator would make, where owners are kept: it may do
/// less, or gives all to another user.
///
/// An ordinary user may give entries to the groups of the process alone, so a mover needs all groups
/// of the coordinator.
pub fn misfit(keep: &Keep, coordinator: &Rights, mover: &Rights) -> Option<String> {
    if !keep.owner && !keep.group {
        return None;
    }
    let lacks = |has: bool, wanted: bool| wanted && !has;
    let cannot = match () {
        () if lacks(mover.any_owner, coordinator.any_owner) => "give entries to their owners",
        () if keep.xattrs && lacks(mover.capabilities, coordinator.capabilities) => {
            "give files their capabilities"
        }
        () if keep.xattrs && lacks(mover.trusted, coordinator.trusted) => {
            "set attributes \"trusted.*\""
        }
        () if !coordinator.any_owner && mover.uid != coordinator.uid => {
            "make entries that are the coordinator's"
        }
        () => return lacks_groups(keep, coordinator, mover),
    };
    Some(format!(
        "this mover runs as user {} and cannot {cannot}, as the coordinator, user {}, would; run movers as the coordinator's user",
        mover.uid, coordinator.uid
    ))
}

/// Returns why an ordinary user cannot give entries to the groups that the coordinator can.
fn lacks_groups(keep: &Keep, coordinator: &Rights, mover: &Rights) -> Option<String> {
    if !keep.group || mover.any_owner {
        return None;
    }
    let has = |group: &&u32| mover.gid == **group || mover.groups.contains(*group);
    let all = coordinator.groups.iter().chain([&coordinator.gid]);
    let lacking: Vec<String> = all
        .filter(|group| !has(group))
        .map(u32::to_string)
        .collect();
    (!lacking.is_empty()).then(|| {
        format!(
            "this mover, user {}, is not in the groups {} of the coordinator and cannot give entries to them; add the user to them on this host, or leave groups out with --no-group",
            mover.uid,
            lacking.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, may: bool) -> Rights {
        Rights {
            uid,
            gid: uid,
            groups: Vec::new(),
            any_owner: may,
            capabilities: may,
            trusted: may,
        }
    }

    fn grouped(groups: &[u32]) -> Rights {
        Rights {
            groups: groups.to_vec(),
            ..user(10, false)
        }
    }

    #[test]
    fn a_mover_fits_that_makes_what_the_coordinator_would() {
        let [all, no_owners] = [
            Keep::default(),
            Keep {
                owner: false,
                group: false,
                ..Keep::default()
            },
        ];
        let no_xattrs = Keep {
            xattrs: false,
            ..all
        };
        let bare = Rights {
            capabilities: false,
            trusted: false,
            ..user(0, true)
        };
        for (keep, coordinator, mover, fits) in [
            (&all, user(0, true), user(0, true), true),
            (&all, user(0, true), user(10, false), false),
            (&no_owners, user(0, true), user(10, false), true),
            (&all, user(0, true), bare.clone(), false),
            (&no_xattrs, user(0, true), bare, true),
            (&all, user(10, false), user(10, false), true),
            (&all, user(10, false), user(11, false), false),
            (&all, user(10, false), user(0, true), false),
            (&no_owners, user(10, false), user(0, true), true),
            (&all, grouped(&[5, 6]), grouped(&[6, 5, 7]), true),
            (&all, grouped(&[5, 6]), grouped(&[5]), false),
            (&no_owners, grouped(&[5, 6]), grouped(&[5]), true),
        ] {
            let said = misfit(keep, &coordinator, &mover);
            assert_eq!(said.is_none(), fits, "{coordinator:?} {mover:?}: {said:?}");
            assert!(said.is_none_or(|said| said.contains(&format!("user {}", mover.uid))));
        }
    }

    #[test]
    fn mover_that_cannot_read_its_maps_says_so() {
        let mut brief = Brief::of(&Options::default(), &[], false);
        brief.set_id_maps("0 0 4294967295 / 0 0 4294967295".into());
        for (maps, words) in [
            (UNREADABLE_IDS, "mount /proc on its host"),
            ("0 10 1 / 0 10 1", "in another user namespace"),
        ] {
            let why = brief.other_ids(maps).expect("another one");
            assert!(why.contains(words), "{why}");
        }
        assert_eq!(brief.other_ids("0 0 4294967295 / 0 0 4294967295"), None);
    }
}
