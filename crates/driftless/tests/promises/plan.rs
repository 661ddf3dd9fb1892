//! A small tree as a value: planned from a seed, changed as values, and built where it is wanted.
//! The source, an earlier copy and a replica come from one plan, so that most of their entries are
//! alike and some differ in one thing alone.

use super::attrs::{self, ACL_ACCESS, ACL_DEFAULT, CAPABILITY};
use fastrand::Rng;
use rustix::fs::FileType;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

/// Directories of every plan; the first is the root.
const DIRS: [&str; 6] = ["", "a", "a/b", "build", "c", "c/build"];
/// Names that a directory may have: the rules of the test take some and exclude others.
const NAMES: [&str; 7] = ["four", "keep.o", "one", "six", "three.tmp", "two.o", "zero"];
/// Names that the source never has.
const EXTRAS: [&str; 3] = ["old", "old.o", "old.tmp"];
/// Around the bounds of the test on sizes.
const SIZES: [u64; 5] = [0, 10, 3000, 5000, 70_000];
/// Persons who try, users whom ACLs name, and others.
const USERS: [u32; 5] = [0, 999, 3333, 4321, 5555];
const GROUPS: [u32; 4] = [0, 100, 2222, 4444];
const FILE_MODES: [u32; 9] = [
    0o644, 0o600, 0o640, 0o664, 0o666, 0o604, 0o755, 0o4755, 0o2750,
];
const DIR_MODES: [u32; 7] = [0o755, 0o750, 0o700, 0o2775, 0o1777, 0o711, 0o705];
/// Percent of the entries that a later plan has otherwise.
const CHANGED_PERCENT: u8 = 45;

/// The type of an entry, with what only that type has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The seed of its content, its size, and whether most of it is a hole.
    File(u64, u64, bool),
    Dir,
    Symlink(String),
    Fifo,
    Device(u32),
    /// A further name of a file.
    Name(String),
}

/// An entry, with all that is kept of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub kind: Kind,
    owner: (u32, u32),
    mode: u32,
    acl: Option<Vec<u8>>,
    default_acl: Option<Vec<u8>>,
    xattr: Option<u8>,
    has_capability: bool,
    mtime: (i64, u32),
    atime: i64,
}

/// A tree: entries by their paths; the root has an empty one.
#[derive(Clone, Debug)]
pub struct Plan(pub BTreeMap<String, Entry>);

/// Returns an ACL of random rights for one user and one group.
fn random_acl(rng: &mut Rng) -> Vec<u8> {
    let rights = [0, 4, 5, 6, 7];
    let mut right = || rights[rng.usize(..rights.len())];
    let (user, group, others) = (right(), right(), right());
    attrs::acl_blob((3333, user), (4444, group), others)
}

fn one_of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.usize(..all.len())]
}

fn random_file(rng: &mut Rng) -> Kind {
    let is_sparse = rng.u8(..10) == 0;
    let size = if is_sparse {
        200_000
    } else {
        one_of(rng, &SIZES)
    };
    Kind::File(rng.u64(..), size, is_sparse)
}

fn random_kind(rng: &mut Rng) -> Kind {
    match rng.u8(..20) {
        0..13 => random_file(rng),
        13..16 => Kind::Symlink(format!("target-{}", rng.u8(..))),
        16..18 => Kind::Fifo,
        _ => Kind::Device(rng.u32(1..200)),
    }
}

fn random_entry(rng: &mut Rng, kind: Kind) -> Entry {
    let modes: &[u32] = if kind == Kind::Dir {
        &DIR_MODES
    } else {
        &FILE_MODES
    };
    let acl = (rng.u8(..4) == 0).then(|| random_acl(rng));
    let default_acl = (rng.u8(..6) == 0).then(|| random_acl(rng));
    Entry {
        owner: (one_of(rng, &USERS), one_of(rng, &GROUPS)),
        mode: one_of(rng, modes),
        acl,
        default_acl,
        xattr: (rng.u8(..4) == 0).then(|| rng.u8(..)),
        has_capability: rng.u8(..12) == 0,
        mtime: (rng.i64(1..1_500_000_000), rng.u32(..1_000_000_000)),
        atime: rng.i64(1..1_500_000_000),
        kind,
    }
}

fn below(dir: &str, name: &str) -> String {
    if dir.is_empty() {
        name.to_owned()
    } else {
        format!("{dir}/{name}")
    }
}

impl Plan {
    /// Plans a source.
    pub fn random(rng: &mut Rng) -> Plan {
        let mut plan = Plan(BTreeMap::new());
        for dir in DIRS {
            let entry = random_entry(rng, Kind::Dir);
            plan.0.insert(dir.to_owned(), entry);
        }
        for dir in DIRS {
            for name in NAMES {
                if rng.u8(..10) < 6 {
                    let kind = plan.further_name(rng).unwrap_or_else(|| random_kind(rng));
                    plan.0.insert(below(dir, name), random_entry(rng, kind));
                }
            }
        }
        plan
    }

