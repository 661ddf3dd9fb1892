//! Proofs of the content of copies: each job would otherwise hash the whole copy on each of its nodes.
//!
//! A proof lives in the memory of one process. So a node hashes all copies again after it started.

use crate::seen::SeenIdentities;
use std::collections::HashMap;
use std::time::Duration;

/// Age at which content is hashed again.
const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Steps in which file systems of disks note times, and some more.
const STEPS: Duration = Duration::from_secs(2);

/// The identities of all entries of a copy, and the time since 1970 of the look at them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContentProof {
    identities: blake3::Hash,
    at: Duration,
}

impl ContentProof {
    /// Returns the proof that a copy with these entries has. `None` if an entry changed a moment ago.
    pub(crate) fn of(seen: &SeenIdentities, at: Duration) -> Option<ContentProof> {
        let identities = seen.settled(at, STEPS)?;
        Some(ContentProof { identities, at })
    }
}

/// Proofs of copies whose content was hashed, by the number of the copy.
#[derive(Debug, Default)]
pub(crate) struct ContentProofs(HashMap<u64, ContentProof>);

impl ContentProofs {
    /// Returns whether a copy with these entries was hashed within the last day.
    pub(crate) fn has(&self, copy: u64, now: &ContentProof) -> bool {
        let is_same = |known: &ContentProof| {
            let age = now.at.checked_sub(known.at);
            known.identities == now.identities && age.is_some_and(|age| age < AGE_MAX)
        };
        self.0.get(&copy).is_some_and(is_same)
    }

    /// Notes the proof of a copy that was hashed, or that it has none.
    pub(crate) fn set(&mut self, copy: u64, proof: Option<ContentProof>) {
        match proof {
            Some(proof) => self.0.insert(copy, proof),
            None => self.0.remove(&copy),
        };
    }
}
