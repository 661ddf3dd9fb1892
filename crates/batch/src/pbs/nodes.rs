//! Nodes as `pbsnodes -a -v -F json` prints them.
//!
//! A host may have several virtual nodes. Data is on hosts, and resources are those of virtual nodes.

use super::jobs::split;
use super::unreadable;
use crate::command::CommandOutput;
use crate::{BatchResult, DataSlot};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// States of a node that runs no jobs, whatever ends on it (pbsnodes(8)).
const CLOSED: &[&str] = &[
    "down",
    "offline",
    "maintenance",
    "stale",
    "state-unknown",
    "unresolvable",
    "sleep",
];

/// A virtual node.
#[derive(Debug)]
pub(super) struct VirtualNode {
    name: String,
    host: String,
    queue: Option<String>,
    is_open: bool,
    resources: BTreeMap<String, String>,
}

impl VirtualNode {
    fn has(&self, slot: &DataSlot) -> bool {
        self.resources
            .get(slot.as_str())
            .is_some_and(|value| is_true(value))
    }

    /// Returns whether the node has what a chunk asks for. Amounts and unknown resources are left to
    /// the scheduler.
    fn fits(&self, chunk: &str) -> bool {
        let mut wishes = chunk.split(':').filter_map(|part| part.split_once('='));
        let has = |(name, value): (&str, &str)| match self.resources.get(name) {
            _ if name.starts_with(DataSlot::PREFIX) => true,
            Some(own) if is_boolean(own) => is_true(own) == is_true(value),
            Some(own) if is_amount(own) => true,
            Some(own) => own.split(',').any(|word| word.eq_ignore_ascii_case(value)),
            // A boolean that is not set is false.
            None => !is_true(value),
        };
        wishes.all(has)
    }
}

fn is_true(value: &str) -> bool {
    ["true", "t", "y", "1"].contains(&value.to_ascii_lowercase().as_str())
}

fn is_boolean(value: &str) -> bool {
    ["True", "False"].contains(&value)
}

fn is_amount(value: &str) -> bool {
    let digits = value.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    digits.parse::<f64>().is_ok()
}

/// Reads the member `nodes`.
pub(super) fn records(
    output: &CommandOutput,
    nodes: &Map<String, Value>,
) -> BatchResult<Vec<VirtualNode>> {
    let read = |(name, node): (&String, &Value)| {
        record(name, node).ok_or_else(|| unreadable(output, &format!("\"{name}\": {node}")))
    };
    nodes.iter().map(read).collect()
}

fn record(name: &str, node: &Value) -> Option<VirtualNode> {
    let state = node.get("state")?.as_str()?;
    let plain = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let available = node.get("resources_available").and_then(Value::as_object);
    let resources: BTreeMap<String, String> = available
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), plain(value)))
        .collect();
    let host = resources.get("host").map_or(name, String::as_str);
    Some(VirtualNode {
        name: name.to_owned(),
        host: host.to_owned(),
        queue: node.get("queue").map(plain),
        is_open: !state.split(',').any(|word| CLOSED.contains(&word.trim())),
        resources,
    })
}

/// Returns the open hosts of a queue that fit a chunk of the job. Nodes of other queues are closed to
/// it, and a queue with nodes of its own uses no others.
pub(super) fn candidates(nodes: &[VirtualNode], queue: &str, select: &str) -> Vec<String> {
    let is_own = |node: &&VirtualNode| node.queue.as_deref() == Some(queue);
    let has_own = nodes.iter().any(|node| is_own(&node));
    let chunks = split(select);
    let hosts: BTreeSet<&String> = nodes
        .iter()
        .filter(|node| match has_own {
            true => is_own(node),
            false => node.queue.is_none(),
        })
        .filter(|node| node.is_open && chunks.iter().any(|chunk| node.fits(chunk)))
        .map(|node| &node.host)
        .collect();
    hosts.into_iter().cloned().collect()
}

/// Returns the virtual nodes that must get the slot, and those that must lose it.
pub(super) fn changes<'a>(
    nodes: &'a [VirtualNode],
    slot: &DataSlot,
    ready: &BTreeSet<String>,
) -> (Vec<&'a str>, Vec<&'a str>) {
    let changed = nodes
        .iter()
        .filter(|node| node.has(slot) != ready.contains(&node.host));
    let (removed, added): (Vec<_>, Vec<_>) = changed.partition(|node| node.has(slot));
    let names = |nodes: Vec<&'a VirtualNode>| nodes.iter().map(|node| node.name.as_str()).collect();
    (names(added), names(removed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nodes() -> Vec<VirtualNode> {
        let nodes = json!({
            "a": {"state": "free", "resources_available": {"host": "a", "ncpus": 4, "gpu": "True", "arch": "linux"}},
            "b[0]": {"state": "job-busy", "resources_available": {"host": "b", "driftless_1": "True", "mem": "4gb"}},
            "b[1]": {"state": "job-busy", "resources_available": {"host": "b", "ib": "x,y"}},
            "c": {"state": "state-unknown,down", "resources_available": {"host": "c"}},
            "d": {"state": "free", "queue": "own", "resources_available": {"host": "d"}},
        });
        let Value::Object(nodes) = nodes else {
            unreachable!()
        };
        nodes
            .iter()
            .map(|(name, node)| record(name, node).unwrap())
            .collect()
    }

    #[test]
    fn candidates_have_what_chunks_ask_for() {
        for (queue, select, expected) in [
            ("workq", "1:ncpus=64:mem=900tb", &["a", "b"][..]),
            ("workq", "2:gpu=True", &["a"]),
            ("workq", "2:gpu=False+1:gpu=true", &["a", "b"]),
            ("workq", "1:host=b", &["b"]),
            ("workq", "1:ib=y", &["b"]),
            ("workq", "1:driftless_7=True", &["a", "b"]),
            ("workq", "3", &["a", "b"]),
            ("own", "1", &["d"]),
        ] {
            assert_eq!(
                candidates(&nodes(), queue, select),
                expected,
                "{queue} {select}"
            );
        }
    }

    #[test]
    fn all_virtual_nodes_of_hosts_change() {
        let nodes = nodes();
        let ready = ["b", "gone"].map(str::to_owned).into();
        let slot = DataSlot::numbered(1);
        assert_eq!(changes(&nodes, &slot, &ready), (vec!["b[1]"], vec![]));
        assert_eq!(
            changes(&nodes, &slot, &BTreeSet::new()),
            (vec![], vec!["b[0]"])
        );
    }
}
