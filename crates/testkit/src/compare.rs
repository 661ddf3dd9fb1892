//! The oracle: are two trees the same, in everything a replica promises to keep?
//!
//! It scans both sides on its own and compares values. Contents are compared apart from holes,
//! holes apart from contents, and hard links as a partition: the same names must share an inode on
//! both sides.

use crate::bytes::{escape, shorten};
use crate::hash::Hash;
use crate::scan::{Depth, Node, Scan};
use rustix::fs::FileType;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;

const PRINTED_MAX: usize = 40;
const PATH_CHARS_MAX: usize = 300;

/// What to compare; everything that a replica keeps by default, and never atimes.
#[derive(Clone, Debug)]
pub struct Options {
    /// File contents and sizes.
    pub content: bool,
    /// Permission bits.
    pub mode: bool,
    /// User ids.
    pub owner: bool,
    /// Group ids.
    pub group: bool,
    /// Modification times of everything, directories and symbolic links included.
    pub mtime: bool,
    /// Modification times are compared after both are cut to a multiple of this.
    pub mtime_grain_ns: u64,
    /// Access times of regular files.
    pub atime: bool,
    /// Extended attributes other than ACLs.
    pub xattrs: bool,
    /// Access and default ACLs.
    pub acls: bool,
    /// Hole maps.
    pub holes: bool,
    /// Which names share an inode.
    pub hard_links: bool,
    /// Paths relative to the root that are left out, with all below.
    pub ignore: Vec<Vec<u8>>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            content: true,
            mode: true,
            owner: true,
            group: true,
            mtime: true,
            mtime_grain_ns: 1,
            atime: false,
            xattrs: true,
            acls: true,
            holes: true,
            hard_links: true,
            ignore: Vec::new(),
        }
    }
}

/// One property of one path that is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path relative to the roots.
    pub path: Vec<u8>,
    /// Which property: `missing`, `extra`, `type`, `size`, `content`, `mode`, `uid`, `gid`,
    /// `mtime`, ...
    pub kind: &'static str,
    /// Its value on the first side.
    pub a: String,
    /// Its value on the second side.
    pub b: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = shorten(&escape(&self.path), PATH_CHARS_MAX);
        write!(f, "\"{path}\": {}: {} | {}", self.kind, self.a, self.b)
    }
}

/// Compares two trees (or two single files) and returns every difference.
pub fn compare(a: &Path, b: &Path, options: &Options) -> Vec<Difference> {
    let depth = Depth {
        content: options.content,
        holes: options.holes,
    };
    let scan = |root: &Path| {
        Scan::of(root, depth).unwrap_or_else(|e| panic!("cannot scan {}: {e}", root.display()))
    };
    if options.holes {
        flush(a);
        flush(b);
    }
    let (a, b) = (scan(a), scan(b));
    let mut work = Comparison {
        a: &a,
        b: &b,
        options,
        links: Links::default(),
        found: Vec::new(),
    };
    work.walk();
    work.found
}

/// Panics with a readable list if two trees differ; `context` says what was done before.
pub fn assert_equal(a: &Path, b: &Path, options: &Options, context: &str) {
    let found = compare(a, b, options);
    if found.is_empty() {
        return;
    }
    let lines: Vec<String> = found
        .iter()
        .take(PRINTED_MAX)
        .map(|difference| format!("  {difference}"))
        .collect();
    panic!(
        "{context}: {} differences\n{}",
        found.len(),
        lines.join("\n")
    );
}

/// A digest over everything [`compare`] looks at, for proofs that a tree was never touched; `ctime`
/// adds inode change times.
pub fn snapshot_hash(root: &Path, ctime: bool) -> u128 {
    let mut hash = Hash::new();
    for (path, properties) in snapshot(root, ctime) {
        hash.bytes(&path);
        for (kind, value) in properties {
            hash.bytes(kind.as_bytes());
            hash.bytes(value.as_bytes());
        }
    }
    hash.finish()
}

