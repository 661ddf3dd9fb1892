//! Accidents at random. `DRIFTLESS_SEEDS` sets the number of seeds, `DRIFTLESS_SEED` repeats one of
//! them and prints its events.

use crate::world::{Fault, Nature, SECOND, Setup, World, index};
use driftless_planner::{NodeId, NodeOutcome, SOURCE, UnitSet};
use std::collections::BTreeSet;
use std::env;

const SEEDS: u64 = 150;
/// Microseconds of a unit.
const UNIT: u64 = 10_000;
/// Time that an accident costs a healthy node at most.
const ACCIDENT_MAX: u64 = 10 * SECOND;
const LIMIT: u64 = 20_000 * SECOND;
/// Units that may reach a node twice for each stream: those in flight when a stream was cut.
const WASTE_FOR_EACH_STREAM: u64 = 4;

/// Nodes for which the test expects a complete copy, and those with a nature of their own.
struct Case {
    world: World,
    late: Vec<NodeId>,
    /// Nodes with faults that may end them.
    spoiled: Vec<NodeId>,
    liars: Vec<NodeId>,
    source_dies: bool,
    source_end: u64,
    /// Nodes that lost a link.
    cut: Vec<NodeId>,
    /// Nodes that are slow, late, or hang for a while.
    slow: Vec<NodeId>,
    accidents: u64,
    about: String,
}

fn setup(seed: u64, rng: &mut fastrand::Rng) -> Setup {
    // Small sets among many nodes take the hypercube; large ones show slow nodes.
    let (nodes, units) = match rng.u32(0..4) {
        0 => (rng.u32(1..4), rng.u64(1..2_000)),
        1 => (rng.u32(8..50), rng.u64(1..100)),
        2 => (rng.u32(1..16), rng.u64(1_000..4_000)),
        _ => (rng.u32(1..24), rng.u64(1..400)),
    };
    let mut setup = Setup::new(nodes, units, UNIT);
    setup.seed = seed;
    setup.limits.link.is_measured = rng.bool();
    setup
}

fn case(seed: u64) -> Case {
    let mut rng = fastrand::Rng::with_seed(seed);
    let world = setup(seed, &mut rng).world();
    let mut case = Case {
        world,
        late: Vec::new(),
        spoiled: Vec::new(),
        liars: Vec::new(),
        source_dies: rng.u32(0..8) == 0,
        source_end: u64::MAX,
        cut: Vec::new(),
        slow: Vec::new(),
        accidents: 0,
        about: String::new(),
    };
    case.world.refuses_early = rng.bool();
    let ids: Vec<NodeId> = case.world.ids().collect();
    for id in ids.iter().copied() {
        case.prepare(id, &mut rng);
    }
    let duration = (case.world.units * UNIT).max(6 * SECOND);
    for _ in 0..rng.u32(0..6) {
        case.add_fault(&ids, rng.u64(0..duration), &mut rng);
    }
    if case.source_dies {
        let at = rng.u64(0..2 * duration);
        case.source_end = at;
        case.add(at, Fault::PowerOff(SOURCE));
    }
    case
}

impl Case {
    fn add(&mut self, at: u64, fault: Fault) {
        self.accidents += 1;
        let about = format!("{} ms {fault:?}; ", at / 1000);
        self.about.push_str(&about);
        self.world.fault(at, fault);
    }

    fn prepare(&mut self, id: NodeId, rng: &mut fastrand::Rng) {
        let units = self.world.units;
        let node = self.world.node(id);
        match rng.u32(0..30) {
            0 => node.held = UnitSet::first(units),
            1..4 => node.held = UnitSet::range(rng.u64(0..units), units),
            4 => {
                let factor = rng.u64(2..20);
                (node.up, node.down) = (node.up * factor, node.down * factor);
                self.slow.push(id);
                self.accidents += 1;
                self.about.push_str(&format!("{id} is slow: {factor}; "));
            }
            5 if self.liars.len() < 2 => {
                let natures = [
                    Nature::Corrupter,
                    Nature::Accuser,
                    Nature::Complainer,
                    Nature::Mute,
                ];
                node.nature = natures[rng.usize(0..natures.len())];
                let about = format!("{id} is {:?}; ", node.nature);
                self.about.push_str(&about);
                self.liars.push(id);
                self.accidents += 1;
            }
            6 => {
                self.late.push(id);
                self.slow.push(id);
                let at = rng.u64(0..6 * SECOND);
                self.add(at, Fault::Join(id));
            }
            _ => {}
        }
    }

