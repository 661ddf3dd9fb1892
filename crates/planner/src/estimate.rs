//! Estimates of the time that a plan takes, and the choice between two plans.
//!
//! For `N` nodes, `M` units of `c` bytes, links of `b` bytes a second and a latency of `L` a hop:
//!
//! - chain, pipelined: `M * c/b + (N - 1) * (c/b + L)` (Kascade, HPDIC 2014, hal-00957671),
//! - binomial pipeline on a hypercube of `l = floor(log2(N + 1))` dimensions:
//!   `(M + l * k) * c/b + L * l * k` (RDMC, DSN 2018; Ganesan and Seshadri, ICDCS 2005), with `k` = 2 if two
//!   nodes share a vertex, and `k` = 1 if `N + 1` is a power of two.
//!
//! The chain sends each unit once over each switch in rack order and is simple to repair, so it is
//! the plan while the length of the chain costs less than 5 percent.

/// Share of the transfer time, in percent, that the length of a chain may cost.
const CHAIN_OVERHEAD_PERCENT_MAX: u128 = 5;
/// Nodes below which a hypercube gains nothing.
const HYPERCUBE_NODES_MIN: usize = 7;
/// Nodes above which the schedule of a hypercube takes too much memory and time to compute.
const HYPERCUBE_NODES_MAX: usize = 8_192;
const NANOSECONDS: u128 = 1_000_000_000;

/// Speed of the links between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkModel {
    /// Bytes per second that a node sends and receives, after limits.
    pub bytes_per_second: u64,
    /// Bytes of a unit.
    pub unit_bytes: u64,
    /// Latency of a hop in microseconds.
    pub hop_microseconds: u64,
    /// Whether `bytes_per_second` is known, from a measurement or a limit, and no assumption.
    pub is_measured: bool,
}

impl Default for LinkModel {
    /// Gigabit Ethernet: 117 MB/s of payload, 64 KiB units and 0.1 ms a hop.
    fn default() -> Self {
        Self {
            bytes_per_second: 117_000_000,
            unit_bytes: 65_536,
            hop_microseconds: 100,
            is_measured: false,
        }
    }
}

/// Form of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanShape {
    /// Each node receives from its predecessor and sends to its successor.
    Chain,
    /// Binomial pipeline: each node exchanges units with a neighbour in each dimension.
    Hypercube,
}

impl LinkModel {
    /// Returns the nanoseconds in which a link carries one unit.
    pub fn unit_nanoseconds(&self) -> u128 {
        u128::from(self.unit_bytes) * NANOSECONDS / u128::from(self.bytes_per_second.max(1))
    }

    /// Returns the units that a link carries in a second, at least 1.
    pub fn units_per_second(&self) -> u64 {
        (self.bytes_per_second / self.unit_bytes.max(1)).max(1)
    }

    fn hop_nanoseconds(&self) -> u128 {
        u128::from(self.hop_microseconds) * 1000
    }

    /// Estimates the nanoseconds in which a chain distributes `units` units to `nodes` nodes.
    pub fn chain_nanoseconds(&self, nodes: usize, units: u64) -> u128 {
        let hops = nodes.saturating_sub(1) as u128;
        let hop = self.unit_nanoseconds() + self.hop_nanoseconds();
        u128::from(units) * self.unit_nanoseconds() + hops * hop
    }

    /// Estimates the nanoseconds in which a binomial pipeline does so.
    pub fn hypercube_nanoseconds(&self, nodes: usize, units: u64) -> u128 {
        let dimensions = nodes.saturating_add(1).ilog2();
        let is_even = nodes.saturating_add(1).is_power_of_two();
        let steps = u128::from(dimensions) * if is_even { 1 } else { 2 };
        (u128::from(units) + steps) * self.unit_nanoseconds() + steps * self.hop_nanoseconds()
    }

    /// Chooses the plan for nodes that hold nothing yet. Returns [`PlanShape::Chain`] while the length
    /// of the chain costs at most 5 percent, and otherwise the plan with the shorter estimate.
    pub fn shape(&self, nodes: usize, units: u64) -> PlanShape {
        let chain = self.chain_nanoseconds(nodes, units);
        let transfer = u128::from(units) * self.unit_nanoseconds();
        let overhead = chain.saturating_sub(transfer) * 100;
        let is_short = overhead <= transfer * CHAIN_OVERHEAD_PERCENT_MAX;
        let fits = (HYPERCUBE_NODES_MIN..=HYPERCUBE_NODES_MAX).contains(&nodes);
        if is_short || !fits || self.hypercube_nanoseconds(nodes, units) >= chain {
            return PlanShape::Chain;
        }
        PlanShape::Hypercube
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABYTE_UNITS: u64 = 1_000_000_000 / 65_536;

    #[test]
    fn estimates_agree_with_the_published_table() {
        let link = LinkModel::default();
        let five = 5 * GIGABYTE_UNITS;
        for (nodes, chain_ms, hypercube_ms) in [
            (1, 42_734, 42_735),
            (20, 42_746, 42_739),
            (1024, 43_409, 42_747),
        ] {
            let ms = |nanoseconds: u128| nanoseconds / 1_000_000;
            let near = |estimate: u128, expected: u128| estimate.abs_diff(expected) < 20;
            assert!(near(ms(link.chain_nanoseconds(nodes, five)), chain_ms));
            assert!(near(
                ms(link.hypercube_nanoseconds(nodes, five)),
                hypercube_ms
            ));
        }
    }

    #[test]
    fn small_sets_take_the_hypercube() {
        let link = LinkModel::default();
        for (nodes, megabytes, expected) in [
            (1024, 2_000, PlanShape::Chain),
            (1024, 1_000, PlanShape::Hypercube),
            (20, 40, PlanShape::Chain),
            (20, 10, PlanShape::Hypercube),
            (2, 1, PlanShape::Chain),
            (100_000, 1, PlanShape::Chain),
        ] {
            let units = megabytes * 1_000_000 / 65_536;
            assert_eq!(link.shape(nodes, units), expected, "{nodes} {megabytes}");
        }
    }
}
