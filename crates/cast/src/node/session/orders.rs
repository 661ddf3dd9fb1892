//! Streams of a cast at a node: the orders of the planner, and the reports of the threads.

use super::{CastSession, SessionStep};
use crate::bits::UnitBitmap;
use crate::feed::{FeedOrder, feed};
use crate::intake::{ExpectedStream, receive};
use crate::message::{CastPeer, NodeMessage, RANGES_PER_MESSAGE};
use crate::node::inputs::CastTrunk;
use crate::node::streams::refuse_trunk;
use crate::stream::{StreamEnd, StreamReport, start_thread};
use driftless_planner::{NodeId, OrderAction, SOURCE, StreamCause, StreamId, UnitSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl CastSession<'_> {
    pub(super) fn carry_out(&mut self, action: OrderAction) -> SessionStep {
        match action {
            OrderAction::Expect {
                stream,
                from,
                units,
            } => self.expect(stream, from, units),
            OrderAction::Feed {
                stream,
                to,
                units,
                is_spare,
            } => self.feed((stream, to), units, is_spare),
            OrderAction::Stop { stream } => {
                self.streams.stop(stream);
                Ok(())
            }
            OrderAction::GiveUp { reason } => {
                self.outcome.get_or_insert(format!("failed: {reason}"));
                self.stop.store(true, Relaxed);
                self.streams.stop_all();
                if let Some(open) = &self.open {
                    open.board.close();
                }
                Ok(())
            }
        }
    }

    fn expect(&mut self, stream: StreamId, from: NodeId, units: UnitSet) -> SessionStep {
        let key = match from {
            SOURCE => Some(self.coordinator),
            other => self.peers.get(&other).map(CastPeer::key),
        };
        let (Some(open), Some(key)) = (&self.open, key) else {
            return self.refuse_order(stream, "the feeder is unknown here");
        };
        let held = open.board.verified();
        let verified = UnitBitmap::of(&units, open.catalogue.units());
        let verified = verified.common(&held).set();
        let expected = ExpectedStream {
            stream,
            from: key,
            units,
            end: StreamEnd::default(),
        };
        let Some(waiting) = self.streams.expect(expected) else {
            return self.refuse_order(stream, "too many streams at a time");
        };
        self.send(&NodeMessage::Progress { stream, verified })?;
        waiting.into_iter().for_each(|trunk| self.admit(trunk));
        Ok(())
    }

    fn refuse_order(&self, stream: StreamId, detail: &str) -> SessionStep {
        self.send(&NodeMessage::StreamFailed {
            stream,
            cause: StreamCause::Refused,
            detail: detail.into(),
        })
    }

    fn feed(
        &mut self,
        (stream, to): (StreamId, NodeId),
        units: UnitSet,
        is_spare: bool,
    ) -> SessionStep {
        let (Some(open), Some(peer)) = (&self.open, self.peers.get(&to)) else {
            return self.refuse_order(stream, "the receiver is unknown here");
        };
        let Some(end) = self.streams.feed(stream) else {
            return self.refuse_order(stream, "too many streams at a time");
        };
        let order = FeedOrder {
            stream,
            units,
            is_spare,
            peer: peer.clone(),
        };
        let context = Arc::clone(&open.feeding);
        match start_thread("feeder", move || feed(&context, &order, &end)) {
            Ok(()) => Ok(()),
            Err(error) => self.refuse_order(stream, &error.to_string()),
        }
    }

    /// Takes the connection of a feeder. Without the order of the coordinator, it waits.
    pub(super) fn admit(&mut self, trunk: CastTrunk) {
        let Some(open) = &self.open else {
            return refuse_trunk(trunk);
        };
        let Some((expected, link)) = self.streams.admit(trunk) else {
            return;
        };
        let context = Arc::clone(&open.intake);
        let _the_feeder_reports_it =
            start_thread("receiver", move || receive(&context, &expected, link));
    }

    pub(super) fn report(&mut self, report: StreamReport) -> SessionStep {
        match report {
            StreamReport::Complete { stream } => {
                self.streams.forget(stream);
                self.flush(stream)
            }
            StreamReport::Failed {
                stream,
                cause,
                detail,
            } => {
                self.streams.forget(stream);
                self.flush(stream)?;
                self.send(&NodeMessage::StreamFailed {
                    stream,
                    cause,
                    detail,
                })
            }
            StreamReport::Unreadable { detail, .. } => {
                tracing::warn!("{detail}");
                if let Some(open) = &self.open {
                    open.copy.mark_damaged();
                }
                Ok(())
            }
        }
    }

    pub(super) fn flush_all(&mut self) -> SessionStep {
        // Reports that wait belong before the message that follows.
        while let Ok(report) = self.reports.1.try_recv() {
            self.report(report)?;
        }
        let open = self.open.as_ref();
        let streams = open.map_or_else(Vec::new, |open| open.intake.log.streams());
        streams
            .into_iter()
            .try_for_each(|stream| self.flush(stream))
    }

    fn flush(&mut self, stream: StreamId) -> SessionStep {
        let Some(open) = &self.open else {
            return Ok(());
        };
        let Some(logged) = open.intake.log.take(stream) else {
            return Ok(());
        };
        self.received_bytes = self.received_bytes.saturating_add(logged.bytes);
        let mut bits = UnitBitmap::new(open.catalogue.units());
        for unit in logged.units {
            bits.insert(unit);
        }
        for verified in bits.sets(RANGES_PER_MESSAGE) {
            self.send(&NodeMessage::Progress { stream, verified })?;
        }
        Ok(())
    }
}
