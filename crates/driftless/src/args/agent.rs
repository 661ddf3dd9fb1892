//! Arguments of `driftless agent`, and requests of its clients.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Limit clients to the directory PATH and everything below it
    ///
    /// May be given several times. The agent creates a missing PATH, but not with --read-only.
    #[arg(long, value_name = "PATH", help_heading = "Limits")]
    pub only: Vec<PathBuf>,
    /// Let clients list and read, and change nothing
    #[arg(long, conflicts_with = "no_delete", help_heading = "Limits")]
    pub read_only: bool,
    /// Let clients remove nothing
    ///
    /// Clients may add entries, and replace a file by a newer file. They may not replace an entry
    /// by one of another type.
    #[arg(long, help_heading = "Limits")]
    pub no_delete: bool,
    /// Serve without Landlock, with the checks of the agent alone
    ///
    /// Without this option, an agent with --only or --read-only needs a kernel with Landlock.
    #[arg(long, help_heading = "Limits")]
    pub without_landlock: bool,
    #[command(flatten)]
    pub asked: AskedArgs,
}

/// Requests of a client to an agent. Under a forced command, they stand in `SSH_ORIGINAL_COMMAND`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct AskedArgs {
    /// Compress content at this level of zstd, as the client does
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(i32).range(1..=19), hide = true)]
    pub compress: Option<i32>,
    /// Serve one more connection of the agent that listens at PLACE
    #[arg(long, value_name = "PLACE", hide = true)]
    pub join: Option<OsString>,
    /// Token that the agents of a run share
    #[arg(long, value_name = "TOKEN", hide = true)]
    pub run: Option<String>,
    /// Token of an agent whose connection was lost, and which ends then
    #[arg(long, value_name = "TOKEN", hide = true, conflicts_with = "run")]
    pub again: Option<String>,
}
