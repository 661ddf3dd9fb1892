//! Arguments of `driftless verify`.

use super::{ChooseArgs, GuardArgs, KeepArgs, OutputArgs, ReachArgs, RunArgs};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Source: a directory or a file; [USER@]HOST:PATH on another host
    #[arg(value_name = "SRC")]
    pub source: PathBuf,
    /// Replica that is compared with it, here or on another host
    #[arg(value_name = "DST")]
    pub replica: PathBuf,

    /// Depth of the comparison
    ///
    /// "meta" compares metadata; equal size and time stand for equal content. "content" compares
    /// every byte as well. "media" reads the replica from its medium.
    #[arg(long, value_enum, default_value_t = LevelArg::Content, help_heading = "Comparing")]
    pub level: LevelArg,
    /// Copy entries that differ
    ///
    /// Of large files, only the ranges that differ are copied.
    #[arg(long, help_heading = "Comparing")]
    pub repair: bool,
    /// Delete extraneous entries of DST, with --repair
    ///
    /// May also replace a directory that is not empty by another type.
    #[arg(long, requires = "repair", help_heading = "Comparing")]
    pub delete: bool,
    /// Delete even if SRC and DST share no name at the top
    ///
    /// Without this option, such a DST is refused as another tree.
    #[arg(long, requires = "delete", help_heading = "Comparing")]
    pub delete_unlike: bool,
    /// Drop the records of an interrupted verification
    #[arg(long, help_heading = "Comparing")]
    pub fresh: bool,
    /// Time for which records of an interrupted verification count
    ///
    /// A number with s, m, h, d or w. A medium may lose data later, without any sign.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LevelArg {
    /// Type, size, times, mode, owner, xattrs, ACLs, link groups
    Meta,
    /// All of meta, and every byte of every file
    Content,
    /// All of content; the replica is read from its medium, not from the page cache
    Media,
}
