//! Arguments of `driftless mirror`.

use super::LogArgs;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct MirrorArgs {
    #[command(subcommand)]
    pub command: MirrorCommand,
}

/// Job: its file, or its name in a configuration folder.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// Job: a file, or a name in ~/.config/driftless or /etc/driftless
    ///
    /// The name of a job is that of its file without ".toml".
    #[arg(value_name = "JOB")]
    pub job: PathBuf,
}

/// Configuration of `sr3` that becomes a job.
#[derive(Debug, Args)]
pub struct ImportSr3Args {
    /// Configuration, such as ~/.config/sr3/subscribe/hubs.conf
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Component: cpost, post, watch, subscribe or sarra
    ///
    /// By default, the name of the folder of FILE.
    #[arg(long, value_name = "NAME")]
    pub component: Option<String>,
}

/// Replica that becomes the active side, and its state then.
#[derive(Debug, Args)]
pub struct FailoverArgs {
    #[command(flatten)]
    pub job: JobArgs,
    /// Replica, as the job names it
    ///
    /// Needed if the job has several replicas.
    #[arg(long, value_name = "TREE")]
    pub replica: Option<String>,
    /// State of the replica: the latest, or a common snapshot
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub to: FailoverTo,
    /// Accept that missing mounts are gone for good
    #[arg(long)]
    pub forget_mounts: bool,
    /// Print the actions and the losses, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Replica whose changes go back to the source, and the way.
#[derive(Debug, Args)]
pub struct FailbackArgs {
    #[command(flatten)]
    pub job: JobArgs,
    /// Replica, as the job names it
    ///
    /// Needed if the job has several replicas.
    #[arg(long, value_name = "TREE")]
    pub replica: Option<String>,
    /// Make the source the active side again
    ///
    /// The replica follows when the mirror runs.
    #[arg(long)]
    pub finish: bool,
    /// Print the actions and the losses, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Accept an empty source: its disk is a new one
    #[arg(long)]
    pub into_empty: bool,
    /// Accept that missing mounts are gone for good
    #[arg(long)]
    pub forget_mounts: bool,
    /// Accept a directory at the replica's path that lost its marker
    #[arg(long)]
    pub new_replica: bool,
    /// Make the source active, and copy nothing: the replica is lost
    #[arg(long, conflicts_with_all = ["finish", "into_empty", "new_replica", "json"])]
    pub give_up: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// State of a replica that becomes the active side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum FailoverTo {
    /// The replica as it is
    #[default]
    Latest,
    /// The newest snapshot that both sides have
    Common,
}

#[derive(Debug, Subcommand)]
pub enum MirrorCommand {
    /// Check a job, and whether its source can be watched
    Check(JobArgs),
    /// Keep the replica of a job identical, until a signal ends it
    Run {
        #[command(flatten)]
        job: JobArgs,
        /// Accept another directory at the replica's path
        ///
        /// Without this option, a mirror writes only to the replica that it has filled before.
        #[arg(long)]
        new_replica: bool,
        #[command(flatten)]
        log: LogArgs,
    },
    /// Help the mirror of a job that runs on another host
    ///
    /// That mirror receives announcements through a broker. Both share its queue and change the
    /// same replica. A signal ends the help.
    Join {
        #[command(flatten)]
        job: JobArgs,
        #[command(flatten)]
        log: LogArgs,
    },
    /// List the mirrors of this user, and the jobs of the configuration folders
    List {
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Show how far the replica is behind
    ///
    /// Without JOB, lists all mirrors.
    Status {
        /// Job: a file, or a name in ~/.config/driftless or /etc/driftless
        ///
        /// The name of a job is that of its file without ".toml".
        #[arg(value_name = "JOB")]
        job: Option<PathBuf>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// Exit with 6 if the replica is further behind than rpo
        #[arg(long)]
        check: bool,
    },
    /// Stop changing the replica, and go on recording changes
    Pause(JobArgs),
    /// Let a paused mirror continue
    Resume(JobArgs),
    /// Retry failed paths, and compare both trees now
    ///
    /// A mirror that reads snapshots begins a cycle.
    SyncNow {
        #[command(flatten)]
        job: JobArgs,
        /// Return when everything is on the replica's disk
        #[arg(long)]
        wait: bool,
        /// Compare both trees even if snapshots list the changes
        ///
        /// This comparison also finds changes that other programs made on the replica.
        #[arg(long)]
        all: bool,
    },
    /// Wait until everything that changed so far is on the replica's disk
    Barrier {
        #[command(flatten)]
        job: JobArgs,
        /// Give up after TIME, such as 90s or 5m, with exit code 6
        #[arg(long, value_name = "TIME", value_parser = crate::units::span)]
        timeout: Option<Duration>,
    },
    /// List the paths that failed, with the causes
    Problems {
        #[command(flatten)]
        job: JobArgs,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// List changes of other programs on the replica, which were undone
    Foreign {
        #[command(flatten)]
        job: JobArgs,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Make the replica the active side
    ///
    /// Prints the losses first. Then it ends the mirror and makes the replica writable.
    Failover(FailoverArgs),
    /// Bring changes of the replica back to the source
    Failback(FailbackArgs),
    /// Alias of failover
    Promote(FailoverArgs),
    /// List, restore or purge deleted entries of the replica
    Trash {
        #[command(flatten)]
        job: JobArgs,
        #[command(subcommand)]
        command: Option<TrashCommand>,
    },
    /// Print a job made from a configuration of MetPX-Sarracenia (sr3)
    ///
    /// Standard error names everything that the job lacks.
    #[command(name = "import-sr3")]
    ImportSr3(ImportSr3Args),
    /// Retry failed paths at once
    Retry {
        #[command(flatten)]
        job: JobArgs,
        /// Retry only this path and everything below it
        #[arg(value_name = "PATH")]
        path: Option<PathBuf>,
    },
}

/// Deleted entries that come back, and their destination.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// Path to restore with everything below it, relative to the root
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Restore only what was deleted at this date, as "list" prints it
    ///
    /// Example: 2026-11-24T193000Z. The date selects an earlier deletion of the path.
    #[arg(long, value_name = "DATE", value_parser = crate::units::trash_date, conflicts_with = "since")]
    pub from: Option<driftless_engine::Date>,
    /// Restore only what was deleted at this date or later
    ///
    /// Skips entries below PATH that were deleted earlier.
    #[arg(long, value_name = "DATE", value_parser = crate::units::trash_date)]
    pub since: Option<driftless_engine::Date>,
    /// Copy the path into this directory instead
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum TrashCommand {
    /// List deleted entries, the oldest first: date, type and path
    List {
        /// List entries of this path, below it or above it only
        #[arg(value_name = "PATH")]
        path: Option<PathBuf>,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Copy deleted entries of a path back into the source
    ///
    /// Restores everything that was deleted at PATH or below it. If a path was deleted several
    /// times, restores the newest entry. Entries that exist stay. The mirror copies the restored
    /// entries to the replica.
    Restore(RestoreArgs),
    /// Remove deleted entries that exceed the [trash] of the job
    Purge {
        /// Remove entries that were deleted longer ago than TIME
        ///
        /// Example: 7d. 0s removes all but those of the last two minutes. TIME overrides the
        /// [trash] of the job.
        #[arg(long, value_name = "TIME", value_parser = crate::units::span)]
        older: Option<Duration>,
    },
}