    /// Returns sometimes a further name of a file that is planned already.
    fn further_name(&self, rng: &mut Rng) -> Option<Kind> {
        let is_file = |(_, entry): &(&String, &Entry)| matches!(entry.kind, Kind::File(..));
        let files: Vec<&String> = self
            .0
            .iter()
            .filter(is_file)
            .map(|(path, _)| path)
            .collect();
        if rng.u8(..8) > 0 || files.is_empty() {
            return None;
        }
        Some(Kind::Name(files[rng.usize(..files.len())].clone()))
    }

    /// Plans an earlier or a later state: of some entries one thing is otherwise, some are missing,
    /// and some are there that the source lacks.
    pub fn changed(&self, rng: &mut Rng) -> Plan {
        let mut plan = self.clone();
        for (path, entry) in &self.0 {
            if rng.u8(..100) < CHANGED_PERCENT {
                plan.change_one(rng, path, entry);
            }
        }
        for dir in DIRS {
            for name in EXTRAS {
                if rng.u8(..4) == 0 {
                    let kind = random_kind(rng);
                    plan.0.insert(below(dir, name), random_entry(rng, kind));
                }
            }
        }
        plan.settled()
    }

    /// Changes one thing of an entry. What becomes a directory is not empty in most cases.
    fn change_one(&mut self, rng: &mut Rng, path: &str, entry: &Entry) {
        let Some(new) = change(rng, entry, path.is_empty()) else {
            self.0.remove(path);
            return;
        };
        if new.kind == Kind::Dir && entry.kind != Kind::Dir {
            for name in ["inside", "inside.o"] {
                if rng.bool() {
                    let kind = random_file(rng);
                    self.0.insert(below(path, name), random_entry(rng, kind));
                }
            }
        }
        self.0.insert(path.to_owned(), new);
    }

    /// Drops entries below what is no directory, and makes files of names whose file is gone.
    fn settled(self) -> Plan {
        let is_dir = |path: &str| {
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            self.0
                .get(parent)
                .is_some_and(|entry| entry.kind == Kind::Dir)
        };
        let mut kept = BTreeMap::new();
        for (path, entry) in &self.0 {
            let parents = path.match_indices('/').map(|(at, _)| &path[..at]);
            let is_kept = is_dir(path) && parents.into_iter().all(is_dir);
            if path.is_empty() || is_kept {
                kept.insert(path.clone(), entry.clone());
            }
        }
        let names: Vec<(String, String)> = kept
            .iter()
            .filter_map(|(path, entry)| match &entry.kind {
                Kind::Name(first) => Some((path.clone(), first.clone())),
                _ => None,
            })
            .collect();
        for (path, first) in names {
            let is_file = matches!(
                kept.get(&first),
                Some(Entry {
                    kind: Kind::File(..),
                    ..
                })
            );
            if let (false, Some(entry)) = (is_file, kept.get_mut(&path)) {
                entry.kind = Kind::File(7, 3000, false);
            }
        }
        Plan(kept)
    }

    /// Builds the tree in a directory that is there. What `linked` has as it is planned here
    /// becomes a further name of that file.
    pub fn build(&self, root: &Path, linked: Option<(&Plan, &Path)>) {
        let shared = |path: &String, entry: &Entry| {
            let (plan, other) = linked?;
            let is_same = plan.0.get(path) == Some(entry);
            let is_file = matches!(entry.kind, Kind::File(..));
            (is_same && is_file).then(|| other.join(path))
        };
        let is_name = |entry: &Entry| matches!(entry.kind, Kind::Name(_));
        for (path, entry) in self.0.iter().filter(|(_, entry)| !is_name(entry)) {
            match shared(path, entry) {
                Some(other) => fs::hard_link(other, root.join(path)).expect("share a file"),
                None => entry.make(&root.join(path)),
            }
        }
        for (path, entry) in &self.0 {
            if let Kind::Name(first) = &entry.kind {
                fs::hard_link(root.join(first), root.join(path)).expect("a further name");
            }
        }
        let dirs = self.0.iter().filter(|(_, entry)| entry.kind == Kind::Dir);
        for (path, entry) in dirs.rev() {
            // A slash at the end of the root would do no harm.
            entry.dress(&root.join(path));
        }
    }
}

