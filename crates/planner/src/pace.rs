//! Rules about time: slow nodes, stalled streams, waits that end.
//!
//! A node is slow if it verifies fewer units than its feeder receives, while the feeder has units for
//! it. A node that waits for its feeder is not slow. Either end of a slow pair may be the
//! cause, so the receiver becomes a leaf first; if the next receiver is as slow, the feeder does.
//! The source receives nothing. Its pair is compared with the measured link, or with one trial of another
//! first node.

use crate::assign::move_to_idle;
use crate::failure::{TROUBLES_MAX, leave_cube, stream_failed};
use crate::member::{Phase, PlanRole};
use crate::messages::{FailReason, NodeId, NodeOutcome, SOURCE, StreamCause, StreamId};
use crate::state::{PlanMode, PlanState};
use crate::stream::{FeedSlot, PlannedStream, StreamKind};
use crate::units::UnitSet;

/// Part of a second by whose units, in ms, a receiver lags at least if it is slow. Reports of two nodes
/// differ by one tick anyway.
const LAG_MS: u64 = 400;
/// First part of a stream in ms, which is not measured: orders and reports are on their way.
const SETTLING_MS: u64 = 500;
/// Units that a receiver lags at least if it is slow.
const LAG_UNITS: u64 = 8;
/// Divisor of the time for which a pair must be slow, if another receiver of the feeder was slow before.
const SUSPECT_DIVISOR: u64 = 4;
/// Demotions of a node at most, so that every plan comes to rest.
const DEMOTIONS_MAX: u32 = 2;
/// Time in ms that a transfer must still take to be worth a trial of another first node.
const TRIAL_WORTH_MS: u64 = 20_000;
/// Rate of the next first node, in percent of the last one, above which the last one was slow.
const TRIAL_BETTER_PERCENT: u64 = 125;
/// Part of its typical rate that a node loses with each tick: half of it in 11 s.
const TYPICAL_DECAY: u64 = 64;
/// Times that a leaf may wait for a unit of a feeder that is busy with the chain.
const SPARE_PATIENCE: u64 = 4;
/// Doublings of the time after which a stream has stalled.
const STALL_DOUBLINGS_MAX: u32 = 5;
/// Times that a node may begin to verify what it holds, each with the whole time to join.
const PREPARATIONS_MAX: u32 = 4;
/// Streams of a slow vertex of a hypercube have so many times the usual backlog.
const CUBE_LAG_FACTOR: u64 = 4;

/// Applies all rules about time.
pub(crate) fn tick(state: &mut PlanState) {
    sample(state);
    match state.mode {
        PlanMode::Waiting => {}
        PlanMode::Chain => {
            watch_streams(state);
            compare_rates(state);
            promote_leaves(state);
            move_to_idle(state);
        }
        PlanMode::Cube { since_ms } => watch_cube(state, since_ms),
    }
    end_hopeless(state);
}

/// Takes a sample of the units that each node has verified.
pub(crate) fn sample(state: &mut PlanState) {
    let keep_ms = state.limits.window_ms;
    for id in state.members.ids() {
        let now_ms = state.now_ms;
        state.members[id].meter.sample(now_ms, keep_ms);
    }
}

