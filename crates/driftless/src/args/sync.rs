//! What `driftless sync` takes.

use super::{ChooseArgs, GuardArgs, KeepArgs, MoversArgs, OutputArgs, ReachArgs, RunArgs};
use crate::command::program::Template;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct SyncArgs {
    /// The source: a directory, or a single file; [USER@]HOST:PATH is on another host
    #[arg(value_name = "SRC")]
    pub source: PathBuf,
    /// The replica: the directory (or file) that is made equal, here or on another host; a slash at
    /// the end means nothing
    #[arg(value_name = "DST")]
    pub replica: PathBuf,

    /// Remove from the replica what the source lacks; last, and only if the source was read without
    /// error. Replace directories that are not empty by what is none
    #[arg(long, help_heading = "Deleting")]
    pub delete: bool,
    /// With --delete, remove what the filters exclude, too
    #[arg(long, requires = "delete", help_heading = "Deleting")]
    pub delete_excluded: bool,
    /// Refuse to delete anything if more than N entries, or P% of the replica's, would go
    #[arg(long, value_name = "N|P%", value_parser = crate::units::delete_limit, allow_negative_numbers = true, help_heading = "Deleting")]
    pub max_delete: Option<driftless_model::DeleteLimit>,

    /// With --delete, go on where nothing at the top of DST has a name that SRC has: another tree
    /// looks like that
    #[arg(long, requires = "delete", help_heading = "Deleting")]
    pub delete_unlike: bool,

    /// Copy into a directory that holds other entries, and none that SRC has: the directory above
    /// the replica looks like that
    #[arg(long, conflicts_with = "delete", help_heading = "Safety")]
    pub copy_into: bool,
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
    /// Make files that are unchanged since the earlier copy DIR hard links into it; --checksum and
    /// --verify compare their content first
    #[arg(long, value_name = "DIR", help_heading = "Comparing")]
    pub link_dest: Option<PathBuf>,

    #[command(flatten)]
    pub keep: KeepArgs,

    #[command(flatten)]
    pub running: RunArgs,
    /// When data is made durable: at the end, file by file, or not at all (then success does not
    /// mean durable)
    #[arg(long, value_enum, default_value_t = DurabilityArg::End, help_heading = "Running")]
    pub durability: DurabilityArg,
    /// Read back what was written and compare it with what was read; what differs is copied again
    #[arg(long, value_name = "LEVEL", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "content", help_heading = "Running")]
    pub verify: Option<ReadBackArg>,

    /// Have COMMAND move the content of files: %s is the path of the source file, %d that of the
    /// file it shall make, %% a percent sign
    ///
    /// Such as 'dd if=%s of=%d bs=8M'. The words are cut as a shell does, and no shell reads them.
    /// Everything else is done and checked as ever. The command is started once for each file that
    /// is not empty; how fast it goes, holes and the page cache are its own business. Both trees
    /// are paths of this host.
    #[arg(long, value_name = "COMMAND", value_parser = crate::command::program::template, conflicts_with_all = ["bwlimit", "cache"], help_heading = "Running")]
    pub copy_with: Option<Template>,

    #[command(flatten)]
    pub movers: MoversArgs,
    #[command(flatten)]
    pub reach: ReachArgs,
    #[command(flatten)]
    pub output: OutputArgs,
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
