//! What the record of a run promises: that it keeps what it is given, that its file says what it
//! is, and that the page draws it as it is.
#![allow(clippy::disallowed_methods)]

use driftless_model::{Act, Class, EntryName, Kind, Meta, Problem, RelPath, Side, Stamp, Unkept};
use driftless_state::{
    Alike, Batch, Found, Ground, LargeFile, Life, LinkName, Listing, Misspelling, OpenDir, Record,
    Root, Rows, Stage, StateError, StoreError, Transaction,
};
use rusqlite::Connection;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job");
    (folder, path)
}

fn path(text: &[u8]) -> RelPath {
    RelPath::parse(text).unwrap()
}

fn name(text: &[u8]) -> EntryName {
    EntryName::try_from(text.to_vec()).unwrap()
}

fn batch(body: &[u8]) -> Batch {
    Batch {
        class: 1,
        is_alone: false,
        what: "entries",
        path: path(b"a/b"),
        pieces: 1,
        entries: 7,
        bytes: Some(u64::MAX),
        body: body.to_vec(),
    }
}

fn life() -> Life {
    let root = |ino| Root {
        boot: u64::MAX,
        dev: 2,
        ino,
        made: (ino > 3).then_some(Stamp { sec: -5, nsec: 6 }),
    };
    let ground = Ground {
        source: root(3),
        replica: root(4),
        mark: Some((u128::MAX, 8)),
    };
    Life {
        process: 1 << 127,
        ground,
        seconds: 1000,
        is_second_hand: true,
        is_doubtful: false,
    }
}

fn problem(path: RelPath) -> Problem {
    Problem {
        path,
        side: Side::Replica,
        act: Act::MakeEqual,
        cause: "no space left on device".into(),
        class: Class::Skip,
    }
}

fn all<T: Clone>(mut rows: Rows<'_, T>) -> Vec<T> {
    std::iter::from_fn(|| rows.next_row().unwrap()).collect()
}

/// What a question brings, in the first column of each row.
fn asked<T: rusqlite::types::FromSql>(
    path: &Path,
    question: &str,
) -> Result<Vec<T>, rusqlite::Error> {
    let file = Connection::open(path)?;
    let mut find = file.prepare(question)?;
    find.query_map([], |row| row.get(0))?.collect()
}

/// A record in which each table has rows.
fn filled(path_of: &Path) -> Record {
    let mut record = Record::open(path_of, "one").unwrap();
    let file = LargeFile {
        path: path(b"large"),
        source: "1 2 3 4 5 6".into(),
        size: Some(2),
        class: 1,
        is_alone: true,
    };
    let done = record.transaction(|transaction| {
        transaction.begin_walk("/src", "host:/dst", 1000)?;
        transaction.set_life(&life())?;
        transaction.set_counts([("seen", 5), ("walked", 1 << 59), ("failed", 0)])?;
        let id = transaction.add_batch(&batch(b"first"))?;
        transaction.add_part((id, 9, 0), "host:1", b"part")?;
        transaction.add_problem(&problem(path(b"a\xff")))?;
        transaction.open_piece(&file)?;
        transaction.add_copied((&file.path, &file.source), &(0..1))?;
        transaction.add_link(&LinkName {
            id: (u64::MAX, 2),
            path: path(b"a/l"),
            size: 3,
            there: true,
        })?;
        transaction.put_directory(&OpenDir {
            path: path(b""),
            listing: Listing::InPart,
            made: true,
            replaced: false,
            unlisted: true,
        })?;
        transaction.add_extra(&path(b"a"), &name(b"x"))?;
        transaction.add_no_room(&path(b"a"))?;
        transaction.add_mount(&path(b"m"))?;
        transaction.add_alike(&Alike {
            dir: path(b"a"),
            name: name(b"X"),
            earlier: vec![name(b"x"), name(b"\xff")],
        })?;
        transaction.add_misspelt(&Misspelling {
            dir: path(b"a"),
            found: name(b"Y"),
            wanted: name(b"y"),
        })
    });
    done.unwrap();
    record
}

