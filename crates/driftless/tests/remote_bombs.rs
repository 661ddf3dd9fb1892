//! Compressed data that are not what they say: bombs, other sizes, none at all; from an agent and
//! from a client.
#![allow(clippy::disallowed_methods)]

mod common;

use common::liar::{Liar, RESIDENT_KIB_MAX, Said, Stage, with_liar};
use common::victim::{COMPRESSED, Victim, name, resident_kib};
use driftless_remote::wire::{Reply, Request};
use std::fs;

/// Compressed data that claim so many bytes.
fn compressed(said: usize, data: &[u8]) -> Vec<u8> {
    [
        &(said as u32).to_le_bytes(),
        &zstd::bulk::compress(data, 1).expect("memory")[..],
    ]
    .concat()
}

/// Compressed data that are not what they say: too much, too little, too large, none at all.
fn wrongly_compressed() -> Vec<(&'static str, Vec<u8>)> {
    let whole = compressed(1000, &[5; 1000]);
    vec![
        ("a bomb", compressed(1000, &vec![0; 256 << 20])),
        (
            "more than a frame may have",
            compressed((4 << 20) + 1, &vec![0; (4 << 20) + 1]),
        ),
        ("4 GiB", compressed(u32::MAX as usize, &[5; 1000])),
        ("less than was said", compressed(1001, &[5; 1000])),
        ("more than was said", compressed(999, &[5; 1000])),
        ("half of it", whole[..whole.len() / 2].to_vec()),
        ("no size", vec![1, 0]),
        ("nothing", Vec::new()),
        ("no zstd", [&1000u32.to_le_bytes()[..], &[7; 500]].concat()),
    ]
}

#[test]
fn compressed_data_of_a_client_are_refused_unless_they_are_right() {
    let stage = Stage::new();
    let mut victim = Victim::with(&["agent", "--compress=1"]).serving(&stage.dst);
    assert!(matches!(
        victim.ask(&Request::Create {
            dir: 1,
            name: name("new"),
            mode: 0o644,
            at: 2
        }),
        Reply::Meta(_)
    ));
    for (what, data) in wrongly_compressed() {
        victim.send_compressed(&Request::Write { file: 2, offset: 0 }, data);
        let reply = victim.hear();
        assert!(matches!(reply, Reply::Fault(_)), "{what}: {reply:?}");
        assert_eq!(
            fs::metadata(stage.dst.join("new"))
                .expect("it was made")
                .len(),
            0,
            "{what}"
        );
    }
    victim.send_compressed(
        &Request::Write { file: 2, offset: 0 },
        compressed(1000, &[5; 1000]),
    );
    assert!(matches!(victim.hear(), Reply::Done));
    assert_eq!(fs::read(stage.dst.join("new")).expect("written"), [5; 1000]);
    let resident = resident_kib(victim.agent.id());
    assert!(resident < RESIDENT_KIB_MAX, "{resident} KiB");
    assert_eq!(victim.part("compressed data").0, 0);
}

#[test]
fn compressed_data_that_wait_take_no_more_memory_than_crossed_the_line() {
    let stage = Stage::new();
    let mut victim = Victim::with(&["agent", "--compress=1"]).serving(&stage.dst);
    // What is to be made in itself is never made, and what is about it waits.
    victim.send(
        &Request::MakeDir {
            dir: 10,
            name: name("x"),
            at: 10,
        },
        Vec::new(),
    );
    let bomb = compressed(4 << 20, &vec![0; 4 << 20]);
    for _ in 0..2000 {
        victim.send_compressed(
            &Request::Write {
                file: 10,
                offset: 0,
            },
            bomb.clone(),
        );
    }
    assert!(
        matches!(victim.ask(&Request::Meta { at: 1 }), Reply::Meta(_)),
        "all was read"
    );
    let resident = resident_kib(victim.agent.id());
    println!("an agent with 8 GiB in compressed requests: {resident} KiB");
    assert!(resident < RESIDENT_KIB_MAX, "{resident} KiB");
    let _ = victim.part("compressed requests that wait");
}

#[test]
fn compressed_data_that_nobody_asked_for_end_the_line() {
    let stage = Stage::new();
    let mut victim = Victim::of(&stage.dst);
    victim.send_compressed(
        &Request::Write { file: 2, offset: 0 },
        compressed(1000, &[5; 1000]),
    );
    let (code, words) = victim.part("compressed data");
    assert!(
        code == 1 && words.contains("without a request"),
        "{code}: {words}"
    );
    let lie = |mut said: Said<'_>| {
        // Far into the run, which then says why the line was lost.
        if matches!(said.request, Request::Fetch { .. }) {
            said.number |= COMPRESSED;
        }
        said.unchanged()
    };
    let (_, outcome) = with_liar(true, "compressed data", Box::new(lie));
    assert_eq!(outcome.code(), 1, "{}", outcome.describe());
    assert!(
        outcome.stderr_text().contains("without a request"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn compressed_data_of_an_agent_are_problems_unless_they_are_right() {
    for (what, data) in wrongly_compressed() {
        let stage = Stage::new();
        let beside = stage.beside();
        let wrong = data.clone();
        let liar = Liar::new(Box::new(move |mut said| {
            if matches!(said.request, Request::Fetch { .. }) {
                (said.number, said.data) = (said.number | COMPRESSED, wrong.clone());
            }
            said.unchanged()
        }));
        let outcome = liar.run("sync", stage.ends(true), &["--compress"]);
        // More than was asked for ends the line, before any of it is opened.
        let code = if ["more than a frame may have", "4 GiB"].contains(&what) {
            1
        } else {
            3
        };
        assert_eq!(outcome.code(), code, "{what}\n{}", outcome.describe());
        assert!(
            !stage.dst.join("a").exists() && !stage.dst.join("sub/b").exists(),
            "{what}: it was made of nonsense"
        );
        assert_eq!(stage.beside(), beside, "{what}");
        let text = outcome.stderr_text();
        let resident = text
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("resident ")?.trim().parse::<u64>().ok());
        assert!(
            resident.expect("how much memory it took") < RESIDENT_KIB_MAX,
            "{what}: memory\n{}",
            outcome.describe()
        );
    }
}
