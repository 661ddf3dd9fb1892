//! Promises of the index of a node: rows that survive, references of jobs, and the page that draws
//! its tables.
#![allow(clippy::disallowed_methods)]

use driftless_model::Stamp;
use driftless_state::holdings::{
    CopyRow, CopyState, Holdings, InodeIdentity, JobReference, NewCopy, TopRow, UnkeptCounts,
};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::time::Duration;

const ID: InodeIdentity = InodeIdentity {
    inode: u64::MAX,
    birth: Some(Stamp { sec: -1, nsec: 9 }),
};
const UNKEPT: UnkeptCounts = UnkeptCounts {
    owners: 3,
    attributes: 5,
};

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("index.db");
    (folder, path)
}

fn begin(holdings: &mut Holdings, hash: &str, place: &[u8]) -> CopyRow {
    let new = NewCopy {
        hash,
        place,
        place_id: ID,
        token: u64::MAX,
        is_cached: true,
        bytes: 7,
        now: Duration::from_secs(5),
    };
    holdings.begin(&new).expect("a row")
}

fn of(job: &str, reader: Option<u32>) -> JobReference<'_> {
    JobReference { job, reader }
}

fn top(name: &[u8]) -> TopRow {
    TopRow {
        name: name.to_vec(),
        id: ID,
    }
}

#[test]
fn rows_survive_the_process() {
    let (_folder, path) = folder();
    let mut holdings = Holdings::open(&path).expect("new");
    let row = begin(&mut holdings, "aa", b"/d");
    assert_eq!(begin(&mut holdings, "aa", b"/d"), row, "it goes on");
    assert_ne!(begin(&mut holdings, "aa", b"/e").id, row.id);
    holdings
        .complete(row.id, &[top(b"x"), top(b"y")], UNKEPT)
        .expect("noted");
    holdings.set_state(row.id, CopyState::Held).expect("noted");
    holdings
        .add_job(row.id, &of("job", None), Duration::from_secs(9))
        .expect("noted");
    holdings.pin(row.id, true).expect("noted");
    assert_eq!(row.private_id, None);
    holdings.note_private(row.id, ID).expect("noted");
    holdings
        .expire(row.id, Some(Duration::from_secs(99)))
        .expect("noted");
    drop(holdings);
    let holdings = Holdings::open(&path).expect("again");
    let expected = CopyRow {
        state: CopyState::Held,
        is_pinned: true,
        expires: Some(Duration::from_secs(99)),
        used: Duration::from_secs(9),
        unkept: UNKEPT,
        private_id: Some(ID),
        jobs: vec!["job".into()],
        tops: vec![top(b"x"), top(b"y")],
        ..row.clone()
    };
    assert_eq!(holdings.find(row.id).expect("read"), Some(expected));
}

#[test]
fn copy_without_names_has_no_row() {
    let (_folder, path) = folder();
    let mut holdings = Holdings::open(&path).expect("new");
    let row = begin(&mut holdings, "aa", b"/d");
    holdings
        .complete(row.id, &[top(b"x"), top(b"y")], UNKEPT)
        .expect("noted");
    holdings
        .add_job(row.id, &of("job", None), Duration::ZERO)
        .expect("noted");
    holdings.take_top(row.id, b"x").expect("taken");
    let state = |holdings: &Holdings| holdings.find(row.id).expect("read").map(|row| row.state);
    assert_eq!(state(&holdings), Some(CopyState::Damaged));
    holdings.take_top(row.id, b"y").expect("taken");
    assert_eq!(state(&holdings), None);
    assert!(holdings.end_job("job").expect("ended").is_empty());
    assert!(
        begin(&mut holdings, "bb", b"/d").id > row.id,
        "a new number"
    );
}

