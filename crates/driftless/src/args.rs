//! The command line. The manual page, the completions and the reference in docs are generated from these definitions.

mod audit;
mod sum;

pub use audit::AuditArgs;
pub use sum::{AlgorithmArg, SumArgs, range};

use crate::exit::Exit;
use crate::program::Template;
use crate::standing::When;
use crate::units::Streams;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Keeps huge file trees identical: in parallel, and provably.
#[derive(Debug, Parser)]
#[command(name = "driftless", version, about, long_about = None, after_long_help = exit_codes(), max_term_width = 100, args_override_self = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

fn exit_codes() -> String {
    let lines: Vec<String> = Exit::table().map(|(code, meaning)| format!("  {code:<6} {meaning}")).collect();
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
    /// Serve this host's file systems to a driftless on another host, over standard input and output (started by it through ssh)
    ///
    /// As the forced command of a key it limits what whoever logs in with that key may do: command="driftless agent --only /backup --no-delete",restrict
    Agent(Box<AgentArgs>),
    /// Carry out shares of runs that are coordinated elsewhere (by sync --queue)
    #[command(after_long_help = exit_codes())]
    Mover(Box<MoverArgs>),
    /// Print generated documents: manual pages, completions, the command-line reference
    #[command(hide = true)]
    Generate {
        /// Which document
        #[arg(value_enum)]
        what: Document,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Document {
    /// Manual page driftless(1)
    Man,
    /// Manual page driftless-sync(1)
    ManSync,
    /// Manual page driftless-verify(1)
    ManVerify,
    /// Manual page driftless-audit(1)
    ManAudit,
    /// Manual page driftless-sum(1)
    ManSum,
    /// Manual page driftless-mover(1)
    ManMover,
    /// Completions for bash
    Bash,
    /// Completions for zsh
    Zsh,
    /// Completions for fish
    Fish,
    /// Command-line reference in Markdown
    Reference,
}

#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Let clients reach the directory PATH and what is below it, and nothing else; it is made if it is missing (may be given more than once)
    #[arg(long, value_name = "PATH", help_heading = "Limits")]
    pub only: Vec<PathBuf>,
    /// Let clients look and read, and change nothing
    #[arg(long, conflicts_with = "no_delete", help_heading = "Limits")]
    pub read_only: bool,
    /// Let clients remove nothing: they make entries, and replace files by newer ones, and nothing by something of another kind
    #[arg(long, help_heading = "Limits")]
    pub no_delete: bool,
    /// Serve also where the kernel has no Landlock to hold clients to --only and --read-only, so that only the agent's own checks do
    #[arg(long, help_heading = "Limits")]
    pub without_landlock: bool,
    #[command(flatten)]
    pub asked: AskedArgs,
}

/// What a client asks an agent for; under a forced command, in `SSH_ORIGINAL_COMMAND`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct AskedArgs {
    /// Compress content at this level of zstd, as the client does
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(i32).range(1..=19), hide = true)]
    pub compress: Option<i32>,
    /// Be one more line to the agent that takes lines at PLACE
    #[arg(long, value_name = "PLACE", hide = true)]
    pub join: Option<OsString>,
    /// By what agents of the same run are known
    #[arg(long, value_name = "TOKEN", hide = true)]
    pub run: Option<String>,
    /// The same, in place of an agent whose line was lost: that one is ended
    #[arg(long, value_name = "TOKEN", hide = true, conflicts_with = "run")]
    pub again: Option<String>,
}

#[derive(Debug, Args)]
pub struct SyncArgs {
    /// The source: a directory, or a single file; [USER@]HOST:PATH is on another host
    #[arg(value_name = "SRC")]
    pub source: PathBuf,
    /// The replica: the directory (or file) that is made equal, here or on another host; a slash at the end means nothing
    #[arg(value_name = "DST")]
    pub replica: PathBuf,

    /// Remove from the replica what the source lacks; last, and only if the source was read without error. Replace directories that are not empty by what is none
    #[arg(long, help_heading = "Deleting")]
    pub delete: bool,
    /// With --delete, remove what the filters exclude, too
    #[arg(long, requires = "delete", help_heading = "Deleting")]
    pub delete_excluded: bool,
    /// Refuse to delete anything if more than N entries, or P% of the replica's, would go
    #[arg(long, value_name = "N|P%", value_parser = crate::units::delete_limit, allow_negative_numbers = true, help_heading = "Deleting")]
    pub max_delete: Option<driftless_reconcile::DeleteLimit>,

    /// With --delete, go on where nothing at the top of DST has a name that SRC has: another tree looks like that
    #[arg(long, requires = "delete", help_heading = "Deleting")]
    pub delete_unlike: bool,

