//! Arguments of `driftless shim`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct ShimArgs {
    #[command(subcommand)]
    pub command: ShimCommand,
}

#[derive(Debug, Subcommand)]
pub enum ShimCommand {
    /// Print the lines that load the shim into the programs of a shell
    ///
    /// In a shell: eval "$(driftless shim env)"
    Env(EnvArgs),
    /// Show whether programs that this shell starts report changes
    Status {
        /// File in which programs find the daemon, if it is not root's
        #[arg(long, value_name = "FILE")]
        map: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub struct EnvArgs {
    /// Path of the library
    ///
    /// By default, it is beside this program, or in ../lib/driftless or ../lib from there.
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// File in which programs find the daemon, if it is not root's
    #[arg(long, value_name = "FILE")]
    pub map: Option<PathBuf>,
    /// Print lines for a module file (Environment Modules, Lmod)
    #[arg(long)]
    pub module: bool,
}
