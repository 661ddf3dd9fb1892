//! How much a run asks of the file systems and of the page cache.

use clap::{Args, ValueEnum};

/// How hard it is worked.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub throttle: ThrottleArgs,
    /// What becomes of the page cache: keep copied data in it, drop it, or pass it by for large
    /// files
    #[arg(long, value_enum, default_value_t = CacheArg::Keep, help_heading = "Running")]
    pub cache: CacheArg,
}

/// How much is asked of the file systems.
#[derive(Debug, Clone, Args)]
pub struct ThrottleArgs {
    /// Requests in flight: "auto" finds out while it runs
    #[arg(short = 'j', long, value_name = "auto|N", default_value = "auto", value_parser = crate::units::jobs, allow_negative_numbers = true, help_heading = "Running")]
    pub jobs: driftless_pool::Concurrency,
    /// Read (and write) at most RATE bytes a second (such as 100M)
    #[arg(long, value_name = "RATE", value_parser = crate::units::rate, help_heading = "Running")]
    pub bwlimit: Option<u64>,
    /// Make at most N requests (entries looked at, blocks moved) a second
    #[arg(long, value_name = "N", value_parser = crate::units::above_zero, help_heading = "Running")]
    pub iops_limit: Option<u64>,
}

impl ThrottleArgs {
    /// The same for the engine.
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
    /// Copied data leaves the page cache; what was there before stays
    Drop,
    /// Large files pass the page cache by (O_DIRECT), the rest is dropped
    Direct,
}
