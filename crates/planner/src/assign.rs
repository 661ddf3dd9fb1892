//! Choice of a feeder for each node that lacks units.
//!
//! A node of the chain is fed by the nearest earlier node whose place is free: in an intact chain its
//! predecessor, after a splice the node before the dead one. Every other node is fed by a node
//! with capacity to spare. The links of the chain have capacity first, so a leaf waits before it
//! takes a share of a node that is busy with the chain.

use crate::failure::TROUBLES_MAX;
use crate::member::PlanRole;
use crate::messages::{NodeId, SOURCE};
use crate::state::{PlanMode, PlanState};
use crate::stream::{FeedSlot, PlannedStream, StreamKind};
use crate::units::UnitSet;
use std::cmp::Reverse;

/// Failed feeders in a row after which a receiver asks the source, which is the most trusted feeder.
const TROUBLES_TO_SOURCE: usize = 2;

/// Time in ms between two moves of a node within the chain.
const MOVE_WAIT_MS: u64 = 1_000;

/// Finds feeders for the needy nodes, in the order of the chain.
pub(crate) fn assign(state: &mut PlanState) {
    state.is_dirty = false;
    if state.mode != PlanMode::Chain {
        return;
    }
    let position = |id: &NodeId| state.members[*id].seat.unwrap_or(u64::MAX);
    let mut needy: Vec<NodeId> = state.needy.iter().copied().collect();
    needy.sort_by_key(position);
    let mut moved = Vec::new();
    for id in needy {
        serve(state, id);
        if is_cut_off(state, id) {
            moved.push(id);
        } else if let Some(tail) = barred_predecessor(state, id) {
            // The two change places.
            moved.push(tail);
        }
    }
    for id in moved {
        state.members[id].moved_ms = Some(state.now_ms);
        state.move_to_tail(id);
        // The node that was behind it comes first.
        let needy: Vec<NodeId> = state
            .needy
            .iter()
            .copied()
            .filter(|one| *one != id)
            .collect();
        for other in needy {
            serve(state, other);
        }
        serve(state, id);
    }
}

/// Opens streams to a node until they carry all units that it lacks, or no feeder is left.
fn serve(state: &mut PlanState, id: NodeId) {
    if !state.is_needing(id) {
        state.needy.remove(&id);
        return;
    }
    loop {
        let wanted = state.unassigned(id);
        if wanted.is_empty() {
            state.needy.remove(&id);
            return;
        }
        if state.feeders(id).len() >= state.limits.feeders_max {
            return;
        }
        let stream = chain_stream(state, id, &wanted).or_else(|| spare_stream(state, id, &wanted));
        let Some(stream) = stream else {
            if state.members[id].incoming.is_empty() {
                let now_ms = state.now_ms;
                state.members[id].waiting_since_ms.get_or_insert(now_ms);
            }
            return;
        };
        if stream.slot == FeedSlot::Chain && state.members[id].role == PlanRole::Chain {
            state.free_place(stream.from);
        }
        state.open(stream);
    }
}

/// Returns the node before the last one of the chain, if the last one has no feeder because it may not receive
/// from that node, but may feed it.
fn barred_predecessor(state: &PlanState, id: NodeId) -> Option<NodeId> {
    let member = &state.members[id];
    let seat = member.seat.filter(|_| member.incoming.is_empty())?;
    let is_last = state.chain.range(seat.saturating_add(1)..).next().is_none();
    let (_, before) = state.chain.range(..seat).next_back()?;
    let wait = |moved: u64| state.now_ms.saturating_sub(moved) < MOVE_WAIT_MS;
    let was_moved = state.members[*before].moved_ms.is_some_and(wait);
    let is_barred = state.trust.is_barred(*before, id) && !state.trust.is_barred(id, *before);
    let changes = is_last && is_barred && !was_moved && *before != SOURCE;
    (changes && state.is_needing(id)).then_some(*before)
}

