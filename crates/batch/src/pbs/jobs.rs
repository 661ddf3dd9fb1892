//! Jobs as `qstat -f -F json` prints them.

use super::{MARK, read_mark, unreadable};
use crate::command::CommandOutput;
use crate::{BatchResult, DataSlot, JobId, JobMark, LiveJob, LiveTask, TaskRanges};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// A job, an array, or a task of an array.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PbsJob {
    pub id: String,
    pub owner: String,
    pub queue: String,
    pub select: String,
    state: String,
    holds: String,
    mark: String,
    comment: Option<String>,
    hosts: Vec<String>,
    /// Waiting tasks of an array.
    queued: Option<u64>,
    /// Their indices, if the server states them.
    waiting: Option<TaskRanges>,
    /// Array and index of a task.
    task: Option<(String, u64)>,
}

impl PbsJob {
    pub fn mark(&self) -> Option<JobMark> {
        read_mark(&self.mark).map(|(mark, _)| mark)
    }

    /// Returns whether the user asked for a hold.
    pub fn is_kept(&self) -> bool {
        read_mark(&self.mark).is_some_and(|(_, is_kept)| is_kept)
    }

    /// Returns whether a user holds the job. An `o` or `s` is the hold of an operator or manager.
    pub fn is_held(&self) -> bool {
        self.holds.contains('u')
    }

    /// Running, exiting, suspended by the scheduler or the user of a workstation, moving (qstat(1)).
    fn is_running(&self) -> bool {
        ["R", "E", "S", "U"].contains(&self.state.as_str())
    }

    /// Queued, held, waiting for its time, in transit.
    fn is_pending(&self) -> bool {
        ["Q", "H", "W", "T"].contains(&self.state.as_str())
    }

    /// Finished, moved to another server, expired as a task of an array.
    pub fn has_ended(&self) -> bool {
        ["F", "M", "X"].contains(&self.state.as_str())
    }
}

/// Reads the member `Jobs`.
pub(super) fn records(
    output: &CommandOutput,
    jobs: &Map<String, Value>,
) -> BatchResult<Vec<PbsJob>> {
    let read = |(id, job): (&String, &Value)| {
        let record = record(id, job);
        record.ok_or_else(|| unreadable(output, &format!("\"{id}\": {job}")))
    };
    let records: Vec<PbsJob> = jobs.iter().map(read).collect::<BatchResult<_>>()?;
    let known = |record: &PbsJob| {
        record.is_running() || record.is_pending() || record.has_ended() || record.state == "B"
    };
    match records.iter().find(|record| !known(record)) {
        Some(other) => Err(unreadable(output, &format!("job_state {}", other.state))),
        None => Ok(records),
    }
}

fn record(id: &str, job: &Value) -> Option<PbsJob> {
    let text = |name: &str| job.get(name).and_then(Value::as_str);
    let resources = job.get("Resource_List");
    let select = resources.and_then(|list| list.get("select"));
    let task = match text("array_id") {
        Some(array) => Some((array.to_owned(), job.get("array_index").and_then(number)?)),
        None => None,
    };
    let queued = match text("array_state_count") {
        Some(counts) => Some(queued(counts)?),
        None => None,
    };
    // A single index is a number in JSON.
    let waiting = job.get("array_indices_remaining").map(plain);
    let mark = job.get("Variable_List").and_then(|list| list.get(MARK));
    Some(PbsJob {
        id: id.to_owned(),
        owner: text("Job_Owner")?.split('@').next()?.to_owned(),
        // The name of a queue may be a number.
        queue: plain(job.get("queue")?),
        // A select of one number is a number of chunks.
        select: select.map(plain).unwrap_or_default(),
        state: text("job_state")?.to_owned(),
        holds: text("Hold_Types")?.to_owned(),
        mark: mark.and_then(Value::as_str).unwrap_or_default().to_owned(),
        comment: text("comment").map(str::to_owned),
        hosts: text("exec_host").map(hosts).unwrap_or_default(),
        queued,
        waiting: waiting.and_then(|text| TaskRanges::parse(&text)),
        task,
    })
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Reads a number that older versions print as a string.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Reads `Queued:3 Running:1 Exiting:0 Expired:2 `.
fn queued(counts: &str) -> Option<u64> {
    let count = counts
        .split_whitespace()
        .find_map(|word| word.strip_prefix("Queued:"));
    count?.parse().ok()
}

/// Reads `n1/0*2+n2/1`.
fn hosts(text: &str) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    for part in text.split('+') {
        let host = part.split(['/', ':']).next().unwrap_or_default();
        if !host.is_empty() && hosts.iter().all(|known| known != host) {
            hosts.push(host.to_owned());
        }
    }
    hosts
}