#[test]
fn a_record_survives_and_belongs_to_one_matter() {
    let (_folder, path) = folder();
    let mut record = Record::open(&path, "one").unwrap();
    assert_eq!(
        (record.found(), record.stage().unwrap()),
        (Found::Nothing, None)
    );
    drop(record);
    record = filled(&path);
    assert_eq!(record.found(), Found::Same);
    let run = record.run();
    drop(record);
    record = Record::open(&path, "one").unwrap();
    assert_eq!(
        (record.found(), record.run(), record.stage().unwrap()),
        (Found::Same, run, Some(Stage::Walk))
    );
    assert_eq!(
        (record.life().unwrap(), record.counts().unwrap().len()),
        (Some(life()), 2)
    );
    assert_eq!(record.batches(0, 9).unwrap(), [(1, b"first".to_vec())]);
    drop(record);
    record = Record::open(&path, "two").unwrap();
    assert!(record.found() == Found::Other && record.run() != run);
    assert_eq!(
        (
            record.open_batches().unwrap(),
            record.life().unwrap(),
            record.stage().unwrap()
        ),
        (0, None, None)
    );
    drop(record);
    assert_eq!(
        Record::open(&path, "three").unwrap().found(),
        Found::Nothing,
        "it was about nothing yet"
    );
}

#[test]
fn a_run_that_begins_anew_leaves_nothing_of_the_one_before() {
    let (_folder, path) = folder();
    let mut record = filled(&path);
    let run = record.run();
    record.begin_anew().unwrap();
    assert!(record.run() != run && record.stage().unwrap().is_none());
    let names = asked::<String>(
        &path,
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    )
    .unwrap();
    let count =
        |table: &str| asked::<i64>(&path, &format!("SELECT count(*) FROM {table}")).unwrap()[0];
    assert!(
        names.len() > 10
            && names
                .iter()
                .all(|name| count(name) == i64::from(name == "run")),
        "{names:?}"
    );
    assert!(
        record
            .transaction(|transaction| transaction.add_batch(&batch(b"")))
            .unwrap()
            > 1,
        "numbers are not used twice"
    );
}

#[test]
fn changes_that_fail_together_change_nothing() {
    let (_folder, path) = folder();
    let mut record = Record::open(&path, "").unwrap();
    let failed = record.transaction(|transaction| {
        transaction
            .add_batch(&batch(b"lost"))
            .and(Err::<(), _>(StoreError::InvalidQuery))
    });
    assert!(matches!(failed, Err(StateError::Failed { .. })));
    assert_eq!(record.open_batches().unwrap(), 0);
    let told = record
        .transaction(|transaction| Err::<(), _>(transaction.damaged("batch 5 cannot be read")))
        .unwrap_err()
        .to_string();
    assert!(
        told.ends_with("job\": the record of the run is damaged: batch 5 cannot be read"),
        "{told}"
    );
}

#[test]
fn a_batch_is_settled_once_and_the_parts_of_all_attempts_go_with_it() {
    let (_folder, path) = folder();
    let mut record = Record::open(&path, "").unwrap();
    let settled = record.transaction(|transaction| {
        let id = transaction.add_batch(&batch(b"first"))?;
        for (attempt, number, outcome) in [(7, 1, b"b"), (7, 0, b"a"), (8, 0, b"c"), (7, 1, b"B")] {
            transaction.add_part((id, attempt, number), "host", outcome)?;
        }
        assert!(transaction.is_open(id)?);
        Ok((
            transaction.parts(id, 7)?,
            transaction.settle(id)?,
            transaction.settle(id)?,
            transaction.is_open(id)?,
        ))
    });
    let parts = vec![(0, b"a".to_vec()), (1, b"B".to_vec())];
    assert_eq!(
        settled.unwrap(),
        (parts, Some(b"first".to_vec()), None, false)
    );
    assert!(
        asked::<i64>(&path, "SELECT 1 FROM parts")
            .unwrap()
            .is_empty()
    );
}

