//! Casts, purges and questions to nodes, each in a thread of its own.

use super::outboxes::OutboxList;
use crate::distribution::{
    CollectGuard, CollectOrder, CollectOutcome, Distribution, LoadEvent, LoadOrder, NodeAnswer,
};
use crossbeam_channel::{Receiver, Sender, bounded};
use driftless_state::jobs::{JobNodeRow, JobNodeState};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Casts at work, those that only wait for silent nodes included, as a multiple of the others.
const WAITING_TIMES: usize = 4;
/// Casts of one job at a time: one that waits for a node delays no other node.
const JOB_LOADS_MAX: usize = 2;
/// Events that wait for the leader.
const EVENTS_MAX: usize = 4096;

/// Event of a thread.
#[derive(Debug)]
pub(crate) enum WorkEvent {
    /// The sources of a job were read.
    Data {
        mark: String,
        hash: String,
        bytes: u64,
    },
    /// Nodes of a job changed their state.
    Nodes { mark: String, rows: Vec<JobNodeRow> },
    /// A node of a job does not answer.
    Silent {
        mark: String,
        node: String,
        cause: String,
    },
    /// The cast of a job ended.
    LoadEnded {
        mark: String,
        load: u64,
        outcome: Result<(), String>,
    },
    /// The purge of a job ended.
    PurgeEnded { mark: String, is_complete: bool },
    /// Nodes listed the outboxes of a job.
    Outboxes { mark: String, list: OutboxList },
    /// Results of a job arrived from a node, or did not.
    Collected {
        mark: String,
        node: String,
        outcome: CollectOutcome,
    },
    /// Nodes answered which jobs they know.
    References(Vec<NodeAnswer<Vec<String>>>),
    /// Nodes that were silent answered, or did not.
    Probed(Vec<NodeAnswer<Vec<String>>>),
}

/// A collection, and the flag that stops it.
pub(crate) struct CollectWork {
    pub order: CollectOrder,
    pub guard: Box<dyn CollectGuard>,
    pub stop: Arc<AtomicBool>,
}

/// Work for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WorkKind {
    Load,
    Purge,
    Collect,
    /// A look at nodes that came up.
    Refresh,
    /// A change in the batch system.
    Batch,
}

/// A cast at work.
#[derive(Debug, Default)]
struct LoadAtWork {
    mark: String,
    stop: Arc<AtomicBool>,
    /// Nodes without an outcome.
    open: HashSet<String>,
    /// The same, but for those that do not answer.
    pending: HashSet<String>,
}

/// Time before the next attempt.
#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Instant,
    length: Duration,
}

/// Threads at work.
pub(crate) struct Works {
    send: Sender<WorkEvent>,
    receive: Receiver<WorkEvent>,
    waiting: Vec<WorkEvent>,
    /// Casts, each by its number.
    loads: HashMap<u64, LoadAtWork>,
    next_load: u64,
    purges: HashMap<String, Arc<AtomicBool>>,
    pauses: HashMap<(String, WorkKind), Pause>,
    is_probing: bool,
    threads: Vec<JoinHandle<()>>,
    pause_min: Duration,
}

impl Works {
    /// Returns no work. `pause_min` is the first pause after an attempt that failed.
    pub fn new(pause_min: Duration) -> Self {
        let (send, receive) = bounded(EVENTS_MAX);
        Works {
            send,
            receive,
            waiting: Vec::new(),
            loads: HashMap::new(),
            next_load: 0,
            purges: HashMap::new(),
            pauses: HashMap::new(),
            is_probing: false,
            threads: Vec::new(),
            pause_min,
        }
    }

    /// Returns the channel of events.
    pub fn events(&self) -> &Receiver<WorkEvent> {
        &self.receive
    }

    /// Keeps an event for the next turn.
    pub fn take_back(&mut self, event: Option<WorkEvent>) {
        self.waiting.extend(event);
    }

    /// Returns the events that wait.
    pub fn take(&mut self, count_max: usize) -> Vec<WorkEvent> {
        let mut events = std::mem::take(&mut self.waiting);
        events.extend(self.receive.try_iter().take(count_max));
        events
    }

