//! Arguments of `driftless watch`.

use super::LogArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Configuration of the daemon: its trees and detectors
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// Show the state of the daemon, whether it runs or not
    #[arg(long, conflicts_with = "end")]
    pub status: bool,
    /// Print one JSON object
    #[arg(long, requires = "status")]
    pub json: bool,
    /// Have programs report nothing until a daemon starts again
    ///
    /// No watch daemon may run.
    #[arg(long)]
    pub end: bool,
    #[command(flatten)]
    pub log: LogArgs,
}
