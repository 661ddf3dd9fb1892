//! OpenPBS and PBS Professional, by the commands of version 23.06.
//!
//! A slot is a boolean resource of hosts. A node has the value `True` once the data set is there, and
//! a value that is not set is false. A job demands the slot in each chunk of its `select`.
//!
//! A job carries its mark in its list of variables. `qstat` prints a value as a number, a list or an
//! object if the value is one in JSON. Therefore the mark has a word before it.

mod arguments;
mod jobs;
mod json;
mod nodes;

pub(crate) use arguments::{script_fault, script_words};

use crate::command::CommandOutput;
use crate::{
    BatchError, BatchKind, BatchResult, BatchSystem, CommandSettings, DataSlot, FoundJob,
    HeldRequest, JobCandidates, JobId, JobMark, LiveJob, MarkedJob, Readiness, Submission,
};
use jobs::PbsJob;
use json::members;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Variable of a job with its mark.
const MARK: &str = "DRIFTLESS_MARK";
/// Word before the mark.
const MARK_BEGIN: &str = "driftless:";
/// Word behind the mark of a job that the user asked to hold.
const KEPT: &str = ":held";
/// Nodes of one command. 200 names of 64 bytes are far from the limit of a command line.
const NODES_MAX: usize = 200;
/// Texts of a qsub whose request may have reached the server (pbs_messages.c).
const LOST: [&str; 7] = [
    "Batch protocol error",
    "Communication failure",
    "Connection reset",
    "End of File",
    "Premature end of message",
    "server disconnected",
    "timed out",
];
const REMEDY: &str = "a manager of PBS must run `qmgr -c \"set server managers += USER@HOST\"` for the user of the gateway";

/// PBS.
#[derive(Debug, Clone, Default)]
pub struct Pbs {
    settings: CommandSettings,
}

impl Pbs {
    /// Returns the PBS that the commands of these settings reach.
    pub fn new(settings: CommandSettings) -> Self {
        Pbs { settings }
    }

    /// Runs a command that must succeed.
    fn run(&self, name: &str, args: &[&str]) -> BatchResult<CommandOutput> {
        let output = self.settings.run_lossy(name, args)?;
        match output.status.success() {
            true => Ok(output),
            false => Err(failure(&output)),
        }
    }

    fn jobs(&self, args: &[&str]) -> BatchResult<Vec<PbsJob>> {
        let all = [&["-f", "-F", "json"], args].concat();
        let output = self.run("qstat", &all)?;
        // Without jobs, the member is missing.
        jobs::records(&output, &members(&output, "Jobs")?.unwrap_or_default())
    }

    fn job(&self, job: &JobId) -> BatchResult<PbsJob> {
        let found = self.jobs(&[job.as_str()])?.into_iter();
        let mut found = found.filter(|record| record.id == job.as_str());
        found.next().ok_or_else(|| unknown_job(job))
    }

    /// Returns all virtual nodes.
    fn nodes(&self) -> BatchResult<Vec<nodes::VirtualNode>> {
        let output = self.run("pbsnodes", &["-a", "-v", "-F", "json"])?;
        let nodes = members(&output, "nodes")?;
        nodes::records(
            &output,
            &nodes.ok_or_else(|| unreadable(&output, "no nodes"))?,
        )
    }

    fn knows(&self, slot: &DataSlot) -> BatchResult<bool> {
        let output = self.run("qmgr", &["-c", "list resource"])?;
        let name =
            |line: &str| line.strip_prefix("Resource ").map(str::trim) == Some(slot.as_str());
        Ok(output.stdout.lines().any(name))
    }

    /// Makes exactly these hosts offer the slot. Hosts that PBS does not know are skipped.
    fn set_hosts(&self, slot: &DataSlot, ready: &BTreeSet<String>) -> BatchResult<()> {
        let nodes = self.nodes()?;
        let (added, removed) = nodes::changes(&nodes, slot, ready);
        self.change("set", &format!("resources_available.{slot}=True"), &added)?;
        self.change("unset", &format!("resources_available.{slot}"), &removed)
    }

    fn change(&self, operation: &str, attribute: &str, nodes: &[&str]) -> BatchResult<()> {
        for some in nodes.chunks(NODES_MAX) {
            let directive = format!("{operation} node {} {attribute}", some.join(","));
            self.run("qmgr", &["-c", &directive])?;
        }
        Ok(())
    }
}

impl BatchSystem for Pbs {
    fn kind(&self) -> BatchKind {
        BatchKind::Pbs
    }

    fn submission(&self, request: &HeldRequest<'_>) -> BatchResult<Submission> {
        arguments::submission(request)
    }

    fn submitted(&self, output: &str) -> BatchResult<JobId> {
        let line = output.lines().map(str::trim).rfind(|line| !line.is_empty());
        // 12.server, or 12[].server for an array.
        let job = line.filter(|line| line.contains('.')).and_then(JobId::new);
        job.ok_or_else(|| BatchError::Output {
            command: "qsub".to_owned(),
            line: line.unwrap_or_default().to_owned(),
        })
    }

    fn states_refusal(&self, stderr: &str) -> bool {
        let says = |part: &&str| stderr.contains(*part);
        stderr.contains("qsub: ") && !LOST.iter().any(says)
    }

    fn marked(&self) -> BatchResult<Vec<MarkedJob>> {
        let marked = |record: PbsJob| {
            Some(MarkedJob {
                job: JobId::new(&record.id)?,
                mark: record.mark()?,
                is_held: record.is_held(),
                owner: record.owner,
            })
        };
        Ok(self.jobs(&[])?.into_iter().filter_map(marked).collect())
    }

