//! Limits of connections, each with a default.

use crate::Error;
use crate::frame::MESSAGE_BYTES_LIMIT;
use driftless_pool::Pace;
use std::sync::Arc;
use std::time::Duration;

/// Shortest interval of heartbeats.
const HEARTBEAT_MIN: Duration = Duration::from_millis(10);

/// Limits of the connections of an endpoint.
#[derive(Debug, Clone)]
pub struct LinkSettings {
    /// Largest message in bytes, sent or received. Values above [`MESSAGE_BYTES_LIMIT`] are lowered.
    pub message_bytes_max: usize,
    /// Interval of heartbeats of an idle sender.
    pub heartbeat: Duration,
    /// Longest wait of a receiver for any byte of the peer.
    pub silence_max: Duration,
    /// Longest handshake.
    pub handshake_max: Duration,
    /// Longest attempt to connect, over all addresses of a peer.
    pub connect_max: Duration,
    /// Unauthenticated connections at a time. The oldest one gives way to a new one.
    pub handshakes_max: usize,
    /// Size of both socket buffers in bytes. The kernel adapts them if `None` (tcp(7), `tcp_rmem`).
    pub socket_buffer_bytes: Option<usize>,
    /// Rate limit of all messages that an endpoint sends, in bytes a second.
    pub pace: Option<Arc<Pace>>,
    /// Cipher suite.
    pub cipher: CipherChoice,
}

/// Cipher suite of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CipherChoice {
    /// AES-128-GCM if both processors have AES instructions, else ChaCha20-Poly1305.
    #[default]
    Processor,
    /// AES-128-GCM only.
    Aes128Gcm,
    /// ChaCha20-Poly1305 only.
    ChaCha20Poly1305,
}

impl Default for LinkSettings {
    fn default() -> Self {
        LinkSettings {
            message_bytes_max: 1 << 20,
            heartbeat: Duration::from_millis(300),
            silence_max: Duration::from_secs(1),
            handshake_max: Duration::from_secs(10),
            connect_max: Duration::from_secs(10),
            handshakes_max: 64,
            socket_buffer_bytes: None,
            pace: None,
            cipher: CipherChoice::Processor,
        }
    }
}

impl LinkSettings {
    /// Checks that heartbeats come often enough, and not all the time.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.heartbeat < HEARTBEAT_MIN {
            return Err(Error::Settings(
                "heartbeats come more often than every 10 ms",
            ));
        }
        // Two heartbeats of a peer with equal settings may be one and a half intervals apart.
        if self.heartbeat.saturating_mul(2) > self.silence_max {
            return Err(Error::Settings("the silence limit is under two heartbeats"));
        }
        Ok(())
    }

    /// Returns the largest message in bytes.
    pub(crate) fn message_bytes_max(&self) -> usize {
        self.message_bytes_max.min(MESSAGE_BYTES_LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::LinkSettings;
    use std::time::Duration;

    #[test]
    fn silence_lasts_two_heartbeats_at_least() {
        let with = |heartbeat, silence| LinkSettings {
            heartbeat: Duration::from_millis(heartbeat),
            silence_max: Duration::from_millis(silence),
            ..LinkSettings::default()
        };
        assert!(LinkSettings::default().check().is_ok());
        assert!(with(10, 20).check().is_ok());
        assert!(with(0, 1000).check().is_err());
        assert!(with(300, 599).check().is_err());
    }
}