/// Tells whether a node within the chain has no feeder, although an earlier node has units for it, or a later
/// one has all of them. The pair waits after a failure, or the source is gone. The nodes behind it would
/// receive nothing.
fn is_cut_off(state: &PlanState, id: NodeId) -> bool {
    let member = &state.members[id];
    let Some(seat) = member.seat.filter(|_| member.incoming.is_empty()) else {
        return false;
    };
    let is_last = state.chain.range(seat.saturating_add(1)..).next().is_none();
    let wait = |moved: u64| state.now_ms.saturating_sub(moved) < MOVE_WAIT_MS;
    let was_moved = member.moved_ms.is_some_and(wait);
    if is_last || was_moved || !state.is_needing(id) {
        return false;
    }
    let wanted = state.missing(id);
    let mut later = state.chain.range(seat..).map(|(_, from)| *from);
    // Without a source, the chain begins at a node that holds everything.
    if later.any(|from| may_serve(state, from, id) && wanted.is_subset(&state.members[from].held)) {
        return true;
    }
    let mut earlier = state.chain.range(..seat).map(|(_, from)| *from);
    earlier.any(|from| state.members[from].may_feed() && state.supply(from).intersects(&wanted))
}

/// Ends the streams to leaves that share their feeder or wait for it, if an idle node could serve them.
pub(crate) fn move_to_idle(state: &mut PlanState) {
    if state.mode != PlanMode::Chain {
        return;
    }
    let is_leaf = |id: &NodeId| state.members[*id].role == PlanRole::Leaf && state.is_needing(*id);
    let leaves: Vec<NodeId> = state.members.ids().filter(is_leaf).collect();
    for id in leaves {
        if !shares_or_waits(state, id) {
            continue;
        }
        if let Some(stream) = idle_stream(state, id) {
            let incoming = state.members[id].incoming.clone();
            state.cut_all(incoming);
            state.open(stream);
        }
    }
}

/// Tells whether the feeder of a node feeds others, too, or lacks the units that the node lacks.
fn shares_or_waits(state: &PlanState, id: NodeId) -> bool {
    let feeders = state.feeders(id);
    let shares = |from: &NodeId| state.receivers(*from).len() > 1;
    let mut incoming = state.streams_of(&state.members[id].incoming);
    let is_starved = incoming.all(|stream| state.backlog(stream).is_empty());
    !feeders.is_empty() && (is_starved || feeders.iter().any(shares))
}

/// Returns a stream from a node that feeds no other and holds all that a leaf lacks.
fn idle_stream(state: &PlanState, id: NodeId) -> Option<PlannedStream> {
    let missing = state.missing(id);
    let is_idle = |from: &NodeId| {
        let member = &state.members[*from];
        let is_sound = state.trust.failures(*from, id) == 0;
        member.outgoing.is_empty() && member.role == PlanRole::Chain && is_sound
    };
    let idle = state.members.ids().filter(is_idle);
    let candidates = idle.filter_map(|from| candidate(state, from, id, &missing));
    let holds_all = |from: NodeId| missing.is_subset(&state.members[from].held);
    let able = candidates.filter(|one| !one.is_busy && holds_all(one.from));
    let best = able.min_by_key(|one| rank(state, one, id, &missing))?;
    Some(best.stream(id, state.now_ms))
}

fn may_serve(state: &PlanState, from: NodeId, to: NodeId) -> bool {
    from != to && state.members[from].may_feed() && state.trust.allows(from, to, state.now_ms)
}

/// Returns a stream from the nearest earlier node of the chain whose place is free. If that node holds nothing of
/// use yet, an idle one that holds everything comes first.
fn chain_stream(state: &PlanState, id: NodeId, wanted: &UnitSet) -> Option<PlannedStream> {
    let seat = state.members[id].seat?;
    let earlier = state.chain.range(..seat).rev().map(|(_, from)| *from);
    let mut free = earlier.filter(|from| {
        let is_free = state.chain_receiver(*from).is_none_or(|to| to == id);
        is_free && may_serve(state, *from, id)
    });
    let stream = |from: NodeId, units| PlannedStream::new(from, id, units, state.now_ms);
    let (nearest, units) = free.by_ref().find_map(|from| {
        let units = state.supply(from).intersect(wanted);
        (!units.is_empty()).then_some((from, units))
    })?;
    if !state.members[nearest].held.intersects(wanted) {
        let full = free.find(|from| wanted.is_subset(&state.members[*from].held));
        if let Some(full) = full.filter(|full| *full != SOURCE) {
            return Some(stream(full, wanted.clone()));
        }
    }
    Some(stream(nearest, units))
}

/// A node that could feed another one.
struct Candidate {
    from: NodeId,
    units: UnitSet,
    kind: StreamKind,
    slot: FeedSlot,
    /// Whether the node feeds its successor, or failed to feed this node or others well.
    is_busy: bool,
}

