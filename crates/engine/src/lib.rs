//! Runs a synchronisation: the only crate that knows all stages and the order in which they follow each other.
//!
//! A run is a pool of threads over one queue ([`Queue`](queue)). An item is a directory, a range of names of one, or a piece
//! of a large file; whoever holds much gives half of it away when others are idle, so there is no long tail. A directory
//! ([`DirJob`](job)) is finished, its times set last, when everything below it is done. What is to be deleted is collected
//! and carried out at the end, behind the guard.

mod audit;
mod brief;
mod changes;
mod clock;
mod closed;
mod comparisons;
mod coordinate;
mod deletes;
mod entered;
mod entries;
mod exchange;
mod facts;
mod files;
mod findings;
mod finish;
mod folding;
mod frozen;
mod grouped;
mod inspect;
mod job;
mod kept;
mod lease;
mod life;
mod links;
mod listed;
mod marks;
pub mod message;
mod monitor;
mod mounts;
mod namesakes;
mod options;
mod order;
mod overlap;
mod pace;
mod part;
mod plan;
mod pool;
mod posted;
mod precautions;
mod protected;
mod queue;
mod room;
mod roots;
mod run;
mod sample;
mod share;
mod sumfile;
mod sums;
mod sumwalk;
mod survey;
mod sync;
mod tally;
mod underway;
mod unkept;
mod walk;
mod whereabouts;
mod windows;
mod work_off;
mod worker;

pub use audit::{Audit, AuditMonitor, AuditOptions, AuditStage, Mismatch, Sampled, Standing, audit};
pub use brief::Brief;
pub use clock::{Clock, MachineClock};
pub use comparisons::ledger_name;
pub use coordinate::{By, coordinate};
pub use driftless_mover::{Carrier, Undone};
pub use exchange::{Alive, Exchange, PartOfOutcome, Word};
pub use lease::{Held, Lease, Moment, Over};
pub use monitor::{Monitor, Progress};
pub use mounts::{MOUNTS_MAX, not_gone};
pub use options::{Durability, Jobs, Notes, Options};
pub use roots::RunError;
pub use run::now;
pub use sample::Sample;
pub use share::{Outcome, Piece, Route, Share};
pub use sums::{Expected, Found, Sum, SumMonitor, SumOptions, Target, Targets, What, sum};
pub use sync::{End, Summary, descriptors, sync};
pub use tally::{Counts, Reason, WHOLE_WALK};
pub use underway::LargeFiles;
pub use work_off::{Ends, work_off};
