//! Positions of nodes in the network, from the file of `--topology`.
//!
//! Two formats are known. The first is topology.conf of Slurm (topology.conf(5)), with lines such as
//! `SwitchName=s0 Nodes=n[1-8]` and `SwitchName=top Switches=s[0-3]`, or `BlockName=b0 Nodes=n[1-8]`.
//! The second has a line `NODE PATH` for each node, with the switches from the top down:
//! `n1 top/rack1`. In rack order the nodes below a switch are neighbours, so a chain enters
//! and leaves each switch once. The switches of the source come first.

use crate::hostlist::{HostlistError, NODES_MAX, parse_names};
use std::collections::BTreeMap;

/// Maximum number of switches on a path.
const DEPTH_MAX: usize = 32;

/// Errors in a topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// A list of names is wrong.
    #[error("line {line}: {error}")]
    Names {
        /// Number of the line.
        line: usize,
        /// Cause.
        error: HostlistError,
    },
    /// A line has neither format.
    #[error(
        "line {0}: not understood; write \"SwitchName=NAME Nodes=LIST\" or \"NODE SWITCH/SWITCH\""
    )]
    Line(usize),
    /// A node or switch is listed below two switches.
    #[error("line {line}: {name} is already listed below another switch; list it once")]
    Twice {
        /// Number of the line.
        line: usize,
        /// Node or switch.
        name: String,
    },
    /// A switch is above itself.
    #[error("switch {0}: listed below itself; remove the loop")]
    Loop(String),
    /// A path has more than 32 switches.
    #[error("{0}: more than 32 switches above it; shorten the path")]
    Deep(String),
    /// The topology has more than [`NODES_MAX`] nodes or switches.
    #[error("line {0}: more than {NODES_MAX} nodes or switches; list fewer")]
    TooMany(usize),
}

/// Switches above each node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RackTopology {
    /// Switches from the top down, for each node.
    paths: BTreeMap<String, Vec<String>>,
}

impl RackTopology {
    /// Parses the text of a topology file.
    pub fn parse(text: &str) -> Result<Self, TopologyError> {
        let lines = joined_lines(text);
        let is_slurm = lines.iter().any(|(_, line)| line.contains('='));
        let parse = if is_slurm { parse_slurm } else { parse_paths };
        Ok(Self {
            paths: parse(&lines)?,
        })
    }

    /// Returns the switches above a node from the top down. Returns an empty list if the node is unknown.
    pub fn path(&self, node: &str) -> &[String] {
        self.paths.get(node).map_or(&[], Vec::as_slice)
    }

    /// Sorts names in rack order from the position of `source`. Nodes without a position come last.
    pub fn rack_order(&self, source: &str, names: &mut [String]) {
        let from = self.path(source);
        names.sort_by_cached_key(|name| RackKey::new(from, self.path(name), name));
    }
}

/// Position of a node in rack order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RackKey {
    is_unknown: bool,
    /// Whether the path has left that of the source, and the name, for each switch.
    switches: Vec<(bool, NaturalKey)>,
    name: NaturalKey,
}

impl RackKey {
    fn new(source: &[String], path: &[String], name: &str) -> Self {
        let mut has_left = false;
        let mut key = |(at, switch): (usize, &String)| {
            has_left |= source.get(at) != Some(switch);
            (has_left, NaturalKey::new(switch))
        };
        Self {
            is_unknown: path.is_empty(),
            switches: path.iter().enumerate().map(&mut key).collect(),
            name: NaturalKey::new(name),
        }
    }
}

/// Name in parts, so that n2 stands before n10.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct NaturalKey {
    /// Letters, and the digits behind them: by length without leading zeros, then by value.
    parts: Vec<(String, usize, String)>,
    name: String,
}

