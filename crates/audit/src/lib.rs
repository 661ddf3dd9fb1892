//! Audits: a uniform sample of the entries of both trees, compared, and what it proves of all.

mod audit;
mod findings;
mod inspect;
mod monitor;
mod survey;

pub use audit::{Audit, AuditOptions, Sampled, audit};
pub use findings::{Mismatch, Standing};
pub use monitor::{AuditMonitor, AuditStage};
