//! Arguments of `driftless post`.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct PostArgs {
    /// Files and directories that changed or were removed
    #[arg(value_name = "PATH", required_unless_present = "from")]
    pub paths: Vec<PathBuf>,
    /// Report to the mirror of this job only
    ///
    /// JOB is a file or a name.
    #[arg(long, value_name = "JOB")]
    pub job: Option<PathBuf>,
    /// Read more paths from FILE, one a line
    ///
    /// "-" is standard input.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Paths of --from end with NUL instead of newline
    #[arg(short = '0', long = "null", requires = "from")]
    pub is_null: bool,
    /// Report everything below each directory as changed
    #[arg(short, long)]
    pub recursive: bool,
}
