//! Connections at a socket of this host, taken one after the other.

use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::sleep;
use std::time::Duration;

/// Pause after a connection that could not be taken: as long as no descriptor is left, the next try
/// fails at once.
const PAUSE: Duration = Duration::from_millis(100);

/// Hands each connection to `take`, for as long as the process lives. One that cannot be taken waits.
pub fn take_each(listener: &UnixListener, mut take: impl FnMut(UnixStream)) {
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => take(stream),
            Err(_) => sleep(PAUSE),
        }
    }
}
