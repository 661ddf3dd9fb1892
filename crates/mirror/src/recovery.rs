//! When the source is lost: its replica becomes the active side, and later what changed there is
//! brought back.
//!
//! The state of the mirror says which side is active. It says so before the first change is made
//! and after the last, so that whatever was cut off is known, and a mirror never works against
//! those who use its replica. What would be lost is a value that is shown before anything is done.

mod loss;
mod reverse;

pub use loss::{Known, Loss, Lost, PATHS_TOLD_MAX};
pub use reverse::{Approach, Carried, Rehearsal, carry_out, go_back, rehearse, reversed};
