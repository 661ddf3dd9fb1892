//! The readiness of nodes that the batch system knows.

use crate::plan::SlotNodes;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Interval at which readiness is told again.
const REPEAT: Duration = Duration::from_secs(60);

/// Jobs that share a slot, or one job without a slot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ReadinessKey {
    DataSlot(u32),
    Job(String),
}

/// The readiness that the batch system knows.
#[derive(Debug, Default)]
pub(crate) struct ToldReadiness {
    pub told: HashMap<ReadinessKey, (SlotNodes, Instant)>,
    /// Time of the next attempt after a failure.
    pub paused: HashMap<ReadinessKey, Instant>,
}

impl ToldReadiness {
    /// Forgets a slot that was removed.
    pub fn forget(&mut self, slot: u32) {
        self.told.remove(&ReadinessKey::DataSlot(slot));
    }

    /// Returns whether the batch system has to be told.
    pub fn is_due(&self, key: &ReadinessKey, nodes: &SlotNodes, now: Instant) -> bool {
        if self.paused.get(key).is_some_and(|until| now < *until) {
            return false;
        }
        let is_of_slot = matches!(key, ReadinessKey::DataSlot(_));
        self.told.get(key).is_none_or(|(told, at)| {
            told != nodes || is_of_slot && now.saturating_duration_since(*at) >= REPEAT
        })
    }
}
