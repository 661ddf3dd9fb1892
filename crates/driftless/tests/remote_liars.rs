//! Agents that lie to a client.
//!
//! A liar is a real agent whose words are changed on their way. Whatever it says, a run ends soon,
//! with a code that tells the truth or with an error, never with a bug, and touches nothing outside
//! of its roots.
#![allow(clippy::disallowed_methods)]

mod common;

use common::liar::{END_MAX, Liar, Lie, Said, Stage, Told, about_listings, answering, with_liar};
use common::victim::name;
use common::{driftless, is_temp, put};
use driftless_model::{Act, Kind, Meta, Xattrs};
use driftless_remote::wire::{Frame, Locked, Own, Reply, Request, WireFault};
use driftless_testkit::mutate::list_all;
use driftless_testkit::{Options, compare};
use std::ffi::CString;
use std::fs;
use std::path::Path;

const FLIPPED_SEEDS: u64 = 16;

#[test]
fn names_that_lead_out_of_a_directory_are_refused() {
    for pull in [true, false] {
        for bad in [
            "../escaped",
            "../outside/victim",
            "/tmp/driftless-escaped",
            "..",
            ".",
            "",
            "a/b",
            "sub/../../escaped",
        ] {
            let lie = about_listings(move |listing| {
                if let Some(first) = listing.told.first_mut() {
                    first.name = name(bad);
                }
            });
            let (stage, outcome) =
                with_liar(pull, &format!("the name \"{bad}\", pull {pull}"), lie);
            // An empty replica has no listing to lie in, but this one has an entry.
            assert_ne!(
                outcome.code(),
                0,
                "\"{bad}\" was believed\n{}",
                outcome.describe()
            );
            assert!(
                !stage.dst.join("escaped").exists()
                    && !Path::new("/tmp/driftless-escaped").exists()
            );
        }
    }
}

#[test]
fn listings_that_say_nothing_for_ever_end() {
    for pull in [true, false] {
        let lie = about_listings(|listing| {
            listing.told.clear();
            listing.more = true;
        });
        let (_stage, outcome) = with_liar(pull, &format!("empty listings, pull {pull}"), lie);
        assert_ne!(outcome.code(), 0, "{}", outcome.describe());
    }
}

#[test]
fn a_name_that_is_told_twice_or_as_two_kinds_leads_nowhere() {
    for (first, second) in [
        (Kind::Symlink, Kind::Dir),
        (Kind::Dir, Kind::Symlink),
        (Kind::File, Kind::Dir),
        (Kind::Dir, Kind::File),
    ] {
        // A link to the outside, and then a directory of the same name with files in it.
        let target = CString::new("../outside").expect("no NUL");
        let lie = about_listings(move |listing| {
            let Some(at) = listing
                .told
                .iter()
                .position(|told| told.name == name("sub"))
            else {
                return;
            };
            let link = listing
                .told
                .iter()
                .find(|told| told.name == name("link"))
                .cloned();
            let as_kind = |kind: Kind| {
                let mut told = listing.told[at].clone();
                if let (Kind::Symlink, Some(link)) = (kind, &link) {
                    told.entry = link.entry.clone();
                    told.target = Some(target.clone());
                }
                told.kind = Some(kind);
                told
            };
            let both = [as_kind(first), as_kind(second)];
            listing.told.remove(at);
            listing.told.extend(both);
        });
        let (stage, outcome) = with_liar(true, &format!("{first:?} and {second:?}"), lie);
        assert!(!stage.outside.join("b").exists(), "{}", outcome.describe());
    }
}

#[test]
fn a_directory_that_is_a_link_on_the_other_side_is_told() {
    // The liar says that a link is a directory, and enters for it another.
    let stage = Stage::new();
    fs::remove_file(stage.src.join("link")).expect("remove");
    std::os::unix::fs::symlink("../outside", stage.src.join("link")).expect("symlink");
    let lie = about_listings(|listing| {
        for told in listing
            .told
            .iter_mut()
            .filter(|told| told.name == name("link"))
        {
            (told.kind, told.entry, told.target) = (Some(Kind::Dir), None, None);
        }
    });
    let beside = stage.beside();
    let outcome = Liar::new(lie).run("sync", stage.ends(true), &["--json"]);
    assert_ne!(outcome.code(), 0, "{}", outcome.describe());
    assert!(
        !stage.dst.join("link/victim").exists(),
        "the agent followed a link\n{}",
        outcome.describe()
    );
    assert_eq!(stage.beside(), beside);
}

/// Replaces every reply of some kind by another.
/// As strange as metadata may be.
fn strange_meta() -> Meta {
    let stamp = driftless_model::Stamp {
        sec: i64::MIN,
        nsec: 999_999_999,
    };
    Meta {
        kind: Kind::File,
        mode: 0o7777,
        uid: u32::MAX - 1,
        gid: u32::MAX - 1,
        size: i64::MAX as u64,
        blocks: u64::MAX / 512,
        mtime: stamp,
        atime: stamp,
        ctime: stamp,
        nlink: u64::MAX,
        dev: u64::MAX,
        ino: u64::MAX,
        rdev: u64::MAX,
        unkept: driftless_model::Unkept::NONE,
    }
}

