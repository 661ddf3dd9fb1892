//! References of jobs to copies, and what follows from them: the ACLs of closed copies, and the links
//! with the names of the jobs.
//!
//! The index changes first. A process that is killed before the ACL and the link have followed leaves
//! them to the next sweep.

use crate::error::{Result, own_file};
use crate::node::NodeFiles;
use crate::purge::purge_copy;
use crate::remove::StayingCopy;
use crate::store::NodeStore;
use driftless_model::{Act, Fault, Side, errno, escape_text};
use driftless_state::holdings::{CopyRow, JobReference};
use driftless_tree::{Lock, Reach};
use std::time::{Duration, Instant};

/// Longest wait for another process that changes ACLs and links.
const ALONE_MAX: Duration = Duration::from_secs(60);
/// Time between two repairs of all ACLs and links.
const SETTLE_INTERVAL: Duration = Duration::from_secs(60);
/// Pause between two attempts.
const ALONE_PAUSE: Duration = Duration::from_millis(5);

/// The outcome of the end of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobEnd {
    /// Copies that were removed.
    pub copies: u64,
    /// Bytes of content of these copies.
    pub bytes: u64,
    /// Entries that stay in the place of these copies, because the store did not place them.
    pub entries_kept: u64,
    /// Copies that another job, a pin or a lifetime keeps. The reference of the job has ended.
    pub kept: Vec<StayingCopy>,
    /// Copies that could not be removed. The reference of the job stays, for the next attempt.
    pub staying: Vec<StayingCopy>,
}

impl NodeStore {
    /// Notes that a job uses a copy: it is not evicted before the job ends. The link `jobs/NAME` leads
    /// to the copy then, if it is cached and the name can be that of a file. With a reader, this user
    /// may open the copy.
    ///
    /// # Errors
    /// The index cannot be written; [`Error::NoAcls`](crate::Error::NoAcls);
    /// [`Error::Occupied`](crate::Error::Occupied) if another entry stands at the name of the job.
    pub fn add_job(&self, copy: u64, job: &str, reader: Option<u32>) -> Result<()> {
        let reference = JobReference { job, reader };
        let now = self.files.now();
        self.files.index.lock().add_job(copy, &reference, now)?;
        let row = self.files.row(copy)?;
        self.files.alone(|| {
            self.files.settle_readers(&row)?;
            self.files.settle_link(job)
        })
    }

    /// Notes that a job has ended; returns the copies that it used.
    ///
    /// # Errors
    /// The index cannot be written; an ACL or a link cannot be changed.
    pub fn end_job(&self, job: &str) -> Result<Vec<u64>> {
        let copies = self.files.index.lock().end_job(job)?;
        for copy in &copies {
            let row = self.files.index.lock().find(*copy)?;
            if let Some(row) = row {
                self.files.settle(&row, [job])?;
            }
        }
        Ok(copies)
    }

    /// Ends a job, and removes its copies that no other job, no pin and no lifetime keeps. While its
    /// outbox has entries, or results are sealed, the job and all its copies stay.
    ///
    /// # Errors
    /// The index cannot be read or written; an ACL, a link or the outbox cannot be changed.
    pub fn finish_job(&self, job: &str) -> Result<JobEnd> {
        let mut end = JobEnd::default();
        if let Some(cause) = self.files.end_outbox(job)? {
            let newest = self.files.index.lock().newest_of_job(job)?;
            end.staying.push(StayingCopy {
                copy: newest.map_or(0, |row| row.id),
                cause,
                is_busy: false,
            });
            return Ok(end);
        }
        for row in self.copies()? {
            if !row.jobs.iter().any(|other| other == job) {
                continue;
            }
            if let Some(cause) = self.keeper(&row, job) {
                self.files.index.lock().end_reference(row.id, job)?;
                self.files.settle(&row, [job])?;
                end.kept.push(StayingCopy {
                    copy: row.id,
                    cause,
                    is_busy: false,
                });
                continue;
            }
            match purge_copy(&self.files, &row) {
                Ok(report) => {
                    end.copies = end.copies.saturating_add(report.copies);
                    end.bytes = end.bytes.saturating_add(report.bytes);
                    end.entries_kept = end.entries_kept.saturating_add(report.kept);
                }
                Err(error) => end.staying.push(StayingCopy::of(row.id, &error)),
            }
        }
        Ok(end)
    }

