//! Distributions in a cluster in memory: times against the formulas, and accidents by hand.
//! `simulation/random.rs` has accidents at random.

#[path = "simulation/random.rs"]
mod random;
#[path = "simulation/world.rs"]
mod world;

use driftless_planner::{
    DataSet, FailReason, NodeId, NodeOutcome, PlanEvent, PlanLimits, Planner, RackTopology, SOURCE,
    UnitSet,
};
use world::{Fault, Nature, SECOND, Setup, World, index};

const LIMIT: u64 = 3_000 * SECOND;
/// Link of 100 Mbit/s: 64 KiB in 5.5 ms. The tests take units that are larger, to be fast.
const UNIT: u64 = 20_000;

fn run(setup: Setup, prepare: impl Fn(&mut World)) -> World {
    let mut world = setup.world();
    prepare(&mut world);
    world.start(&[]);
    world.run(LIMIT);
    world
}

/// Returns the time until all nodes are full.
fn time(nodes: u32, units: u64) -> u64 {
    let world = run(Setup::new(nodes, units, UNIT), |_| {});
    assert_eq!(world.wasted, 0, "{nodes} {units}");
    world.full_at(world.ids())
}

fn is_within(time: u64, other: u64, percent: u64) -> bool {
    time * 100 <= other * percent
}

/// Returns the time until all nodes but the given one are full, after faults.
fn time_of_others(setup: Setup, but: NodeId, prepare: impl Fn(&mut World)) -> (u64, World) {
    let world = run(setup, prepare);
    (world.full_at(world.ids().filter(|id| *id != but)), world)
}

#[test]
fn chain_takes_the_time_of_one_node() {
    let one = time(1, 2_000);
    assert!(is_within(one, 2_000 * UNIT, 101), "{one}");
    for nodes in [2, 5, 20] {
        let all = time(nodes, 2_000);
        assert!(is_within(all, one, 105), "{nodes}: {all} {one}");
    }
}

#[test]
fn hypercube_takes_the_time_of_its_formula() {
    for (nodes, units) in [(15, 100), (31, 100), (63, 200), (20, 100), (50, 100)] {
        let setup = Setup::new(nodes, units, UNIT);
        let of = |nanoseconds: u128| u64::try_from(nanoseconds / 1000).expect("small");
        let link = setup.limits.link.clone();
        let cube = of(link.hypercube_nanoseconds(index(NodeId(nodes)), units));
        let chain = of(link.chain_nanoseconds(index(NodeId(nodes)), units));
        let all = time(nodes, units);
        assert!(is_within(all, cube, 120), "{nodes}: {all} {cube} {chain}");
    }
}

#[test]
fn killed_nodes_cost_the_others_little() {
    let healthy = time(20, 2_000);
    for (name, at) in [("early", 1), ("middle", 20), ("late", 36)] {
        for node in [1, 10, 20] {
            let dead = NodeId(node);
            let faults = [Fault::Kill(dead), Fault::PowerOff(dead)];
            for fault in faults {
                let setup = Setup::new(20, 2_000, UNIT);
                let (others, world) = time_of_others(setup, dead, |world| {
                    world.fault(at * SECOND, fault.clone());
                });
                assert!(
                    others <= healthy + SECOND,
                    "{name} {fault:?}: {others} {healthy}"
                );
                let outcome = world.planner.outcome(dead);
                assert_eq!(outcome, Some(&NodeOutcome::Failed(FailReason::Lost)));
            }
        }
    }
}

#[test]
fn dead_node_is_spliced_out_within_a_second() {
    let setup = Setup::new(20, 2_000, UNIT);
    let world = run(setup, |world| {
        world.fault(20 * SECOND, Fault::PowerOff(NodeId(7)))
    });
    let after = |id: NodeId| {
        let streams = world.expected[&id].iter().copied();
        streams
            .filter(|(at, _)| *at > 19 * SECOND)
            .collect::<Vec<_>>()
    };
    let [(at, from)] = after(NodeId(8))[..] else {
        panic!("{:?}", after(NodeId(8)));
    };
    assert_eq!(from, NodeId(6));
    assert!(at <= 21 * SECOND, "{at}");
    assert!(after(NodeId(9)).is_empty());
}

