//! A far host behind a relay of the test's own, which a test can slow down, stall and cut.

use super::far::Far;
use driftless_testkit::{FsKind, Relay, Scratch, Weather};
use std::path::PathBuf;

/// A server of the test's own, a relay in front of it, and the two trees to be.
pub struct Stage {
    /// The server itself.
    pub far: Far,
    /// The same by way of the relay.
    pub near: Far,
    pub relay: Relay,
    pub scratch: Scratch,
    pub src: PathBuf,
    pub dst: PathBuf,
}

impl Stage {
    pub fn new(weather: Weather) -> Stage {
        let far = Far::own();
        let relay = Relay::with(far.server.address(), weather);
        let near = far.via(relay.address());
        let scratch = Scratch::new(FsKind::Tmpfs, 500);
        let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
        Stage {
            far,
            near,
            relay,
            scratch,
            src,
            dst,
        }
    }

    /// So many bytes a second.
    pub fn with_rate(bytes_per_second_max: u64) -> Stage {
        Stage::new(Weather {
            bytes_per_second_max: Some(bytes_per_second_max),
            ..Weather::default()
        })
    }
}
