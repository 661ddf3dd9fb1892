//! The root of a replica, as it is found.

use driftless_tree::DirRef;
use std::ffi::CString;

/// The root of a replica.
pub enum Replica {
    /// It is there.
    There(DirRef),
    /// It is to be made: where, and its name.
    Missing(DirRef, CString),
}
