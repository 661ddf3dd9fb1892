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
    let paths = ResultPaths::of(job, node);
    let complete = names.iter().filter(|name| is_ended(task_of(name)));
    let moves = complete.map(|name| (name.clone(), paths.below(name)));
    CollectOrder {
        job: job.name.to_owned(),
        uid: job.uid,
        node: node.to_owned(),
        moves: moves.collect(),
        base: paths.base(),
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

/// Paths of the results of a job on one node.
struct ResultPaths<'a> {
    pattern: &'a ResultPattern,
    number: &'a str,
    node: &'a str,
    /// The path with signs in place of the task and the node.
    signed: Vec<u8>,
    has_task: bool,
    has_node: bool,
}

impl<'a> ResultPaths<'a> {
    fn of(job: &ResultJob<'a>, node: &'a str) -> Self {
        let number = digits(job.number);
        let signed = job.pattern.expand(number, ANY_TASK, ANY_NODE);
        let has = |sign: &str| {
            signed
                .windows(sign.len())
                .any(|part| part == sign.as_bytes())
        };
        ResultPaths {
            pattern: job.pattern,
            number,
            node,
            has_task: has(ANY_TASK),
            has_node: has(ANY_NODE),
            signed,
        }
    }

    /// Returns the names of the part that all tasks and nodes share.
    fn shared(&self) -> impl Iterator<Item = &[u8]> {
        names_of(&self.signed).take_while(|name| !name.contains(&1))
    }

    fn base(&self) -> Vec<u8> {
        let names: Vec<&[u8]> = self.shared().collect();
        [b"/", names.join(&b'/').as_slice()].concat()
    }

    /// Returns the path of an entry below the base. Entries of several nodes that belong to no task do
    /// not meet: their path has the node.
    fn below(&self, name: &[u8]) -> Vec<u8> {
        let task = task_of(name).map(|task| task.to_string());
        let shown = task.as_deref().unwrap_or(NO_TASK);
        let path = self.pattern.expand(self.number, shown, self.node);
        let mut parts: Vec<&[u8]> = names_of(&path).skip(self.shared().count()).collect();
        match &task {
            Some(_) if self.has_task => {}
            None if !self.has_node => parts.extend([self.node.as_bytes(), name]),
            Some(_) | None => parts.push(name),
        }
        parts.join(&b'/')
    }
}

/// Returns the names of a path.
fn names_of(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
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
