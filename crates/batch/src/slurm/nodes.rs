//! Nodes as `sinfo` lists them, and changes of their features.
//!
//! Slurm replaces a node's whole lists of features. A change therefore begins with the lists of this
//! moment, keeps all other names in their order, and is written only where it changes something.

use super::answer::{stdout, unknown};
use super::{Slurm, features, hostlist};
use crate::{BatchResult, DataSlot};
use std::collections::{BTreeMap, BTreeSet};

const SEPARATOR: char = '\u{1f}';
/// Fields of a line: node, partition, state, available features, active features (sinfo(1)).
const FIELDS: [&str; 5] = ["%N", "%R", "%t", "%f", "%b"];
/// Marks behind a state (sinfo(1)): not responding, powered off or down or up, reboot, and more.
const STATE_MARKS: &str = "*~#!%$@^-+";
/// Marks of nodes that cannot take a copy now.
const AWAY_MARKS: &str = "*~#!%^";
/// States of nodes that run jobs.
const USABLE: [&str; 9] = [
    "alloc", "block", "blocked", "comp", "idle", "mix", "mixed", "plnd", "planned",
];
/// States of nodes that a reservation has.
const RESERVED: [&str; 2] = ["maint", "resv"];
/// States of nodes that run no jobs.
const UNUSABLE: [&str; 27] = [
    "boot",
    "canc_r",
    "down",
    "drain",
    "drained",
    "draining",
    "drng",
    "err",
    "error",
    "fail",
    "failg",
    "failing",
    "futr",
    "future",
    "inval",
    "n/a",
    "no_respond",
    "npc",
    "perfctrs",
    "pow_dn",
    "pow_up",
    "powered_down",
    "powering_down",
    "powering_up",
    "reboot",
    "unk",
    "unknown",
];
/// Nodes that one command changes.
const NODES_PER_COMMAND: usize = 4096;

/// A line of `sinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SinfoNode {
    pub name: String,
    partitions: Vec<String>,
    /// Whether the node can take a copy and run jobs.
    pub is_usable: bool,
    /// Whether a reservation has the node.
    pub is_reserved: bool,
    pub available: Vec<String>,
    active: Vec<String>,
}

/// Wish for a slot on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotState {
    /// Jobs may demand the slot. Whether the node offers it stays as it is.
    Known,
    /// Jobs may demand the slot, and the node does not offer it.
    Unready,
    /// The node offers the slot.
    Ready,
    /// The node does not offer the slot.
    Silent,
    /// The node does not have the slot.
    Gone,
}

impl SinfoNode {
    /// Returns whether the node is in one of the partitions of a job, as squeue lists them.
    pub fn is_in(&self, partitions: &str) -> bool {
        let mut wanted = partitions.split(',');
        wanted.any(|name| self.partitions.iter().any(|known| known == name))
    }

    /// Returns the lists of available and active features for a wish, or `None` if they are right.
    fn change(&self, slot: &DataSlot, wish: SlotState) -> Option<(String, String)> {
        let with = |list: &[String], wanted: Option<bool>| {
            let has = list.iter().any(|name| name == slot.as_str());
            let mut list = list.to_vec();
            match wanted {
                Some(true) if !has => list.push(slot.to_string()),
                Some(false) => list.retain(|name| name != slot.as_str()),
                _ => {}
            }
            list
        };
        let (available, active) = match wish {
            SlotState::Known => (Some(true), None),
            SlotState::Unready => (Some(true), Some(false)),
            SlotState::Ready => (Some(true), Some(true)),
            SlotState::Silent => (None, Some(false)),
            SlotState::Gone => (Some(false), Some(false)),
        };
        let new = (with(&self.available, available), with(&self.active, active));
        let is_right = new.0 == self.available && new.1 == self.active;
        (!is_right).then(|| (new.0.join(","), new.1.join(",")))
    }
}

impl Slurm {
    /// Returns all nodes.
    pub(super) fn nodes(&self) -> BatchResult<Vec<SinfoNode>> {
        let format = FIELDS.join(&SEPARATOR.to_string());
        let args = [
            "--noheader",
            "--all",
            "--local",
            "--Node",
            "--format",
            &format,
        ];
        parse(&stdout(self.settings.run("sinfo", &args)?)?)
    }

    /// Gives each node its wish for a slot. Nodes without a wish stay as they are.
    pub(super) fn set_slot(
        &self,
        slot: &DataSlot,
        wish: &dyn Fn(&SinfoNode) -> Option<SlotState>,
    ) -> BatchResult<()> {
        let nodes = self.nodes()?;
        let mut groups: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
        for node in &nodes {
            if let Some(lists) = wish(node).and_then(|wish| node.change(slot, wish)) {
                groups.entry(lists).or_default().push(&node.name);
            }
        }
        for ((available, active), names) in groups {
            for names in names.chunks(NODES_PER_COMMAND) {
                let names: BTreeSet<String> = names.iter().map(|&name| name.to_owned()).collect();
                // Without a list of active features, Slurm would make all available ones active.
                let args = [
                    "update".to_owned(),
                    format!("NodeName={}", hostlist::collapse(&names)),
                    format!("AvailableFeatures={available}"),
                    format!("ActiveFeatures={active}"),
                ];
                stdout(self.settings.run("scontrol", &args)?)?;
            }
        }
        Ok(())
    }
}

