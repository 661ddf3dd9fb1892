//! A batch system and nodes in memory, with a real gateway and a real table.

use driftless_batch::{
    BatchError, BatchKind, BatchResult, BatchSystem, DataSlot, FoundJob, HeldRequest,
    JobCandidates, JobId, JobMark, LiveJob, LiveTask, MarkedJob, Readiness, Submission, TaskRanges,
};
use driftless_gateway::{
    CollectGuard, CollectMove, CollectOrder, CollectOutcome, CollectedResults, Distribution,
    Gateway, GatewaySettings, JobInfo, JobRequest, LoadEvent, LoadOrder, NodeAnswer, OutboxState,
    ReleasePolicy, UserSubmission, jobs, submit,
};
use driftless_state::jobs::JobTable;
use driftless_testkit::wait_until;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PAUSE: Duration = Duration::from_millis(5);
/// Credits of collections.
pub const COLLECTIONS: usize = 3;
const LIMIT: Duration = Duration::from_secs(120);

/// Side of the call at which another gateway takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Before,
    After,
}

/// A job of the batch system in memory.
#[derive(Debug, Clone, Default)]
struct SimJob {
    mark: String,
    owner: String,
    is_held: bool,
    releases: u32,
    slot: Option<String>,
    excluded: BTreeSet<String>,
    pending: u64,
    /// Index of the task that begins next.
    next: u64,
    /// Tasks that were requeued. They begin first.
    again: Vec<u64>,
    running: Vec<(String, u64)>,
    ran: Vec<String>,
    /// Data sets that tasks found.
    read: BTreeSet<String>,
}

impl SimJob {
    fn is_alive(&self) -> bool {
        self.pending > 0 || !self.running.is_empty()
    }

    /// Tasks that wait: those that are next, and those that run again.
    fn waiting(&self) -> Option<TaskRanges> {
        let next = self.pending - self.again.len() as u64;
        let mut waiting = TaskRanges::default();
        for task in (self.next..self.next + next).chain(self.again.iter().copied()) {
            waiting.add(TaskRanges::one(task));
        }
        Some(waiting)
    }
}

/// State that the parts share.
#[derive(Default)]
struct State {
    jobs: HashMap<JobId, SimJob>,
    next: u64,
    /// Nodes that offer a slot.
    slots: HashMap<String, BTreeSet<String>>,
    /// Names of jobs that refer to copies, for each node.
    references: HashMap<String, BTreeSet<String>>,
    /// Data set of each node and job, which the job began to use last.
    copies: HashMap<(String, String), String>,
    /// Version of all data.
    version: u32,
    /// Results in the outboxes of a node and a job, by task: whether the task wrote all.
    outboxes: HashMap<(String, String), BTreeMap<u64, bool>>,
    /// The same once a collection took them.
    sealed: HashMap<(String, String), BTreeSet<u64>>,
    /// Tasks whose results arrived, by the mark of the job.
    collected: HashMap<String, BTreeSet<u64>>,
    /// Node whose results of a task arrived at its path last, by the mark of the job.
    came_from: HashMap<String, BTreeMap<u64, String>>,
    /// Nodes and tasks whose results were set aside, by the mark of the job.
    set_aside: HashMap<String, Vec<(String, u64)>>,
    delays: HashMap<String, Duration>,
    /// Nodes that do not answer.
    silent: BTreeSet<String>,
    /// Whether no destination has room.
    is_full: bool,
    /// Whether collections that began wait.
    is_held_up: bool,
    /// Collections at work, and the most at a time.
    collecting: (usize, usize),
    faults: Vec<String>,
    is_paused: bool,
    fails: u32,
    loads: u32,
    /// Questions about the nodes on which jobs may run.
    questions: u32,
    /// Questions to silent nodes.
    probes: u32,
    /// Lists of the jobs that live.
    lists: u32,
    /// Whether these lists are empty.
    is_list_empty: bool,
    /// Time that a list of jobs or nodes takes.
    slowness: Duration,
    drained: BTreeSet<String>,
    /// Owner, if not the user of the test.
    owner: Option<String>,
    /// Tasks of the next job.
    tasks: u64,
}

/// A cluster with a gateway.
pub struct Cluster {
    folder: TempDir,
    sim: Arc<Sim>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Path of the socket that clients use.
    socket: PathBuf,
}

/// The batch system and the nodes.
struct Sim {
    nodes: Vec<String>,
    state: Mutex<State>,
    calls: AtomicU32,
    takeover: Option<(u32, When)>,
    table: PathBuf,
}

/// Gateways that a test started beside the first one.
pub struct SecondGateway {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for SecondGateway {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.thread.take().map(JoinHandle::join);
    }
}

impl Cluster {
    pub fn start(nodes: &[&str], takeover: Option<(u32, When)>) -> Cluster {
        Cluster::with(nodes, takeover, true)
    }

    pub fn without_rights(nodes: &[&str]) -> Cluster {
        Cluster::with(nodes, None, false)
    }

