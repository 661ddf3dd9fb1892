//! Numbers of a node, which the loop of a cast collects for the report.

use std::collections::BTreeSet;

/// Numbers of a node for its report.
#[derive(Default)]
pub(crate) struct NodeRecord {
    pub held_bytes: u64,
    pub received_bytes: u64,
    pub owners_not_kept: u64,
    pub attributes_not_kept: u64,
    pub first_not_kept: Option<String>,
    pub set: Option<String>,
    pub seconds: Option<f64>,
    pub demotions: u32,
    pub is_quarantined: bool,
    /// Whether the node was ever connected.
    pub has_connected: bool,
    pub last_fault: Option<String>,
    /// Causes of failed attempts to connect that were reported.
    pub faults: BTreeSet<String>,
}
