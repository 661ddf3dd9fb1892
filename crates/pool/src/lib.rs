//! Work that many threads share: a queue, the threads that empty it, and limits on how fast they
//! do.
//!
//! Nothing here knows what the work is.

mod adapt;
mod concurrency;
mod descriptors;
mod ordered;
mod pace;
mod pool;
mod queue;
mod split;

pub use concurrency::{Concurrency, cores};
pub use descriptors::descriptors;
pub use ordered::{Ordered, Position, part};
pub use pace::{Pace, Stride};
pub use pool::{BYTES_PER_ENTRY, THREADS_MAX, THREADS_PER_CORE, Workload, drive};
pub use queue::Queue;
pub use split::split_half;
