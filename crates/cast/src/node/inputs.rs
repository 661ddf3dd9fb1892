//! Messages and connections that arrive at a node, in the form in which its loops take them.

use crate::intake::PeerLink;
use crate::message::{NodeOrder, RELAY_BYTES_MAX, decode, kind};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use driftless_dataplane::{BundleEvent, BundleReceiver};
use driftless_planner::StreamId;
use std::time::{Duration, Instant};

/// Longest wait before the end of the node is looked at.
const TICK: Duration = Duration::from_millis(100);

/// Message of the coordinator, from the thread that receives.
pub(crate) enum ControlInput {
    Order(NodeOrder),
    /// Part of the catalogue.
    Part(u32, Vec<u8>),
    /// Bytes of a measurement, and nanoseconds.
    Filled(u64, u64),
    /// Bytes for the agent of a relay.
    Relay(Vec<u8>),
    /// End of these bytes.
    RelayEnd,
}

/// Channels of a session.
pub(crate) struct SessionInputs {
    pub control: Receiver<ControlInput>,
    pub trunks: Receiver<CastTrunk>,
}

/// Connection of a feeder of a cast.
pub(crate) struct CastTrunk {
    pub stream: StreamId,
    pub link: PeerLink,
}

/// Receives the messages of a coordinator until the connection ends.
pub(crate) fn receive_control(mut receiver: BundleReceiver, inbox: &Sender<ControlInput>) {
    let mut fill = FillMeter::default();
    while let Ok(Some(event)) = receiver.recv() {
        let BundleEvent::Control(message) = event else {
            return;
        };
        let input = match message.kind {
            kind::FILL => {
                fill.add(message.bytes.len());
                continue;
            }
            kind::PART => part_of(&message.bytes)
                .map(|(number, part)| ControlInput::Part(number, part.to_vec())),
            kind::RELAY if message.bytes.len() <= RELAY_BYTES_MAX => {
                Some(ControlInput::Relay(message.bytes))
            }
            kind::RELAY_END => Some(ControlInput::RelayEnd),
            kind::ORDER => decode(&message.bytes).ok().map(ControlInput::Order),
            _ => None,
        };
        let Some(mut input) = input else {
            tracing::warn!("the coordinator sent a message that this version cannot read");
            return;
        };
        if let ControlInput::Order(NodeOrder::Fill) = input {
            input = fill.take();
        }
        if inbox.send(input).is_err() {
            // The session is over. The connection is read until the coordinator closes it.
            while let Ok(Some(_)) = receiver.recv() {}
            return;
        }
    }
}

/// Waits for the next message of a coordinator. Returns `None` if the connection ended, or `is_stopped`
/// says so.
pub(crate) fn next_input(
    control: &Receiver<ControlInput>,
    is_stopped: impl Fn() -> bool,
) -> Option<ControlInput> {
    while !is_stopped() {
        match control.recv_timeout(TICK) {
            Err(RecvTimeoutError::Timeout) => {}
            input => return input.ok(),
        }
    }
    None
}

/// Returns the number and the bytes of a part of a catalogue.
pub(crate) fn part_of(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, part) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number), part))
}

/// Bytes of a measurement that arrived, and the time of the first and the last.
#[derive(Default)]
pub(crate) struct FillMeter {
    bytes: u64,
    times: Option<(Instant, Instant)>,
}

impl FillMeter {
    /// Counts bytes. Those that arrive first only start the clock.
    pub fn add(&mut self, bytes: usize) {
        let now = Instant::now();
        match &mut self.times {
            None => self.times = Some((now, now)),
            Some((_, last)) => {
                *last = now;
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                self.bytes = self.bytes.saturating_add(bytes);
            }
        }
    }

    /// Returns the result, and begins again.
    pub fn take(&mut self) -> ControlInput {
        let nanoseconds = self.times.map_or(0, |(first, last)| {
            u64::try_from(last.duration_since(first).as_nanos()).unwrap_or(u64::MAX)
        });
        let bytes = self.bytes;
        *self = FillMeter::default();
        ControlInput::Filled(bytes, nanoseconds)
    }
}