fn is_about_roots(request: &Request) -> bool {
    matches!(
        request,
        Request::Locate { .. }
            | Request::Lock { .. }
            | Request::Marks { .. }
            | Request::Lineage { .. }
            | Request::Birthmark { .. }
    )
}

#[test]
fn answers_to_other_questions_end_in_errors() {
    type Answers = (&'static str, fn() -> Reply);
    let answers: [Answers; 12] = [
        ("done", || Reply::Done),
        ("held", || Reply::Lock(Locked::Held)),
        ("no range", || Reply::Range(None)),
        ("a range that ends before it begins", || {
            Reply::Range(Some(std::ops::Range {
                start: u64::MAX,
                end: 0,
            }))
        }),
        ("all there is", || Reply::Range(Some(0..u64::MAX))),
        ("many", || Reply::Count(u64::MAX)),
        ("nothing above", || Reply::Lineage(Vec::new())),
        ("strange metadata", || Reply::Meta(strange_meta())),
        ("a directory unlike any", || {
            Reply::Entered(
                Own {
                    meta: strange_meta(),
                    is_mount_root: None,
                    xattrs: None,
                    is_marked: true,
                    is_unfinished: true,
                },
                None,
            )
        }),
        ("a file without its content", || {
            Reply::Whole(Some((
                driftless_model::Entry {
                    meta: strange_meta(),
                    xattrs: driftless_model::Xattrs::default(),
                },
                Vec::new(),
            )))
        }),
        ("an error that there is none", || {
            Reply::Fault(WireFault::new(Act::Read, 0))
        }),
        ("an error below all", || {
            Reply::Fault(WireFault::new(Act::ReachAgent, i32::MIN))
        }),
    ];
    for pull in [true, false] {
        for (what, answer) in answers {
            for (when, which) in [
                ("always", (|_| true) as fn(&Request) -> bool),
                ("but for the roots", |request| !is_about_roots(request)),
            ] {
                let (_stage, outcome) = with_liar(
                    pull,
                    &format!("{what}, {when}, pull {pull}"),
                    answering(answer, which),
                );
                assert_ne!(
                    outcome.code(),
                    0,
                    "{what}, {when}, pull {pull}\n{}",
                    outcome.describe()
                );
                assert!(
                    !outcome.stderr.contains(&0x1b),
                    "what an agent says reaches the terminal as it came\n{}",
                    outcome.describe()
                );
            }
        }
    }
}

#[test]
fn content_that_does_not_fit_is_not_published() {
    type Change = (&'static str, fn(&mut Said<'_>));
    let changes: [Change; 6] = [
        ("a file one byte short", |said| {
            if matches!(said.reply, Reply::Whole(_)) {
                said.data.pop();
            }
        }),
        ("a file one byte long", |said| {
            if matches!(said.reply, Reply::Whole(_)) {
                said.data.push(0);
            }
        }),
        ("data beyond the end", |said| {
            if let Reply::Whole(Some((_, extents))) = &mut said.reply {
                *extents = std::iter::once(0..u64::MAX).collect();
            }
        }),
        ("more than was asked for", |said| {
            if matches!(said.request, Request::Read { .. }) {
                said.data.extend([9; 5000]);
            }
        }),
        ("less than was asked for", |said| {
            if matches!(said.request, Request::Read { .. }) {
                said.data.truncate(said.data.len() / 2);
            }
        }),
        ("nothing where something is", |said| {
            if matches!(said.request, Request::Read { .. }) {
                said.data.clear();
            }
        }),
    ];
    for (what, change) in changes {
        let lie: Lie = Box::new(move |mut said: Said<'_>| {
            change(&mut said);
            said.unchanged()
        });
        let (stage, outcome) = with_liar(true, what, lie);
        // What was fetched in vain may be read in another way.
        assert_eq!(
            outcome.code() == 0,
            compare(&stage.src, &stage.dst, &Options::default()).is_empty(),
            "{what}\n{}",
            outcome.describe()
        );
        for path in list_all(&stage.dst)
            .expect("list")
            .into_iter()
            .filter(|path| path.is_file() && !is_temp(path))
        {
            let original = stage
                .src
                .join(path.strip_prefix(&stage.dst).expect("below"));
            if original.exists() {
                assert!(
                    fs::read(&path).expect("read") == fs::read(original).expect("read"),
                    "{what}: {} is torn",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn attributes_without_measure_do_not_harm() {
    let many: Xattrs = (0..3000)
        .map(|index| {
            (
                format!("user.{index:05}").into_bytes().into(),
                vec![b'x'; 1000].into(),
            )
        })
        .collect();
    let huge: Xattrs = vec![(b"user.huge".to_vec().into(), vec![b'x'; 10 << 20].into())].into();
    let other: Xattrs = [
        "security.selinux",
        "system.posix_acl_access",
        "trusted.overlay.opaque",
        "",
        "\0",
        "no-prefix",
        "user.\0x",
    ]
    .map(|name| {
        (
            name.as_bytes().into(),
            b"\x02\0\0\0garbage".as_slice().into(),
        )
    })
    .into_iter()
    .collect();
    for (what, xattrs) in [("many", many), ("huge", huge), ("not ours to set", other)] {
        let lie: Lie = Box::new(move |mut said: Said<'_>| {
            match &mut said.reply {
                Reply::Whole(Some((entry, _))) => entry.xattrs = xattrs.clone(),
                Reply::Xattrs(told) => *told = xattrs.clone(),
                Reply::Entered(own, _) => own.xattrs = Some(xattrs.clone()),
                _ => {}
            }
            said.unchanged()
        });
        let (stage, outcome) = with_liar(true, what, lie);
        let selinux =
            driftless_testkit::attrs::get_xattr(&stage.dst.join("a"), b"security.selinux")
                .ok()
                .flatten();
        assert_eq!(selinux, None, "{what}\n{}", outcome.describe());
        let overlay =
            driftless_testkit::attrs::get_xattr(&stage.dst.join("sub"), b"trusted.overlay.opaque")
                .ok()
                .flatten();
        println!("{what}: code {}, overlay {overlay:?}", outcome.code());
    }
}

#[test]
fn frames_that_are_none_end_the_line() {
    type Noise = (&'static str, fn(u64) -> Told);
    let noises: [Noise; 7] = [
        ("lengths of 4 GiB", |_| Told::Bytes(vec![0xff; 64])),
        ("a head of 4 GiB", |_| {
            Told::Bytes([u32::MAX.to_le_bytes(), [0; 4], [1; 4], [1; 4]].concat())
        }),
        ("no head", |_| Told::Bytes(vec![0; 64])),
        ("a number that nobody gave", |_| {
            Told::Frames(vec![Frame::new(u64::MAX, &Reply::Done, Vec::new())])
        }),
        ("an answer twice", |number| {
            Told::Frames(
                (0..2)
                    .map(|_| Frame::new(number, &Reply::Done, Vec::new()))
                    .collect(),
            )
        }),
        ("half a frame", |_| {
            Told::Last([100u32.to_le_bytes(), 100u32.to_le_bytes(), [1; 4]].concat())
        }),
        ("the end", |_| Told::Last(Vec::new())),
    ];
    for pull in [true, false] {
        for (what, noise) in noises {
            for after in [0, 1, 5] {
                let mut heard = 0;
                let lie: Lie = Box::new(move |said: Said<'_>| {
                    heard += 1;
                    match heard - 1 {
                        before if before < after => said.unchanged(),
                        now if now == after => noise(said.number),
                        _ => Told::Last(Vec::new()),
                    }
                });
                let (_stage, outcome) =
                    with_liar(pull, &format!("{what} after {after}, pull {pull}"), lie);
                assert_ne!(
                    outcome.code(),
                    0,
                    "{what} after {after}, pull {pull}\n{}",
                    outcome.describe()
                );
            }
        }
    }
}

/// Bits of replies turn over on their way; whatever they then say, nothing crashes, hangs or gets
/// out.
fn flip(pull: bool, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (calm, each) = (rng.u32(0..12), rng.u32(1..8));
    let mut heard = 0;
    let lie: Lie = Box::new(move |said: Said<'_>| {
        heard += 1;
        let mut frame = Frame::new(said.number, &said.reply, said.data);
        if heard > calm && rng.u32(0..each) == 0 {
            for _ in 0..rng.u32(1..4) {
                // The number stays: a wrong one ends the line at once, and proves nothing.
                let at = rng.usize(8..frame.head.len());
                frame.head[at] ^= 1 << rng.u8(0..8);
            }
        }
        Told::Frames(vec![frame])
    });
    let _ = with_liar(pull, &format!("seed {seed}, pull {pull}"), lie);
}

#[test]
fn flipped_bits_of_a_source_do_no_harm() {
    (0..FLIPPED_SEEDS).for_each(|seed| flip(true, seed));
}

#[test]
fn flipped_bits_of_a_replica_do_no_harm() {
    (0..FLIPPED_SEEDS).for_each(|seed| flip(false, 1000 + seed));
}

#[test]
fn a_verification_with_a_liar_never_says_equal_of_what_it_could_not_read() {
    let stage = Stage::new();
    let _ = common::sync_ok(&stage.src, &stage.dst, ["--delete"]);
    put(&stage.dst.join("other/d"), "differs");
    let state = stage.scratch.path().join("state");
    for which in [
        (|request| matches!(request, Request::Fetch { .. } | Request::Open { .. }))
            as fn(&Request) -> bool,
        |request| matches!(request, Request::Enter { .. }),
    ] {
        let liar = Liar::new(answering(
            || Reply::Fault(WireFault::new(Act::Read, 5)),
            which,
        ));
        let run = driftless()
            .args(["verify", "--json", "--streams=1", "--reconnect=0", "--ssh"])
            .arg(&liar.command)
            .args(stage.ends(false));
        let outcome = run.env("XDG_STATE_HOME", &state).limit(END_MAX).run();
        assert!([3, 4].contains(&outcome.code()), "{}", outcome.describe());
    }
}