#[test]
fn neighbours_that_die_together_are_spliced_out() {
    let healthy = time(20, 2_000);
    let setup = Setup::new(20, 2_000, UNIT);
    let world = run(setup, |world| {
        for dead in [6, 7, 8] {
            world.fault(20 * SECOND, Fault::PowerOff(NodeId(dead)));
        }
    });
    let living = world.ids().filter(|id| !(6..=8).contains(&id.0));
    let others = world.full_at(living);
    assert!(others <= healthy + 2 * SECOND, "{others} {healthy}");
}

#[test]
fn slow_node_costs_the_others_little() {
    let healthy = time(20, 4_500);
    for node in [1, 2, 10, 19, 20] {
        for is_measured in [true, false] {
            for at in [0, 30] {
                let slow = NodeId(node);
                let mut setup = Setup::new(20, 4_500, UNIT);
                setup.limits.link.is_measured = is_measured;
                let (others, world) = time_of_others(setup, slow, |world| {
                    world.fault(at * SECOND, Fault::Slow(slow, 10));
                });
                let case = format!("{node} {is_measured} {at}");
                assert!(
                    is_within(others, healthy, 105),
                    "{case}: {others} {healthy}"
                );
                assert!(world.is_complete(slow), "{case}");
                assert!(
                    is_within(world.full_at([slow].into_iter()), healthy, 1150),
                    "{case}"
                );
            }
        }
    }
}

#[test]
fn hung_node_costs_the_others_little() {
    let healthy = time(20, 4_500);
    for node in [1, 10, 20] {
        let hung = NodeId(node);
        let (others, world) = time_of_others(Setup::new(20, 4_500, UNIT), hung, |world| {
            world.fault(30 * SECOND, Fault::Hang(hung));
        });
        assert!(
            is_within(others, healthy, 105),
            "{node}: {others} {healthy}"
        );
        let outcome = world.planner.outcome(hung);
        let expected = NodeOutcome::Failed(FailReason::NoProgress);
        assert_eq!(outcome, Some(&expected), "{node}");
    }
}

#[test]
fn hung_node_completes_after_it_resumes() {
    let hung = NodeId(5);
    let world = run(Setup::new(10, 2_000, UNIT), |world| {
        world.fault(10 * SECOND, Fault::Hang(hung));
        world.fault(25 * SECOND, Fault::Resume(hung));
    });
    assert!(world.is_complete(hung));
}

#[test]
fn slow_uplink_is_found_behind_its_receivers() {
    let healthy = time(20, 4_500);
    let (others, _) = time_of_others(Setup::new(20, 4_500, UNIT), NodeId(8), |world| {
        world.node(NodeId(8)).up *= 10;
    });
    assert!(is_within(others, healthy, 112), "{others} {healthy}");
}

#[test]
fn late_and_rebooted_nodes_fetch_what_they_lack() {
    let (late, rebooted) = (NodeId(9), NodeId(3));
    let mut world = Setup::new(10, 2_000, UNIT).world();
    world.fault(15 * SECOND, Fault::Join(late));
    world.fault(10 * SECOND, Fault::Kill(rebooted));
    world.fault(20 * SECOND, Fault::Boot(rebooted));
    world.start(&[late]);
    world.run(LIMIT);
    assert!(world.ids().all(|id| world.is_complete(id)));
    assert!(world.wasted <= 8, "{}", world.wasted);
    let others = world.ids().filter(|id| ![late, rebooted].contains(id));
    assert!(is_within(world.full_at(others), 2_000 * UNIT, 105));
}

#[test]
fn held_units_are_not_sent_again() {
    let world = run(Setup::new(20, 2_000, UNIT), |world| {
        for id in world.ids().collect::<Vec<_>>() {
            let gap = u64::from(id.0) * 3;
            let all = UnitSet::first(2_000);
            world.node(id).held = all.subtract(&UnitSet::range(500 + gap, 520 + gap));
        }
    });
    assert_eq!(world.wasted, 0);
    assert_eq!(world.received, 20 * 20);
    let all = world.full_at(world.ids());
    assert!(is_within(all, 2_000 * UNIT, 5), "{all}");
}

#[test]
fn source_may_vanish_after_one_full_copy() {
    let mut world = Setup::new(6, 500, UNIT).world();
    let late: Vec<NodeId> = (2..=6).map(NodeId).collect();
    for id in &late {
        world.fault(12 * SECOND, Fault::Join(*id));
    }
    world.fault(11 * SECOND, Fault::PowerOff(SOURCE));
    world.start(&late);
    world.run(LIMIT);
    assert!(world.ids().all(|id| world.is_complete(id)));
}

