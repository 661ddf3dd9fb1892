//! Orders about the results of jobs at nodes, without a cast: list, seal, read through an agent, discard.

use crate::coordinator::asked::{ANSWER_MAX, AskedNode, OTHER_ANSWER};
use crate::message::{
    NodeMessage, NodeOrder, SEALS_PER_MESSAGE, SealAnswer, WireSeal, is_job_name, shown,
};
use crate::orders::{END_MAX, ask_all, fault_of, unreachable};
use crate::relay::{RelayEnds, carry};
use crate::{CastNode, Error, OrderFault, OrderSettings};
use driftless_pool::Pace;
use driftless_store::{OUTBOX_PAGE_NAMES, SealMove, SealOutcome, SealedPath};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;

/// Names of results that one list of a node has. Later lists have the others, once these are sealed.
const RESULTS_MAX: usize = 1 << 17;
/// Bytes of the longest name of an entry (limits.h, `NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;
/// Bytes of a path that is long, and the number of such paths in one message.
const LONG: (usize, usize) = (512, 256);
/// Refusal of a name.
const NO_NAME: &str = "name of the job: it is empty, too long or has control characters";

/// Results of a job at a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeResults {
    /// Node.
    pub node: String,
    /// Names of entries, ascending and at most 131,072, or why they are unknown.
    pub names: Result<Vec<Vec<u8>>, OrderFault>,
}

/// Outbox of a job at a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOutbox {
    /// Node.
    pub node: String,
    /// Names of entries as in [`NodeResults`], and whether any result is sealed; or why this is unknown.
    pub names: Result<(Vec<Vec<u8>>, bool), OrderFault>,
}

/// Reader of the sealed results of a job.
pub struct OutboxReader<'a> {
    /// Job.
    pub job: &'a str,
    /// A client of an agent is at the other end.
    pub stream: &'a UnixStream,
    /// Limit on the bytes that the client gets, which several readers may share.
    pub pace: Option<&'a Pace>,
}

/// End of an agent at a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRelay {
    /// Exit code; `None` if a signal ended the agent.
    pub code: Option<i32>,
    /// Last words on its standard error.
    pub detail: String,
}

/// Returns the names at the top of the outboxes of a job, in the order of `nodes`. A node without an
/// outbox has none.
///
/// # Errors
/// Fails if the settings contradict each other, or the kernel refuses a thread. A node that cannot be
/// reached is no error.
pub fn list_outbox(
    settings: &OrderSettings,
    nodes: &[CastNode],
    job: &str,
    stop: &AtomicBool,
) -> Result<Vec<NodeResults>, Error> {
    list(settings, nodes, stop, &|after| outbox_after(job, after))
}

/// Returns the names at the top of the sealed results of a job, as [`list_outbox`]. Each is a result, or a
/// directory with results.
///
/// # Errors
/// As [`list_outbox`].
pub fn list_sealed(
    settings: &OrderSettings,
    nodes: &[CastNode],
    job: &str,
    stop: &AtomicBool,
) -> Result<Vec<NodeResults>, Error> {
    list(settings, nodes, stop, &|after| {
        sealed_after(job, b"", after)
    })
}

/// Returns the outboxes of a job and whether results are sealed, as [`list_outbox`], over one
/// connection to each node.
///
/// # Errors
/// As [`list_outbox`].
pub fn list_outboxes(
    settings: &OrderSettings,
    nodes: &[CastNode],
    job: &str,
    stop: &AtomicBool,
) -> Result<Vec<NodeOutbox>, Error> {
    let answers = ask_all(settings, nodes, stop, &|node| {
        let names = names_of(node, &|after| outbox_after(job, after))?;
        let order = sealed_after(job, b"", Vec::new());
        match node.ask(&order, END_MAX).map_err(unreachable)? {
            NodeMessage::Results(sealed) => Ok((names, !sealed.is_empty())),
            other => Err(fault_of(other)),
        }
    })?;
    let named = nodes.iter().zip(answers).map(|(node, names)| NodeOutbox {
        node: node.name.clone(),
        names,
    });
    Ok(named.collect())
}