    /// Returns what keeps a copy when a job ends; `None` if nothing does.
    fn keeper(&self, row: &CopyRow, job: &str) -> Option<String> {
        if let Some(other) = row.jobs.iter().find(|other| *other != job) {
            return Some(format!("the job \"{}\" needs it", escape_text(other)));
        }
        if row.is_pinned {
            return Some("it is pinned".into());
        }
        let now = self.files.now();
        let left = row.expires?.checked_sub(now)?.as_secs();
        (left > 0).then(|| format!("its lifetime ends in {left} s"))
    }

    /// Returns names of jobs that begin with `prefix` and use copies or have an outbox, in the order of
    /// their bytes: at most `max` names behind the name `after`.
    ///
    /// # Errors
    /// The index or the directory of the outboxes cannot be read.
    pub fn jobs(&self, prefix: &str, after: &str, max: usize) -> Result<Vec<String>> {
        let mut jobs = self.files.outbox_jobs()?;
        jobs.retain(|job| job.starts_with(prefix) && job.as_str() > after);
        jobs.extend(self.files.index.lock().jobs(prefix, after, max)?);
        Ok(jobs.into_iter().take(max).collect())
    }

    /// Protects a copy from eviction, or ends that.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn pin(&self, copy: u64, is_pinned: bool) -> Result<()> {
        Ok(self.files.index.lock().pin(copy, is_pinned)?)
    }

    /// Sets the time after which a copy that no job uses is removed; `None` if it has none.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn expire(&self, copy: u64, after: Option<Duration>) -> Result<()> {
        let at = after.map(|after| self.files.now().saturating_add(after));
        Ok(self.files.index.lock().expire(copy, at)?)
    }

    /// Notes the use of a copy.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn touch(&self, copy: u64) -> Result<()> {
        let now = self.files.now();
        Ok(self.files.index.lock().touch(copy, now)?)
    }

    /// Repairs the ACLs of copies and the links of jobs, if this process did not do so a moment ago. Each
    /// cast sweeps, and a copy may have thousands of jobs.
    pub(crate) fn settle_sometimes(&self) -> Result<()> {
        let last = *self.files.settled.lock();
        if last.is_some_and(|at| at.elapsed() < SETTLE_INTERVAL) {
            return Ok(());
        }
        self.settle_all()?;
        *self.files.settled.lock() = Some(Instant::now());
        Ok(())
    }

    /// Repairs the ACLs of copies and the links of jobs.
    pub(crate) fn settle_all(&self) -> Result<()> {
        let rows = self.copies()?;
        self.files.alone(|| {
            rows.iter()
                .try_for_each(|row| self.files.settle_readers(row))?;
            self.files.settle_links()
        })
    }
}

impl NodeFiles {
    /// Brings the ACL of a copy and the links of jobs in line with the index. An entry that stands at
    /// the name of a job stays there.
    pub(crate) fn settle<'a>(
        &self,
        row: &CopyRow,
        jobs: impl IntoIterator<Item = &'a str>,
    ) -> Result<()> {
        self.alone(|| {
            self.settle_readers(row)?;
            jobs.into_iter()
                .try_for_each(|job| self.settle_free_link(job))
        })
    }

    /// Calls `act` while no other thread or process changes ACLs or links: each change reads the index
    /// first.
    pub(crate) fn alone<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let _own = self.settling.lock();
        let (begin, failed) = (Instant::now(), own_file(b"jobs"));
        let _held = loop {
            match self.ids.lock(Some(c"settling"), Reach::Host) {
                Ok(Lock::Taken(_)) if begin.elapsed() < ALONE_MAX => {
                    std::thread::sleep(ALONE_PAUSE);
                }
                Ok(Lock::Taken(_)) => return Err(failed(taken())),
                Ok(Lock::Held(hold)) => break Some(hold),
                Ok(Lock::Left(_) | Lock::Missing(_)) => break None,
                Err(fault) => return Err(failed(fault)),
            }
        };
        act()
    }
}

fn taken() -> Fault {
    Fault {
        side: Side::Replica,
        act: Act::Lock,
        errno: errno::EBUSY,
    }
}
