//! Authenticated, encrypted connections between two processes, for bulk data.
//!
//! A [`DataEndpoint`] listens and connects. Both ends prove a key during the TLS 1.3 handshake.
//! Ends know each other's keys from elsewhere, or a site's authority has signed both.
//! A [`DataLink`] carries messages of bounded size both ways over one TCP connection.
//! A [`LinkBundle`] stripes numbered blocks over several connections to the same peer.
//!
//! What must hold: nothing that an unauthenticated peer sends reaches the frame reader. A message
//! arrives whole or not at all. A cut connection never looks like an end. Memory is bounded for
//! each connection, however slow or hostile a peer is.
//!
//! Nothing here knows what the messages mean.

mod bundle;
mod context;
mod endpoint;
mod error;
mod frame;
mod gather;
mod handle;
mod handshake;
mod heartbeat;
mod identity;
mod key;
mod link;
mod listener;
mod opening;
mod pending;
mod ports;
mod receive;
mod remedy;
mod send;
mod settings;
mod shared;
mod sockets;
mod tls;
mod trust;
mod verifier;
mod wire;

pub use bundle::{
    BUNDLE_LINKS_MAX, BundleEvent, BundleReceiver, BundleSender, BundleWait, LinkBundle,
};
pub use endpoint::DataEndpoint;
pub use error::{CertificateFault, ConnectFault, Error, LinkFault};
pub use frame::{FrameError, FrameReader, KIND_MAX, LinkMessage, MESSAGE_BYTES_LIMIT};
pub use handle::LinkHandle;
pub use identity::TlsIdentity;
pub use key::PeerKey;
pub use link::DataLink;
pub use listener::{ArrivedLink, LinkListener, RefusedPeers};
pub use ports::PortRange;
pub use receive::{LinkEvent, LinkReceiver};
pub use send::LinkSender;
pub use settings::{CipherChoice, LinkSettings};
pub use shared::{LinkCounters, LinkPeer};
pub use tls::has_aes;
pub use trust::{ExpectedPeer, PeerTrust};
