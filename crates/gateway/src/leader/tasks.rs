//! Tasks of a job, by the answers of the batch system so far: which indices the job has, and where each
//! task ran last.

use driftless_batch::{LiveJob, TaskRanges};
use std::collections::{BTreeMap, BTreeSet};

/// Tasks of a job.
#[derive(Debug, Default)]
pub(crate) struct JobTasks {
    known: TaskRanges,
    /// Nodes of the last run of each task that was seen.
    nodes: BTreeMap<u64, BTreeSet<String>>,
    running: BTreeSet<u64>,
    /// Whether a task ended since the outboxes were listed last.
    has_ended: bool,
}

impl JobTasks {
    /// Follows an answer.
    pub fn see(&mut self, live: &LiveJob) {
        if let Some(waiting) = &live.waiting {
            self.known.add(waiting.clone());
        }
        let mut nodes_of: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
        for task in &live.running {
            let Some(index) = task.index else { continue };
            let nodes = nodes_of.entry(index).or_default();
            nodes.extend(task.nodes.iter().cloned());
        }
        let running: BTreeSet<u64> = nodes_of.keys().copied().collect();
        for (index, nodes) in nodes_of {
            self.known.add(TaskRanges::one(index));
            let last = self.nodes.entry(index).or_default();
            // A task that ends has fewer and fewer nodes. One with a new node runs again: no answer has to
            // show the time between both runs.
            if !self.running.contains(&index) || !nodes.is_subset(last) {
                *last = nodes;
            }
        }
        self.has_ended |= self.running.difference(&running).next().is_some();
        self.running = running;
    }

    /// Returns whether the job has a task of this index. An index that was never seen may be the name of
    /// anything.
    pub fn has(&self, task: u64) -> bool {
        self.known.contains(task)
    }

    /// Returns the nodes of the last run of a task. `None` if no answer had the run, or if the batch system
    /// has other names for the nodes than `is_node` knows.
    pub fn last_nodes(
        &self,
        task: u64,
        is_node: &dyn Fn(&String) -> bool,
    ) -> Option<&BTreeSet<String>> {
        let nodes = self.nodes.get(&task);
        nodes.filter(|nodes| nodes.iter().any(is_node))
    }

    /// Returns whether a task ended since the outboxes were listed last.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Notes that the outboxes are listed.
    pub fn note_list(&mut self) {
        self.has_ended = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_batch::LiveTask;

    fn running(tasks: &[(u64, &str)]) -> LiveJob {
        let task = |(index, node): &(u64, &str)| LiveTask {
            index: Some(*index),
            nodes: node.split(',').map(str::to_owned).collect(),
        };
        LiveJob {
            running: tasks.iter().map(task).collect(),
            ..LiveJob::default()
        }
    }

    fn last(tasks: &JobTasks, task: u64) -> Option<String> {
        let nodes = tasks.last_nodes(task, &|node| node.starts_with('n'))?;
        Some(nodes.iter().cloned().collect::<Vec<_>>().join(","))
    }

    #[test]
    fn last_run_of_a_task_is_known() {
        let mut tasks = JobTasks::default();
        tasks.see(&running(&[(1, "n1,n2"), (2, "other")]));
        tasks.see(&running(&[(1, "n2")]));
        assert_eq!(last(&tasks, 1).as_deref(), Some("n1,n2"), "one run");
        assert_eq!((last(&tasks, 2), last(&tasks, 3)), (None, None));
        tasks.see(&running(&[]));
        tasks.see(&running(&[(1, "n3")]));
        assert_eq!(last(&tasks, 1).as_deref(), Some("n3"));
        tasks.see(&running(&[(1, "n4")]));
        assert_eq!(last(&tasks, 1).as_deref(), Some("n4"), "requeued unseen");
    }

    #[test]
    fn ends_of_tasks_are_noticed() {
        let mut tasks = JobTasks::default();
        tasks.see(&running(&[(1, "n1")]));
        assert!(tasks.has(1) && !tasks.has(2024) && !tasks.has_ended());
        tasks.see(&running(&[]));
        assert!(tasks.has_ended() && tasks.has(1));
        tasks.note_list();
        assert!(!tasks.has_ended());
    }
}
