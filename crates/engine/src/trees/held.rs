//! By what a mover knows that its run holds the replica.

use crate::lent::Lent;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long somebody waits who takes the replica over from movers: longer than that, and what a
/// call takes.
pub const MOVERS_NOTICE: Duration = Duration::from_secs(5);

/// By what a mover knows that its run holds the replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Which replica it is.
    pub identity: u128,
    /// The run, as its movers know it.
    pub movers: u128,
    /// Who may not use the attributes `trusted.*` cannot see the mark (xattr(7)).
    pub is_hidden: bool,
}

impl From<&Lent> for Held {
    fn from(lent: &Lent) -> Held {
        Held {
            identity: lent.identity,
            movers: lent.members,
            is_hidden: lent.is_hidden,
        }
    }
}
