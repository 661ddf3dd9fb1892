//! Arguments of `driftless mover`, and the options with which `sync` shares its work.

use super::{LogArgs, ReachArgs, ThrottleArgs};
use clap::Args;
use std::path::PathBuf;

/// Queue that carries the batches of a run.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Movers")]
pub struct QueueArgs {
    /// URL of the RabbitMQ broker, without a password
    ///
    /// amqp://USER@HOST[:PORT]/VHOST, or amqps:// with TLS.
    #[arg(long, value_name = "URL", requires = "job")]
    pub queue: Option<String>,
    /// Name of the job that movers and coordinator share
    #[arg(long, value_name = "NAME", requires = "queue")]
    pub job: Option<String>,
    /// File with the password of the broker in its only line
    ///
    /// The file must be closed to other users. Without this option, DRIFTLESS_QUEUE_PASSWORD has
    /// the password.
    #[arg(long, value_name = "FILE", requires = "queue")]
    pub queue_credentials: Option<PathBuf>,
    /// Trust the certificates in FILE (PEM) as well
    ///
    /// Examples are certificates of an authority of the site.
    #[arg(long, value_name = "FILE", requires = "queue")]
    pub queue_ca: Option<PathBuf>,
}

/// Other hosts that work on a run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Movers")]
pub struct MoversArgs {
    #[command(flatten)]
    pub queue: QueueArgs,
    /// Divide the work among these hosts; ssh starts movers there
    ///
    /// The hosts see both trees under the same paths, or reach them as HOST:PATH.
    #[arg(long, value_name = "HOST,...", value_delimiter = ',', value_parser = crate::units::host, conflicts_with_all = ["queue", "route"])]
    pub hosts: Vec<String>,
    /// Divide the work among the nodes of this Slurm job, by srun
    ///
    /// Start the command in an allocation (sbatch or salloc). The nodes need no ssh between them.
    /// They see both trees and this program under the same paths. --agent-path names another
    /// program.
    #[arg(long, conflicts_with_all = ["hosts", "queue", "route"])]
    pub slurm: bool,
    /// Send large files to movers of a class: size>=SIZE:CLASS
    ///
    /// Only movers of CLASS take files of at least SIZE. May be given several times.
    #[arg(long, value_name = "RULE", value_parser = crate::units::route, requires = "queue")]
    pub route: Vec<driftless_engine::Route>,
    /// Drop the record of an interrupted run of the job
    #[arg(long, requires = "queue")]
    pub fresh: bool,
}

#[derive(Debug, Args)]
pub struct MoverArgs {
    #[command(flatten)]
    pub queue: QueueArgs,
    /// Class of work to take
    ///
    /// "work" is the work that no route of the coordinator takes.
    #[arg(
        long,
        value_name = "CLASS",
        default_value = "work",
        help_heading = "Movers"
    )]
    pub class: String,
    /// End after SECONDS without work; by default, never
    #[arg(long, value_name = "SECONDS", value_parser = crate::units::seconds, help_heading = "Movers")]
    pub idle: Option<std::time::Duration>,
    /// Take work from standard input, and report on standard output; --hosts starts movers so
    #[arg(long, hide = true, conflicts_with = "queue")]
    pub stdio: bool,
    #[command(flatten)]
    pub log: LogArgs,
    #[command(flatten)]
    pub throttle: ThrottleArgs,
    #[command(flatten)]
    pub reach: ReachArgs,
}
