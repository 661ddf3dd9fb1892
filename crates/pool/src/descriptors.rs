//! How the limit on open files (`ulimit -n`) is divided.

use crate::pool::THREADS_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors a thread holds at most besides directories: two files, each with a second descriptor
/// for direct I/O.
const THREAD_DESCRIPTORS: u64 = 4;
/// Descriptors for everything else: standard streams, logs, roots, temporary files.
const OTHER_DESCRIPTORS: u64 = 16;
/// Directories that are held open at most.
const DIRECTORIES_MAX: u64 = 8192;

/// Divides the limit on open files: how many directories and how many threads.
pub fn descriptors() -> (usize, usize) {
    let now = getrlimit(Resource::Nofile);
    let _or_with_less = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: now.maximum,
            ..now
        },
    );
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 16);
    let directories = (limit / 4).clamp(8, DIRECTORIES_MAX);
    let threads = limit.saturating_sub(directories + OTHER_DESCRIPTORS) / THREAD_DESCRIPTORS;
    (
        directories as usize,
        (threads as usize).clamp(1, 4 * THREADS_MAX),
    )
}