/// Plants files that differ in content alone, or by a second besides, and one that only the earlier
/// copy has so.
pub fn plant(source: &mut Plan, before: &mut Plan, now: &mut Plan) {
    let mut rng = Rng::with_seed(1);
    for name in ["linked", "silent", "window"] {
        let entry = random_entry(&mut rng, Kind::File(1, 3000, false));
        let mut other = entry.clone();
        other.kind = Kind::File(2, 3000, false);
        other.mtime.0 += i64::from(name == "window");
        let is_linked = name == "linked";
        let earlier = if is_linked { &other } else { &entry };
        before.0.insert(name.to_owned(), earlier.clone());
        source.0.insert(name.to_owned(), entry);
        if !is_linked {
            now.0.insert(name.to_owned(), other);
        }
    }
}

/// Returns an entry that is otherwise in one thing; `None` if it is missing.
fn change(rng: &mut Rng, entry: &Entry, is_root: bool) -> Option<Entry> {
    let mut new = entry.clone();
    let another = random_entry(rng, entry.kind.clone());
    match rng.u8(if is_root { 5..11 } else { 0..14 }) {
        0 => return None,
        1 => (new.kind, new.mtime) = (other_content(rng, &new.kind), another.mtime),
        // Nothing but a comparison of the content tells these two.
        2 => new.kind = other_content(rng, &new.kind),
        3 => {
            new.kind = other_content(rng, &new.kind);
            new.mtime.0 += 1;
        }
        4 => (new.kind, new.mtime) = (random_kind(rng), another.mtime),
        5 => new.mode = another.mode,
        6 => new.owner = another.owner,
        7 => new.acl = another.acl,
        8 => (new.xattr, new.default_acl) = (another.xattr, another.default_acl),
        9 => new.mtime = another.mtime,
        10 => (new.mode, new.acl) = (another.mode | 0o666, None),
        11 => (new.has_capability, new.atime) = (another.has_capability, another.atime),
        12 => new.kind = Kind::Dir,
        _ => (new.owner, new.mode, new.mtime) = (another.owner, another.mode, another.mtime),
    }
    Some(new)
}

/// Returns the same file with another content of the same size.
fn other_content(rng: &mut Rng, kind: &Kind) -> Kind {
    match kind {
        Kind::File(_, size, is_sparse) => Kind::File(rng.u64(..), *size, *is_sparse),
        other => other.clone(),
    }
}

impl Entry {
    fn make(&self, path: &Path) {
        match &self.kind {
            Kind::Dir if path.is_dir() => return,
            Kind::Dir => return fs::create_dir(path).expect("a directory"),
            Kind::File(seed, size, is_sparse) => write(path, *seed, *size, *is_sparse),
            Kind::Symlink(target) => symlink(target, path).expect("a symbolic link"),
            Kind::Fifo => attrs::make_node(path, FileType::Fifo, 0, 0).expect("a fifo"),
            Kind::Device(minor) => {
                attrs::make_node(path, FileType::CharacterDevice, 77, *minor).expect("a device")
            }
            Kind::Name(_) => return,
        }
        self.dress(path);
    }

    /// Sets all attributes, in the order in which none takes another away.
    fn dress(&self, path: &Path) {
        let is_link = matches!(self.kind, Kind::Symlink(_));
        let is_file = matches!(self.kind, Kind::File(..));
        let (uid, gid) = self.owner;
        attrs::set_owner(path, uid, gid).expect("owner");
        if !is_link {
            attrs::set_mode(path, self.mode).expect("mode");
        }
        let set = |is_wanted: bool, name: &str, value: Option<&[u8]>| {
            if let (true, Some(value)) = (is_wanted, value) {
                attrs::set_xattr(path, name.as_bytes(), value).expect(name);
            }
        };
        let value = self.xattr.map(|byte| [byte; 5]);
        let value = value.as_ref().map(|value| &value[..]);
        let is_dir = self.kind == Kind::Dir;
        set(is_file || is_dir, "user.note", value);
        set(!is_link, "trusted.note", value);
        set(!is_link, ACL_ACCESS, self.acl.as_deref());
        set(is_dir, ACL_DEFAULT, self.default_acl.as_deref());
        let capability = self.has_capability.then(|| attrs::capability_blob(1 << 10));
        set(is_file, CAPABILITY, capability.as_deref());
        attrs::set_atime(path, self.atime, 0).expect("atime");
        attrs::set_mtime(path, self.mtime.0, self.mtime.1).expect("mtime");
    }
}

/// Writes a file whose content follows from the seed.
fn write(path: &Path, seed: u64, size: u64, is_sparse: bool) {
    let file = File::create_new(path).expect("a file");
    let length = if is_sparse { 9000 } else { size };
    let mut rng = Rng::with_seed(seed);
    let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..))
        .take(length as usize)
        .collect();
    let at = if is_sparse { size / 2 } else { 0 };
    file.write_all_at(&bytes, at).expect("content");
    file.set_len(size).expect("size");
}
