//! Progress, outcomes and the report of a cast, from the state of the planner.

use crate::coordinator::record::NodeRecord;
use crate::coordinator::run::CastRun;
use crate::event::{NodeProgress, reason_of};
use crate::{CastEvent, CastReport, NodeReport, NodeStage};
use driftless_planner::{FailReason, NodeId, NodeOutcome, NodeStatus};
use driftless_store::UNIT_BYTES;
use std::sync::atomic::Ordering::Relaxed;

/// Causes of failed attempts to connect to a node that are reported.
const FAULTS_MAX: usize = 8;

impl CastRun<'_> {
    /// Reports the progress of each node.
    pub(crate) fn show_progress(&mut self) {
        let nodes: Vec<NodeId> = self.records.keys().copied().collect();
        let mut progress = Vec::new();
        for node in nodes {
            let Some(status) = self.planner.status(node) else {
                continue;
            };
            let name = self.name(node);
            let record = self.record(node);
            if status.demotions > record.demotions {
                record.demotions = status.demotions;
                let node = name.clone();
                self.monitor.event(CastEvent::Demoted { node });
            }
            let record = self.record(node);
            if status.is_quarantined && !record.is_quarantined {
                record.is_quarantined = true;
                let node = name.clone();
                self.monitor.event(CastEvent::Quarantined { node });
            }
            let bytes = self.bytes_of(status.units);
            progress.push(NodeProgress {
                node: name,
                units: status.units,
                bytes,
                stage: self.stage(node, &status),
                is_connected: status.is_connected,
                is_leaf: status.is_leaf,
                feeders: status.feeders.iter().map(|node| self.name(*node)).collect(),
                is_complete: status.outcome == Some(NodeOutcome::Complete),
            });
        }
        let nodes = progress;
        self.monitor.event(CastEvent::Progress { nodes });
    }

    fn stage(&self, node: NodeId, status: &NodeStatus) -> NodeStage {
        match &status.outcome {
            Some(NodeOutcome::Complete) => NodeStage::Complete,
            Some(_) => NodeStage::Failed,
            None if status.is_connected => NodeStage::Receiving,
            None if self.nodes.contains_key(&node) => NodeStage::Preparing,
            None if self.has_connected(node) => NodeStage::Lost,
            None => NodeStage::Absent,
        }
    }

    fn has_connected(&self, node: NodeId) -> bool {
        let record = self.records.get(&node);
        record.is_some_and(|record| record.has_connected)
    }

    /// Notes an attempt to connect that failed, and reports a cause that is new. Attempts go on, and
    /// fail for the same cause again.
    pub(crate) fn note_attempt(&mut self, node: NodeId, cause: String) {
        let record = self.record(node);
        let is_first = record.faults.is_empty() && !record.has_connected;
        record.last_fault = Some(cause.clone());
        let is_new = record.faults.len() < FAULTS_MAX && record.faults.insert(cause.clone());
        if is_new {
            self.monitor.event(CastEvent::Unreachable {
                node: self.name(node),
                cause,
                is_first,
            });
        }
    }

    /// Reports outcomes that are new.
    pub(crate) fn note_outcomes(&mut self) {
        let is_new = |(node, record): &(&NodeId, &NodeRecord)| {
            record.seconds.is_none() && self.planner.outcome(**node).is_some()
        };
        let new: Vec<NodeId> = self
            .records
            .iter()
            .filter(is_new)
            .map(|(node, _)| *node)
            .collect();
        for node in new {
            let seconds = self.began.elapsed().as_secs_f64();
            self.record(node).seconds = Some(seconds);
            let at = usize::try_from(node.0)
                .ok()
                .and_then(|at| at.checked_sub(1));
            if let Some(done) = at.and_then(|at| self.done.get(at)) {
                done.store(true, Relaxed);
            }
            self.monitor.event(CastEvent::Ended(self.node_report(node)));
        }
    }

    fn node_report(&self, node: NodeId) -> NodeReport {
        let outcome = self.planner.outcome(node);
        let is_complete = outcome == Some(&NodeOutcome::Complete);
        let record = self.records.get(&node);
        NodeReport {
            node: self.name(node),
            is_complete,
            set: record.and_then(|record| record.set.clone()),
            received_bytes: match is_complete {
                true => record.map_or(0, |record| record.received_bytes),
                false => self.reported_bytes(node),
            },
            held_bytes: record.map_or(0, |record| record.held_bytes),
            seconds: record
                .and_then(|record| record.seconds)
                .unwrap_or_else(|| self.began.elapsed().as_secs_f64()),
            demotions: record.map_or(0, |record| record.demotions),
            owners_not_kept: record.map_or(0, |record| record.owners_not_kept),
            attributes_not_kept: record.map_or(0, |record| record.attributes_not_kept),
            first_not_kept: record.and_then(|record| record.first_not_kept.clone()),
            reason: self.reason(node),
        }
    }

    /// Returns the bytes of units, about.
    fn bytes_of(&self, units: u64) -> u64 {
        let bytes = units.saturating_mul(u64::from(UNIT_BYTES));
        bytes.min(self.catalogue.bytes())
    }

    /// Returns the bytes that a node received according to its last report of progress, about.
    fn reported_bytes(&self, node: NodeId) -> u64 {
        let units = self.planner.status(node).map_or(0, |status| status.units);
        let held = self.records.get(&node).map_or(0, |node| node.held_bytes);
        self.bytes_of(units).saturating_sub(held)
    }

    /// Returns the cause for which a node lacks the data set, or `None` if the node has it.
    fn reason(&self, node: NodeId) -> Option<String> {
        let record = self.records.get(&node);
        let fault = record.and_then(|record| record.last_fault.as_ref());
        let outcome = self.planner.outcome(node);
        let reason = match outcome {
            Some(outcome) => reason_of(outcome)?,
            None => "the cast was stopped before the node had its outcome".into(),
        };
        let seconds = self.settings.limits.join_ms as f64 / 1000.0;
        Some(match (outcome, fault) {
            (Some(NodeOutcome::Failed(FailReason::NeverJoined)), Some(fault)) => {
                format!("{fault}; it did not connect within {seconds} s")
            }
            (None | Some(NodeOutcome::Failed(FailReason::Lost)), Some(fault)) => {
                format!("{reason} (last: {fault})")
            }
            (Some(NodeOutcome::Failed(FailReason::Unavailable { units })), _) => {
                self.unavailable(*units).unwrap_or(reason)
            }
            _ => reason,
        })
    }

    /// Returns the cause of units that no node has, if the source is the cause.
    fn unavailable(&self, units: u64) -> Option<String> {
        let fault = self.source_fault.as_ref()?;
        Some(match units {
            1 => format!("1 unit is on no reachable node: {fault}"),
            units => format!("{units} units are on no reachable node: {fault}"),
        })
    }

    /// Returns the report of the cast.
    pub(crate) fn report(&self, is_stopped: bool) -> CastReport {
        CastReport {
            set: self.catalogue.hash().to_string(),
            entries: self.catalogue.entries(),
            bytes: self.catalogue.bytes(),
            seconds: self.began.elapsed().as_secs_f64(),
            nodes: self
                .records
                .keys()
                .map(|node| self.node_report(*node))
                .collect(),
            is_stopped: is_stopped && !self.planner.is_ended(),
        }
    }
}
