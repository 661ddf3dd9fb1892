//! Runs a synchronisation: the only crate that knows all stages and the order in which they follow each other.
//!
//! A run is a pool of threads over one queue ([`Queue`](driftless_pool::Queue)). An item is a directory, a range of names of one, or a piece
//! of a large file; whoever holds much gives half of it away when others are idle, so there is no long tail. A directory
//! ([`Visit`](sync::visit)) is finished, its times set last, when everything below it is done. What is to be deleted is collected
//! and carried out at the end, behind the guard.

mod clock;
mod monitor;
mod options;
mod shared;
mod sync;
mod tally;
mod trees;

pub use clock::{Clock, MachineClock};
pub use driftless_mover::{Carrier, Undone};
pub use monitor::{Monitor, Progress};
pub use options::{Durability, Notes, Options};
pub use shared::brief::Brief;
pub use shared::coordinate::{By, coordinate};
pub use shared::exchange::{Alive, Exchange, PartOfOutcome, Word};
pub use shared::lease::{Held, Lease, LeaseClock, Moment, Over};
pub use shared::message;
pub use shared::sample::Sample;
pub use shared::serve::{ATTEMPTS_MAX, Carrying, Delivered, Desk, Failure, carried, serve};
pub use shared::settled::Settled;
pub use shared::share::{Outcome, Piece, Route, Share};
pub use shared::watcher::{Line, Seen, Watched, Watcher};
pub use shared::work_off::{Ends, work_off};
pub use sync::alike::{Misspelt, Namesake};
pub use sync::comparisons::ledger_name;
pub use sync::folding::folds;
pub use sync::run::now;
pub use sync::underway::LargeFiles;
pub use sync::{End, Summary, sync, sync_by};
pub use tally::{Counts, Reason, WHOLE_WALK};
pub use trees::mounts::{MOUNTS_MAX, MountNotes, not_gone};
pub use trees::overlap::{leaves_out_file, rule_for, rule_for_dir};
pub use trees::roots::{Replica, Roots, RunError, open_roots};
