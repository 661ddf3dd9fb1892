//! Arguments of `driftless watch`.

use super::LogArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Configuration of the agent: its trees and detectors
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// Show the state of the agent, whether it runs or not
    #[arg(long, conflicts_with = "end")]
    pub status: bool,
    /// Print one JSON object
    #[arg(long, requires = "status")]
    pub json: bool,
    /// Have programs report nothing until an agent starts again
    ///
    /// No agent may run.
    #[arg(long)]
    pub end: bool,
    #[command(flatten)]
    pub log: LogArgs,
}
