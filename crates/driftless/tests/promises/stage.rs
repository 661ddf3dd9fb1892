//! The trees of one seed: a source, and the replica and the earlier copy that each run gets anew.

use super::choice::{MOUNT, RULES, list_of};
use super::common::mounted::Mounted;
use super::common::put;
use super::common::rights::{Right, rights};
use super::plan::{Plan, plant};
use super::{FsKind, Scratch, Snapshot, snapshot};
use fastrand::Rng;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// More than all runs of one seed need at a time.
const SIZE_MIB: u64 = 400;

/// The trees that all runs of one seed begin with.
pub struct Stage {
    pub src: PathBuf,
    pub source: Snapshot,
    /// The paths that `--files-from` lists.
    pub listed: BTreeSet<String>,
    pub source_rights: BTreeSet<Right>,
    pub replica_rights: BTreeSet<Right>,
    template: PathBuf,
    places: AtomicU64,
    // Unmounted before the file system that it lies on.
    _inner: Mounted,
    scratch: Scratch,
}

/// A fresh replica with its earlier copy; both are removed when this is dropped.
pub struct Place {
    root: PathBuf,
    pub dst: PathBuf,
    pub earlier: PathBuf,
    pub state: PathBuf,
    /// Files for `--filter-from` and `--files-from`.
    pub rules: String,
    pub list: String,
}

impl Stage {
    pub fn new(seed: u64) -> Stage {
        let mut rng = Rng::with_seed(seed);
        let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
        // To copy the template would change its access times.
        remount_without_access_times(scratch.path());
        let (src, template) = (scratch.dir("src"), scratch.dir("template"));
        let (earlier, dst) = (template.join("earlier"), template.join("dst"));
        for root in [&src, &earlier, &dst] {
            fs::create_dir_all(root.join(MOUNT)).expect("mkdir");
        }
        for name in ["there", "old"] {
            put(&dst.join(MOUNT).join(name), "of the replica");
        }
        let mut source = Plan::random(&mut rng);
        let mut before = source.changed(&mut rng);
        let mut now = before.changed(&mut rng);
        plant(&mut source, &mut before, &mut now);
        source.build(&src, None);
        before.build(&earlier, None);
        now.build(&dst, Some((&before, &earlier)));
        let inner = Mounted::tmpfs(&src.join(MOUNT));
        put(&src.join(MOUNT).join("there"), "of the source");
        let listed = list_of(&source);
        put(&scratch.path().join("rules"), RULES);
        let lines: Vec<&str> = listed.iter().map(String::as_str).collect();
        put(&scratch.path().join("list"), lines.join("\n") + "\n");
        Stage {
            source: snapshot(&src, true),
            listed,
            source_rights: rights(&src),
            replica_rights: rights(&dst),
            src,
            template,
            places: AtomicU64::new(0),
            _inner: inner,
            scratch,
        }
    }

    /// Copies the replica and the earlier copy, which share files.
    pub fn place(&self) -> Place {
        let number = self.places.fetch_add(1, Relaxed);
        let root = self.scratch.path().join(format!("run-{number}"));
        let done = Command::new("cp")
            .arg("-a")
            .arg(&self.template)
            .arg(&root)
            .status();
        assert!(done.expect("cp starts").success(), "cp -a");
        let text = |name: &str| self.scratch.path().join(name).display().to_string();
        Place {
            dst: root.join("dst"),
            earlier: root.join("earlier"),
            state: root.join("state"),
            rules: text("rules"),
            list: text("list"),
            root,
        }
    }
}

fn remount_without_access_times(at: &Path) {
    let mut mount = Command::new("mount");
    let done = mount.args(["-o", "remount,noatime"]).arg(at).status();
    assert!(done.expect("mount starts").success(), "remount");
}

impl Drop for Place {
    fn drop(&mut self) {
        super::remove_deep(&self.root).expect("remove");
    }
}
