//! What `driftless verify` takes.

use super::{ChooseArgs, GuardArgs, KeepArgs, OutputArgs, ReachArgs, RunArgs};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The source: a directory, or a single file; [USER@]HOST:PATH is on another host
    #[arg(value_name = "SRC")]
    pub source: PathBuf,
    /// The replica that is compared with it, here or on another host
    #[arg(value_name = "DST")]
    pub replica: PathBuf,

    /// How closely: metadata alone (equal size and time vouch for the content), the content of all
    /// files, or that with the replica's read from its medium
    #[arg(long, value_enum, default_value_t = LevelArg::Content, help_heading = "Comparing")]
    pub level: LevelArg,
    /// Make equal what differs; of large files only the ranges that differ are copied
    #[arg(long, help_heading = "Comparing")]
    pub repair: bool,
    /// With --repair, remove from the replica what the source lacks, and replace directories that
    /// are not empty by what is none
    #[arg(long, requires = "repair", help_heading = "Comparing")]
    pub delete: bool,
    /// With --delete, go on where nothing at the top of DST has a name that SRC has: another tree
    /// looks like that
    #[arg(long, requires = "delete", help_heading = "Comparing")]
    pub delete_unlike: bool,
    /// Forget what an interrupted verification has found equal, and begin anew
    #[arg(long, help_heading = "Comparing")]
    pub fresh: bool,
    /// What an interrupted verification found equal counts for so long: a medium loses what it
    /// holds without any sign (a number with s, m, h, d or w)
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
    /// The same, and the content of every file
    Content,
    /// The same, the replica's read from its medium and not from the page cache
    Media,
}
