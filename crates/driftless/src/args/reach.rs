//! Connections to other hosts.

use crate::units::Streams;
use clap::Args;
use std::path::PathBuf;

/// Start of driftless on other hosts.
#[derive(Debug, Clone, Args)]
pub struct SshArgs {
    /// Command that connects to another host, with its arguments
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "ssh",
        help_heading = "Other hosts"
    )]
    pub ssh: String,
    /// Command that starts driftless on the other host
    ///
    /// Example: 'sudo -n driftless'. The value is split into words as in a shell.
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "driftless",
        help_heading = "Other hosts"
    )]
    pub agent_path: String,
    /// Copy this program, or FILE, to a host that lacks this version
    ///
    /// The program goes into the cache directory there, and must be statically linked.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, help_heading = "Other hosts")]
    pub deploy: Option<Option<PathBuf>>,
    /// Time limit for the greeting of a host, and then for an answer
    ///
    /// The time in which ssh asks for a password or about a host key does not count.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=CONNECT_SECONDS_MAX), help_heading = "Other hosts")]
    pub connect_timeout: u64,
}

/// Connections to other hosts.
#[derive(Debug, Clone, Args)]
pub struct ReachArgs {
    #[command(flatten)]
    pub start: SshArgs,
    /// Number of connections to each other host
    ///
    /// "auto" opens several if a round trip takes long.
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = crate::units::streams, help_heading = "Other hosts")]
    pub streams: Streams,
    /// Compress content between hosts with zstd, level 1 to 19
    ///
    /// The level is 1 if none is given. Content that does not shrink is sent as it is.
    #[arg(
        long,
        value_name = "LEVEL",
        value_parser = clap::value_parser!(i32).range(1..=19),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        help_heading = "Other hosts"
    )]
    pub compress: Option<i32>,
    /// Time to try to restore a lost connection; 0 ends the run at once
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(..=RECONNECT_SECONDS_MAX), help_heading = "Other hosts")]
    pub reconnect: u64,
}

/// A day, in seconds.
const CONNECT_SECONDS_MAX: u64 = 24 * 3600;
/// A year: more would be as good as for ever, and is not to overflow a clock.
const RECONNECT_SECONDS_MAX: u64 = 365 * 24 * 3600;
