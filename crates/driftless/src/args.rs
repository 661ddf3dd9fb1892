//! The command line. The manual page, the completions and the reference in docs are generated from
//! these definitions.
//!
//! Each file has what one command takes, or a group of options that several commands take.

mod agent;
mod audit;
mod cast;
mod choose;
mod ftps;
mod gateway;
mod generate;
mod guard;
mod keep;
mod mirror;
mod mover;
mod node;
mod nodes;
mod output;
mod post;
mod put;
mod reach;
mod report;
mod running;
mod shim;
mod sum;
mod sync;
mod verify;
mod watch;

pub use agent::{AgentArgs, AskedArgs};
pub use audit::AuditArgs;
pub use cast::{CastArgs, CastOutputArgs, DoctorArgs};
pub use choose::ChooseArgs;
pub use ftps::FtpsArgs;
pub use gateway::{GatewayArgs, JobsArgs, ResultsArgs, SocketArgs, SubmitArgs};
pub use generate::Document;
pub use guard::GuardArgs;
pub use keep::KeepArgs;
pub use mirror::{
    FailbackArgs, FailoverArgs, FailoverTo, ImportSr3Args, JobArgs, MirrorArgs, MirrorCommand,
    RestoreArgs, TrashCommand,
};
pub use mover::{MoverArgs, MoversArgs, QueueArgs};
pub use node::{NodeArgs, NodeCommand, PurgeArgs, RemotePurgeArgs};
pub use nodes::{NodesArgs, SiteArgs, WaysArgs};
pub use output::{LogArgs, LogFormat, OutputArgs};
pub use post::PostArgs;
pub use put::PutArgs;
pub use reach::{ReachArgs, SshArgs};
pub use report::ReportArgs;
pub use running::{CacheArg, RunArgs, ThrottleArgs};
pub use shim::{EnvArgs, ShimArgs, ShimCommand};
pub use sum::{AlgorithmArg, SumArgs, range};
pub use sync::{DurabilityArg, ReadBackArg, SyncArgs};
pub use verify::{LevelArg, VerifyArgs};
pub use watch::WatchArgs;

use crate::exit::Exit;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Copies, mirrors and distributes huge file trees, and proves the copies.
#[derive(Debug, Parser)]
#[command(name = "driftless", version = env!("DRIFTLESS_VERSION"), about, long_about = None, after_long_help = EXIT_CODES, max_term_width = 100, args_override_self = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// The end of the help of the program.
const EXIT_CODES: &str = "\"driftless help exit-codes\" lists the exit codes.";

/// Returns the list of all exit codes.
pub fn exit_codes() -> String {
    exit_codes_of("")
}