#[test]
fn nodes_complete_each_other_without_a_source() {
    let world = run(Setup::new(4, 400, UNIT), |world| {
        for at in 0..4 {
            let part = UnitSet::range(u64::from(at) * 100, u64::from(at) * 100 + 100);
            world.node(NodeId(at + 1)).held = part;
        }
        world.fault(50, Fault::Kill(SOURCE));
    });
    assert!(world.ids().all(|id| world.is_complete(id)));
    let all = world.full_at(world.ids());
    assert!(all <= 400 * UNIT * 2, "{all}");
}

#[test]
fn early_end_of_the_source_has_a_reason() {
    let world = run(Setup::new(5, 1_000, UNIT), |world| {
        world.fault(10 * SECOND, Fault::Kill(SOURCE));
    });
    let held = |id: NodeId| world.nodes[index(id)].held.len();
    for id in world.ids() {
        let outcome = world.planner.outcome(id);
        let is_unavailable = matches!(
            outcome,
            Some(NodeOutcome::Failed(FailReason::Unavailable { .. }))
        );
        assert!(is_unavailable, "{id}: {outcome:?}");
        // What is still in the cluster reaches every node.
        assert_eq!(held(id), held(NodeId(1)), "{id}");
    }
    assert!(world.now <= 20 * SECOND);
}

#[test]
fn returned_source_goes_on() {
    let world = run(Setup::new(5, 1_000, UNIT), |world| {
        world.fault(10 * SECOND, Fault::Kill(SOURCE));
        world.fault(13 * SECOND, Fault::Boot(SOURCE));
    });
    assert!(world.ids().all(|id| world.is_complete(id)));
    let all = world.full_at(world.ids());
    assert!(all <= 1_000 * UNIT + 6 * SECOND, "{all}");
}

#[test]
fn corrupter_is_quarantined_and_others_complete() {
    let healthy = time(10, 2_000);
    let liar = NodeId(4);
    let (others, world) = time_of_others(Setup::new(10, 2_000, UNIT), liar, |world| {
        world.node(liar).nature = Nature::Corrupter;
    });
    assert!(world.ids().all(|id| world.is_complete(id)));
    assert!(is_within(others, healthy, 105), "{others} {healthy}");
}

#[test]
fn lying_accuser_condemns_no_node() {
    for nature in [Nature::Accuser, Nature::Complainer, Nature::Mute] {
        let healthy = time(10, 3_000);
        let liar = NodeId(4);
        let (others, world) = time_of_others(Setup::new(10, 3_000, UNIT), liar, |world| {
            world.node(liar).nature = nature;
        });
        assert!(
            is_within(others, healthy, 107),
            "{nature:?}: {others} {healthy}"
        );
        for id in world.ids().filter(|id| *id != liar) {
            let status = world.planner.status(id).expect("a node");
            assert!(
                !status.is_quarantined && world.is_complete(id),
                "{nature:?} {id}"
            );
        }
    }
}

#[test]
fn orders_that_are_overtaken_cost_nothing() {
    let healthy = time(20, 1_000);
    let world = run(Setup::new(20, 1_000, UNIT), |world| {
        world.refuses_early = true
    });
    let all = world.full_at(world.ids());
    assert!(all <= healthy + SECOND, "{all} {healthy}");
    let status = world
        .ids()
        .map(|id| world.planner.status(id).expect("a node"));
    assert!(status.filter(|status| status.is_leaf).count() == 0);
}

#[test]
fn cut_link_is_routed_around() {
    let healthy = time(10, 2_000);
    for (one, other) in [(4, 5), (0, 1), (9, 10)] {
        let world = run(Setup::new(10, 2_000, UNIT), |world| {
            world.fault(10 * SECOND, Fault::CutLink(NodeId(one), NodeId(other)));
        });
        let all = world.full_at(world.ids());
        assert!(
            all <= healthy + 2 * SECOND,
            "{one} {other}: {all} {healthy}"
        );
    }
}

#[test]
fn failed_node_in_a_hypercube_costs_little() {
    let healthy = time(31, 100);
    for fault in [
        Fault::Kill(NodeId(8)),
        Fault::PowerOff(NodeId(8)),
        Fault::Slow(NodeId(8), 10),
    ] {
        let (others, _) = time_of_others(Setup::new(31, 100, UNIT), NodeId(8), |world| {
            world.fault(SECOND, fault.clone());
        });
        assert!(
            others <= healthy + 3 * SECOND,
            "{fault:?}: {others} {healthy}"
        );
    }
}

