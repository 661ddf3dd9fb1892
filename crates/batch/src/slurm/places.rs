//! Nodes on which jobs may run, from one list of jobs and one list of nodes.
//!
//! Many jobs have the same wishes. The nodes are compared once for each kind of wish.

use super::features::Constraint;
use super::nodes::SinfoNode;
use super::queue::{JobPhase, SqueueJob};
use super::{has_ended, own_exclusions};
use crate::{BatchResult, JobCandidates, JobId};
use std::collections::HashMap;
use std::sync::Arc;

/// Wishes of a job for its nodes.
#[derive(PartialEq, Eq, Hash)]
struct PlaceWish<'a> {
    partitions: &'a str,
    constraint: &'a str,
    excluded: Vec<String>,
    /// The nodes of the job, if it names each of them.
    demanded: Option<&'a [String]>,
    has_reservation: bool,
}

impl<'a> PlaceWish<'a> {
    fn new(record: &'a SqueueJob) -> BatchResult<Self> {
        // Nodes that a job demands are all of its nodes, unless it wants more.
        let is_complete = record.node_count == record.demanded.len().to_string();
        Ok(PlaceWish {
            partitions: &record.partitions,
            constraint: &record.constraint,
            excluded: own_exclusions(record)?,
            demanded: is_complete.then_some(record.demanded.as_slice()),
            has_reservation: record.reservation.is_some(),
        })
    }

    fn nodes(&self, nodes: &[SinfoNode]) -> Vec<String> {
        let constraint = Constraint::new(self.constraint);
        let fits = |node: &&SinfoNode| {
            node.is_in(self.partitions)
                && node.is_usable
                && (!node.is_reserved || self.has_reservation)
                && !self.excluded.contains(&node.name)
                && self
                    .demanded
                    .is_none_or(|demanded| demanded.contains(&node.name))
                && constraint.allows(&node.available)
        };
        let fitting = nodes.iter().filter(fits);
        fitting.map(|node| node.name.clone()).collect()
    }
}

/// Returns the nodes for each job.
pub(super) fn candidates(
    jobs: &[JobId],
    records: &[SqueueJob],
    nodes: &[SinfoNode],
) -> JobCandidates {
    let mut of_job: HashMap<&JobId, &SqueueJob> = HashMap::new();
    for record in records.iter().filter(|one| one.phase != JobPhase::Ended) {
        let known = of_job.entry(&record.job).or_insert(record);
        // Tasks that wait tell the wishes of today.
        if record.phase == JobPhase::Pending && known.phase != JobPhase::Pending {
            *known = record;
        }
    }
    let mut of_wish: HashMap<PlaceWish<'_>, Vec<String>> = HashMap::new();
    let mut found = |job: &JobId| {
        let record = of_job.get(job).ok_or_else(|| has_ended(job))?;
        let wish = PlaceWish::new(record)?;
        if let Some(known) = of_wish.get(&wish) {
            return Ok(known.clone());
        }
        let fitting = wish.nodes(nodes);
        of_wish.insert(wish, fitting.clone());
        Ok(fitting)
    };
    let found = |job: &JobId| (job.clone(), found(job).map_err(Arc::new));
    jobs.iter().map(found).collect()
}
