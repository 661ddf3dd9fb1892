//! Failures of pairs, and reports of bad units.
//!
//! A receiver that reports bad units may lie, and so may a feeder that reports a dead receiver. So a report
//! counts against the pair alone. Only several accusers bar a node from feeding any other
//! node, and an accuser of many nodes counts no longer.

use crate::limits::PlanLimits;
use crate::messages::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// Feeders that a node may accuse before its reports count for nothing but the pair.
const ACCUSATIONS_MAX: usize = 2;
/// Refused streams of a pair that count as orders still on their way.
const REFUSALS_MAX: u32 = 8;
/// Doublings of a wait, so that the shift stays small.
const DOUBLINGS_MAX: u32 = 20;

/// Record of a feeder and a receiver.
#[derive(Debug, Default)]
struct PairRecord {
    failures: u32,
    refusals: u32,
    /// Moment before which the pair is not tried again.
    not_before_ms: u64,
    is_barred: bool,
}

/// Records of all pairs that have failed.
#[derive(Debug, Default)]
pub(crate) struct PairTrust {
    /// Feeder and receiver.
    pairs: BTreeMap<(NodeId, NodeId), PairRecord>,
    /// Nodes that reported bad units from a feeder.
    accusers: BTreeMap<NodeId, BTreeSet<NodeId>>,
    /// Feeders that a node accused.
    accused: BTreeMap<NodeId, BTreeSet<NodeId>>,
    /// Number of barred feeders of a receiver.
    bars: BTreeMap<NodeId, usize>,
}

impl PairTrust {
    /// Tells whether a feeder may serve a receiver at this time.
    pub fn allows(&self, from: NodeId, to: NodeId, now_ms: u64) -> bool {
        let pair = self.pairs.get(&(from, to));
        pair.is_none_or(|pair| !pair.is_barred && pair.not_before_ms <= now_ms)
    }

    /// Tells whether a feeder may never serve a receiver again.
    pub fn is_barred(&self, from: NodeId, to: NodeId) -> bool {
        self.pairs
            .get(&(from, to))
            .is_some_and(|pair| pair.is_barred)
    }

    /// Tells whether any feeder may never serve a receiver again.
    pub fn has_bars(&self, to: NodeId) -> bool {
        self.bars.contains_key(&to)
    }

    /// Returns the number of failures of a pair.
    pub fn failures(&self, from: NodeId, to: NodeId) -> u32 {
        self.pairs.get(&(from, to)).map_or(0, |pair| pair.failures)
    }

    /// Counts a refusal. Returns whether the pair is tried again at once.
    pub fn refuse(&mut self, from: NodeId, to: NodeId) -> bool {
        let pair = self.pairs.entry((from, to)).or_default();
        pair.refusals = pair.refusals.saturating_add(1);
        pair.refusals < REFUSALS_MAX
    }

    /// Counts a failure, and bars the pair after too many.
    pub fn fail(&mut self, from: NodeId, to: NodeId, now_ms: u64, limits: &PlanLimits) {
        let pair = self.pairs.entry((from, to)).or_default();
        let doublings = pair.failures.min(DOUBLINGS_MAX);
        let wait = limits.pair_backoff_ms.saturating_mul(1 << doublings);
        pair.failures = pair.failures.saturating_add(1);
        pair.not_before_ms = now_ms.saturating_add(wait.min(limits.pair_backoff_ms_max));
        if pair.failures >= limits.pair_attempts_max {
            self.bar(from, to);
        }
    }

    /// Forgets the failures of a pair that worked for long, and refusals of one that works.
    pub fn succeed(&mut self, from: NodeId, to: NodeId, is_lasting: bool) {
        if let Some(pair) = self.pairs.get_mut(&(from, to)) {
            pair.refusals = 0;
            if is_lasting {
                pair.failures = 0;
            }
        }
    }

    /// Records a report of bad units and bars the pair. Returns whether enough nodes accuse the feeder
    /// to bar it from feeding any node.
    pub fn accuse(&mut self, feeder: NodeId, accuser: NodeId, limits: &PlanLimits) -> bool {
        self.bar(feeder, accuser);
        self.accusers.entry(feeder).or_default().insert(accuser);
        self.accused.entry(accuser).or_default().insert(feeder);
        let is_credible = |accuser: &&NodeId| {
            let accused = self.accused.get(accuser).map_or(0, BTreeSet::len);
            accused <= ACCUSATIONS_MAX
        };
        let accusers = self.accusers.get(&feeder);
        let credible = accusers.map_or(0, |all| all.iter().filter(is_credible).count());
        credible >= limits.accusers_min
    }

    fn bar(&mut self, from: NodeId, to: NodeId) {
        let pair = self.pairs.entry((from, to)).or_default();
        if !pair.is_barred {
            pair.is_barred = true;
            let bars = self.bars.entry(to).or_default();
            *bars = bars.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEEDER: NodeId = NodeId(1);

    #[test]
    fn one_accuser_bars_only_the_pair() {
        let (mut trust, limits) = (PairTrust::default(), PlanLimits::default());
        for _ in 0..10 {
            assert!(!trust.accuse(FEEDER, NodeId(2), &limits));
        }
        assert!(trust.is_barred(FEEDER, NodeId(2)));
        assert!(trust.allows(FEEDER, NodeId(3), 0));
    }

    #[test]
    fn several_accusers_condemn_a_feeder() {
        let (mut trust, limits) = (PairTrust::default(), PlanLimits::default());
        assert!(!trust.accuse(FEEDER, NodeId(2), &limits));
        assert!(!trust.accuse(FEEDER, NodeId(3), &limits));
        assert!(trust.accuse(FEEDER, NodeId(4), &limits));
    }

    #[test]
    fn accusers_of_everyone_do_not_count() {
        let (mut trust, limits) = (PairTrust::default(), PlanLimits::default());
        for feeder in [7, 8, 9] {
            trust.accuse(NodeId(feeder), NodeId(2), &limits);
        }
        for accuser in [2, 3, 4] {
            assert!(!trust.accuse(FEEDER, NodeId(accuser), &limits));
        }
    }

    #[test]
    fn waits_of_a_pair_double_until_it_ends() {
        let (mut trust, limits) = (PairTrust::default(), PlanLimits::default());
        let (mut now, mut waits) = (0, Vec::new());
        while !trust.is_barred(FEEDER, NodeId(2)) {
            trust.fail(FEEDER, NodeId(2), now, &limits);
            let from = now;
            while !trust.allows(FEEDER, NodeId(2), now) && now - from < 60_000 {
                now += 500;
            }
            waits.push(now - from);
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 60_000]);
    }
}