    fn with(nodes: &[&str], takeover: Option<(u32, When)>, has_slots: bool) -> Cluster {
        let folder = TempDir::new().expect("a folder");
        let sim = Arc::new(Sim {
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            state: Mutex::default(),
            calls: AtomicU32::new(0),
            takeover,
            table: folder.path().join("jobs.db"),
        });
        let stop = Arc::new(AtomicBool::new(false));
        let socket = folder.path().join("a.sock");
        let mut cluster = Cluster {
            folder,
            sim,
            stop,
            threads: Vec::new(),
            socket,
        };
        let gateway = cluster.gateway("a", has_slots);
        let stop = Arc::clone(&cluster.stop);
        let run = move || gateway.run(&stop).expect("it runs");
        cluster.threads.push(std::thread::spawn(run));
        let (sim, stop) = (Arc::clone(&cluster.sim), Arc::clone(&cluster.stop));
        let schedule = move || {
            while !stop.load(SeqCst) {
                sim.schedule();
                std::thread::sleep(PAUSE);
            }
        };
        cluster.threads.push(std::thread::spawn(schedule));
        cluster
    }

    fn gateway(&self, name: &str, has_slots: bool) -> Gateway {
        let dir = self.folder.path().to_owned();
        let socket = dir.join(format!("{name}.sock"));
        let settings = GatewaySettings {
            has_slots,
            slots_max: 3,
            poll: PAUSE,
            retry: PAUSE,
            lease_max: Duration::from_secs(2),
            collections_max: COLLECTIONS,
            ..GatewaySettings::new(dir, socket, name.into())
        };
        let batch = Arc::new(SimBatch(Arc::clone(&self.sim)));
        let nodes = Arc::new(SimNodes(Arc::clone(&self.sim)));
        Gateway::start(settings, batch, nodes).expect("a gateway")
    }

    pub fn second_gateway(&self) -> SecondGateway {
        let (gateway, stop) = (self.gateway("b", true), Arc::new(AtomicBool::new(false)));
        let ending = Arc::clone(&stop);
        let run = move || gateway.run(&ending).expect("it runs");
        SecondGateway {
            stop,
            thread: Some(std::thread::spawn(run)),
        }
    }

    pub fn submit(&self, data: &str, policy: ReleasePolicy, tasks: u64) -> JobId {
        self.sim.state().tasks = tasks;
        let request = JobRequest {
            sources: vec![data.as_bytes().to_vec()],
            policy,
            results: Some(b"/out/%j/%t".to_vec()),
            ..JobRequest::default()
        };
        let sim = &self.sim;
        let user = SimUser(Arc::clone(sim));
        let submitted = submit(&self.socket, request, &user).expect("submitted");
        submitted.job
    }

    /// Submits a job whose owner is another user, with the mark of this user.
    pub fn submit_as(&self, data: &str, owner: &str) -> JobId {
        self.sim.state().owner = Some(owner.into());
        let job = self.submit(data, ReleasePolicy::default(), 1);
        self.sim.state().owner = None;
        job
    }

    pub fn cancel(&self, job: &JobId) {
        let mut state = self.sim.state();
        let Some(job) = state.jobs.remove(job) else {
            return;
        };
        // Tasks that ran until now write no more.
        for (node, _) in job.running {
            let outbox = state.outboxes.entry((node, job.mark.clone())).or_default();
            outbox
                .values_mut()
                .for_each(|is_complete| *is_complete = true);
        }
    }

    pub fn delay(&self, node: &str, time: Duration) {
        self.sim.state().delays.insert(node.into(), time);
    }

    pub fn drain(&self, nodes: &[&str]) {
        self.sim.state().drained = nodes.iter().map(|node| (*node).to_owned()).collect();
    }

    pub fn silence(&self, nodes: &[&str]) {
        self.sim.state().silent = nodes.iter().map(|node| (*node).to_owned()).collect();
    }

    /// Returns the number of questions about the nodes on which jobs may run.
    pub fn questions(&self) -> u32 {
        self.sim.state().questions
    }

    /// Returns the number of questions to silent nodes.
    pub fn probes(&self) -> u32 {
        self.sim.state().probes
    }

    /// Returns the number of lists of jobs.
    pub fn lists(&self) -> u32 {
        self.sim.state().lists
    }

    /// Lets lists of jobs be empty, though jobs live.
    pub fn empty_lists(&self, is_empty: bool) {
        self.sim.state().is_list_empty = is_empty;
    }

    /// Lets each list of jobs or nodes take a time.
    pub fn slow_down(&self, time: Duration) {
        self.sim.state().slowness = time;
    }

    /// Gives the number of a job to a held job of another user.
    pub fn reuse_number(&self, job: &JobId) {
        let stranger = SimJob {
            owner: "stranger".into(),
            is_held: true,
            pending: 1,
            ..SimJob::default()
        };
        self.sim.state().jobs.insert(job.clone(), stranger);
    }

