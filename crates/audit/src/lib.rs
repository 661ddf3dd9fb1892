//! Audits: a uniform sample of the entries of both trees, compared, and what it proves of all.

mod audit;
mod findings;
mod inspect;
mod survey;

pub use audit::{Audit, AuditMonitor, AuditOptions, AuditStage, Sampled, audit};
pub use findings::{Mismatch, Standing};
