//! The attributes that a new entry is to have.

use crate::spot::Spot;
use driftless_model::{Keep, Meta, PERMISSIONS, Xattrs};
use driftless_tree::{Attributes, Stood};

/// Returns what a new entry shall have: what is kept, and where modes are not, one that is no wider
/// than its source's, nor than that of the entry which it replaces.
pub(crate) fn new_attributes(spot: &Spot, meta: &Meta, xattrs: Xattrs, keep: &Keep) -> Attributes {
    let plain = match spot.stood {
        Some(_) => xattrs.mode_of_copy(meta.mode) & PERMISSIONS,
        None => keep.new_mode(xattrs.mode_of_copy(meta.mode)),
    };
    Attributes {
        stood: spot.stood.filter(|_| !keep.mode).map(|mode| Stood {
            mode,
            is_changed: true,
        }),
        ..Attributes::of(meta, xattrs, keep).or_mode(plain)
    }
}
