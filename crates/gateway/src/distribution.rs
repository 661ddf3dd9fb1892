//! Distribution of data sets, as the gateway needs it. The command has one that casts; tests have
//! one in memory.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// A data set that nodes are to get for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadOrder {
    /// Name of the job on the nodes. The copies stay while the job refers to them.
    pub job: String,
    /// UID of the user whose rights read the sources, and who may read the copies.
    pub uid: u32,
    /// Absolute paths of the sources.
    pub sources: Vec<PathBuf>,
    /// Nodes that lack the data set, or the reference of the job.
    pub nodes: Vec<String>,
    /// Root hash of the data set that other nodes have already. All tasks of a job see the same data.
    pub set: Option<String>,
    /// Whether tasks of the job leave results on the nodes.
    pub has_results: bool,
    /// Fate of the copies after the job.
    pub keeping: CopyKeeping,
}

/// Fate of copies once no job refers to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyKeeping {
    /// The nodes remove them.
    #[default]
    Purge,
    /// The nodes keep them for later jobs, until an administrator purges them.
    Stay,
    /// The nodes keep them for this number of seconds after they were cast.
    Seconds(u64),
}

/// Event of a distribution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadEvent {
    /// The sources were read.
    Data {
        /// Root hash of the data set, 64 hexadecimal digits.
        hash: String,
        /// Bytes of content.
        bytes: u64,
    },
    /// A node has the data set, verified and durable, and the reference of the job.
    Ready {
        /// Node.
        node: String,
    },
    /// A node does not answer. The distribution goes on, and may reach it later.
    Unreachable {
        /// Node.
        node: String,
        /// Cause and remedy.
        cause: String,
    },
    /// A node does not get the data set.
    Failed {
        /// Node.
        node: String,
        /// Cause and remedy.
        cause: String,
    },
}

/// Results of tasks that a node holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutboxState {
    /// Names at the top of the outbox of a job.
    pub names: Vec<Vec<u8>>,
    /// Whether an earlier collection took entries from the outbox and did not end.
    pub has_sealed: bool,
}

/// Results that are to be collected from one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectOrder {
    /// Name of the job on the nodes.
    pub job: String,
    /// UID of the user to whom the results belong.
    pub uid: u32,
    /// Node.
    pub node: String,
    /// Absolute path of the directory that receives the results. Made if missing.
    pub base: Vec<u8>,
    /// Path of the directory above `base` that the user named without a placeholder, or `base`.
    pub fixed: Vec<u8>,
    /// Path below `base` of the directory with the results of this node; empty for `base`.
    pub holder: Vec<u8>,
    /// Entries at the top of the outbox.
    pub moves: Vec<CollectMove>,
    /// Whether an earlier collection took entries from the outbox and did not end.
    pub has_sealed: bool,
}

/// An entry of an outbox that is to be collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectMove {
    /// Name at the top of the outbox.
    pub name: Vec<u8>,
    /// Task that wrote the entry; `None` if the entry waits for the end of the job.
    pub task: Option<u64>,
    /// Path below the base of the order.
    pub path: Vec<u8>,
}

/// Questions of a collection to the gateway, at the moment of an act.
pub trait CollectGuard: Send + Sync {
    /// Returns for each entry whether its task ended, by an answer of the batch system to a question that
    /// was asked after this call.
    ///
    /// # Errors
    /// Cause and remedy: the batch system does not answer.
    fn have_ended(&self, moves: &[CollectMove]) -> Result<Vec<bool>, String>;

    /// Returns whether a task of these entries runs or waits again, by such an answer.
    ///
    /// # Errors
    /// The batch system does not answer.
    fn have_begun_again(&self, moves: &[CollectMove]) -> Result<bool, String>;

    /// Checks right before results are removed from a node that this gateway has the lease.
    ///
    /// # Errors
    /// Another gateway has it, or this is unknown.
    fn check_lease(&self) -> Result<(), String>;
}

/// Results that arrived and are durable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CollectedResults {
    /// Entries.
    pub entries: u64,
    /// Bytes of content.
    pub bytes: u64,
}

/// Outcome of a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectOutcome {
    /// Results that arrived.
    pub collected: CollectedResults,
    /// Cause and remedy, if something did not arrive. It stays on the node.
    pub fault: Option<String>,
}

impl CollectOutcome {
    /// Returns the outcome of a collection that brought nothing, for this cause.
    pub fn failed(cause: String) -> Self {
        CollectOutcome {
            fault: Some(cause),
            ..CollectOutcome::default()
        }
    }
}

/// Answer of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAnswer<T> {
    /// Node.
    pub node: String,
    /// Answer, or cause and remedy.
    pub answer: Result<T, String>,
}

/// Distribution of data sets to nodes.
pub trait Distribution: Send + Sync {
    /// Returns the nodes that the gateway knows by name, those without a job included.
    fn nodes(&self) -> Vec<String>;

    /// Returns whether the gateway has a way to a node.
    fn reaches(&self, node: &str) -> bool;

    /// Returns the path by which tasks of a job find the data set, the same on each node.
    fn spool_directory(&self, job: &str) -> String;

    /// Returns the path below which tasks of a job leave results, the same on each node.
    fn results_directory(&self, job: &str) -> String;

    /// Distributes a data set. Returns once each node has an outcome, or `stop` is set.
    ///
    /// # Errors
    /// Cause and remedy, if the distribution did not begin: the user cannot read a source, for
    /// example.
    fn load(
        &self,
        order: &LoadOrder,
        report: &(dyn Fn(LoadEvent) + Sync),
        stop: &AtomicBool,
    ) -> Result<(), String>;

    /// Ends the references of a job, and removes copies that nothing keeps any more. A node that has
    /// no reference answers with success.
    fn end_job(&self, job: &str, nodes: &[String]) -> Vec<NodeAnswer<()>>;

    /// Returns the names of jobs on nodes that begin with `prefix`.
    fn jobs_on(&self, nodes: &[String], prefix: &str) -> Vec<NodeAnswer<Vec<String>>>;

    /// Returns the results of a job that nodes hold.
    fn outboxes(&self, job: &str, nodes: &[String]) -> Vec<NodeAnswer<OutboxState>>;

    /// Collects results with the rights of the user, and removes them from the node once they are
    /// durable. Collects first what an earlier collection left. The outcome counts what arrived, also
    /// if something else did not.
    fn collect(
        &self,
        order: &CollectOrder,
        guard: &dyn CollectGuard,
        stop: &AtomicBool,
    ) -> CollectOutcome;
}
