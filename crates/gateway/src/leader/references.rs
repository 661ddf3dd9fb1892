//! References of jobs that nodes were asked for.

use std::collections::HashSet;
use std::time::Instant;

/// The comparison at work.
#[derive(Debug, Default)]
pub(crate) struct References {
    pub asked: Option<Instant>,
    pub is_at_work: bool,
    /// Jobs and nodes that the table called ready when the nodes were asked.
    pub ready: HashSet<(String, String)>,
    /// Jobs that were open then.
    pub open: HashSet<String>,
}
