//! The state of a mirror: what is left to do for it, where its detectors are, and what became of it
//! hour by hour. It survives the process that keeps it, and others may read it meanwhile.
//!
//! What belongs together is saved together ([`MirrorState::save`]): all of it or nothing, and it is
//! durable when the call returns. So a position of a detector is never newer than the dirty paths
//! that it has told of. A row that cannot be read is an error and no gap. What follows from the
//! rows, the mirror decides.

mod rows;
mod save;
mod schema;

use crate::columns::{bad, capped, count, hex, millis};
use crate::{StateError, StateFile, StoreError, file};
use driftless_model::Lag;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use rows::{
    About, BacklogRow, COMPLETE, CommonRow, Cursor, DirtyRow, GapRow, HourRow, INTERRUPTED, JobRow,
    ProblemRow, Role, RoleRow, RunCounts, RunKind, RunRow,
};
pub use save::{BACKLOG_KEPT_MAX, EqualUntil, HOURS_KEPT_MAX, PROBLEMS_KEPT_MAX, Saved};

/// Runs that are kept: the newest.
pub const RUNS_KEPT_MAX: u64 = 10_000;

/// What stood in a state when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Nothing: the mirror begins.
    Nothing,
    /// The state of the same job.
    Same,
}

/// The state of one mirror, for the process that keeps it.
#[derive(Debug)]
pub struct MirrorState(MirrorView);

/// The state of one mirror, to be read.
#[derive(Debug)]
pub struct MirrorView {
    path: PathBuf,
    file: Connection,
}

impl Deref for MirrorState {
    type Target = MirrorView;

    fn deref(&self) -> &MirrorView {
        &self.0
    }
}

