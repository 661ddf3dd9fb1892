//! Orders to many nodes without a cast: the end of a job, and the names of jobs.
//!
//! Every host that a daemon trusts may end every job there: the index of a node does not record which
//! host began a job. Hosts that share nodes give their jobs names with different prefixes.

use crate::coordinator::asked::{ANSWER_MAX, AskedNode, OTHER_ANSWER};
use crate::coordinator::endpoint_with;
use crate::coordinator::launch::Launcher;
use crate::message::{JOBS_PER_MESSAGE, JobEndMessage, NodeMessage, NodeOrder, shown};
use crate::message::{is_job_name, is_job_prefix};
use crate::report::StayingCopyInfo;
use crate::{CastNode, Error, SshStart, TlsIdentity, TransferSettings};
use driftless_lock::Mutex;
use driftless_planner::NodeId;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Time for an order that removes or renames entries.
pub(crate) const END_MAX: Duration = Duration::from_secs(600);
/// Names of jobs that a node may return in all.
const JOBS_MAX: usize = 1 << 20;
/// Stack of a thread that asks nodes, in bytes.
const STACK_BYTES: usize = 512 << 10;

/// Ways to nodes for orders without a cast.
#[derive(Clone)]
pub struct OrderSettings {
    /// Start of nodes through ssh.
    pub ssh: Option<SshStart>,
    /// Key pair for daemons, as in [`CastSettings`](crate::CastSettings).
    pub identity: Option<TlsIdentity>,
    /// Certificates in PEM of the site's authority.
    pub authority_pem: Option<Vec<u8>>,
    /// Limits of the data plane.
    pub transfer: TransferSettings,
    /// Nodes that are asked at the same time.
    pub parallel_max: usize,
}

impl OrderSettings {
    /// Nodes that are asked at the same time, unless the caller says otherwise.
    pub const PARALLEL: usize = 32;
}

/// Cause for which an order to a node failed. Each text has a remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "lowercase", tag = "kind", content = "cause")]
pub enum OrderFault {
    /// The node cannot be reached, or the connection failed. A later attempt may succeed.
    #[error("{0}")]
    Unreachable(String),
    /// Another process of the node holds the index. A later attempt may succeed.
    #[error("{0}")]
    Busy(String),
    /// The node cannot carry out the order.
    #[error("{0}")]
    Failed(String),
}

/// Outcome of the end of a job at a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct EndedJob {
    /// Node.
    pub node: String,
    /// Copies that were removed.
    pub copies: u64,
    /// Bytes of content that were removed.
    pub bytes: u64,
    /// Entries that stay in the place of these copies, because driftless did not place them.
    pub entries_kept: u64,
    /// Copies that another job, a pin or a lifetime keeps. The reference of the job has ended.
    pub kept: Vec<StayingCopyInfo>,
    /// Copies that could not be removed. The reference of the job stays.
    pub staying: Vec<StayingCopyInfo>,
    /// Cause for which the job may still have references at this node.
    pub fault: Option<OrderFault>,
}

impl EndedJob {
    /// Returns whether the job has no reference any more at this node.
    pub fn is_ended(&self) -> bool {
        self.fault.is_none() && self.staying.is_empty()
    }

    /// Returns whether other processes at work are the only cause for which the job has references.
    /// A later attempt may succeed.
    pub fn is_busy(&self) -> bool {
        match &self.fault {
            Some(fault) => matches!(fault, OrderFault::Busy(_)),
            None => !self.staying.is_empty() && self.staying.iter().all(|copy| copy.is_busy),
        }
    }
}

/// Names of jobs at a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeJobs {
    /// Node.
    pub node: String,
    /// Names, ascending, or why they are unknown.
    pub jobs: Result<Vec<String>, OrderFault>,
}

/// Ends a job at nodes, many at a time: removes the references of the job, and copies that no other
/// job, no pin and no lifetime keeps. Returns the outcome of each node, in the order of `nodes`. A job
/// that a node does not know has ended there.
///
/// # Errors
/// Fails if the settings contradict each other, or the kernel refuses a thread. A node that cannot be
/// reached is no error.
pub fn end_job(
    settings: &OrderSettings,
    nodes: &[CastNode],
    job: &str,
    stop: &AtomicBool,
) -> Result<Vec<EndedJob>, Error> {
    if !is_job_name(job) {
        return Err(Error::Settings(
            "name of the job: it is empty, too long or has control characters; choose another one",
        ));
    }
    let order = NodeOrder::EndJob { job: job.into() };
    let answers = ask_all(settings, nodes, stop, &|node| match node
        .ask(&order, END_MAX)
        .map_err(unreachable)?
    {
        NodeMessage::JobEnded(end) => Ok(end),
        other => Err(fault_of(other)),
    })?;
    let outcome = |(node, answer): (&CastNode, Result<JobEndMessage, OrderFault>)| match answer {
        Ok(end) => EndedJob {
            node: node.name.clone(),
            copies: end.copies,
            bytes: end.bytes,
            entries_kept: end.entries_kept,
            kept: readable(end.kept),
            staying: readable(end.staying),
            fault: None,
        },
        Err(fault) => EndedJob {
            node: node.name.clone(),
            fault: Some(fault),
            ..EndedJob::default()
        },
    };
    Ok(nodes.iter().zip(answers).map(outcome).collect())
}

