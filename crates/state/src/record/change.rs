//! Changes of the record that are made together.

use super::Stage;
use super::life::{self, Life};
use super::rows::{Alike, Batch, LargeFile, LinkName, Listing, META_COLUMNS, Misspelling, OpenDir};
use super::rows::{joined, meta_values, number, open_dir, range};
use crate::StoreError;
use driftless_model::{EntryName, Problem, RelPath};
use rusqlite::types::Type;
use rusqlite::{OptionalExtension, ToSql, params, params_from_iter};
use std::ops::Range;

/// Problems that are kept for an operator who looks into the record; all of them are told when they
/// are met.
const PROBLEMS_MAX: i64 = 10_000;

/// What is known of a directory that is to be finished.
pub(super) const SELECT_DIR: &str = "SELECT path, listed, made, replaced, unlisted, kind, mode, uid, gid, size, blocks,
    mtime, mtime_nsec, atime, atime_nsec, ctime, ctime_nsec, nlink, dev, ino, rdev, unkept FROM directories";

/// What stands in the record of the run, but the run itself.
const FORGET: &str = "DELETE FROM life; DELETE FROM counts; DELETE FROM parts; DELETE FROM problems; DELETE FROM copied;
    DELETE FROM large_files; DELETE FROM links; DELETE FROM directories; DELETE FROM extras; DELETE FROM no_room; DELETE FROM mounts;
    DELETE FROM alike; DELETE FROM misspelt; UPDATE run SET stage = NULL;";

/// What is done.
type Done<T = ()> = Result<T, StoreError>;

/// Changes that are made together. Each of them fails if the record cannot be written.
#[derive(Debug)]
pub struct Transaction<'a>(rusqlite::Transaction<'a>);

impl<'a> Transaction<'a> {
    pub(super) fn of(transaction: rusqlite::Transaction<'a>) -> Self {
        Transaction(transaction)
    }

    pub(super) fn commit(self) -> Done {
        self.0.commit()
    }

    /// Drops everything, for a new run about `about`; returns its number.
    pub(super) fn empty(&self, about: &str) -> Done<u64> {
        self.0.execute_batch(FORGET)?;
        self.0
            .execute_batch("DELETE FROM batches; DELETE FROM run;")?;
        self.0.execute(
            "INSERT INTO run (id, number, about) VALUES (0, random(), ?)",
            [about],
        )?;
        self.0
            .query_row("SELECT number FROM run", [], |row| number(row, 0))
    }

    /// What stands in it cannot be understood by a coordinator that has to go on with it.
    pub fn damaged(&self, what: &str) -> StoreError {
        StoreError::FromSqlConversionFailure(0, Type::Blob, what.into())
    }

    fn put(&self, insert: &str, values: impl rusqlite::Params) -> Done {
        self.0.prepare_cached(insert)?.execute(values).map(drop)
    }

    /// Begins the walk over everything: of what was noted before, nothing is left but the run and
    /// its open batches.
    pub fn begin_walk(&self, source: &str, replica: &str, seconds: u64) -> Done {
        self.0.execute_batch(FORGET)?;
        const BEGUN: &str = "UPDATE run SET source = ?, replica = ?, begun = coalesce(begun, ?)";
        self.put(BEGUN, params![source, replica, seconds.cast_signed()])?;
        self.set_stage(Stage::Walk)
    }

    /// Notes how far the run has come.
    pub fn set_stage(&self, stage: Stage) -> Done {
        self.put("UPDATE run SET stage = ?", [stage.word()])
    }

    /// Notes that the run lives.
    pub fn set_life(&self, life: &Life) -> Done {
        life::write(&self.0, life)
    }

