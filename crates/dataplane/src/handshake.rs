//! Handshakes with a time limit, on both sides.
//!
//! Until rustls has verified the peer, no plaintext exists, and memory is bounded by rustls (64 KiB
//! of handshake messages) and by [`HANDSHAKE_READ_BYTES`].

use crate::frame::{FrameReader, HEAD_BYTES, KIND_OPEN, KIND_WELCOME, head};
use crate::opening::{LinkOpening, OPENING_BYTES};
use crate::remedy;
use crate::shared::LinkPeer;
use crate::sockets::canonical;
use crate::tls::{NewSession, PROTOCOL};
use crate::trust::PeerTrust;
use crate::verifier::{PeerVerdict, key_of};
use crate::wire::{Intake, ReadStep, Wire, io_fault};
use crate::{ConnectFault, LinkFault, LinkMessage};
use rustix::event::PollFlags;
use std::io::IoSlice;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the socket that one call reads during a handshake.
const HANDSHAKE_READ_BYTES: usize = 4 << 10;

/// Begin of the cause if the time limit was over.
const NO_HANDSHAKE: &str = "no handshake";

/// A connection during its handshake.
pub(crate) struct Handshake {
    wire: Wire,
    intake: Intake,
    verdict: Arc<PeerVerdict>,
    address: SocketAddr,
    deadline: Instant,
    limit: Duration,
}

/// A connection whose peer was verified.
pub(crate) struct OpenWire {
    pub(crate) wire: Wire,
    pub(crate) intake: Intake,
    pub(crate) peer: LinkPeer,
}

impl Handshake {
    /// Begins a handshake on a non-blocking socket.
    pub(crate) fn new(stream: TcpStream, session: NewSession, limit: Duration) -> Self {
        let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
        let address = stream.peer_addr().unwrap_or(unspecified);
        let now = Instant::now();
        Handshake {
            address: canonical(address),
            wire: Wire::new(stream, session.connection),
            // Each end sends one short frame before the other one is sure of it.
            intake: Intake::new(HANDSHAKE_READ_BYTES, FrameReader::new(OPENING_BYTES)),
            verdict: session.verdict,
            deadline: now.checked_add(limit).unwrap_or(now),
            limit,
        }
    }

    /// Completes the handshake of the end that connected. Returns the cause if it fails.
    pub(crate) fn open(
        mut self,
        trust: &PeerTrust,
        opening: LinkOpening,
        bytes_max: usize,
    ) -> Result<OpenWire, ConnectFault> {
        let verified = self.verify(trust);
        let peer = verified.map_err(|cause| self.identity_fault(cause))?;
        // The peer may send messages at once behind its answer.
        self.intake.frames.set_bytes_max(bytes_max);
        self.send(KIND_OPEN, &opening.to_bytes())?;
        let answer = self.receive().map_err(|cause| refusal_of(cause, trust))?;
        if answer.kind != KIND_WELCOME || !answer.bytes.is_empty() {
            let cause = "it answers in another protocol; run the same version on both ends";
            return Err(cause.to_owned().into());
        }
        Ok(self.into_open(peer))
    }

    /// Completes the handshake of the end that listens. Returns the cause if it fails.
    pub(crate) fn accept(mut self, trust: &PeerTrust) -> Result<(OpenWire, LinkOpening), String> {
        let peer = self.verify(trust).map_err(remedy::with_remedy)?;
        let message = self.receive()?;
        let opening = LinkOpening::read(&message)
            .ok_or("it opens in another protocol; run the same version on both ends")?;
        self.send(KIND_WELCOME, &[])?;
        Ok((self.into_open(peer), opening))
    }

    fn into_open(self, peer: LinkPeer) -> OpenWire {
        OpenWire {
            wire: self.wire,
            intake: self.intake,
            peer,
        }
    }

