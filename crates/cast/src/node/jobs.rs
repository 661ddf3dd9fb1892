//! Orders of a coordinator about jobs, without a cast.

use crate::error::at_node;
use crate::message::{
    COPIES_PER_MESSAGE, JOBS_PER_MESSAGE, JobEndMessage, NodeMessage, is_job_name, is_job_prefix,
    shown,
};
use crate::report::StayingCopyInfo;
use driftless_store::{Error as StoreError, NodeStore, StayingCopy};

/// Refusal of a name.
pub(crate) const NO_NAME: &str = "name of the job: it is empty, too long or has control characters";

/// Ends a job, and returns the answer.
pub(crate) fn end_job(store: &NodeStore, job: &str) -> NodeMessage {
    if !is_job_name(job) {
        return refused(NO_NAME);
    }
    match store.finish_job(job) {
        Ok(end) => {
            let (copies, bytes) = (end.copies, end.bytes);
            tracing::info!(
                "job {} has ended: {copies} copies removed, {bytes} bytes",
                shown(job)
            );
            NodeMessage::JobEnded(JobEndMessage {
                copies,
                bytes,
                entries_kept: end.entries_kept,
                kept: bounded(end.kept),
                staying: bounded(end.staying),
            })
        }
        Err(error) => failed(&error),
    }
}

/// Lists jobs, and returns the answer.
pub(crate) fn list_jobs(store: &NodeStore, prefix: &str, after: &str) -> NodeMessage {
    if !is_job_prefix(prefix) || !is_job_prefix(after) {
        return refused(NO_NAME);
    }
    match store.jobs(prefix, after, JOBS_PER_MESSAGE) {
        Ok(names) => NodeMessage::Jobs(names),
        Err(error) => failed(&error),
    }
}

fn bounded(copies: Vec<StayingCopy>) -> Vec<StayingCopyInfo> {
    let copies = copies.into_iter().take(COPIES_PER_MESSAGE);
    let short = copies.map(|copy| StayingCopy {
        cause: copy.cause.chars().take(1000).collect(),
        ..copy
    });
    short.map(StayingCopyInfo::from).collect()
}

pub(crate) fn refused(reason: &str) -> NodeMessage {
    NodeMessage::OrderFailed {
        reason: reason.into(),
        is_busy: false,
    }
}

pub(crate) fn failed(error: &StoreError) -> NodeMessage {
    NodeMessage::OrderFailed {
        reason: at_node(error),
        is_busy: error.is_busy(),
    }
}
