//! Arguments of `driftless cast` and `driftless doctor`.

use super::NodesArgs;
use super::nodes::connections;
use crate::output::progress::When;
use clap::{ArgGroup, Args};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("place").required(true).args(["to", "to_cache"])))]
pub struct CastArgs {
    /// Files and directories of this host
    ///
    /// /a/b becomes DIR/b on each node.
    #[arg(value_name = "SRC", required = true)]
    pub sources: Vec<PathBuf>,
    /// Place the data set below DIR on each node; an absolute path
    ///
    /// DIR must exist on each node. A node fails if an entry of the same name is there, and
    /// driftless did not place it.
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
    /// Place the data set in the cache of each node
    ///
    /// "driftless node status --json" prints its path there.
    #[arg(long)]
    pub to_cache: bool,
    #[command(flatten)]
    pub nodes: NodesArgs,
    #[command(flatten)]
    pub plan: PlanArgs,
    #[command(flatten)]
    pub copies: CopiesArgs,
    /// Send at most RATE bytes a second from each host
    ///
    /// The rate holds for this host and for each node on its own.
    #[arg(long, value_name = "RATE", value_parser = crate::units::rate, help_heading = "Running")]
    pub bwlimit: Option<u64>,
    /// Number of connections between two nodes, 1 to 16
    #[arg(long, value_name = "N", default_value = "1", value_parser = connections, help_heading = "Running")]
    pub connections: u8,
    /// Directory of this host's store
    ///
    /// This store keeps the catalogue of the data set and the key of this host. The default is
    /// "cast" below the state directory of the user.
    #[arg(long, value_name = "DIR", help_heading = "Running")]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub output: CastOutputArgs,
}

/// Order of the nodes, and the waits for them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Plan")]
pub struct PlanArgs {
    /// Order the chain by the racks in FILE
    ///
    /// FILE has the form of Slurm's topology.conf, or a node and its switch path on each line.
    /// Without this option, the chain follows --nodes.
    #[arg(long, value_name = "FILE")]
    pub topology: Option<PathBuf>,
    /// Name of this host in the topology
    ///
    /// The default is the host name of this host.
    #[arg(long, value_name = "NAME")]
    pub source_name: Option<String>,
    /// Time to wait for nodes before the distribution starts
    ///
    /// The time begins when the first node is ready. Late nodes can join afterwards.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = crate::units::seconds)]
    pub start_wait: Duration,
    /// Time in which each node must have connected
    ///
    /// The time begins with the distribution. A node that connected and verifies what it holds is
    /// waited for.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = crate::units::seconds)]
    pub join_wait: Duration,
    /// Time to wait for lost nodes after all other nodes are done
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = crate::units::seconds)]
    pub rejoin_wait: Duration,
}

/// References and lifetime of the copies on the nodes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Copies")]
pub struct CopiesArgs {
    /// Keep the copies until the job NAME is purged
    ///
    /// "driftless node purge --job NAME" removes the copies that no other job needs. A copy of --to
    /// stays until a purge or a newer version, also without this option: the job selects it for that
    /// purge.
    #[arg(long, value_name = "NAME", value_parser = job_name)]
    pub job: Option<String>,
    /// Keep cached copies until they are purged
    ///
    /// A copy of --to stays until a purge or a newer version, also without this option.
    #[arg(long)]
    pub pin: bool,
    /// Remove copies after TIME, such as 7d (with --to-cache)
    ///
    /// A daemon, or the next cast to the cache, removes them. Copies with a job or a pin stay.
    #[arg(long, value_name = "TIME", value_parser = crate::units::span, conflicts_with = "to")]
    pub ttl: Option<Duration>,
}

/// Returns the name of a job.
fn job_name(text: &str) -> Result<String, String> {
    match driftless_cast::is_job_name(text) {
        true => Ok(text.to_owned()),
        false => Err("a short name without control characters is expected".to_owned()),
    }
}

/// Output of a cast.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct CastOutputArgs {
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Exit with 3 also if a node did not keep all metadata
    ///
    /// Metadata are owners, modes, ACLs, extended attributes and times.
    #[arg(long)]
    pub strict: bool,
    /// Print errors only
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print each event of a node
    #[arg(short, long)]
    pub verbose: bool,
    /// Report progress: auto, never, or each so many seconds
    ///
    /// "auto" shows a bar at a terminal, and prints a line a minute elsewhere. SIGUSR1 prints a
    /// line at any time.
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = When::parse)]
    pub progress: When,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub nodes: NodesArgs,
    /// Directory on the nodes whose disk is measured
    ///
    /// Without this option, no disk is measured.
    #[arg(long, value_name = "DIR", help_heading = "Measurements")]
    pub to: Option<PathBuf>,
    /// Duration of the measurement of each link
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = crate::units::seconds_above_zero, help_heading = "Measurements")]
    pub link_time: Duration,
    /// Bytes that are written to a disk, made durable, and read
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = crate::units::bytes, help_heading = "Measurements")]
    pub disk_size: u64,
    /// Number of connections between two nodes, 1 to 16
    #[arg(long, value_name = "N", default_value = "1", value_parser = connections, help_heading = "Measurements")]
    pub connections: u8,
    /// Print one JSON object a line
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
