//! The state of the agent of a node: what it was told and no mirror has taken yet, and where it may
//! have missed something. It survives the process that keeps it, and others may read it meanwhile.
//!
//! What is saved together ([`WatchState::save`]) is durable when the call returns, all of it or
//! nothing. What follows from the rows, the agent decides.

mod rows;
mod schema;

use crate::columns::{capped, millis};
use crate::{StateError, StateFile, StoreError, file};
use rusqlite::{Connection, Row, Transaction, params};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use rows::{TreeRow, WaitingRow};

/// The state of an agent, for the process that keeps it.
#[derive(Debug)]
pub struct WatchState(WatchView);

/// The state of an agent, to be read.
#[derive(Debug)]
pub struct WatchView {
    path: PathBuf,
    file: Connection,
}

/// Changes of the state that are made together: all or none. What is taken away goes first.
#[derive(Debug, Clone, Default)]
pub struct Saved {
    /// Numbers of trees of which nothing waits any more.
    pub emptied: Vec<u64>,
    /// Numbers of rows that do not wait any more.
    pub gone: Vec<u64>,
    /// Rows that wait.
    pub waiting: Vec<WaitingRow>,
    /// What is known of trees, in the place of what was saved.
    pub trees: Vec<TreeRow>,
}

impl Saved {
    /// Whether there is nothing to be saved.
    pub fn is_empty(&self) -> bool {
        self.emptied.is_empty()
            && self.gone.is_empty()
            && self.waiting.is_empty()
            && self.trees.is_empty()
    }
}

impl Deref for WatchState {
    type Target = WatchView;

    fn deref(&self) -> &WatchView {
        &self.0
    }
}

impl WatchState {
    /// Opens the state at `path`, or makes it.
    ///
    /// # Errors
    /// It cannot be opened or written; it is damaged, of a newer version or of another program, and
    /// is as it was.
    pub fn open(path: &Path) -> Result<WatchState, StateError> {
        let file = schema::open(path)?;
        let path = path.to_owned();
        Ok(WatchState(WatchView { path, file }))
    }

    /// Opens the state at `path` to read it, whether or not an agent writes to it meanwhile.
    ///
    /// # Errors
    /// It is not there or cannot be read; it is of another version or of another program.
    pub fn look(path: &Path) -> Result<WatchView, StateError> {
        let file = schema::look(path)?;
        let path = path.to_owned();
        Ok(WatchView { path, file })
    }

    /// Has the state know these trees, at `now`, and no others; returns them in this order, each
    /// with whether it is new.
    ///
    /// # Errors
    /// All is as it was.
    pub fn take_trees(
        &mut self,
        paths: &[Vec<u8>],
        now: Duration,
    ) -> Result<Vec<(TreeRow, bool)>, StateError> {
        let known = self.trees()?;
        self.change(|transaction| {
            for row in known.iter().filter(|row| !paths.contains(&row.path)) {
                transaction.execute("DELETE FROM trees WHERE id = ?", [capped(row.id)])?;
            }
            let mut taken = Vec::new();
            for path in paths {
                match known.iter().find(|row| row.path == *path) {
                    Some(row) => taken.push((row.clone(), false)),
                    None => {
                        const NEW: &str = "INSERT INTO trees (path, since_ms) VALUES (?, ?)";
                        transaction.execute(NEW, params![path, millis(now)])?;
                        let id = transaction.last_insert_rowid().cast_unsigned();
                        taken.push((TreeRow::new(id, path.clone(), now), true));
                    }
                }
            }
            Ok(taken)
        })
    }

    /// Makes changes together.
    ///
    /// # Errors
    /// None of them was made.
    pub fn save(&mut self, saved: &Saved) -> Result<(), StateError> {
        self.change(|transaction| rows::write(transaction, saved))
    }

    fn change<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StateError> {
        let done = file::change(&mut self.0.file, change);
        self.told(done)
    }
}

impl WatchView {
    /// The trees, in the order in which they came.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn trees(&self) -> Result<Vec<TreeRow>, StateError> {
        self.list(rows::SELECT_TREES, rows::tree)
    }

    /// What waits, in the order in which it was told.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn waiting(&self) -> Result<Vec<WaitingRow>, StateError> {
        self.list(rows::SELECT_WAITING, rows::waiting)
    }

    /// How much waits of each tree, by its number.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn counts(&self) -> Result<Vec<(u64, u64)>, StateError> {
        const COUNT: &str = "SELECT tree, count(*) FROM waiting GROUP BY tree ORDER BY tree";
        self.list(COUNT, rows::counts)
    }

    fn list<T>(
        &self,
        select: &str,
        read: impl FnMut(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StateError> {
        let mut find = self.told(self.file.prepare_cached(select))?;
        let found = find.query_map([], read).and_then(Iterator::collect);
        self.told(found)
    }

    /// What SQLite answers; an error names the file.
    fn told<T>(&self, answer: Result<T, StoreError>) -> Result<T, StateError> {
        answer.map_err(|cause| StateError::of(StateFile::Watch, &self.path, cause))
    }
}