fn outbox_after(job: &str, after: Vec<u8>) -> NodeOrder {
    NodeOrder::ListOutbox {
        job: job.into(),
        after,
    }
}

fn sealed_after(job: &str, below: &[u8], after: Vec<u8>) -> NodeOrder {
    NodeOrder::ListSealed {
        job: job.into(),
        below: below.to_vec(),
        after,
    }
}

fn list(
    settings: &OrderSettings,
    nodes: &[CastNode],
    stop: &AtomicBool,
    order: &(dyn Fn(Vec<u8>) -> NodeOrder + Sync),
) -> Result<Vec<NodeResults>, Error> {
    let answers = ask_all(settings, nodes, stop, &|node| names_of(node, order))?;
    let named = nodes.iter().zip(answers).map(|(node, names)| NodeResults {
        node: node.name.clone(),
        names,
    });
    Ok(named.collect())
}

/// Fetches names of a node, some at a time.
fn names_of(
    node: &mut AskedNode<'_>,
    order: &dyn Fn(Vec<u8>) -> NodeOrder,
) -> Result<Vec<Vec<u8>>, OrderFault> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    while all.len() < RESULTS_MAX {
        let mut before = all.last().cloned().unwrap_or_default();
        let names = match node.ask(&order(before.clone()), END_MAX) {
            Ok(NodeMessage::Results(names)) => names,
            Ok(other) => return Err(fault_of(other)),
            Err(cause) => return Err(unreachable(cause)),
        };
        let is_ascending = names.iter().all(|name| {
            let is_later = name.len() <= NAME_BYTES_MAX && *name > before;
            before.clone_from(name);
            is_later
        });
        if !is_ascending || names.len() > OUTBOX_PAGE_NAMES {
            return Err(OrderFault::Failed(OTHER_ANSWER.into()));
        }
        if names.is_empty() {
            break;
        }
        all.extend(names);
    }
    Ok(all)
}

/// Seals entries of the outbox of a job at a node: they get paths at which the user's tasks do not write.
/// Returns an outcome for each. An order may be repeated.
///
/// # Errors
/// The node cannot be reached, or cannot open the outbox. Some entries may be sealed.
pub fn seal_outbox(
    settings: &OrderSettings,
    node: &CastNode,
    (job, moves): (&str, &[SealMove]),
    stop: &AtomicBool,
) -> Result<Vec<SealOutcome>, OrderFault> {
    ask_one(settings, node, (job, stop), &|asked| {
        seal_all(asked, job, moves)
    })
}

/// Returns names of the sealed results of a job at one node: those at the top, or in the directory
/// `below`. An entry that is no directory fails.
///
/// # Errors
/// The node cannot be reached, or cannot read the directory.
pub fn sealed_names(
    settings: &OrderSettings,
    node: &CastNode,
    (job, below): (&str, Option<&SealedPath>),
    stop: &AtomicBool,
) -> Result<Vec<Vec<u8>>, OrderFault> {
    let below = below.map_or(&b""[..], SealedPath::as_bytes);
    ask_one(settings, node, (job, stop), &|asked| {
        names_of(asked, &|after| sealed_after(job, below, after))
    })
}

fn seal_all(
    asked: &mut AskedNode<'_>,
    job: &str,
    moves: &[SealMove],
) -> Result<Vec<SealOutcome>, OrderFault> {
    let wire = |one: &SealMove| WireSeal {
        name: one.name.as_bytes().to_vec(),
        path: one.path.as_bytes().to_vec(),
    };
    let mut outcomes = Vec::new();
    for some in moves.chunks(at_once(moves.iter().map(|one| &one.path))) {
        let order = NodeOrder::Seal {
            job: job.into(),
            moves: some.iter().map(wire).collect(),
        };
        match asked.ask(&order, END_MAX).map_err(unreachable)? {
            NodeMessage::Sealed(answers) if answers.len() == some.len() => {
                outcomes.extend(answers.into_iter().map(outcome));
            }
            other => return Err(fault_of(other)),
        }
    }
    Ok(outcomes)
}

