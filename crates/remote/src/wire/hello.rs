//! What an agent says of itself before its first reply.

use crate::wire::identity::Identity;
use crate::wire::limits::Limits;
use driftless_tree::Rights;
use serde::{Deserialize, Serialize};

/// Version of all that is defined here; two sides work together only if they have the same.
pub const PROTOCOL: u32 = 10;

/// What each side says first, behind the greeting.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    /// What the user there may do.
    pub rights: Rights,
    /// Which machine it is.
    pub identity: Identity,
    /// On a further stream, the number that its client has chosen for such; 0 on a first one.
    pub joined: u128,
    /// What its clients are limited to.
    pub limits: Limits,
    /// Content is compressed: it was started as the client wanted, which a key with a command of
    /// its own may prevent.
    pub compresses: bool,
}

impl Hello {
    /// What this process says on its first stream, where it has no limits and does not compress.
    pub fn own() -> Hello {
        Hello {
            rights: Rights::own(),
            identity: Identity::own(),
            joined: 0,
            limits: Limits::default(),
            compresses: false,
        }
    }
}