/// Properties by the path of each entry, relative to the root.
pub type Snapshot = BTreeMap<Vec<u8>, Vec<(&'static str, String)>>;

/// Everything [`compare`] looks at, with the inode of each entry; `ctime` adds inode change times.
pub fn snapshot(root: &Path, ctime: bool) -> Snapshot {
    let depth = Depth {
        content: true,
        holes: true,
    };
    let scan =
        Scan::of(root, depth).unwrap_or_else(|e| panic!("cannot scan {}: {e}", root.display()));
    let entry = |(index, node): (usize, &Node)| {
        let mut all: Vec<_> = properties(node)
            .into_iter()
            .filter(|(kind, _)| *kind != "atime")
            .collect();
        all.push(("inode", node.stat.st_ino.to_string()));
        if ctime {
            all.push((
                "ctime",
                format!("{}.{:09}", node.stat.st_ctime, node.stat.st_ctime_nsec),
            ));
        }
        (scan.path(index), all)
    };
    scan.nodes.iter().enumerate().map(entry).collect()
}

/// What became of a tree between two snapshots: a line for each entry, none if it was not touched.
pub fn touched(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let gone = before
        .keys()
        .filter(|path| !after.contains_key(*path))
        .map(|path| format!("\"{}\" is gone", escape(path)));
    let now = after.iter().filter_map(|(path, now)| {
        let Some(was) = before.get(path) else {
            return Some(format!("\"{}\" is new: {now:?}", escape(path)));
        };
        (was != now).then(|| {
            format!(
                "\"{}\": {:?} is now {:?}",
                escape(path),
                differing(was, now),
                differing(now, was)
            )
        })
    });
    gone.chain(now).collect()
}

/// Delayed allocation shows as data where there will be none, so hole maps are only asked for after
/// a flush.
fn flush(root: &Path) {
    let fd = rustix::fs::openat(
        rustix::fs::CWD,
        root,
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK,
        rustix::fs::Mode::empty(),
    );
    if let Ok(fd) = fd {
        rustix::fs::syncfs(fd).expect("flush before hole maps are read");
    }
}

#[derive(Default)]
struct Links {
    a_to_b: HashMap<(u64, u64), (u64, u64)>,
    b_to_a: HashMap<(u64, u64), (u64, u64)>,
}

impl Links {
    /// Whether pairing these two inodes agrees with every pair seen before.
    fn agree(&mut self, a: &Node, b: &Node) -> bool {
        let (a, b) = (
            (a.stat.st_dev, a.stat.st_ino),
            (b.stat.st_dev, b.stat.st_ino),
        );
        *self.a_to_b.entry(a).or_insert(b) == b && *self.b_to_a.entry(b).or_insert(a) == a
    }
}

struct Comparison<'a> {
    a: &'a Scan,
    b: &'a Scan,
    options: &'a Options,
    links: Links,
    found: Vec<Difference>,
}

impl Comparison<'_> {
    fn walk(&mut self) {
        let mut stack = vec![(0, 0)];
        while let Some((a, b)) = stack.pop() {
            self.pair(a, b);
            let both = self.a.nodes[a].kind() == FileType::Directory
                && self.b.nodes[b].kind() == FileType::Directory;
            if both {
                self.children(a, b, &mut stack);
            }
        }
    }

    /// Merges two sorted directories.
    fn children(&mut self, a: usize, b: usize, stack: &mut Vec<(usize, usize)>) {
        let (left, right) = (&self.a.nodes[a].children, &self.b.nodes[b].children);
        let (mut i, mut j) = (0, 0);
        while i < left.len() || j < right.len() {
            let x = left.get(i).map(|index| &self.a.nodes[*index].name);
            let y = right.get(j).map(|index| &self.b.nodes[*index].name);
            match (x, y) {
                (Some(x), Some(y)) if x == y => {
                    stack.push((left[i], right[j]));
                    (i, j) = (i + 1, j + 1);
                }
                (Some(x), y) if y.is_none_or(|y| x < y) => {
                    self.lone(self.a, left[i], "missing");
                    i += 1;
                }
                _ => {
                    self.lone(self.b, right[j], "extra");
                    j += 1;
                }
            }
        }
    }

    fn lone(&mut self, scan: &Scan, index: usize, kind: &'static str) {
        let path = scan.path(index);
        if !self.options.ignore.contains(&path) {
            let text = format!("{:?}", scan.nodes[index].kind());
            let (a, b) = if kind == "missing" {
                (text, String::new())
            } else {
                (String::new(), text)
            };
            self.found.push(Difference { path, kind, a, b });
        }
    }

    fn pair(&mut self, a: usize, b: usize) {
        let (left, right) = (&self.a.nodes[a], &self.b.nodes[b]);
        if !self.options.ignore.is_empty() && self.is_ignored(a) {
            return;
        }
        let (x, y) = (properties(left), properties(right));
        for (kind, value) in differing(&x, &y) {
            let is_cut = kind == "mtime" && self.options.cut(left) == self.options.cut(right);
            if self.options.wants(kind) && !is_cut {
                let other = y
                    .iter()
                    .find(|(k, _)| *k == kind)
                    .map(|(_, v)| v.clone())
                    .unwrap_or_default();
                self.found.push(Difference {
                    path: self.a.path(a),
                    kind,
                    a: value,
                    b: other,
                });
            }
        }
        let linkable = left.kind() != FileType::Directory && right.kind() != FileType::Directory;
        if linkable && self.options.hard_links && !self.links.agree(left, right) {
            let text = |node: &Node| {
                format!(
                    "inode {} with {} links",
                    node.stat.st_ino, node.stat.st_nlink
                )
            };
            let (x, y) = (text(left), text(right));
            self.found.push(Difference {
                path: self.a.path(a),
                kind: "hard_link",
                a: x,
                b: y,
            });
        }
    }

    fn is_ignored(&self, a: usize) -> bool {
        let path = self.a.path(a);
        let below = |root: &Vec<u8>| path == *root || path.starts_with(&[&root[..], b"/"].concat());
        self.options.ignore.iter().any(below)
    }
}