    /// Lets a job that ended run further tasks.
    pub fn run_more(&self, job: &JobId, tasks: u64) {
        if let Some(sim) = self.sim.state().jobs.get_mut(job) {
            sim.pending = tasks;
        }
    }

    /// Requeues the tasks of a job that run on a node, to run on other nodes. What they wrote stays there.
    pub fn requeue(&self, job: &JobId, node: &str) {
        let mut guard = self.sim.state();
        let state = &mut *guard;
        let sim = state.jobs.get_mut(job).expect("a job");
        let running = std::mem::take(&mut sim.running).into_iter();
        let (here, others): (Vec<_>, Vec<_>) = running.partition(|(running, _)| running == node);
        sim.running = others;
        sim.excluded.insert(node.to_owned());
        let outbox = (node.to_owned(), sim.mark.clone());
        let outbox = state.outboxes.entry(outbox).or_default();
        for (_, task) in here {
            sim.again.push(task);
            sim.pending += 1;
            // No task writes there any more.
            outbox.insert(task, true);
        }
    }

    /// Ends a task, while tasks are paused.
    pub fn end_task(&self, job: &JobId, task: u64) {
        let mut guard = self.sim.state();
        let state = &mut *guard;
        let sim = state.jobs.get_mut(job).expect("a job");
        let at = sim.running.iter().position(|(_, running)| *running == task);
        let (node, _) = sim.running.remove(at.expect("it runs"));
        let outbox = (node.clone(), sim.mark.clone());
        state.outboxes.entry(outbox).or_default().insert(task, true);
        sim.ran.push(node);
    }

    /// Lets a task that ended run again on a node.
    pub fn run_again(&self, job: &JobId, node: &str, task: u64) {
        let mut guard = self.sim.state();
        let state = &mut *guard;
        let sim = state.jobs.get_mut(job).expect("a job");
        sim.running.push((node.to_owned(), task));
        let outbox = (node.to_owned(), sim.mark.clone());
        state
            .outboxes
            .entry(outbox)
            .or_default()
            .insert(task, false);
    }

    /// Starts tasks that wait, while tasks are paused.
    pub fn start_tasks(&self) {
        self.sim.start_tasks(&mut self.sim.state());
    }

    /// Returns the nodes on which tasks of a job run.
    pub fn running_on(&self, job: &JobId) -> Vec<String> {
        let state = self.sim.state();
        let running = state.jobs[job].running.iter();
        running.map(|(node, _)| node.clone()).collect()
    }

    /// Lets a job write an entry whose name is a number, or end to do so.
    pub fn leave(&self, job: &JobId, node: &str, (name, is_complete): (u64, bool)) {
        let mut state = self.sim.state();
        let place = (node.to_owned(), state.jobs[job].mark.clone());
        let outbox = state.outboxes.entry(place).or_default();
        outbox.insert(name, is_complete);
    }

    /// Returns the node whose results of a task have its path, and the nodes whose results were set aside.
    pub fn arrived(&self, job: &JobId, task: u64) -> (Option<String>, Vec<String>) {
        let state = self.sim.state();
        let mark = &state.jobs[job].mark;
        let from = state.came_from.get(mark).and_then(|from| from.get(&task));
        let aside = state.set_aside.get(mark).into_iter().flatten();
        let aside = aside.filter(|(_, index)| *index == task);
        (from.cloned(), aside.map(|(node, _)| node.clone()).collect())
    }

    /// Returns the nodes with results of earlier runs, as the gateway tells them.
    pub fn earlier_runs(&self, job: &JobId) -> Vec<(String, u64)> {
        let all = self.all().into_iter();
        let jobs = all.filter(|info| info.number.as_deref() == Some(job.as_str()));
        let results = jobs.flat_map(|info| info.results);
        let nodes = results.filter(|one| one.earlier_runs > 0);
        nodes.map(|one| (one.node, one.earlier_runs)).collect()
    }

    /// Returns the number of results that arrived.
    pub fn count_arrived(&self, job: &JobId) -> usize {
        let state = self.sim.state();
        let mark = &state.jobs[job].mark;
        state.collected.get(mark).map_or(0, BTreeSet::len)
    }

    pub fn pause_tasks(&self, is_paused: bool) {
        self.sim.state().is_paused = is_paused;
    }

    pub fn change_data(&self) {
        self.sim.state().version += 1;
    }

    /// Hides a table of the file of the gateways, or shows it again.
    pub fn hide_results(&self, is_hidden: bool) {
        let names = ["task_results", "hidden"];
        let [from, to] = if is_hidden {
            names
        } else {
            [names[1], names[0]]
        };
        let file = Connection::open(&self.sim.table).expect("a table");
        file.busy_timeout(LIMIT).expect("set");
        let rename = format!("ALTER TABLE {from} RENAME TO {to}");
        file.execute_batch(&rename).expect("renamed");
    }