impl NaturalKey {
    fn new(name: &str) -> Self {
        let (mut parts, mut rest) = (Vec::new(), name);
        while !rest.is_empty() {
            let (letters, behind) = split_at(rest, |c| c.is_ascii_digit());
            let (digits, behind) = split_at(behind, |c| !c.is_ascii_digit());
            let value = digits.trim_start_matches('0');
            parts.push((letters.to_owned(), value.len(), value.to_owned()));
            rest = behind;
        }
        let name = name.to_owned();
        Self { parts, name }
    }
}

/// Splits a text before the first character that matches.
fn split_at(text: &str, matches: impl Fn(char) -> bool) -> (&str, &str) {
    let at = text.find(matches).unwrap_or(text.len());
    text.split_at(at)
}

/// Returns the lines that are not empty with their numbers, without comments. A line that ends with
/// a backslash continues on the next one, as in slurm.conf.
fn joined_lines(text: &str) -> Vec<(usize, String)> {
    let (mut lines, mut open) = (Vec::<(usize, String)>::new(), false);
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or(line).trim();
        let (content, continues) = match line.strip_suffix('\\') {
            Some(content) => (content, true),
            None => (line, false),
        };
        match lines.last_mut() {
            Some((_, before)) if open => {
                before.push(' ');
                before.push_str(content);
            }
            _ => lines.push((at.saturating_add(1), content.to_owned())),
        }
        open = continues;
    }
    lines.retain(|(_, line)| !line.trim().is_empty());
    lines
}

type NodePaths = BTreeMap<String, Vec<String>>;

fn parse_paths(lines: &[(usize, String)]) -> Result<NodePaths, TopologyError> {
    let mut paths = NodePaths::new();
    for (line, text) in lines {
        let (nodes, path) = text
            .split_once(char::is_whitespace)
            .ok_or(TopologyError::Line(*line))?;
        if path.trim().contains(char::is_whitespace) {
            return Err(TopologyError::Line(*line));
        }
        let switches = path.trim().split('/').filter(|switch| !switch.is_empty());
        let switches: Vec<String> = switches.map(str::to_owned).collect();
        if switches.len() > DEPTH_MAX {
            return Err(TopologyError::Deep(nodes.to_owned()));
        }
        for node in names(*line, nodes)? {
            add(&mut paths, *line, node, switches.clone())?;
        }
    }
    Ok(paths)
}

fn names(line: usize, list: &str) -> Result<Vec<String>, TopologyError> {
    parse_names(list).map_err(|error| TopologyError::Names { line, error })
}

/// Adds an item that may be listed once.
fn add<T>(
    items: &mut BTreeMap<String, T>,
    line: usize,
    name: String,
    value: T,
) -> Result<(), TopologyError> {
    if items.contains_key(&name) {
        return Err(TopologyError::Twice { line, name });
    }
    if items.len() >= NODES_MAX {
        return Err(TopologyError::TooMany(line));
    }
    items.insert(name, value);
    Ok(())
}

/// Switches of a topology.conf.
#[derive(Default)]
struct SwitchTree {
    /// Switch above each switch.
    parents: BTreeMap<String, String>,
    /// Switch above each node.
    nodes: BTreeMap<String, String>,
}

fn parse_slurm(lines: &[(usize, String)]) -> Result<NodePaths, TopologyError> {
    let mut tree = SwitchTree::default();
    for (line, text) in lines {
        tree.add_line(*line, text)?;
    }
    let path = |(node, switch): (&String, &String)| Ok((node.clone(), tree.path(switch)?));
    tree.nodes.iter().map(path).collect()
}

impl SwitchTree {
    fn add_line(&mut self, line: usize, text: &str) -> Result<(), TopologyError> {
        let mut name = None;
        let (mut nodes, mut switches) = (Vec::new(), Vec::new());
        for word in text.split_whitespace() {
            let (key, value) = word.split_once('=').ok_or(TopologyError::Line(line))?;
            match key.to_ascii_lowercase().as_str() {
                "switchname" | "blockname" => name = Some(value.to_owned()),
                "nodes" => nodes = names(line, value)?,
                "switches" => switches = names(line, value)?,
                // LinkSpeed, BlockSizes and later keys say nothing about positions.
                _ => {}
            }
        }
        let Some(name) = name else {
            // A line such as "BlockSizes=4,16" describes no switch.
            let is_switch = !nodes.is_empty() || !switches.is_empty();
            return if is_switch {
                Err(TopologyError::Line(line))
            } else {
                Ok(())
            };
        };
        for node in nodes {
            add(&mut self.nodes, line, node, name.clone())?;
        }
        for switch in switches {
            add(&mut self.parents, line, switch, name.clone())?;
        }
        Ok(())
    }

