//! The interface for programs that submit jobs: deposits, jobs and their results, at one gateway.
//!
//! It is small, so that it can stay as it is. The command `driftless` uses the functions below it.

use crate::client::{Submitted, UserSubmission, deposits, jobs, submit};
use crate::message::JobInfo;
use crate::{Error, JobRequest, ReleasePolicy};
use driftless_batch::{BatchKind, BatchSystem, CommandSettings, JobId};
use driftless_deposit::DepositHome;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

/// Pause between two questions to the gateway.
const PAUSE: Duration = Duration::from_millis(500);

/// Client of a gateway on this host. It acts as the user of this process.
#[derive(Debug, Clone)]
pub struct GatewayClient {
    socket: PathBuf,
}

impl GatewayClient {
    /// Returns a client of the gateway with this socket, such as `/run/driftless/gateway.sock`.
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        GatewayClient {
            socket: socket.into(),
        }
    }

    /// Returns the directory in which the user deposits data. A program creates the content of a draft
    /// ([`DepositHome::draft`]) and commits it.
    ///
    /// # Errors
    /// No gateway answers, or it refuses; the directory is unsafe.
    pub fn deposits(&self) -> Result<DepositHome, Error> {
        deposits(&self.socket)
    }

    /// Submits a job held. It starts on nodes that have its data. The command of the batch system
    /// inherits standard input and standard error.
    ///
    /// # Errors
    /// No gateway answers, or it refuses; the command failed, and then no job was submitted.
    pub fn submit(&self, job: &JobSubmission) -> Result<Submitted, Error> {
        submit(&self.socket, job.request.clone(), job)
    }

    /// Returns the jobs of the user, the oldest first. Root gets the jobs of all users.
    ///
    /// # Errors
    /// No gateway answers, or it refuses.
    pub fn jobs(&self) -> Result<Vec<JobInfo>, Error> {
        jobs(&self.socket)
    }

    /// Returns a job of the user, or `None` if the gateway does not know it.
    ///
    /// # Errors
    /// No gateway answers, or it refuses.
    pub fn job(&self, job: &JobId) -> Result<Option<JobInfo>, Error> {
        let mut jobs = self.jobs()?;
        // A batch system can use a number again.
        jobs.reverse();
        let is_same = |one: &JobInfo| one.number.as_deref() == Some(job.as_str());
        Ok(jobs.into_iter().find(is_same))
    }

    /// Waits until a job has ended and its results have arrived, or until `is_stopped` returns true.
    /// Returns the job as it is then, or `None` if the gateway does not know it.
    ///
    /// # Errors
    /// No gateway answers, or it refuses. The job goes on: call the function again.
    pub fn wait(
        &self,
        job: &JobId,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Option<JobInfo>, Error> {
        loop {
            let found = self.job(job)?;
            let is_over = found.as_ref().is_none_or(JobInfo::is_closed);
            if is_over || is_stopped() {
                return Ok(found);
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl JobInfo {
    /// Returns whether the job has ended, its results have arrived, and its copies are removed.
    pub fn is_closed(&self) -> bool {
        self.stage == "closed"
    }
}

/// A job for a batch system, with its data.
#[derive(Debug, Clone)]
pub struct JobSubmission {
    command: Vec<OsString>,
    request: JobRequest,
}

impl JobSubmission {
    /// Returns a job that this command submits: `sbatch` or `qsub`, and its arguments.
    pub fn new(command: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        JobSubmission {
            command: command.into_iter().map(Into::into).collect(),
            request: JobRequest::default(),
        }
    }

    /// Adds a file or directory that tasks find in `$SPOOL_DIRECTORY`, by its absolute path.
    #[must_use]
    pub fn with_data(mut self, path: impl Into<PathBuf>) -> Self {
        let path = path.into().into_os_string();
        self.request.sources.push(path.into_vec());
        self
    }

    /// Has the gateway collect what tasks leave in `$RESULTS_DIRECTORY`, to an absolute path with %j
    /// (job), %t (task) or %h (node).
    #[must_use]
    pub fn with_results(mut self, pattern: impl Into<OsString>) -> Self {
        self.request.results = Some(pattern.into().into_vec());
        self
    }

    /// Restricts the job to nodes, such as `n[001-128]`.
    #[must_use]
    pub fn on_nodes(mut self, nodes: impl Into<String>) -> Self {
        self.request.nodes = Some(nodes.into());
        self
    }

    /// Sets the policy of the release. Without it, the first node with the data releases the job.
    #[must_use]
    pub fn released_by(mut self, policy: ReleasePolicy) -> Self {
        self.request.policy = policy;
        self
    }
}

impl UserSubmission for JobSubmission {
    fn command(&self, _kind: BatchKind) -> Result<Vec<OsString>, String> {
        Ok(self.command.clone())
    }

    fn system(&self, kind: BatchKind) -> Box<dyn BatchSystem> {
        driftless_batch::system(kind, CommandSettings::default())
    }
}
