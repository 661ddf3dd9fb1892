//! What a process must know that helps another one to keep a replica equal: a plain value that
//! travels.
//!
//! The replica is lent to it. It sees by the mark that it is this replica, and that the other
//! process holds it still; by a sample, that it reads the same source.

use crate::sample::Sample;
use driftless_model::Stamp;
use driftless_tree::Rights;
use serde::{Deserialize, Serialize};

/// A replica that another process holds and lends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lent {
    /// Which replica it is, by its mark.
    pub identity: u128,
    /// Whom it is lent to, as its mark says.
    pub members: u128,
    /// Who may not use the attributes `trusted.*` cannot see the mark (xattr(7)).
    pub is_hidden: bool,
    /// What shows which directory the source is.
    pub source: Sample,
    /// What the process may do that lends it.
    pub rights: Rights,
    /// What was changed on the replica since then may not be durable.
    pub suspect_since: Option<Stamp>,
}
