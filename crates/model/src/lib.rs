//! The words of Driftless: paths, entries, changes, work, problems, and the rules that choose them.
//!
//! Every other crate speaks in these types, so they stand below all of them. Nothing here does I/O,
//! reads a clock or knows a file handle; every value can be printed, compared and sent elsewhere.

mod acl;
mod act;
pub mod bounds;
mod cause;
mod change;
mod entry;
pub mod errno;
mod escape;
pub mod event;
mod fault;
mod filter;
mod keep;
mod lag;
mod list;
mod moment;
mod mountinfo;
mod path;
mod pattern;
mod policy;
mod selection;
pub mod units;
mod unkept;
mod work;

pub use acl::{ACL_ACCESS, acl_of_readers, mode_for_other_group, mode_of_acl, mode_without_acl};
pub use act::Act;
pub use cause::{READ_ONLY, cause, cause_of};
pub use change::{Change, Gap, Hint};
pub use entry::{DirectoryId, Entry, Kind, Meta, RIGHTS, Stamp, Xattr, Xattrs, gives_rights};
pub use escape::{escape, escape_json, escape_text, quote};
pub use fault::{Class, Fault, LINE_LOST, Problem, Side};
pub use filter::{Filter, FilterError, Rule};
pub use keep::{CAPABILITY, Keep, PERMISSIONS, SETGID, SETUID, mode_within};
pub use lag::{LAG_BUCKETS, Lag};
pub use list::{ListError, ListForm};
pub use moment::{date_and_time, moment, span};
pub use mountinfo::unescape_mountinfo;
pub use path::{
    BadName, Below, EntryName, LOCK, LOCK_SIGN, RelPath, SNAPSHOTS, TRASH, UNFINISHED, check_name,
    has_unfinished_form, is_lock_name, is_reserved_name, is_set_aside,
};
pub use policy::{Cache, DeleteLimit, Durability, Policy, PolicyError, PolicyNames};
pub use selection::Selection;
pub use unkept::{Sort, Unkept};
pub use work::{Action, Difference, Level, Receipt, Scope, What, Work};