/// Joins arrays with their tasks. Jobs that ended are absent.
pub(super) fn live(records: &[PbsJob]) -> BatchResult<HashMap<JobId, LiveJob>> {
    let mut jobs: HashMap<JobId, LiveJob> = HashMap::new();
    for record in records.iter().filter(|record| !record.has_ended()) {
        let (id, index) = match &record.task {
            Some((array, index)) => (array, Some(*index)),
            None => (&record.id, None),
        };
        let Some(id) = JobId::new(id) else { continue };
        let job = jobs.entry(id).or_default();
        if index.is_none() {
            job.is_held = record.is_held();
            job.pending = record.queued.unwrap_or(u64::from(record.is_pending()));
            job.reason = record.comment.clone();
            job.waiting = record.waiting.clone();
        }
        if record.is_running() {
            job.running.push(LiveTask {
                index,
                nodes: record.hosts.clone(),
            });
        }
    }
    Ok(jobs)
}

/// Returns a select in which each chunk demands the slot. Returns `None` if each does already.
pub(super) fn demanding(select: &str, slot: &DataSlot) -> Option<String> {
    let demand = format!("{slot}=True");
    let chunks = split(select);
    let has = |chunk: &str| {
        chunk
            .split(':')
            .any(|part| part.eq_ignore_ascii_case(&demand))
    };
    if chunks.iter().all(|chunk| has(chunk)) {
        return None;
    }
    let with = |chunk: &&str| match (chunk.is_empty(), has(chunk)) {
        (true, _) => format!("1:{demand}"),
        (_, true) => (*chunk).to_owned(),
        _ => format!("{chunk}:{demand}"),
    };
    Some(chunks.iter().map(with).collect::<Vec<_>>().join("+"))
}

/// Splits a select at each `+` outside quotes.
pub(super) fn split(select: &str) -> Vec<&str> {
    let mut quote = None;
    let split_at = |letter: char| {
        match (quote, letter) {
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            _ => {}
        }
        letter == '+' && quote.is_none()
    };
    select.split(split_at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chunk_demands_the_slot() {
        let slot = DataSlot::numbered(1);
        for (select, expected) in [
            ("1:ncpus=1", Some("1:ncpus=1:driftless_1=True")),
            ("2", Some("2:driftless_1=True")),
            ("", Some("1:driftless_1=True")),
            (
                "1:ncpus=1:driftless_1=true+2:a=\"x+y\"",
                Some("1:ncpus=1:driftless_1=true+2:a=\"x+y\":driftless_1=True"),
            ),
            ("1:driftless_1=True", None),
            (
                "1:driftless_10=True",
                Some("1:driftless_10=True:driftless_1=True"),
            ),
        ] {
            assert_eq!(demanding(select, &slot).as_deref(), expected, "{select}");
        }
    }

    #[test]
    fn hosts_and_counts_are_read() {
        assert_eq!(hosts("n1/0*2+n2/1+n1/1"), ["n1", "n2"]);
        assert_eq!(queued("Queued:3 Running:1 Exiting:0 Expired:2 "), Some(3));
        assert_eq!(queued("Running:1"), None);
    }
}
