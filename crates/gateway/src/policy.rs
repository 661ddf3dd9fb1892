//! Release of held jobs: how many nodes must have the data set first.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Nodes that must be ready before a job is released.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReleaseNeed {
    /// A single node.
    #[default]
    First,
    /// This share of the nodes, 1 to 100 percent.
    Quorum(u8),
    /// Each node.
    All,
}

/// Policy by which a job is released.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleasePolicy {
    /// Nodes that must be ready.
    pub need: ReleaseNeed,
    /// Seconds after which the nodes that are ready suffice, if there is one.
    pub seconds_max: Option<u64>,
}

/// A text that names no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write first, all, or quorum=N% with N from 1 to 100")]
pub struct ReleaseError;

impl FromStr for ReleaseNeed {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<Self, ReleaseError> {
        match text {
            "first" => return Ok(ReleaseNeed::First),
            "all" => return Ok(ReleaseNeed::All),
            _ => {}
        }
        let share = text.strip_prefix("quorum=").and_then(|share| {
            let digits = share.strip_suffix('%').unwrap_or(share);
            digits.parse().ok()
        });
        match share {
            Some(percent @ 1..=100) => Ok(ReleaseNeed::Quorum(percent)),
            _ => Err(ReleaseError),
        }
    }
}

impl fmt::Display for ReleaseNeed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReleaseNeed::First => out.write_str("first"),
            ReleaseNeed::Quorum(percent) => write!(out, "quorum={percent}%"),
            ReleaseNeed::All => out.write_str("all"),
        }
    }
}

impl ReleasePolicy {
    /// Returns whether a job may run: `ready` of `all` nodes have the data set, and the job was held
    /// for the time `held`. Without a ready node, no job may run.
    pub fn is_met(&self, ready: usize, all: usize, held: Duration) -> bool {
        let is_late = self
            .seconds_max
            .is_some_and(|seconds| held >= Duration::from_secs(seconds));
        ready > 0 && (is_late || ready >= self.needed(all))
    }

    /// Returns the number of nodes of `all` that the policy waits for.
    fn needed(&self, all: usize) -> usize {
        match self.need {
            ReleaseNeed::First => 1,
            ReleaseNeed::Quorum(percent) => all.saturating_mul(percent.into()).div_ceil(100).max(1),
            ReleaseNeed::All => all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn met(need: ReleaseNeed, ready: usize, all: usize) -> bool {
        let policy = ReleasePolicy {
            need,
            seconds_max: None,
        };
        policy.is_met(ready, all, NOW)
    }

    #[test]
    fn policies_count_ready_nodes() {
        for (need, ready, all, expected) in [
            (ReleaseNeed::First, 0, 8, false),
            (ReleaseNeed::First, 1, 8, true),
            (ReleaseNeed::Quorum(80), 6, 8, false),
            (ReleaseNeed::Quorum(80), 7, 8, true),
            (ReleaseNeed::Quorum(1), 0, 8, false),
            (ReleaseNeed::All, 7, 8, false),
            (ReleaseNeed::All, 8, 8, true),
            (ReleaseNeed::All, 0, 0, false),
        ] {
            assert_eq!(met(need, ready, all), expected, "{need} {ready}/{all}");
        }
    }

    #[test]
    fn deadline_needs_one_ready_node() {
        let policy = ReleasePolicy {
            need: ReleaseNeed::All,
            seconds_max: Some(600),
        };
        let late = Duration::from_secs(600);
        assert!(!policy.is_met(3, 8, late - Duration::from_millis(1)));
        assert!(policy.is_met(3, 8, late));
        assert!(!policy.is_met(0, 8, late));
    }

    #[test]
    fn names_of_policies_are_read_again() {
        for need in [
            ReleaseNeed::First,
            ReleaseNeed::Quorum(80),
            ReleaseNeed::All,
        ] {
            assert_eq!(need.to_string().parse(), Ok(need));
        }
        assert_eq!("quorum=80".parse(), Ok(ReleaseNeed::Quorum(80)));
        for wrong in ["", "some", "quorum", "quorum=0%", "quorum=101%", "80%"] {
            assert_eq!(wrong.parse::<ReleaseNeed>(), Err(ReleaseError), "{wrong}");
        }
    }
}
