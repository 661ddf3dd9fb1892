//! Output of a run, and the log of a program that runs for long.

use crate::output::progress::When;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Output of a run.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Print one JSON object a line
    ///
    /// Events are start, changes, problems, progress, and summary or error.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Exit with 3 also if unsupported metadata was only counted
    ///
    /// The replica does not keep such metadata. Examples are owners that this user cannot set, inode
    /// flags, ACLs other than POSIX ACLs, and more precise times.
    #[arg(long, help_heading = "Output")]
    pub strict: bool,
    /// Append start, changes, errors and end to FILE, with the time
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub log: Option<PathBuf>,
    /// Print errors only; verify prints differences as well
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Output")]
    pub quiet: bool,
    /// Print every change
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
    /// Report progress: auto, never, or each so many seconds
    ///
    /// "auto" shows a bar at a terminal, and prints a line a minute elsewhere. SIGUSR1 prints a
    /// line at any time.
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = When::parse, help_heading = "Output")]
    pub progress: When,
}

/// Log of a program that runs for long.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct LogArgs {
    /// Format of the messages on standard error
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// Minimum severity of the messages
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
}

/// Format of log messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line, with the time
    Json,
}

/// Severity of a log message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Failures of work, such as a directory that cannot be written
    Error,
    /// Events that need attention, such as a lost connection
    Warn,
    /// Begin and end of work
    Info,
    /// Each piece of work
    Debug,
}

impl From<LogLevel> for tracing::Level {
    fn from(level: LogLevel) -> tracing::Level {
        match level {
            LogLevel::Error => tracing::Level::ERROR,
            LogLevel::Warn => tracing::Level::WARN,
            LogLevel::Info => tracing::Level::INFO,
            LogLevel::Debug => tracing::Level::DEBUG,
        }
    }
}
