//! Paths of results: which entries of an outbox are complete, and where each goes.
//!
//! An entry whose name is the index of a task belongs to this task, and is complete when the task
//! ended. Each other entry is complete when the job ended.

use crate::distribution::CollectOrder;
use driftless_taskfile::ResultPattern;

/// Name in place of a task, for entries that belong to none.
const NO_TASK: &str = "job";
/// Names that no task and no node has.
const ANY_TASK: &str = "\u{1}t";
const ANY_NODE: &str = "\u{1}h";

/// A job whose results are collected.
pub(crate) struct ResultJob<'a> {
    /// Name of the job on the nodes.
    pub name: &'a str,
    /// UID of its user.
    pub uid: u32,
    /// Number in the batch system.
    pub number: &'a str,
    /// Pattern of the results.
    pub pattern: &'a ResultPattern,
}

/// Returns the order for the entries of a node that are complete. `is_ended` states whether a task
/// ended, and `None` whether all tasks did.
pub(crate) fn order_of(
    job: &ResultJob<'_>,
    node: &str,
    names: &[Vec<u8>],
    is_ended: &dyn Fn(Option<u64>) -> bool,
) -> CollectOrder {
    let base = base_of(job);
    let complete = names.iter().filter(|name| is_ended(task_of(name)));
    let moves = complete.map(|name| (name.clone(), below(job, node, name, &base)));
    CollectOrder {
        job: job.name.to_owned(),
        uid: job.uid,
        node: node.to_owned(),
        moves: moves.collect(),
        base,
    }
}

/// Returns the task that an entry belongs to. Only the plain form of a number is one.
fn task_of(name: &[u8]) -> Option<u64> {
    let task: u64 = std::str::from_utf8(name).ok()?.parse().ok()?;
    (task.to_string().as_bytes() == name).then_some(task)
}

/// Returns the digits of a number: PBS has the name of the server behind them.
fn digits(number: &str) -> &str {
    let end = number.find(|char: char| !char.is_ascii_digit());
    number.get(..end.unwrap_or(number.len())).unwrap_or(number)
}

/// Returns the part of the pattern that all tasks and nodes share.
fn base_of(job: &ResultJob<'_>) -> Vec<u8> {
    let path = job.pattern.expand(digits(job.number), ANY_TASK, ANY_NODE);
    let shared = path
        .split(|byte| *byte == b'/')
        .take_while(|part| !part.contains(&1));
    let parts: Vec<&[u8]> = shared.filter(|part| !part.is_empty()).collect();
    [b"/", parts.join(&b'/').as_slice()].concat()
}

/// Returns the path of an entry below the base. Entries of several nodes that belong to no task do
/// not meet: their path has the node.
fn below(job: &ResultJob<'_>, node: &str, name: &[u8], base: &[u8]) -> Vec<u8> {
    let has = |sign: &str| {
        let path = job.pattern.expand("", ANY_TASK, ANY_NODE);
        path.windows(sign.len()).any(|part| part == sign.as_bytes())
    };
    let task = task_of(name).map(|task| task.to_string());
    let shown = task.as_deref().unwrap_or(NO_TASK);
    let path = job.pattern.expand(digits(job.number), shown, node);
    let mut parts: Vec<&[u8]> = path
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty())
        .collect();
    let above = base
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty());
    parts.drain(..above.count().min(parts.len()));
    match &task {
        Some(task) if !has(ANY_TASK) => parts.push(task.as_bytes()),
        Some(_) => {}
        None if has(ANY_NODE) => parts.push(name),
        None => parts.extend([node.as_bytes(), name]),
    }
    parts.join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(pattern: &str, names: &[&str]) -> (String, Vec<String>) {
        let pattern = ResultPattern::parse(pattern.as_bytes()).unwrap();
        let job = ResultJob {
            name: "gateway-x-1",
            uid: 1000,
            number: "12[].server",
            pattern: &pattern,
        };
        let names: Vec<Vec<u8>> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        let order = order_of(&job, "n1", &names, &|_| true);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let moves = order.moves.into_iter().map(|(_, path)| text(path));
        (text(order.base), moves.collect())
    }

    #[test]
    fn results_go_to_the_path_of_their_task() {
        let names = ["5", "log"];
        for (pattern, base, below) in [
            ("/out/%j/%t", "/out/12", ["5", "job/n1/log"]),
            ("/out/%j", "/out/12", ["5", "n1/log"]),
            ("/out/%h/%t", "/out", ["n1/5", "n1/job/log"]),
            (
                "/out/run-%t/all/",
                "/out",
                ["run-5/all", "run-job/all/n1/log"],
            ),
            ("/%t", "/", ["5", "job/n1/log"]),
        ] {
            let found = paths(pattern, &names);
            let expected: Vec<String> = below.map(str::to_owned).to_vec();
            assert_eq!(found, (base.to_owned(), expected), "{pattern}");
        }
    }

    #[test]
    fn only_complete_entries_are_collected() {
        let pattern = ResultPattern::parse(b"/out/%t").unwrap();
        let job = ResultJob {
            name: "gateway-x-1",
            uid: 1000,
            number: "12",
            pattern: &pattern,
        };
        let names = ["5", "6", "05", "log"].map(|name| name.as_bytes().to_vec());
        let order = order_of(&job, "n1", &names, &|task| task == Some(5));
        let collected: Vec<Vec<u8>> = order.moves.into_iter().map(|(name, _)| name).collect();
        assert_eq!(collected, [b"5"]);
    }
}
