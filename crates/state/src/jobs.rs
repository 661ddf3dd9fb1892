//! The jobs of gateways: what users asked for, where each job stands, and which gateway acts. Several
//! gateways on several hosts share the file.
//!
//! Any gateway adds jobs. Only the holder of the lease changes them: each change states the epoch of
//! the lease, in the same transaction. A gateway that was stopped for long changes nothing any more.

mod rows;
mod schema;
mod task_results;

use crate::columns::{capped, count, millis};
use crate::{StateError, StateFile, StoreError, file};
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use rows::{BatchJobRow, JobNodeRow, JobNodeState, JobStage, LeaseRow, ResultRow};
pub use task_results::TaskResultRow;

/// The table of jobs.
#[derive(Debug)]
pub struct JobTable {
    path: PathBuf,
    file: Connection,
    /// Rows that the holder of the lease changed through this value.
    led: u64,
}

/// Jobs of one user that are not closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UserLoad {
    /// Jobs.
    pub open: u64,
    /// Those of them that wait for their number.
    pub prepared: u64,
    /// Bytes of their requests.
    pub request_bytes: u64,
}

/// A job that a user asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob<'a> {
    /// Mark, 16 hexadecimal digits.
    pub mark: &'a str,
    /// UID of the user.
    pub uid: u32,
    /// Name of the user.
    pub owner: &'a str,
    /// Batch system, as the gateway calls it.
    pub system: &'a str,
    /// Request of the user, in the form of the gateway.
    pub request: &'a [u8],
    /// Time since 1970.
    pub now: Duration,
}

/// Change of a job by the holder of the lease. A job that the table lacks stays absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobChange {
    /// The data set of the job.
    Data {
        /// Mark.
        mark: String,
        /// Root hash.
        hash: String,
        /// Bytes of content.
        bytes: u64,
    },
    /// Nodes of the job. Its other nodes stay as they are.
    Nodes {
        /// Mark.
        mark: String,
        /// Nodes.
        rows: Vec<JobNodeRow>,
    },
    /// The stage of the job.
    Stage {
        /// Mark.
        mark: String,
        /// Stage.
        stage: JobStage,
        /// Time since 1970.
        now: Duration,
    },
    /// The slot of the job.
    Slot {
        /// Mark.
        mark: String,
        /// Number of the slot.
        slot: Option<u32>,
        /// Whether the job demands it already, or excludes nodes.
        is_required: bool,
    },
    /// The last problem of the job, or that there is none.
    Fault {
        /// Mark.
        mark: String,
        /// Cause and remedy.
        fault: Option<String>,
    },
    /// Results that arrived from a node: entries and bytes are added to those of earlier attempts.
    Results {
        /// Mark.
        mark: String,
        /// The outcome of the last attempt.
        row: ResultRow,
    },
}

impl JobChange {
    /// Returns the mark of the job.
    pub fn mark(&self) -> &str {
        match self {
            JobChange::Data { mark, .. }
            | JobChange::Nodes { mark, .. }
            | JobChange::Stage { mark, .. }
            | JobChange::Slot { mark, .. }
            | JobChange::Fault { mark, .. }
            | JobChange::Results { mark, .. } => mark,
        }
    }
}

/// Error of a change by the holder of the lease.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// Another gateway holds the lease now. Nothing was changed.
    #[error("another gateway took over; this one waits")]
    LeaseLost,
    /// The file failed.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Result of a change by the holder of the lease.
pub type TableChange = Result<(), ChangeError>;

impl JobTable {
    /// Opens the table at `path`, or makes it.
    ///
    /// # Errors
    /// The file cannot be opened or written, is damaged, of a newer version or of another program.
    pub fn open(path: &Path) -> Result<JobTable, StateError> {
        Ok(JobTable {
            path: path.to_owned(),
            file: schema::open(path)?,
            led: 0,
        })
    }