/// Returns the list of the exit codes of a command, for its help.
pub fn exit_codes_of(command: &str) -> String {
    let lines: Vec<String> = Exit::table_of(command)
        .into_iter()
        .map(|(code, meaning)| format!("  {code:<6} {meaning}"))
        .collect();
    format!("Exit codes:\n{}", lines.join("\n"))
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make the replica DST identical to the source SRC
    ///
    /// Copies entries that differ. Keeps extraneous entries of DST, unless --delete is given. The
    /// same command continues an interrupted run.
    #[command(after_long_help = exit_codes())]
    Sync(Box<SyncArgs>),
    /// Compare the replica DST with the source SRC, and list the differences
    #[command(after_long_help = exit_codes())]
    Verify(Box<VerifyArgs>),
    /// Compare a random sample of SRC and DST, and state a bound for all entries
    #[command(after_long_help = exit_codes())]
    Audit(Box<AuditArgs>),
    /// Hash files and trees, check lists of sums, find changed byte ranges
    #[command(after_long_help = exit_codes())]
    Sum(Box<SumArgs>),
    /// Serve the file systems of this host to another host
    ///
    /// The other host starts the agent through ssh. The agent uses standard input and output.
    ///
    /// As the forced command of a key in authorized_keys, it limits the users of that key:
    /// command="driftless agent --only /backup --no-delete",restrict
    Agent(Box<AgentArgs>),
    /// Carry out batches of a run that another host coordinates
    ///
    /// "driftless sync --queue" coordinates such runs.
    Mover(Box<MoverArgs>),
    /// Keep a replica identical to a live tree, and show how far it is behind
    Mirror(Box<MirrorArgs>),
    /// Show the lag, throughput, failures and missed changes of a mirror
    Report(ReportArgs),
    /// Report changed files to the mirrors of this host
    ///
    /// Any user may report. A mirror with "announcements" in detect compares each reported path.
    /// The command returns when the mirrors have received the paths.
    Post(Box<PostArgs>),
    /// Collect changes on this host, and report them to mirrors
    ///
    /// Runs the watch daemon of a node. The daemon receives changes from programs or from the
    /// kernel, and keeps them. It delivers them to the mirrors of this host that have
    /// "announcements" in detect. It runs until a signal ends it.
    Watch(Box<WatchArgs>),
    /// Distribute files and trees to the nodes of a cluster
    ///
    /// The nodes form a chain: each receives the data once, verifies it, and sends it on. If a node
    /// has parts of the data, it receives only the rest. The data set appears on a node complete and
    /// durable, or not at all. The same command continues an interrupted cast.
    #[command(after_long_help = exit_codes_of("cast"))]
    Cast(Box<CastArgs>),
    /// Serve casts on this host, and manage its copies
    ///
    /// Without a command, the daemon of a node runs until a signal ends it. A cast needs no daemon:
    /// it starts its nodes through ssh.
    #[command(after_long_help = exit_codes_of("node"))]
    Node(Box<NodeArgs>),
    /// Submit a job to a batch system, to start where its data has arrived
    ///
    /// The job is submitted held. The gateway sends the data to the nodes, and releases the job. In each
    /// task, $SPOOL_DIRECTORY is the directory with the data. The command prints the number of the job.
    #[command(after_long_help = exit_codes_of("submit"))]
    Submit(Box<SubmitArgs>),
    /// Deposit files and directories at a gateway, as data for jobs
    ///
    /// The deposit is a directory or file that only this user can read. It appears complete, or not at
    /// all. The command prints its path, for "driftless submit --data".
    #[command(after_long_help = exit_codes_of("put"))]
    Put(Box<PutArgs>),
    /// Show submitted jobs, and which nodes have their data
    #[command(after_long_help = exit_codes_of("jobs"))]
    Jobs(JobsArgs),
    /// Show the results of jobs that were collected, or wait for them
    #[command(after_long_help = exit_codes_of("results"))]
    Results(ResultsArgs),
    /// Serve jobs of a batch system: send data, release jobs, remove copies
    ///
    /// The gateway runs until a signal ends it. A gateway of root serves all users; a user's own
    /// gateway serves this user.
    #[command(after_long_help = exit_codes_of("gateway"))]
    Gateway(Box<GatewayArgs>),
    /// Serve FTPS, through which users deposit files for casts
    ///
    /// Clients log in with a password or a certificate, and see the deposits of their user alone. Each
    /// connection has TLS. The server runs as root until a signal ends it. A program that was built
    /// without the feature "ftps" says so, and ends.
    #[command(after_long_help = exit_codes_of("ftps"))]
    Ftps(Box<FtpsArgs>),
    /// Measure the links, disks and processors of nodes before a cast
    ///
    /// Measures one link at a time: from this host to each node, and from each node to the next.
    #[command(after_long_help = exit_codes_of("doctor"))]
    Doctor(Box<DoctorArgs>),
    /// Have programs report the files that they change
    ///
    /// The shim is a library that is loaded into these programs.
    Shim(ShimArgs),
    /// Carry standard input and output to and from the Unix socket SOCKET
    ///
    /// Takes the place of ssh (--ssh). A gateway connects SOCKET to the agent of a node.
    #[command(hide = true)]
    Relay {
        /// The socket
        socket: PathBuf,
        /// The host and the command, as ssh gets them
        #[arg(
            value_name = "WORD",
            trailing_var_arg = true,
            allow_hyphen_values = true
        )]
        words: Vec<OsString>,
    },
    /// List the exit codes of all commands
    #[command(hide = true, override_help = exit_codes())]
    ExitCodes,
    /// Print manual pages, completions or the command-line reference
    #[command(hide = true)]
    Generate {
        /// The document
        #[arg(value_enum)]
        what: Document,
        /// The command of the manual page
        #[arg(value_name = "COMMAND")]
        command: Vec<String>,
    },
}
