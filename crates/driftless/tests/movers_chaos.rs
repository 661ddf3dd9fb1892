//! Runs that several movers share go on to their end whatever happens to a mover, its link, the
//! broker or the coordinator.
//!
//! Each kind of accident has a broker and hosts of its own, which its cases use one after the
//! other. A failure names the seed. `DRIFTLESS_SEEDS` sets the number of cases of each kind.
#![allow(clippy::disallowed_methods)]

mod common;

use common::chaos::{Case, run_cases};
use rustix::process::Signal;
use std::time::Duration;

/// What a broker needs to miss the heartbeats of a mover (three times five seconds), and some.
const MISSED: Duration = Duration::from_secs(22);

fn stop_and_continue(case: &mut Case<'_>, milliseconds: std::ops::Range<u64>) {
    let mover = case.any_mover();
    case.signal_mover(mover, Signal::STOP);
    case.pass_some(milliseconds);
    case.signal_mover(mover, Signal::CONT);
}

#[test]
#[ignore = "make test runs these by themselves, more of them at a time: they mostly wait"]
fn movers_are_killed() {
    run_cases("movers_are_killed", 4, |case| {
        let (mover, starts_another) = (case.any_mover(), case.rng.bool());
        case.kill_mover(mover);
        if case.rng.u8(0..3) == 0 {
            let other = (mover + 1) % 3;
            case.pass_some(0..800);
            case.kill_mover(other);
        }
        if starts_another {
            case.pass_some(0..500);
            case.start_mover(mover);
        }
    });
}

#[test]
#[ignore = "make test runs these by themselves, more of them at a time: they mostly wait"]
fn movers_are_stopped_for_a_while() {
    run_cases("movers_are_stopped_for_a_while", 4, |case| {
        stop_and_continue(case, 50..2500)
    });
}

/// The broker gives the batch of a mover that is silent to another one, and then the first goes on.
#[test]
#[ignore = "make test runs these by themselves, more of them at a time: they mostly wait"]
fn movers_are_stopped_for_long() {
    run_cases("movers_are_stopped_for_long", 2, |case| {
        case.twice = true;
        let mover = case.any_mover();
        case.signal_mover(mover, Signal::STOP);
        case.pass_silence(MISSED);
        // Else it sleeps until all is done without it.
        if case.rng.bool() {
            case.pass_some(0..1500);
            case.signal_mover(mover, Signal::CONT);
        }
    });
}

#[test]
#[ignore = "make test runs these by themselves, more of them at a time: they mostly wait"]
fn connections_are_closed_while_a_mover_is_stopped() {
    run_cases(
        "connections_are_closed_while_a_mover_is_stopped",
        4,
        |case| {
            case.twice = true;
            let mover = case.any_mover();
            case.signal_mover(mover, Signal::STOP);
            case.site.rabbit().close_connections();
            if case.rng.bool() {
                case.pass_some(0..1500);
                case.signal_mover(mover, Signal::CONT);
            }
        },
    );
}

#[test]
#[ignore = "make test runs these by themselves, more of them at a time: they mostly wait"]
fn links_are_down_for_a_while() {
    run_cases("links_are_down_for_a_while", 4, |case| {
        let mover = case.any_mover();
        case.site.host(mover).link_down();
        case.pass_some(100..3000);
        case.site.host(mover).link_up();
    });
}

#[test]
#[ignore = "make test runs these by themselves, more of them at a time: they mostly wait"]
fn links_are_down_for_long() {
    run_cases("links_are_down_for_long", 1, |case| {
        case.twice = true;
        let mover = case.any_mover();
        case.site.host(mover).link_down();
        case.pass_silence(MISSED);
        case.pass_some(0..1500);
        case.site.host(mover).link_up();
    });
}

#[test]
#[ignore = "make test runs these by themselves, more of them at a time: they mostly wait"]
fn coordinators_are_killed() {
    run_cases("coordinators_are_killed", 4, |case| {
        for _ in 0..case.rng.u8(1..3) {
            case.kill_coordinator();
            std::thread::sleep(Duration::from_millis(case.rng.u64(0..1500)));
            case.start_coordinator();
            case.pass_some(0..4000);
        }
    });
}

/// Its movers drop what they have in hand when it is away for long, and go on when it is there
/// again.
#[test]
#[ignore = "make test runs these by themselves, more of them at a time: they mostly wait"]
fn coordinators_are_cut_off() {
    run_cases("coordinators_are_cut_off", 4, |case| {
        case.twice = true;
        case.site.desk().link_down();
        if case.rng.u8(0..3) == 0 {
            case.pass_silence(MISSED);
        }
        case.pass_some(100..3000);
        case.site.desk().link_up();
    });
}

#[test]
#[ignore = "make test runs these by themselves, more of them at a time: they mostly wait"]
fn brokers_are_restarted() {
    run_cases("brokers_are_restarted", 4, |case| {
        let mut rabbit = case.site.rabbit();
        if case.rng.bool() {
            rabbit.restart();
        } else {
            rabbit.settle_declarations();
            rabbit.crash();
        }
    });
}

#[test]
#[ignore = "make test runs these by themselves, more of them at a time: they mostly wait"]
fn brokers_run_out_of_memory() {
    run_cases("brokers_run_out_of_memory", 4, |case| {
        case.site.rabbit().memory_alarm(true);
        std::thread::sleep(Duration::from_millis(case.rng.u64(0..4000)));
        case.site.rabbit().memory_alarm(false);
    });
}

#[test]
#[ignore = "make test runs these by themselves, more of them at a time: they mostly wait"]
fn two_things_happen() {
    run_cases("two_things_happen", 4, |case| {
        let mover = case.any_mover();
        match case.rng.u8(0..6) {
            0 => {
                case.kill_mover(mover);
                case.kill_coordinator();
                case.start_coordinator();
            }
            1 => {
                case.signal_mover(mover, Signal::STOP);
                case.kill_coordinator();
                case.start_coordinator();
                case.pass_some(0..4500);
                case.signal_mover(mover, Signal::CONT);
            }
            2 => {
                case.site.host(mover).link_down();
                case.kill_mover((mover + 1) % 3);
                case.pass_some(0..3000);
                case.site.host(mover).link_up();
            }
            3 => {
                case.site.rabbit().memory_alarm(true);
                case.kill_mover(mover);
                case.start_mover(mover);
                case.site.rabbit().memory_alarm(false);
            }
            4 => {
                case.site.rabbit().memory_alarm(true);
                case.kill_coordinator();
                case.site.rabbit().memory_alarm(false);
                case.start_coordinator();
            }
            _ => {
                case.kill_mover(mover);
                case.site.rabbit().restart();
                case.start_mover(mover);
            }
        }
    });
}