#[test]
fn absent_nodes_fail_after_a_limit() {
    let mut world = Setup::new(3, 100, UNIT).world();
    world.start(&[NodeId(2)]);
    world.run(LIMIT);
    let outcome = world.planner.outcome(NodeId(2));
    let expected = NodeOutcome::Failed(FailReason::NeverJoined);
    assert_eq!(outcome, Some(&expected));
    assert!(world.is_complete(NodeId(1)) && world.is_complete(NodeId(3)));
}

/// Returns a plan of two nodes, of which the first is complete and the second verifies what it holds.
fn plan_with_a_node_that_prepares() -> Planner {
    let names = ["n1".to_owned(), "n2".to_owned()];
    let data = DataSet {
        units: 5,
        root: world::ROOT,
    };
    let limits = PlanLimits::default();
    let plan = Planner::new(data, "head", &names, RackTopology::default(), limits);
    let mut plan = plan.expect("a plan");
    let (node, holds) = (NodeId(1), UnitSet::first(5));
    plan.handle(0, PlanEvent::Connected { node });
    plan.handle(0, PlanEvent::Connected { node: NodeId(2) });
    plan.handle(0, PlanEvent::Joined { node, holds });
    plan.handle(0, PlanEvent::Start);
    let root = world::ROOT;
    plan.handle(0, PlanEvent::Finished { node, root });
    plan
}

#[test]
fn node_that_verifies_is_waited_for() {
    let mut plan = plan_with_a_node_that_prepares();
    plan.handle(1_000_000, PlanEvent::Tick);
    assert_eq!(plan.outcome(NodeId(2)), None);
}

#[test]
fn node_lost_while_it_verifies_may_return() {
    let mut plan = plan_with_a_node_that_prepares();
    let node = NodeId(2);
    plan.handle(100_000, PlanEvent::Lost { node });
    plan.handle(159_000, PlanEvent::Tick);
    assert_eq!(plan.outcome(node), None);
    plan.handle(160_000, PlanEvent::Tick);
    let lost = NodeOutcome::Failed(FailReason::Lost);
    assert_eq!(plan.outcome(node), Some(&lost));
}

#[test]
fn full_disk_and_withdrawal_end_one_node() {
    let world = run(Setup::new(8, 1_000, UNIT), |world| {
        world.fault(5 * SECOND, Fault::DiskFull(NodeId(3)));
        world.fault(8 * SECOND, Fault::Leave(NodeId(5)));
    });
    let reason = FailReason::Reported("/scratch: no space left on device".to_owned());
    assert_eq!(
        world.planner.outcome(NodeId(3)),
        Some(&NodeOutcome::Failed(reason))
    );
    assert_eq!(world.planner.outcome(NodeId(5)), Some(&NodeOutcome::Left));
    let others = world.ids().filter(|id| ![3, 5].contains(&id.0));
    assert!(world.full_at(others) <= 1_000 * UNIT + 2 * SECOND);
}

#[test]
fn thousand_nodes_take_the_time_of_the_formula() {
    let world = run(Setup::new(1_000, 60, UNIT), |_| {});
    let link = Setup::new(1, 1, UNIT).limits.link;
    let cube = u64::try_from(link.hypercube_nanoseconds(1_000, 60) / 1000).expect("small");
    let all = world.full_at(world.ids());
    assert!(is_within(all, cube, 150), "{all} {cube}");
    assert_eq!(world.wasted, 0);
}

#[test]
fn hung_and_slow_neighbours_end() {
    let (hung, slow) = (NodeId(1), NodeId(2));
    let world = run(Setup::new(2, 1_000, UNIT), |world| {
        world.fault(5 * SECOND, Fault::Hang(hung));
        world.fault(0, Fault::Slow(slow, 15));
    });
    assert!(world.is_complete(slow));
    assert!(world.orders <= 100, "{}", world.orders);
}

#[test]
fn node_with_a_head_start_slows_no_other() {
    let mut world = Setup::new(8, 3_000, UNIT).world();
    world.node(NodeId(4)).held = UnitSet::range(800, 3_000);
    world.start(&[]);
    world.run(LIMIT);
    assert!(is_within(world.full_at(world.ids()), 3_000 * UNIT, 105));
    let status = world
        .ids()
        .map(|id| world.planner.status(id).expect("a node"));
    assert_eq!(status.map(|status| status.demotions).sum::<u32>(), 0);
}
