//! What `driftless mirror` takes.

use super::LogArgs;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct MirrorArgs {
    #[command(subcommand)]
    pub command: MirrorCommand,
}

/// The job: the file that describes it, or its name in a configuration folder.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// The job: its file, or the name of one in ~/.config/driftless or /etc/driftless, without
    /// ".toml"
    #[arg(value_name = "JOB")]
    pub job: PathBuf,
}

/// Which configuration becomes a job.
#[derive(Debug, Args)]
pub struct ImportSr3Args {
    /// The configuration, such as ~/.config/sr3/subscribe/hubs.conf
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// What it configures: cpost, post, watch, subscribe or sarra [default: the name of the folder
    /// that it is in]
    #[arg(long, value_name = "NAME")]
    pub component: Option<String>,
}

/// Which replica becomes the active side, and what it is then.
#[derive(Debug, Args)]
pub struct FailoverArgs {
    #[command(flatten)]
    pub job: JobArgs,
    /// Which replica, as the job names it, where it has several
    #[arg(long, value_name = "TREE")]
    pub replica: Option<String>,
    /// To what the replica has now, or to the newest snapshot that both have in common
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub to: FailoverTo,
    /// Go on without what was mounted below the replica and is not there now: it is gone for good
    #[arg(long)]
    pub forget_mounts: bool,
    /// Say what would be done and lost; nothing is changed
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What is brought back, and how.
#[derive(Debug, Args)]
pub struct FailbackArgs {
    #[command(flatten)]
    pub job: JobArgs,
    /// Which replica, as the job names it, where it has several
    #[arg(long, value_name = "TREE")]
    pub replica: Option<String>,
    /// Make the source the active side again; the replica follows when the mirror runs
    #[arg(long)]
    pub finish: bool,
    /// Say what would be done and lost; nothing is changed
    #[arg(long)]
    pub dry_run: bool,
    /// Go on although the source is empty: its disk is a new one
    #[arg(long)]
    pub into_empty: bool,
    /// Go on without what was mounted below a tree and is not there now: it is gone for good
    #[arg(long)]
    pub forget_mounts: bool,
    /// Take what stands at the replica's path for the replica: it has lost its mark
    #[arg(long)]
    pub new_replica: bool,
    /// Bring nothing back, and make the source the active side again: the replica is lost
    #[arg(long, conflicts_with_all = ["finish", "into_empty", "new_replica", "json"])]
    pub give_up: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What a replica becomes when it becomes the active side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum FailoverTo {
    /// It stays as it is
    #[default]
    Latest,
    /// It goes back to the newest snapshot that both have
    Common,
}

#[derive(Debug, Subcommand)]
pub enum MirrorCommand {
    /// Read a job, and say all that is wrong with it, and whether its source can be watched
    Check(JobArgs),
    /// Keep the job's replica equal, until a signal ends it
    Run {
        #[command(flatten)]
        job: JobArgs,
        /// Take what stands at the replica's path for the replica, though another one was filled
        /// before
        #[arg(long)]
        new_replica: bool,
        #[command(flatten)]
        log: LogArgs,
    },
    /// Help the mirror of a job that runs on another host and hears announcements through a broker:
    /// share its queue and change the same replica, until a signal ends it
    Join {
        #[command(flatten)]
        job: JobArgs,
        #[command(flatten)]
        log: LogArgs,
    },
    /// List the mirrors of this user and of the job files in the configuration folders
    List {
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Say how far behind the replica is; without JOB, list all mirrors
    Status {
        /// The job: its file, or the name of one in ~/.config/driftless or /etc/driftless, without
        /// ".toml"
        #[arg(value_name = "JOB")]
        job: Option<PathBuf>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// Exit with 6 when the replica is further behind than the job's rpo
        #[arg(long)]
        check: bool,
    },
    /// Have the mirror change nothing until "resume"; it goes on noting what changes
    Pause(JobArgs),
    /// Have a paused mirror go on
    Resume(JobArgs),
    /// Have the mirror try again what failed, and compare all of both trees now; one that reads
    /// snapshots begins a cycle
    SyncNow {
        #[command(flatten)]
        job: JobArgs,
        /// Return when all of it is on the replica, durably
        #[arg(long)]
        wait: bool,
        /// Compare all of both trees even where snapshots tell what has changed: it finds what
        /// somebody else has changed on the replica
        #[arg(long)]
        all: bool,
    },
    /// Return when everything that changed before now is on the replica, durably
    Barrier {
        #[command(flatten)]
        job: JobArgs,
        /// Give up after this time (such as 90s or 5m), with exit code 6
        #[arg(long, value_name = "TIME", value_parser = crate::units::span)]
        timeout: Option<Duration>,
    },
    /// List the paths that have a problem
    Problems {
        #[command(flatten)]
        job: JobArgs,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// List what somebody else has changed on the replica, and was put right
    Foreign {
        #[command(flatten)]
        job: JobArgs,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Make the replica the active side: say what would be lost, end the mirror, make the replica
    /// writable
    Failover(FailoverArgs),
    /// Bring back to the source what has changed on the replica since
    Failback(FailbackArgs),
    /// Another name of failover
    Promote(FailoverArgs),
    /// List what was deleted from the replica and is kept there, bring it back, or remove it for
    /// good
    Trash {
        #[command(flatten)]
        job: JobArgs,
        #[command(subcommand)]
        command: Option<TrashCommand>,
    },
    /// Print a job that does what a configuration of MetPX-Sarracenia (sr3) does, and say on
    /// standard error what of that is not in it
    #[command(name = "import-sr3")]
    ImportSr3(ImportSr3Args),
    /// Try paths that have a problem at once
    Retry {
        #[command(flatten)]
        job: JobArgs,
        /// Only this path and what is below it, below the root
        #[arg(value_name = "PATH")]
        path: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub enum TrashCommand {
    /// List what is there, the oldest first: when it went, what it is, its path
    List {
        /// Only what was at this path, below it, or above it
        #[arg(value_name = "PATH")]
        path: Option<PathBuf>,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Copy an entry back into the source, from where it comes to the replica; what is there stays
    Restore {
        /// The path that it had, below the root
        #[arg(value_name = "PATH")]
        path: PathBuf,
        /// What went then, as "list" tells it, such as 2026-11-24T193000Z [default: what went last]
        #[arg(long, value_name = "DATE", value_parser = crate::units::trash_date)]
        from: Option<driftless_engine::Date>,
        /// Copy it into this directory instead
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
    /// Remove for good what the job's [trash] does not allow
    Purge {
        /// Remove what went longer ago than this time (such as 7d; 0s for all but the last
        /// two minutes), whatever the job says
        #[arg(long, value_name = "TIME", value_parser = crate::units::span)]
        older: Option<Duration>,
    },
}
