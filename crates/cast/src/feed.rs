//! The feeding end of a stream: connects to the receiver, and sends the units that it lacks.
//!
//! The receiver names the units first, so no unit can overtake the opening of its stream. One thread
//! receives, which notices a dead peer; another one sends.

use crate::bits::UnitBitmap;
use crate::board::{FeedCursor, NextUnit, UnitBoard};
use crate::message::{CastId, CastPeer, PROTOCOL, PeerOpening, TrunkMessage, decode, encode, kind};
use crate::stream::{StreamEnd, StreamFailure, StreamReport};
use crossbeam_channel::{Receiver, Sender, unbounded};
use driftless_dataplane::{
    BundleEvent, BundleReceiver, BundleSender, DataEndpoint, ExpectedPeer, LinkBundle,
};
use driftless_lock::{Condvar, Mutex};
use driftless_planner::{SPARE_UNITS, StreamCause, StreamId, UnitSet};
use driftless_pool::Pace;
use driftless_store::UnitReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time for attempts to connect. The order of the receiver may still be on its way.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Pause between two attempts.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);
/// Time for the planner to end a stream whose feeder reported a fault of its own.
const STOP_MAX: Duration = Duration::from_secs(5);
/// Longest wait for a unit before the end of the stream is looked at.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Time in which units gather once all were sent.
const GATHER: Duration = Duration::from_millis(2);
/// Attempts to read a unit, with a pause between: it may be on its way to the disk or to its final name.
const READ_ATTEMPTS: u32 = 20;
const READ_PAUSE: Duration = Duration::from_millis(50);
/// Unreadable units in a row after which the rest counts as unreadable.
const UNREADABLE_MAX: u64 = 64;

/// Origin of units at this node.
pub(crate) trait UnitContent: Send + Sync {
    /// Opens a reader for one thread.
    fn reader(&self) -> Result<UnitReader, driftless_store::Error>;

    /// Whether a failed read is worth another attempt.
    fn may_recover(&self) -> bool;
}

/// Everything that the feeders of a cast at one node share.
pub(crate) struct FeedContext {
    pub endpoint: DataEndpoint,
    pub cast: CastId,
    pub units: u64,
    pub board: Arc<UnitBoard>,
    pub content: Arc<dyn UnitContent>,
    pub gate: FeedGate,
    pub pace: Option<Pace>,
    pub connections: u8,
    pub reports: Sender<StreamReport>,
}

/// Order of the planner to feed.
#[derive(Clone)]
pub(crate) struct FeedOrder {
    pub stream: StreamId,
    pub units: UnitSet,
    pub is_spare: bool,
    pub peer: CastPeer,
}

/// Share of leaves: while a stream of the chain has units to send, one unit in [`SPARE_UNITS`] is of
/// a leaf.
#[derive(Default)]
pub(crate) struct FeedGate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    /// Streams of the chain that have a unit to send.
    busy: u64,
    /// Units of the chain since the last one of a leaf.
    credit: u64,
}

impl FeedGate {
    /// Changes the number of busy streams of the chain.
    fn set_busy(&self, was_busy: bool, is_busy: bool) {
        let mut state = self.state.lock();
        match (was_busy, is_busy) {
            (false, true) => state.busy = state.busy.saturating_add(1),
            (true, false) => state.busy = state.busy.saturating_sub(1),
            _ => return,
        }
        self.changed.notify_all();
    }

    /// Counts a unit of the chain.
    fn count(&self) {
        let mut state = self.state.lock();
        state.credit = state.credit.saturating_add(1).min(SPARE_UNITS);
        if state.credit == SPARE_UNITS {
            self.changed.notify_all();
        }
    }

    /// Waits for the turn of a leaf. Returns whether it came within the limit.
    fn wait(&self, limit: Duration) -> bool {
        let mut state = self.state.lock();
        if state.busy > 0 && state.credit < SPARE_UNITS {
            state = self.changed.wait_for(state, limit);
        }
        let is_turn = state.busy == 0 || state.credit >= SPARE_UNITS;
        if is_turn && state.busy > 0 {
            state.credit = 0;
        }
        is_turn
    }
}

/// Runs a stream until it ends, and reports a failure unless the stream was stopped.
pub(crate) fn feed(context: &FeedContext, order: &FeedOrder, end: &StreamEnd) {
    if let Err(fault) = run(context, order, end)
        && !end.is_stopped()
    {
        report(context, order, fault);
    }
}

