//! Clients whose calls make no sense, have no end, or never stop to hear an answer.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::agent;
use common::liar::{END_MAX, RESIDENT_KIB_MAX, Stage};
use common::victim::{Victim, name, resident_kib, roots};
use common::{driftless, put};
use driftless_model::{Keep, Side};
use driftless_remote::wire::{Frame, Locked, Name, Opening, ROOTS_MAX, Reply, Request, Survey};
use driftless_testkit::{Profile, build_tree, mutate};
use driftless_tree::Reach;
use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::time::{Duration, Instant};

#[test]
fn an_agent_that_hears_nonsense_ends_with_an_error() {
    let mut rng = fastrand::Rng::with_seed(3);
    let random: Vec<u8> = (0..100_000).map(|_| rng.u8(..)).collect();
    let mut cut_off = Vec::new();
    Frame::new(2, &Request::Meta { at: 1 }, vec![0; 5000])
        .write(&mut cut_off)
        .expect("memory");
    cut_off.truncate(3000);
    let text = b"GET / HTTP/1.1\r\nHost: far\r\n\r\n".to_vec();
    let no_request = [8u32.to_le_bytes(), 0u32.to_le_bytes(), [0; 4], [0; 4]].concat();
    let cases = [
        ("text", text),
        ("random bytes", random),
        ("lengths of 4 GiB", vec![0xff; 8]),
        ("a head of 4 GiB", [[0xff; 4], [0; 4]].concat()),
        ("data of 4 GiB", [[9, 0, 0, 0], [0xff; 4]].concat()),
        ("no head", vec![0; 8]),
        ("no request", no_request),
        ("half a frame", cut_off),
    ];
    let stage = Stage::new();
    let check = |mut victim: Victim, what: &str, bytes: &[u8]| {
        victim.say(bytes);
        let (code, words) = victim.part(what);
        assert_eq!(code, 1, "{what}: {words}");
        assert!(
            words.starts_with("driftless agent: ") && words.trim().lines().count() == 1,
            "{what}: {words}"
        );
    };
    for (what, bytes) in cases {
        check(Victim::new(), &format!("{what}, at first"), &bytes);
        check(
            Victim::of(&stage.dst),
            &format!("{what}, behind a root"),
            &bytes,
        );
    }
    let mut too_many = Vec::new();
    let opening = roots(&[&*stage.dst; ROOTS_MAX + 1], Side::Replica);
    Frame::new(0, &opening, Vec::new())
        .write(&mut too_many)
        .expect("memory");
    check(Victim::new(), "too many roots", &too_many);
    assert_eq!(Victim::new().part("a client that goes at once").0, 0);
    assert_eq!(
        Victim::letting_in(&[&stage.dst], Side::Replica)
            .part("a client that only names its root")
            .0,
        0
    );
}

