//! State that the two halves of a connection, its handles and the heartbeat thread share.

use crate::heartbeat::{HeartbeatSource, Heartbeats};
use crate::trust::PeerTrust;
use crate::wire::{Wire, io_fault};
use crate::{Error, LinkFault, LinkSettings, PeerKey};
use driftless_lock::Mutex;
use rustix::event::PollFlags;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Longest wait for a full socket before the state is looked at again.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The other end of a connection, as the handshake proved it.
#[derive(Debug, Clone)]
pub struct LinkPeer {
    /// Key of the peer.
    pub key: PeerKey,
    /// Address of the peer.
    pub address: SocketAddr,
    /// Cipher suite of the connection.
    pub cipher: &'static str,
    /// Certificate, if an authority has signed it.
    pub(crate) certificate: Option<CertificateDer<'static>>,
}

impl LinkPeer {
    /// Whether the authority has signed this DNS name or IP address of the peer.
    pub fn is_named(&self, name: &str) -> bool {
        let Some(certificate) = &self.certificate else {
            return false;
        };
        let parsed = ParsedCertificate::try_from(certificate).ok();
        let name = ServerName::try_from(name).ok();
        parsed
            .zip(name)
            .is_some_and(|(parsed, name)| verify_server_name(&parsed, &name).is_ok())
    }
}

/// Numbers of a connection since its handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkCounters {
    /// Bytes of messages that were sent, without heads.
    pub sent_bytes: u64,
    /// Messages that were sent.
    pub sent_messages: u64,
    /// Bytes of messages that were received, without heads.
    pub received_bytes: u64,
    /// Messages that were received.
    pub received_messages: u64,
}

/// Values that threads change without a lock. Times are milliseconds since the handshake.
#[derive(Debug, Default)]
struct Activity {
    sent_bytes: AtomicU64,
    sent_messages: AtomicU64,
    received_bytes: AtomicU64,
    received_messages: AtomicU64,
    sent_at: AtomicU64,
    heard_at: AtomicU64,
    /// Begin of the wait for a full socket, plus 1. Zero if no thread waits.
    stalled_since: AtomicU64,
}

/// State of one connection.
pub(crate) struct LinkShared {
    pub(crate) wire: Wire,
    pub(crate) peer: LinkPeer,
    pub(crate) settings: Arc<LinkSettings>,
    trust: PeerTrust,
    /// Keeps the frames of two messages apart.
    sending: Mutex<()>,
    is_finished: AtomicBool,
    fault: OnceLock<LinkFault>,
    born: Instant,
    activity: Activity,
    /// Keeps the heartbeat thread alive.
    pub(crate) heartbeats: Arc<Heartbeats>,
}

/// Parts of a new connection.
pub(crate) struct LinkParts {
    pub(crate) wire: Wire,
    pub(crate) peer: LinkPeer,
    pub(crate) settings: Arc<LinkSettings>,
    pub(crate) trust: PeerTrust,
    pub(crate) heartbeats: Arc<Heartbeats>,
}

impl LinkShared {
    pub(crate) fn new(parts: LinkParts) -> Arc<Self> {
        let shared = Arc::new(LinkShared {
            wire: parts.wire,
            peer: parts.peer,
            settings: parts.settings,
            trust: parts.trust,
            sending: Mutex::new(()),
            is_finished: AtomicBool::new(false),
            fault: OnceLock::new(),
            born: Instant::now(),
            activity: Activity::default(),
            heartbeats: parts.heartbeats,
        });
        let weak = Arc::downgrade(&shared);
        shared.heartbeats.watch(weak);
        shared
    }