/// The properties of `x` that `y` lacks or has otherwise; one side's type decides which exist.
fn differing(
    x: &[(&'static str, String)],
    y: &[(&'static str, String)],
) -> Vec<(&'static str, String)> {
    if x[0] != y[0] {
        return vec![x[0].clone()];
    }
    x.iter()
        .filter(|property| !y.contains(property))
        .cloned()
        .collect()
}

impl Options {
    /// The mtime in whole grains.
    fn cut(&self, node: &Node) -> i128 {
        let (seconds, nanoseconds) = node.mtime();
        (i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds))
            .div_euclid(i128::from(self.mtime_grain_ns))
    }

    fn wants(&self, kind: &str) -> bool {
        match kind {
            "mode" => self.mode,
            "uid" => self.owner,
            "gid" => self.group,
            "mtime" => self.mtime,
            "atime" => self.atime,
            "xattrs" => self.xattrs,
            "acls" => self.acls,
            "holes" => self.holes,
            "content" => self.content,
            _ => true,
        }
    }
}

/// Every comparable property of an entry by name; the type is first.
fn properties(node: &Node) -> Vec<(&'static str, String)> {
    let kind = node.kind();
    let seconds = node.mtime();
    let (acls, xattrs): (Vec<_>, Vec<_>) = node
        .xattrs
        .iter()
        .partition(|(name, _)| name.starts_with(b"system.posix_acl_"));
    let mut all = vec![
        ("type", format!("{kind:?}")),
        ("uid", node.stat.st_uid.to_string()),
        ("gid", node.stat.st_gid.to_string()),
        ("mtime", format!("{}.{:09}", seconds.0, seconds.1)),
        ("xattrs", format_xattrs(&xattrs)),
        ("acls", format_xattrs(&acls)),
    ];
    match kind {
        FileType::Symlink => {
            all.push(("target", escape(node.target.as_deref().unwrap_or_default())))
        }
        FileType::CharacterDevice | FileType::BlockDevice => {
            all.push(("rdev", format!("{:#x}", node.stat.st_rdev)))
        }
        FileType::RegularFile => {
            all.push(("size", node.stat.st_size.to_string()));
            all.push(("content", format!("{:032x}", node.content)));
            all.push((
                "atime",
                format!("{}.{:09}", node.stat.st_atime, node.stat.st_atime_nsec),
            ));
            all.push(("holes", format!("{:?}", node.extents)));
        }
        _ => (),
    }
    if kind != FileType::Symlink {
        all.push(("mode", format!("{:04o}", node.mode())));
    }
    all
}

fn format_xattrs(xattrs: &[&(Vec<u8>, Vec<u8>)]) -> String {
    let show = |(name, value): &&(Vec<u8>, Vec<u8>)| {
        format!("{}={}", escape(name), shorten(&escape(value), 2000))
    };
    xattrs.iter().map(show).collect::<Vec<_>>().join(", ")
}
