//! The receiving end of a stream: asks for units, verifies each one, and hands it to the board and to
//! the thread that writes.

use crate::bits::UnitBitmap;
use crate::board::UnitBoard;
use crate::message::{RANGES_PER_MESSAGE, TrunkMessage, encode, kind};
use crate::stream::{StreamEnd, StreamFailure, StreamReport};
use crossbeam_channel::{SendTimeoutError, Sender};
use driftless_dataplane::{
    BundleEvent, BundleReceiver, BundleSender, LinkBundle, LinkHandle, LinkPeer, PeerKey,
};
use driftless_lock::Mutex;
use driftless_planner::{StreamCause, StreamId, UnitSet};
use driftless_store::{Catalogue, Error as StoreError, VerifiedUnit};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for the disk before the end of the stream is looked at.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Everything that the receivers of a cast at one node share.
pub(crate) struct IntakeContext {
    pub catalogue: Arc<Catalogue>,
    pub board: Arc<UnitBoard>,
    pub writer: Sender<VerifiedUnit>,
    pub reports: Sender<StreamReport>,
    pub log: VerifiedLog,
}

/// Units that were verified since the last look of the loop. A report of each would wake the loop
/// thousands of times a second.
#[derive(Default)]
pub(crate) struct VerifiedLog(Mutex<HashMap<StreamId, LoggedUnits>>);

/// Verified units of one stream.
#[derive(Default)]
pub(crate) struct LoggedUnits {
    pub units: Vec<u64>,
    pub bytes: u64,
}

impl VerifiedLog {
    fn add(&self, stream: StreamId, unit: u64, bytes: u64) {
        let mut streams = self.0.lock();
        let logged = streams.entry(stream).or_default();
        logged.units.push(unit);
        logged.bytes = logged.bytes.saturating_add(bytes);
    }

    /// Removes and returns the units of a stream.
    pub fn take(&self, stream: StreamId) -> Option<LoggedUnits> {
        self.0.lock().remove(&stream)
    }

    /// Returns the streams that have units.
    pub fn streams(&self) -> Vec<StreamId> {
        self.0.lock().keys().copied().collect()
    }
}

/// Order of the planner to receive.
#[derive(Clone)]
pub(crate) struct ExpectedStream {
    pub stream: StreamId,
    pub from: PeerKey,
    pub units: UnitSet,
    pub end: StreamEnd,
}

/// A connection of a peer, in halves.
pub(crate) struct PeerLink {
    pub sender: BundleSender,
    pub receiver: BundleReceiver,
    pub handles: Vec<LinkHandle>,
    pub peer: LinkPeer,
}

impl PeerLink {
    /// Divides a connection.
    ///
    /// # Errors
    /// The kernel refuses a thread.
    pub fn new(bundle: LinkBundle) -> Result<Self, driftless_dataplane::Error> {
        let (handles, peer) = (bundle.handles(), bundle.peer().clone());
        let (sender, receiver) = bundle.split()?;
        Ok(PeerLink {
            sender,
            receiver,
            handles,
            peer,
        })
    }
}

/// Runs a stream until it ends, and reports a failure unless the stream was stopped.
pub(crate) fn receive(context: &IntakeContext, expected: &ExpectedStream, link: PeerLink) {
    let result = run(context, expected, link);
    if expected.end.is_stopped() {
        return;
    }
    let stream = expected.stream;
    let report = match result {
        Ok(()) => StreamReport::Complete { stream },
        Err(fault) => StreamReport::Failed {
            stream,
            cause: fault.cause,
            detail: fault.detail,
        },
    };
    let _the_cast_is_over = context.reports.send(report);
}

/// Tells the feeder that this node has no such stream.
pub(crate) fn refuse(mut link: PeerLink) {
    let unknown = encode(&TrunkMessage::Unknown);
    let _the_feeder_may_be_gone = link.sender.send_control(kind::TRUNK, &[&unknown]);
    let _the_feeder_may_be_gone = link.sender.finish();
    drain(&mut link.receiver);
}