#[test]
fn objects_that_are_not_there_or_of_another_kind_are_faults() {
    let stage = Stage::new();
    put(&stage.dst.join("file"), "content");
    let mut victim = Victim::of(&stage.dst);
    assert!(matches!(
        victim.ask(&Request::Open {
            dir: 1,
            name: name("file"),
            at: 2
        }),
        Reply::Meta(_)
    ));
    assert!(matches!(
        victim.ask(&Request::Lock {
            dir: 1,
            name: None,
            reach: Reach::Everywhere,
            at: 3
        }),
        Reply::Lock(Locked::Held)
    ));
    let survey = Survey {
        keep: Keep::default(),
        files: true,
        entries_max: u32::MAX,
    };
    for at in [2, 3, 77, u64::MAX] {
        let as_directory = [
            Request::List { dir: at, survey },
            Request::Look {
                dir: at,
                name: name("x"),
            },
            Request::MakeDir {
                dir: at,
                name: name("x"),
                at: 1000 + at % 100,
            },
            Request::Rename {
                dir: at,
                from: name("x"),
                to: name("y"),
            },
            Request::RemoveTree {
                dir: at,
                name: name("x"),
                spared: None,
            },
            Request::SyncAll { dir: at },
            Request::Link {
                dir: at,
                name: name("x"),
                from: 1,
                from_name: name("file"),
                id: (1, 2),
            },
            Request::Link {
                dir: 1,
                name: name("x"),
                from: at,
                from_name: name("file"),
                id: (1, 2),
            },
        ];
        for request in as_directory {
            assert!(
                matches!(victim.ask(&request), Reply::Fault(_)),
                "{request:?}"
            );
        }
    }
    for at in [1, 3, 77] {
        for request in [
            Request::Read {
                file: at,
                offset: 0,
                len: 1,
            },
            Request::SetLen { file: at, len: 1 },
            Request::Progress { file: at },
        ] {
            assert!(
                matches!(victim.ask(&request), Reply::Fault(_)),
                "{request:?}"
            );
        }
    }
    let strange = [
        Request::Read {
            file: 2,
            offset: 0,
            len: u32::MAX,
        },
        Request::Read {
            file: 2,
            offset: u64::MAX,
            len: 100,
        },
        Request::SetLen { file: 2, len: 0 },
        Request::Write { file: 2, offset: 0 },
        Request::SaveProgress {
            file: 2,
            note: None,
        },
        Request::Allocate {
            file: 2,
            range: std::ops::Range { start: 5, end: 1 },
        },
    ];
    for request in strange {
        let reply = victim.ask(&request);
        assert!(
            matches!(reply, Reply::Fault(_)),
            "a file that is only read: {request:?}: {reply:?}"
        );
    }
    let entries = victim.ask(&Request::List { dir: 1, survey });
    assert!(
        matches!(&entries, Reply::Listing(listing) if listing.told.len() == 2),
        "{entries:?}"
    );
    assert_eq!(fs::read(stage.dst.join("file")).expect("read"), b"content");
    assert_eq!(victim.part("strange objects").0, 0);
}

#[test]
fn ranges_without_end_do_not_crash_an_agent() {
    let stage = Stage::new();
    let mut victim = Victim::of(&stage.dst);
    assert!(matches!(
        victim.ask(&Request::Create {
            dir: 1,
            name: name("new"),
            mode: 0o600,
            at: 2
        }),
        Reply::Meta(_)
    ));
    let all = [
        Request::NextData {
            file: 2,
            within: std::ops::Range {
                start: u64::MAX,
                end: 0,
            },
        },
        Request::NextData {
            file: 2,
            within: 0..u64::MAX,
        },
        Request::NextData {
            file: 2,
            within: u64::MAX - 1..u64::MAX,
        },
        Request::Allocate {
            file: 2,
            range: 0..u64::MAX,
        },
        Request::Allocate {
            file: 2,
            range: u64::MAX - 1..u64::MAX,
        },
        Request::SetLen {
            file: 2,
            len: u64::MAX,
        },
        Request::Write {
            file: 2,
            offset: u64::MAX,
        },
        Request::Read {
            file: 2,
            offset: u64::MAX - 1,
            len: 4 << 20,
        },
        Request::CountTree {
            dir: 1,
            name: name("sub"),
            max: 0,
            spared: None,
            is_wary: false,
        },
        Request::SaveProgress {
            file: 2,
            note: Some(vec![b'x'; 1 << 20]),
        },
        Request::Symlink {
            dir: 1,
            name: name("l"),
            target: CString::new(vec![b'x'; 100_000]).expect("no NUL"),
        },
        Request::Look {
            dir: 1,
            name: Name(CString::new(vec![b'x'; 100_000]).expect("no NUL")),
        },
    ];
    for request in all {
        let _whatever = victim.ask_with(&request, vec![1; 100]);
    }
    assert!(
        matches!(victim.ask(&Request::Meta { at: 1 }), Reply::Meta(_)),
        "it still works"
    );
    assert_eq!(victim.part("ranges").0, 0);
}

#[test]
fn a_number_that_is_given_twice_ends_the_line() {
    let stage = Stage::new();
    let mut victim = Victim::of(&stage.dst);
    victim.send(
        &Request::MakeDir {
            dir: 1,
            name: name("x"),
            at: 1,
        },
        Vec::new(),
    );
    assert_eq!(victim.part("a number twice").0, 1);
    assert!(!stage.dst.join("x").exists());
}

