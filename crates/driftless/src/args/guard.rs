//! What must hold of both trees before a run begins.

use clap::Args;
use std::path::PathBuf;

/// What is asked of both trees before a run begins.
#[derive(Debug, Args)]
pub struct GuardArgs {
    /// Begin only if PATH is there below SRC and below DST (may be given more than once)
    #[arg(long, value_name = "PATH", help_heading = "Safety")]
    pub require: Vec<PathBuf>,
    /// Take file systems that were mounted below SRC in earlier runs, and are not there now, for
    /// gone for good
    #[arg(long, help_heading = "Safety")]
    pub forget_mounts: bool,
}
