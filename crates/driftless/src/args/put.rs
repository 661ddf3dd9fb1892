//! Arguments of `driftless put`.

use super::{ReachArgs, SocketArgs, ThrottleArgs};
use crate::output::progress::When;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct PutArgs {
    /// Files and directories of this host; - for standard input
    #[arg(value_name = "SOURCE", required_unless_present_any = ["list", "remove", "serve"])]
    pub sources: Vec<PathBuf>,
    /// Name of the deposit; by default the last name of SOURCE
    ///
    /// With several sources, the deposit is a directory with all of them. Several sources and standard
    /// input need a name.
    #[arg(long, value_name = "NAME")]
    pub name: Option<OsString>,
    /// Replace a deposit of this name
    ///
    /// The new deposit takes the place of the old one at one moment.
    #[arg(long)]
    pub replace: bool,
    /// List the deposits of this user
    #[arg(long, conflicts_with_all = ["sources", "name", "replace", "remove"])]
    pub list: bool,
    /// Remove the deposit NAME, and an unfinished one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["sources", "name", "replace"])]
    pub remove: Option<OsString>,
    /// Deposit at the gateway of another host, through ssh
    #[arg(long, value_name = "[USER@]HOST", help_heading = "Other hosts")]
    pub on: Option<OsString>,
    #[command(flatten)]
    pub reach: ReachArgs,
    #[command(flatten)]
    pub socket: SocketArgs,
    #[command(flatten)]
    pub throttle: ThrottleArgs,
    /// Print JSON in place of the path or the list
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print errors only, and the path
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// Report progress: auto, never, or each so many seconds
    ///
    /// "auto" shows a bar at a terminal, and prints a line a minute elsewhere.
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = When::parse, help_heading = "Output")]
    pub progress: When,
    /// Serve a deposit of another host on standard input and output
    #[arg(long, hide = true, conflicts_with_all = ["sources", "list", "remove", "on"])]
    pub serve: bool,
}