    fn alive(&self) -> BatchResult<HashMap<JobId, LiveJob>> {
        jobs::live(&self.jobs(&["-t"])?)
    }

    fn find(&self, job: &JobId) -> BatchResult<Option<FoundJob>> {
        let records = match self.jobs(&[job.as_str()]) {
            Err(error) if error.is_no_job() => return Ok(None),
            answer => answer?,
        };
        let record = records.iter().find(|record| record.id == job.as_str());
        let record = record.ok_or_else(|| BatchError::Output {
            command: format!("qstat -f {job}"),
            line: format!("no record of job {job}"),
        })?;
        Ok(Some(FoundJob {
            mark: record.mark(),
            owner: record.owner.clone(),
            is_alive: !record.has_ended(),
        }))
    }

    fn candidates(&self, jobs: &[JobId]) -> BatchResult<JobCandidates> {
        let records = match jobs {
            // qstat fails for a number that PBS does not know any more.
            [job] => match self.job(job) {
                Err(error) if error.is_no_job() => Vec::new(),
                found => vec![found?],
            },
            _ => self.jobs(&[])?,
        };
        let of_job: HashMap<&str, &PbsJob> =
            records.iter().map(|job| (job.id.as_str(), job)).collect();
        let nodes = self.nodes()?;
        let found = |job: &JobId| match of_job.get(job.as_str()) {
            Some(record) => Ok(nodes::candidates(&nodes, &record.queue, &record.select)),
            None => Err(Arc::new(unknown_job(job))),
        };
        Ok(jobs.iter().map(|job| (job.clone(), found(job))).collect())
    }

    fn declare(&self, slot: &DataSlot, _nodes: &[String]) -> BatchResult<()> {
        if self.knows(slot)? {
            return Ok(());
        }
        let directive = format!("create resource {slot} type=boolean,flag=h");
        self.run("qmgr", &["-c", &directive]).map(drop)
    }

    fn require(&self, job: &JobId, readiness: &Readiness<'_>) -> BatchResult<()> {
        let slot = needed(readiness)?;
        let record = self.job(job)?;
        match jobs::demanding(&record.select, slot) {
            None => Ok(()),
            Some(select) => {
                let select = format!("select={select}");
                self.run("qalter", &["-l", &select, job.as_str()]).map(drop)
            }
        }
    }

    fn tell_ready(&self, readiness: &Readiness<'_>, _jobs: &[JobId]) -> BatchResult<()> {
        self.set_hosts(needed(readiness)?, readiness.ready)
    }

    fn release(&self, job: &JobId) -> BatchResult<()> {
        let record = self.job(job)?;
        if !record.is_held() || record.is_kept() {
            return Ok(());
        }
        self.run("qrls", &["-h", "u", job.as_str()]).map(drop)
    }

    fn undeclare(&self, slot: &DataSlot) -> BatchResult<()> {
        self.set_hosts(slot, &BTreeSet::new())
    }
}

fn unknown_job(job: &JobId) -> BatchError {
    BatchError::NoJob {
        command: format!("qstat -f {job}"),
        text: format!("qstat does not know job {job}"),
    }
}

fn needed<'a>(readiness: &Readiness<'a>) -> BatchResult<&'a DataSlot> {
    readiness.slot.ok_or_else(|| BatchError::Rights {
        command: "qmgr".to_owned(),
        text: "jobs of PBS can wait for nodes only by a resource".to_owned(),
        remedy: REMEDY,
    })
}

fn unreadable(output: &CommandOutput, line: &str) -> BatchError {
    BatchError::Output {
        command: output.command.clone(),
        line: line.to_owned(),
    }
}

/// Returns the error of a command that failed, by the texts of OpenPBS 23.06 (pbs_messages.c).
fn failure(output: &CommandOutput) -> BatchError {
    let command = output.command.clone();
    let text = match output.stderr.trim() {
        "" => output.status.to_string(),
        text => text.to_owned(),
    };
    let says = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    // A server that refuses a user says so in the same line: errno=15007.
    if says(&[
        "Unauthorized Request",
        "No Permission",
        "errno=15007",
        "insufficient permission",
    ]) {
        return BatchError::Rights {
            command,
            text,
            remedy: REMEDY,
        };
    }
    if says(&["Unknown Job Id", "Job has finished"]) {
        return BatchError::NoJob { command, text };
    }
    let passing = [
        "cannot connect to server",
        "Connection refused",
        "server disconnected",
        "No free connections",
        "Server shutting down",
        "Batch protocol error",
        "Communication failure",
    ];
    if says(&passing) {
        return BatchError::Unavailable { command, text };
    }
    BatchError::Refused { command, text }
}

/// Returns the mark of a variable, and whether the user asked for a hold.
fn read_mark(text: &str) -> Option<(JobMark, bool)> {
    let text = text.strip_prefix(MARK_BEGIN)?;
    match text.strip_suffix(KEPT) {
        Some(mark) => Some((JobMark::new(mark)?, true)),
        None => Some((JobMark::new(text)?, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_answers_are_no_refusals() {
        let system = Pbs::new(CommandSettings::default());
        for (text, is_refusal) in [
            ("qsub: Unknown queue\n", true),
            (
                "Connection refused\nqsub: cannot connect to server head (errno=111)\n",
                true,
            ),
            ("qsub: Batch protocol error\n", false),
            ("qsub: End of File\n", false),
            ("", false),
            ("wrapper: cannot write the log\n", false),
        ] {
            assert_eq!(system.states_refusal(text), is_refusal, "{text}");
        }
    }
}
