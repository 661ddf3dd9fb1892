//! The source of a cast: node 0, which feeds from the coordinator's process.

use crate::bits::UnitBitmap;
use crate::board::UnitBoard;
use crate::feed::{FeedContext, FeedGate, FeedOrder, UnitContent, feed};
use crate::message::{CastId, CastPeer};
use crate::settings::TransferSettings;
use crate::stream::{StreamEnd, StreamReport, start_thread};
use crossbeam_channel::Sender;
use driftless_dataplane::DataEndpoint;
use driftless_planner::{StreamCause, StreamId, UnitSet};
use driftless_pool::Pace;
use driftless_store::{BuiltSet, SetSource, UnitReader};
use std::collections::HashMap;
use std::sync::Arc;

/// Content of the sources.
struct SourceContent(SetSource);

impl UnitContent for SourceContent {
    fn reader(&self) -> Result<UnitReader, driftless_store::Error> {
        Ok(self.0.reader())
    }

    fn may_recover(&self) -> bool {
        false
    }
}

/// Feeders of the source.
pub(crate) struct SourceFeeders {
    context: Arc<FeedContext>,
    feeds: HashMap<StreamId, StreamEnd>,
}

/// Parts of the source that its cast decides.
pub(crate) struct SourceParts {
    pub cast: CastId,
    pub endpoint: DataEndpoint,
    pub reports: Sender<StreamReport>,
}

impl SourceFeeders {
    /// Returns feeders of a set that was built.
    pub fn new(built: BuiltSet, parts: SourceParts, transfer: &TransferSettings) -> Self {
        let units = built.catalogue.units();
        let held = UnitBitmap::of(&UnitSet::first(units), units);
        let context = FeedContext {
            endpoint: parts.endpoint,
            cast: parts.cast,
            units,
            board: Arc::new(UnitBoard::new(held, 0)),
            content: Arc::new(SourceContent(built.source)),
            gate: FeedGate::default(),
            pace: Pace::new(transfer.bytes_per_second_max),
            connections: transfer.connections.max(1),
            reports: parts.reports,
        };
        SourceFeeders {
            context: Arc::new(context),
            feeds: HashMap::new(),
        }
    }

    /// Starts a stream.
    pub fn feed(&mut self, stream: StreamId, peer: CastPeer, units: UnitSet, is_spare: bool) {
        let order = FeedOrder {
            stream,
            units,
            is_spare,
            peer,
        };
        let (context, end) = (Arc::clone(&self.context), StreamEnd::default());
        self.feeds.insert(stream, end.clone());
        let started = start_thread("source", move || feed(&context, &order, &end));
        if let Err(error) = started {
            let _the_cast_is_over = self.context.reports.send(StreamReport::Failed {
                stream,
                cause: StreamCause::Refused,
                detail: error.to_string(),
            });
        }
    }

    /// Ends a stream.
    pub fn stop(&mut self, stream: StreamId) {
        if let Some(end) = self.feeds.remove(&stream) {
            end.stop();
        }
    }

    /// Ends each stream.
    pub fn stop_all(&mut self) {
        self.context.board.close();
        self.feeds.drain().for_each(|(_, end)| end.stop());
    }
}
