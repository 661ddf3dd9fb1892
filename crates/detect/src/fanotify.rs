//! Live changes: what the kernel tells of a whole file system (fanotify(7)).
//!
//! One mark on the file system, without a watch for each directory, so it stands at once on a tree
//! of any size. What happens on other machines that share the file system, and what is written
//! through mappings, is not seen; a walk finds it.

mod event;
mod sys;
mod watch;

pub use crate::detector::Waker;
pub use event::Unknown;
pub use watch::{Unwatched, Watch, Writer};
