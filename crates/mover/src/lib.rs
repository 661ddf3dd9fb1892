//! Carries out steps between two trees, one entry at a time, and looks again at the source before
//! it is satisfied.
//!
//! A [`Mover`] belongs to one thread. It knows how to make an entry whole under a temporary name
//! (or under its own name in a directory that is still private), how to share the copying of one
//! large file ([`Large`]) among threads, and when the source has changed under its hands. Which
//! entries, in which order, is the engine's business.

mod carry;
mod comparison;
mod copy_with;
mod large;
mod mover;
mod new_attributes;
mod new_entry;
mod spot;

pub use comparison::{Compared, Comparison};
pub use copy_with::{Carrier, Undone, Unusable};
pub use large::{Large, Patch};
pub use mover::{Made, Mover, Terms};
pub use spot::{Moved, Opened, Spot, Trouble, kind_changed};
