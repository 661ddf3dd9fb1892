//! The command line. The manual page, the completions and the reference in docs are generated from
//! these definitions.
//!
//! Each file has what one command takes, or a group of options that several commands take.

mod agent;
mod audit;
mod choose;
mod generate;
mod guard;
mod keep;
mod mirror;
mod mover;
mod output;
mod post;
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
pub use choose::ChooseArgs;
pub use generate::Document;
pub use guard::GuardArgs;
pub use keep::KeepArgs;
pub use mirror::{
    FailbackArgs, FailoverArgs, FailoverTo, ImportSr3Args, JobArgs, MirrorArgs, MirrorCommand,
    TrashCommand,
};
pub use mover::{MoverArgs, MoversArgs, QueueArgs};
pub use output::{LogArgs, LogFormat, OutputArgs};
pub use post::PostArgs;
pub use reach::ReachArgs;
pub use report::ReportArgs;
pub use running::{CacheArg, RunArgs, ThrottleArgs};
pub use shim::{EnvArgs, ShimArgs, ShimCommand};
pub use sum::{AlgorithmArg, SumArgs, range};
pub use sync::{DurabilityArg, ReadBackArg, SyncArgs};
pub use verify::{LevelArg, VerifyArgs};
pub use watch::WatchArgs;

use crate::exit::Exit;
use clap::{Parser, Subcommand};

/// Keeps huge file trees identical: in parallel, and provably.
#[derive(Debug, Parser)]
#[command(name = "driftless", version, about, long_about = None, after_long_help = EXIT_CODES, max_term_width = 100, args_override_self = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// The end of the help of the program.
const EXIT_CODES: &str = "\"driftless help exit-codes\" lists the exit codes.";

/// Returns the list of exit codes, for the help of commands in whose use they matter.
pub fn exit_codes() -> String {
    let lines: Vec<String> = Exit::table()
        .map(|(code, meaning)| format!("  {code:<6} {meaning}"))
        .collect();
    format!("Exit codes:\n{}", lines.join("\n"))
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make the replica DST equal to the source SRC
    #[command(after_long_help = exit_codes())]
    Sync(Box<SyncArgs>),
    /// Compare the replica DST with the source SRC, and say what differs
    #[command(after_long_help = exit_codes())]
    Verify(Box<VerifyArgs>),
    /// Compare a random sample of SRC and DST, and say what that proves of all entries
    #[command(after_long_help = exit_codes())]
    Audit(Box<AuditArgs>),
    /// Hash files and trees, check lists of sums, find which bytes of a file have changed
    #[command(after_long_help = exit_codes())]
    Sum(Box<SumArgs>),
    /// Serve this host's file systems to a driftless on another host, over standard input and
    /// output (started by it through ssh)
    ///
    /// As the forced command of a key it limits what whoever logs in with that key may do:
    /// command="driftless agent --only /backup --no-delete",restrict
    Agent(Box<AgentArgs>),
    /// Carry out batches of runs that are coordinated elsewhere (by sync --queue)
    Mover(Box<MoverArgs>),
    /// Keep a replica equal for good: follow what changes, and say how far behind it is
    Mirror(Box<MirrorArgs>),
    /// Say what a mirror did: how long changes took, how much was left, what failed and what was missed
    Report(ReportArgs),
    /// Tell the mirrors of this host which files have changed
    ///
    /// Any user may: a mirror that has "announcements" in detect looks at the paths that are named.
    /// Returns when it has heard of them.
    Post(Box<PostArgs>),
    /// Hear what changes on this host, from the programs themselves or from the kernel, and tell the
    /// mirrors
    ///
    /// The agent of a node: it runs until a signal ends it, keeps what it hears, and hands it on to
    /// the mirrors of this host that have "announcements" in detect.
    Watch(Box<WatchArgs>),
    /// Have programs announce what they change: the library that is loaded into them
    Shim(ShimArgs),
    /// List the exit codes of all commands
    #[command(hide = true, override_help = exit_codes())]
    ExitCodes,
    /// Print generated documents: manual pages, completions, the command-line reference
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
