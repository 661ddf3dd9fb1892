//! What one choice of options does to fresh trees: a dry run, the run, a second run, and what
//! stands there between them.

use super::choice::Choice;
use super::common::rights::{Right, rights};
use super::common::{driftless, path_of};
use super::stage::{Place, Stage};
use super::{Outcome, Snapshot, snapshot, touched};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Exit codes: usage, and a run that the guard has refused.
const USAGE: i32 = 2;
pub const REFUSED: i32 = 13;

/// A promise that was not kept.
#[derive(Clone, Debug)]
pub struct Fault {
    /// `P1` to `P6`, or `exit` for an exit code or a problem without a cause.
    pub promise: &'static str,
    pub text: String,
}

/// All that is known of one run, and the faults that were found.
pub struct Runs<'a> {
    pub stage: &'a Stage,
    pub choice: &'a Choice,
    pub before: Snapshot,
    pub after: Snapshot,
    pub earlier: Snapshot,
    pub place: Place,
    pub code: i32,
    /// Paths of change events, and of problems.
    pub changed: BTreeSet<String>,
    /// The paths of changes that are no deletes.
    pub made: BTreeSet<String>,
    pub problems: BTreeSet<String>,
    pub rights: BTreeSet<Right>,
    pub faults: Vec<Fault>,
}

/// Returns all that the runs did; `None` if the binary refuses the options together.
pub fn run<'a>(stage: &'a Stage, choice: &'a Choice) -> Option<Runs<'a>> {
    let place = stage.place();
    let (before, earlier) = (snapshot(&place.dst, true), state_of(&place.earlier));
    let dry = start(stage, choice, &place, &["--dry-run"]);
    if is_refused(&dry, choice) {
        return None;
    }
    let mut runs = Runs {
        stage,
        choice,
        after: snapshot(&place.dst, true),
        before,
        earlier,
        place,
        code: dry.code(),
        changed: BTreeSet::new(),
        made: BTreeSet::new(),
        problems: BTreeSet::new(),
        rights: BTreeSet::new(),
        faults: Vec::new(),
    };
    let found = touched(&runs.before, &runs.after);
    runs.add("P5", found, "a dry run changed");
    if !choice.has("--dry-run") {
        runs.go_on(&dry);
    }
    let found = touched(&runs.earlier, &state_of(&runs.place.earlier));
    runs.add("P3", found, "earlier copy");
    Some(runs)
}

impl Runs<'_> {
    /// The run and a second one.
    fn go_on(&mut self, dry: &Outcome) {
        let done = start(self.stage, self.choice, &self.place, &[]);
        self.after = snapshot(&self.place.dst, true);
        self.rights = rights(&self.place.dst);
        self.code = done.code();
        self.changed = paths(&done, "change", |_| true);
        self.made = paths(&done, "change", |event| event["action"] != "delete");
        self.problems = paths(&done, "problem", |_| true);
        self.check_code(&done);
        let (said, did) = (changes(dry), changes(&done));
        let lines = |a: &BTreeSet<String>, b: &BTreeSet<String>, what: &str| {
            a.difference(b)
                .map(|line| format!("{what}: {line}"))
                .collect::<Vec<String>>()
        };
        self.add("P5", lines(&said, &did, "only said"), "dry run");
        self.add("P5", lines(&did, &said, "only done"), "dry run");
        if dry.code() != done.code() {
            let codes = format!("{} and then {}", dry.code(), done.code());
            self.add("P5", vec![codes], "exit codes");
        }
        let again = start(self.stage, self.choice, &self.place, &[]);
        self.add("P6", changes(&again).into_iter().collect(), "second run");
        let found = touched(&self.after, &snapshot(&self.place.dst, true));
        self.add("P6", found, "a second run touched");
        self.check_code(&again);
    }

    /// Checks that the run ended as it should, with this exit code or one for problems.
    fn check_code(&mut self, outcome: &Outcome) {
        let is_known = [0, 3].contains(&outcome.code())
            || outcome.code() == REFUSED && self.choice.has("--max-delete");
        if !is_known {
            self.add("exit", vec![outcome.describe()], "exit code");
        }
    }

    pub fn add(&mut self, promise: &'static str, lines: Vec<String>, context: &str) {
        self.faults.extend(lines.into_iter().map(|line| Fault {
            promise,
            text: format!("{context}: {line}"),
        }));
    }
}

fn start(stage: &Stage, choice: &Choice, place: &Place, more: &[&str]) -> Outcome {
    let mut words = choice.words(place);
    words.extend(more.iter().map(ToString::to_string));
    words.sort_by_key(|word| word == "--dry-run");
    words.dedup();
    // One thread, so that the order of two runs is the same.
    driftless()
        .args(["sync", "--json", "--jobs=1"])
        .args(words)
        .arg(&stage.src)
        .arg(&place.dst)
        .env("XDG_STATE_HOME", &place.state)
        .run()
}

/// Whether the binary takes these options for ones that exclude each other, and names them.
fn is_refused(outcome: &Outcome, choice: &Choice) -> bool {
    let text = outcome.stderr_text();
    outcome.code() == USAGE
        && choice.names.len() == 2
        && choice.names.iter().all(|name| text.contains(name.as_str()))
}

/// The paths of some of the events of a run.
fn paths(
    outcome: &Outcome,
    event: &str,
    is_wanted: fn(&serde_json::Value) -> bool,
) -> BTreeSet<String> {
    let text = |event| String::from_utf8(path_of(&event)).expect("names of the test are text");
    let all = outcome.events_named(event).into_iter();
    all.filter(is_wanted).map(text).collect()
}

/// The changes that a run tells, a line for each.
fn changes(outcome: &Outcome) -> BTreeSet<String> {
    let line = |event: &serde_json::Value| {
        format!(
            "{} {} {} {}",
            event["path"], event["kind"], event["action"], event["what"]
        )
    };
    outcome.events_named("change").iter().map(line).collect()
}

/// A tree as it stands, with access times and without times of change: to link to a file changes
/// its own.
fn state_of(root: &Path) -> Snapshot {
    let mut all = snapshot(root, false);
    for (path, properties) in &mut all {
        let path = root.join(String::from_utf8_lossy(path).as_ref());
        let meta = fs::symlink_metadata(path).expect("look");
        if !meta.is_dir() {
            let atime = format!("{}.{:09}", meta.atime(), meta.atime_nsec());
            properties.push(("atime", atime));
        }
    }
    all
}