/// Parses the output of `sinfo`, which names a node once for each of its partitions. A cluster has a
/// node: an output without one was cut off.
fn parse(output: &str) -> BatchResult<Vec<SinfoNode>> {
    if !output.ends_with('\n') {
        return Err(unknown("sinfo", output.lines().last().unwrap_or_default()));
    }
    let mut found: BTreeMap<String, SinfoNode> = BTreeMap::new();
    for line in output.lines() {
        let fields: Vec<&str> = line.split(SEPARATOR).collect();
        let record = fields.try_into().ok().and_then(|fields| read(&fields));
        let record = record.ok_or_else(|| unknown("sinfo", line))?;
        match found.get_mut(&record.name) {
            Some(known) => known.partitions.extend(record.partitions),
            None => {
                found.insert(record.name.clone(), record);
            }
        }
    }
    Ok(found.into_values().collect())
}

fn read(fields: &[&str; FIELDS.len()]) -> Option<SinfoNode> {
    let [names, partition, state, available, active] = fields;
    let mut names = hostlist::names(names)?;
    let name = names.pop().filter(|_| names.is_empty())?;
    let state = state.to_ascii_lowercase();
    let base = state.trim_end_matches(|c| STATE_MARKS.contains(c));
    let is_away = state.contains(|c| AWAY_MARKS.contains(c));
    let (is_usable, is_reserved) = match base {
        base if USABLE.contains(&base) => (!is_away, false),
        base if RESERVED.contains(&base) => (!is_away, true),
        base if UNUSABLE.contains(&base) => (false, false),
        _ => return None,
    };
    Some(SinfoNode {
        name,
        partitions: vec![(*partition).to_owned()],
        is_usable,
        is_reserved,
        available: features::list(available),
        active: features::list(active),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> BatchResult<Vec<SinfoNode>> {
        parse(&text.replace('|', &SEPARATOR.to_string()))
    }

    #[test]
    fn nodes_tell_whether_they_run_jobs() {
        let states = [
            ("idle", true),
            ("mix-", true),
            ("alloc$", true),
            ("idle*", false),
            ("idle~", false),
            ("drain", false),
            ("down*", false),
            ("DRAIN@", false),
        ];
        for (state, expected) in states {
            let nodes = parsed(&format!("n1|all|{state}|a,b|a\n")).unwrap();
            assert_eq!(nodes[0].is_usable, expected, "{state}");
        }
        let nodes =
            parsed("n2|all|idle|(null)|(null)\nn1|all|resv|a|\nn2|b|idle|(null)|(null)\n").unwrap();
        assert_eq!(nodes[1].partitions, ["all", "b"]);
        assert!(nodes[0].is_reserved && nodes[0].active.is_empty());
        for wrong in [
            "n1|all|asleep|a|b\n",
            "n1|all|idle|a\n",
            "n[1-2]|all|idle|a|b\n",
            "error\n",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn other_features_stay() {
        let slot = DataSlot::numbered(1);
        let node = |available: &str, active: &str| {
            parsed(&format!("n1|all|idle|{available}|{active}\n"))
                .unwrap()
                .remove(0)
        };
        let changed = |node: &SinfoNode, wish| node.change(&slot, wish);
        let lists = |one: &str, other: &str| Some((one.to_owned(), other.to_owned()));
        let plain = node("b,a", "b");
        assert_eq!(
            changed(&plain, SlotState::Known),
            lists("b,a,driftless_1", "b")
        );
        assert_eq!(
            changed(&plain, SlotState::Unready),
            lists("b,a,driftless_1", "b")
        );
        assert_eq!(
            changed(&plain, SlotState::Ready),
            lists("b,a,driftless_1", "b,driftless_1")
        );
        assert_eq!(changed(&plain, SlotState::Gone), None);
        assert_eq!(changed(&plain, SlotState::Silent), None);
        let ready = node("b,driftless_1,c", "driftless_1");
        assert_eq!(changed(&ready, SlotState::Known), None);
        assert_eq!(changed(&ready, SlotState::Ready), None);
        assert_eq!(
            changed(&ready, SlotState::Unready),
            lists("b,driftless_1,c", "")
        );
        assert_eq!(
            changed(&ready, SlotState::Silent),
            lists("b,driftless_1,c", "")
        );
        assert_eq!(changed(&ready, SlotState::Gone), lists("b,c", ""));
    }
}