    fn add_fault(&mut self, ids: &[NodeId], at: u64, rng: &mut fastrand::Rng) {
        let later = at + rng.u64(SECOND..8 * SECOND);
        let id = ids[rng.usize(0..ids.len())];
        let other = ids[rng.usize(0..ids.len())];
        if self.late.contains(&id) || self.spoiled.contains(&id) {
            return;
        }
        match rng.u32(0..10) {
            0 => self.end(at, Fault::Kill(id), id),
            1 => self.end(at, Fault::PowerOff(id), id),
            2 => self.end(at, Fault::DiskFull(id), id),
            3 => self.end(at, Fault::Leave(id), id),
            4 => self.end(at, Fault::Hang(id), id),
            5 => {
                // The others may end before the node is back.
                self.end(at, Fault::Kill(id), id);
                self.add(later, Fault::Boot(id));
            }
            6 => {
                self.slow.push(id);
                self.add(at, Fault::Hang(id));
                self.add(later, Fault::Resume(id));
            }
            7 => {
                self.slow.push(id);
                self.add(at, Fault::Slow(id, rng.u64(2..12)));
            }
            _ if id != other => {
                self.cut.extend([id, other]);
                self.add(at, Fault::CutLink(id, other));
                if rng.bool() {
                    self.add(later, Fault::MendLink(id, other));
                }
            }
            _ => {}
        }
    }

    /// Tells whether at most two nodes are slow or lie. More of them may delay a healthy node, which still
    /// completes.
    fn has_few_slow_nodes(&self) -> bool {
        let slow: BTreeSet<&NodeId> = self.slow.iter().chain(&self.liars).collect();
        slow.len() <= 2
    }

    /// Checks that accidents of other nodes cost a healthy node a bounded time each.
    fn check_time(&self, id: NodeId) {
        let full_at = self.world.full_at([id].into_iter());
        let transfer = self.world.units * UNIT;
        let limit = transfer + transfer / 10 + SECOND + self.accidents * ACCIDENT_MAX;
        let about = &self.about;
        assert!(
            full_at <= limit,
            "{id} is full after {full_at}, not {limit}; {about}"
        );
    }

    /// Tells whether a sound node held everything before the source died.
    fn has_safe_copy(&self) -> bool {
        let is_safe = |id: NodeId| {
            let is_sound = !self.spoiled.contains(&id) && !self.liars.contains(&id);
            let full_at = self.world.nodes[index(id)].full_at;
            is_sound && !self.cut.contains(&id) && full_at.is_some_and(|at| at < self.source_end)
        };
        self.world.ids().any(is_safe)
    }

    fn end(&mut self, at: u64, fault: Fault, id: NodeId) {
        self.spoiled.push(id);
        self.add(at, fault);
    }

    fn run(mut self, seed: u64, trace: bool) {
        self.world.trace = trace;
        let late = std::mem::take(&mut self.late);
        self.world.start(&late);
        let about = &self.about;
        self.world.run(LIMIT);
        let world = &self.world;
        for id in world.ids() {
            let outcome = world.planner.outcome(id).expect("an outcome");
            let status = world.planner.status(id).expect("a node");
            let is_full = world.nodes[index(id)].held.len() == world.units;
            let is_complete = *outcome == NodeOutcome::Complete;
            assert!(!is_complete || is_full, "{id} lies; {about}");
            let is_sound = !self.spoiled.contains(&id) && !self.liars.contains(&id);
            let has_copy = !self.source_dies || self.has_safe_copy();
            let must_complete = is_sound && has_copy;
            assert!(
                !must_complete || is_complete,
                "{id}: {outcome:?} {status:?}; {about}"
            );
            let is_healthy = is_sound && !self.slow.contains(&id) && !self.cut.contains(&id);
            if is_healthy && !self.source_dies && self.has_few_slow_nodes() {
                self.check_time(id);
            }
            let is_condemned = status.is_quarantined && !self.liars.contains(&id);
            assert!(!is_condemned, "{id} is condemned; {about}");
        }
        let (wasted, streams) = (world.wasted, world.streams);
        assert!(
            wasted <= streams * WASTE_FOR_EACH_STREAM,
            "{wasted} {streams}; {about}"
        );
        if trace {
            eprintln!("seed {seed}: {about} {wasted} wasted, {streams} streams");
        }
    }
}

#[test]
fn sound_nodes_complete_in_spite_of_accidents() {
    let number = |name: &str| {
        env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    if let Some(seed) = number("DRIFTLESS_SEED") {
        return case(seed).run(seed, true);
    }
    for seed in 0..number("DRIFTLESS_SEEDS").unwrap_or(SEEDS) {
        let case = case(seed);
        let run = std::panic::AssertUnwindSafe(|| case.run(seed, false));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("seed {seed}: repeat with DRIFTLESS_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
