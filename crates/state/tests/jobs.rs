//! The table of jobs of gateways.
#![allow(clippy::disallowed_methods)]

use driftless_state::jobs::{
    ChangeError, JobChange, JobNodeRow, JobNodeState, JobStage, JobTable, NewJob, ResultRow,
    UserLoad,
};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const MARK: &str = "00000000000000aa";

fn table() -> (TempDir, PathBuf, JobTable) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("jobs.db");
    let table = JobTable::open(&path).expect("new");
    (folder, path, table)
}

fn add(table: &mut JobTable, mark: &str) {
    let new = NewJob {
        mark,
        uid: 1000,
        owner: "alice",
        system: "slurm",
        request: b"request",
        now: Duration::from_secs(5),
    };
    table.add(&new).expect("added");
}

fn ready(node: &str) -> JobNodeRow {
    JobNodeRow {
        node: node.into(),
        state: JobNodeState::Ready,
        fault: None,
    }
}

fn data(mark: &str) -> JobChange {
    JobChange::Data {
        mark: mark.into(),
        hash: "ab".into(),
        bytes: 7,
    }
}

fn fault(mark: &str, fault: &str) -> JobChange {
    JobChange::Fault {
        mark: mark.into(),
        fault: Some(fault.into()),
    }
}

fn nodes(mark: &str) -> JobChange {
    JobChange::Nodes {
        mark: mark.into(),
        rows: vec![ready("n1")],
    }
}

fn stage(stage: JobStage, now: Duration) -> JobChange {
    let mark = MARK.into();
    JobChange::Stage { mark, stage, now }
}

#[test]
fn version_follows_others_alone() {
    let (_folder, path, mut table) = table();
    add(&mut table, MARK);
    let epoch = table.take_lease(None, "a").expect("taken").expect("free");
    let before = table.version_of_others().expect("read");
    table.renew(epoch).expect("renewed");
    let changes = [data(MARK), nodes(MARK)];
    table.change_jobs(epoch, &changes).expect("changed");
    assert_eq!(table.version_of_others().expect("read"), before);
    add(&mut table, "00000000000000bb");
    let own = table.version_of_others().expect("read");
    assert_ne!(own, before, "a client of this process");
    let mut other = JobTable::open(&path).expect("open");
    other.claim(MARK, 1000, "17").expect("claimed");
    assert_ne!(table.version_of_others().expect("read"), own);
}

#[test]
fn changes_of_an_absent_job_do_nothing() {
    let (_folder, _path, mut table) = table();
    add(&mut table, MARK);
    let epoch = table.take_lease(None, "a").expect("taken").expect("free");
    let absent = "00000000000000cc";
    let changes = [nodes(absent), fault(absent, "slow"), nodes(MARK)];
    table.change_jobs(epoch, &changes).expect("changed");
    assert_eq!(table.nodes(absent).expect("read"), []);
    assert_eq!(table.nodes(MARK).expect("read"), [ready("n1")]);
}

#[test]
fn job_goes_through_its_stages() {
    let (_folder, path, mut table) = table();
    add(&mut table, MARK);
    let epoch = table.take_lease(None, "a").expect("taken").expect("free");
    let now = Duration::from_secs(9);
    table.note_held(epoch, MARK, "17", now).expect("held");
    table.note_held(epoch, MARK, "18", now).expect("nothing");
    let slot = JobChange::Slot {
        mark: MARK.into(),
        slot: Some(3),
        is_required: true,
    };
    let released = stage(JobStage::Released, now);
    let changes = [data(MARK), slot, fault(MARK, "slow"), nodes(MARK), released];
    table.change_jobs(epoch, &changes).expect("changed");
    let again = JobTable::open(&path).expect("open");
    let job = again.find(MARK).expect("read").expect("a job");
    assert_eq!(job.number.as_deref(), Some("17"));
    assert_eq!((job.hash.as_deref(), job.bytes), (Some("ab"), Some(7)));
    assert_eq!((job.slot, job.is_required), (Some(3), true));
    assert_eq!((job.stage, job.changed), (JobStage::Released, now));
    assert_eq!(job.fault.as_deref(), Some("slow"));
    assert_eq!(again.nodes(MARK).expect("read"), [ready("n1")]);
    let all = again.open_nodes().expect("read");
    assert_eq!(all, [(MARK.to_owned(), ready("n1"))]);
}

#[test]
fn gateways_of_one_file_share_a_name() {
    let (_folder, path, table) = table();
    let name = table.gateways().expect("read");
    assert_eq!(name.len(), 8);
    let again = JobTable::open(&path).expect("open");
    assert_eq!(again.gateways().expect("read"), name);
}

#[test]
fn former_holder_changes_nothing() {
    let (_folder, path, mut table) = table();
    add(&mut table, MARK);
    let first = table.take_lease(None, "a").expect("taken").expect("free");
    let mut other = JobTable::open(&path).expect("open");
    let seen = other.lease().expect("read");
    let second = other.take_lease(seen.as_ref(), "b").expect("taken");
    assert_eq!(second, Some(first + 1));
    let now = Duration::from_secs(9);
    let refused = table.note_held(first, MARK, "17", now);
    assert!(matches!(refused, Err(ChangeError::LeaseLost)));
    assert!(matches!(table.renew(first), Err(ChangeError::LeaseLost)));
    let job = table.find(MARK).expect("read").expect("a job");
    assert_eq!((job.stage, job.number), (JobStage::Prepared, None));
}

