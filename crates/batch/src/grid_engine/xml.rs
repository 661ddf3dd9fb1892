//! Output of `qstat -xml` and `qhost -xml`.
//!
//! Names of elements are those of the schemas in `util/resources/schemas` of Grid Engine 8.1.9.

use crate::command::CommandOutput;
use crate::{BatchError, BatchResult, JobId, LiveJob, LiveTask, TaskRanges};
use roxmltree::{Document, Node};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// States of a queue in which it starts no job, whatever the time or load: unknown, error, disabled,
/// configuration ambiguous, orphaned (qstat(1)).
const CLOSED: &[char] = &['u', 'E', 'd', 'c', 'o'];

/// Root of an answer about jobs that are not known.
const UNKNOWN: &str = "unknown_jobs";

/// A job as `qstat -j` shows it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct JobDetails {
    pub job: String,
    pub owner: String,
    pub context: BTreeMap<String, String>,
    pub hard: Vec<(String, String)>,
    pub soft: Vec<(String, String)>,
    pub queues: Vec<String>,
    pub environment: Option<String>,
    pub has_start_time: bool,
}

/// Reads `qstat -g t -xml`. `held` has the jobs that a user holds.
pub(super) fn live_jobs(
    output: &CommandOutput,
    held: &BTreeSet<JobId>,
) -> BatchResult<HashMap<JobId, LiveJob>> {
    let document = document(output, "job_info")?;
    let mut jobs: HashMap<JobId, LiveJob> = HashMap::new();
    let lists = document
        .descendants()
        .filter(|node| node.has_tag_name("job_list"));
    for list in lists {
        let id = job_id(output, list)?;
        let is_held = held.contains(&id);
        let job = jobs.entry(id).or_default();
        job.is_held = is_held;
        add_tasks(output, list, job)?;
    }
    Ok(jobs)
}

/// Returns the jobs of a `qstat -xml`.
pub(super) fn job_ids(output: &CommandOutput) -> BatchResult<BTreeSet<JobId>> {
    let document = document(output, "job_info")?;
    let lists = document
        .descendants()
        .filter(|node| node.has_tag_name("job_list"));
    lists.map(|list| job_id(output, list)).collect()
}

fn job_id(output: &CommandOutput, list: Node<'_, '_>) -> BatchResult<JobId> {
    let number = required(output, list, "JB_job_number")?;
    JobId::new(number).ok_or_else(|| unreadable(output, number))
}

/// Adds one row: a range of tasks that wait, or one process of a task that runs.
fn add_tasks(output: &CommandOutput, list: Node<'_, '_>, job: &mut LiveJob) -> BatchResult<()> {
    let state = required(output, list, "state")?;
    let tasks = child_text(list, "tasks").unwrap_or_default();
    let instance = child_text(list, "queue_name").unwrap_or_default();
    if state.contains('q') {
        match tasks {
            "" => job.pending += 1,
            text => {
                let tasks = TaskRanges::parse(text).ok_or_else(|| unreadable(output, text))?;
                job.pending += tasks.count();
                job.add_waiting(tasks);
            }
        }
        job.reason = Some(state.to_owned());
        return Ok(());
    }
    let Some((_, node)) = instance.rsplit_once('@') else {
        return Err(unreadable(
            output,
            &format!("job in state {state} without a host"),
        ));
    };
    let index = match tasks {
        "" => None,
        text => Some(text.parse().map_err(|_| unreadable(output, text))?),
    };
    match job.running.iter_mut().find(|task| task.index == index) {
        Some(task) if task.nodes.iter().any(|known| known == node) => {}
        Some(task) => task.nodes.push(node.to_owned()),
        None => job.running.push(LiveTask {
            index,
            nodes: vec![node.to_owned()],
        }),
    }
    Ok(())
}

/// Reads `qstat -j ... -xml`. Unknown jobs are absent.
pub(super) fn details(output: &CommandOutput) -> BatchResult<Vec<JobDetails>> {
    let document = parse(output)?;
    let root = document.root_element();
    if root.has_tag_name(UNKNOWN) {
        return Ok(Vec::new());
    }
    let Some(info) = root.children().find(|node| node.has_tag_name("djob_info")) else {
        return Err(unreadable(output, root.tag_name().name()));
    };
    let elements = info.children().filter(|node| node.has_tag_name("element"));
    elements
        .map(|element| job_details(output, element))
        .collect()
}

/// Returns whether an answer of `qstat -j ... -xml` states that no such job is known.
pub(super) fn is_unknown(output: &CommandOutput) -> BatchResult<bool> {
    Ok(parse(output)?.root_element().has_tag_name(UNKNOWN))
}