    #[command(flatten)]
    pub guard: GuardArgs,
    #[command(flatten)]
    pub choose: ChooseArgs,

    /// Compare the content of all files, not only size and time
    #[arg(short = 'c', long, help_heading = "Comparing")]
    pub checksum: bool,
    /// Print what would be done, and change nothing
    #[arg(short = 'n', long, help_heading = "Comparing")]
    pub dry_run: bool,
    /// Make files that are unchanged since the earlier copy DIR hard links into it
    #[arg(long, value_name = "DIR", help_heading = "Comparing")]
    pub link_dest: Option<PathBuf>,

    #[command(flatten)]
    pub keep: KeepArgs,

    #[command(flatten)]
    pub running: RunArgs,
    /// When data is made durable: at the end, file by file, or not at all (then success does not mean durable)
    #[arg(long, value_enum, default_value_t = DurabilityArg::End, help_heading = "Running")]
    pub durability: DurabilityArg,
    /// Read back what was written and compare it with what was read; what differs is copied again
    #[arg(long, value_name = "LEVEL", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "content", help_heading = "Running")]
    pub verify: Option<ReadBackArg>,

    /// Have COMMAND move the content of files: %s is the path of the source file, %d that of the file it shall make, %% a percent sign
    ///
    /// Such as 'dd if=%s of=%d bs=8M'. The words are cut as a shell does, and no shell reads them. Everything else is done and checked as ever.
    /// The command is started once for each file that is not empty; how fast it goes, holes and the page cache are its own business. Both
    /// trees are paths of this host.
    #[arg(long, value_name = "COMMAND", value_parser = crate::program::template, conflicts_with_all = ["bwlimit", "cache"], help_heading = "Running")]
    pub copy_with: Option<Template>,

    #[command(flatten)]
    pub movers: MoversArgs,
    #[command(flatten)]
    pub reach: ReachArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The source: a directory, or a single file; [USER@]HOST:PATH is on another host
    #[arg(value_name = "SRC")]
    pub source: PathBuf,
    /// The replica that is compared with it, here or on another host
    #[arg(value_name = "DST")]
    pub replica: PathBuf,

    /// How closely: metadata alone (equal size and time vouch for the content), the content of all files, or that with the replica's read from its medium
    #[arg(long, value_enum, default_value_t = LevelArg::Content, help_heading = "Comparing")]
    pub level: LevelArg,
    /// Make equal what differs; of large files only the ranges that differ are copied
    #[arg(long, help_heading = "Comparing")]
    pub repair: bool,
    /// With --repair, remove from the replica what the source lacks, and replace directories that are not empty by what is none
    #[arg(long, requires = "repair", help_heading = "Comparing")]
    pub delete: bool,
    /// With --delete, go on where nothing at the top of DST has a name that SRC has: another tree looks like that
    #[arg(long, requires = "delete", help_heading = "Comparing")]
    pub delete_unlike: bool,
    /// Forget what an interrupted verification has found equal, and begin anew
    #[arg(long, help_heading = "Comparing")]
    pub fresh: bool,
    /// What an interrupted verification found equal counts for so long: a medium loses what it holds without any sign (a number with s, m, h or d)
    #[arg(long, value_name = "TIME", value_parser = crate::units::time, default_value = "1d", help_heading = "Comparing")]
    pub resume_within: Duration,

