//! What `driftless post` takes.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct PostArgs {
    /// Files and directories that have changed, or are gone
    #[arg(value_name = "PATH", required_unless_present = "from")]
    pub paths: Vec<PathBuf>,
    /// Tell the mirror of this job alone: its file, or its name
    #[arg(long, value_name = "JOB")]
    pub job: Option<PathBuf>,
    /// Read further paths from this file, one a line; "-" is standard input
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// The paths of --from end with NUL instead of newline
    #[arg(short = '0', long = "null", requires = "from")]
    pub is_null: bool,
    /// Of directories, everything below may have changed
    #[arg(short, long)]
    pub recursive: bool,
}