impl MirrorState {
    /// Opens the state at `path`, or makes it; `now` is when. Only the process that runs the mirror
    /// does that: runs that have not ended are taken for [`INTERRUPTED`].
    ///
    /// # Errors
    /// It cannot be opened or written; it is damaged, of a newer version, of a job with other trees
    /// or of another program, and is as it was.
    pub fn open(
        path: &Path,
        about: &About,
        now: Duration,
    ) -> Result<(MirrorState, Found), StateError> {
        let (file, _) = schema::open(path)?;
        let path = path.to_owned();
        let mut state = MirrorState(MirrorView { path, file });
        let found = match state.held()? {
            None => Found::Nothing,
            Some(held) => {
                state.refuse_other(held, about)?;
                Found::Same
            }
        };
        state.change(|transaction| {
            const BEGIN: &str = "INSERT INTO job (id, name, source, replica, since_ms)
                VALUES (0, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name";
            let About {
                name,
                source,
                replica,
            } = about;
            transaction.execute(BEGIN, params![name, source, replica, millis(now)])?;
            const CUT_OFF: &str = "UPDATE runs SET end = ? WHERE ended_ms IS NULL AND end IS NULL";
            transaction.execute(CUT_OFF, [INTERRUPTED]).map(drop)
        })?;
        Ok((state, found))
    }

    /// Opens the state at `path` to read it, whether or not a mirror writes to it meanwhile.
    ///
    /// # Errors
    /// It is not there or cannot be read; it is not complete yet, of a newer version or of another
    /// program.
    pub fn look(path: &Path) -> Result<MirrorView, StateError> {
        let file = schema::look(path)?;
        let path = path.to_owned();
        let view = MirrorView { path, file };
        match view.held()? {
            Some(_) => Ok(view),
            None => Err(StateError::Unready {
                file: StateFile::Mirror,
                path: view.path,
            }),
        }
    }

    /// Makes changes together; returns the numbers of the new gaps, in their order.
    ///
    /// # Errors
    /// None of them was made.
    pub fn save(&mut self, saved: &Saved) -> Result<Vec<u64>, StateError> {
        self.change(|transaction| save::write(transaction, saved))
    }

    /// Notes which replica is filled, by the identity in its mark; `None` if that is not known.
    ///
    /// # Errors
    /// It is as it was.
    pub fn know(&mut self, mark: Option<u128>) -> Result<(), StateError> {
        let text = mark.map(hex);
        self.change(|transaction| {
            let done = transaction.execute("UPDATE job SET mark = ?", [text]);
            done.map(drop)
        })
    }

    /// Notes that the mirror is paused since this moment, or (`None`) that it is not. One that is
    /// paused already is so since the earlier moment.
    ///
    /// # Errors
    /// It is as it was.
    pub fn pause(&mut self, since: Option<Duration>) -> Result<(), StateError> {
        const PAUSE: &str = "UPDATE job SET paused_ms =
            CASE WHEN ?1 IS NULL THEN NULL ELSE coalesce(paused_ms, ?1) END";
        self.change(|transaction| {
            let done = transaction.execute(PAUSE, [since.map(millis)]);
            done.map(drop)
        })
    }

    /// Notes whether all that was changed on the replica was told others.
    ///
    /// # Errors
    /// It is as it was.
    pub fn tell_all(&mut self, has_told_all: bool) -> Result<(), StateError> {
        self.change(|transaction| {
            let done = transaction.execute("UPDATE job SET has_told_all = ?", [has_told_all]);
            done.map(drop)
        })
    }

    /// Notes what the replica is from now on, together with other changes. What becomes of it then,
    /// others are not told.
    ///
    /// # Errors
    /// All is as it was.
    pub fn take_role(&mut self, row: &RoleRow, saved: &Saved) -> Result<(), StateError> {
        const TAKE: &str = "UPDATE job SET role = ?, role_since_ms = ?, role_to = ?,
            has_told_all = 0";
        let values = params![row.role.word(), row.since.map(millis), row.to];
        self.change(|transaction| {
            transaction.execute(TAKE, values)?;
            save::write(transaction, saved).map(drop)
        })
    }

    /// Notes that a run begins; returns its number. The oldest run goes if there are too many.
    ///
    /// # Errors
    /// It is not noted.
    pub fn begin_run(&mut self, kind: RunKind, begun: Duration) -> Result<u64, StateError> {
        self.change(|transaction| {
            const BEGIN: &str = "INSERT INTO runs (kind, begun_ms) VALUES (?, ?)";
            transaction.execute(BEGIN, params![kind.word(), millis(begun)])?;
            let id = transaction.last_insert_rowid();
            let gone = [id.saturating_sub(capped(RUNS_KEPT_MAX))];
            transaction.execute("DELETE FROM runs WHERE id <= ?", gone)?;
            Ok(id.cast_unsigned())
        })
    }

    /// Notes how a run ended, in a word, and what came of it. One that is not kept any more stays
    /// so.
    ///
    /// # Errors
    /// It is not noted.
    pub fn end_run(
        &mut self,
        id: u64,
        ended: Duration,
        counts: &RunCounts,
        end: &str,
    ) -> Result<(), StateError> {
        const END: &str = "UPDATE runs SET ended_ms = ?, seen = ?, changed = ?, deleted = ?,
            failed = ?, bytes = ?, missed = ?, others = ?, end = ?
            WHERE id = ?";
        let values = params![
            millis(ended),
            capped(counts.seen),
            capped(counts.changed),
            capped(counts.deleted),
            capped(counts.failed),
            capped(counts.bytes),
            capped(counts.missed),
            capped(counts.foreign),
            end,
            capped(id)
        ];
        self.change(|transaction| transaction.execute(END, values).map(drop))
    }

    fn change<T>(
        &mut self,
        change: impl FnOnce(&rusqlite::Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StateError> {
        let done = file::change(&mut self.0.file, change);
        self.told(done)
    }
}

impl MirrorView {
    fn held(&self) -> Result<Option<JobRow>, StateError> {
        let held = self.file.query_row(rows::SELECT_JOB, [], rows::job);
        self.told(held.optional())
    }

    /// Refuses the state of a mirror of other trees.
    ///
    /// # Errors
    /// The trees are others, or the state cannot be read.
    pub fn refuse_other_trees(&self, about: &About) -> Result<(), StateError> {
        self.refuse_other(self.job()?, about)
    }

    fn refuse_other(&self, held: JobRow, about: &About) -> Result<(), StateError> {
        let found = held.about;
        if (&found.source, &found.replica) == (&about.source, &about.replica) {
            return Ok(());
        }
        Err(StateError::OtherTrees {
            path: self.path.clone(),
            found: Box::new(found),
            wanted: Box::new(about.clone()),
        })
    }

    /// The job.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn job(&self) -> Result<JobRow, StateError> {
        self.held()?.ok_or_else(|| StateError::Unready {
            file: StateFile::Mirror,
            path: self.path.clone(),
        })
    }

    /// Paths that may differ, in order.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn dirty(&self) -> Result<Vec<DirtyRow>, StateError> {
        self.list(rows::SELECT_DIRTY, [], rows::dirty)
    }

    /// Problems that have not gone away, in the order of their paths.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn problems(&self) -> Result<Vec<ProblemRow>, StateError> {
        self.list(rows::SELECT_PROBLEMS, [], rows::problem)
    }

