//! What `--json` prints is what the pages say: the same events, with the same fields.
#![allow(clippy::disallowed_methods)]

mod common;

use common::pages::{Shell, quoted, read, rows};
use driftless_model::event::{
    AuditEvent, AuditSummary, ChangeMade, Checked, Counters, DifferenceFound, Event, PathText,
    ProblemMet, ProgressMade, Roots, RunSummary, Start, SumEvent, SumSummary,
};
use driftless_model::{Act, Action, Class, Kind, Level, Side, Unkept, What};
use serde_json::Value;
use std::collections::BTreeSet;

/// Fields that the page lists for an event, the counters included where it says so; and those that
/// may be missing.
fn documented(text: &str, event: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let mut table = rows(text, &format!("## {event}"));
    let header = |row: &Vec<&str>| row.len() == 3;
    if ["progress", "summary"].contains(&event) {
        table.extend(rows(text, "## counters"));
    }
    let fields = table.iter().filter(|row| header(row));
    let name = |row: &Vec<&str>| quoted(row[0]).remove(0);
    let optional = fields
        .clone()
        .filter(|row| row[1].contains("optional"))
        .map(name)
        .collect();
    (fields.map(name).collect(), optional)
}

/// The words that the page explains in two-column tables of an event.
fn explained(text: &str, event: &str) -> BTreeSet<String> {
    rows(text, &format!("## {event}"))
        .iter()
        .filter(|row| row.len() == 2)
        .map(|row| quoted(row[0]).remove(0))
        .collect()
}

