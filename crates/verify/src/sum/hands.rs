//! One thread of such a run.

use crate::sum::run::Sums;

/// One thread's hands.
pub struct Hands<'a, 'r> {
    /// The run.
    pub sums: &'a Sums<'r>,
    /// What is read goes here.
    pub buffer: Vec<u8>,
}
