//! The catalogue on its way to a node and from it: nodes that have it give it to others.
//!
//! A giver is believed nothing: the receiver checks each part by its hash. What a giver did not send
//! in time, the coordinator sends.

use crate::feed::connect;
use crate::intake::PeerLink;
use crate::message::{CastId, CastPeer, PROTOCOL, PeerOpening, encode, kind};
use crate::node::inputs::part_of;
use crate::stream::StreamEnd;
use driftless_dataplane::{BundleEvent, BundleReceiver, DataEndpoint};
use driftless_pool::Pace;
use driftless_store::{Catalogue, CatalogueReceiver, SetHash};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Catalogue of a cast at a node.
pub(crate) enum CatalogueStage {
    /// The coordinator sends parts.
    Arriving(CatalogueReceiver),
    /// Another node gives them.
    Fetching(CatalogueFetch),
    /// Complete: all parts are there, and are checked as a whole.
    Checking,
    Complete(Arc<Catalogue>),
    Failed,
}

/// A fetch from another node, which a thread runs.
pub(crate) struct CatalogueFetch {
    pub end: StreamEnd,
    pub began: Instant,
    pub limit: Duration,
}

impl CatalogueFetch {
    /// Ends the fetch if its time is over.
    pub fn end_late(&self) {
        if self.began.elapsed() >= self.limit {
            self.end.stop();
        }
    }
}

/// Everything that the thread of a fetch needs.
pub(crate) struct FetchRequest {
    pub endpoint: DataEndpoint,
    pub cast: CastId,
    pub set: SetHash,
    pub peer: CastPeer,
    pub receiver: CatalogueReceiver,
    pub end: StreamEnd,
}

/// Parts that were fetched, and the fault that ended the fetch early.
pub(crate) struct FetchedParts {
    pub receiver: CatalogueReceiver,
    pub fault: Option<String>,
}

impl FetchRequest {
    /// Fetches all parts from the peer.
    pub fn fetch(mut self) -> FetchedParts {
        let fault = self.run().err();
        FetchedParts {
            receiver: self.receiver,
            fault,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        let bundle = connect(&self.endpoint, &self.peer, 1, &self.end);
        let bundle = bundle.map_err(|fault| fault.detail)?;
        self.end.watch(bundle.handles());
        let link = PeerLink::new(bundle).map_err(|error| error.to_string())?;
        let opening = PeerOpening::Catalogue {
            protocol: PROTOCOL,
            cast: self.cast,
            set: self.set,
        };
        let sent = link
            .sender
            .send_control(kind::OPENING, &[&encode(&opening)]);
        sent.map_err(|error| error.to_string())?;
        let mut incoming = link.receiver;
        while !self.receiver.lacking().is_empty() {
            self.take_part(&mut incoming)?;
        }
        let _the_parts_are_here = link.sender.finish();
        Ok(())
    }

    fn take_part(&mut self, incoming: &mut BundleReceiver) -> Result<(), String> {
        let message = match incoming.recv() {
            Ok(Some(BundleEvent::Control(message))) if message.kind == kind::PART => message,
            Ok(Some(_)) => return Err("the giver sent something else than a catalogue".into()),
            Ok(None) => return Err("the giver ended before the last part".into()),
            Err(error) => return Err(error.to_string()),
        };
        let (number, part) = part_of(&message.bytes).ok_or("the giver sent a malformed part")?;
        let taken = self.receiver.put(number, part);
        taken.map_err(|error| error.to_string())
    }
}

/// Gives the catalogue of a cast to a peer.
pub(crate) fn give(catalogue: &Catalogue, pace: Option<&Pace>, mut link: PeerLink) {
    let has_failed = || link.handles.iter().any(|handle| handle.has_failed());
    for number in 0..catalogue.parts() {
        let Ok(part) = catalogue.part(number) else {
            break;
        };
        if let Some(pace) = pace {
            let bytes = u64::try_from(part.len()).unwrap_or(u64::MAX);
            pace.take(bytes, &has_failed);
        }
        let sent = link
            .sender
            .send_control(kind::PART, &[&number.to_le_bytes(), &part]);
        if sent.is_err() {
            return;
        }
    }
    let _the_peer_may_be_gone = link.sender.finish();
    while let Ok(Some(_)) = link.receiver.recv() {}
}
