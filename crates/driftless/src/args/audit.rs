//! What `driftless audit` takes.

use crate::args::{KeepArgs, LevelArg, ReachArgs, RunArgs};
use crate::output::progress::When;
use clap::{ArgGroup, Args};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("amount").required(true).args(["samples", "fraction"])))]
pub struct AuditArgs {
    /// The source: a directory; [USER@]HOST:PATH is on another host
    #[arg(value_name = "SRC")]
    pub source: PathBuf,
    /// The replica that is compared with it, here or on another host
    #[arg(value_name = "DST")]
    pub replica: PathBuf,

    /// Draw N entries
    #[arg(long, value_name = "N", value_parser = crate::units::above_zero, help_heading = "Sampling")]
    pub samples: Option<u64>,
    /// Draw as many entries as it takes to show, if none of them differs, that at most this
    /// fraction of all do (such as 1e-4 or 0.01%)
    #[arg(long, value_name = "P", value_parser = crate::units::share, help_heading = "Sampling")]
    pub fraction: Option<f64>,
    /// How sure the statement about all entries shall be (such as 0.99 or 99%)
    #[arg(long, value_name = "C", value_parser = crate::units::share, default_value = "0.95", help_heading = "Sampling")]
    pub confidence: f64,
    /// Draw what the audit that printed this seed drew; another sample every time without it
    #[arg(long, value_name = "N", help_heading = "Sampling")]
    pub seed: Option<u64>,
    /// Tell what was changed less than SECONDS before the beginning, or later, apart from what
    /// differs
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        help_heading = "Sampling"
    )]
    pub grace: u64,

    /// How closely: metadata alone (equal size and time vouch for the content), the content of all
    /// files, or that with the replica's read from its medium
    #[arg(long, value_enum, default_value_t = LevelArg::Content, help_heading = "Comparing")]
    pub level: LevelArg,

    /// Take what matches PATTERN (the first rule that matches decides)
    #[arg(long, value_name = "PATTERN", help_heading = "Choosing")]
    pub include: Vec<String>,
    /// Leave out what matches PATTERN, on both sides; it is not counted and not drawn
    #[arg(long, value_name = "PATTERN", help_heading = "Choosing")]
    pub exclude: Vec<String>,
    /// Read rules from FILE: lines "+ PATTERN" and "- PATTERN", "#" begins a comment
    #[arg(long, value_name = "FILE", help_heading = "Choosing")]
    pub filter_from: Vec<PathBuf>,
    /// Do not enter other file systems mounted below SRC, nor subvolumes of btrfs
    #[arg(short = 'x', long, help_heading = "Choosing")]
    pub one_file_system: bool,

    #[command(flatten)]
    pub keep: KeepArgs,
    #[command(flatten)]
    pub running: RunArgs,
    #[command(flatten)]
    pub reach: ReachArgs,

    /// Print one JSON object a line: start, differences, problems, progress, summary (or error)
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Write a page with what was drawn and what differed, in HTML with plots, to FILE
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub report: Option<PathBuf>,
    /// Append differences and problems to FILE
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub log: Option<PathBuf>,
    /// Print differences and problems only
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// Tell where the audit stands: "auto" (a bar at a terminal, elsewhere a line a minute),
    /// "never", or a line after so many seconds; SIGUSR1 asks at any time
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = When::parse, help_heading = "Output")]
    pub progress: When,
}
