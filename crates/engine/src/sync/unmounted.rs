//! What a run finds out about file systems that are mounted below the source.

use crate::sync::run::Run;
use crate::sync::visit::Visit;
use crate::trees::mounts::{MOUNTS_MAX, UNMOUNTED, at_or_below};
use driftless_model::{Act, Class, Kind, Meta, Problem, RelPath, Side};
use driftless_mover::Trouble;
use driftless_tree::{DirMutRef, DirRef, Names};
use std::ffi::CStr;
use std::sync::Arc;

/// Why a directory of the source is not entered: its place on the replica is none that a snapshot
/// holds.
const MOUNTED_THERE: &str = "a file system or a subvolume of its own is there, which snapshots do not hold: \
    what the other side has at this path has to be moved by hand, into it or elsewhere";

impl Run<'_> {
    /// Whether something was mounted on a directory of the source in an earlier run, and is not
    /// now, or is another one than on the coordinator's host. If something is, that is noted.
    pub fn is_unmounted(&self, parent: &Visit, name: &CStr, source: &DirRef) -> bool {
        let known = &self.options.known_mounts;
        let was = !known.is_empty() && known.contains(&parent.path_of(name));
        let crosses = source.first_meta().dev != parent.source.first_meta().dev;
        // A bind mount shows another part of the same file system, and a subvolume is none.
        let is = source.is_mount_root().unwrap_or(crosses);
        if is && !self.is_foreign(source) {
            self.meet_mount(parent.path_of(name));
        }
        let is_other = self
            .options
            .mounted
            .get(&parent.path_of(name))
            .is_some_and(|shown| !shown.is_dir(source));
        was && !is || is_other
    }

    /// Whether a file of the source that is no directory is another one than what is mounted at its
    /// name on the coordinator's host.
    pub fn is_other_file(&self, visit: &Visit, name: &CStr) -> bool {
        let mounted = &self.options.mounted;
        !mounted.is_empty()
            && mounted
                .get(&visit.path_of(name))
                .is_some_and(|shown| !shown.is_file(&visit.source, name))
    }

    /// Notes a mounted file system before anything on it is copied: the run may be killed at any
    /// time.
    fn meet_mount(&self, path: RelPath) {
        let mut met = self.mounts.met.lock();
        let is_new = met.len() < MOUNTS_MAX && met.insert(path.clone());
        drop(met);
        if is_new {
            self.options.note_mounts(&[path].into());
        }
    }

    /// Notes that something is mounted on a directory of the replica, if so.
    pub fn meet_on_replica(&self, parent: &Visit, name: &CStr, replica: Option<&DirMutRef>) {
        let Some(notes) = &self.options.replica_mounts else {
            return;
        };
        if replica.is_some_and(|replica| replica.is_mount_root() == Some(true)) {
            notes.met(&[parent.path_of(name)].into());
        }
    }

    /// Whether a directory of the source lies on another file system than its root, and is not
    /// entered for that.
    pub fn is_foreign(&self, source: &DirRef) -> bool {
        self.options
            .is_foreign(source.first_meta().dev, self.roots.0.first_meta().dev)
    }

    /// Whether a directory of the replica lies on another file system than its root, and is left as
    /// it is for that. What the source has there would have to go into it.
    pub fn is_left(&self, source: &DirRef, replica: Option<&DirMutRef>) -> Result<bool, Trouble> {
        let Some((root, replica)) = self.roots.1.as_ref().zip(replica) else {
            return Ok(false);
        };
        let is_other = replica.first_meta().dev != root.first_meta().dev;
        if !self.options.leaves_mounts || !is_other {
            return Ok(false);
        }
        let mut names = Names::default();
        source.list()?.fill(&mut names, 1)?;
        if names.is_empty() {
            return Ok(true);
        }
        Err(Trouble::Barred(Side::Replica, MOUNTED_THERE))
    }

    /// Whether a directory of a snapshot stands in the place of a subvolume, and so shows nothing of
    /// what is in it.
    pub fn is_stub(&self, visit: &Visit) -> bool {
        let source = visit.source.first_meta();
        let is_foreign = |above: &Arc<Visit>| above.source.first_meta().dev != source.dev;
        self.options.enters_stubs && visit.parent.as_ref().is_some_and(is_foreign)
    }

    /// Whether a directory that cannot be entered is of another file system, such as where a file
    /// system is mounted that nobody serves any more.
    pub fn is_foreign_at(&self, visit: &Visit, name: &CStr) -> bool {
        let own = self.roots.0.first_meta().dev;
        let is_foreign =
            |meta: Meta| meta.kind == Kind::Dir && self.options.is_foreign(meta.dev, own);
        // Nobody looks there unless it matters.
        self.options.policy.one_file_system && visit.source.peek(name).is_ok_and(is_foreign)
    }

    /// Whether something was mounted at or below a path that the source lacks, which the rules do
    /// not leave out; it is told once.
    pub fn hides_mount(&self, visit: &Visit, name: &CStr) -> bool {
        if self.options.known_mounts.is_empty() {
            return false;
        }
        let path = visit.path_of(name);
        let hides = self.had_mount(&path) && self.takes(visit, name, true);
        if hides && self.mounts.told.lock().insert(path.clone()) {
            self.report(&Problem {
                path,
                side: Side::Source,
                act: Act::Find,
                cause: UNMOUNTED.into(),
                class: Class::Skip,
            });
        }
        hides
    }

    /// Whether something was mounted at or below a path in an earlier run.
    pub fn had_mount(&self, path: &RelPath) -> bool {
        at_or_below(&self.options.known_mounts, path)
    }
}