/// Returns how many results [`seal_outbox`] seals in one step, if none of their paths has more bytes:
/// no other process sees some of them sealed and some not.
pub fn sealed_at_once(path_bytes_max: usize) -> usize {
    match path_bytes_max > LONG.0 {
        true => LONG.1,
        false => SEALS_PER_MESSAGE,
    }
}

fn at_once<'a>(paths: impl Iterator<Item = &'a SealedPath>) -> usize {
    let longest = paths.map(|path| path.as_bytes().len()).max();
    sealed_at_once(longest.unwrap_or(0))
}

fn outcome(answer: SealAnswer) -> SealOutcome {
    match answer {
        SealAnswer::Sealed => SealOutcome::Sealed,
        SealAnswer::Missing => SealOutcome::Missing,
        SealAnswer::Refused(cause) => SealOutcome::Refused(shown(&cause)),
    }
}

/// Removes sealed results at a node. The caller has durable copies of them. Returns for each what keeps
/// it; `None` if nothing does. An order may be repeated.
///
/// # Errors
/// The node cannot be reached. Some results may be removed.
pub fn discard_outbox(
    settings: &OrderSettings,
    node: &CastNode,
    (job, paths): (&str, &[SealedPath]),
    stop: &AtomicBool,
) -> Result<Vec<Option<String>>, OrderFault> {
    ask_one(settings, node, (job, stop), &|asked| {
        let mut outcomes = Vec::new();
        for some in paths.chunks(at_once(paths.iter())) {
            let order = NodeOrder::DiscardSealed {
                job: job.into(),
                paths: some.iter().map(|path| path.as_bytes().to_vec()).collect(),
            };
            match asked.ask(&order, END_MAX).map_err(unreachable)? {
                NodeMessage::Discarded(causes) if causes.len() == some.len() => {
                    let shown = |cause: Option<String>| cause.map(|cause| shown(&cause));
                    outcomes.extend(causes.into_iter().map(shown));
                }
                other => return Err(fault_of(other)),
            }
        }
        Ok(outcomes)
    })
}

/// Starts an agent at a node that reads the sealed results of a job with the rights of its user, and
/// carries bytes between the agent and a client until the agent ends. The end of the client's bytes ends
/// the agent. Closes the stream.
///
/// # Errors
/// The node cannot be reached, has no sealed results of the job, or cannot start the agent.
pub fn relay_outbox(
    settings: &OrderSettings,
    node: &CastNode,
    reader: &OutboxReader<'_>,
    stop: &AtomicBool,
) -> Result<EndedRelay, OrderFault> {
    ask_one(settings, node, (reader.job, stop), &|asked| {
        let job = reader.job.to_owned();
        let order = NodeOrder::RelayOutbox { job };
        match asked.ask(&order, ANSWER_MAX).map_err(unreachable)? {
            NodeMessage::Relaying => {}
            other => return Err(fault_of(other)),
        }
        let ends = RelayEnds {
            stream: reader.stream,
            pace: reader.pace,
            stop,
        };
        match carry(asked, &ends)? {
            NodeMessage::RelayEnded { code, detail } => Ok(EndedRelay {
                code,
                detail: shown(&detail),
            }),
            other => Err(fault_of(other)),
        }
    })
}

/// Connects to a node, and asks it.
fn ask_one<T: Send>(
    settings: &OrderSettings,
    node: &CastNode,
    (job, stop): (&str, &AtomicBool),
    ask: &(dyn Fn(&mut AskedNode<'_>) -> Result<T, OrderFault> + Sync),
) -> Result<T, OrderFault> {
    if !is_job_name(job) {
        return Err(OrderFault::Failed(NO_NAME.into()));
    }
    let answers = ask_all(settings, std::slice::from_ref(node), stop, ask);
    let answers = answers.map_err(|error| OrderFault::Failed(error.to_string()))?;
    let unasked = || Err(unreachable("the node was not asked".into()));
    answers.into_iter().next().unwrap_or_else(unasked)
}
