//! The words of Driftless: paths, entries, changes, work, problems, and the rules that choose them.
//!
//! Every other crate speaks in these types, so they stand below all of them. Nothing here does I/O,
//! reads a clock or knows a file handle; every value can be printed, compared and sent elsewhere.

mod entry;
mod fault;
mod filter;
mod keep;
mod path;
mod pattern;
mod selection;
mod work;

pub use entry::{Entry, Kind, Meta, Stamp, Xattrs};
pub use fault::{Class, Fault, Problem, REACH_AGENT, Side, cause};
pub use filter::{Filter, FilterError, Rule};
pub use keep::{Keep, SETGID, SETUID};
pub use path::{BadName, EntryName, RelPath, check_name, escape};
pub use selection::Selection;
pub use work::{Action, Change, Difference, Level, Receipt, Scope, What, Work};