#[test]
fn renewed_lease_is_not_taken() {
    let (_folder, path, mut table) = table();
    let epoch = table.take_lease(None, "a").expect("taken").expect("free");
    let mut other = JobTable::open(&path).expect("open");
    assert_eq!(other.take_lease(None, "b").expect("asked"), None);
    let seen = other.lease().expect("read");
    table.renew(epoch).expect("renewed");
    assert_eq!(other.take_lease(seen.as_ref(), "b").expect("asked"), None);
    table.end_lease(epoch).expect("ended");
    let seen = other.lease().expect("read").expect("a lease");
    assert_eq!(seen.holder, "");
    assert!(other.take_lease(Some(&seen), "b").expect("asked").is_some());
}

#[test]
fn results_of_a_node_add_up() {
    let (_folder, _path, mut table) = table();
    add(&mut table, MARK);
    let epoch = table.take_lease(None, "a").expect("taken").expect("free");
    let row = |fault: Option<&str>| ResultRow {
        node: "n1".into(),
        entries: 2,
        bytes: 10,
        fault: fault.map(str::to_owned),
        changed: Duration::from_secs(9),
    };
    for fault in [None, Some("full")] {
        table.add_results(epoch, MARK, &row(fault)).expect("added");
    }
    let sum = ResultRow {
        entries: 4,
        bytes: 20,
        ..row(Some("full"))
    };
    assert_eq!(table.results(MARK).expect("read"), [sum]);
}

#[test]
fn open_jobs_of_a_user_are_counted() {
    let (_folder, _, mut table) = table();
    assert_eq!(table.load_of(1000).expect("read"), UserLoad::default());
    add(&mut table, MARK);
    add(&mut table, "00000000000000ab");
    let epoch = table.take_lease(None, "a").expect("asked").expect("taken");
    let now = Duration::from_secs(6);
    table.note_held(epoch, MARK, "12", now).expect("held");
    let load = table.load_of(1000).expect("read");
    assert_eq!((load.open, load.prepared, load.request_bytes), (2, 1, 14));
    assert_eq!(table.load_of(7).expect("read"), UserLoad::default());
}

#[test]
fn submitted_job_is_not_abandoned() {
    let (_folder, _path, mut table) = table();
    add(&mut table, MARK);
    assert!(!table.abandon(MARK, 1001).expect("asked"), "another user");
    assert!(
        !table.claim(MARK, 1001, "3").expect("asked"),
        "another user"
    );
    assert!(table.claim(MARK, 1000, "16").expect("asked"));
    let epoch = table.take_lease(None, "a").expect("taken").expect("free");
    let now = Duration::from_secs(9);
    table.note_held(epoch, MARK, "17", now).expect("held");
    assert!(!table.abandon(MARK, 1000).expect("asked"), "a held job");
    add(&mut table, "00000000000000bb");
    assert!(table.abandon("00000000000000bb", 1000).expect("asked"));
    assert_eq!(table.jobs_of(Some(1001)).expect("read"), []);
    assert_eq!(table.open_jobs().expect("read").len(), 1);
}

#[test]
fn old_rows_of_one_stage_are_forgotten() {
    let (_folder, _path, mut table) = table();
    let epoch = table.take_lease(None, "a").expect("taken").expect("free");
    for mark in [MARK, "00000000000000bb"] {
        add(&mut table, mark);
    }
    let closed = Duration::from_secs(20);
    let change = stage(JobStage::Closed, closed);
    table.change_jobs(epoch, &[change]).expect("closed");
    let stage = JobStage::Closed;
    table.forget(epoch, stage, closed).expect("none is older");
    assert_eq!(table.jobs_of(None).expect("read").len(), 2);
    let later = Duration::from_secs(21);
    table.forget(epoch, stage, later).expect("forgotten");
    assert_eq!(table.find(MARK).expect("read"), None);
}

#[test]
fn page_draws_the_tables_of_jobs() {
    let (_folder, path, mut table) = table();
    add(&mut table, MARK);
    let epoch = table.take_lease(None, "a").expect("taken").expect("free");
    table.change_jobs(epoch, &[nodes(MARK)]).expect("nodes");
    let row = ResultRow {
        node: "n1".into(),
        entries: 2,
        bytes: 10,
        fault: None,
        changed: Duration::from_secs(9),
    };
    table.add_results(epoch, MARK, &row).expect("added");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/state.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, page) = page.split_once("\n## Jobs of gateways").expect("a section");
    let (page, _) = page.split_once("\n## ").expect("its end");
    let blocks: Vec<&str> = page
        .split("```sql\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    let (tables, questions) = blocks.split_last().expect("blocks");
    let file = Connection::open(&path).expect("open");
    let drawn = Connection::open_in_memory().expect("open");
    drawn.execute_batch(tables).expect("tables");
    assert_eq!(layout_of(&drawn), layout_of(&file));
    for question in questions.iter().flat_map(|block| block.split(";\n")) {
        if !question.trim().is_empty() {
            let count = format!("SELECT count(*) FROM ({question})");
            let rows: i64 = file
                .query_row(&count, [], |row| row.get(0))
                .expect(question);
            assert!(rows > 0, "{question}");
        }
    }
}

/// Returns the definitions of the tables, without comments and breaks of lines.
fn layout_of(file: &Connection) -> Vec<String> {
    let mut find = file
        .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
        .expect("a schema");
    let parts = find
        .query_map([], |row| row.get::<_, String>(0))
        .expect("rows");
    let words = |sql: String| {
        let lines = sql
            .lines()
            .map(|line| line.split("--").next().unwrap_or(line));
        lines
            .flat_map(str::split_whitespace)
            .collect::<Vec<_>>()
            .join(" ")
    };
    parts.map(|sql| words(sql.expect("text"))).collect()
}