#[test]
fn ended_job_uses_no_copy() {
    let (_folder, path) = folder();
    let mut holdings = Holdings::open(&path).expect("new");
    let ids = [b"/a", b"/b"].map(|place| begin(&mut holdings, "aa", place).id);
    for id in ids {
        holdings
            .add_job(id, &of("one", None), Duration::ZERO)
            .expect("noted");
    }
    holdings
        .add_job(ids[0], &of("two", None), Duration::ZERO)
        .expect("noted");
    let mut ended = holdings.end_job("one").expect("ended");
    ended.sort_unstable();
    assert_eq!(ended, ids);
    let jobs: Vec<_> = holdings
        .copies()
        .expect("read")
        .into_iter()
        .map(|row| row.jobs)
        .collect();
    assert_eq!(jobs, [vec!["two".to_owned()], vec![]]);
}

#[test]
fn job_leads_to_its_newest_copy() {
    let (_folder, path) = folder();
    let mut holdings = Holdings::open(&path).expect("new");
    let ids = [b"/a", b"/b"].map(|place| begin(&mut holdings, "aa", place).id);
    let newest = |holdings: &Holdings| {
        let found = holdings.newest_of_job("one").expect("read");
        found.map(|row| (row.id, row.readers))
    };
    for (id, reader) in [(ids[1], Some(9)), (ids[0], None)] {
        let reference = of("one", reader);
        let added = holdings.add_job(id, &reference, Duration::ZERO);
        added.expect("noted");
    }
    assert_eq!(newest(&holdings), None, "unfinished");
    for id in ids {
        holdings.set_state(id, CopyState::Held).expect("noted");
    }
    assert_eq!(newest(&holdings), Some((ids[0], vec![])));
    let added = holdings.add_job(ids[1], &of("one", None), Duration::ZERO);
    added.expect("noted");
    assert_eq!(newest(&holdings), Some((ids[1], vec![9])));
    holdings.end_reference(ids[1], "one").expect("noted");
    assert_eq!(newest(&holdings), Some((ids[0], vec![])));
    let added = holdings.add_job(ids[0], &of("two", Some(7)), Duration::ZERO);
    added.expect("noted");
    holdings.pin(ids[0], true).expect("noted");
    holdings.move_jobs(ids[0], ids[1]).expect("moved");
    let rows = holdings.copies().expect("read");
    let of = |id: u64| rows.iter().find(|row| row.id == id).expect("a row");
    assert_eq!(of(ids[1]).jobs, ["one", "two"]);
    assert_eq!(
        (of(ids[1]).is_pinned, &*of(ids[1]).readers),
        (true, &[7][..])
    );
    assert!(of(ids[0]).jobs.is_empty());
}

#[test]
fn jobs_are_listed_by_their_prefix() {
    let (_folder, path) = folder();
    let mut holdings = Holdings::open(&path).expect("new");
    let ids = [b"/a", b"/b"].map(|place| begin(&mut holdings, "aa", place).id);
    for job in ["gw-2", "gw-1", "gw", "h", "gw-10", "g"] {
        for id in ids {
            let added = holdings.add_job(id, &of(job, None), Duration::ZERO);
            added.expect("noted");
        }
    }
    let jobs = |after: &str, max| holdings.jobs("gw-", after, max).expect("read");
    assert_eq!(jobs("", 9), ["gw-1", "gw-10", "gw-2"]);
    assert_eq!(jobs("", 2), ["gw-1", "gw-10"]);
    assert_eq!(jobs("gw-10", 2), ["gw-2"]);
    assert!(holdings.jobs("x", "", 9).expect("read").is_empty());
    assert_eq!(holdings.jobs("", "", 9).expect("read").len(), 6);
}

