//! Paths of results: which entries of an outbox are complete, and where each goes.
//!
//! An entry whose name is the index of a task of the job belongs to this task, and is complete when the
//! task ended. Each other entry is complete when the job ended. Results of an earlier run of a task, on
//! another node, go to a path of their own beside those of its last run.

use crate::distribution::{CollectMove, CollectOrder};
use driftless_taskfile::ResultPattern;

/// Name in place of a task, for entries that belong to none.
const NO_TASK: &str = "job";
/// Names that no job, no task and no node has.
const ANY_JOB: &str = "\u{1}j";
const ANY_TASK: &str = "\u{1}t";
const ANY_NODE: &str = "\u{1}h";
/// Directory of the results of earlier runs of tasks, with a directory for each node.
const EARLIER: &str = "earlier-runs";

/// Fate of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryFate {
    /// The entry stays: it may not be complete.
    Stay,
    /// The entry goes to its path.
    Collect,
    /// The entry is of an earlier run of its task, and goes beside the results of the last one.
    SetAside,
}

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

/// Returns the order for the entries of a node that are complete. `fate_of` states the fate of the
/// entries of a task, and with `None` that of entries of no task.
pub(crate) fn order_of(
    job: &ResultJob<'_>,
    node: &str,
    names: &[Vec<u8>],
    fate_of: &dyn Fn(Option<u64>) -> EntryFate,
) -> CollectOrder {
    let paths = ResultPaths::of(job, node);
    let moves = names.iter().filter_map(|name| {
        let task = task_of(name);
        let path = match fate_of(task) {
            EntryFate::Stay => return None,
            EntryFate::Collect => paths.below(name),
            EntryFate::SetAside => paths.set_aside(name),
        };
        let name = name.clone();
        Some(CollectMove { name, task, path })
    });
    CollectOrder {
        job: job.name.to_owned(),
        uid: job.uid,
        node: node.to_owned(),
        moves: moves.collect(),
        fixed: paths.fixed(),
        holder: paths.holder(),
        base: paths.base(),
        has_sealed: false,
    }
}

/// Returns whether results of one task on several nodes go to one path.
pub(crate) fn is_shared_by_nodes(pattern: &ResultPattern) -> bool {
    let path = pattern.expand(ANY_JOB, ANY_TASK, ANY_NODE);
    !has(&path, ANY_NODE)
}

fn has(path: &[u8], sign: &str) -> bool {
    let mut parts = path.windows(sign.len());
    parts.any(|part| part == sign.as_bytes())
}

/// Returns the task that an entry belongs to, if the job has this task. Only the plain form of a number is one.
pub(crate) fn task_of(name: &[u8]) -> Option<u64> {
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
        ResultPaths {
            pattern: job.pattern,
            number,
            node,
            has_task: has(&signed, ANY_TASK),
            has_node: has(&signed, ANY_NODE),
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

    /// Returns the directories that the user named without a placeholder, as a path.
    fn fixed(&self) -> Vec<u8> {
        let signed = self.pattern.expand(ANY_JOB, ANY_TASK, ANY_NODE);
        let names: Vec<&[u8]> = names_of(&signed)
            .take_while(|name| !name.contains(&1))
            .collect();
        // The last name is that of a result if no other placeholder follows.
        let count = names.len().min(self.shared().count());
        let names = names.get(..count).unwrap_or_default();
        [b"/", names.join(&b'/').as_slice()].concat()
    }

    /// Returns the directories below the base that all tasks of the node share, as a path.
    fn holder(&self) -> Vec<u8> {
        let path = self.pattern.expand(self.number, ANY_TASK, self.node);
        let names = names_of(&path).skip(self.shared().count());
        let names: Vec<&[u8]> = names.take_while(|name| !name.contains(&1)).collect();
        names.join(&b'/')
    }

    /// Returns the path of an entry of an earlier run of its task.
    fn set_aside(&self, name: &[u8]) -> Vec<u8> {
        let below = self.below(name);
        [EARLIER.as_bytes(), self.node.as_bytes(), &below].join(&b'/')
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
        let order = order_of(&job, "n1", &names, &|_| EntryFate::Collect);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let moves = order.moves.into_iter().map(|one| text(one.path));
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
    fn directories_with_chosen_names_are_known() {
        for (pattern, fixed, base, holder) in [
            ("/out/%j/%t", "/out", "/out/12", ""),
            ("/out/x-%j", "/out", "/out/x-12", ""),
            ("/out/%t", "/out", "/out", ""),
            ("/out/%h/%t", "/out", "/out", "n1"),
            ("/out/%j/a/%h/b/%t/c", "/out", "/out/12/a", "n1/b"),
            ("/out/all", "/out/all", "/out/all", ""),
            ("/%t", "/", "/", ""),
        ] {
            let parsed = ResultPattern::parse(pattern.as_bytes()).unwrap();
            let job = ResultJob {
                name: "gateway-x-1",
                uid: 1000,
                number: "12",
                pattern: &parsed,
            };
            let order = order_of(&job, "n1", &[], &|_| EntryFate::Stay);
            let found = [order.fixed, order.base, order.holder];
            assert_eq!(
                found,
                [fixed, base, holder].map(|path| path.as_bytes().to_vec()),
                "{pattern}"
            );
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
        let order = order_of(&job, "n1", &names, &|task| match task {
            Some(5) => EntryFate::Collect,
            Some(6) => EntryFate::SetAside,
            _ => EntryFate::Stay,
        });
        let path = |one: CollectMove| String::from_utf8(one.path).unwrap();
        let collected: Vec<String> = order.moves.into_iter().map(path).collect();
        assert_eq!(collected, ["5", "earlier-runs/n1/6"]);
    }
}