fn report(context: &FeedContext, order: &FeedOrder, fault: StreamFailure) {
    let _the_cast_is_over = context.reports.send(StreamReport::Failed {
        stream: order.stream,
        cause: fault.cause,
        detail: fault.detail,
    });
}

fn run(context: &FeedContext, order: &FeedOrder, end: &StreamEnd) -> Result<(), StreamFailure> {
    let bundle = connect(&context.endpoint, &order.peer, context.connections, end)?;
    end.watch(bundle.handles());
    let (sender, receiver) = bundle.split()?;
    let opening = PeerOpening::Trunk {
        protocol: PROTOCOL,
        cast: context.cast,
        stream: order.stream,
    };
    sender.send_control(kind::OPENING, &[&encode(&opening)])?;
    let (wants, wanted) = unbounded();
    let is_over = AtomicBool::new(false);
    let allowed = UnitBitmap::of(&order.units, context.units);
    std::thread::scope(|scope| {
        let sending = std::thread::Builder::new().name("feed".into());
        let sending = sending.spawn_scoped(scope, || {
            let sending = FeedSending {
                context,
                order,
                sender: &sender,
                end,
                is_over: &is_over,
                allowed: &allowed,
                reader: None,
            };
            sending.run(&wanted)
        });
        let sending =
            sending.map_err(|error| StreamFailure::new(StreamCause::Closed, error.to_string()))?;
        let received = receive_wants(receiver, &wants);
        is_over.store(true, Relaxed);
        drop(wants);
        let sent = sending.join();
        received?;
        sent.map_err(|_| StreamFailure::new(StreamCause::Closed, "a thread panicked"))
    })?;
    Ok(sender.finish()?)
}

/// Connects to a node. The message with our key may arrive there later than our order.
pub(crate) fn connect(
    endpoint: &DataEndpoint,
    to: &CastPeer,
    connections: u8,
    end: &StreamEnd,
) -> Result<LinkBundle, StreamFailure> {
    let begin = Instant::now();
    let peer = ExpectedPeer::Key(to.key());
    loop {
        let made = endpoint.connect_bundle(&to.addresses, &peer, connections);
        match made {
            Ok(bundle) => return Ok(bundle),
            Err(error) if end.is_stopped() || begin.elapsed() >= CONNECT_MAX => {
                return Err(error.into());
            }
            Err(_) => std::thread::sleep(CONNECT_PAUSE),
        }
    }
}

/// Passes on the wishes of the receiver until it has finished.
fn receive_wants(
    mut receiver: BundleReceiver,
    wants: &Sender<UnitSet>,
) -> Result<(), StreamFailure> {
    let broken = |cause: String| StreamFailure::new(StreamCause::Closed, cause);
    loop {
        let message = match receiver.recv()? {
            None => return Ok(()),
            Some(BundleEvent::Control(message)) if message.kind == kind::TRUNK => message,
            Some(_) => {
                return Err(broken(
                    "the receiver sent something else than wishes".into(),
                ));
            }
        };
        match decode(&message.bytes).map_err(broken)? {
            TrunkMessage::Want(units) => {
                let _the_sender_has_ended = wants.send(units);
            }
            TrunkMessage::Unknown => {
                let cause = "the receiver does not know the stream".to_owned();
                return Err(StreamFailure::new(StreamCause::Refused, cause));
            }
        }
    }
}

/// The sending thread of a stream.
struct FeedSending<'a> {
    context: &'a FeedContext,
    order: &'a FeedOrder,
    sender: &'a BundleSender,
    end: &'a StreamEnd,
    is_over: &'a AtomicBool,
    allowed: &'a UnitBitmap,
    reader: Option<UnitReader>,
}

