//! What is printed, and where: by a run, and by a program that runs for long.

use crate::output::progress::When;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// What is printed, and where.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Print one JSON object a line: start, changes, problems, progress, summary (or error)
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// End with exit code 3 also if something is not kept that is only counted: owners that this
    /// user cannot give, inode flags, ACLs that are not POSIX's, times of which the replica keeps
    /// less
    #[arg(long, help_heading = "Output")]
    pub strict: bool,
    /// Append start, changes, problems and end to FILE, with the time
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub log: Option<PathBuf>,
    /// Print problems only; verify prints differences as well
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Output")]
    pub quiet: bool,
    /// Print every change
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
    /// Tell where the run stands: "auto" (a bar at a terminal, elsewhere a line a minute), "never",
    /// or a line after so many seconds; SIGUSR1 asks at any time
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = When::parse, help_heading = "Output")]
    pub progress: When,
}

/// What a program that runs for long says of itself.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct LogArgs {
    /// How standard error tells what happens: lines for a person, or one JSON object a line, with
    /// the time
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// The least of what is told
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
}

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for a person
    Text,
    /// One JSON object a line
    Json,
}

/// How much an event matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// A batch could not be carried out
    Error,
    /// Something that needs an eye, such as a connection that was lost
    Warn,
    /// What the program begins and ends
    Info,
    /// Each batch
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