#[test]
fn the_pieces_of_a_large_file_are_counted_and_what_was_copied_is_kept() {
    let (_folder, path_of) = folder();
    let mut record = Record::open(&path_of, "").unwrap();
    let (at, source) = (path(b"large"), "1 2 3 4 5 6");
    let file = LargeFile {
        path: at.clone(),
        source: source.into(),
        size: Some(2),
        class: 3,
        is_alone: true,
    };
    let closed = record.transaction(|transaction| {
        transaction.add_copied((&at, source), &(0..10))?;
        transaction.open_piece(&file)?;
        transaction.open_piece(&LargeFile {
            class: 9,
            ..file.clone()
        })?;
        [5..9, 5..7, 20..21]
            .iter()
            .try_for_each(|range| transaction.add_copied((&at, source), range))?;
        transaction.open_piece(&LargeFile {
            source: "other".into(),
            ..file.clone()
        })?;
        let early = transaction.close_piece(&at, source)?;
        Ok((
            early,
            transaction.close_piece(&at, source)?,
            transaction.close_piece(&at, source)?,
        ))
    });
    assert_eq!(
        closed.unwrap(),
        (None, Some((file, vec![5..9, 20..21])), None)
    );
    assert!(
        asked::<i64>(&path_of, "SELECT 1 FROM copied")
            .unwrap()
            .is_empty()
    );
}

#[test]
fn directories_keep_all_that_is_known_of_them() {
    let (_folder, path_of) = folder();
    let mut record = Record::open(&path_of, "").unwrap();
    let time = |sec| Stamp {
        sec,
        nsec: 999_999_999,
    };
    let meta = Meta {
        kind: Kind::Dir,
        mode: 0o7755,
        uid: u32::MAX - 1,
        gid: 2,
        size: u64::MAX,
        blocks: 3,
        mtime: time(-1),
        atime: time(2),
        ctime: time(3),
        nlink: 4,
        dev: u64::MAX,
        ino: 1 << 63,
        rdev: 5,
        unkept: Unkept::IMMUTABLE,
    };
    let dir = |name: &[u8], listing| OpenDir {
        path: path(name),
        listing,
        made: true,
        replaced: false,
        unlisted: true,
    };
    let dirs = [
        dir(b"", Listing::Changed),
        dir(b"a", Listing::Whole(meta)),
        dir(b"b", Listing::InPart),
    ];
    let put = |transaction: &Transaction<'_>| {
        dirs.iter()
            .rev()
            .try_for_each(|dir| transaction.put_directory(dir))
    };
    record.transaction(put).unwrap();
    assert_eq!(all(record.directories()), dirs);
    let other = dir(b"a", Listing::Changed);
    let found = record.transaction(|transaction| {
        let found = transaction.directory(&other.path)?;
        transaction.put_directory(&other)?;
        Ok((
            found,
            transaction.directory(&path(b"c"))?,
            transaction.directory(&other.path)?,
        ))
    });
    assert_eq!(found.unwrap(), (Some(dirs[1].clone()), None, Some(other)));
}

#[test]
fn rows_come_in_order_and_each_once_however_many_there_are() {
    let (_folder, path_of) = folder();
    let mut record = Record::open(&path_of, "").unwrap();
    let links: Vec<LinkName> = (0..2500u64)
        .map(|number| LinkName {
            id: (number % 2, number / 3),
            path: path(number.to_string().as_bytes()),
            size: number,
            there: false,
        })
        .collect();
    let put = |transaction: &Transaction<'_>| {
        links
            .iter()
            .try_for_each(|link| transaction.add_link(link))?;
        for link in &links {
            let (dir, name) = (
                path(if link.id.0 == 0 { b"" } else { b"d" }),
                name(link.path.as_bytes()),
            );
            transaction.add_extra(&dir, &name)?;
            transaction.add_extra(&dir, &name)?;
            transaction.add_no_room(&link.path)?;
            transaction.add_misspelt(&Misspelling {
                dir: dir.clone(),
                found: name.clone(),
                wanted: name.clone(),
            })?;
            transaction.add_alike(&Alike {
                dir,
                name: name.clone(),
                earlier: vec![name],
            })?;
        }
        transaction.add_no_room(&RelPath::root())
    };
    record.transaction(put).unwrap();
    let found = all(record.links());
    let mut ids: Vec<_> = found.iter().map(|link| link.id).collect();
    ids.dedup();
    let distinct: std::collections::BTreeSet<_> = links.iter().map(|link| link.id).collect();
    assert_eq!(
        (found.len(), ids.len()),
        (2500, distinct.len()),
        "names of one file follow each other"
    );
    let (extras, no_room) = (all(record.extras()), all(record.no_room()));
    assert_eq!((extras.len(), no_room.len()), (2500, 2501));
    assert!(extras.is_sorted() && no_room.is_sorted() && no_room[0].is_root());
    assert_eq!(
        (all(record.misspelt()).len(), all(record.all_alike()).len()),
        (2500, 2500)
    );
    assert!(
        record.has_alike().unwrap() && record.alike(&path(b"d"), b"no such").unwrap().is_none()
    );
}