    #[command(flatten)]
    pub guard: GuardArgs,
    #[command(flatten)]
    pub choose: ChooseArgs,
    #[command(flatten)]
    pub keep: KeepArgs,
    #[command(flatten)]
    pub running: RunArgs,
    #[command(flatten)]
    pub reach: ReachArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What is asked of both trees before a run begins.
#[derive(Debug, Args)]
pub struct GuardArgs {
    /// Begin only if PATH is there below SRC and below DST (may be given more than once)
    #[arg(long, value_name = "PATH", help_heading = "Safety")]
    pub require: Vec<PathBuf>,
    /// Take file systems that were mounted below SRC in earlier runs, and are not there now, for gone for good
    #[arg(long, help_heading = "Safety")]
    pub forget_mounts: bool,
}

/// What of the trees is looked at.
#[derive(Debug, Args)]
pub struct ChooseArgs {
    /// Take what matches PATTERN (the first rule that matches decides)
    ///
    /// A pattern with a / is matched against the path below the root, one without against the last name; a / at its end
    /// restricts it to directories. * and ? stop at /, ** does not; [a-z], {a,b} and \ work as in a shell. What lies in an excluded directory is excluded.
    #[arg(long, value_name = "PATTERN", help_heading = "Choosing")]
    pub include: Vec<String>,
    /// Leave out what matches PATTERN, on both sides
    #[arg(long, value_name = "PATTERN", help_heading = "Choosing")]
    pub exclude: Vec<String>,
    /// Read rules from FILE: lines "+ PATTERN" and "- PATTERN", "#" begins a comment
    #[arg(long, value_name = "FILE", help_heading = "Choosing")]
    pub filter_from: Vec<PathBuf>,
    /// Look only at the paths listed in FILE, one a line, relative to SRC; "-" is standard input. A directory means all below it
    #[arg(long, value_name = "FILE", help_heading = "Choosing")]
    pub files_from: Option<PathBuf>,
    /// The paths of --files-from end with NUL instead of newline
    #[arg(long, requires = "files_from", help_heading = "Choosing")]
    pub from0: bool,
    /// Do not enter other file systems mounted below SRC, nor subvolumes of btrfs
    #[arg(short = 'x', long, help_heading = "Choosing")]
    pub one_file_system: bool,
    /// Leave out files smaller than SIZE (such as 10k, 4M, 1G: powers of 1024)
    #[arg(long, value_name = "SIZE", value_parser = crate::units::bytes, help_heading = "Choosing")]
    pub min_size: Option<u64>,
    /// Leave out files larger than SIZE
    #[arg(long, value_name = "SIZE", value_parser = crate::units::bytes, help_heading = "Choosing")]
    pub max_size: Option<u64>,
}

/// How hard it is worked.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub throttle: ThrottleArgs,
    /// What becomes of the page cache: keep copied data in it, drop it, or pass it by for large files
    #[arg(long, value_enum, default_value_t = CacheArg::Keep, help_heading = "Running")]
    pub cache: CacheArg,
}

/// How much is asked of the file systems.
#[derive(Debug, Clone, Args)]
pub struct ThrottleArgs {
    /// Requests in flight: "auto" finds out while it runs
    #[arg(short = 'j', long, value_name = "auto|N", default_value = "auto", value_parser = crate::units::jobs, allow_negative_numbers = true, help_heading = "Running")]
    pub jobs: driftless_pool::Concurrency,
    /// Read (and write) at most RATE bytes a second (such as 100M)
    #[arg(long, value_name = "RATE", value_parser = crate::units::rate, help_heading = "Running")]
    pub bwlimit: Option<u64>,
    /// Make at most N requests (entries looked at, blocks moved) a second
    #[arg(long, value_name = "N", value_parser = crate::units::above_zero, help_heading = "Running")]
    pub iops_limit: Option<u64>,
}

/// The queue that shares of a run go through.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Movers")]
pub struct QueueArgs {
    /// The RabbitMQ broker that shares go through: amqp://USER@HOST[:PORT]/VHOST, or amqps:// with TLS; without a password
    #[arg(long, value_name = "URL", requires = "job")]
    pub queue: Option<String>,
    /// The name of the job, which its movers and its coordinator have in common
    #[arg(long, value_name = "NAME", requires = "queue")]
    pub job: Option<String>,
    /// The file whose one line is the broker's password, closed to all others; by default the password is taken from DRIFTLESS_QUEUE_PASSWORD
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
    /// Divide the work among these hosts, which see both trees under the same paths (or reach them as HOST:PATH); movers are started there through ssh
    #[arg(long, value_name = "HOST,...", value_delimiter = ',', value_parser = crate::units::host, conflicts_with_all = ["queue", "route"])]
    pub hosts: Vec<String>,
    /// Send the work on some files to movers of a class: with "size>=SIZE:CLASS", files of at least SIZE are taken by the movers of CLASS alone (may be given more than once)
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
    #[arg(long, value_name = "CLASS", default_value = "work", help_heading = "Movers")]
    pub class: String,
    /// End after so many seconds without work (by default, never)
    #[arg(long, value_name = "SECONDS", value_parser = crate::units::seconds, help_heading = "Movers")]
    pub idle: Option<std::time::Duration>,
    /// Take work from standard input, and report on standard output (how --hosts starts movers)
    #[arg(long, hide = true, conflicts_with = "queue")]
    pub stdio: bool,
    #[command(flatten)]
    pub throttle: ThrottleArgs,
    #[command(flatten)]
    pub reach: ReachArgs,
}

