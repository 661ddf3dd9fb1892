//! A fault of the other side, and how one is kept from being taken for a fault of this side.

use driftless_model::{Act, Fault, Side, errno};
use serde::{Deserialize, Deserializer, Serialize};
use std::ops::Range;

/// What the kernel returns as error numbers (`MAX_ERRNO` of linux/err.h).
const ERRNOS: Range<i32> = 1..4096;

/// A fault of the other side, or the loss of the connection to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WireFault {
    act: Act,
    #[serde(deserialize_with = "kernels")]
    errno: i32,
}

/// Reads an error number. What is none of the kernel's would be taken for one, or for the loss of a
/// connection, and is neither (errno(3)).
pub fn kernels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let errno = i32::deserialize(deserializer)?;
    Ok(if ERRNOS.contains(&errno) {
        errno
    } else {
        errno::EPROTO
    })
}

impl From<Fault> for WireFault {
    fn from(fault: Fault) -> Self {
        WireFault {
            act: fault.act,
            errno: fault.errno,
        }
    }
}

impl WireFault {
    /// What was tried, and the error number.
    pub fn new(act: Act, errno: i32) -> Self {
        WireFault { act, errno }
    }

    /// The fault on the side of the tree that it happened on.
    pub fn on(&self, side: Side) -> Fault {
        Fault {
            side,
            act: self.act,
            errno: self.errno,
        }
    }
}