    /// Runs the TLS handshake, and returns the peer that it proved.
    fn verify(&mut self, trust: &PeerTrust) -> Result<LinkPeer, String> {
        while self.wire.inspect(|tls| tls.is_handshaking()) {
            self.flush()?;
            self.step()?;
        }
        self.flush()?;
        let has_protocol = self
            .wire
            .inspect(|tls| tls.alpn_protocol() == Some(PROTOCOL));
        if !has_protocol {
            return Err("it does not speak this protocol; check address and port".into());
        }
        let entity = self.wire.inspect(|tls| {
            let entity = tls.peer_certificates().and_then(<[_]>::first);
            entity.map(|entity| entity.clone().into_owned())
        });
        let entity = entity.ok_or("it has proved no key")?;
        let key = key_of(trust, &entity).map_err(|error| error.to_string())?;
        let suite = self.wire.inspect(|tls| tls.negotiated_cipher_suite());
        let cipher = suite.and_then(|suite| suite.suite().as_str());
        Ok(LinkPeer {
            key,
            address: self.address,
            cipher: cipher.unwrap_or("unknown"),
            certificate: trust.roots().is_some().then_some(entity),
        })
    }

    /// Reads once, waiting for bytes if there are none.
    fn step(&mut self) -> Result<(), String> {
        match self.intake.step(&self.wire) {
            Ok(ReadStep::Received | ReadStep::Decrypted) => Ok(()),
            Ok(ReadStep::Closed) => Err("it closed the connection".into()),
            Ok(ReadStep::Empty) => self.wait(PollFlags::IN),
            Err(fault) => Err(self.explain(fault)),
        }
    }

    /// Writes until the socket has taken everything.
    fn flush(&mut self) -> Result<(), String> {
        self.write(&mut [])
    }

    fn write(&self, mut rest: &mut [IoSlice<'_>]) -> Result<(), String> {
        loop {
            let step = self
                .wire
                .write(rest)
                .map_err(|error| self.explain(io_fault(&error)))?;
            IoSlice::advance_slices(&mut rest, step.encrypted);
            if rest.is_empty() && step.is_flushed {
                return Ok(());
            }
            self.wait(PollFlags::OUT)?;
        }
    }

    fn send(&self, kind: u8, bytes: &[u8]) -> Result<(), String> {
        let head: [u8; HEAD_BYTES] = head(kind, bytes.len()).ok_or("the frame is too large")?;
        self.write(&mut [IoSlice::new(&head), IoSlice::new(bytes)])
    }

    fn receive(&mut self) -> Result<LinkMessage, String> {
        loop {
            if let Some(message) = self.intake.frames.pop() {
                return Ok(message);
            }
            self.step()?;
        }
    }

    fn wait(&self, ready: PollFlags) -> Result<(), String> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.wire.wait(ready, left) {
            Ok(true) if !left.is_zero() => Ok(()),
            Ok(_) => {
                let seconds = self.limit.as_secs_f32();
                Err(format!(
                    "{NO_HANDSHAKE} within {seconds:.1} s; check what listens there"
                ))
            }
            Err(error) => Err(driftless_model::cause(&error)),
        }
    }

    /// Returns the cause of a failure, which is the verdict if this end has refused the peer.
    fn explain(&self, fault: LinkFault) -> String {
        match (self.verdict.refusal.get(), fault) {
            (Some(refusal), _) => refusal.clone(),
            (None, LinkFault::Truncated) => "it ended the connection during the handshake".into(),
            (None, LinkFault::Tls(cause) | LinkFault::Io(cause)) => cause,
            (None, fault) => fault.to_string(),
        }
    }

    /// Returns the fault of a handshake whose cause is known: this end refused the peer, or the network
    /// failed.
    fn identity_fault(&self, cause: String) -> ConnectFault {
        if let Some(refusal) = self.verdict.refusal.get() {
            return ConnectFault::Identity(refusal.clone());
        }
        if let Some(remedy) = remedy::of_certificate(&cause) {
            return ConnectFault::Identity(format!(
                "has a certificate that is refused here: {cause}; {remedy}"
            ));
        }
        match remedy::of_mixed_ends(&cause) {
            Some(remedy) => {
                ConnectFault::Identity(format!("refuses a handshake: {cause}; {remedy}"))
            }
            None => ConnectFault::Network(cause),
        }
    }
}

/// Returns the fault of a peer that ended the connection after its handshake: usually it refuses this
/// end. The listening end verifies the connecting one last (RFC 8446 section 2).
fn refusal_of(cause: String, trust: &PeerTrust) -> ConnectFault {
    if cause.starts_with(NO_HANDSHAKE) {
        return ConnectFault::Network(cause);
    }
    ConnectFault::Identity(remedy::of_refusal(&cause, trust))
}
