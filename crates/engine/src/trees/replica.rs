//! The root of a replica, as it is found.

use driftless_tree::DirMutRef;
use std::ffi::CString;

/// The root of a replica.
pub enum Replica {
    /// It is there.
    There(DirMutRef),
    /// It is to be made: where, and its name.
    Missing(DirMutRef, CString),
}
