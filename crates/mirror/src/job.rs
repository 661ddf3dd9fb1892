//! The job of a mirror: which trees, how changes are found, and what is done about them, as its
//! TOML file says it.
//!
//! [`parse`] is pure: the caller reads the file. It tells all that is wrong with a file at once,
//! with line and column, and gives plain values that were checked against each other; nothing
//! behind it asks again whether a job can be meant. `docs/mirror.md` describes every key of
//! [`KEYS`], and a test holds the two against each other.

mod announcements;
mod check;
mod forms;
mod keys;
mod policy;
mod quiet;
mod read;
mod values;

pub use driftless_settings::{FILE_BYTES_MAX, Publish};
pub use keys::KEYS;
pub use quiet::{Quiet, Weekday};
pub use read::parse;
pub use values::{
    Announcements, Cycle, Deploy, Detect, Fanotify, Gpfs, Job, Limits, ListFormat, ListSource,
    Live, Lustre, Metrics, Reach, SnapshotCommands, Trash, Walk,
};
