//! What `driftless shim` takes.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct ShimArgs {
    #[command(subcommand)]
    pub command: ShimCommand,
}

#[derive(Debug, Subcommand)]
pub enum ShimCommand {
    /// Print the lines that have the programs of a shell announce what they change
    ///
    /// In a shell: eval "$(driftless shim env)"
    Env(EnvArgs),
    /// Say whether the programs that this shell starts announce what they change
    Status {
        /// The file in which programs look for an agent, if it is not where root's is
        #[arg(long, value_name = "FILE")]
        map: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub struct EnvArgs {
    /// The library; by default the one beside this program, or in ../lib/driftless or ../lib from there
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// The file in which programs look for an agent, if it is not where root's is
    #[arg(long, value_name = "FILE")]
    pub map: Option<PathBuf>,
    /// Print lines for a module file (Environment Modules, Lmod) instead
    #[arg(long)]
    pub module: bool,
}
