//! What `driftless agent` takes, and what a client asks it for.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Let clients reach the directory PATH and what is below it, and nothing else; it is made if
    /// it is missing, but with --read-only (may be given more than once)
    #[arg(long, value_name = "PATH", help_heading = "Limits")]
    pub only: Vec<PathBuf>,
    /// Let clients look and read, and change nothing
    #[arg(long, conflicts_with = "no_delete", help_heading = "Limits")]
    pub read_only: bool,
    /// Let clients remove nothing: they make entries, and replace files by newer ones, and nothing
    /// by something of another kind
    #[arg(long, help_heading = "Limits")]
    pub no_delete: bool,
    /// Serve also where the kernel has no Landlock to hold clients to --only and --read-only, so
    /// that only the agent's own checks do
    #[arg(long, help_heading = "Limits")]
    pub without_landlock: bool,
    #[command(flatten)]
    pub asked: AskedArgs,
}

/// What a client asks an agent for; under a forced command, in `SSH_ORIGINAL_COMMAND`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct AskedArgs {
    /// Compress content at this level of zstd, as the client does
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(i32).range(1..=19), hide = true)]
    pub compress: Option<i32>,
    /// Be one more line to the agent that takes lines at PLACE
    #[arg(long, value_name = "PLACE", hide = true)]
    pub join: Option<OsString>,
    /// By what agents of the same run are known
    #[arg(long, value_name = "TOKEN", hide = true)]
    pub run: Option<String>,
    /// The same, in place of an agent whose line was lost: that one is ended
    #[arg(long, value_name = "TOKEN", hide = true, conflicts_with = "run")]
    pub again: Option<String>,
}
