//! Errors: causes for which a connection was not made, or ended.

use crate::{ExpectedPeer, PeerKey, PortRange};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use thiserror::Error as ThisError;

/// A call of this crate that failed.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The text is no peer key.
    #[error(
        "\"{text}\": cannot read as a peer key: it has not 64 hexadecimal digits; copy the whole key"
    )]
    PeerKey {
        /// The text, shortened and escaped.
        text: String,
    },
    /// The text is no port range.
    #[error("\"{text}\": cannot read as ports: {cause}; write FROM-TO, one port, or 0 for any")]
    Ports {
        /// The text, shortened and escaped.
        text: String,
        /// The rule that the text breaks.
        cause: &'static str,
    },
    /// A key pair or certificate of this end is unusable.
    #[error("key of this end: cannot use: {0}; make a new key")]
    Identity(String),
    /// Certificates of an authority are unusable.
    #[error("certificates of the authority: cannot use: {0}; check the PEM file")]
    Authority(String),
    /// The settings contradict each other.
    #[error("settings of connections: cannot use: {0}; change one of them")]
    Settings(&'static str),
    /// No address and port to listen on.
    #[error("{}: cannot listen: {cause}", Listening(address, ports))]
    Listen {
        /// The address of this host.
        address: IpAddr,
        /// The ports that were tried.
        ports: PortRange,
        /// The answer of the kernel, and the remedy.
        cause: String,
    },
    /// No address of a peer led to a connection.
    #[error("{}", Attempts(attempts))]
    Connect {
        /// The peer.
        peer: ExpectedPeer,
        /// Each address with the cause.
        attempts: Vec<(SocketAddr, ConnectFault)>,
    },
    /// An established connection ended without a clean close.
    #[error("{address} (key {key}): connection lost: {fault}")]
    Link {
        /// The address of the peer.
        address: SocketAddr,
        /// The key of the peer.
        key: PeerKey,
        /// The first cause.
        fault: LinkFault,
    },
    /// A message of the caller is larger than the settings allow.
    #[error("message of {bytes} bytes: cannot send: the limit is {bytes_max}; send it in parts")]
    Oversized {
        /// The size of the message.
        bytes: usize,
        /// The limit of the settings.
        bytes_max: usize,
    },
    /// A message of the caller has a kind that this crate uses itself.
    #[error(
        "message of kind {kind}: cannot send: kinds above {} are reserved; use a lower one",
        crate::KIND_MAX
    )]
    ReservedKind {
        /// The kind.
        kind: u8,
    },
    /// The kernel refused a resource that the call needs.
    #[error("{object}: cannot create: {cause}; raise the limits of this process")]
    Resource {
        /// The resource.
        object: &'static str,
        /// The answer of the kernel.
        cause: String,
    },
}

/// Cause for which the files of a certificate cannot be used. The text follows the path of the file.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum CertificateFault {
    /// A passphrase protects the private key.
    #[error("cannot use: the key is encrypted; decrypt it: openssl pkey -in FILE -out NEW")]
    EncryptedKey,
    /// The file of the key has none.
    #[error("cannot read a private key: {0}; name the PEM file of the key")]
    NoKey(String),
    /// The provider does not support the key.
    #[error(
        "cannot use: the key is damaged or of another kind; make a key of RSA with 2048 to 4096 bits, ECDSA on P-256 or P-384, or Ed25519"
    )]
    UnsupportedKey,
    /// The file of the certificate has none.
    #[error("cannot read a certificate: {0}; name the PEM file of the certificate")]
    NoCertificate(String),
    /// The certificate has another key. The path of the certificate follows the text.
    #[error("is not the key of the certificate")]
    Mismatch,
}

impl CertificateFault {
    /// Whether the file of the private key causes the fault, and not that of the certificate.
    pub fn is_of_key(&self) -> bool {
        !matches!(self, CertificateFault::NoCertificate(_))
    }
}

/// Cause for which an address did not lead to a connection.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum ConnectFault {
    /// No handshake took place.
    #[error("{0}")]
    Network(String),
    /// Refusal of a key or certificate by either end. The text follows the address, and has the remedy.
    #[error("{0}")]
    Identity(String),
}

impl From<String> for ConnectFault {
    fn from(cause: String) -> Self {
        ConnectFault::Network(cause)
    }
}

/// First cause of the end of an established connection.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum LinkFault {
    /// The peer sent nothing, not even heartbeats.
    #[error("the peer sent nothing for {} ms; check its host and the network", .0.as_millis())]
    Silent(Duration),
    /// The connection ended before the peer had closed it.
    #[error("it ended before the peer closed it; check whether the peer died")]
    Truncated,
    /// A read or write failed.
    #[error("{0}; check the peer and the network")]
    Io(String),
    /// TLS refused what arrived.
    #[error("TLS: {0}; check for a damaged network or a false peer")]
    Tls(String),
    /// A frame of the peer broke the protocol.
    #[error("protocol error: {0}; run the same version on both ends")]
    Protocol(String),
    /// The key of the peer was revoked while the connection was open.
    #[error("the key of the peer was revoked; trust it again or replace it")]
    Revoked,
    /// A caller of this process ended the connection.
    #[error("ended by this process: {0}")]
    Aborted(String),
}

/// Address and ports to listen on, as an address is written.
struct Listening<'a>(&'a IpAddr, &'a PortRange);

impl fmt::Display for Listening<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Listening(address, ports) = self;
        match address {
            IpAddr::V4(address) => write!(f, "{address}:{ports}"),
            IpAddr::V6(address) => write!(f, "[{address}]:{ports}"),
        }
    }
}

/// Causes of all attempts in one line. An end that knows the other one decides alone.
struct Attempts<'a>(&'a [(SocketAddr, ConnectFault)]);

impl fmt::Display for Attempts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("cannot connect: no address is given; give one");
        }
        let is_refusal =
            |attempt: &&(_, ConnectFault)| matches!(attempt.1, ConnectFault::Identity(_));
        if let Some((address, refusal)) = self.0.iter().find(is_refusal) {
            return write!(f, "{address} {refusal}");
        }
        f.write_str("cannot connect: ")?;
        for (number, (address, cause)) in self.0.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(f, "{separator}{address}: {cause}")?;
        }
        let has_remedy = |(_, cause): &(_, ConnectFault)| cause.to_string().contains("; ");
        match self.0.iter().any(has_remedy) {
            true => Ok(()),
            false => f.write_str("; check address and firewall"),
        }
    }
}
