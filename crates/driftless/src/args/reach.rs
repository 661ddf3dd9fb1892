//! How other hosts are reached.

use crate::units::Streams;
use clap::Args;
use std::path::PathBuf;

/// How other hosts are reached.
#[derive(Debug, Clone, Args)]
pub struct ReachArgs {
    /// The command that connects to another host, with its arguments
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "ssh",
        help_heading = "Other hosts"
    )]
    pub ssh: String,
    /// The driftless program on the other host, with what starts it, such as 'sudo -n driftless';
    /// cut into words as a shell does
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "driftless",
        help_heading = "Other hosts"
    )]
    pub agent_path: String,
    /// Connections to each other host: "auto" opens several where a round trip takes long
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = crate::units::streams, help_heading = "Other hosts")]
    pub streams: Streams,
    /// Compress content on its way to and from other hosts (zstd, level 1 to 19; 1 if none is
    /// given); what does not get smaller crosses as it is
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
    /// Copy this program (or FILE) into the cache directory there if the agent is missing or of
    /// another version; it must be statically linked
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, help_heading = "Other hosts")]
    pub deploy: Option<Option<PathBuf>>,
    /// Longest time to wait for a host to greet, and then to answer; the time that ssh asks you for a
    /// password or about a host key does not count
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=CONNECT_SECONDS_MAX), help_heading = "Other hosts")]
    pub connect_timeout: u64,
    /// When a connection is lost, try for so long to connect again and go on; 0 ends the run at
    /// once
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(..=RECONNECT_SECONDS_MAX), help_heading = "Other hosts")]
    pub reconnect: u64,
}

/// A day, in seconds.
const CONNECT_SECONDS_MAX: u64 = 24 * 3600;
/// A year: more would be as good as for ever, and is not to overflow a clock.
const RECONNECT_SECONDS_MAX: u64 = 365 * 24 * 3600;
