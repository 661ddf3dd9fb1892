//! Arguments of `driftless gateway`, `driftless submit` and `driftless jobs`.

use super::{LogArgs, NodesArgs};
use clap::{Args, ValueEnum};
use driftless_batch::BatchKind;
use driftless_gateway::ReleaseNeed;
use driftless_taskfile::ResultPattern;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct GatewayArgs {
    /// Batch system of this host
    #[arg(long, value_name = "SYSTEM", value_enum)]
    pub system: SystemArg,
    #[command(flatten)]
    pub nodes: NodesArgs,
    /// Directory of the gateway; gateways of several hosts share it
    ///
    /// The default is /var/lib/driftless/gateway for root, and "gateway" below the state directory of
    /// any other user.
    #[arg(long, value_name = "DIR", help_heading = "Gateway")]
    pub dir: Option<PathBuf>,
    /// Directory with the deposits of users (driftless put)
    ///
    /// Each user has a directory in it. Users need access to it under the same path. The default is
    /// "deposits": beside --dir for root, and in --dir for any other user.
    #[arg(long, value_name = "DIR", help_heading = "Gateway")]
    pub deposits: Option<PathBuf>,
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Name of this gateway in the lease and the log
    ///
    /// The default is the host name.
    #[arg(long, value_name = "NAME", help_heading = "Gateway")]
    pub name: Option<String>,
    /// Run without the right to change nodes of the batch system
    ///
    /// The gateway then excludes nodes from each job. The option is for Slurm.
    #[arg(long, help_heading = "Gateway")]
    pub without_rights: bool,
    /// Data sets that the batch system can know at the same time
    #[arg(long, value_name = "N", default_value = "64", value_parser = crate::units::above_zero, help_heading = "Gateway")]
    pub slots: u64,
    /// Casts at the same time
    #[arg(long, value_name = "N", default_value = "4", value_parser = crate::units::above_zero, help_heading = "Gateway")]
    pub casts: u64,
    /// Collections of results at the same time
    #[arg(long, value_name = "N", default_value = "4", value_parser = crate::units::above_zero, help_heading = "Gateway")]
    pub collections: u64,
    /// Order the chain by the racks in FILE
    ///
    /// FILE has the form of Slurm's topology.conf, or a node and its switch path on each line.
    #[arg(long, value_name = "FILE", help_heading = "Gateway")]
    pub topology: Option<PathBuf>,
    /// Send at most RATE bytes a second from each host
    ///
    /// All collections of results together receive at most RATE bytes a second.
    #[arg(long, value_name = "RATE", value_parser = crate::units::rate, help_heading = "Gateway")]
    pub bwlimit: Option<u64>,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Batch systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SystemArg {
    Slurm,
    GridEngine,
    Pbs,
}

impl From<SystemArg> for BatchKind {
    fn from(system: SystemArg) -> BatchKind {
        match system {
            SystemArg::Slurm => BatchKind::Slurm,
            SystemArg::GridEngine => BatchKind::GridEngine,
            SystemArg::Pbs => BatchKind::Pbs,
        }
    }
}

/// Socket of a gateway.
#[derive(Debug, Clone, Args)]
pub struct SocketArgs {
    /// Socket of the gateway
    ///
    /// The default is gateway.sock in /run/driftless for the gateway of root, and in
    /// $XDG_RUNTIME_DIR/driftless for a user's own, which comes first.
    #[arg(long, value_name = "PATH", help_heading = "Gateway")]
    pub gateway: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// Task file with the data, the script and the tasks
    #[arg(value_name = "FILE", conflicts_with_all = ["data", "command"], required_unless_present_any = ["data", "command"])]
    pub file: Option<PathBuf>,
    /// Files and directories that the job needs
    ///
    /// They appear in $SPOOL_DIRECTORY under their last names.
    #[arg(long, value_name = "PATH", num_args = 1.., required_unless_present = "file")]
    pub data: Vec<PathBuf>,
    /// Collect the results of tasks to PATTERN
    ///
    /// An example is /home/alice/out/%j/%t. Tasks write below $RESULTS_DIRECTORY, each in the directory of its index. %j stands for the
    /// number of the job, %t for the index of the task, %h for the node. The gateway collects the
    /// results of a task when the task ended.
    #[arg(long, value_name = "PATTERN", value_parser = result_pattern)]
    pub results: Option<OsString>,
    /// Nodes that get the data, such as n[001-128]
    ///
    /// The job runs only on these. By default, all nodes on which the job may run get the data.
    #[arg(long, value_name = "LIST", help_heading = "Data")]
    pub nodes: Option<String>,
    /// Nodes that must have the data before: first, quorum=N%, all
    ///
    /// Tasks run on the nodes that have the data, while other nodes still receive it.
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "first",
        help_heading = "Data"
    )]
    pub release: ReleaseNeed,
    /// Release the job after TIME, such as 30m, if one node has the data
    #[arg(long, value_name = "TIME", value_parser = crate::units::span, help_heading = "Data")]
    pub deadline: Option<Duration>,
    /// Print the job and its data, and submit nothing
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Command of the batch system, with its own options
    #[arg(value_name = "sbatch|qsub", last = true)]
    pub command: Vec<OsString>,
}

/// Returns a pattern of results that the parser of task files takes.
fn result_pattern(text: &str) -> Result<OsString, String> {
    match ResultPattern::parse(text.as_bytes()) {
        Ok(_) => Ok(text.into()),
        Err(error) => Err(error.to_string()),
    }
}

#[derive(Debug, Args)]
pub struct ResultsArgs {
    /// Numbers of jobs in the batch system; all jobs by default
    #[arg(value_name = "JOB")]
    pub jobs: Vec<String>,
    /// Wait until the results of these jobs have arrived
    #[arg(long)]
    pub wait: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub socket: SocketArgs,
}

#[derive(Debug, Args)]
pub struct JobsArgs {
    /// Show also jobs that ended in the last 7 days
    #[arg(long)]
    pub all: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub socket: SocketArgs,
}
