//! Names of a directory while a restore goes through the tree, window by window. An open listing
//! takes a file descriptor, which a walk that is many levels deep must not hold on each level.

use driftless_tree::{Dir, Done, Names, windows};
use std::sync::Arc;

/// Levels of the tree that have an open listing each, at most. Directories further down are listed to
/// their end before the next one is entered.
pub const LISTINGS_MAX: usize = 64;

/// Names of a directory that are still to be met.
pub struct OpenListing {
    windows: Box<dyn Iterator<Item = Done<Names>>>,
    is_over: bool,
}

impl OpenListing {
    /// Starts to list a directory.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn of<D: Dir + ?Sized + 'static>(dir: &Arc<D>) -> Done<OpenListing> {
        Ok(OpenListing::new(Box::new(windows(dir)?)))
    }

    /// Returns a listing with these names alone.
    pub fn only(names: Names) -> OpenListing {
        OpenListing::new(Box::new(std::iter::once(Ok(names))))
    }

    fn new(windows: Box<dyn Iterator<Item = Done<Names>>>) -> OpenListing {
        OpenListing {
            windows,
            is_over: false,
        }
    }

    /// Returns whether the last window was returned.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the next window. Behind the last one, the listing is closed.
    pub fn next_window(&mut self) -> Option<Done<Names>> {
        let next = self.windows.next();
        if next.is_none() && !self.is_over {
            *self = OpenListing {
                windows: Box::new(std::iter::empty()),
                is_over: true,
            };
        }
        next
    }
}
