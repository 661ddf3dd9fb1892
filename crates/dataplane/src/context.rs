//! State that connections and listeners of an endpoint share.

use crate::handshake::OpenWire;
use crate::heartbeat::Heartbeats;
use crate::shared::LinkParts;
use crate::tls::TlsContext;
use crate::{DataLink, LinkSettings};
use std::sync::Arc;

/// Keys, settings and heartbeats of an endpoint.
pub(crate) struct EndpointShared {
    pub(crate) tls: TlsContext,
    pub(crate) settings: Arc<LinkSettings>,
    pub(crate) heartbeats: Arc<Heartbeats>,
}

impl EndpointShared {
    /// Returns a connection whose handshake is complete.
    pub(crate) fn link(&self, open: OpenWire) -> DataLink {
        let parts = LinkParts {
            wire: open.wire,
            peer: open.peer,
            settings: Arc::clone(&self.settings),
            trust: self.tls.trust().clone(),
            heartbeats: Arc::clone(&self.heartbeats),
        };
        DataLink::new(parts, open.intake)
    }
}