    /// Returns the last problem of a job.
    pub fn fault(&self, job: &JobId) -> Option<String> {
        let mark = self.sim.state().jobs.get(job).map(|job| job.mark.clone());
        let found = self
            .all()
            .into_iter()
            .find(|info| Some(&info.mark) == mark.as_ref());
        found.and_then(|info| info.fault)
    }

    pub fn lose_copies(&self, node: &str) {
        self.sim.state().references.remove(node);
    }

    pub fn has_copy(&self, node: &str) -> bool {
        let state = self.sim.state();
        state
            .references
            .get(node)
            .is_some_and(|jobs| !jobs.is_empty())
    }

    /// Returns whether a node offers a data set.
    pub fn offers(&self, node: &str) -> bool {
        let state = self.sim.state();
        state.slots.values().any(|nodes| nodes.contains(node))
    }

    pub fn take_over(&self) {
        self.sim.take_over();
    }

    pub fn fail_calls(&self, count: u32) {
        self.sim.state().fails = count;
    }

    /// Fills the destinations of results, or frees them.
    pub fn fill(&self, is_full: bool) {
        self.sim.state().is_full = is_full;
    }

    /// Lets collections that began wait.
    pub fn hold_up(&self, is_held_up: bool) {
        self.sim.state().is_held_up = is_held_up;
    }

    /// Ends all accidents.
    pub fn calm(&self) {
        self.silence(&[]);
        self.fill(false);
        self.hold_up(false);
        self.fail_calls(0);
    }

    /// Returns the number of nodes with results that were not collected.
    pub fn nodes_with_results(&self) -> usize {
        let state = self.sim.state();
        let outboxes = state.outboxes.iter().filter(|(_, left)| !left.is_empty());
        let sealed = state.sealed.iter().filter(|(_, left)| !left.is_empty());
        let outboxes = outboxes.map(|((node, _), _)| node);
        let nodes: BTreeSet<&String> = outboxes.chain(sealed.map(|((node, _), _)| node)).collect();
        nodes.len()
    }

    /// Returns the collections at work, and the most at a time.
    pub fn collecting(&self) -> (usize, usize) {
        self.sim.state().collecting
    }

    /// Returns whether the gateway shows why results of a job were not collected.
    pub fn has_result_fault(&self) -> bool {
        let jobs = self.all();
        let mut results = jobs.iter().flat_map(|job| &job.results);
        results.any(|one| one.fault.is_some())
    }

    pub fn loads(&self) -> u32 {
        self.sim.state().loads
    }

    pub fn calls(&self) -> u32 {
        self.sim.calls.load(SeqCst)
    }

    pub fn releases(&self, job: &JobId) -> u32 {
        let state = self.sim.state();
        state.jobs.get(job).map_or(0, |job| job.releases)
    }

    pub fn ran(&self, job: &JobId) -> Vec<String> {
        let state = self.sim.state();
        state
            .jobs
            .get(job)
            .map(|job| job.ran.clone())
            .unwrap_or_default()
    }

    pub fn stage(&self, job: &JobId) -> String {
        let mark = self.sim.state().jobs.get(job).map(|job| job.mark.clone());
        let known = jobs(&self.socket).expect("an answer");
        let found = known
            .into_iter()
            .find(|info| Some(&info.mark) == mark.as_ref());
        found.expect("a job").stage
    }

    pub fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let end = Instant::now() + LIMIT;
        while !is_so() {
            self.check_faults();
            if Instant::now() >= end {
                let (jobs, takeover) = (self.all(), self.sim.takeover);
                let state = self.sim.state();
                let (slots, references) = (&state.slots, &state.references);
                panic!("{what}: {takeover:?} {slots:?} {references:?} {jobs:#?}");
            }
            std::thread::sleep(PAUSE);
        }
        self.check_faults();
    }

    pub fn wait_until_closed(&self) {
        let is_closed = |job: &JobInfo| job.stage == "closed";
        self.wait_until("all jobs are closed", || self.all().iter().all(is_closed));
    }

    /// Returns the number of jobs whose fault has a text.
    pub fn with_fault(&self, text: &str) -> usize {
        let has = |job: &&JobInfo| job.fault.as_ref().is_some_and(|fault| fault.contains(text));
        self.all().iter().filter(has).count()
    }

    /// Returns the number of jobs that failed to get their data to a node.
    pub fn waiting_for(&self, node: &str) -> usize {
        let waits = |job: &&JobInfo| {
            let mut nodes = job.nodes.iter();
            nodes.any(|one| one.node == node && one.state == "failed")
        };
        self.all().iter().filter(waits).count()
    }

    fn all(&self) -> Vec<JobInfo> {
        jobs(&self.socket).expect("an answer")
    }

    /// Checks that all tasks of a job ran, and that it was released once.
    pub fn check_ran(&self, job: &JobId) {
        let state = self.sim.state();
        let job = state.jobs.get(job).expect("a job");
        assert_eq!(job.releases, 1, "{job:?}");
        assert!(!job.is_held && job.pending == 0, "{job:?}");
        let all: BTreeSet<u64> = (0..job.next).collect();
        assert_eq!(state.collected.get(&job.mark), Some(&all), "{job:?}");
    }

    pub fn check_nothing_is_left(&self) {
        self.check_faults();
        let is_empty = || {
            let state = self.sim.state();
            state.references.values().all(BTreeSet::is_empty) && state.slots.is_empty()
        };
        // An orphan of a takeover goes with the first comparison.
        if !is_empty() {
            self.take_over();
        }
        self.wait_until("no copy and no slot is left", is_empty);
    }

    pub fn check_faults(&self) {
        let state = self.sim.state();
        assert!(state.faults.is_empty(), "{:?}", state.faults);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
        wait_until("the gateway removed its socket", || !self.socket.exists());
    }
}

