//! Output of `driftless doctor`: a table of measurements, slow nodes, and faults.

use crate::output::json;
use crate::output::mirror::{complaint, line};
use crate::output::table::table;
use crate::units::show_bytes;
use driftless_cast::{LinkHealth, NodeHealth};

/// Text of a measurement that was not made.
const NONE: &str = "-";

/// Prints a node as an object. A person gets a table at the end.
pub fn node(health: &NodeHealth, is_json: bool) {
    if is_json {
        line(&json::line(health));
    }
}

/// Prints the table, the slow nodes, and the faults.
pub fn summary(nodes: &[NodeHealth]) {
    table(&rows(nodes)).lines().for_each(line);
    for (node, what) in slow(nodes) {
        complaint(&format!(
            "{node}: its {what} is below half of the median; it will be slow"
        ));
    }
    for node in nodes {
        for fault in &node.faults {
            complaint(&format!("{}: {fault}", node.node));
        }
    }
}

fn rows(nodes: &[NodeHealth]) -> Vec<Vec<String>> {
    let header = [
        "NODE",
        "FROM HERE",
        "RTT",
        "FROM PREVIOUS",
        "DISK",
        "FREE",
        "HASH",
        "CPUS",
        "AES",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(nodes.iter().map(row));
    rows
}

fn row(health: &NodeHealth) -> Vec<String> {
    let rate = |bytes: Option<u64>| show(bytes, |bytes| format!("{}/s", show_bytes(bytes)));
    let speed = |link: Option<LinkHealth>| rate(link.map(|link| link.bytes_per_second));
    vec![
        health.node.clone(),
        speed(health.from_here),
        show(health.from_here, |link| {
            format!("{:.2} ms", link.round_trip_microseconds as f64 / 1000.0)
        }),
        speed(health.from_predecessor),
        rate(health.disk_write_bytes_per_second),
        show(health.free_bytes, show_bytes),
        rate(health.hash_bytes_per_second),
        show(health.processors, |count| count.to_string()),
        show(health.has_aes, |has_aes| {
            if has_aes { "yes" } else { "no" }.into()
        }),
    ]
}

fn show<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| NONE.into(), text)
}

/// Measurement of a node, in bytes a second.
type Measure = fn(&NodeHealth) -> Option<u64>;

fn bytes_per_second(link: Option<LinkHealth>) -> Option<u64> {
    link.map(|link| link.bytes_per_second)
}

/// Returns nodes with a measurement below half of the median of all nodes.
fn slow(nodes: &[NodeHealth]) -> Vec<(&str, &'static str)> {
    let measurements: [(&str, Measure); 3] = [
        ("link from here", |node| bytes_per_second(node.from_here)),
        ("link from the previous node", |node| {
            bytes_per_second(node.from_predecessor)
        }),
        ("disk", |node| node.disk_write_bytes_per_second),
    ];
    let mut found = Vec::new();
    for (what, measure) in measurements {
        let mut all: Vec<u64> = nodes.iter().filter_map(measure).collect();
        all.sort_unstable();
        let Some(median) = all.get(all.len() / 2) else {
            continue;
        };
        let slow = nodes
            .iter()
            .filter(|node| measure(node).is_some_and(|own| own < median / 2));
        found.extend(slow.map(|node| (node.node.as_str(), what)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_below_half_of_the_median_are_slow() {
        let node = |name: &str, rate: u64| NodeHealth {
            node: name.into(),
            from_here: Some(LinkHealth {
                bytes_per_second: rate,
                round_trip_microseconds: 100,
            }),
            ..NodeHealth::default()
        };
        let nodes = [node("n1", 100), node("n2", 110), node("n3", 40)];
        assert_eq!(slow(&nodes), [("n3", "link from here")]);
        assert!(
            rows(&nodes)
                .iter()
                .all(|row| row.len() == rows(&nodes)[0].len())
        );
    }
}