    /// Returns whether as many casts are at work as may be. A cast that only waits for nodes which do
    /// not answer leaves its place to another one.
    pub fn is_full(&self, casts_max: usize) -> bool {
        let is_busy = |load: &&LoadAtWork| !load.pending.is_empty();
        let busy = self.loads.values().filter(is_busy).count();
        busy >= casts_max || self.loads.len() >= casts_max.saturating_mul(WAITING_TIMES)
    }

    /// Notes that a node has its outcome in a cast of a job.
    pub fn note_outcome(&mut self, mark: &str, node: &str) {
        for load in self.loads.values_mut().filter(|load| load.mark == mark) {
            load.open.remove(node);
            load.pending.remove(node);
        }
    }

    /// Notes that a node does not answer a cast of a job, which goes on.
    pub fn note_silence(&mut self, mark: &str, node: &str) {
        for load in self.loads.values_mut().filter(|load| load.mark == mark) {
            load.pending.remove(node);
        }
    }

    /// Returns whether a cast of a job is at work.
    pub fn is_loading(&self, mark: &str) -> bool {
        self.loads.values().any(|load| load.mark == mark)
    }

    /// Returns whether as many casts of a job are at work as may be.
    pub fn is_full_of(&self, mark: &str) -> bool {
        self.loads_of(mark) >= JOB_LOADS_MAX
    }

    /// Returns the number of casts of a job at work.
    pub fn loads_of(&self, mark: &str) -> usize {
        let own = self.loads.values().filter(|load| load.mark == mark);
        own.count()
    }

    /// Returns whether a cast of a job at work reaches a node, or still tries.
    pub fn is_loading_to(&self, mark: &str, node: &str) -> bool {
        let mut own = self.loads.values().filter(|load| load.mark == mark);
        own.any(|load| load.open.contains(node))
    }

    /// Returns whether a purge of a job is at work.
    pub fn is_purging(&self, mark: &str) -> bool {
        self.purges.contains_key(mark)
    }

    /// Returns whether the next attempt has to wait.
    pub fn is_paused(&self, mark: &str, kind: WorkKind) -> bool {
        let pause = self.pauses.get(&(mark.to_owned(), kind));
        pause.is_some_and(|pause| Instant::now() < pause.until)
    }

    /// Lets the next attempt wait, each time for longer.
    pub fn pause(&mut self, mark: &str, kind: WorkKind) {
        let key = (mark.to_owned(), kind);
        let before = self.pauses.get(&key).map(|pause| pause.length);
        let length = before.map_or(self.pause_min, |length| {
            length.saturating_mul(2).min(PAUSE_MAX)
        });
        let until = Instant::now() + length;
        self.pauses.insert(key, Pause { until, length });
    }

    /// Lets the next attempt wait for a time.
    pub fn pause_for(&mut self, mark: &str, kind: WorkKind, length: Duration) {
        let until = Instant::now() + length;
        let pause = Pause { until, length };
        self.pauses.insert((mark.to_owned(), kind), pause);
    }

    /// Ends the waits of a kind.
    pub fn succeed(&mut self, mark: &str, kind: WorkKind) {
        self.pauses.remove(&(mark.to_owned(), kind));
    }

    /// Asks the casts of a job to end.
    pub fn stop_load(&self, mark: &str) {
        for load in self.loads.values().filter(|load| load.mark == mark) {
            load.stop.store(true, Relaxed);
        }
    }

    /// Notes the end of a cast.
    pub fn end_load(&mut self, mark: &str, load: u64, is_complete: bool) {
        self.loads.remove(&load);
        self.note(mark, WorkKind::Load, is_complete);
    }

    /// Notes the end of a purge.
    pub fn end_purge(&mut self, mark: &str, is_complete: bool) {
        self.purges.remove(mark);
        self.note(mark, WorkKind::Purge, is_complete);
    }

    fn note(&mut self, mark: &str, kind: WorkKind, is_complete: bool) {
        match is_complete {
            true => self.succeed(mark, kind),
            false => self.pause(mark, kind),
        }
    }

