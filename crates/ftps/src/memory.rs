//! Limits of the memory of a session and of its agent, which the kernel keeps.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Memory of a session before a login, in bytes.
const STRANGER_BYTES_MAX: u64 = 64 << 20;
/// Memory of a session and of an agent after a login, in bytes.
const USER_BYTES_MAX: u64 = 1 << 30;

/// Limits a session whose client has not logged in.
pub fn limit_for_strangers() {
    limit_memory(STRANGER_BYTES_MAX);
}

/// Allows the memory that an agent needs.
pub fn allow_memory_of_agent() {
    limit_memory(USER_BYTES_MAX);
}

/// Limits the memory of this process. Children inherit the limit.
fn limit_memory(bytes: u64) {
    let maximum = getrlimit(Resource::Data).maximum;
    let limit = Rlimit {
        current: Some(maximum.map_or(bytes, |maximum| maximum.min(bytes))),
        maximum,
    };
    if let Err(errno) = setrlimit(Resource::Data, limit) {
        tracing::warn!("cannot limit the memory of a session: {errno}");
    }
}
