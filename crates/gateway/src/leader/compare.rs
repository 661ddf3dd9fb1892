//! References of jobs on nodes, compared with the table: a node may have lost its copies, and a crash
//! may have left a reference that no job needs.

use super::state::GatewayLeader;
use crate::distribution::NodeAnswer;
use crate::plan::PlannedJob;
use driftless_state::jobs::{JobNodeRow, JobNodeState, JobStage};
use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

/// Interval of the comparison.
const INTERVAL: Duration = Duration::from_secs(60);

impl GatewayLeader<'_> {
    /// Asks the nodes for their references if it is time.
    pub(super) fn check_references(&mut self) {
        let is_early = self
            .references
            .asked
            .is_some_and(|at| at.elapsed() < INTERVAL);
        if is_early || self.references.is_at_work {
            return;
        }
        self.references.asked = Some(Instant::now());
        let mut nodes: BTreeSet<String> = self.parts.distribution.nodes().into_iter().collect();
        self.references.ready.clear();
        for job in &self.jobs {
            nodes.extend(job.nodes.iter().map(|row| row.node.clone()));
            if job.row.stage >= JobStage::Ended {
                continue;
            }
            // A node states that it is ready once it has the reference, also while others load.
            for node in job.nodes_in(JobNodeState::Ready) {
                let known = (self.parts.job_name(&job.row.mark), node);
                self.references.ready.insert(known);
            }
        }
        let marks = self.jobs.iter().map(|job| job.row.mark.as_str());
        self.references.open = marks.map(|mark| self.parts.job_name(mark)).collect();
        let reached = |node: &String| self.parts.distribution.reaches(node);
        let nodes: Vec<String> = nodes.into_iter().filter(reached).collect();
        if !nodes.is_empty() {
            let (prefix, distribution) = (self.parts.prefix(), &self.parts.distribution);
            self.references.is_at_work = self.works.ask_references(nodes, prefix, distribution);
        }
    }

    /// Compares the answers with the table.
    pub(super) fn note_references(&mut self, answers: Vec<NodeAnswer<Vec<String>>>) {
        self.references.is_at_work = false;
        self.note_signs(&answers);
        for answer in answers {
            // A node that does not answer keeps what it has.
            let Ok(names) = answer.answer else {
                continue;
            };
            let names: HashSet<String> = names.into_iter().collect();
            self.note_lost(&answer.node, &names);
            self.drop_forgotten(answer.node, names);
        }
    }

    /// Notes that a node lost the reference of a job: the next cast brings the data set again.
    fn note_lost(&mut self, node: &str, names: &HashSet<String>) {
        let is_lost = |job: &&PlannedJob| {
            let known = (self.parts.job_name(&job.row.mark), node.to_owned());
            self.references.ready.contains(&known)
                && !names.contains(&known.0)
                && job.row.stage < JobStage::Ended
        };
        let lost = self.jobs.iter().filter(is_lost);
        let lost: Vec<String> = lost.map(|job| job.row.mark.clone()).collect();
        for mark in lost {
            let number = self.shown(&mark);
            tracing::warn!("{node} lost the data of job {number}; the gateway sends it again");
            let row = JobNodeRow {
                node: node.to_owned(),
                state: JobNodeState::Wanted,
                fault: Some("the node lost the data set".into()),
            };
            self.note_nodes(&mark, vec![row]);
        }
    }

    /// Ends references of jobs that were not open when the nodes were asked, and are not now.
    fn drop_forgotten(&mut self, node: String, names: HashSet<String>) {
        let open: HashSet<String> = self
            .jobs
            .iter()
            .map(|job| self.parts.job_name(&job.row.mark))
            .collect();
        for name in names {
            if !self.references.open.contains(&name) && !open.contains(&name) {
                let distribution = &self.parts.distribution;
                self.works.drop_reference(name, node.clone(), distribution);
            }
        }
    }
}