impl Sim {
    /// Returns whether a node does not answer, and counts the question if so.
    fn is_silent(&self, node: &str) -> bool {
        let mut state = self.state();
        let is_silent = state.silent.contains(node);
        state.probes += u32::from(is_silent);
        is_silent
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with the lock")
    }

    /// Takes the lease from the gateway that acts, and leaves it to the next one.
    fn take_over(&self) {
        let mut table = JobTable::open(&self.table).expect("a table");
        loop {
            let lease = table.lease().expect("read");
            if let Some(epoch) = table.take_lease(lease.as_ref(), "thief").expect("asked") {
                table.end_lease(epoch).expect("ended");
                return;
            }
        }
    }

    /// Lets a list take its time.
    fn wait_for_list(&self) {
        let time = self.state().slowness;
        std::thread::sleep(time);
    }

    /// Counts a call to a node.
    fn call_node<T>(&self, node: &str, effect: impl FnOnce() -> T) -> BatchResult<T> {
        let is_silent = self.state().silent.contains(node);
        match is_silent {
            true => Err(gone()),
            false => self.call(effect),
        }
    }

    /// Counts a call of the gateway; another gateway takes over at the chosen one.
    fn call<T>(&self, effect: impl FnOnce() -> T) -> BatchResult<T> {
        let call = self.calls.fetch_add(1, SeqCst) + 1;
        let is_chosen = |when| self.takeover == Some((call, when));
        if is_chosen(When::Before) {
            self.take_over();
            return Err(gone());
        }
        {
            let mut state = self.state();
            if state.fails > 0 && call.is_multiple_of(3) {
                state.fails -= 1;
                return Err(gone());
            }
        }
        let done = effect();
        if is_chosen(When::After) {
            self.take_over();
            return Err(gone());
        }
        Ok(done)
    }

    /// Runs one step of the scheduler: tasks that run end, and tasks that wait start where they may.
    fn schedule(&self) {
        let mut guard = self.state();
        let state = &mut *guard;
        if state.is_paused {
            return;
        }
        for job in state.jobs.values_mut() {
            let ended = std::mem::take(&mut job.running);
            for (node, index) in ended {
                let outbox = state.outboxes.get_mut(&(node.clone(), job.mark.clone()));
                match outbox.and_then(|outbox| outbox.get_mut(&index)) {
                    Some(is_complete) => *is_complete = true,
                    None => {
                        let fault = format!("{index} of {} lost its results", job.mark);
                        state.faults.push(fault);
                    }
                }
                job.ran.push(node);
            }
        }
        self.start_tasks(state);
    }

    /// Starts tasks that wait, where they may.
    fn start_tasks(&self, state: &mut State) {
        let mut faults = Vec::new();
        for job in state.jobs.values_mut() {
            for node in &self.nodes {
                let offers = |slot: &String| {
                    state
                        .slots
                        .get(slot)
                        .is_some_and(|nodes| nodes.contains(node))
                };
                let is_free = job.slot.as_ref().is_none_or(offers) && !job.excluded.contains(node);
                if job.is_held || job.pending == 0 || !is_free {
                    continue;
                }
                let has_data = state
                    .references
                    .get(node)
                    .is_some_and(|jobs| jobs.iter().any(|name| name.ends_with(&job.mark)));
                if !has_data {
                    faults.push(format!(
                        "a task of {} began on {node} without data",
                        job.mark
                    ));
                }
                let outbox = (node.clone(), job.mark.clone());
                job.read.extend(state.copies.get(&outbox).cloned());
                if job.read.len() > 1 {
                    faults.push(format!("{} has two versions: {:?}", job.mark, job.read));
                }
                let index = job.again.pop().unwrap_or_else(|| {
                    job.next += 1;
                    job.next - 1
                });
                let outbox = state.outboxes.entry(outbox).or_default();
                outbox.insert(index, false);
                job.running.push((node.clone(), index));
                job.pending -= 1;
            }
        }
        state.faults.extend(faults);
    }
}