fn run(
    context: &IntakeContext,
    expected: &ExpectedStream,
    link: PeerLink,
) -> Result<(), StreamFailure> {
    expected.end.watch(link.handles);
    let (sender, mut receiver) = (link.sender, link.receiver);
    let held = context.board.verified();
    let mut missing = UnitBitmap::of(&expected.units, context.catalogue.units());
    for range in expected.units.ranges() {
        let known = (range.start..range.end.min(context.catalogue.units()))
            .filter(|unit| held.contains(*unit));
        for unit in known {
            missing.remove(unit);
        }
    }
    ask(&sender, &missing)?;
    let mut intake = StreamIntake {
        context,
        expected,
        missing,
    };
    intake.receive_all(&mut receiver)?;
    sender.finish()?;
    drain(&mut receiver);
    Ok(())
}

/// Asks for units, in messages of bounded size.
fn ask(sender: &BundleSender, units: &UnitBitmap) -> Result<(), StreamFailure> {
    for set in units.sets(RANGES_PER_MESSAGE) {
        sender.send_control(kind::TRUNK, &[&encode(&TrunkMessage::Want(set))])?;
    }
    Ok(())
}

/// Waits until the feeder has closed. All units are here, so an error costs nothing.
fn drain(receiver: &mut BundleReceiver) {
    while let Ok(Some(_)) = receiver.recv() {}
}

struct StreamIntake<'a> {
    context: &'a IntakeContext,
    expected: &'a ExpectedStream,
    missing: UnitBitmap,
}

impl StreamIntake<'_> {
    fn receive_all(&mut self, receiver: &mut BundleReceiver) -> Result<(), StreamFailure> {
        while !self.missing.is_empty() {
            match receiver.recv()? {
                Some(BundleEvent::Block { number, bytes, .. }) => self.take(number, bytes)?,
                Some(BundleEvent::Control(_)) => {
                    let cause = "the feeder sent something else than units";
                    return Err(StreamFailure::new(StreamCause::BadUnits, cause));
                }
                None => {
                    let cause = "the feeder ended before the last unit";
                    return Err(StreamFailure::new(StreamCause::Closed, cause));
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, unit: u64, bytes: Vec<u8>) -> Result<(), StreamFailure> {
        if !self.missing.contains(unit) {
            let cause = format!("the feeder sent unit {unit}, which this node did not ask for");
            return Err(StreamFailure::new(StreamCause::BadUnits, cause));
        }
        let verified = match self.context.catalogue.verify_unit(unit, bytes) {
            Ok(verified) => verified,
            Err(StoreError::WrongUnit { .. }) => {
                let cause =
                    format!("unit {unit} of the feeder has another hash than the catalogue");
                return Err(StreamFailure::new(StreamCause::BadUnits, cause));
            }
            Err(error) => return Err(StreamFailure::new(StreamCause::Closed, error.to_string())),
        };
        self.missing.remove(unit);
        let count = u64::try_from(verified.bytes().len()).unwrap_or(u64::MAX);
        // The successor gets it from memory while it is on its way to the disk.
        if self.context.board.add(unit, verified.bytes()) {
            self.write(verified)?;
        }
        self.context.log.add(self.expected.stream, unit, count);
        Ok(())
    }

    /// Hands a unit to the thread that writes. Waits while its queue is full.
    fn write(&self, unit: VerifiedUnit) -> Result<(), StreamFailure> {
        let mut task = unit;
        loop {
            match self.context.writer.send_timeout(task, WAIT_MAX) {
                Ok(()) => return Ok(()),
                // A unit on the board that is written nowhere would be lost for the copy.
                Err(SendTimeoutError::Timeout(again)) => task = again,
                Err(SendTimeoutError::Disconnected(_)) => {
                    let cause = "this node writes no more units";
                    return Err(StreamFailure::new(StreamCause::Closed, cause));
                }
            }
        }
    }
}