#[test]
fn an_agent_ends_with_its_client_whatever_still_waits() {
    let stage = Stage::new();
    // An object that would be made in itself is waited for in vain, however often.
    for count in [1, 1000, 40_000u64] {
        let victim = Victim::of(&stage.dst);
        let mut bytes = Vec::new();
        for index in 0..count {
            let at = 10 + index;
            Frame::new(
                100 + index,
                &Request::MakeDir {
                    dir: at,
                    name: name("x"),
                    at,
                },
                Vec::new(),
            )
            .write(&mut bytes)
            .expect("memory");
        }
        let _ = victim.part_with(bytes, &format!("{count} objects that wait for themselves"));
    }
}

#[test]
fn a_client_that_never_listens_does_not_keep_an_agent() {
    let stage = Stage::new();
    let mut victim = Victim::of(&stage.src);
    assert!(matches!(
        victim.ask(&Request::Open {
            dir: 1,
            name: name("large"),
            at: 2
        }),
        Reply::Meta(_)
    ));
    for _ in 0..2000 {
        victim.send(
            &Request::Read {
                file: 2,
                offset: 0,
                len: 1 << 20,
            },
            Vec::new(),
        );
    }
    let Victim {
        mut agent,
        to,
        from,
        ..
    } = victim;
    // It has begun to answer when something is there to read.
    let mut from = from;
    from.read_exact(&mut [0]).expect("a byte");
    let since = Instant::now();
    let (mut last, mut calm) = (0, 0);
    while calm < 50 && since.elapsed() < END_MAX {
        let now = resident_kib(agent.id());
        calm = if now == last { calm + 1 } else { 0 };
        last = now;
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("an agent whose client does not listen: {last} KiB");
    drop((to, from));
    common::wait_until("the agent has ended", || {
        agent.try_wait().expect("wait").is_some()
    });
    assert!(last < RESIDENT_KIB_MAX, "{last} KiB wait to be read");
}

#[test]
fn flipped_bits_of_a_client_do_no_harm() {
    // A whole conversation as a client has it, replayed with bits turned over behind the names of
    // the roots.
    let recorded = record();
    let (mut count, last) = (0, recorded.len());
    for seed in 0..40 {
        let stage = Stage::new();
        let beside = stage.beside();
        let mut rng = fastrand::Rng::with_seed(seed);
        let victim = Victim::of(&stage.dst);
        let mut bytes = Vec::new();
        for frame in recorded.iter().take(rng.usize(1..=last)) {
            let mut head = frame.0.clone();
            if rng.u32(0..6) == 0 {
                let at = rng.usize(8..head.len());
                head[at] ^= 1 << rng.u8(0..8);
                count += 1;
            }
            let flipped = Frame {
                head,
                data: frame.1.clone(),
            };
            flipped.write(&mut bytes).expect("memory");
        }
        let _ = victim.part_with(bytes, &format!("seed {seed}"));
        assert_eq!(stage.beside(), beside, "seed {seed}");
    }
    assert!(count > 60, "the test has lost its grip");
}

/// What a client says in a push: heads and data of all requests behind those about the root, which
/// has the number 1.
fn record() -> Vec<(Vec<u8>, Vec<u8>)> {
    let stage = Stage::new();
    fs::remove_file(stage.src.join("large")).expect("remove");
    build_tree(
        &stage.scratch.dir("more"),
        5,
        &Profile {
            entries: 60,
            ..Profile::small()
        },
    );
    fs::rename(stage.scratch.path().join("more"), stage.src.join("more")).expect("rename");
    mutate(&stage.src, 6, 10);
    let scratch = tempfile::tempdir().expect("temp folder");
    let (script, record) = (
        scratch.path().join("connect"),
        scratch.path().join("record"),
    );
    driftless_testkit::write_program(
        &script,
        &format!("#!/bin/sh\ntee {} | {} agent\n", record.display(), agent()),
    );
    let outcome = driftless()
        .args(["sync", "--streams=1", "--ssh"])
        .arg(&script)
        .args(stage.ends(false))
        .run()
        .expect(0);
    let bytes = fs::read(&record).expect("the record");
    let mut from = &bytes[..];
    let mut heard = Vec::new();
    let opening = Opening::read(&mut from)
        .expect("frames")
        .expect("the first says which roots");
    assert_eq!(opening.roots.len(), 1);
    while let Some(frame) = Frame::read(&mut from).expect("frames") {
        heard.push((frame.head, frame.data));
    }
    assert!(heard.len() > 50, "{}", outcome.describe());
    heard
}
