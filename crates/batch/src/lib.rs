//! Batch systems behind one interface.
//!
//! A [`BatchSystem`] submits held jobs, tells its scheduler which nodes have the data, and releases
//! the jobs. Only this crate knows which batch system a site has. It runs the commands of the batch
//! system, so that no library of it is linked.
//!
//! What must hold: each call can be repeated without a second effect. A command that fails, waits or
//! prints an unknown form is an error, and never an empty answer.

mod command;
mod error;
mod grid_engine;
mod pbs;
mod script;
mod slurm;
mod words;

pub use command::CommandSettings;
pub use error::{BatchError, BatchResult};
pub use grid_engine::GridEngine;
pub use pbs::Pbs;
pub use slurm::Slurm;
pub use words::{
    BatchKind, DataSlot, FoundJob, HeldRequest, JobId, JobInput, JobMark, LiveJob, LiveTask,
    MarkedJob, Readiness, Submission, TaskRanges,
};

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;

/// Nodes on which each of some jobs may run. Jobs may share an error.
pub type JobCandidates = HashMap<JobId, Result<Vec<String>, Arc<BatchError>>>;

/// Returns the interface to a batch system. Runs no command.
pub fn system(kind: BatchKind, settings: CommandSettings) -> Box<dyn BatchSystem> {
    match kind {
        BatchKind::Slurm => Box::new(Slurm::new(settings)),
        BatchKind::GridEngine => Box::new(GridEngine::new(settings)),
        BatchKind::Pbs => Box::new(Pbs::new(settings)),
    }
}

/// Returns the position of the job script in the arguments of `sbatch` or `qsub`. Returns `None` if they
/// have options alone.
///
/// # Errors
/// [`BatchError::Arguments`] if the arguments cannot be those of this batch system.
pub fn script_at(kind: BatchKind, args: &[OsString]) -> BatchResult<Option<usize>> {
    let behind = match kind {
        BatchKind::Slurm => slurm::script_words(args),
        BatchKind::GridEngine => grid_engine::script_words(args)?,
        BatchKind::Pbs => pbs::script_words(args)?,
    };
    Ok((behind > 0).then(|| args.len() - behind))
}

/// Returns the cause if the job script that the arguments of `sbatch` or `qsub` name cannot be one. Runs
/// no command.
///
/// # Errors
/// [`BatchError::Arguments`] if the arguments cannot be those of this batch system.
pub fn script_fault(kind: BatchKind, args: &[OsString]) -> BatchResult<Option<String>> {
    match kind {
        BatchKind::Slurm => Ok(slurm::script_fault(args)),
        BatchKind::GridEngine => grid_engine::script_fault(args),
        BatchKind::Pbs => pbs::script_fault(args),
    }
}

/// A batch system.
///
/// One process at a time may call the methods that change nodes: some batch systems replace the
/// whole list of a node's features.
pub trait BatchSystem: Send + Sync {
    /// Returns the product.
    fn kind(&self) -> BatchKind;

    /// Returns the command that submits a user's job held. Runs no command. Reads the user's job script,
    /// also from the standard input if the command does so.
    ///
    /// # Errors
    /// [`BatchError::Arguments`] if the user's command is none of this batch system.
    fn submission(&self, request: &HeldRequest<'_>) -> BatchResult<Submission>;

    /// Returns the number of the job from the standard output of the submission.
    ///
    /// # Errors
    /// [`BatchError::Output`] if the output has another form.
    fn submitted(&self, output: &str) -> BatchResult<JobId>;

    /// Returns whether the standard error of a submission that failed states that no job was submitted.
    /// A command that lost its connection may have submitted one.
    fn states_refusal(&self, _stderr: &str) -> bool {
        false
    }

    /// Returns all jobs that carry a [`JobMark`], of all users.
    ///
    /// # Errors
    /// The batch system gives no answer that can be read.
    fn marked(&self) -> BatchResult<Vec<MarkedJob>>;

    /// Returns the jobs that have tasks which wait or run. A job whose tasks all ended is absent.
    ///
    /// # Errors
    /// The batch system gives no answer that can be read.
    fn alive(&self) -> BatchResult<HashMap<JobId, LiveJob>>;

    /// Looks for one job by its number. `None` if the batch system states that it knows no such job: an
    /// answer without the job is no such statement.
    ///
    /// # Errors
    /// The batch system gives no answer that can be read.
    fn find(&self, job: &JobId) -> BatchResult<Option<FoundJob>>;

    /// Returns the nodes on which each of some jobs may run: those of its partition or queues that its
    /// own wishes allow. Nodes that are down or drained are left out. Asks the batch system for all
    /// jobs at once.
    ///
    /// # Errors
    /// The batch system gives no answer that can be read. A job that is unknown has an error of its own.
    fn candidates(&self, jobs: &[JobId]) -> BatchResult<JobCandidates>;

    /// Makes a slot known, so that jobs may demand it. No node offers it yet.
    ///
    /// # Errors
    /// [`BatchError::Rights`] if this user may not change nodes.
    fn declare(&self, slot: &DataSlot, nodes: &[String]) -> BatchResult<()>;

    /// Makes a slot known, and tells the scheduler the nodes that offer it.
    ///
    /// # Errors
    /// As [`declare`](BatchSystem::declare) and [`tell_ready`](BatchSystem::tell_ready).
    fn offer(&self, slot: &DataSlot, readiness: &Readiness<'_>) -> BatchResult<()> {
        let nodes: Vec<String> = readiness.all.iter().cloned().collect();
        self.declare(slot, &nodes)?;
        self.tell_ready(readiness, &[])
    }

    /// Makes a held job run on ready nodes only: it demands the slot beside its own wishes, or, without
    /// a slot, excludes nodes that are not ready. The data set is known by now: the submission knew no
    /// slot. A repeated call changes nothing.
    ///
    /// # Errors
    /// The job is unknown or has begun; this user may not change it.
    fn require(&self, job: &JobId, readiness: &Readiness<'_>) -> BatchResult<()>;

    /// Tells the scheduler all nodes that are ready for these jobs.
    ///
    /// # Errors
    /// This user may not change the nodes or jobs; the batch system does not answer.
    fn tell_ready(&self, readiness: &Readiness<'_>, jobs: &[JobId]) -> BatchResult<()>;

    /// Ends the hold of a job. A job that an administrator holds stays held. A job that is not held
    /// stays as it is.
    ///
    /// # Errors
    /// The job is unknown; this user may not release it; the batch system does not answer.
    fn release(&self, job: &JobId) -> BatchResult<()>;

    /// Removes a slot from all nodes. No task that demands the slot may wait then.
    ///
    /// # Errors
    /// This user may not change nodes; the batch system does not answer.
    fn undeclare(&self, slot: &DataSlot) -> BatchResult<()>;
}