    /// Notes what was counted, in the place of what stood there. What is 0 has no row.
    pub fn set_counts<'c>(&self, counts: impl IntoIterator<Item = (&'c str, u64)>) -> Done {
        self.put("DELETE FROM counts", [])?;
        let mut insert = self.0.prepare_cached("INSERT INTO counts VALUES (?, ?)")?;
        let counted = counts.into_iter().filter(|(_, count)| *count != 0);
        counted.into_iter().try_for_each(|(name, count)| {
            insert.execute(params![name, count.cast_signed()]).map(drop)
        })
    }

    /// Adds an open batch; returns its number, which no other batch of the file ever has.
    pub fn add_batch(&self, batch: &Batch) -> Done<u64> {
        const INSERT: &str = "INSERT INTO batches (class, alone, what, path, pieces, entries, bytes, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
        let Batch {
            class,
            is_alone,
            what,
            path,
            pieces,
            entries,
            bytes,
            body,
        } = batch;
        let (pieces, entries, bytes) =
            (*pieces as i64, *entries as i64, bytes.map(u64::cast_signed));
        self.put(
            INSERT,
            params![
                class,
                is_alone,
                what,
                path.as_bytes(),
                pieces,
                entries,
                bytes,
                body
            ],
        )?;
        Ok(self.0.last_insert_rowid().cast_unsigned())
    }

    /// Whether a batch is open.
    pub fn is_open(&self, id: u64) -> Done<bool> {
        self.0
            .prepare_cached("SELECT 1 FROM batches WHERE id = ?")?
            .exists([id.cast_signed()])
    }

    /// Notes a part of what came of an open batch, in an attempt and with its place among the
    /// parts; `mover` says so.
    pub fn add_part(
        &self,
        (batch, attempt, number): (u64, u64, u32),
        mover: &str,
        outcome: &[u8],
    ) -> Done {
        const PUT: &str = "INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, ?)";
        self.put(
            PUT,
            params![
                batch.cast_signed(),
                attempt.cast_signed(),
                number,
                mover,
                outcome
            ],
        )
    }

    /// The parts of what came of an open batch that one attempt has said, with their places, in
    /// order.
    pub fn parts(&self, batch: u64, attempt: u64) -> Done<Vec<(u32, Vec<u8>)>> {
        let mut find = self.0.prepare_cached(
            "SELECT number, outcome FROM parts WHERE batch = ? AND attempt = ? ORDER BY number",
        )?;
        let found = find.query_map([batch.cast_signed(), attempt.cast_signed()], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
        found.collect()
    }

    /// Settles a batch, if it is open; returns what it was. The parts of all attempts at it go,
    /// too.
    pub fn settle(&self, id: u64) -> Done<Option<Vec<u8>>> {
        let mut settle = self
            .0
            .prepare_cached("DELETE FROM batches WHERE id = ? RETURNING body")?;
        settle
            .query_row([id.cast_signed()], |row| row.get(0))
            .optional()
    }

    /// Keeps a problem for an operator who looks into the record, as long as there are not too
    /// many.
    pub fn add_problem(&self, problem: &Problem) -> Done {
        const INSERT: &str =
            "INSERT INTO problems (path, side, act, cause, class) SELECT ?, ?, ?, ?, ?
            WHERE (SELECT coalesce(max(id), 0) FROM problems) < ?";
        let Problem {
            path,
            side,
            act,
            cause,
            class,
        } = problem;
        self.put(
            INSERT,
            params![
                path.as_bytes(),
                side.word(),
                act.words(),
                cause,
                class.word(),
                PROBLEMS_MAX
            ],
        )
    }

    /// One more piece of a large file is open.
    pub fn open_piece(&self, file: &LargeFile) -> Done {
        const PUT: &str = "INSERT INTO large_files (path, source, size, class, alone, pieces) VALUES (?, ?, ?, ?, ?, 1)
            ON CONFLICT (path, source) DO UPDATE SET pieces = pieces + 1";
        let LargeFile {
            path,
            source,
            size,
            class,
            is_alone,
        } = file;
        self.put(
            PUT,
            params![
                path.as_bytes(),
                source,
                size.map(u64::cast_signed),
                class,
                is_alone
            ],
        )
    }

    /// These bytes of a large file were copied, if pieces of it are open.
    pub fn add_copied(&self, (path, source): (&RelPath, &str), range: &Range<u64>) -> Done {
        const PUT: &str =
            "INSERT INTO copied SELECT id, ?, ? FROM large_files WHERE path = ? AND source = ?
            ON CONFLICT (file, first) DO UPDATE SET until = max(until, excluded.until)";
        self.put(
            PUT,
            params![
                range.start.cast_signed(),
                range.end.cast_signed(),
                path.as_bytes(),
                source
            ],
        )
    }

    /// One piece of a large file is settled. After the last one the file is forgotten, and returned
    /// with what was copied of it.
    pub fn close_piece(
        &self,
        path: &RelPath,
        source: &str,
    ) -> Done<Option<(LargeFile, Vec<Range<u64>>)>> {
        const CLOSE: &str =
            "UPDATE large_files SET pieces = max(pieces - 1, 0) WHERE path = ? AND source = ?
            RETURNING pieces, id, size, class, alone";
        let mut close = self.0.prepare_cached(CLOSE)?;
        let closed = close.query_row(params![path.as_bytes(), source], |row| {
            let size = row.get::<_, Option<i64>>(2)?.map(i64::cast_unsigned);
            let file = LargeFile {
                path: path.clone(),
                source: source.to_owned(),
                size,
                class: row.get(3)?,
                is_alone: row.get(4)?,
            };
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, file))
        });
        let Some((0, id, file)) = closed.optional()? else {
            return Ok(None);
        };
        let mut find = self
            .0
            .prepare_cached("SELECT first, until FROM copied WHERE file = ? ORDER BY first")?;
        let copied = find.query_map([id], range)?.collect::<Done<Vec<_>>>()?;
        self.put("DELETE FROM large_files WHERE id = ?", [id])?;
        Ok(Some((file, copied)))
    }

    /// Notes a name of a file that has several.
    pub fn add_link(&self, link: &LinkName) -> Done {
        let LinkName {
            id: (dev, ino),
            path,
            size,
            there,
        } = link;
        let values = params![
            dev.cast_signed(),
            ino.cast_signed(),
            path.as_bytes(),
            size.cast_signed(),
            there
        ];
        self.put(
            "INSERT OR REPLACE INTO links VALUES (?, ?, ?, ?, ?)",
            values,
        )
    }

    /// What is noted of a directory that is to be finished.
    pub fn directory(&self, path: &RelPath) -> Done<Option<OpenDir>> {
        let mut find = self
            .0
            .prepare_cached(&format!("{SELECT_DIR} WHERE path = ?"))?;
        find.query_row([path.as_bytes()], open_dir).optional()
    }

    /// Notes a directory that is to be finished, in the place of what was noted of it.
    pub fn put_directory(&self, dir: &OpenDir) -> Done {
        let (listed, meta) = match &dir.listing {
            Listing::Whole(meta) => ("whole", Some(meta)),
            Listing::Changed => ("changed", None),
            Listing::InPart => ("in part", None),
        };
        let (path, meta) = (dir.path.as_bytes(), meta_values(meta));
        let own: [&dyn ToSql; 5] = [&path, &listed, &dir.made, &dir.replaced, &dir.unlisted];
        let all = own.into_iter().chain(meta.iter().map(|value| &**value));
        let places = vec!["?"; own.len() + META_COLUMNS].join(", ");
        self.put(
            &format!("INSERT OR REPLACE INTO directories VALUES ({places})"),
            params_from_iter(all),
        )
    }

    /// Notes a name that the source lacks.
    pub fn add_extra(&self, dir: &RelPath, name: &EntryName) -> Done {
        self.put(
            "INSERT OR IGNORE INTO extras VALUES (?, ?)",
            params![dir.as_bytes(), name.as_bytes()],
        )
    }

    /// Notes an entry for which there was no room.
    pub fn add_no_room(&self, path: &RelPath) -> Done {
        self.put(
            "INSERT OR IGNORE INTO no_room VALUES (?)",
            [path.as_bytes()],
        )
    }

    /// Notes a path below the source on which a file system is mounted.
    pub fn add_mount(&self, path: &RelPath) -> Done {
        self.put("INSERT OR IGNORE INTO mounts VALUES (?)", [path.as_bytes()])
    }

    /// Notes a name that the replica may take for one with others.
    pub fn add_alike(&self, alike: &Alike) -> Done {
        let Alike { dir, name, earlier } = alike;
        let values = params![dir.as_bytes(), name.as_bytes(), joined(earlier)];
        self.put("INSERT OR REPLACE INTO alike VALUES (?, ?, ?)", values)
    }

    /// Notes what is to be respelt.
    pub fn add_misspelt(&self, one: &Misspelling) -> Done {
        let values = params![
            one.dir.as_bytes(),
            one.found.as_bytes(),
            one.wanted.as_bytes()
        ];
        self.put("INSERT OR IGNORE INTO misspelt VALUES (?, ?, ?)", values)
    }
}