fn job_details(output: &CommandOutput, job: Node<'_, '_>) -> BatchResult<JobDetails> {
    let pairs = |list: &str, name: &str, value: &str| -> Vec<(String, String)> {
        let entries = job.children().filter(|node| node.has_tag_name(list));
        let entries = entries.flat_map(|list| list.children().filter(Node::is_element));
        let pair = |entry: Node<'_, '_>| {
            let value = child_text(entry, value).unwrap_or_default().to_owned();
            Some((child_text(entry, name)?.to_owned(), value))
        };
        entries.filter_map(pair).collect()
    };
    let queues = pairs("JB_hard_queue_list", "QR_name", "QR_name");
    Ok(JobDetails {
        job: required(output, job, "JB_job_number")?.to_owned(),
        owner: required(output, job, "JB_owner")?.to_owned(),
        context: pairs("JB_context", "VA_variable", "VA_value")
            .into_iter()
            .collect(),
        hard: pairs("JB_hard_resource_list", "CE_name", "CE_stringval"),
        soft: pairs("JB_soft_resource_list", "CE_name", "CE_stringval"),
        queues: queues.into_iter().map(|(name, _)| name).collect(),
        environment: child_text(job, "JB_pe").map(str::to_owned),
        has_start_time: child_text(job, "JB_execution_time").is_some_and(|time| time != "0"),
    })
}

/// Reads `qstat -f -xml`: the hosts of queues that are open.
pub(super) fn open_hosts(output: &CommandOutput) -> BatchResult<BTreeSet<String>> {
    let document = document(output, "job_info")?;
    let queues = document
        .descendants()
        .filter(|node| node.has_tag_name("Queue-List"));
    let mut hosts = BTreeSet::new();
    for queue in queues {
        let name = required(output, queue, "name")?;
        let Some((_, host)) = name.rsplit_once('@') else {
            return Err(unreadable(output, name));
        };
        if !child_text(queue, "state")
            .unwrap_or_default()
            .contains(CLOSED)
        {
            hosts.insert(host.to_owned());
        }
    }
    Ok(hosts)
}

/// Execution hosts, and whether each has a value of its own for a complex.
pub(super) type HostValues = BTreeMap<String, bool>;

/// Reads `qhost -F NAME -xml`.
pub(super) fn host_values(output: &CommandOutput, complex: &str) -> BatchResult<HostValues> {
    let document = document(output, "qhost")?;
    let hosts = document
        .descendants()
        .filter(|node| node.has_tag_name("host"));
    // A value of the pseudo host "global" has the dominance "g".
    let is_own = |value: &Node<'_, '_>| {
        value.has_tag_name("resourcevalue")
            && value.attribute("name") == Some(complex)
            && value
                .attribute("dominance")
                .is_some_and(|text| text.starts_with('h'))
    };
    let named = |host: Node<'_, '_>| {
        let name = host
            .attribute("name")
            .ok_or_else(|| unreadable(output, "host without a name"))?;
        Ok((name.to_owned(), host.children().any(|value| is_own(&value))))
    };
    let mut hosts: HostValues = hosts.map(named).collect::<BatchResult<_>>()?;
    hosts.remove("global");
    Ok(hosts)
}

fn document<'a>(output: &'a CommandOutput, root: &str) -> BatchResult<Document<'a>> {
    let document = parse(output)?;
    match document.root_element().has_tag_name(root) {
        true => Ok(document),
        false => Err(unreadable(
            output,
            document.root_element().tag_name().name(),
        )),
    }
}

fn parse(output: &CommandOutput) -> BatchResult<Document<'_>> {
    let document = Document::parse(&output.stdout).map_err(|cause| {
        let line = output.stdout.lines().next().unwrap_or_default();
        unreadable(output, &format!("{line} ({cause})"))
    })?;
    // qstat -j -xml exits with 0 if the qmaster does not answer. The spelling is that of 8.1.9.
    let root = document.root_element();
    if ["comunication_error", "communication_error"].contains(&root.tag_name().name()) {
        return Err(BatchError::Unavailable {
            command: output.command.clone(),
            text: root.descendants().filter_map(|node| node.text()).collect(),
        });
    }
    Ok(document)
}

fn required<'a>(output: &CommandOutput, node: Node<'a, '_>, name: &str) -> BatchResult<&'a str> {
    let text = child_text(node, name).filter(|text| !text.is_empty());
    text.ok_or_else(|| {
        unreadable(
            output,
            &format!("{} without {name}", node.tag_name().name()),
        )
    })
}

fn child_text<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    let child = node.children().find(|child| child.has_tag_name(name))?;
    Some(child.text().unwrap_or_default().trim())
}

fn unreadable(output: &CommandOutput, line: &str) -> BatchError {
    BatchError::Output {
        command: output.command.clone(),
        line: line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_ranges_are_counted() {
        for (text, count) in [
            ("", None),
            ("7", Some(1)),
            ("1-9:2", Some(5)),
            ("1-3:1,7,10-20:5", Some(7)),
            ("1,...", None),
            ("3-1:1", None),
            ("1-3:0", None),
        ] {
            assert_eq!(
                TaskRanges::parse(text).map(|tasks| tasks.count()),
                count,
                "{text}"
            );
        }
    }
}
