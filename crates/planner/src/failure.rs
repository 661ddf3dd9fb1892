//! Failed streams: which end is to blame, and what is tried next.
//!
//! A report names a stream and comes from one of its ends, so nothing is known about the other end but
//! the word of the reporter. The first failure costs the pair a retry. Later ones move the
//! receiver to the end of the chain, so that its successor goes on. An end that fails with two peers in a
//! row becomes a leaf. No report makes a node fail.

use crate::hypercube::schedule;
use crate::member::PlanRole;
use crate::messages::{NodeId, SOURCE, StreamCause, StreamId};
use crate::state::{PlanMode, PlanState};
use crate::stream::{FeedSlot, PlannedStream, StreamKind};

/// Peers that fail one after another before the node itself is to blame.
pub(crate) const TROUBLES_MAX: usize = 2;
/// Time in ms for which a stream has to work before earlier failures of the pair are forgotten.
const LASTING_MS: u64 = 60_000;

/// Applies the report of an end of a stream.
pub(crate) fn stream_failed(
    state: &mut PlanState,
    reporter: NodeId,
    id: StreamId,
    cause: &StreamCause,
) {
    let Some(stream) = state.streams.get(&id) else {
        return late_report(state, reporter, id, cause);
    };
    let (is_feeder, is_receiver) = (stream.from == reporter, stream.to == reporter);
    if !is_feeder && !is_receiver {
        return;
    }
    let Some(stream) = state.cut(id) else {
        return;
    };
    let is_lasting = stream.moved > 0 && stream.age_ms(state.now_ms) >= LASTING_MS;
    if is_lasting {
        state.trust.succeed(stream.from, stream.to, true);
    }
    match cause {
        StreamCause::Refused if state.trust.refuse(stream.from, stream.to) => reopen(state, stream),
        StreamCause::BadUnits if is_receiver => accuse(state, stream),
        StreamCause::Lacks(units) if is_feeder => {
            state.members[stream.from].held = state.members[stream.from].held.subtract(units);
            state.needy.insert(stream.from);
            fail(state, stream, false);
        }
        StreamCause::Closed => fail(state, stream, true),
        _ => fail(state, stream, false),
    }
}

/// Applies a report about a stream that has ended. The feeder of bad units may report the closed connection
/// before the receiver reports the units.
fn late_report(state: &mut PlanState, reporter: NodeId, id: StreamId, cause: &StreamCause) {
    let mut ended = state.ended.iter();
    let Some((_, from, to)) = ended.find(|(one, _, _)| *one == id).copied() else {
        return;
    };
    if *cause != StreamCause::BadUnits || reporter != to {
        return;
    }
    let incoming = state.members[to].incoming.clone();
    let is_same = |id: &StreamId| state.streams.get(id).is_some_and(|one| one.from == from);
    match incoming
        .into_iter()
        .find(is_same)
        .and_then(|again| state.cut(again))
    {
        Some(stream) => accuse(state, stream),
        None => condemn(state, from, to),
    }
}

/// Opens a stream again with a new number.
fn reopen(state: &mut PlanState, stream: PlannedStream) {
    let now_ms = state.now_ms;
    let missing = state.missing(stream.to);
    let units = stream.units.intersect(&missing);
    if units.is_empty() {
        return;
    }
    let again = PlannedStream::new(stream.from, stream.to, units, now_ms);
    state.open(again.of_kind(stream.kind, stream.slot));
}

/// Handles bad units: bars the pair, and the feeder if enough nodes accuse it.
fn accuse(state: &mut PlanState, stream: PlannedStream) {
    condemn(state, stream.from, stream.to);
    fail(state, stream, false);
}

/// Records an accuser of a feeder. Enough of them bar the feeder from feeding any node.
fn condemn(state: &mut PlanState, from: NodeId, accuser: NodeId) {
    let is_condemned = state.trust.accuse(from, accuser, &state.limits);
    if is_condemned && from != SOURCE && !state.members[from].is_quarantined {
        state.members[from].is_quarantined = true;
        state.set_aside(from);
    }
}

/// Counts the failure of a pair and finds another place for the receiver.
fn fail(state: &mut PlanState, stream: PlannedStream, may_retry: bool) {
    let (from, to, now_ms) = (stream.from, stream.to, state.now_ms);
    let is_first = state.trust.failures(from, to) == 0;
    state.trust.fail(from, to, now_ms, &state.limits);
    state.members[to].failing_since_ms.get_or_insert(now_ms);
    if may_retry && is_first {
        return reopen(state, stream);
    }
    state.members[from].send_troubles.insert(to);
    state.members[to].receive_troubles.insert(from);
    if matches!(state.mode, PlanMode::Cube { .. }) {
        return leave_cube(state, None);
    }
    // The receiver keeps its place if the feeder loses its own.
    let is_feeder_blamed =
        from != SOURCE && state.members[from].send_troubles.len() >= TROUBLES_MAX;
    if is_feeder_blamed {
        set_aside(state, from);
    }
    if state.members[to].receive_troubles.len() >= TROUBLES_MAX {
        set_aside(state, to);
    } else if !is_feeder_blamed && state.members[to].seat.is_some() {
        state.move_to_tail(to);
    }
}

fn set_aside(state: &mut PlanState, id: NodeId) {
    if state.members[id].role == PlanRole::Chain {
        state.set_aside(id);
    }
}

/// Starts a binomial pipeline among the nodes of the chain.
pub(crate) fn enter_cube(state: &mut PlanState) {
    let nodes: Vec<NodeId> = state.chain.values().copied().collect();
    let now_ms = state.now_ms;
    state.mode = PlanMode::Cube { since_ms: now_ms };
    for planned in schedule(&nodes, state.full.len()) {
        let stream = PlannedStream::new(planned.from, planned.to, planned.units, now_ms);
        state.open(stream.of_kind(StreamKind::Cube, FeedSlot::Chain));
    }
}

/// Ends the binomial pipeline. The chain in rack order goes on with what each node holds. A slow
/// node becomes a leaf.
pub(crate) fn leave_cube(state: &mut PlanState, slow: Option<NodeId>) {
    state.mode = PlanMode::Chain;
    let streams = state.streams_of_kind(StreamKind::Cube);
    state.cut_all(streams);
    for id in state
        .members
        .ids()
        .filter(|id| *id != SOURCE)
        .collect::<Vec<_>>()
    {
        if state.is_needing(id) {
            state.needy.insert(id);
        }
    }
    if let Some(slow) = slow {
        state.members[slow].demotions = state.members[slow].demotions.saturating_add(1);
        state.set_aside(slow);
    }
    state.is_dirty = true;
}
