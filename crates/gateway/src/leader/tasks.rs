//! Tasks of a job, by the answers of the batch system so far: which indices the job has, and where each
//! task ran last.

use driftless_batch::{LiveJob, TaskRanges};
use std::collections::{BTreeMap, BTreeSet};

/// Nodes of the last run of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastRun<'a> {
    /// No answer had a run, or the batch system has other names for the nodes.
    Unknown,
    /// The nodes are known.
    On(&'a BTreeSet<String>),
    /// The task waited again after a run on these nodes. No answer had a later run.
    After(&'a BTreeSet<String>),
}

/// Tasks of a job.
#[derive(Debug, Default)]
pub(crate) struct JobTasks {
    known: TaskRanges,
    /// Nodes of the last run of each task that was seen.
    nodes: BTreeMap<u64, BTreeSet<String>>,
    running: BTreeSet<u64>,
    /// Tasks that waited after the last run that was seen.
    again: BTreeSet<u64>,
    /// Whether a task ended since the outboxes were listed last.
    has_ended: bool,
}

impl JobTasks {
    /// Follows an answer.
    pub fn see(&mut self, live: &LiveJob) {
        if let Some(waiting) = &live.waiting {
            let ran = self.nodes.keys().copied();
            self.again
                .extend(ran.filter(|task| waiting.contains(*task)));
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
            self.again.remove(&index);
        }
        self.has_ended |= self.running.difference(&running).next().is_some();
        self.running = running;
    }

    /// Returns whether the job has a task of this index. An index that was never seen may be the name of
    /// anything.
    pub fn has(&self, task: u64) -> bool {
        self.known.contains(task)
    }

    /// Returns the nodes of the last run of a task, if `is_node` knows one of their names.
    pub fn last_run(&self, task: u64, is_node: &dyn Fn(&String) -> bool) -> LastRun<'_> {
        match self.nodes.get(&task) {
            Some(nodes) if !nodes.iter().any(is_node) => LastRun::Unknown,
            Some(nodes) if self.again.contains(&task) => LastRun::After(nodes),
            Some(nodes) => LastRun::On(nodes),
            None => LastRun::Unknown,
        }
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
        let joined = |nodes: &BTreeSet<String>| Vec::from_iter(nodes.clone()).join(",");
        match tasks.last_run(task, &|node| node.starts_with('n')) {
            LastRun::Unknown => None,
            LastRun::On(nodes) => Some(joined(nodes)),
            LastRun::After(nodes) => Some(format!("after {}", joined(nodes))),
        }
    }

    fn waiting(task: u64) -> LiveJob {
        LiveJob {
            waiting: Some(TaskRanges::one(task)),
            ..LiveJob::default()
        }
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
    fn task_that_waits_again_has_an_unknown_run() {
        let mut tasks = JobTasks::default();
        tasks.see(&waiting(1));
        tasks.see(&running(&[(1, "n1")]));
        assert_eq!(last(&tasks, 1).as_deref(), Some("n1"));
        tasks.see(&waiting(1));
        tasks.see(&running(&[]));
        assert_eq!(last(&tasks, 1).as_deref(), Some("after n1"));
        tasks.see(&running(&[(1, "n1")]));
        assert_eq!(last(&tasks, 1).as_deref(), Some("n1"));
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