impl FeedSending<'_> {
    fn run(mut self, wanted: &Receiver<UnitSet>) {
        let mut cursor = FeedCursor::new(self.context.units);
        let mut is_busy = false;
        let result = self.send_all(&mut cursor, wanted, &mut is_busy);
        self.set_busy(&mut is_busy, false);
        if let Err(fault) = result {
            self.fail(fault);
        }
    }

    /// Reports the fault of this node, and ends the stream once the planner had time to end it.
    fn fail(&self, fault: StreamFailure) {
        report(self.context, self.order, fault);
        let begin = Instant::now();
        while !self.is_ended() && begin.elapsed() < STOP_MAX {
            std::thread::sleep(WAIT_MAX);
        }
        self.end.stop();
    }

    fn send_all(
        &mut self,
        cursor: &mut FeedCursor,
        wanted: &Receiver<UnitSet>,
        is_busy: &mut bool,
    ) -> Result<(), StreamFailure> {
        while !self.is_ended() {
            for units in wanted.try_iter() {
                let ranges = units
                    .ranges()
                    .flat_map(|range| range.start..range.end.min(self.context.units));
                cursor.want(ranges.filter(|unit| self.allowed.contains(*unit)));
            }
            if self.order.is_spare && !self.context.gate.wait(WAIT_MAX) {
                continue;
            }
            let mut next = self.context.board.next(cursor, Duration::ZERO);
            if matches!(next, NextUnit::Wait) {
                self.set_busy(is_busy, false);
                // Not each unit that arrives here wakes this thread.
                std::thread::sleep(GATHER);
                next = self.context.board.next(cursor, WAIT_MAX);
            }
            match next {
                NextUnit::Unit(unit, bytes) => {
                    self.set_busy(is_busy, true);
                    self.send(unit, bytes, cursor)?;
                }
                NextUnit::Wait => {}
                NextUnit::Closed => {
                    return Err(StreamFailure::new(
                        StreamCause::Closed,
                        "this node gives up",
                    ));
                }
            }
        }
        Ok(())
    }

    fn is_ended(&self) -> bool {
        self.is_over.load(Relaxed) || self.end.is_stopped()
    }

    fn wait_for_end(&self) {
        while !self.is_ended() {
            std::thread::sleep(CONNECT_PAUSE);
        }
    }

    fn set_busy(&self, is_busy: &mut bool, will_be: bool) {
        if !self.order.is_spare {
            self.context.gate.set_busy(*is_busy, will_be);
            *is_busy = will_be;
        }
    }

    fn send(
        &mut self,
        unit: u64,
        bytes: Option<Arc<Vec<u8>>>,
        cursor: &mut FeedCursor,
    ) -> Result<(), StreamFailure> {
        let bytes = match bytes.map_or_else(|| self.read(unit), Ok) {
            Ok(bytes) => bytes,
            Err(error) => return self.lack(unit, &error, cursor),
        };
        if let Some(pace) = &self.context.pace {
            let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            pace.take(count, &|| self.is_ended());
        }
        // The receiver knows the stream from the opening of this connection.
        match self.sender.send_block(0, unit, bytes) {
            Ok(()) => {}
            // The receiving thread meets the same error and reports it.
            Err(_) => {
                self.wait_for_end();
                return Ok(());
            }
        }
        if !self.order.is_spare {
            self.context.gate.count();
        }
        Ok(())
    }

    fn read(&mut self, unit: u64) -> Result<Arc<Vec<u8>>, driftless_store::Error> {
        let mut attempt = 1;
        loop {
            let error = match self.read_once(unit) {
                Ok(bytes) => return Ok(bytes),
                Err(error) => error,
            };
            self.reader = None;
            let is_last = attempt >= READ_ATTEMPTS || !self.context.content.may_recover();
            if is_last || self.is_ended() {
                return Err(error);
            }
            attempt += 1;
            std::thread::sleep(READ_PAUSE);
        }
    }

    fn read_once(&mut self, unit: u64) -> Result<Arc<Vec<u8>>, driftless_store::Error> {
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.context.content.reader()?,
        };
        let mut buffer = Vec::new();
        reader.read(unit, &mut buffer)?;
        self.reader = Some(reader);
        Ok(Arc::new(buffer))
    }

    /// Reports units that cannot be read any more, and waits for the end of the stream.
    fn lack(
        &mut self,
        first: u64,
        error: &driftless_store::Error,
        cursor: &mut FeedCursor,
    ) -> Result<(), StreamFailure> {
        let mut lacking = UnitBitmap::new(self.context.units);
        lacking.insert(first);
        let held = self.context.board.verified();
        let mut at = first;
        while let Some(unit) = held.first_common(&cursor.wanted, at) {
            let is_many = lacking.len() >= UNREADABLE_MAX;
            if is_many || self.read_once(unit).is_err() {
                lacking.insert(unit);
            } else {
                break;
            }
            at = unit.saturating_add(1);
        }
        let units = lacking.set();
        for range in units.ranges() {
            (range.start..range.end).for_each(|unit| self.context.board.remove(unit));
        }
        let detail = error.to_string();
        let _the_cast_is_over = self
            .context
            .reports
            .send(StreamReport::Unreadable { detail });
        Err(StreamFailure::new(
            StreamCause::Lacks(units),
            error.to_string(),
        ))
    }
}
