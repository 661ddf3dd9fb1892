//! Data connections of one session: which ports they use, and that each has TLS.
//!
//! libunftp 0.24 checks `PROT P` before `PASV` alone, and not before `EPSV`. It shows commands to its
//! logger and asks a binder for each port. So the logger here notes the protection level that the
//! client chose. The binder gives no port to a client that did not choose `P`. The count of
//! handshakes is a second check: a change of the log only refuses transfers.

use crate::tls::HandshakeCount;
use async_trait::async_trait;
use libunftp::options::Binder;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;

/// Line of the log for `PROT P`.
const PRIVATE: &str = "Control channel event Command(Prot { param: Private })";
/// Beginning of the line of the log for `PROT` with any level.
const ANY_LEVEL: &str = "Control channel event Command(Prot ";

/// State of the connections of a session.
#[derive(Debug)]
pub struct SessionChannels {
    is_private: AtomicBool,
    handshakes: Arc<HandshakeCount>,
    began: Instant,
    /// Milliseconds from the begin until the last command or byte.
    active_ms: AtomicU64,
}

impl SessionChannels {
    /// Returns the state at the begin of a session.
    pub fn new(handshakes: Arc<HandshakeCount>) -> Self {
        SessionChannels {
            is_private: AtomicBool::new(false),
            handshakes,
            began: Instant::now(),
            active_ms: AtomicU64::new(0),
        }
    }

    /// Notes that the client sent or took something.
    pub fn touch(&self) {
        let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.active_ms.store(since, Relaxed);
    }

    /// Returns the time since the client sent or took something.
    pub fn idle(&self) -> Duration {
        let active = Duration::from_millis(self.active_ms.load(Relaxed));
        self.began.elapsed().saturating_sub(active)
    }

    /// Returns whether the data connection of a transfer that begins has TLS.
    pub fn has_tls(&self) -> bool {
        self.touch();
        self.handshakes.take()
    }

    fn note(&self, line: &str) {
        self.touch();
        if line.starts_with(ANY_LEVEL) {
            self.is_private.store(line == PRIVATE, Relaxed);
        }
    }
}

/// Receiver of the log of libunftp. It prints nothing.
pub struct CommandWatch(pub Arc<SessionChannels>);

impl slog::Drain for CommandWatch {
    type Ok = ();
    type Err = slog::Never;

    fn log(&self, record: &slog::Record<'_>, _: &slog::OwnedKVList) -> Result<Self::Ok, Self::Err> {
        self.0.note(&record.msg().to_string());
        Ok(())
    }
}

/// Source of ports for data connections.
#[derive(Debug)]
pub struct PassivePorts(pub Arc<SessionChannels>);

#[async_trait]
impl Binder for PassivePorts {
    async fn bind(&mut self, local: IpAddr, ports: RangeInclusive<u16>) -> io::Result<TcpSocket> {
        if !self.0.is_private.load(Relaxed) {
            tracing::warn!("refused a data connection without TLS; the client must send PROT P");
            return Err(ErrorKind::PermissionDenied.into());
        }
        // Handshakes of earlier connections prove nothing about this one.
        self.0.handshakes.clear();
        let count = u32::from(ports.end().saturating_sub(*ports.start())) + 1;
        let first = random_below(count);
        for step in 0..count {
            let offset = u16::try_from((first + step) % count).unwrap_or_default();
            let address = SocketAddr::new(local, ports.start() + offset);
            let socket = match local {
                IpAddr::V4(_) => TcpSocket::new_v4()?,
                IpAddr::V6(_) => TcpSocket::new_v6()?,
            };
            // Connections that ended a moment ago keep no port.
            socket.set_reuseaddr(true)?;
            if socket.bind(address).is_ok() {
                return Ok(socket);
            }
        }
        tracing::warn!("all passive ports are in use; give more with --passive-ports");
        Err(ErrorKind::AddrInUse.into())
    }
}

/// Returns a random number, so that another client cannot know the next port.
fn random_below(count: u32) -> u32 {
    let mut bytes = [0; 4];
    let _zero_is_a_port_too =
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u32::from_ne_bytes(bytes) % count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(lines: &[&str]) -> bool {
        let channels = Arc::new(SessionChannels::new(Arc::default()));
        let watch = slog::Logger::root(CommandWatch(channels.clone()), slog::o!());
        for line in lines {
            slog::debug!(watch, "{}", line);
        }
        channels.is_private.load(Relaxed)
    }

    #[test]
    fn last_protection_level_counts() {
        let clear = "Control channel event Command(Prot { param: Clear })";
        let path = format!("Control channel event Command(Stor {{ path: {PRIVATE:?} }})");
        assert!(!noted(&[]));
        assert!(noted(&[
            clear,
            PRIVATE,
            "Control channel event Command(Epsv)"
        ]));
        assert!(!noted(&[PRIVATE, clear]));
        assert!(!noted(&[&path]));
    }

    #[test]
    fn each_transfer_needs_a_handshake() {
        let channels = SessionChannels::new(Arc::default());
        assert!(!channels.has_tls());
    }
}