    /// Returns milliseconds since the handshake.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn counters(&self) -> LinkCounters {
        LinkCounters {
            sent_bytes: self.activity.sent_bytes.load(Relaxed),
            sent_messages: self.activity.sent_messages.load(Relaxed),
            received_bytes: self.activity.received_bytes.load(Relaxed),
            received_messages: self.activity.received_messages.load(Relaxed),
        }
    }

    pub(crate) fn note_heard(&self) {
        self.activity.heard_at.store(self.now(), Relaxed);
    }

    pub(crate) fn heard_at(&self) -> u64 {
        self.activity.heard_at.load(Relaxed)
    }

    pub(crate) fn note_received(&self, bytes: usize) {
        add(&self.activity.received_bytes, bytes);
        add(&self.activity.received_messages, 1);
    }

    /// Returns the time for which a sender has waited for a full socket, or `None` if none waits.
    pub(crate) fn stalled(&self) -> Option<Duration> {
        let since = self.activity.stalled_since.load(Relaxed).checked_sub(1)?;
        Some(Duration::from_millis(self.now().saturating_sub(since)))
    }

    /// Ends the connection. The first cause stays.
    pub(crate) fn fail(&self, fault: LinkFault) -> Error {
        let _first_cause_stays = self.fault.set(fault);
        self.wire.cut();
        self.error()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.fault.get().is_some()
    }

    /// Returns the error of a connection that has failed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.has_failed() {
            Err(self.error())
        } else {
            Ok(())
        }
    }

    fn error(&self) -> Error {
        Error::Link {
            address: self.peer.address,
            key: self.peer.key,
            fault: self.fault.get().cloned().unwrap_or(LinkFault::Truncated),
        }
    }

    /// Sends one frame, and returns when the socket has taken it.
    pub(crate) fn send_frame(&self, frame: &mut [IoSlice<'_>], bytes: usize) -> Result<(), Error> {
        let _turn = self.sending.lock();
        if self.is_finished.load(Relaxed) {
            return Err(Error::Link {
                address: self.peer.address,
                key: self.peer.key,
                fault: LinkFault::Aborted("nothing can be sent after the end".into()),
            });
        }
        self.write_all(frame)?;
        add(&self.activity.sent_bytes, bytes);
        add(&self.activity.sent_messages, 1);
        Ok(())
    }

    /// Closes the sending direction after everything that was sent.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        let _turn = self.sending.lock();
        if self.is_finished.swap(true, Relaxed) {
            return Ok(());
        }
        self.check()?;
        self.wire.queue_close();
        self.write_all(&mut [])
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished.load(Relaxed)
    }

    fn write_all(&self, mut rest: &mut [IoSlice<'_>]) -> Result<(), Error> {
        let result = loop {
            self.check()?;
            let step = match self.wire.write(rest) {
                Ok(step) => step,
                Err(error) => break Err(self.fail(io_fault(&error))),
            };
            if step.written > 0 {
                self.activity.sent_at.store(self.now(), Relaxed);
                self.activity.stalled_since.store(0, Relaxed);
            }
            IoSlice::advance_slices(&mut rest, step.encrypted);
            if rest.is_empty() && step.is_flushed {
                break Ok(());
            }
            if !step.is_flushed {
                self.wait_for_room()?;
            }
        };
        self.activity.stalled_since.store(0, Relaxed);
        result
    }

    fn wait_for_room(&self) -> Result<(), Error> {
        let since = self.now().saturating_add(1);
        let stalled = &self.activity.stalled_since;
        let _waits_already = stalled.compare_exchange(0, since, Relaxed, Relaxed);
        let waited = self.wire.wait(PollFlags::OUT, WAIT_MAX);
        waited.map_err(|error| self.fail(io_fault(&error)))?;
        Ok(())
    }
}

impl HeartbeatSource for LinkShared {
    /// Also ends the connection of a revoked peer.
    fn beat(&self) {
        if self.has_failed() {
            return;
        }
        if !self.trust.allows(&self.peer.key) {
            self.fail(LinkFault::Revoked);
            return;
        }
        let idle = self
            .now()
            .saturating_sub(self.activity.sent_at.load(Relaxed));
        let is_busy = Duration::from_millis(idle) < self.settings.heartbeat / 2;
        if is_busy || self.is_finished() {
            return;
        }
        // A sender that holds the lock is sending, which says as much as a heartbeat.
        let Some(_turn) = self.sending.try_lock() else {
            return;
        };
        if self.is_finished() {
            return;
        }
        match self.wire.write_if_idle(&crate::frame::HEARTBEAT) {
            Ok(0) => {}
            Ok(_) => self.activity.sent_at.store(self.now(), Relaxed),
            Err(error) => drop(self.fail(io_fault(&error))),
        }
    }
}

fn add(counter: &AtomicU64, value: usize) {
    counter.fetch_add(u64::try_from(value).unwrap_or(u64::MAX), Relaxed);
}
