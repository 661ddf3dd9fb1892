//! Arguments of `driftless report`.

use super::JobArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct ReportArgs {
    #[command(flatten)]
    pub job: JobArgs,
    /// Report this day (UTC) instead of the last 24 hours
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = crate::units::day)]
    pub day: Option<u64>,
    /// Write a page with plots to FILE
    ///
    /// The page needs no other file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON object for each replica
    #[arg(long)]
    pub json: bool,
}
