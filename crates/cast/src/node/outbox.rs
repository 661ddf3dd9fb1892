//! Orders of a coordinator about the results of jobs, without a cast.

use crate::message::{NodeMessage, SEALS_PER_MESSAGE, SealAnswer, WireSeal, is_job_name};
use crate::node::jobs::{NO_NAME, failed, refused};
use driftless_store::{Error as StoreError, NodeStore, SealMove, SealOutcome, SealedPath};

/// Refusal of a message with too many results.
const TOO_MANY: &str = "too many results in one order";
/// Characters of a cause, of which an answer has up to [`SEALS_PER_MESSAGE`].
const CAUSE_CHARS_MAX: usize = 240;

/// Lists the outbox of a job, or its sealed results, and returns the answer.
pub(crate) fn list_results(
    job: &str,
    list: impl FnOnce() -> Result<Vec<Vec<u8>>, StoreError>,
) -> NodeMessage {
    if !is_job_name(job) {
        return refused(NO_NAME);
    }
    list().map_or_else(|error| failed(&error), NodeMessage::Results)
}

/// Lists sealed results of a job behind the name `after`, and returns the answer.
pub(crate) fn list_sealed(
    store: &NodeStore,
    job: &str,
    (below, after): (&[u8], &[u8]),
) -> NodeMessage {
    let below = match below {
        [] => None,
        path => match SealedPath::parse(path) {
            Ok(path) => Some(path),
            Err(cause) => return refused(cause),
        },
    };
    list_results(job, || store.sealed_names(job, below.as_ref(), after))
}

/// Seals entries of an outbox, and returns the answer.
pub(crate) fn seal(store: &NodeStore, job: &str, moves: &[WireSeal]) -> NodeMessage {
    if !is_job_name(job) || moves.len() > SEALS_PER_MESSAGE {
        return refused(if is_job_name(job) { TOO_MANY } else { NO_NAME });
    }
    let parsed: Vec<Result<SealMove, String>> = moves.iter().map(parse).collect();
    let valid: Vec<SealMove> = parsed.iter().flatten().cloned().collect();
    let outcomes = match store.seal(job, &valid) {
        Ok(outcomes) => outcomes,
        Err(error) => return failed(&error),
    };
    let mut outcomes = outcomes.into_iter();
    let answer = |parsed| match parsed {
        Err(cause) => SealAnswer::Refused(cause),
        Ok(_) => match outcomes.next() {
            Some(SealOutcome::Sealed) => SealAnswer::Sealed,
            Some(SealOutcome::Refused(cause)) => SealAnswer::Refused(short(&cause)),
            Some(SealOutcome::Missing) | None => SealAnswer::Missing,
        },
    };
    NodeMessage::Sealed(parsed.into_iter().map(answer).collect())
}

fn parse(one: &WireSeal) -> Result<SealMove, String> {
    let name = one.name.clone().try_into();
    Ok(SealMove {
        name: name.map_err(|_| "the name of the entry has a slash".to_owned())?,
        path: SealedPath::parse(&one.path)?,
    })
}

/// Removes sealed results, and returns the answer: what keeps each.
pub(crate) fn discard(store: &NodeStore, job: &str, paths: &[Vec<u8>]) -> NodeMessage {
    if !is_job_name(job) || paths.len() > SEALS_PER_MESSAGE {
        return refused(if is_job_name(job) { TOO_MANY } else { NO_NAME });
    }
    let one = |path: &Vec<u8>| match SealedPath::parse(path) {
        Ok(path) => {
            let discarded = store.discard_sealed(job, &path);
            discarded.err().map(|error| short(&error.to_string()))
        }
        Err(cause) => Some(cause.to_owned()),
    };
    NodeMessage::Discarded(paths.iter().map(one).collect())
}

fn short(text: &str) -> String {
    text.chars().take(CAUSE_CHARS_MAX).collect()
}
