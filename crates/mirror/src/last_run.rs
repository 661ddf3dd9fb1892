//! The run that has changed a replica last, as the state of its mirror keeps it. The mark of a replica
//! names that run, too: an older copy of the replica, which has the same identity, names another.

use driftless_state::mirror::Cursor;
use std::time::Duration;

/// Name of the cursor that holds the number of the run.
pub(crate) const CURSOR: &str = "replica.run";

/// Returns what the state keeps of a run.
pub(crate) fn cursor(run: u128, at: Duration) -> Cursor {
    Cursor {
        detector: CURSOR.into(),
        position: run.to_be_bytes().to_vec(),
        at,
    }
}

/// Returns the run that a state names.
pub(crate) fn named(cursor: Option<Cursor>) -> Option<u128> {
    let bytes = cursor?.position.try_into().ok()?;
    Some(u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_is_read_as_it_was_kept() {
        let kept = cursor(7 << 64 | 5, Duration::ZERO);
        assert_eq!(named(Some(kept.clone())), Some(7 << 64 | 5));
        let cut = Cursor {
            position: kept.position[1..].to_vec(),
            ..kept
        };
        assert_eq!(named(Some(cut)), None);
        assert_eq!(named(None), None);
    }
}
