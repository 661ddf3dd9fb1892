//! The end of a run that was asked to stop: the other side is told, and not waited for beyond some
//! seconds.
//!
//! What is under way comes to its end there, and notes of progress are kept; what takes long is
//! broken off. A host that gives no answer meanwhile, though it may say that it is there, keeps
//! nobody from ending: its stream is given up like one that is lost.

use crate::client::Client;
use crate::wire::Request;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long no answer may come to what was asked once the run is to end.
const PATIENCE: Duration = Duration::from_secs(6);

/// Watches one stream, asked each second at least.
pub struct Ending {
    stop: Arc<AtomicBool>,
    client: Arc<Client>,
    /// How many answers had come, and when that was, since the run is to end.
    last: Option<(u64, Instant)>,
}

impl Ending {
    /// Of a stream of a run that is to end when `stop` is set.
    pub fn new(stop: &Arc<AtomicBool>, client: &Arc<Client>) -> Ending {
        Ending {
            stop: stop.clone(),
            client: client.clone(),
            last: None,
        }
    }

    /// An error gives the stream up.
    pub fn check(&mut self) -> io::Result<()> {
        if !self.stop.load(Relaxed) {
            return Ok(());
        }
        let (connection, now) = (&self.client.connection, Instant::now());
        if self.last.is_none() {
            connection.tell(&Request::Cease);
        }
        let (answers, since) = *self.last.get_or_insert((connection.answers_come(), now));
        if answers != connection.answers_come() || !connection.is_waited_for() {
            self.last = Some((connection.answers_come(), now));
        } else if now.duration_since(since) >= PATIENCE {
            return Err(io::Error::new(
                ErrorKind::TimedOut,
                format!(
                    "no answer for {} s, and the run is to end",
                    PATIENCE.as_secs()
                ),
            ));
        }
        Ok(())
    }
}
