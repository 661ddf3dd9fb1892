//! Choice of the node whose results go to the path of a task, as a pure function.
//!
//! A task can have run on several nodes, one run after the other. Results of the last run go to the path
//! of the task, and those of earlier runs beside it: none of them replaces newer ones, and none is lost.

use super::tasks::LastRun;
use driftless_state::jobs::TaskResultRow;
use std::collections::{BTreeMap, BTreeSet};

/// Nodes with results of the tasks of a job, for a collection from one node.
#[derive(Debug, Default)]
pub(crate) struct TaskClaims {
    node: String,
    /// Nodes of each task, and whether they had an earlier run.
    nodes: BTreeMap<u64, BTreeMap<String, bool>>,
    changed: BTreeSet<u64>,
}

impl TaskClaims {
    /// Returns the claims of the table.
    pub fn new(node: &str, rows: Vec<TaskResultRow>) -> Self {
        let mut nodes: BTreeMap<u64, BTreeMap<String, bool>> = BTreeMap::new();
        for row in rows {
            let of_task = nodes.entry(row.task).or_default();
            of_task.insert(row.node, row.is_earlier);
        }
        TaskClaims {
            node: node.to_owned(),
            nodes,
            changed: BTreeSet::new(),
        }
    }

    /// Decides about the results of a task on this node. If the nodes of its last run are not known, the
    /// first node whose results arrive has the path, until results of a later run come.
    pub fn decide(&mut self, task: u64, last: LastRun<'_>) {
        let of_task = self.nodes.entry(task).or_default();
        let before = of_task.clone();
        match last {
            LastRun::On(last) if last.contains(&self.node) => {
                of_task.retain(|_, is_earlier| *is_earlier);
                of_task.extend(last.iter().map(|node| (node.clone(), false)));
            }
            LastRun::On(_) => {
                of_task.insert(self.node.clone(), true);
            }
            LastRun::After(earlier) if !earlier.contains(&self.node) => {
                of_task.retain(|node, is_earlier| *is_earlier || !earlier.contains(node));
                of_task.insert(self.node.clone(), false);
            }
            _ if of_task.contains_key(&self.node) => {}
            _ => {
                let is_taken = of_task.values().any(|is_earlier| !is_earlier);
                of_task.insert(self.node.clone(), is_taken);
            }
        }
        if *of_task != before {
            self.changed.insert(task);
        }
    }

    /// Returns whether results of a task on this node are of an earlier run.
    pub fn is_earlier(&self, task: u64) -> bool {
        let of_task = self.nodes.get(&task);
        of_task.and_then(|nodes| nodes.get(&self.node)) == Some(&true)
    }

    /// Returns all rows of the tasks that changed.
    pub fn changed(&self) -> Vec<TaskResultRow> {
        let of_task = |task: &u64| {
            let nodes = self.nodes.get(task).into_iter().flatten();
            let row = |(node, is_earlier): (&String, &bool)| TaskResultRow {
                task: *task,
                node: node.clone(),
                is_earlier: *is_earlier,
            };
            nodes.map(row).collect::<Vec<_>>()
        };
        self.changed.iter().flat_map(of_task).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decides about task 1 for nodes in turn, as a gateway that keeps the rows. Returns whether the results of
    /// each node were set aside. `>` before the nodes of a run states that the task waited after it.
    fn decided(turns: &[(&str, Option<&str>)]) -> Vec<bool> {
        let mut rows = Vec::new();
        let decide = |(node, last): &(&str, Option<&str>)| {
            let mut claims = TaskClaims::new(node, std::mem::take(&mut rows));
            let nodes = last.unwrap_or_default().trim_start_matches('>').split(',');
            let nodes: BTreeSet<String> = nodes.map(str::to_owned).collect();
            let last = match last {
                None => LastRun::Unknown,
                Some(last) if last.starts_with('>') => LastRun::After(&nodes),
                Some(_) => LastRun::On(&nodes),
            };
            claims.decide(1, last);
            let all = claims.nodes.get(&1).into_iter().flatten();
            rows = all
                .map(|(node, is_earlier)| TaskResultRow {
                    task: 1,
                    node: node.clone(),
                    is_earlier: *is_earlier,
                })
                .collect();
            claims.is_earlier(1)
        };
        turns.iter().map(decide).collect()
    }

    #[test]
    fn late_node_replaces_no_newer_results() {
        let late = [("n2", Some("n2")), ("n1", Some("n2"))];
        assert_eq!(decided(&late), [false, true]);
        let first = [("n1", Some("n2")), ("n2", Some("n2"))];
        assert_eq!(decided(&first), [true, false]);
        // Another gateway took over, and knows no runs.
        assert_eq!(decided(&[("n2", Some("n2")), ("n1", None)]), [false, true]);
        assert_eq!(decided(&[("n2", None), ("n2", None)]), [false, false]);
    }

    #[test]
    fn newer_run_takes_the_path_over() {
        let again = [("n2", Some("n2")), ("n1", Some("n1")), ("n2", None)];
        assert_eq!(decided(&again), [false, false, true]);
    }

    #[test]
    fn run_that_nobody_saw_takes_the_path() {
        let late = [("n2", Some(">n1")), ("n1", Some(">n1"))];
        assert_eq!(decided(&late), [false, true]);
        let first = [
            ("n1", Some(">n1")),
            ("n2", Some(">n1")),
            ("n1", Some(">n1")),
        ];
        assert_eq!(decided(&first), [false, false, true]);
        let two = [
            ("n2", Some(">n1")),
            ("n3", Some(">n1")),
            ("n2", Some(">n1")),
        ];
        assert_eq!(decided(&two), [false; 3]);
        assert_eq!(decided(&[("n1", Some(">n1"))]), [false], "on the same node");
    }

    #[test]
    fn nodes_of_one_run_share_the_path() {
        let run = [("n1", Some("n1,n2")), ("n2", Some("n1,n2")), ("n2", None)];
        assert_eq!(decided(&run), [false; 3]);
    }
}