    /// Starts a cast. Nodes that are not `proven` are asked first, and left out if they do not answer:
    /// a cast reads all of the sources, and waits for its nodes.
    pub fn load(
        &mut self,
        mark: &str,
        mut order: LoadOrder,
        proven: HashSet<String>,
        distribution: &Arc<dyn Distribution>,
    ) {
        let nodes: HashSet<String> = order.nodes.iter().cloned().collect();
        let work = LoadAtWork {
            mark: mark.to_owned(),
            stop: Arc::default(),
            open: nodes.clone(),
            pending: nodes,
        };
        let (stop, send) = (Arc::clone(&work.stop), self.send.clone());
        let load = self.next_load;
        self.next_load = load.saturating_add(1);
        self.loads.insert(load, work);
        let (mark, distribution) = (mark.to_owned(), Arc::clone(distribution));
        let failed = mark.clone();
        let is_started = self.start("load", move || {
            let report = |event| {
                let _the_leader_may_be_gone = send.send(event_of(&mark, event));
            };
            order.nodes = answering(&*distribution, &order, &proven, &report);
            let outcome = match order.nodes.is_empty() {
                true => Ok(()),
                false => distribution.load(&order, &report, &stop),
            };
            let _the_leader_may_be_gone = send.send(WorkEvent::LoadEnded {
                mark: mark.clone(),
                load,
                outcome,
            });
        });
        if !is_started {
            self.end_load(&failed, load, false);
        }
    }

    /// Asks silent nodes whether they answer again, unless a question is at work.
    pub fn probe(
        &mut self,
        nodes: Vec<String>,
        prefix: String,
        distribution: &Arc<dyn Distribution>,
    ) {
        if nodes.is_empty() || self.is_probing {
            return;
        }
        let (send, distribution) = (self.send.clone(), Arc::clone(distribution));
        self.is_probing = self.start("probe", move || {
            let answers = distribution.jobs_on(&nodes, &prefix);
            let _the_leader_may_be_gone = send.send(WorkEvent::Probed(answers));
        });
    }

    /// Notes the end of the question to silent nodes.
    pub fn end_probe(&mut self) {
        self.is_probing = false;
    }

    /// Starts a purge.
    pub fn purge(
        &mut self,
        mark: &str,
        job: String,
        nodes: Vec<String>,
        distribution: &Arc<dyn Distribution>,
    ) {
        let (stop, send) = (Arc::new(AtomicBool::new(false)), self.send.clone());
        self.purges.insert(mark.to_owned(), stop);
        let (mark, distribution) = (mark.to_owned(), Arc::clone(distribution));
        let failed = mark.clone();
        let is_started = self.start("purge", move || {
            let answers = distribution.end_job(&job, &nodes);
            let is_complete = answers.iter().all(|answer| answer.answer.is_ok());
            let rows = answers.into_iter().map(purged_row).collect();
            let nodes = WorkEvent::Nodes {
                mark: mark.clone(),
                rows,
            };
            for event in [nodes, WorkEvent::PurgeEnded { mark, is_complete }] {
                let _the_leader_may_be_gone = send.send(event);
            }
        });
        if !is_started {
            self.end_purge(&failed, false);
        }
    }

    /// Asks nodes for the outboxes of a job. `is_final` states whether all of its tasks ended. Returns
    /// whether they are asked.
    pub fn list_outboxes(
        &mut self,
        mark: &str,
        (job, nodes): (String, Vec<String>),
        is_final: bool,
        distribution: &Arc<dyn Distribution>,
    ) -> bool {
        let (send, distribution) = (self.send.clone(), Arc::clone(distribution));
        let mark = mark.to_owned();
        self.start("outboxes", move || {
            let answers = distribution.outboxes(&job, &nodes);
            let list = OutboxList { is_final, answers };
            let _the_leader_may_be_gone = send.send(WorkEvent::Outboxes { mark, list });
        })
    }

    /// Collects results of a job from a node. Returns whether this began.
    pub fn collect(
        &mut self,
        mark: &str,
        work: CollectWork,
        distribution: &Arc<dyn Distribution>,
    ) -> bool {
        let (send, distribution) = (self.send.clone(), Arc::clone(distribution));
        let mark = mark.to_owned();
        self.start("collect", move || {
            let outcome = distribution.collect(&work.order, &*work.guard, &work.stop);
            let node = work.order.node;
            let collected = WorkEvent::Collected {
                mark,
                node,
                outcome,
            };
            let _the_leader_may_be_gone = send.send(collected);
        })
    }