    /// Returns the switches from the top down to `switch`.
    fn path(&self, switch: &str) -> Result<Vec<String>, TopologyError> {
        let mut path = vec![switch.to_owned()];
        let mut at = switch;
        while let Some(parent) = self.parents.get(at) {
            if path.contains(parent) {
                return Err(TopologyError::Loop(parent.clone()));
            }
            if path.len() >= DEPTH_MAX {
                return Err(TopologyError::Deep(switch.to_owned()));
            }
            path.push(parent.clone());
            at = parent;
        }
        path.reverse();
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLURM: &str = "# A tree\nSwitchName=s0 Nodes=n[1-2] LinkSpeed=10\nswitchname=s1 nodes=n[10-11]\n\
        SwitchName=s2 \\\n  Nodes=n3,n4\nSwitchName=top Switches=s[0-2]\n";

    fn order(topology: &RackTopology, source: &str, names: &str) -> String {
        let mut names: Vec<String> = names.split(' ').map(str::to_owned).collect();
        topology.rack_order(source, &mut names);
        names.join(" ")
    }

    #[test]
    fn slurm_topology_gives_paths() {
        let topology = RackTopology::parse(SLURM).expect("a topology");
        assert_eq!(topology.path("n2"), ["top", "s0"]);
        assert_eq!(topology.path("n4"), ["top", "s2"]);
        assert!(topology.path("n9").is_empty());
    }

    #[test]
    fn both_formats_mean_the_same() {
        let plain = "n[1-2] top/s0\nn[10-11] /top/s1\n\n# more\nn3,n4 top/s2\n";
        assert_eq!(RackTopology::parse(plain), RackTopology::parse(SLURM));
    }

    #[test]
    fn rack_of_the_source_comes_first() {
        let topology = RackTopology::parse(SLURM).expect("a topology");
        let names = "x n11 n10 n4 n3 n2 n1";
        assert_eq!(order(&topology, "n1", names), "n1 n2 n10 n11 n3 n4 x");
        assert_eq!(order(&topology, "n3", names), "n3 n4 n1 n2 n10 n11 x");
        assert_eq!(
            order(&RackTopology::default(), "n1", "n10 n9 n2"),
            "n2 n9 n10"
        );
    }

    #[test]
    fn wrong_topologies_are_refused() {
        for (text, expected) in [
            ("n1", "line 1: not understood"),
            ("\nn1 a b", "line 2: not understood"),
            (
                "SwitchName=a Nodes=n[1-",
                "line 1: n[1-: brackets do not match",
            ),
            (
                "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1",
                "line 2: n1 is already listed",
            ),
            (
                "SwitchName=a Switches=b\nSwitchName=b Switches=a Nodes=n1",
                "switch b: listed below itself",
            ),
            ("Nodes=n1", "line 1: not understood"),
            ("n1 a\nn1 b", "line 2: n1 is already listed"),
        ] {
            let error = RackTopology::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        let deep = format!("n1 {}", "a/".repeat(DEPTH_MAX + 1));
        assert_eq!(
            RackTopology::parse(&deep),
            Err(TopologyError::Deep("n1".to_owned()))
        );
    }

    #[test]
    fn blocks_are_switches() {
        let topology =
            RackTopology::parse("BlockName=b1 Nodes=n[1-2]\nBlockSizes=2,4").expect("blocks");
        assert_eq!(topology.path("n2"), ["b1"]);
    }
}