impl Candidate {
    fn stream(self, to: NodeId, now_ms: u64) -> PlannedStream {
        let stream = PlannedStream::new(self.from, to, self.units, now_ms);
        stream.of_kind(self.kind, self.slot)
    }
}

/// Returns a stream from the best node with capacity to spare.
fn spare_stream(state: &PlanState, id: NodeId, wanted: &UnitSet) -> Option<PlannedStream> {
    let member = &state.members[id];
    let time = |since: Option<u64>| since.map_or(0, |since| state.now_ms.saturating_sub(since));
    let waited = time(member.waiting_since_ms);
    // A node whose idle feeders fail again and again waits, too.
    let may_disturb = waited.max(time(member.failing_since_ms)) >= state.limits.leaf_wait_ms;
    let ids = state.members.ids();
    let candidates = ids.filter_map(|from| candidate(state, from, id, wanted));
    let allowed = candidates.filter(|candidate| may_disturb || !candidate.is_busy);
    // A stream of a few units is worth its orders only if there is nothing better for a while.
    let units_min = wanted.len().min(state.limits.link.units_per_second());
    let is_patient = waited < state.limits.slow_ms;
    let allowed = allowed.filter(|candidate| {
        let is_short = candidate.units.len() < units_min;
        candidate.kind == StreamKind::Flow || !is_short || !is_patient
    });
    let best = allowed.min_by_key(|candidate| rank(state, candidate, id, wanted))?;
    Some(best.stream(id, state.now_ms))
}

/// Returns the capacity that a node has for one more receiver. The place of a successor serves a leaf
/// until there is a successor.
fn spare_slot(state: &PlanState, from: NodeId, id: NodeId) -> Option<FeedSlot> {
    let leaves = state.leaf_receivers(from);
    if leaves.len() < state.limits.leaf_fanout || leaves.contains(&id) {
        return Some(FeedSlot::Leaf);
    }
    let place = state.chain_stream(from);
    let is_free = place.is_none_or(|stream| stream.to == id);
    is_free.then_some(FeedSlot::Chain)
}

fn candidate(state: &PlanState, from: NodeId, id: NodeId, wanted: &UnitSet) -> Option<Candidate> {
    if !may_serve(state, from, id) {
        return None;
    }
    let slot = spare_slot(state, from, id)?;
    // A node may promise units that it has yet to receive only to nodes behind it.
    let is_behind = match (state.members[from].seat, state.members[id].seat) {
        (Some(_), None) => true,
        (Some(one), Some(another)) => one < another,
        (None, _) => false,
    };
    let (kind, supply) = if is_behind {
        (StreamKind::Flow, state.supply(from))
    } else {
        (StreamKind::Held, state.members[from].held.clone())
    };
    // A second stream of units that the feeder has received since would be short, and a third.
    let mut incoming = state.streams_of(&state.members[id].incoming);
    if kind == StreamKind::Held && incoming.any(|stream| stream.from == from) {
        return None;
    }
    let units = supply.intersect(wanted);
    let troubles = state.members[from].send_troubles.len();
    let was_slow = state.members[id].slow_feeders.contains(&from);
    let is_suspect = from != SOURCE && (was_slow || troubles >= TROUBLES_MAX);
    let is_busy = is_suspect || state.chain_receiver(from).is_some_and(|to| to != id);
    (!units.is_empty()).then_some(Candidate {
        from,
        units,
        kind,
        slot,
        is_busy,
    })
}

/// Returns a key that is the lower the better the candidate is.
fn rank(
    state: &PlanState,
    candidate: &Candidate,
    id: NodeId,
    wanted: &UnitSet,
) -> impl Ord + use<> {
    let from = &state.members[candidate.from];
    let troubles = state.members[id].receive_troubles.len();
    let is_last_resort = candidate.from == SOURCE && troubles >= TROUBLES_TO_SOURCE;
    let paths = [candidate.from, id].map(|one| state.topology.path(&state.members[one].name));
    let [path, other] = paths;
    let shared = path.iter().zip(other).take_while(|(one, two)| one == two);
    (
        !is_last_resort,
        from.role == PlanRole::Leaf,
        state.trust.failures(candidate.from, id),
        candidate.is_busy,
        state.receivers(candidate.from).len(),
        wanted.len().saturating_sub(candidate.units.len()),
        wanted
            .len()
            .saturating_sub(wanted.intersect(&from.held).len()),
        Reverse(shared.count()),
        Reverse(from.seat),
    )
}
