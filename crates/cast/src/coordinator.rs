//! The coordinator of a cast.

use crate::{CastMonitor, CastReport, CastSettings, Error};
use std::sync::atomic::AtomicBool;

/// Distributes the sources to the nodes, and returns the outcome of each node.
///
/// Returns once each node has an outcome, or `stop` is set. A node that fails is no error.
///
/// # Errors
/// Fails before the distribution begins: sources are unreadable, the store cannot be opened, or the
/// settings contradict each other.
pub fn cast(
    _settings: &CastSettings,
    _monitor: &dyn CastMonitor,
    _stop: &AtomicBool,
) -> Result<CastReport, Error> {
    Err(Error::Stopped)
}
