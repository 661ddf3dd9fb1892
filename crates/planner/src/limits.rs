//! Limits and times of a plan.

use crate::estimate::LinkModel;

/// Limits of a plan. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanLimits {
    /// Speed of the links, for the choice of the plan. With [`LinkModel::is_measured`], also the rate
    /// below which the first node counts as slow.
    pub link: LinkModel,
    /// Interval at which the caller sends [`Tick`](crate::PlanEvent::Tick).
    pub tick_ms: u64,
    /// Slow receivers that a node feeds besides its successor in the chain.
    pub leaf_fanout: usize,
    /// Nodes that feed one receiver at the same time.
    pub feeders_max: usize,
    /// Failures after which a node no longer feeds another one.
    pub pair_attempts_max: u32,
    /// Wait before a pair is tried again. Each failure doubles it.
    pub pair_backoff_ms: u64,
    /// Upper bound of that wait.
    pub pair_backoff_ms_max: u64,
    /// Accusers whose reports of bad units bar a node from feeding any other node.
    pub accusers_min: usize,
    /// Period over which rates are measured.
    pub window_ms: u64,
    /// Time for which a node must be slow before it is demoted.
    pub slow_ms: u64,
    /// Share of its feeder's rate below which a node is slow, in percent.
    pub slow_percent: u64,
    /// Time without a verified unit after which the planner itself ends a stream that has data to send. Each
    /// stall of the receiver doubles it.
    pub stall_ms: u64,
    /// Wait after which a leaf takes a share of a feeder that is busy with the chain.
    pub leaf_wait_ms: u64,
    /// Time without progress, in spite of attempts, after which a node fails.
    pub give_up_ms: u64,
    /// Time for which units may be on no reachable node before the nodes that lack them fail.
    pub grace_ms: u64,
    /// Time for which nodes that have never connected are waited for.
    pub join_ms: u64,
    /// Time for which a lost node is waited for after all others have an outcome.
    pub rejoin_ms: u64,
    /// Time in which a node that holds all units has to commit them.
    pub finish_ms: u64,
}

impl Default for PlanLimits {
    fn default() -> Self {
        Self {
            link: LinkModel::default(),
            tick_ms: 250,
            leaf_fanout: 1,
            feeders_max: 4,
            pair_attempts_max: 8,
            pair_backoff_ms: 500,
            pair_backoff_ms_max: 30_000,
            accusers_min: 3,
            window_ms: 2_000,
            slow_ms: 1_000,
            slow_percent: 80,
            stall_ms: 3_000,
            leaf_wait_ms: 10_000,
            give_up_ms: 120_000,
            grace_ms: 5_000,
            join_ms: 60_000,
            rejoin_ms: 0,
            finish_ms: 600_000,
        }
    }
}
