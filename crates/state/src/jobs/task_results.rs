//! Nodes whose results of a task go to the path of the task, and nodes with an earlier run of it.
//!
//! The rows outlive the gateway: a node that comes back after days cannot replace newer results.

use super::{JobTable, TableChange};
use crate::{StateError, StoreError};
use rusqlite::{Connection, params};

/// A node with results of a task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskResultRow {
    /// Index of the task.
    pub task: u64,
    /// Node.
    pub node: String,
    /// Whether the node had an earlier run of the task.
    pub is_earlier: bool,
}

impl JobTable {
    /// Returns the nodes with results of the tasks of a job.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn task_results(&self, mark: &str) -> Result<Vec<TaskResultRow>, StateError> {
        find(&self.file, mark).map_err(|cause| self.failed(cause))
    }

    /// Replaces the nodes of the tasks that the rows name.
    ///
    /// # Errors
    /// [`ChangeError::LeaseLost`](super::ChangeError::LeaseLost); the file cannot be written.
    pub fn set_task_results(
        &mut self,
        epoch: u64,
        mark: &str,
        rows: &[TaskResultRow],
    ) -> TableChange {
        self.lead(epoch, |transaction| {
            const DROP: &str = "DELETE FROM task_results WHERE mark = ? AND task = ?";
            const ADD: &str = "INSERT OR REPLACE INTO task_results (mark, task, node, is_earlier)
                VALUES (?, ?, ?, ?)";
            for row in rows {
                transaction.execute(DROP, params![mark, stored(row.task)])?;
            }
            for row in rows {
                let values = params![mark, stored(row.task), row.node, row.is_earlier];
                transaction.execute(ADD, values)?;
            }
            Ok(())
        })
    }
}

/// Returns an index as the file has it: the same bits.
fn stored(task: u64) -> i64 {
    i64::from_ne_bytes(task.to_ne_bytes())
}

fn find(file: &Connection, mark: &str) -> Result<Vec<TaskResultRow>, StoreError> {
    const FIND: &str = "SELECT task, node, is_earlier FROM task_results WHERE mark = ?";
    let mut find = file.prepare_cached(FIND)?;
    find.query_map([mark], |row| {
        let task: i64 = row.get(0)?;
        Ok(TaskResultRow {
            task: u64::from_ne_bytes(task.to_ne_bytes()),
            node: row.get(1)?,
            is_earlier: row.get(2)?,
        })
    })?
    .collect()
}
