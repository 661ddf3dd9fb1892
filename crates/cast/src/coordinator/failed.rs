//! Nodes that fail before the planner knows them: those that say so, and those that say nothing.

use crate::coordinator::run::CastRun;
use driftless_planner::{NodeId, PlanEvent};
use std::time::Duration;

/// Silence of a node that prepares, after which it has failed. A node notices itself that the thread
/// which opens its copy is stuck, a minute earlier. If its loop waits for the disk, it notices nothing.
const SILENCE_MAX: Duration = Duration::from_secs(660);

impl CastRun<'_> {
    /// Gives a node its outcome for a cause outside the plan.
    pub(super) fn fail(&mut self, node: NodeId, reason: String) {
        // A node that failed may take no catalogue, and its giver must not wait for that.
        let feeds = self.spread.lose(self.now_ms(), node);
        self.spread_catalogue(feeds);
        if !self.nodes.get(&node).is_some_and(|node| node.is_ready) {
            // The planner hears of nodes that have joined.
            let holds = Default::default();
            self.plan(PlanEvent::Joined { node, holds });
        }
        self.plan(PlanEvent::NodeFailed { node, reason });
    }

    /// Fails the nodes that are not ready and send no sign of life: heartbeats come from a thread of
    /// their own.
    pub(super) fn fail_silent(&mut self) {
        let is_open = |node: &NodeId| self.planner.outcome(*node).is_none();
        let nodes = self.nodes.iter().filter(|(node, _)| is_open(node));
        let silent: Vec<NodeId> = nodes
            .filter(|(_, one)| !one.is_ready && one.heard.elapsed() >= SILENCE_MAX)
            .map(|(node, _)| *node)
            .collect();
        for node in silent {
            let minutes = SILENCE_MAX.as_secs() / 60;
            let reason = format!(
                "it has not answered for {minutes} minutes; look for processes in state D there"
            );
            self.fail(node, reason);
        }
    }
}
