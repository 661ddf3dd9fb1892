//! File systems that the passes of a run met below the source.
//!
//! The notes of a run hold what earlier runs met. A pass adds to them, and the next pass of the same
//! run does not read them again. These notes stand in front of them and hand on what the passes before
//! it met, so that a file system that was unmounted while the line was cut is missed.

use driftless_engine::{MountNotes, Options};
use driftless_lock::Mutex;
use driftless_model::RelPath;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Notes of the mount points that the passes of one run met.
#[derive(Debug, Default)]
pub struct MetMounts {
    /// Notes that later runs read, if the run keeps any.
    kept: Option<Arc<dyn MountNotes>>,
    met: Mutex<BTreeSet<RelPath>>,
}

impl MetMounts {
    /// Puts new notes in front of those of the run.
    pub fn begin(options: &mut Options) -> Arc<MetMounts> {
        let notes = Arc::new(MetMounts {
            kept: options.mount_notes.take(),
            met: Mutex::default(),
        });
        options.mount_notes = Some(notes.clone());
        notes
    }

    /// Returns the notes of the run, if it keeps any.
    pub fn kept(&self) -> Option<&Arc<dyn MountNotes>> {
        self.kept.as_ref()
    }

    /// Has the next pass miss what was unmounted since a pass before it met it.
    pub fn expect(&self, options: &mut Options) {
        let known = Arc::make_mut(&mut options.known_mounts);
        known.extend(self.met.lock().iter().cloned());
    }
}

impl MountNotes for MetMounts {
    fn met(&self, paths: &BTreeSet<RelPath>) {
        self.met.lock().extend(paths.iter().cloned());
        self.kept.iter().for_each(|kept| kept.met(paths));
    }

    fn all(&self) -> BTreeSet<RelPath> {
        let kept = self.kept.as_ref().map(|kept| kept.all());
        let mut all = kept.unwrap_or_default();
        all.extend(self.met.lock().iter().cloned());
        all
    }
}
