//! Schedule of the binomial pipeline.
//!
//! The nodes are the vertices of a hypercube of `l` dimensions. At step `j`, each vertex sends a block to its
//! neighbour in dimension `j mod l`. RDMC (Behrens et al., DSN 2018, section 4.4) gives the block in closed
//! form, so every stream is known before the first unit is sent. If the number of nodes is no
//! power of two, two nodes share a vertex: the first receives and the second sends.

use crate::messages::NodeId;
use crate::units::UnitSet;
use std::cmp::min;

/// Blocks for each dimension. The pipeline fills and drains in `1 / 64` of the transfer time.
const BLOCKS_PER_DIMENSION: u64 = 64;

/// A stream of the schedule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ScheduledStream {
    pub from: NodeId,
    pub to: NodeId,
    pub units: UnitSet,
}

/// Returns the streams that distribute `units` units from the first node to all others. Every node
/// receives every unit once.
pub(crate) fn schedule(nodes: &[NodeId], units: u64) -> Vec<ScheduledStream> {
    let Some(dimensions) = nodes.len().checked_ilog2().filter(|count| *count > 0) else {
        return Vec::new();
    };
    let cube = Cube::new(dimensions, units);
    let vertices = vertices(nodes, dimensions);
    let mut streams = Vec::new();
    for (rank, to) in (0_u64..).zip(&vertices).skip(1) {
        if to.head != to.tail {
            streams.push(ScheduledStream {
                from: to.head,
                to: to.tail,
                units: UnitSet::first(units),
            });
        }
        for (neighbour, units) in cube.received(rank) {
            let from = usize::try_from(neighbour)
                .ok()
                .and_then(|at| vertices.get(at));
            if let Some(from) = from.filter(|_| !units.is_empty()) {
                streams.push(ScheduledStream {
                    from: from.tail,
                    to: to.head,
                    units,
                });
            }
        }
    }
    streams
}

/// Vertex of one node, or of two neighbours in rack order.
struct Vertex {
    /// Node that receives.
    head: NodeId,
    /// Node that sends.
    tail: NodeId,
}

/// Distributes nodes over the vertices. The first node has a vertex of its own.
fn vertices(nodes: &[NodeId], dimensions: u32) -> Vec<Vertex> {
    let count = 1_usize << dimensions;
    let mut doubled = nodes.len().saturating_sub(count);
    let mut rest = nodes.iter().copied();
    let mut found = Vec::new();
    while let Some(head) = rest.next() {
        let is_double = !found.is_empty() && doubled > 0;
        let tail = if is_double { rest.next() } else { None };
        doubled = doubled.saturating_sub(usize::from(is_double));
        found.push(Vertex {
            head,
            tail: tail.unwrap_or(head),
        });
    }
    found
}

/// Hypercube and the blocks that it carries.
struct Cube {
    dimensions: u32,
    units: u64,
    blocks: u64,
}

impl Cube {
    fn new(dimensions: u32, units: u64) -> Self {
        let blocks = min(units, BLOCKS_PER_DIMENSION * u64::from(dimensions)).max(1);
        Self {
            dimensions,
            units,
            blocks,
        }
    }

    /// Returns the units of a block.
    fn block(&self, block: u64) -> UnitSet {
        let bound = |at: u64| {
            let unit = u128::from(at) * u128::from(self.units) / u128::from(self.blocks);
            u64::try_from(unit).unwrap_or(self.units)
        };
        UnitSet::range(bound(block), bound(block.saturating_add(1)))
    }

    /// Returns the neighbours of a vertex, and the units that each sends to it.
    fn received(&self, rank: u64) -> Vec<(u64, UnitSet)> {
        let neighbour = |dimension: u32| rank ^ (1 << dimension);
        let mut found: Vec<(u64, UnitSet)> = (0..self.dimensions)
            .map(|dimension| (neighbour(dimension), UnitSet::new()))
            .collect();
        let mut known = UnitSet::new();
        for step in 0..self.steps() {
            let dimension = step % u64::from(self.dimensions);
            let Some((from, units)) = usize::try_from(dimension)
                .ok()
                .and_then(|at| found.get_mut(at))
            else {
                continue;
            };
            // The last block is sent again until the end.
            let block = self
                .sent(*from, step)
                .filter(|block| !known.contains(*block));
            if let Some(block) = block {
                known.insert(&UnitSet::range(block, block + 1));
                units.insert(&self.block(block));
            }
        }
        found
    }

    fn steps(&self) -> u64 {
        self.blocks + u64::from(self.dimensions) - 1
    }

    /// Returns the block that a vertex sends at a step. Returns `None` while it has none to send.
    fn sent(&self, rank: u64, step: u64) -> Option<u64> {
        let dimensions = u64::from(self.dimensions);
        let turn = step % dimensions;
        let mask = (1_u64 << dimensions) - 1;
        let turned = ((rank >> turn) | (rank << (dimensions - turn))) & mask;
        let zeros = min(u64::from(turned.trailing_zeros()), dimensions);
        let block = (step + zeros).checked_sub(dimensions)?;
        Some(min(block, self.blocks - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Checks that each vertex holds a block before it sends it.
    fn check_steps(dimensions: u32, blocks: u64) {
        let cube = Cube {
            dimensions,
            units: blocks,
            blocks,
        };
        let count = 1_u64 << dimensions;
        let mut held = vec![UnitSet::new(); usize::try_from(count).expect("small")];
        held[0] = UnitSet::first(blocks);
        for step in 0..cube.steps() {
            let before = held.clone();
            for rank in 0..count {
                let Some(block) = cube.sent(rank, step) else {
                    continue;
                };
                let at = usize::try_from(rank).expect("small");
                assert!(
                    before[at].contains(block),
                    "{dimensions} {blocks} {step} {rank}"
                );
                let to = rank ^ (1 << (step % u64::from(dimensions)));
                held[usize::try_from(to).expect("small")].insert(&cube.block(block));
            }
        }
        assert!(held.iter().all(|units| *units == UnitSet::first(blocks)));
    }

    #[test]
    fn vertices_send_only_blocks_that_they_hold() {
        for dimensions in 1..7 {
            for blocks in [1, 2, 5, 16, 33] {
                check_steps(dimensions, blocks);
            }
        }
    }

    #[test]
    fn every_node_receives_every_unit_once() {
        for count in [2_u32, 3, 7, 8, 9, 14, 15, 16, 30, 100] {
            for units in [1, 7, 1000, 5000] {
                let nodes: Vec<NodeId> = (0..count).map(NodeId).collect();
                let mut received: BTreeMap<NodeId, UnitSet> = BTreeMap::new();
                for stream in schedule(&nodes, units) {
                    let held = received.entry(stream.to).or_default();
                    assert!(!held.intersects(&stream.units), "{count} {units}");
                    held.insert(&stream.units);
                }
                assert_eq!(received.len(), nodes.len() - 1, "{count} {units}");
                assert!(received.values().all(|held| *held == UnitSet::first(units)));
            }
        }
    }
}
