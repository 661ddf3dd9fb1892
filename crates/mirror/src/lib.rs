//! Keeps a replica equal: the job that says which trees and how, and what is left to do for it.
#![deny(missing_docs)]

pub mod dirty;
pub mod job;
mod pace;