/// How other hosts are reached.
#[derive(Debug, Clone, Args)]
pub struct ReachArgs {
    /// The command that connects to another host, with its arguments
    #[arg(long, value_name = "COMMAND", default_value = "ssh", help_heading = "Other hosts")]
    pub ssh: String,
    /// The driftless program on the other host, with what starts it, such as 'sudo -n driftless'; cut into words as a shell does
    #[arg(long, value_name = "COMMAND", default_value = "driftless", help_heading = "Other hosts")]
    pub agent_path: String,
    /// Connections to each other host: "auto" opens several where a round trip takes long
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = crate::units::streams, help_heading = "Other hosts")]
    pub streams: Streams,
    /// Compress content on its way to and from other hosts (zstd, level 1 to 19; 1 if none is given); what does not get smaller crosses as it is
    #[arg(
        long,
        value_name = "LEVEL",
        value_parser = clap::value_parser!(i32).range(1..=19),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        help_heading = "Other hosts"
    )]
    pub compress: Option<i32>,
    /// Copy this program (or FILE) into the cache directory there if the agent is missing or of another version; it must be statically linked
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, help_heading = "Other hosts")]
    pub deploy: Option<Option<PathBuf>>,
    /// When a connection is lost, try for so long to connect again and go on; 0 ends the run at once
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(..=RECONNECT_SECONDS_MAX), help_heading = "Other hosts")]
    pub reconnect: u64,
}

/// A year: more would be as good as for ever, and is not to overflow a clock.
const RECONNECT_SECONDS_MAX: u64 = 365 * 24 * 3600;

/// What is printed, and where.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Print one JSON object a line: start, changes, problems, progress, summary (or error)
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// End with exit code 3 also if something is not kept that is only counted: owners that this user cannot give, inode flags, ACLs that are not POSIX's, times of which the replica keeps less
    #[arg(long, help_heading = "Output")]
    pub strict: bool,
    /// Append start, changes, problems and end to FILE, with the time
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub log: Option<PathBuf>,
    /// Print problems only
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Output")]
    pub quiet: bool,
    /// Print every change
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
    /// Tell where the run stands: "auto" (a bar at a terminal, elsewhere a line a minute), "never", or a line after so many seconds; SIGUSR1 asks at any time
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = When::parse, help_heading = "Output")]
    pub progress: When,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Keeping (everything but access times is kept by default)")]
pub struct KeepArgs {
    /// Keep access times, too
    #[arg(long)]
    pub atimes: bool,
    /// Do not keep permission bits
    #[arg(long = "no-mode", action = ArgAction::SetFalse)]
    pub mode: bool,
    /// Do not keep owners
    #[arg(long = "no-owner", action = ArgAction::SetFalse)]
    pub owner: bool,
    /// Do not keep groups
    #[arg(long = "no-group", action = ArgAction::SetFalse)]
    pub group: bool,
    /// Do not keep modification times; content is compared then
    #[arg(long = "no-times", action = ArgAction::SetFalse)]
    pub times: bool,
    /// Count modification times as equal that are at most SECONDS (up to a day) apart; without it, those that differ by what the replica cannot keep
    #[arg(long, value_name = "SECONDS", default_value_t = 0, hide_default_value = true, value_parser = crate::units::window_seconds)]
    pub modify_window: u32,
    /// Take it for a problem if an owner cannot be given; without it, owners that an ordinary user cannot give are only counted
    #[arg(long = "owner", conflicts_with = "owner")]
    pub demand_owner: bool,
    /// Take it for a problem if a group cannot be given; without it, groups that an ordinary user cannot give are only counted
    #[arg(long = "group", conflicts_with = "group")]
    pub demand_group: bool,
    /// Copy hard links as separate files
    #[arg(long = "no-hard-links", action = ArgAction::SetFalse)]
    pub hard_links: bool,
    /// Write zeros where the source has holes
    #[arg(long = "no-holes", action = ArgAction::SetFalse)]
    pub holes: bool,
    /// Leave out symbolic links
    #[arg(long = "no-symlinks", action = ArgAction::SetFalse)]
    pub symlinks: bool,
    /// Leave out fifos and sockets
    #[arg(long = "no-specials", action = ArgAction::SetFalse)]
    pub specials: bool,
    /// Leave out devices
    #[arg(long = "no-devices", action = ArgAction::SetFalse)]
    pub devices: bool,
    /// Do not keep extended attributes (ACLs are kept all the same)
    #[arg(long = "no-xattrs", action = ArgAction::SetFalse)]
    pub xattrs: bool,
    /// Do not keep POSIX ACLs
    #[arg(long = "no-acls", action = ArgAction::SetFalse)]
    pub acls: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CacheArg {
    /// Copied data stays in the page cache
    Keep,
    /// Copied data leaves the page cache; what was there before stays
    Drop,
    /// Large files pass the page cache by (O_DIRECT), the rest is dropped
    Direct,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LevelArg {
    /// Type, size, times, mode, owner, xattrs, ACLs, link groups
    Meta,
    /// The same, and the content of every file
    Content,
    /// The same, the replica's read from its medium and not from the page cache
    Media,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReadBackArg {
    /// Through the page cache
    Content,
    /// From the medium
    Media,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DurabilityArg {
    /// Once, at the end of the run
    End,
    /// Each file before it gets its name
    File,
    /// Never, but for a single file
    None,
}
