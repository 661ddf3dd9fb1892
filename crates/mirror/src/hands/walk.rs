//! Comparisons of all: their progress, the index of directories that they renew, and what a scan of
//! the source leaves of them.

use super::{Ended, Hands, Outcome, chosen};
use crate::gathered::Gathered;
use driftless_detect::gap::{self, Found};
use driftless_model as model;
use rustix::fd::AsFd;
use std::sync::atomic::AtomicBool;

impl Hands {
    /// Begins a comparison, if the work is one.
    pub(super) fn begin_walk(&self, gathered: &Gathered) {
        let Some(comparing) = &gathered.comparing else {
            return;
        };
        comparing.begin();
        if let Some(index) = &gathered.directories {
            index.lock().begin_walk();
        }
    }

    /// Ends the comparison. One that saw everything removes the directories that it did not see from
    /// the index.
    pub(super) fn end_walk(&self, gathered: &Gathered, is_complete: bool) {
        let Some(comparing) = &gathered.comparing else {
            return;
        };
        comparing.end();
        if let Some(index) = gathered.directories.as_ref().filter(|_| is_complete) {
            index.lock().end_walk();
        }
    }

    /// Writes the index of directories to its file.
    pub(super) fn keep_directories(&self) {
        if let Some(index) = &self.directories {
            index.lock().flush();
        }
    }

    /// Finds what is to be looked at where changes may have been missed; how it ended, if that
    /// cannot be done.
    pub(super) fn narrow(&self, outcome: &mut Outcome, stop: &AtomicBool) -> Option<Ended> {
        let since = outcome.taken.gap()?;
        let found = match &self.watched {
            Some(root) => gap::scan(root.as_fd(), since, stop).unwrap_or(Found::All),
            None => Found::All,
        };
        match found {
            Found::Changes(changes) => {
                let works = changes.into_iter().map(model::Work::from);
                outcome.narrowed = Some(chosen::with_names_around(works.collect()));
                None
            }
            Found::All => Some(Ended::Wide),
            Found::Stopped => Some(Ended::Stopped),
        }
    }
}