/// Returns the node, and the mark in the name of a job.
fn place(node: &str, job: &str) -> (String, String) {
    let mark = job.rsplit('-').next().expect("a mark");
    (node.to_owned(), mark.to_owned())
}

fn gone() -> BatchError {
    BatchError::Unavailable {
        command: "simulation".into(),
        text: "the gateway ended".into(),
    }
}

struct SimUser(Arc<Sim>);

impl UserSubmission for SimUser {
    fn command(&self, _: BatchKind) -> Result<Vec<OsString>, String> {
        Ok(vec!["sbatch".into()])
    }

    fn system(&self, _: BatchKind) -> Box<dyn BatchSystem> {
        Box::new(SimBatch(Arc::clone(&self.0)))
    }
}

struct SimBatch(Arc<Sim>);

impl BatchSystem for SimBatch {
    fn kind(&self) -> BatchKind {
        BatchKind::Slurm
    }

    fn submission(&self, request: &HeldRequest<'_>) -> BatchResult<Submission> {
        let mut state = self.0.state();
        state.next += 1;
        let number = state.next;
        let user = driftless_gateway::User::find(rustix::process::geteuid().as_raw());
        let job = SimJob {
            mark: request.mark.to_string(),
            owner: state.owner.clone().unwrap_or(user.expect("a user").name),
            is_held: true,
            pending: state.tasks,
            ..SimJob::default()
        };
        let id = JobId::new(&number.to_string()).expect("a number");
        state.jobs.insert(id, job);
        Ok(Submission {
            program: "echo".into(),
            args: vec![number.to_string().into()],
            ..Submission::default()
        })
    }

    fn submitted(&self, output: &str) -> BatchResult<JobId> {
        Ok(JobId::new(output.trim()).expect("a number"))
    }

    fn marked(&self) -> BatchResult<Vec<MarkedJob>> {
        self.0.call(|| {
            let state = self.0.state();
            let marked = |(job, sim): (&JobId, &SimJob)| MarkedJob {
                job: job.clone(),
                mark: JobMark::new(&sim.mark).expect("a mark"),
                owner: sim.owner.clone(),
                is_held: sim.is_held,
            };
            state.jobs.iter().map(marked).collect()
        })
    }

    fn alive(&self) -> BatchResult<HashMap<JobId, LiveJob>> {
        self.0.wait_for_list();
        self.0.call(|| {
            let mut state = self.0.state();
            state.lists += 1;
            if state.is_list_empty {
                return HashMap::new();
            }
            let live = |(job, sim): (&JobId, &SimJob)| {
                let task = |(node, index): &(String, u64)| LiveTask {
                    index: Some(*index),
                    nodes: vec![node.clone()],
                };
                let live = LiveJob {
                    is_held: sim.is_held,
                    pending: sim.pending,
                    waiting: sim.waiting(),
                    running: sim.running.iter().map(task).collect(),
                    reason: None,
                };
                (job.clone(), live)
            };
            let alive = state.jobs.iter().filter(|(_, sim)| sim.is_alive());
            alive.map(live).collect()
        })
    }

    fn find(&self, job: &JobId) -> BatchResult<Option<FoundJob>> {
        self.0.call(|| {
            let state = self.0.state();
            let found = |sim: &SimJob| FoundJob {
                mark: JobMark::new(&sim.mark),
                owner: sim.owner.clone(),
                is_alive: sim.is_alive(),
            };
            state.jobs.get(job).map(found)
        })
    }

    fn candidates(&self, jobs: &[JobId]) -> BatchResult<JobCandidates> {
        self.0.wait_for_list();
        self.0.call(|| {
            let mut state = self.0.state();
            state.questions += 1;
            let up = self.0.nodes.iter();
            let up: Vec<String> = up
                .filter(|node| !state.drained.contains(*node))
                .cloned()
                .collect();
            jobs.iter()
                .map(|job| (job.clone(), Ok(up.clone())))
                .collect()
        })
    }

    fn declare(&self, slot: &DataSlot, _: &[String]) -> BatchResult<()> {
        self.0.call(|| {
            let mut state = self.0.state();
            state.slots.entry(slot.to_string()).or_default();
        })
    }

    fn require(&self, job: &JobId, readiness: &Readiness<'_>) -> BatchResult<()> {
        self.0.call(|| {
            if let Some(sim) = self.0.state().jobs.get_mut(job) {
                sim.slot = readiness.slot.map(DataSlot::to_string);
                if readiness.slot.is_none() {
                    let unready = self
                        .0
                        .nodes
                        .iter()
                        .filter(|node| !readiness.ready.contains(*node));
                    sim.excluded = unready.cloned().collect();
                }
            }
        })
    }