/// Ends streams whose feeder has units to send, and whose receiver verifies none.
fn watch_streams(state: &mut PlanState) {
    let mut stalled = Vec::new();
    let ids: Vec<StreamId> = state.streams.keys().copied().collect();
    for id in ids {
        let Some(stream) = state.streams.get(&id) else {
            continue;
        };
        // A leaf gets little from a feeder that is busy with the chain.
        let is_second = stream.slot == FeedSlot::Leaf && state.chain_stream(stream.from).is_some();
        let patience = if is_second { SPARE_PATIENCE } else { 1 };
        let is_starved = state.backlog(stream).is_empty();
        let doublings = state.members[stream.to].stalls.min(STALL_DOUBLINGS_MAX);
        let stall_ms = state.limits.stall_ms.saturating_mul(patience << doublings);
        let now_ms = state.now_ms;
        let Some(stream) = state.streams.get_mut(&id) else {
            continue;
        };
        if is_starved {
            // A node that waits for its feeder has not failed.
            if stream.age_ms(now_ms) >= stall_ms {
                state.members[stream.to].failing_since_ms = None;
            }
            stream.moved_ms = now_ms;
        } else if now_ms.saturating_sub(stream.moved_ms) >= stall_ms {
            stalled.push((id, stream.to));
        }
    }
    for (id, to) in stalled {
        let stalls = &mut state.members[to].stalls;
        *stalls = stalls.saturating_add(1);
        stream_failed(state, to, id, &StreamCause::Stalled);
    }
}

/// Rate of a receiver in the chain.
struct StreamPace {
    stream: StreamId,
    from: NodeId,
    to: NodeId,
    /// Units in the period.
    count: u64,
    period_ms: u64,
    /// Units that the feeder could send at once.
    backlog: u64,
}

impl StreamPace {
    /// Returns the units that the receiver would verify in a whole window.
    fn in_window(&self, state: &PlanState) -> u64 {
        self.scaled(state, self.count)
    }

