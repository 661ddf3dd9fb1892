//! Arguments of `driftless audit`.

use crate::args::{KeepArgs, LevelArg, ReachArgs, RunArgs};
use crate::output::progress::When;
use clap::{ArgGroup, Args};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("amount").required(true).args(["samples", "fraction"])))]
pub struct AuditArgs {
    /// Source: a directory; [USER@]HOST:PATH is on another host
    #[arg(value_name = "SRC")]
    pub source: PathBuf,
    /// Replica that is compared with it, here or on another host
    #[arg(value_name = "DST")]
    pub replica: PathBuf,

    /// Draw N entries
    #[arg(long, value_name = "N", value_parser = crate::units::above_zero, help_heading = "Sampling")]
    pub samples: Option<u64>,
    /// Draw enough entries to show that at most this fraction differs
    ///
    /// Examples: 1e-4, 0.01%. The bound holds if no entry of the sample differs.
    #[arg(long, value_name = "P", value_parser = crate::units::share, help_heading = "Sampling")]
    pub fraction: Option<f64>,
    /// Confidence of the statement about all entries, such as 99%
    #[arg(long, value_name = "C", value_parser = crate::units::share, default_value = "0.95", help_heading = "Sampling")]
    pub confidence: f64,
    /// Draw the entries of the audit that printed this seed
    ///
    /// Without this option, each audit draws another sample.
    #[arg(long, value_name = "N", help_heading = "Sampling")]
    pub seed: Option<u64>,
    /// List differences that changed in the last SECONDS apart
    ///
    /// Such an entry is recent: it changed less than SECONDS before the start, or later. It does
    /// not count as a difference.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        help_heading = "Sampling"
    )]
    pub grace: u64,

    /// Depth of the comparison
    ///
    /// "meta" compares metadata; equal size and time stand for equal content. "content" compares
    /// every byte as well. "media" reads the replica from its medium.
    #[arg(long, value_enum, default_value_t = LevelArg::Content, help_heading = "Comparing")]
    pub level: LevelArg,

    /// Include entries that match PATTERN
    ///
    /// The first rule that matches decides.
    #[arg(long, value_name = "PATTERN", help_heading = "Choosing")]
    pub include: Vec<String>,
    /// Exclude entries that match PATTERN, on both sides
    ///
    /// Excluded entries are not counted and not drawn.
    #[arg(long, value_name = "PATTERN", help_heading = "Choosing")]
    pub exclude: Vec<String>,
    /// Read rules from FILE
    ///
    /// Lines "+ PATTERN" and "- PATTERN"; "#" begins a comment.
    #[arg(long, value_name = "FILE", help_heading = "Choosing")]
    pub filter_from: Vec<PathBuf>,
    /// Exclude file systems mounted below SRC, and btrfs subvolumes
    #[arg(short = 'x', long, help_heading = "Choosing")]
    pub one_file_system: bool,

    #[command(flatten)]
    pub keep: KeepArgs,
    #[command(flatten)]
    pub running: RunArgs,
    #[command(flatten)]
    pub reach: ReachArgs,

    /// Print one JSON object a line
    ///
    /// Events are start, differences, problems, progress, and summary or error.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Write an HTML page with the sample, differences and plots
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub report: Option<PathBuf>,
    /// Append differences and errors to FILE, with the time
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub log: Option<PathBuf>,
    /// Print differences and problems only
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// Report progress: auto, never, or each so many seconds
    ///
    /// "auto" shows a bar at a terminal, and prints a line a minute elsewhere. SIGUSR1 prints a
    /// line at any time.
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = When::parse, help_heading = "Output")]
    pub progress: When,
}