    fn tell_ready(&self, readiness: &Readiness<'_>, jobs: &[JobId]) -> BatchResult<()> {
        self.0.call(|| {
            let mut state = self.0.state();
            match readiness.slot {
                Some(slot) => {
                    state
                        .slots
                        .insert(slot.to_string(), readiness.ready.clone());
                }
                None => {
                    for job in jobs {
                        if let Some(sim) = state.jobs.get_mut(job) {
                            let unready = self
                                .0
                                .nodes
                                .iter()
                                .filter(|node| !readiness.ready.contains(*node));
                            sim.excluded = unready.cloned().collect();
                        }
                    }
                }
            }
        })
    }

    fn release(&self, job: &JobId) -> BatchResult<()> {
        self.0.call(|| {
            if let Some(sim) = self.0.state().jobs.get_mut(job)
                && sim.is_held
            {
                sim.is_held = false;
                sim.releases += 1;
            }
        })
    }

    fn undeclare(&self, slot: &DataSlot) -> BatchResult<()> {
        self.0.call(|| {
            let mut state = self.0.state();
            let demands =
                |sim: &&SimJob| sim.pending > 0 && sim.slot.as_deref() == Some(slot.as_str());
            if let Some(sim) = state.jobs.values().find(demands) {
                let fault = format!("the slot of {} was removed", sim.mark);
                state.faults.push(fault);
            }
            state.slots.remove(slot.as_str());
        })
    }
}

struct SimNodes(Arc<Sim>);

impl SimNodes {
    /// Takes the entries, copies them, removes them: each is a call.
    fn collect_in_steps(
        &self,
        order: &CollectOrder,
        guard: &dyn CollectGuard,
    ) -> Result<CollectedResults, String> {
        let (place, node) = (place(&order.node, &order.job), order.node.as_str());
        let text = |error: BatchError| error.to_string();
        let ended = guard.have_ended(&order.moves)?;
        let moves = order.moves.iter().zip(ended).filter(|(_, ended)| *ended);
        let moves: Vec<&CollectMove> = moves.map(|(one, _)| one).collect();
        let sealed = self.0.call_node(node, || self.seal(&place, order, &moves));
        sealed.map_err(text)?;
        let copied = self.0.call_node(node, || self.copy(&place)).map_err(text)?;
        let copied = copied.ok_or_else(|| gone().to_string())?;
        guard.check_lease()?;
        let discard = || self.discard(&place, &copied);
        self.0.call_node(node, discard).map_err(text)?;
        Ok(CollectedResults {
            entries: copied.len() as u64,
            bytes: 0,
        })
    }

    fn seal(&self, place: &(String, String), order: &CollectOrder, moves: &[&CollectMove]) {
        let mut guard = self.0.state();
        let state = &mut *guard;
        for one in moves {
            let index: u64 = String::from_utf8_lossy(&one.name).parse().expect("a task");
            let outbox = state.outboxes.entry(place.clone()).or_default();
            match outbox.remove(&index) {
                Some(true) => {}
                // Another gateway sealed it.
                None => continue,
                Some(false) => {
                    let fault = format!("{index} of {} runs, and was collected", order.job);
                    state.faults.push(fault);
                }
            }
            if one.path.starts_with(b"earlier-runs/") {
                let aside = state.set_aside.entry(place.1.clone()).or_default();
                aside.push((place.0.clone(), index));
            } else {
                let from = state.came_from.entry(place.1.clone()).or_default();
                from.insert(index, place.0.clone());
            }
            state.sealed.entry(place.clone()).or_default().insert(index);
        }
    }

    /// Returns the results that arrived; `None` if the destination is full.
    fn copy(&self, place: &(String, String)) -> Option<BTreeSet<u64>> {
        let mut guard = self.0.state();
        let state = &mut *guard;
        let sealed = state.sealed.get(place).cloned().unwrap_or_default();
        let collected = state.collected.entry(place.1.clone()).or_default();
        (!state.is_full).then(|| {
            collected.extend(&sealed);
            sealed
        })
    }

    fn discard(&self, place: &(String, String), copied: &BTreeSet<u64>) {
        let mut state = self.0.state();
        let sealed = state.sealed.entry(place.clone()).or_default();
        sealed.retain(|index| !copied.contains(index));
    }
}

impl Distribution for SimNodes {
    fn nodes(&self) -> Vec<String> {
        self.0.nodes.clone()
    }

    fn reaches(&self, node: &str) -> bool {
        self.0.nodes.iter().any(|own| own == node)
    }

    fn spool_directory(&self, job: &str) -> String {
        format!("/spool/{job}")
    }

