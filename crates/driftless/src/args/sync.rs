//! Arguments of `driftless sync`.

use super::{ChooseArgs, GuardArgs, KeepArgs, MoversArgs, OutputArgs, ReachArgs, RunArgs};
use crate::command::program::Template;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct SyncArgs {
    /// Source: a directory or a file; [USER@]HOST:PATH on another host
    #[arg(value_name = "SRC")]
    pub source: PathBuf,
    /// Replica: the directory or file to make identical
    ///
    /// It may be on another host. A slash at the end means nothing.
    #[arg(value_name = "DST")]
    pub replica: PathBuf,

    /// Delete extraneous entries of DST, after the copy
    ///
    /// Deletes only in directories that were read completely on the source. May also replace a
    /// directory that is not empty by another type.
    #[arg(long, help_heading = "Deleting")]
    pub delete: bool,
    /// Delete excluded entries of DST as well, with --delete
    #[arg(long, requires = "delete", help_heading = "Deleting")]
    pub delete_excluded: bool,
    /// Delete nothing if the plan exceeds N entries, or P% of DST
    #[arg(long, value_name = "N|P%", value_parser = crate::units::delete_limit, allow_negative_numbers = true, help_heading = "Deleting")]
    pub max_delete: Option<driftless_model::DeleteLimit>,

    /// Delete even if SRC and DST share no name at the top
    ///
    /// Without this option, such a DST is refused as another tree.
    #[arg(long, requires = "delete", help_heading = "Deleting")]
    pub delete_unlike: bool,

    /// Copy into a directory with other entries and none of SRC
    ///
    /// Without this option, such a DST is refused: it may be the directory above the replica.
    #[arg(long, conflicts_with = "delete", help_heading = "Safety")]
    pub copy_into: bool,
    /// Report names in the root of SRC that a run leaves out, as errors: the caller deletes SRC
    #[arg(long, hide = true)]
    pub refuse_set_aside: bool,
    #[command(flatten)]
    pub guard: GuardArgs,
    #[command(flatten)]
    pub choose: ChooseArgs,

    /// Compare the content of all files, not only size and time
    #[arg(short = 'c', long, help_heading = "Comparing")]
    pub checksum: bool,
    /// Print the changes, and make none
    #[arg(short = 'n', long, help_heading = "Comparing")]
    pub dry_run: bool,
    /// Link files that are unchanged since the earlier copy DIR
    ///
    /// With --checksum or --verify, their content is compared first.
    #[arg(long, value_name = "DIR", help_heading = "Comparing")]
    pub link_dest: Option<PathBuf>,

    #[command(flatten)]
    pub keep: KeepArgs,

    #[command(flatten)]
    pub running: RunArgs,
    /// Moment at which data is flushed to disk
    ///
    /// With "none", success does not mean that the data is on disk.
    #[arg(long, value_enum, default_value_t = DurabilityArg::End, help_heading = "Running")]
    pub durability: DurabilityArg,
    /// Read copied files back, and copy those that differ again
    #[arg(long, value_name = "LEVEL", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "content", help_heading = "Running")]
    pub verify: Option<ReadBackArg>,

    /// Have COMMAND move the content of files
    ///
    /// %s is the path of the source file, %d that of the file to create, %% a percent sign.
    /// Example: 'dd if=%s of=%d bs=8M'.
    ///
    /// COMMAND is split into words as in a shell, and no shell runs it. COMMAND starts once for
    /// each file that is not empty. Limits of the speed, holes and the page cache are up to
    /// COMMAND. Driftless does and checks everything else. Both trees are paths of this host.
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