    /// Asks nodes for the jobs that they know. Returns whether they are asked.
    pub fn ask_references(
        &mut self,
        nodes: Vec<String>,
        prefix: String,
        distribution: &Arc<dyn Distribution>,
    ) -> bool {
        let (send, distribution) = (self.send.clone(), Arc::clone(distribution));
        self.start("references", move || {
            let answers = distribution.jobs_on(&nodes, &prefix);
            let _the_leader_may_be_gone = send.send(WorkEvent::References(answers));
        })
    }

    /// Ends a reference that no job needs.
    pub fn drop_reference(
        &mut self,
        job: String,
        node: String,
        distribution: &Arc<dyn Distribution>,
    ) {
        let distribution = Arc::clone(distribution);
        let _the_next_comparison_finds_it_again = self.start("references", move || {
            for answer in distribution.end_job(&job, &[node]) {
                match answer.answer {
                    Ok(()) => {
                        tracing::info!("{}: {job}: removed a copy without a job", answer.node)
                    }
                    Err(cause) => tracing::warn!("{}: {job}: {cause}", answer.node),
                }
            }
        });
    }

    /// Ends all casts, and waits for all threads.
    pub fn stop_all(&mut self) {
        for stop in self.loads.values().map(|load| &load.stop) {
            stop.store(true, Relaxed);
        }
        for thread in self.threads.drain(..) {
            while !thread.is_finished() {
                // A thread may wait for room in the channel.
                self.receive.try_iter().for_each(drop);
                std::thread::sleep(Duration::from_millis(5));
            }
            let _a_panic_was_reported = thread.join();
        }
    }

    /// Starts a thread. Returns whether the kernel gave one.
    fn start(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> bool {
        self.threads.retain(|thread| !thread.is_finished());
        match std::thread::Builder::new().name(name.into()).spawn(work) {
            Ok(thread) => {
                self.threads.push(thread);
                true
            }
            Err(error) => {
                let cause = driftless_model::cause(&error);
                tracing::error!("thread: cannot start: {cause}; raise the limits of this process");
                false
            }
        }
    }
}

/// Returns the nodes of an order that are proven or answer, and reports the others.
fn answering(
    distribution: &dyn Distribution,
    order: &LoadOrder,
    proven: &HashSet<String>,
    report: &dyn Fn(LoadEvent),
) -> Vec<String> {
    let nodes = order.nodes.iter().cloned();
    let (mut answering, asked): (Vec<String>, Vec<String>) =
        nodes.partition(|node| proven.contains(node));
    if asked.is_empty() {
        return answering;
    }
    for answer in distribution.jobs_on(&asked, &order.job) {
        let node = answer.node;
        match answer.answer {
            Ok(_) => answering.push(node),
            Err(cause) => report(LoadEvent::Unreachable { node, cause }),
        }
    }
    answering
}

fn event_of(mark: &str, event: LoadEvent) -> WorkEvent {
    let mark = mark.to_owned();
    let rows = |node, state, fault| vec![JobNodeRow { node, state, fault }];
    match event {
        LoadEvent::Data { hash, bytes } => WorkEvent::Data { mark, hash, bytes },
        LoadEvent::Ready { node } => WorkEvent::Nodes {
            mark,
            rows: rows(node, JobNodeState::Ready, None),
        },
        LoadEvent::Failed { node, cause } => WorkEvent::Nodes {
            mark,
            rows: rows(node, JobNodeState::Failed, Some(cause)),
        },
        LoadEvent::Unreachable { node, cause } => WorkEvent::Silent { mark, node, cause },
    }
}

/// Returns the row of a node that was asked to end a job. A node without success keeps the reference,
/// so its copy may still be there.
fn purged_row(answer: NodeAnswer<()>) -> JobNodeRow {
    let (state, fault) = match answer.answer {
        Ok(()) => (JobNodeState::Purged, None),
        Err(cause) => (JobNodeState::Failed, Some(cause)),
    };
    JobNodeRow {
        node: answer.node,
        state,
        fault,
    }
}