#[test]
fn what_is_not_known_to_be_alike_is_like_nothing_and_names_keep_their_bytes() {
    let (_folder, path_of) = folder();
    let record = filled(&path_of);
    let alike = record.alike(&path(b"a"), b"X").unwrap().unwrap();
    assert_eq!(alike.earlier, [name(b"x"), name(b"\xff")]);
    assert_eq!(all(record.mounts()), [path(b"m")]);
}

#[test]
fn problems_are_kept_up_to_a_bound() {
    let (_folder, path_of) = folder();
    let mut record = Record::open(&path_of, "").unwrap();
    let many = |transaction: &Transaction<'_>| {
        (0..10_100).try_for_each(|_| transaction.add_problem(&problem(path(b"a"))))
    };
    record.transaction(many).unwrap();
    assert_eq!(
        asked::<i64>(&path_of, "SELECT count(*) FROM problems").unwrap(),
        [10_000]
    );
}

/// As it was when files said nothing of what they are.
fn layout_0(path: &Path, has_run: bool) {
    let file = Connection::open(path).unwrap();
    let script = "PRAGMA journal_mode = WAL;
        CREATE TABLE job (id INTEGER PRIMARY KEY CHECK (id = 0), run INTEGER NOT NULL, about BLOB NOT NULL);
        CREATE TABLE items (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL);
        CREATE TABLE facts (kind INTEGER, key BLOB, value BLOB NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID;
        INSERT INTO job VALUES (0, 7, 'one');";
    file.execute_batch(script).unwrap();
    if has_run {
        file.execute_batch("INSERT INTO facts VALUES (7, '1-begun', x''); INSERT INTO items (body) VALUES (x'00');").unwrap();
    }
}

fn header(path: &Path) -> (i32, i32) {
    let file = Connection::open(path).unwrap();
    let pragma = |name: &str| {
        file.pragma_query_value(None, name, |row| row.get(0))
            .unwrap()
    };
    (pragma("application_id"), pragma("user_version"))
}

#[test]
fn each_older_layout_becomes_the_newest() {
    for (has_run, found) in [(true, Found::Older), (false, Found::Nothing)] {
        let (_folder, path) = folder();
        layout_0(&path, has_run);
        let record = Record::open(&path, "one").unwrap();
        assert_eq!(
            (
                record.found(),
                record.stage().unwrap(),
                record.open_batches().unwrap()
            ),
            (found, None, 0)
        );
        drop(record);
        let (_folder, fresh) = folder();
        drop(Record::open(&fresh, "one").unwrap());
        assert_eq!(header(&path), header(&fresh));
        assert_eq!(
            layout_of(&path),
            layout_of(&fresh),
            "the way there leads to what is made anew"
        );
        drop(filled(&path));
        assert_eq!(Record::open(&path, "one").unwrap().found(), Found::Same);
    }
}

/// What a database is made of.
fn layout_of(path: &Path) -> Vec<String> {
    let parts = asked::<String>(
        path,
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY name",
    );
    parts.unwrap().iter().map(|sql| words(sql)).collect()
}

/// Without comments, and without what tells lines apart.
fn words(sql: &str) -> String {
    let lines = sql
        .lines()
        .map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    lines
        .flat_map(str::split_whitespace)
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn a_newer_layout_is_refused_with_both_numbers() {
    let (_folder, path) = folder();
    drop(filled(&path));
    let (_, known) = header(&path);
    sql(&path, "PRAGMA user_version = 1000");
    let told = Record::open(&path, "one").unwrap_err();
    assert!(
        matches!(told, StateError::Newer { found: 1000, known: here, .. } if here == known)
            && told.may_be_dropped(),
        "{told}"
    );
    assert!(
        told.to_string().contains(
            "job\": the record of the run is of a newer version of driftless: layout 1000"
        ),
        "{told}"
    );
}

#[test]
fn a_file_that_is_damaged_or_another_programs_is_refused_and_left_alone() {
    type Spoil = fn(&Path);
    let cases: [(&str, Spoil, bool); 7] = [
        (
            "no database",
            |path| {
                fs::write(
                    path,
                    "a text that is long enough to be a header of a page, and is none".repeat(99),
                )
                .unwrap()
            },
            true,
        ),
        (
            "another beginning",
            |path| change(path, |bytes| bytes[..16].fill(0xff)),
            true,
        ),
        (
            "half of it",
            |path| change(path, |bytes| bytes.truncate(bytes.len() / 2)),
            true,
        ),
        (
            "pages of noise",
            |path| {
                change(path, |bytes| {
                    bytes
                        .chunks_mut(4096)
                        .skip(1)
                        .for_each(|page| page[..64].fill(0x5a))
                })
            },
            true,
        ),
        (
            "another layout",
            |path| sql(path, "PRAGMA user_version = -1"),
            true,
        ),
        (
            "another program's",
            |path| sql(path, "PRAGMA application_id = 252006674"),
            false,
        ),
        (
            "other tables",
            |path| sql(path, "PRAGMA application_id = 0; PRAGMA user_version = 0;"),
            false,
        ),
    ];
    for (case, spoil, may_be_dropped) in cases {
        let (_folder, path) = folder();
        drop(filled(&path));
        spoil(&path);
        let before = fs::read(&path).unwrap();
        let told = Record::open(&path, "one").expect_err(case);
        assert!(
            told.is_of_the_file() && told.may_be_dropped() == may_be_dropped,
            "{case}: {told}"
        );
        let words = if may_be_dropped {
            "job\": the record of the run is damaged"
        } else {
            "job\": is not the record of a run"
        };
        assert!(told.to_string().contains(words), "{case}: {told}");
        assert!(
            fs::read(&path).unwrap() == before,
            "{case}: it was written to"
        );
    }
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn sql(path: &Path, script: &str) {
    Connection::open(path)
        .unwrap()
        .execute_batch(script)
        .unwrap();
}

#[test]
fn a_value_that_cannot_be_is_damage() {
    let (_folder, path_of) = folder();
    let record = filled(&path_of);
    sql(
        &path_of,
        "UPDATE no_room SET path = x'2e2e2f61'; UPDATE life SET process = 'x'; UPDATE extras SET name = 'text'",
    );
    assert!(matches!(
        record.no_room().next_row(),
        Err(StateError::Damaged { .. })
    ));
    assert!(matches!(record.life(), Err(StateError::Damaged { .. })));
    assert!(matches!(
        record.extras().next_row(),
        Err(StateError::Damaged { .. })
    ));
}

/// What the page says of records.
fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/state.md");
    let page = fs::read_to_string(page).unwrap();
    let (records, _mirrors) = page.split_once("\n## State of a mirror").unwrap();
    records.to_owned()
}

/// The blocks of SQL in the page: the last one draws the tables, the others are questions.
fn chapter() -> Vec<String> {
    page()
        .split("```sql\n")
        .skip(1)
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect()
}

#[test]
fn the_layout_is_the_one_that_is_drawn() {
    let (_folder, path) = folder();
    drop(filled(&path));
    let drawn = path.with_extension("drawn");
    sql(&drawn, chapter().last().unwrap());
    assert_eq!(layout_of(&drawn), layout_of(&path));
}

#[test]
fn the_page_names_the_number_of_the_layout() {
    let (_folder, path) = folder();
    drop(filled(&path));
    let (application, layout) = header(&path);
    let words = format!(
        "`PRAGMA application_id` is {application:#x} (\"drft\"), `PRAGMA user_version` is the number of the layout: {layout}."
    );
    assert!(page().contains(&words), "{words}");
}

#[test]
fn the_questions_of_the_page_are_answered() {
    let (_folder, path) = folder();
    let _record = filled(&path);
    let blocks = chapter();
    let questions = blocks[..blocks.len() - 1]
        .iter()
        .flat_map(|block| block.split(";\n"));
    let questions: Vec<&str> = questions
        .filter(|question| !question.trim().is_empty())
        .collect();
    assert!(questions.len() >= 5);
    for question in questions {
        let rows = asked::<rusqlite::types::Value>(&path, question)
            .unwrap_or_else(|error| panic!("{question}: {error}"));
        assert!(!rows.is_empty(), "{question}");
    }
}
