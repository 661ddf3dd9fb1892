//! Conditions on both trees, checked before a run begins.

use clap::Args;
use std::path::PathBuf;

/// Conditions on both trees, checked before a run begins.
#[derive(Debug, Args)]
pub struct GuardArgs {
    /// Begin only if PATH exists below SRC and below DST
    ///
    /// May be given several times.
    #[arg(long, value_name = "PATH", help_heading = "Safety")]
    pub require: Vec<PathBuf>,
    /// Accept that missing mounts below SRC are gone for good
    ///
    /// Earlier runs found these file systems mounted below SRC.
    #[arg(long, help_heading = "Safety")]
    pub forget_mounts: bool,
}
