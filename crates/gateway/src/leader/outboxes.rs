//! Outboxes of jobs, as the nodes listed them, and the collections that wait or are at work.

use super::credits::{ActiveCollection, CollectTurns, OutboxKey, next_collection};
use super::tasks::JobTasks;
use crate::distribution::{NodeAnswer, OutboxState};
use crate::fresh::FreshAnswers;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Lists of outboxes, by the marks of their jobs, and collections.
#[derive(Debug, Default)]
pub(crate) struct Outboxes {
    /// Begin of the last list, and whether all tasks had ended then.
    pub asked: HashMap<String, (Instant, bool)>,
    /// Jobs whose outboxes are being listed.
    pub listing: HashSet<String>,
    /// Outboxes with entries that are not collected yet.
    waiting: Vec<WaitingOutbox>,
    active: Vec<(OutboxKey, Instant, Arc<AtomicBool>)>,
    /// Nodes of both, by the marks of their jobs.
    busy: HashMap<String, HashSet<String>>,
    turns: CollectTurns,
    /// Tasks of each job, and the begin of the question whose answer they follow.
    pub tasks: HashMap<String, JobTasks>,
    pub seen: Option<Instant>,
    pub answers: Arc<FreshAnswers>,
    /// Nodes whose outboxes are empty, for jobs that ended.
    empty: HashMap<String, HashSet<String>>,
    /// Jobs that ended, and whose outboxes are all empty.
    done: HashSet<String>,
}

/// Outboxes of a job at one time.
#[derive(Debug)]
pub(crate) struct OutboxList {
    /// Whether all tasks had ended then.
    pub is_final: bool,
    /// Answers of the nodes.
    pub answers: Vec<NodeAnswer<OutboxState>>,
}

/// An outbox with entries that are not collected yet.
#[derive(Debug)]
pub(crate) struct WaitingOutbox {
    pub key: OutboxKey,
    pub state: OutboxState,
}

impl Outboxes {
    /// Returns whether all results of a job that ended were collected.
    pub fn is_empty(&self, mark: &str) -> bool {
        self.done.contains(mark)
    }

    /// Returns whether a task of a job ended since its outboxes were listed.
    pub fn has_ended_task(&self, mark: &str) -> bool {
        self.tasks.get(mark).is_some_and(JobTasks::has_ended)
    }

    /// Notes that the outboxes of a job are being listed.
    pub fn note_listing(&mut self, mark: String) {
        if let Some(tasks) = self.tasks.get_mut(&mark) {
            tasks.note_list();
        }
        self.listing.insert(mark);
    }

    /// Notes that all results of a job that ended were collected.
    pub fn set_empty(&mut self, mark: &str) {
        self.done.insert(mark.to_owned());
    }

    /// Looks at the outboxes again before a job is closed.
    pub fn look_again(&mut self, mark: &str) {
        self.done.remove(mark);
        self.empty.remove(mark);
        self.asked.remove(mark);
    }

    /// Notes that a node has no results of a job that ended.
    pub fn set_node_empty(&mut self, mark: &str, node: &str) {
        let nodes = self.empty.entry(mark.to_owned()).or_default();
        nodes.insert(node.to_owned());
    }

    /// Returns whether a node has no results of a job that ended.
    pub fn is_node_empty(&self, mark: &str, node: &str) -> bool {
        let nodes = self.empty.get(mark);
        nodes.is_some_and(|nodes| nodes.contains(node))
    }

    /// Returns whether results of a job on a node wait, or are being collected.
    pub fn is_busy(&self, mark: &str, node: &str) -> bool {
        let nodes = self.busy.get(mark);
        nodes.is_some_and(|nodes| nodes.contains(node))
    }

    /// Adds results that wait.
    pub fn push(&mut self, waiting: WaitingOutbox) {
        let WaitingOutbox { key, .. } = &waiting;
        let nodes = self.busy.entry(key.mark.clone()).or_default();
        nodes.insert(key.node.clone());
        self.waiting.push(waiting);
    }

    /// Takes the results whose turn it is out of those that wait, if a credit is free. They stay busy.
    pub fn next(&mut self, credits_max: usize) -> Option<WaitingOutbox> {
        let keys: Vec<&OutboxKey> = self.waiting.iter().map(|one| &one.key).collect();
        let active = self.active.iter().map(|(key, began, _)| ActiveCollection {
            key: key.clone(),
            age: began.elapsed(),
        });
        let active: Vec<ActiveCollection> = active.collect();
        let chosen = next_collection(&keys, &active, &self.turns, credits_max)?;
        Some(self.waiting.remove(chosen))
    }

    /// Notes a collection that starts. Returns the flag that stops it.
    pub fn begin(&mut self, key: OutboxKey) -> Arc<AtomicBool> {
        let stop = Arc::new(AtomicBool::new(false));
        self.turns.take(&key);
        self.active.push((key, Instant::now(), Arc::clone(&stop)));
        stop
    }

    /// Notes the end of a collection, or that results wait no more.
    pub fn end(&mut self, mark: &str, node: &str) {
        if let Some(nodes) = self.busy.get_mut(mark) {
            nodes.remove(node);
        }
        self.active
            .retain(|(key, ..)| key.mark != mark || key.node != node);
    }

    /// Forgets jobs that are not open any more.
    pub fn retain(&mut self, open: &HashMap<String, u32>) {
        let is_open = |mark: &str| open.contains_key(mark);
        self.asked.retain(|mark, _| is_open(mark));
        self.waiting.retain(|one| is_open(&one.key.mark));
        self.empty.retain(|mark, _| is_open(mark));
        self.done.retain(|mark| is_open(mark));
        self.busy.retain(|mark, _| is_open(mark));
        self.tasks.retain(|mark, _| is_open(mark));
        self.turns.retain(open);
    }

    /// Asks all collections to end.
    pub fn stop_all(&self) {
        for (.., stop) in &self.active {
            stop.store(true, Relaxed);
        }
    }
}
