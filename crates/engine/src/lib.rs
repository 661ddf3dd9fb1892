//! Runs a synchronisation: the only crate that knows all stages and the order in which they follow
//! each other.
//!
//! A run is a pool of threads over one queue ([`Queue`](driftless_pool::Queue)). An item is a
//! directory, a range of names of one, or a piece of a large file; a thread that holds much gives
//! half of it away when others are idle, so there is no long tail. A directory
//! ([`Visit`](sync::visit)) is finished, its times set last, when everything below it is done. What
//! is to be deleted is collected and carried out at the end, behind the guard.

mod clock;
mod estimate;
mod first_roots;
mod lent;
mod monitor;
mod options;
mod sample;
mod shared;
mod sync;
mod tally;
mod trees;
mod underway;
mod view;

pub use clock::now;
pub use clock::{Clock, MachineClock};
pub use driftless_mover::{Carrier, Undone, Unusable};
pub use estimate::Estimator;
pub use first_roots::FirstRoots;
pub use lent::Lent;
pub use monitor::{Differing, DirectoryPlace, Monitor, Progress};
pub use options::{Mode, MountNotes, Notes, Options, Throttle};
pub use sample::Sample;
pub use shared::batch::{Batch, Outcome, Piece, Route};
pub use shared::brief::Brief;
pub use shared::coordinate::{By, coordinate};
pub use shared::exchange::{Alive, Exchange, PartOfOutcome, Word};
pub use shared::handed::{Misspelt, Namesake};
pub use shared::lease::{Lease, LeaseClock, Moment, Over};
pub use shared::message;
pub use shared::serve::{
    ATTEMPTS_MAX, Carrying, Delivered, Desk, Failure, MoverFailed, carried, serve,
};
pub use shared::settled::{ReplicaView, Settled};
pub use shared::watcher::{Line, Seen, Watched, Watcher};
pub use shared::work_off::{Ends, Known, work_off};
pub use sync::comparisons::ledger_name;
pub use sync::ending::{End, Summary};
pub use sync::entries::RESERVED;
pub use sync::moments::Changed;
pub use sync::open::Trees;
pub use sync::renamed::Renamed;
pub use sync::stood::{Onlooker, Stood};
pub use sync::trash::bin::{Bin, Gone, Purged, Sizes};
pub use sync::trash::date::Date;
pub use sync::trash::limits::{Limits, Size};
pub use sync::trash::restore::{DeletionDates, RestoreError, Restored, Wanted, restore};
pub use sync::trash::target::{TargetIn, find_tree_of_target};
pub use sync::{sync, sync_by};
pub use tally::{Counts, Reason, WHOLE_WALK};
pub use trees::alone::{Alone, declare_active, look_alone, refuse_busy, require_alone};
pub use trees::error::{RunError, Unreachable};
pub use trees::folding::folds;
pub use trees::held::Held;
pub use trees::mounts::{MOUNTS_MAX, mounted_below, not_gone};
pub use trees::overlap::{leaves_out_file, rule_for, rule_for_dir};
pub use trees::replica::Replica;
pub use trees::roots::{Roots, open_roots};
pub use underway::LargeFiles;
pub use view::View;
