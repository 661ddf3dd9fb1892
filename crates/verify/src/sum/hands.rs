//! One thread of a run that hashes targets.

use crate::sum::run::Sums;

/// What one thread has while it works.
pub struct Hands<'a, 'r> {
    /// The run.
    pub sums: &'a Sums<'r>,
    /// What is read goes here.
    pub buffer: Vec<u8>,
}