    /// Up to where a detector was heard; nothing if it never was.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn cursor(&self, detector: &str) -> Result<Option<Cursor>, StateError> {
        const SELECT: &str = "SELECT detector, position, at_ms FROM cursors WHERE detector = ?";
        Ok(self.list(SELECT, [detector], rows::cursor)?.pop())
    }

    /// What has not been walked yet, the oldest first.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn gaps(&self) -> Result<Vec<GapRow>, StateError> {
        self.list(rows::SELECT_GAPS, [], rows::gap)
    }

    /// The newest runs, at most so many, the newest first.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn runs(&self, newest_max: u64) -> Result<Vec<RunRow>, StateError> {
        self.list(rows::SELECT_RUNS, [capped(newest_max)], rows::run)
    }

    /// How long changes took to the replica in these hours (since 1970), together.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn lag_between(&self, hours: Range<u64>) -> Result<Lag, StateError> {
        const SELECT: &str = "SELECT bucket, count FROM lag WHERE hour >= ? AND hour < ?";
        let range = [capped(hours.start), capped(hours.end)];
        let buckets = self.list(SELECT, range, |row| {
            // A number that is none of a bucket is refused with those that are too large.
            let bucket = usize::try_from(count(row, 0)?).unwrap_or(usize::MAX);
            Ok((bucket, count(row, 1)?))
        })?;
        let longest = self.hours_between(hours)?.iter().map(|hour| hour.max).max();
        let lag = Lag::of(buckets, longest.unwrap_or_default())
            .ok_or_else(|| bad(0, Type::Integer, "there is no such bucket"));
        self.told(lag)
    }

    /// What was done in these hours (since 1970); an hour in which nothing was done has no row.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn hours_between(&self, hours: Range<u64>) -> Result<Vec<HourRow>, StateError> {
        let range = [capped(hours.start), capped(hours.end)];
        self.list(rows::SELECT_HOURS, range, rows::hour)
    }

    /// What was left to do in these stretches (since 1970); one in which no mirror ran has no row.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn backlog_between(&self, stretches: Range<u64>) -> Result<Vec<BacklogRow>, StateError> {
        let range = [capped(stretches.start), capped(stretches.end)];
        self.list(rows::SELECT_BACKLOG, range, rows::backlog)
    }

    /// Snapshots that source and replica have in common, the oldest first.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn common(&self) -> Result<Vec<CommonRow>, StateError> {
        self.list(rows::SELECT_COMMON, [], rows::common)
    }

    fn list<T>(
        &self,
        select: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StateError> {
        let mut find = self.told(self.file.prepare_cached(select))?;
        let found = find.query_map(values, read).and_then(Iterator::collect);
        self.told(found)
    }

    /// What SQLite answers; an error names the file.
    fn told<T>(&self, answer: Result<T, StoreError>) -> Result<T, StateError> {
        answer.map_err(|cause| StateError::of(StateFile::Mirror, &self.path, cause))
    }
}