    fn load(
        &self,
        order: &LoadOrder,
        report: &(dyn Fn(LoadEvent) + Sync),
        stop: &AtomicBool,
    ) -> Result<(), String> {
        self.0.state().loads += 1;
        let hash = format!("{:?} {}", order.sources, self.0.state().version);
        if order.set.as_ref().is_some_and(|set| *set != hash) {
            return Err("the data changed".into());
        }
        let data = hash.clone();
        report(LoadEvent::Data {
            hash: data,
            bytes: 7,
        });
        let begin = Instant::now();
        let mut left = order.nodes.clone();
        let mut reported = BTreeSet::new();
        while !left.is_empty() && !stop.load(SeqCst) {
            let is_silent = |node: &String| self.0.state().silent.contains(node);
            for node in left.iter().filter(|node| is_silent(node)) {
                // A cast waits for the node.
                if reported.insert(node.clone()) {
                    report(LoadEvent::Unreachable {
                        node: node.clone(),
                        cause: "connection refused".into(),
                    });
                }
            }
            let is_due = |node: &String| {
                let state = self.0.state();
                if state.silent.contains(node) {
                    return false;
                }
                let delay = state.delays.get(node).copied().unwrap_or_default();
                begin.elapsed() >= delay
            };
            let (due, rest): (Vec<String>, Vec<String>) = left.into_iter().partition(is_due);
            for node in due {
                let added = self.0.call(|| {
                    let mut state = self.0.state();
                    let jobs = state.references.entry(node.clone()).or_default();
                    jobs.insert(order.job.clone());
                    state.copies.insert(place(&node, &order.job), hash.clone());
                });
                report(match added {
                    Ok(()) => LoadEvent::Ready { node },
                    Err(error) => LoadEvent::Failed {
                        node,
                        cause: error.to_string(),
                    },
                });
            }
            left = rest;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn results_directory(&self, job: &str) -> String {
        format!("/outbox/{job}")
    }

    fn outboxes(&self, job: &str, nodes: &[String]) -> Vec<NodeAnswer<OutboxState>> {
        let ask = |node: &String| {
            let answer = self.0.call_node(node, || {
                let (state, place) = (self.0.state(), place(node, job));
                let outbox = state.outboxes.get(&place);
                let names = outbox.into_iter().flat_map(BTreeMap::keys);
                OutboxState {
                    names: names.map(|index| index.to_string().into_bytes()).collect(),
                    has_sealed: state
                        .sealed
                        .get(&place)
                        .is_some_and(|left| !left.is_empty()),
                }
            });
            NodeAnswer {
                node: node.clone(),
                answer: answer.map_err(|error| error.to_string()),
            }
        };
        nodes.iter().map(ask).collect()
    }

    fn collect(
        &self,
        order: &CollectOrder,
        guard: &dyn CollectGuard,
        stop: &AtomicBool,
    ) -> CollectOutcome {
        {
            let mut state = self.0.state();
            let now = state.collecting.0 + 1;
            state.collecting = (now, now.max(state.collecting.1));
        }
        while self.0.state().is_held_up && !stop.load(SeqCst) {
            std::thread::sleep(PAUSE);
        }
        let collected = match stop.load(SeqCst) {
            true => Err(gone().to_string()),
            false => self.collect_in_steps(order, guard),
        };
        self.0.state().collecting.0 -= 1;
        match collected {
            Ok(collected) => CollectOutcome {
                collected,
                fault: None,
            },
            Err(cause) => CollectOutcome::failed(cause),
        }
    }

    fn end_job(&self, job: &str, nodes: &[String]) -> Vec<NodeAnswer<()>> {
        let end = |node: &String| {
            let has_results = {
                let (state, place) = (self.0.state(), place(node, job));
                let outbox = state
                    .outboxes
                    .get(&place)
                    .is_some_and(|left| !left.is_empty());
                outbox
                    || state
                        .sealed
                        .get(&place)
                        .is_some_and(|left| !left.is_empty())
            };
            if has_results {
                return NodeAnswer {
                    node: node.clone(),
                    answer: Err("results are left".into()),
                };
            }
            let ended = self.0.call_node(node, || {
                let mut guard = self.0.state();
                let state = &mut *guard;
                let uses = |sim: &SimJob| {
                    let runs_here = sim.running.iter().any(|(running, _)| running == node);
                    job.ends_with(&sim.mark) && runs_here
                };
                if state.jobs.values().any(uses) {
                    state
                        .faults
                        .push(format!("{node}: the data of a task was removed"));
                }
                state
                    .references
                    .entry(node.clone())
                    .or_default()
                    .remove(job);
            });
            NodeAnswer {
                node: node.clone(),
                answer: ended.map_err(|error| error.to_string()),
            }
        };
        nodes.iter().map(end).collect()
    }

    fn jobs_on(&self, nodes: &[String], prefix: &str) -> Vec<NodeAnswer<Vec<String>>> {
        let ask = |node: &String| {
            if self.0.is_silent(node) {
                return NodeAnswer {
                    node: node.clone(),
                    answer: Err("connection refused".into()),
                };
            }
            let answer = self.0.call(|| {
                let state = self.0.state();
                let jobs = state.references.get(node).into_iter().flatten();
                jobs.filter(|job| job.starts_with(prefix))
                    .cloned()
                    .collect()
            });
            NodeAnswer {
                node: node.clone(),
                answer: answer.map_err(|error| error.to_string()),
            }
        };
        nodes.iter().map(ask).collect()
    }
}