/// Returns the names of jobs with copies at nodes that begin with `prefix`, in the order of `nodes`.
///
/// # Errors
/// Fails if the settings contradict each other, or the kernel refuses a thread. A node that cannot be
/// reached is no error.
pub fn list_jobs(
    settings: &OrderSettings,
    nodes: &[CastNode],
    prefix: &str,
    stop: &AtomicBool,
) -> Result<Vec<NodeJobs>, Error> {
    if !is_job_prefix(prefix) {
        return Err(Error::Settings(
            "begin of the names of jobs: it is too long or has control characters; choose another one",
        ));
    }
    let answers = ask_all(settings, nodes, stop, &|node| jobs_of(node, prefix))?;
    let named = nodes.iter().zip(answers).map(|(node, jobs)| NodeJobs {
        node: node.name.clone(),
        jobs,
    });
    Ok(named.collect())
}

/// Fetches the names of jobs of a node, some at a time.
fn jobs_of(node: &mut AskedNode<'_>, prefix: &str) -> Result<Vec<String>, OrderFault> {
    let (mut all, mut after): (Vec<String>, String) = (Vec::new(), String::new());
    loop {
        let (prefix, after_name) = (prefix.to_owned(), after.clone());
        let order = NodeOrder::ListJobs {
            prefix: prefix.clone(),
            after: after_name,
        };
        let names = match node.ask(&order, ANSWER_MAX).map_err(unreachable)? {
            NodeMessage::Jobs(names) => names,
            other => return Err(fault_of(other)),
        };
        let is_bounded = names.len() <= JOBS_PER_MESSAGE
            && names.len().saturating_add(all.len()) <= JOBS_MAX
            && names.iter().all(|name| name.starts_with(&prefix));
        let mut before = &after;
        let is_ascending = names
            .iter()
            .all(|name| is_job_name(name) && name > std::mem::replace(&mut before, name));
        if !is_bounded || !is_ascending {
            return Err(OrderFault::Failed(OTHER_ANSWER.into()));
        }
        let Some(last) = names.last() else {
            return Ok(all);
        };
        after = last.clone();
        all.extend(names);
    }
}

pub(crate) fn unreachable(cause: String) -> OrderFault {
    OrderFault::Unreachable(cause)
}

/// Returns the fault of an answer that is no result.
pub(crate) fn fault_of(answer: NodeMessage) -> OrderFault {
    match answer {
        NodeMessage::OrderFailed {
            reason,
            is_busy: true,
        } => OrderFault::Busy(shown(&reason)),
        NodeMessage::OrderFailed { reason, .. } => OrderFault::Failed(shown(&reason)),
        _ => OrderFault::Failed(OTHER_ANSWER.into()),
    }
}

fn readable(copies: Vec<StayingCopyInfo>) -> Vec<StayingCopyInfo> {
    let copies = copies.into_iter().map(|copy| StayingCopyInfo {
        reason: shown(&copy.reason),
        ..copy
    });
    copies.collect()
}

/// Connects to nodes, some at a time, and asks each of them. Returns the answers in the order of the
/// nodes.
pub(crate) fn ask_all<T: Send>(
    settings: &OrderSettings,
    nodes: &[CastNode],
    stop: &AtomicBool,
    ask: &(dyn Fn(&mut AskedNode<'_>) -> Result<T, OrderFault> + Sync),
) -> Result<Vec<Result<T, OrderFault>>, Error> {
    let authority = settings.authority_pem.as_deref();
    let (endpoint, trust) =
        endpoint_with(settings.identity.as_ref(), authority, &settings.transfer)?;
    let programs = Mutex::new(HashMap::new());
    let is_stopped = || stop.load(Relaxed);
    let launcher = Launcher {
        endpoint: &endpoint,
        trust: &trust,
        has_authority: authority.is_some(),
        ssh: settings.ssh.as_ref(),
        programs: &programs,
        is_stopped: &is_stopped,
    };
    let ask_one = |node: &CastNode| {
        if is_stopped() {
            return Err(OrderFault::Unreachable("stopped".into()));
        }
        let reached = launcher.reach(node);
        let reached = reached.map_err(|fault| OrderFault::Unreachable(fault.cause))?;
        ask(&mut AskedNode::new(NodeId(1), reached, &is_stopped))
    };
    let answers: Vec<Mutex<Option<Result<T, OrderFault>>>> =
        nodes.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let work = || loop {
        let at = next.fetch_add(1, Relaxed);
        let (Some(node), Some(answer)) = (nodes.get(at), answers.get(at)) else {
            return;
        };
        let answered = ask_one(node);
        *answer.lock() = Some(answered);
    };
    std::thread::scope(|scope| {
        for _ in 0..settings.parallel_max.clamp(1, nodes.len().max(1)) {
            let thread = std::thread::Builder::new().name("order".into());
            let thread = thread.stack_size(STACK_BYTES);
            thread.spawn_scoped(scope, work).map_err(Error::Thread)?;
        }
        Ok::<(), Error>(())
    })?;
    let unasked = || Err(OrderFault::Unreachable("the node was not asked".into()));
    let answers = answers.into_iter().map(Mutex::into_inner);
    Ok(answers
        .map(|answer| answer.unwrap_or_else(unasked))
        .collect())
}
