//! Keeps a replica equal: the job that says which trees and how, and what is left to do for it.
#![deny(missing_docs)]

pub mod alarm;
pub mod ask;
pub mod clock;
pub mod comparing;
pub mod control;
mod deletes;
pub mod dirty;
pub mod foreign;
pub mod gaps;
mod gathered;
pub mod hands;
mod hearing;
pub mod herald;
pub mod hub;
pub mod job;
pub mod kept;
mod lanes;
mod last_job;
mod last_run;
mod link_names;
mod listener;
pub mod live;
pub mod memory;
pub mod message;
pub mod metrics;
mod mounted;
mod pace;
pub mod pool;
pub mod pulse;
pub mod recovery;
pub mod snapshots;
mod sought;
pub mod status;
mod trash;
mod waits;
pub mod worded;