/// Returns the statements that make the tables, without comments and line ends.
fn layout_of(file: &Connection) -> Vec<String> {
    let ask = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";
    let mut find = file.prepare(ask).expect("prepared");
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

#[test]
fn page_draws_the_tables_of_the_index() {
    let (_folder, path) = folder();
    let mut holdings = Holdings::open(&path).expect("new");
    begin(&mut holdings, "aa", b"/d");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/state.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, page) = page.split_once("\n## Index of a node").expect("a section");
    let blocks: Vec<&str> = page
        .split("```sql\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    let (tables, questions) = blocks.split_last().expect("blocks");
    let (file, drawn) = (
        Connection::open(&path).expect("open"),
        Connection::open_in_memory().expect("open"),
    );
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

#[test]
fn other_directory_has_other_copies() {
    let (_folder, path) = folder();
    let mut holdings = Holdings::open(&path).expect("new");
    let row = begin(&mut holdings, "aa", b"/d");
    holdings.note_private(row.id, ID).expect("noted");
    let place_id = InodeIdentity {
        inode: 7,
        birth: None,
    };
    let new = NewCopy {
        hash: "aa",
        place: b"/d",
        place_id,
        token: 1,
        is_cached: true,
        bytes: 7,
        now: Duration::from_secs(5),
    };
    let other = holdings.begin(&new).expect("a row");
    assert_ne!(other.id, row.id);
    assert_eq!(holdings.begin(&new).expect("a row"), other);
    holdings.renew_private(row.id, 5).expect("noted");
    let renewed = holdings.find(row.id).expect("read").expect("a row");
    assert_eq!((renewed.token, renewed.private_id), (5, None));
}

#[test]
fn processes_that_open_at_once_share_the_index() {
    for _ in 0..20 {
        let (_folder, path) = folder();
        std::thread::scope(|scope| {
            for number in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    let mut holdings = Holdings::open(path).expect("open");
                    begin(&mut holdings, &number.to_string(), b"/d");
                });
            }
        });
        let holdings = Holdings::open(&path).expect("open");
        assert_eq!(holdings.copies().expect("read").len(), 4);
    }
}

/// Tables of layout 1.
const LAYOUT_1: &str = "
    CREATE TABLE node (id INTEGER PRIMARY KEY CHECK (id = 0), number INTEGER NOT NULL);
    CREATE TABLE copies (
        id INTEGER PRIMARY KEY AUTOINCREMENT, hash TEXT NOT NULL, place BLOB NOT NULL,
        is_cached INTEGER NOT NULL, bytes INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'unfinished'
            CHECK (state IN ('unfinished', 'publishing', 'held', 'damaged', 'leaving')),
        is_pinned INTEGER NOT NULL DEFAULT 0, expires_ms INTEGER, used_ms INTEGER NOT NULL,
        made_ms INTEGER NOT NULL
    );
    CREATE TABLE tops (
        copy INTEGER NOT NULL REFERENCES copies ON DELETE CASCADE, name BLOB NOT NULL,
        inode INTEGER NOT NULL, birth_s INTEGER, birth_ns INTEGER, PRIMARY KEY (copy, name)
    ) WITHOUT ROWID;
    CREATE TABLE jobs (
        copy INTEGER NOT NULL REFERENCES copies ON DELETE CASCADE, job TEXT NOT NULL,
        since_ms INTEGER NOT NULL, PRIMARY KEY (copy, job)
    ) WITHOUT ROWID;
    INSERT INTO node VALUES (0, 17);
    INSERT INTO copies (hash, place, is_cached, bytes, state, used_ms, made_ms)
        VALUES ('aa', CAST('/d' AS BLOB), 1, 7, 'held', 5000, 5000);
    PRAGMA user_version = 1;";

#[test]
fn first_layout_is_upgraded() {
    let (_folder, path) = folder();
    let file = Connection::open(&path).expect("a file");
    file.execute_batch(LAYOUT_1).expect("tables");
    let id = i32::from_be_bytes(*b"drfn");
    file.pragma_update(None, "application_id", id)
        .expect("an id");
    drop(file);
    for _ in 0..2 {
        let holdings = Holdings::open(&path).expect("upgraded");
        let row = holdings.find(1).expect("read").expect("a row");
        assert_eq!((row.place_id, row.private_id, row.token), (None, None, 0));
        assert_eq!(row.unkept, UnkeptCounts::default());
    }
}
