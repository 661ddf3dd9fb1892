//! What holds for all runs between the same two roots, and is found out once.

use crate::options::Options;
use crate::sync::trash::Trash;
use crate::sync::twice::doubles;
use crate::trees::folding::Folding;
use crate::trees::shown::shown_otherwise;
use crate::trees::steps::Steps;
use driftless_lock::Mutex;
use driftless_model::{Cache, RelPath};
use driftless_pool::Pace;
use driftless_tree::{
    Copier, DirMutRef, DirRef, Done, Ladder, Rights, Unmapped, copies_up, temp_names_given,
};
use std::collections::{BTreeSet, HashMap};
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Copiers that are kept for the next thread that wants one, at most; each has a buffer.
const COPIERS_MAX: usize = 16;
/// Directories of the replica of which it is kept in mind in what they tell names apart, at most.
const FOLDINGS_MAX: usize = 1 << 16;

/// What holds for all runs between the same two roots.
#[derive(Clone)]
pub struct Ground {
    /// The root directories; no replica where a dry run has not made it.
    pub roots: (DirRef, Option<DirMutRef>),
    /// Number of names that this process had given to unfinished entries before the first of these
    /// runs. A clock that jumps would say nothing of their age.
    pub named: u64,
    /// What the file systems can do.
    pub ladder: Arc<Ladder>,
    /// Directories of the replica that a run would come to twice.
    pub doubles: Arc<BTreeSet<RelPath>>,
    /// What the user who acts on the replica may do.
    pub rights: Option<Rights>,
    /// Owners of trees on this host that cannot be told from others.
    pub unmapped: Unmapped,
    /// Limits, in bytes and in requests a second, that all runs keep together.
    pub paces: Arc<(Option<Pace>, Option<Pace>)>,
    /// Where what is removed goes, if it is kept.
    pub trash: Arc<Trash>,
    /// A directory of the replica was found to be append-only (chattr(1)).
    pub has_append_only: Arc<AtomicBool>,
    /// Of a replica whose directories may get other times when entries below them are changed:
    /// held by whoever removes, when the directories above are done.
    pub copying_up: Option<Arc<Mutex<()>>>,
    /// Steps in which the replica's file systems keep times.
    pub steps: Arc<Steps>,
    copiers: Arc<Mutex<Vec<(Cache, Copier)>>>,
    /// In what directories of the replica, by their inodes, tell names apart.
    foldings: Arc<Mutex<HashMap<(u64, u64), Folding>>>,
}

impl Ground {
    /// Finds out about the roots of `options`.
    pub fn of(options: &Options, roots: (DirRef, Option<DirMutRef>)) -> Ground {
        Ground {
            named: temp_names_given(),
            doubles: Arc::new(doubles(options, (&roots.0, roots.1.as_ref()))),
            rights: roots.1.as_ref().map(|replica| replica.rights()),
            paces: Arc::new((
                Pace::new(options.throttle.bytes_per_second_max),
                Pace::new(options.throttle.requests_per_second_max),
            )),
            unmapped: unmapped(options),
            ladder: Arc::default(),
            trash: Arc::default(),
            has_append_only: Arc::default(),
            steps: Arc::default(),
            copiers: Arc::default(),
            foldings: Arc::default(),
            copying_up: copying_up(&roots),
            roots,
        }
    }

    /// The ground between the same roots, which were opened anew: something may be mounted
    /// elsewhere now.
    pub fn again(self, options: &Options, roots: (DirRef, Option<DirMutRef>)) -> Ground {
        Ground {
            doubles: Arc::new(doubles(options, (&roots.0, roots.1.as_ref()))),
            copying_up: copying_up(&roots),
            foldings: Arc::default(),
            steps: Arc::default(),
            roots,
            ..self
        }
    }

    /// Returns the ground of a part of the trees: what was found out about their roots holds there.
    pub fn between(&self, roots: (DirRef, Option<DirMutRef>)) -> Ground {
        Ground {
            roots,
            ..self.clone()
        }
    }

    /// Whether it is about these roots.
    pub fn is_of(&self, (source, replica): &(DirRef, Option<DirMutRef>)) -> bool {
        let id = |root: &Option<DirMutRef>| root.as_ref().map(|root| root.first_meta().id());
        self.roots.0.first_meta().id() == source.first_meta().id()
            && id(&self.roots.1) == id(replica)
    }

    /// Returns those of `names` that a directory of the replica finds and lists under another
    /// spelling, each with that spelling.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn shown_otherwise(
        &self,
        dir: &DirMutRef,
        names: &[CString],
    ) -> Done<Vec<(CString, CString)>> {
        let id = dir.first_meta().id();
        let mut folding = self.foldings.lock().remove(&id).unwrap_or_default();
        let shown = shown_otherwise(&mut folding, dir, names);
        let mut kept = self.foldings.lock();
        if kept.len() < FOLDINGS_MAX {
            kept.insert(id, folding);
        }
        shown
    }

    /// A copier for a thread, used before where there is one.
    pub fn copier(&self, cache: Cache) -> Copier {
        let mut kept = self.copiers.lock();
        let fits = kept.iter().position(|(of, _)| *of == cache);
        let copier = fits.map(|index| kept.swap_remove(index).1);
        drop(kept);
        copier.unwrap_or_else(|| Copier::new(cache, self.ladder.clone()))
    }

    /// Keeps a copier for the next thread.
    pub fn keep(&self, cache: Cache, mut copier: Copier) {
        copier.reset();
        let mut kept = self.copiers.lock();
        if kept.len() < COPIERS_MAX {
            kept.push((cache, copier));
        }
    }
}

/// Returns which owners cannot be told from others, if a tree is on this host.
fn unmapped(options: &Options) -> Unmapped {
    let roots = [&options.source, &options.replica].into_iter();
    let here: Vec<PathBuf> = roots
        .filter(|root| root.host.is_none())
        .map(|root| root.plain_path())
        .collect();
    if here.is_empty() {
        Unmapped::default()
    } else {
        Unmapped::here().or_of_mounts(&here)
    }
}

fn copying_up((_, replica): &(DirRef, Option<DirMutRef>)) -> Option<Arc<Mutex<()>>> {
    let local = replica.as_ref().and_then(|replica| replica.as_local());
    local.is_some_and(copies_up).then(Arc::default)
}
