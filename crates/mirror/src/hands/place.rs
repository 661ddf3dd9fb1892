//! Whether the path of the source still leads to the directory that changes are reported of.
//!
//! A detector reports nothing of a directory that was put in the source's place. So the trees are
//! known to be equal until the last moment at which the path led to the directory that is watched.

use super::Hands;
use crate::clock::now;
use driftless_engine::FirstRoots;
use rustix::fs::{fstat, stat};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::thread::{Builder, sleep};
use std::time::Duration;

/// Interval of the looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Directories that were seen in their places.
#[derive(Debug)]
pub(super) struct SeenInPlace {
    /// The last moment at which the source was: milliseconds since 1970.
    millis: AtomicU64,
    /// Identity of the source's directory and of its machine.
    pub(super) roots: Arc<FirstRoots>,
}

impl Default for SeenInPlace {
    fn default() -> Self {
        SeenInPlace {
            millis: AtomicU64::new(0),
            roots: Arc::new(FirstRoots::of_mirror()),
        }
    }
}

impl SeenInPlace {
    /// Takes in that the source was in its place after `moment`.
    pub(super) fn after(&self, moment: Duration) {
        let millis = u64::try_from(moment.as_millis()).unwrap_or(u64::MAX);
        self.millis.fetch_max(millis, Relaxed);
    }
}

impl Hands {
    /// Looks at the path of a source of this host, now and then, in a thread of its own: a file
    /// system that hangs holds up nothing else. The thread ends some time after the trees are given up.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn watch_place(self: &Arc<Hands>, source: PathBuf) -> io::Result<()> {
        let hands = Arc::downgrade(self);
        let look = move || {
            while look(&hands, &source) {
                sleep(LOOK_EVERY);
            }
        };
        Builder::new().name("place".into()).spawn(look).map(drop)
    }

    /// Returns the last moment after which the source was seen in its place; `None` before that.
    pub fn seen_in_place(&self) -> Option<Duration> {
        let millis = self.in_place.millis.load(Relaxed);
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    /// Returns whether a path leads to the directory that is watched, or that is open.
    fn is_in_place(&self, source: &Path) -> bool {
        let watched = match &self.watched {
            Some(watched) => fstat(watched).map(|now| (now.st_dev, now.st_ino)).ok(),
            None => {
                let open = self.open.read();
                open.as_ref().map(|open| open.trees.source_id())
            }
        };
        let there = stat(source).map(|now| (now.st_dev, now.st_ino)).ok();
        there.is_some() && there == watched
    }
}

/// Looks once; false if the trees were given up.
fn look(hands: &Weak<Hands>, source: &Path) -> bool {
    let Some(hands) = hands.upgrade() else {
        return false;
    };
    let began = now();
    if hands.is_in_place(source) {
        hands.in_place.after(began);
    }
    true
}