    /// Converts a number of units in the period to one in a whole window.
    fn scaled(&self, state: &PlanState, count: u64) -> u64 {
        let window = u128::from(state.limits.window_ms);
        let scaled = u128::from(count) * window / u128::from(self.period_ms.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Tells whether the receiver lags behind a feeder that gets `reference` units in a window.
    fn lags(&self, state: &PlanState, reference: u64) -> bool {
        let lag = u128::from(reference) * u128::from(LAG_MS);
        let lag = lag / u128::from(state.limits.window_ms.max(1));
        u128::from(self.backlog) >= lag.max(u128::from(LAG_UNITS))
    }
}

/// Measures a stream. Returns `None` while the stream is too young.
fn pace(state: &PlanState, id: StreamId, stream: &PlannedStream) -> Option<StreamPace> {
    let limits = &state.limits;
    let age = stream.age_ms(state.now_ms).saturating_sub(SETTLING_MS);
    let period_ms = age.min(limits.window_ms);
    if period_ms.saturating_mul(2) < limits.window_ms {
        return None;
    }
    let from = state.now_ms.saturating_sub(period_ms);
    Some(StreamPace {
        stream: id,
        from: stream.from,
        to: stream.to,
        count: state.members[stream.to].meter.since(from)?,
        period_ms,
        backlog: state.backlog(stream).len(),
    })
}

/// Returns the units in a window that a feeder should be able to send: the highest of the numbers that it
/// receives, received a short while ago, and that the source sends. Returns `None` if nothing is known yet.
fn reference(state: &PlanState, pace: &StreamPace) -> Option<u64> {
    let feeder = &state.members[pace.from];
    let of_source = state.members[SOURCE].typical.or_else(|| measured(state));
    if pace.from == SOURCE {
        return of_source;
    }
    let since = state.now_ms.saturating_sub(pace.period_ms);
    let is_fed = !feeder.incoming.is_empty();
    let count = feeder.meter.since(since).filter(|_| is_fed);
    let current = count.map(|count| pace.scaled(state, count));
    // During a trial, the number of the source is the goal for the next first node.
    let of_source = of_source.filter(|_| state.head_trials.is_empty());
    current.max(feeder.typical).max(of_source)
}

/// Returns the units that a link carries in a window, if its speed is known.
fn measured(state: &PlanState) -> Option<u64> {
    let limits = &state.limits;
    let units = limits
        .link
        .units_per_second()
        .saturating_mul(limits.window_ms)
        / 1000;
    limits.link.is_measured.then_some(units)
}

/// Demotes the slow end of each pair of the chain that is slow for long enough.
fn compare_rates(state: &mut PlanState) {
    let streams = state.streams.iter();
    let of_chain = streams.filter(|(_, stream)| {
        let is_of_chain = state.members[stream.to].role == PlanRole::Chain;
        stream.slot == FeedSlot::Chain && stream.kind == StreamKind::Flow && is_of_chain
    });
    let paces: Vec<StreamPace> = of_chain
        .filter_map(|(id, stream)| pace(state, *id, stream))
        .collect();
    for pace in &paces {
        record(state, pace);
    }
    for pace in paces {
        // An earlier pace may have ended the stream.
        if state.streams.contains_key(&pace.stream) {
            compare(state, &pace);
        }
    }
}

fn compare(state: &mut PlanState, pace: &StreamPace) {
    let count = pace.in_window(state);
    let reference = reference(state, pace);
    let is_fast = reference.is_some_and(|reference| {
        let floor = u128::from(reference) * u128::from(state.limits.slow_percent);
        u128::from(count) * 100 >= floor
    });
    let is_slow = match reference {
        Some(reference) => !is_fast && pace.lags(state, reference),
        None => pace.from == SOURCE && is_worth_a_trial(state, pace),
    };
    // Another pair shows what a link carries, so no trial is needed.
    let is_trial = reference.is_none() && is_slow;
    if is_trial && is_slow_elsewhere(state) {
        let best = state
            .members
            .iter()
            .filter_map(|(_, member)| member.typical)
            .max();
        if pace.period_ms >= state.limits.window_ms {
            state.members[SOURCE].typical = best.max(Some(count));
        }
        return;
    }
    let now_ms = state.now_ms;
    let is_suspect = !state.members[pace.from].slow_receivers.is_empty();
    let doubt = if is_suspect { SUSPECT_DIVISOR } else { 1 };
    let slow_ms = state.limits.slow_ms / doubt;
    let Some(stream) = state.streams.get_mut(&pace.stream) else {
        return;
    };
    if !is_slow {
        stream.slow_since_ms = None;
        if pace.period_ms >= state.limits.window_ms {
            settle(state, pace, count, is_fast);
        }
        return;
    }
    let since = *stream.slow_since_ms.get_or_insert(now_ms);
    if now_ms.saturating_sub(since) >= slow_ms {
        blame(state, pace, count);
    }
}

/// Records the rate of a receiver. A fast period counts for a while, so that a feeder that gets slow is noticed.
fn record(state: &mut PlanState, pace: &StreamPace) {
    if pace.period_ms >= state.limits.window_ms {
        let count = pace.in_window(state);
        let before = state.members[pace.to].typical.unwrap_or(0);
        let decayed = before.saturating_sub(before / TYPICAL_DECAY);
        state.members[pace.to].typical = Some(count.max(decayed));
    }
}

/// Tells whether the rest takes so long that a trial of another first node costs little.
fn is_worth_a_trial(state: &PlanState, pace: &StreamPace) -> bool {
    let missing = u128::from(state.missing(pace.to).len());
    let rest = missing * u128::from(pace.period_ms) / u128::from(pace.count.max(1));
    let others = state.chain.values().filter(|id| state.is_needing(**id));
    rest >= u128::from(TRIAL_WORTH_MS) && others.count() > 1
}

/// Tells whether a pair without the source is slow.
fn is_slow_elsewhere(state: &PlanState) -> bool {
    let mut others = state.streams.values().filter(|one| one.from != SOURCE);
    others.any(|stream| stream.slow_since_ms.is_some())
}

/// Records a pair that works at its full rate: earlier receivers of the feeder were the slow ones.
fn settle(state: &mut PlanState, pace: &StreamPace, count: u64, is_fast: bool) {
    if is_fast {
        state.members[pace.from].slow_receivers.clear();
        state.members[pace.to].slow_feeders.clear();
    }
    if pace.from == SOURCE && count > 0 {
        state.head_trials.clear();
        // A moving average, so that one fast period does not make all later ones slow.
        let before = state.members[SOURCE].typical.unwrap_or(count);
        let average = before.saturating_mul(3).saturating_add(count) / 4;
        state.members[SOURCE].typical = Some(average);
    }
}

/// Demotes the end of a slow pair that was slow with more peers: the receiver if both were slow with as many. At
/// the end of the chain both change places first.
fn blame(state: &mut PlanState, pace: &StreamPace, count: u64) {
    if pace.from == SOURCE {
        return blame_at_source(state, pace, count);
    }
    state.members[pace.from].slow_receivers.insert(pace.to);
    let is_new = state.members[pace.to].slow_feeders.insert(pace.from);
    let receivers = state.members[pace.from].slow_receivers.len();
    let feeders = state.members[pace.to].slow_feeders.len();
    if receivers > feeders && may_demote(state, pace.from) {
        return demote(state, pace.from);
    }
    if feeders > 1 {
        clear_feeders(state, pace);
    }
    let is_last = state.chain.values().next_back() == Some(&pace.to);
    if is_last && is_new && feeders == 1 {
        state.move_to_tail(pace.from);
    } else if may_demote(state, pace.to) {
        demote(state, pace.to);
    } else if state.members[pace.to].demotions < DEMOTIONS_MAX {
        // There are many leaves already. At the end of the chain no node waits for this one.
        count_demotion(state, pace.to);
        state.move_to_tail(pace.to);
    }
}

/// Promotes the other feeders of a slow receiver that were demoted for it.
fn clear_feeders(state: &mut PlanState, pace: &StreamPace) {
    let feeders = state.members[pace.to].slow_feeders.clone();
    for id in feeders.into_iter().filter(|id| *id != pace.from) {
        promote(state, id);
    }
}

/// Moves the first node of the chain to the end, where it is compared with its new feeder. If the next
/// one is no faster, the source is the slow end.
fn blame_at_source(state: &mut PlanState, pace: &StreamPace, count: u64) {
    let is_measured = state.limits.link.is_measured;
    let trials_max = if is_measured { 2 } else { 1 };
    if state.head_trials.len() >= trials_max || state.members[pace.to].was_tried {
        let trials = std::mem::take(&mut state.head_trials);
        state.members[SOURCE].typical = Some(trials.into_iter().fold(count, u64::max));
        return;
    }
    if state.members[SOURCE].typical.is_none() && !is_measured {
        // The next one counts as slow unless it is clearly faster.
        let better = count.saturating_mul(TRIAL_BETTER_PERCENT) / state.limits.slow_percent.max(1);
        state.members[SOURCE].typical = Some(better);
    }
    state.head_trials.push(count);
    state.members[pace.to].was_tried = true;
    state.members[pace.to].slow_feeders.insert(SOURCE);
    state.move_to_tail(pace.to);
}

/// Tells whether a node may become a leaf. A plan has few leaves: if many nodes are slow, slow is normal.
fn may_demote(state: &PlanState, id: NodeId) -> bool {
    let member = &state.members[id];
    let is_leaf =
        |other: &NodeId| state.members[*other].role == PlanRole::Leaf && state.is_needing(*other);
    let leaves = state.members.ids().filter(is_leaf).count();
    let leaves_max = (state.members.len() / 4).max(2);
    id != SOURCE
        && member.role == PlanRole::Chain
        && member.demotions < DEMOTIONS_MAX
        && leaves < leaves_max
}

fn demote(state: &mut PlanState, id: NodeId) {
    count_demotion(state, id);
    state.set_aside(id);
}

fn count_demotion(state: &mut PlanState, id: NodeId) {
    let demotions = &mut state.members[id].demotions;
    *demotions = demotions.saturating_add(1);
}

/// Appends a leaf to the chain, once in the life of a plan.
fn promote(state: &mut PlanState, id: NodeId) {
    let member = &mut state.members[id];
    let is_leaf =
        member.role == PlanRole::Leaf && member.is_connected() && member.outcome.is_none();
    let is_suspect = member.is_quarantined || member.send_troubles.len() >= TROUBLES_MAX;
    if !is_leaf || member.was_promoted || is_suspect {
        return;
    }
    member.was_promoted = true;
    member.receive_troubles.clear();
    member.slow_feeders.clear();
    // Where a feeder serves several nodes, the chain comes before any leaf.
    let feeders = state.feeders(id);
    if feeders.iter().any(|from| state.receivers(*from).len() > 1) {
        let incoming = state.members[id].incoming.clone();
        state.cut_all(incoming);
    }
    state.append(id);
}

/// Promotes leaves that receive at the rate of the chain.
fn promote_leaves(state: &mut PlanState) {
    let streams = state.streams.iter();
    let leaves = streams.filter(|(_, stream)| state.members[stream.to].role == PlanRole::Leaf);
    let paces = leaves.filter_map(|(id, stream)| pace(state, *id, stream));
    let recovered = paces.filter(|pace| {
        let percent = u128::from(state.limits.slow_percent);
        let floor = reference(state, pace).map(|reference| u128::from(reference) * percent);
        let is_full = pace.period_ms >= state.limits.window_ms && pace.count > 0;
        // Receivers share the link of their feeder.
        let shares = state.receivers(pace.from).len().max(1) as u128;
        let count = u128::from(pace.in_window(state)) * shares;
        is_full && floor.is_some_and(|floor| count * 100 >= floor)
    });
    for id in recovered.map(|pace| pace.to).collect::<Vec<_>>() {
        promote(state, id);
    }
}

/// Ends a binomial pipeline that a slow node holds up, or that is over.
fn watch_cube(state: &mut PlanState, since_ms: u64) {
    let needing: Vec<NodeId> = state
        .members
        .ids()
        .filter(|id| state.is_needing(*id))
        .collect();
    let is_served = |id: &NodeId| !state.members[*id].incoming.is_empty();
    if !needing.iter().any(is_served) {
        return leave_cube(state, None);
    }
    let backlog = |id: &NodeId| -> u64 {
        let streams = state.streams_of(&state.members[*id].incoming);
        streams.map(|stream| state.backlog(stream).len()).sum()
    };
    let mut backlogs: Vec<(u64, NodeId)> = needing.iter().map(|id| (backlog(id), *id)).collect();
    backlogs.sort();
    let usual = backlogs
        .get(backlogs.len() / 2)
        .map_or(0, |(backlog, _)| *backlog);
    let lag = state.limits.link.units_per_second().saturating_mul(LAG_MS) / 1000;
    let floor = usual
        .saturating_mul(CUBE_LAG_FACTOR)
        .saturating_add(lag.max(LAG_UNITS));
    let now_ms = state.now_ms;
    let mut slow = None;
    for (backlog, id) in backlogs {
        let since = &mut state.members[id].slow_since_ms;
        if backlog < floor {
            *since = None;
        } else if now_ms.saturating_sub(*since.get_or_insert(now_ms)) >= state.limits.slow_ms {
            slow = Some(id);
        }
    }
    let nodes = state.chain.len();
    let estimate = state
        .limits
        .link
        .hypercube_nanoseconds(nodes, state.full.len())
        / 1_000_000;
    let deadline = estimate
        .saturating_mul(3)
        .saturating_add(u128::from(state.limits.stall_ms));
    let is_late = u128::from(now_ms.saturating_sub(since_ms)) > deadline;
    if slow.is_some() || is_late {
        leave_cube(state, slow);
    }
}

/// Gives an outcome to nodes that wait for nothing that may still come.
fn end_hopeless(state: &mut PlanState) {
    if state.mode == PlanMode::Waiting {
        return;
    }
    let available = available(state);
    let ids: Vec<NodeId> = state.members.ids().filter(|id| *id != SOURCE).collect();
    for id in &ids {
        let member = &state.members[*id];
        if member.is_connected() && member.outcome.is_none() {
            end_if_hopeless(state, *id, &available);
        }
    }
    end_absent(state, &ids);
}

/// Returns the units that any node may send.
fn available(state: &PlanState) -> UnitSet {
    let mut units = UnitSet::new();
    for (_, member) in state.members.iter().filter(|(_, member)| member.may_feed()) {
        if state.full.is_subset(&units) {
            break;
        }
        units.insert(&member.held);
    }
    units
}

/// Returns the units that some node may send to this one.
fn available_to(state: &PlanState, id: NodeId) -> UnitSet {
    let mut units = UnitSet::new();
    for (from, member) in state.members.iter() {
        if member.may_feed() && !state.trust.is_barred(from, id) {
            units.insert(&member.held);
        }
    }
    units
}

fn end_if_hopeless(state: &mut PlanState, id: NodeId, available: &UnitSet) {
    let (now_ms, limits) = (state.now_ms, &state.limits);
    let has_lasted = |since: Option<u64>, limit_ms: u64| {
        since.is_some_and(|since| now_ms.saturating_sub(since) >= limit_ms)
    };
    let member = &state.members[id];
    if has_lasted(member.full_since_ms, limits.finish_ms) {
        return state.fail(id, FailReason::NotFinished);
    }
    if has_lasted(member.failing_since_ms, limits.give_up_ms) {
        return state.fail(id, FailReason::NoProgress);
    }
    let missing = state.missing(id);
    let own = (state.trust.bars(id) > 0).then(|| available_to(state, id));
    let reachable = own.as_ref().unwrap_or(available);
    let lost = missing.subtract(reachable);
    if lost.is_empty() {
        state.members[id].unavailable_since_ms = None;
        return;
    }
    let grace_ms = limits.grace_ms;
    let since = *state.members[id].unavailable_since_ms.get_or_insert(now_ms);
    // Units that can still arrive are worth waiting for: they stay in the cache.
    let is_idle = !missing.intersects(reachable);
    if is_idle && has_lasted(Some(since), grace_ms) {
        let units = lost.subtract(available).len();
        let reason = match units {
            0 => FailReason::NoProgress,
            units => FailReason::Unavailable { units },
        };
        state.fail(id, reason);
    }
}

/// Returns the time of an absence, its limit, and the reason for which the node then fails. Returns
/// `None` if the node is connected.
fn absence(state: &PlanState, id: NodeId) -> Option<(u64, u64, FailReason)> {
    let (member, limits) = (&state.members[id], &state.limits);
    let joining = (state.started_ms, limits.join_ms);
    let (since, limit, reason) = match (member.phase, member.unprepared_ms) {
        (Phase::Connected, _) => return None,
        (Phase::Lost { since_ms }, _) => (since_ms, limits.rejoin_ms, FailReason::Lost),
        (Phase::Pending, None) => (joining.0, joining.1, FailReason::NeverJoined),
        // The node comes back at once if the connection alone has failed.
        (Phase::Pending, Some(since_ms)) if member.preparations < PREPARATIONS_MAX => {
            (since_ms.max(joining.0), joining.1, FailReason::Lost)
        }
        (Phase::Pending, Some(_)) => (joining.0, joining.1, FailReason::Lost),
    };
    Some((state.now_ms.saturating_sub(since), limit, reason))
}

/// Gives an outcome to nodes that are not connected, after all others have theirs. A node that
/// verifies what it holds is connected.
fn end_absent(state: &mut PlanState, ids: &[NodeId]) {
    let is_open = |id: &&NodeId| {
        let member = &state.members[**id];
        member.outcome.is_none() && (member.is_connected() || member.is_preparing)
    };
    if ids.iter().any(|id| is_open(&id)) {
        return;
    }
    for id in ids {
        if let Some((absent_ms, limit_ms, reason)) = absence(state, *id)
            && absent_ms >= limit_ms
        {
            state.end(*id, NodeOutcome::Failed(reason));
        }
    }
}
