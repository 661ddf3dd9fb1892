//! How many threads work at the same time.

use std::sync::OnceLock;

/// How many requests are under way at the same time: one in each thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Concurrency {
    /// Found while running.
    #[default]
    Auto,
    /// This many threads.
    Fixed(usize),
}

/// Processors that this process may use.
pub fn cores() -> usize {
    // The answer is in files of the control group, too dear to read at every tick.
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