    /// Returns the name of the gateways that share this file: 8 hexadecimal digits. Names of jobs on
    /// nodes begin with it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn gateways(&self) -> Result<String, StateError> {
        const FIND: &str = "SELECT name FROM gateways WHERE one = 1";
        let found = self.file.query_row(FIND, [], |row| row.get(0));
        found.map_err(|cause| self.failed(cause))
    }

    /// Adds a job in the stage [`JobStage::Prepared`].
    ///
    /// # Errors
    /// The mark is taken; the file cannot be written.
    pub fn add(&mut self, new: &NewJob<'_>) -> Result<(), StateError> {
        const ADD: &str =
            "INSERT INTO jobs (mark, uid, owner, system, request, made_ms, changed_ms)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)";
        let now = millis(new.now);
        let values = params![new.mark, new.uid, new.owner, new.system, new.request, now];
        self.change(|transaction| transaction.execute(ADD, values).map(drop))
    }

    /// Removes a job of a user that was never submitted. Returns whether there was one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn abandon(&mut self, mark: &str, uid: u32) -> Result<bool, StateError> {
        const DROP: &str = "DELETE FROM jobs WHERE mark = ? AND uid = ? AND stage = 'prepared'";
        self.change(|transaction| {
            transaction
                .execute(DROP, params![mark, uid])
                .map(|count| count > 0)
        })
    }

    /// Notes the number that a client states for its job. Returns whether the user has such a job. The
    /// holder of the lease asks the batch system before it believes the number.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn claim(&mut self, mark: &str, uid: u32, number: &str) -> Result<bool, StateError> {
        const SET: &str =
            "UPDATE jobs SET number = ? WHERE mark = ? AND uid = ? AND stage = 'prepared'";
        const FIND: &str = "SELECT count(*) FROM jobs WHERE mark = ? AND uid = ?";
        self.change(|transaction| {
            transaction.execute(SET, params![number, mark, uid])?;
            let count = transaction.query_row(FIND, params![mark, uid], |row| row.get::<_, i64>(0));
            count.map(|count| count > 0)
        })
    }

    /// Returns the jobs that are not closed, the oldest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open_jobs(&self) -> Result<Vec<BatchJobRow>, StateError> {
        let which = "WHERE stage <> 'closed' ORDER BY made_ms, mark";
        rows::jobs(&self.file, which, params![]).map_err(|cause| self.failed(cause))
    }

    /// Returns how many jobs of a user are not closed.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load_of(&self, uid: u32) -> Result<UserLoad, StateError> {
        const COUNT: &str = "SELECT count(*), count(*) FILTER (WHERE stage = 'prepared'),
            coalesce(sum(length(request)), 0) FROM jobs WHERE uid = ? AND stage <> 'closed'";
        let found = self.file.prepare_cached(COUNT);
        let found = found.and_then(|mut find| {
            find.query_row([uid], |row| {
                Ok(UserLoad {
                    open: count(row, 0)?,
                    prepared: count(row, 1)?,
                    request_bytes: count(row, 2)?,
                })
            })
        });
        found.map_err(|cause| self.failed(cause))
    }

    /// Returns the jobs that are closed, the oldest first, without their requests.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn closed_jobs(&self) -> Result<Vec<BatchJobRow>, StateError> {
        let which = "WHERE stage = 'closed' AND number IS NOT NULL ORDER BY made_ms, mark";
        let found = rows::jobs(&self.file, which, params![]);
        let mut found = found.map_err(|cause| self.failed(cause))?;
        found.iter_mut().for_each(|row| row.request = Vec::new());
        Ok(found)
    }

    /// Returns all jobs of a user, or of all users, the oldest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn jobs_of(&self, uid: Option<u32>) -> Result<Vec<BatchJobRow>, StateError> {
        let which = "WHERE ?1 IS NULL OR uid = ?1 ORDER BY made_ms, mark";
        rows::jobs(&self.file, which, params![uid]).map_err(|cause| self.failed(cause))
    }

    /// Returns a job; `None` if no job has this mark.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn find(&self, mark: &str) -> Result<Option<BatchJobRow>, StateError> {
        let found = rows::jobs(&self.file, "WHERE mark = ?", params![mark]);
        found
            .map(|mut jobs| jobs.pop())
            .map_err(|cause| self.failed(cause))
    }

    /// Returns the nodes of a job, in the order of their names.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn nodes(&self, mark: &str) -> Result<Vec<JobNodeRow>, StateError> {
        rows::nodes(&self.file, mark).map_err(|cause| self.failed(cause))
    }

    /// Returns the results of a job that were collected, in the order of the nodes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn results(&self, mark: &str) -> Result<Vec<ResultRow>, StateError> {
        rows::results(&self.file, mark).map_err(|cause| self.failed(cause))
    }

    /// Returns the nodes of all jobs that are not closed, each with the mark of its job.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open_nodes(&self) -> Result<Vec<(String, JobNodeRow)>, StateError> {
        rows::open_nodes(&self.file).map_err(|cause| self.failed(cause))
    }

    /// Returns a number that differs after each change by clients of this process, and by other processes
    /// (sqlite.org/pragma.html, "data_version", and sqlite.org/c3ref/total_changes.html). The holder
    /// of the lease knows its own changes, and these do not count: a renewal of the lease changes no job.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn version_of_others(&self) -> Result<(i64, u64), StateError> {
        const OF_OTHERS: &str = "SELECT data_version FROM pragma_data_version";
        let found = self.file.prepare_cached(OF_OTHERS);
        let found = found.and_then(|mut find| find.query_row([], |row| row.get(0)));
        let version = found.map_err(|cause| self.failed(cause))?;
        Ok((version, self.file.total_changes().wrapping_sub(self.led)))
    }

    /// Returns the lease; `None` if no gateway ever held it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn lease(&self) -> Result<Option<LeaseRow>, StateError> {
        let found = self.file.query_row(
            "SELECT epoch, beat, holder FROM lease WHERE one = 1",
            [],
            rows::lease,
        );
        found.optional().map_err(|cause| self.failed(cause))
    }

    /// Takes the lease if it still is what the caller saw, and returns the new epoch. The caller saw
    /// no renewal for longer than a lease lasts.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn take_lease(
        &mut self,
        seen: Option<&LeaseRow>,
        holder: &str,
    ) -> Result<Option<u64>, StateError> {
        let (epoch, beat) = seen.map_or((0, 0), |lease| (lease.epoch, lease.beat));
        let next = epoch.saturating_add(1);
        self.change(|transaction| {
            const TAKE: &str = "UPDATE lease SET epoch = ?1, beat = 0, holder = ?2
                WHERE one = 1 AND epoch = ?3 AND beat = ?4";
            const MAKE: &str =
                "INSERT OR IGNORE INTO lease (one, epoch, beat, holder) VALUES (1, ?1, 0, ?2)";
            let taken = match seen {
                Some(_) => transaction.execute(
                    TAKE,
                    params![capped(next), holder, capped(epoch), capped(beat)],
                ),
                None => transaction.execute(MAKE, params![capped(next), holder]),
            };
            taken.map(|count| (count > 0).then_some(next))
        })
    }

    /// Renews the lease of an epoch.
    ///
    /// # Errors
    /// [`ChangeError::LeaseLost`]; the file cannot be written.
    pub fn renew(&mut self, epoch: u64) -> TableChange {
        self.lead(epoch, |transaction| {
            const RENEW: &str = "UPDATE lease SET beat = beat + 1 WHERE one = 1";
            transaction.execute(RENEW, []).map(drop)
        })
    }

    /// Ends a lease, so that another gateway takes it at once.
    ///
    /// # Errors
    /// [`ChangeError::LeaseLost`]; the file cannot be written.
    pub fn end_lease(&mut self, epoch: u64) -> TableChange {
        self.lead(epoch, |transaction| {
            const END: &str = "UPDATE lease SET holder = '' WHERE one = 1";
            transaction.execute(END, []).map(drop)
        })
    }

    /// Notes the number of a job that the batch system holds: the job begins to load.
    ///
    /// # Errors
    /// [`ChangeError::LeaseLost`]; the file cannot be written.
    pub fn note_held(
        &mut self,
        epoch: u64,
        mark: &str,
        number: &str,
        now: Duration,
    ) -> TableChange {
        self.lead(epoch, |transaction| {
            const SET: &str = "UPDATE jobs SET number = ?, stage = 'loading', changed_ms = ?
                WHERE mark = ? AND stage = 'prepared'";
            let values = params![number, millis(now), mark];
            transaction.execute(SET, values).map(drop)
        })
    }

    /// Makes changes of jobs in their order, all or none.
    ///
    /// # Errors
    /// [`ChangeError::LeaseLost`]; the file cannot be written.
    pub fn change_jobs(&mut self, epoch: u64, changes: &[JobChange]) -> TableChange {
        self.lead(epoch, |transaction| {
            let mut changes = changes.iter();
            changes.try_for_each(|change| rows::change(transaction, change))
        })
    }

    /// Adds results of a job that arrived from a node, and notes the outcome of the attempt.
    ///
    /// # Errors
    /// [`ChangeError::LeaseLost`]; the file cannot be written.
    pub fn add_results(&mut self, epoch: u64, mark: &str, row: &ResultRow) -> TableChange {
        let (mark, row) = (mark.to_owned(), row.clone());
        self.change_jobs(epoch, &[JobChange::Results { mark, row }])
    }

    /// Removes the rows of jobs that were closed, or prepared and never submitted, before a time since
    /// 1970.
    ///
    /// # Errors
    /// [`ChangeError::LeaseLost`]; the file cannot be written.
    pub fn forget(&mut self, epoch: u64, stage: JobStage, before: Duration) -> TableChange {
        self.lead(epoch, |transaction| {
            const DROP: &str = "DELETE FROM jobs WHERE stage = ? AND changed_ms < ?";
            let values = params![stage.word(), millis(before)];
            transaction.execute(DROP, values).map(drop)
        })
    }

    /// Changes rows if the epoch is that of the lease.
    fn lead(
        &mut self,
        epoch: u64,
        change: impl FnOnce(&Transaction<'_>) -> Result<(), StoreError>,
    ) -> TableChange {
        let before = self.file.total_changes();
        let is_led = self.change(|transaction| {
            let current = transaction
                .query_row("SELECT epoch FROM lease WHERE one = 1", [], |row| {
                    row.get::<_, i64>(0)
                })
                .optional()?;
            let is_led = current == Some(capped(epoch));
            if is_led {
                change(transaction)?;
            }
            Ok(is_led)
        })?;
        let changed = self.file.total_changes().wrapping_sub(before);
        self.led = self.led.wrapping_add(changed);
        is_led.then_some(()).ok_or(ChangeError::LeaseLost)
    }

    fn change<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StateError> {
        let done = file::change(&mut self.file, change);
        done.map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: StoreError) -> StateError {
        StateError::of(StateFile::Jobs, &self.path, cause)
    }
}
