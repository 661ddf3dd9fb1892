//! Load of a run on file systems, and its use of the page cache.

use clap::{Args, ValueEnum};

/// Load of a run, and its use of the page cache.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub throttle: ThrottleArgs,
    /// Use of the page cache for copied data
    #[arg(long, value_enum, default_value_t = CacheArg::Keep, help_heading = "Running")]
    pub cache: CacheArg,
}

/// Limits of the load on file systems.
#[derive(Debug, Clone, Args)]
pub struct ThrottleArgs {
    /// Number of concurrent requests; "auto" adapts it
    #[arg(short = 'j', long, value_name = "auto|N", default_value = "auto", value_parser = crate::units::jobs, allow_negative_numbers = true, help_heading = "Running")]
    pub jobs: driftless_pool::Concurrency,
    /// Read (and write) at most RATE bytes a second, such as 100M
    #[arg(long, value_name = "RATE", value_parser = crate::units::rate, help_heading = "Running")]
    pub bwlimit: Option<u64>,
    /// Make at most N requests a second
    ///
    /// A request visits an entry or moves a block.
    #[arg(long, value_name = "N", value_parser = crate::units::above_zero, help_heading = "Running")]
    pub iops_limit: Option<u64>,
}

impl ThrottleArgs {
    /// Returns the limits for the engine.
    pub fn for_engine(&self) -> driftless_engine::Throttle {
        driftless_engine::Throttle {
            jobs: self.jobs,
            bytes_per_second_max: self.bwlimit,
            requests_per_second_max: self.iops_limit,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CacheArg {
    /// Copied data stays in the page cache
    Keep,
    /// Copied data leaves the page cache; older data stays
    Drop,
    /// Large files bypass the page cache (O_DIRECT), other data leaves it
    Direct,
}
