//! Options that select entries.

use clap::Args;
use std::path::PathBuf;

/// Entries of both trees that a run selects.
#[derive(Debug, Args)]
pub struct ChooseArgs {
    /// Include entries that match PATTERN
    ///
    /// The first rule that matches decides. A pattern with a / is matched against the path below
    /// the root, one without against the last name. A / at the end restricts it to directories. *
    /// and ? stop at /, ** does not. [a-z], {a,b} and \ work as in a shell. Entries in an excluded
    /// directory are excluded.
    #[arg(long, value_name = "PATTERN", help_heading = "Choosing")]
    pub include: Vec<String>,
    /// Exclude entries that match PATTERN, on both sides
    #[arg(long, value_name = "PATTERN", help_heading = "Choosing")]
    pub exclude: Vec<String>,
    /// Read rules from FILE
    ///
    /// Lines "+ PATTERN" and "- PATTERN"; "#" begins a comment.
    #[arg(long, value_name = "FILE", help_heading = "Choosing")]
    pub filter_from: Vec<PathBuf>,
    /// Select only the paths listed in FILE
    ///
    /// One path a line, relative to SRC. A directory selects everything below it. "-" is standard
    /// input.
    #[arg(long, value_name = "FILE", help_heading = "Choosing")]
    pub files_from: Option<PathBuf>,
    /// Paths of --files-from end with NUL instead of newline
    #[arg(long, requires = "files_from", help_heading = "Choosing")]
    pub from0: bool,
    /// Exclude file systems mounted below SRC, and btrfs subvolumes
    #[arg(short = 'x', long, help_heading = "Choosing")]
    pub one_file_system: bool,
    /// Exclude files smaller than SIZE
    ///
    /// Examples: 10k, 1.5M, 1GiB (powers of 1024); 10kB, 1.5MB, 1GB (powers of 1000).
    #[arg(long, value_name = "SIZE", value_parser = crate::units::bytes, help_heading = "Choosing")]
    pub min_size: Option<u64>,
    /// Exclude files larger than SIZE
    #[arg(long, value_name = "SIZE", value_parser = crate::units::bytes, help_heading = "Choosing")]
    pub max_size: Option<u64>,
}
