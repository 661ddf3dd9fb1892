//! The acts that faults of the other side name.
//!
//! A fault holds its act as a constant. What comes over the line is compared with the acts that were seen before and kept once;
//! how many are kept is bounded, and so is their length: a peer cannot fill memory with them.

use driftless_model::REACH_AGENT;
use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

const ACTS_MAX: usize = 256;
const ACT_BYTES_MAX: usize = 80;
/// What is said when the other side names no proper act.
const UNKNOWN: &str = "act on";

static ACTS: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);

/// The constant for an act.
pub fn known(act: &str) -> &'static str {
    // Decisions are made on this one, so it is known however many others a peer has named.
    if act == REACH_AGENT {
        return REACH_AGENT;
    }
    let mut acts = ACTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = acts.get(act) {
        return known;
    }
    let proper = act.len() <= ACT_BYTES_MAX && act.chars().all(|c| c.is_ascii_alphabetic() || matches!(c, ' ' | '-' | '(' | ')'));
    if !proper || acts.len() >= ACTS_MAX {
        return UNKNOWN;
    }
    let kept: &'static str = Box::leak(act.into());
    acts.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acts_are_kept_and_nonsense_is_not() {
        assert_eq!(known("open directory in"), "open directory in");
        assert_eq!(known("\u{1b}[31m"), UNKNOWN);
        assert_eq!(known(&"x".repeat(1000)), UNKNOWN);
    }
}
