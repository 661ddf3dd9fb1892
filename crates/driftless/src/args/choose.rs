//! Which entries of the trees a run looks at.

use clap::Args;
use std::path::PathBuf;

/// What of the trees is looked at.
#[derive(Debug, Args)]
pub struct ChooseArgs {
    /// Take what matches PATTERN (the first rule that matches decides)
    ///
    /// A pattern with a / is matched against the path below the root, one without against the last
    /// name; a / at its end restricts it to directories. * and ? stop at /, ** does not; [a-z],
    /// {a,b} and \ work as in a shell. What lies in an excluded directory is excluded.
    #[arg(long, value_name = "PATTERN", help_heading = "Choosing")]
    pub include: Vec<String>,
    /// Leave out what matches PATTERN, on both sides
    #[arg(long, value_name = "PATTERN", help_heading = "Choosing")]
    pub exclude: Vec<String>,
    /// Read rules from FILE: lines "+ PATTERN" and "- PATTERN", "#" begins a comment
    #[arg(long, value_name = "FILE", help_heading = "Choosing")]
    pub filter_from: Vec<PathBuf>,
    /// Look only at the paths listed in FILE, one a line, relative to SRC; "-" is standard input. A
    /// directory means all below it
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
