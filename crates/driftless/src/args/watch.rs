//! What `driftless watch` takes.

use super::LogArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct WatchArgs {
    /// The file that says which trees are watched, and how
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// Say how the agent stands, whether it runs or not
    #[arg(long, conflicts_with = "end")]
    pub status: bool,
    /// Print one JSON object
    #[arg(long, requires = "status")]
    pub json: bool,
    /// Have programs announce nothing any more, until an agent begins again; none may run
    #[arg(long)]
    pub end: bool,
    #[command(flatten)]
    pub log: LogArgs,
}