/// Objects of real runs that bring about every event.
fn real_events() -> Vec<Value> {
    let stage = Shell::new();
    let script = "
        mkdir -p data/sub; for n in $(seq 40); do echo $n > data/sub/$n; done
        ln data/sub/1 data/link; ln -s x data/symlink; mkfifo data/fifo; echo x > data/$(printf 'a\\377b')
        driftless sync --json --iops-limit 25 data copy
        rm -r data/sub/9 copy/fifo data/symlink; mkdir copy/fifo; chmod 600 data/sub/2; echo more >> data/sub/3; ln data/sub/4 data/four
        echo x > data/symlink; rm data/fifo; mkfifo data/fifo
        driftless sync --json --delete data copy
        echo other > copy/four; mkdir copy/extra; ln data/sub/4 data/five
        driftless verify --json data copy; rm -r copy/extra
        driftless sync --json data data/inside
        printf 'missing\\n' | driftless sync --json --files-from - data copy
        driftless sync --json data/symlink /dev/full
    ";
    let output = stage.bash(script);
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

#[test]
fn json_objects_have_exactly_the_documented_fields_and_words() {
    let (text, events) = (read("docs/json.md"), real_events());
    for event in [
        "start",
        "change",
        "difference",
        "problem",
        "progress",
        "summary",
        "error",
    ] {
        let (fields, optional) = documented(&text, event);
        let found: Vec<&Value> = events
            .iter()
            .filter(|object| object["event"] == event)
            .collect();
        assert!(!found.is_empty(), "no {event} in {events:#?}");
        for object in found {
            let present: BTreeSet<String> = object
                .as_object()
                .expect("an object")
                .keys()
                .cloned()
                .collect();
            let missing: BTreeSet<String> = fields.difference(&present).cloned().collect();
            assert!(
                present.is_subset(&fields) && missing.is_subset(&optional),
                "{event}: {object}\ndocumented: {fields:?}"
            );
        }
    }
    assert!(events.iter().all(|object| text.contains(&format!(
        "\n## {}\n",
        object["event"].as_str().expect("a name")
    ))));
    let words = explained(&text, "change");
    for change in events.iter().filter(|object| object["event"] == "change") {
        let what = change["what"].as_array().expect("a list").iter();
        let used = what
            .chain([&change["action"]])
            .map(|word| word.as_str().expect("a word"));
        used.for_each(|word| assert!(words.contains(word), "{word} of {change}"));
    }
    let classes = explained(&text, "problem");
    let problems = events.iter().filter(|object| object["event"] == "problem");
    problems.for_each(|problem| {
        assert!(
            classes.contains(problem["class"].as_str().expect("a word")),
            "{problem}"
        )
    });
    for action in ["create", "content", "meta", "link", "replace", "delete"] {
        assert!(
            events.iter().any(|object| object["action"] == action),
            "no {action} in the runs: the test has lost its grip"
        );
    }
}

fn text() -> String {
    "x".to_owned()
}

fn path(path: &str) -> PathText {
    PathText {
        path: path.to_owned(),
        path_base64: Some("eA==".to_owned()),
    }
}

fn roots() -> Roots {
    let more = || Some("eA==".to_owned());
    Roots {
        source: text(),
        source_base64: more(),
        replica: text(),
        replica_base64: more(),
    }
}

/// A difference that has all that one can have.
fn difference() -> DifferenceFound {
    DifferenceFound {
        path: path("x"),
        kind: Kind::File,
        found: "differs",
        what: What::NAME,
        size: 1,
        values: Vec::new(),
        ranges: vec![[0, 1]],
    }
}

/// An event of each kind, with all that is optional.
fn events_of_the_code() -> Vec<Event> {
    let path = || path("x");
    let roots = roots();
    let (kind, what, size, counters) = (Kind::File, What::NAME, 1, Counters::default);
    let (act, side, class) = (Act::Open, Side::Source, Class::Skip);
    let summary = RunSummary {
        exit_code: 0,
        seconds: 1.0,
        end: "complete",
        reason: None,
        connections_lost: 0,
        changed_before: 0,
        counters: counters(),
    };
    vec![
        Event::Start(Start {
            roots,
            dry_run: false,
            level: Level::Meta,
        }),
        Event::Change(ChangeMade {
            path: path(),
            kind,
            action: Action::Create,
            what,
            size,
        }),
        Event::Difference(difference()),
        Event::Problem(ProblemMet {
            path: path(),
            side,
            act,
            cause: text(),
            class,
            follows: class.follows(),
        }),
        Event::Progress(ProgressMade {
            seconds: 1.0,
            share: 0.5,
            eta_seconds: None,
            counters: counters(),
        }),
        Event::Summary(summary),
        Event::ConnectionLost {
            reason: text(),
            seconds: 1.0,
        },
        Event::ConnectedAgain {
            host: text(),
            seconds: 1.0,
        },
        Event::Unkept {
            path: path(),
            what: Unkept::VERITY,
        },
        Event::Note { message: text() },
        Event::Error {
            message: text(),
            exit_code: 1,
        },
    ]
}

#[test]
fn the_page_has_every_event_of_the_code_with_its_fields_and_no_other() {
    let page = read("docs/json.md");
    let mut events = BTreeSet::new();
    for event in events_of_the_code() {
        let object = serde_json::to_value(event).expect("JSON");
        let name = object["event"].as_str().expect("a name").to_owned();
        let mut table = rows(&page, &format!("## {name}"));
        if ["progress", "summary"].contains(&&*name) {
            table.extend(rows(&page, "## counters"));
        }
        let documented: BTreeSet<String> = table
            .iter()
            .filter(|row| row.len() == 3)
            .flat_map(|row| quoted(row[0]))
            .collect();
        let fields: BTreeSet<String> = object
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect();
        assert_eq!(fields, documented, "{name}");
        events.insert(name);
    }
    let headings = page
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .filter(|name| !["counters", "Paths"].contains(name));
    assert_eq!(headings.map(str::to_owned).collect::<BTreeSet<_>>(), events);
}

/// Compares the fields that events have with those that the tables of a page name.
fn check_fields(page: &str, level: &str, events: impl IntoIterator<Item = Value>) {
    let text = read(page);
    let mut seen = 0;
    for object in events {
        let name = object["event"].as_str().expect("a name").to_owned();
        let table = rows(&text, &format!("{level} {name}"));
        let documented: BTreeSet<String> = table
            .iter()
            .flat_map(|row| quoted(row[0]))
            .filter(|field| !field.ends_with("_base64"))
            .collect();
        let fields: BTreeSet<String> = object
            .as_object()
            .expect("an object")
            .keys()
            .filter(|field| !field.ends_with("_base64"))
            .cloned()
            .collect();
        assert_eq!(fields, documented, "{page}: {name}");
        seen += 1;
    }
    assert!(seen > 3, "the test has lost its grip");
}

#[test]
fn the_page_of_audits_has_every_event_of_the_code_with_its_fields() {
    let events = [
        AuditEvent::Start {
            roots: roots(),
            level: Level::Meta,
            samples: 1,
            seed: 1,
            confidence: 0.5,
            fraction: None,
            grace_seconds: 1,
        },
        AuditEvent::Difference {
            found: difference(),
            recent: true,
            changed: 1,
        },
        AuditEvent::Progress {
            stage: "counting",
            entries: 1,
            of: None,
            seconds: 1.0,
        },
        AuditEvent::Summary(AuditSummary {
            exit_code: 0,
            seconds: 1.0,
            end: "complete",
            reason: None,
            entries: 1,
            sampled: 1,
            same: 1,
            drift: 0,
            recent: 0,
            vanished: 0,
            failed: 0,
            problems: 0,
            confidence: 0.5,
            bound: None,
            exact: true,
            proof: text(),
        }),
    ];
    let objects = events.map(|event| serde_json::to_value(event).expect("JSON"));
    check_fields("docs/audit.md", "###", objects);
}

#[test]
fn the_page_of_sums_has_every_event_of_the_code_with_its_fields() {
    let events = [
        SumEvent::Sum {
            path: path("x"),
            algorithm: "blake3",
            hash: text(),
            start: 0,
            end: 1,
        },
        SumEvent::Checked {
            path: path("x"),
            result: Checked::Differs,
            hash: Some(text()),
            expected: Some(text()),
            ranges: Some(vec![[0, 1]]),
        },
        SumEvent::Entry {
            path: path("x"),
            kind: Kind::File,
            mode: 0,
            uid: 0,
            gid: 0,
            size: 1,
            mtime: [1, 1],
            content: None,
        },
        SumEvent::Problem {
            path: Some(path("x")),
            cause: text(),
        },
        SumEvent::Summary(SumSummary {
            exit_code: 0,
            seconds: 1.0,
            files: 1,
            bytes: 1,
            different: 0,
            missing: 0,
            problems: 0,
            entries: Some(1),
            root: Some(text()),
        }),
    ];
    let page = read("docs/sum.md");
    let table = rows(&page, "## What --json prints");
    assert_eq!(table.len(), events.len());
    for (event, row) in events.into_iter().zip(table) {
        let object = serde_json::to_value(event).expect("JSON");
        assert_eq!(quoted(row[0]), [object["event"].as_str().expect("a name")]);
        let documented = quoted(row[1]);
        let fields = object.as_object().expect("an object").keys();
        for field in fields.filter(|field| !["event", "path_base64"].contains(&&***field)) {
            assert!(documented.contains(field), "{field} of {object}");
        }
    }
}
