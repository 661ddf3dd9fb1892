//! What `driftless mover` takes, and how `sync` has movers share its work.

use super::{LogArgs, ReachArgs, ThrottleArgs};
use clap::Args;
use std::path::PathBuf;

/// The queue that batches of a run go through.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Movers")]
pub struct QueueArgs {
    /// The RabbitMQ broker that batches go through: amqp://USER@HOST[:PORT]/VHOST, or amqps:// with
    /// TLS; without a password
    #[arg(long, value_name = "URL", requires = "job")]
    pub queue: Option<String>,
    /// The name of the job, which its movers and its coordinator have in common
    #[arg(long, value_name = "NAME", requires = "queue")]
    pub job: Option<String>,
    /// The file whose one line is the broker's password, closed to all others; by default the
    /// password is taken from DRIFTLESS_QUEUE_PASSWORD
    #[arg(long, value_name = "FILE", requires = "queue")]
    pub queue_credentials: Option<PathBuf>,
    /// Trust the certificates in FILE (PEM), too, such as those of the site's own authority
    #[arg(long, value_name = "FILE", requires = "queue")]
    pub queue_ca: Option<PathBuf>,
}

/// Who else works on a run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Movers")]
pub struct MoversArgs {
    #[command(flatten)]
    pub queue: QueueArgs,
    /// Divide the work among these hosts, which see both trees under the same paths (or reach them
    /// as HOST:PATH); movers are started there through ssh
    #[arg(long, value_name = "HOST,...", value_delimiter = ',', value_parser = crate::units::host, conflicts_with_all = ["queue", "route"])]
    pub hosts: Vec<String>,
    /// Send the work on some files to movers of a class: with "size>=SIZE:CLASS", files of at least
    /// SIZE are taken by the movers of CLASS alone (may be given more than once)
    #[arg(long, value_name = "RULE", value_parser = crate::units::route, requires = "queue")]
    pub route: Vec<driftless_engine::Route>,
    /// Do not go on with an interrupted run of the job: drop its record
    #[arg(long, requires = "queue")]
    pub fresh: bool,
}

#[derive(Debug, Args)]
pub struct MoverArgs {
    #[command(flatten)]
    pub queue: QueueArgs,
    /// The class of work that is taken; "work" is what no route of the coordinator takes
    #[arg(
        long,
        value_name = "CLASS",
        default_value = "work",
        help_heading = "Movers"
    )]
    pub class: String,
    /// End after so many seconds without work (by default, never)
    #[arg(long, value_name = "SECONDS", value_parser = crate::units::seconds, help_heading = "Movers")]
    pub idle: Option<std::time::Duration>,
    /// Take work from standard input, and report on standard output (how --hosts starts movers)
    #[arg(long, hide = true, conflicts_with = "queue")]
    pub stdio: bool,
    #[command(flatten)]
    pub log: LogArgs,
    #[command(flatten)]
    pub throttle: ThrottleArgs,
    #[command(flatten)]
    pub reach: ReachArgs,
}
