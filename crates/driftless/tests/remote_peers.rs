//! Peers that are not to be trusted: agents that lie to a client, and clients that ask an agent for
//! what they must not have.
//!
//! A liar is a real agent whose words are changed on their way. Whatever it says, a run ends soon,
//! with a code that tells the truth or with an error, never with a bug, and touches nothing outside
//! of its roots.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::agent;
use common::liar::{
    CRASHES, END_MAX, Liar, Lie, RESIDENT_KIB_MAX, Said, Stage, Told, about_listings, answering,
    with_liar,
};
use common::{TEMP_PREFIX, driftless, programs, put};
use driftless_model::{Act, Keep, Kind, Meta, Side, Xattrs};
use driftless_remote::wire::{
    Frame, Located, Locked, Name, Opening, Own, PROTOCOL, ROOTS_MAX, Reply, Request, Root, Survey,
    WireFault,
};
use driftless_testkit::mutate::list_all;
use driftless_testkit::{Options, Profile, build_tree, compare, mutate, snapshot_hash};
use driftless_tree::Reach;
use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const FLIPPED_SEEDS: u64 = 16;

// ---- liars ----

fn name(text: &str) -> Name {
    Name(CString::new(text).expect("no NUL"))
}

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
        let is_temp = |path: &Path| {
            path.file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(TEMP_PREFIX))
        };
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

// ---- hostile clients ----

/// A real agent, and a client that says to it what it likes.
struct Victim {
    agent: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    next: u64,
}

fn roots(paths: &[&Path], side: Side) -> Opening {
    use std::os::unix::ffi::OsStrExt;
    Opening {
        roots: paths
            .iter()
            .map(|path| Root {
                path: path.as_os_str().as_bytes().to_vec(),
                side,
            })
            .collect(),
    }
}

impl Victim {
    /// An agent that has not been told its roots yet.
    fn new() -> Victim {
        Victim::with(&["agent"])
    }

    fn with(arguments: &[&str]) -> Victim {
        let mut command = Command::new(agent());
        let mut agent = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("an agent");
        let mut from = BufReader::new(agent.stdout.take().expect("piped"));
        let mut greeting = String::new();
        from.read_line(&mut greeting).expect("a greeting");
        assert_eq!(
            greeting.split_whitespace().take(2).collect::<Vec<_>>(),
            ["driftless-agent", &PROTOCOL.to_string()]
        );
        let _hello = Frame::read(&mut from).expect("a frame").expect("a hello");
        let to = agent.stdin.take();
        Victim {
            agent,
            to,
            from,
            next: 1,
        }
    }

    /// An agent for these roots.
    fn letting_in(paths: &[&Path], side: Side) -> Victim {
        Victim::new().let_in(paths, side)
    }

    fn let_in(mut self, paths: &[&Path], side: Side) -> Victim {
        let mut bytes = Vec::new();
        Frame::new(0, &roots(paths, side), Vec::new())
            .write(&mut bytes)
            .expect("memory");
        self.say(&bytes);
        self
    }

    /// An agent for a replica, whose root has the number 1.
    fn of(replica: &Path) -> Victim {
        Victim::new().serving(replica)
    }

    fn serving(self, replica: &Path) -> Victim {
        let mut victim = self.let_in(&[replica], Side::Replica);
        let located = victim.ask(&Request::Locate { root: 0, at: 1 });
        assert!(
            matches!(located, Reply::Located(Located::Dir(_))),
            "{located:?}"
        );
        victim
    }

    fn say(&mut self, bytes: &[u8]) -> bool {
        self.to
            .as_mut()
            .is_some_and(|to| to.write_all(bytes).and_then(|()| to.flush()).is_ok())
    }

    fn send(&mut self, request: &Request, data: Vec<u8>) -> u64 {
        self.next += 1;
        let mut bytes = Vec::new();
        Frame::new(self.next, request, data)
            .write(&mut bytes)
            .expect("memory");
        self.say(&bytes);
        self.next
    }

    /// Asks and waits for the reply.
    fn ask(&mut self, request: &Request) -> Reply {
        self.ask_with(request, Vec::new())
    }

    fn ask_with(&mut self, request: &Request, data: Vec<u8>) -> Reply {
        let number = self.send(request, data);
        loop {
            let frame = Frame::read(&mut self.from)
                .expect("a frame")
                .expect("the agent lives");
            match frame.message().expect("the agent speaks properly") {
                Reply::Alive => {}
                reply => {
                    assert_eq!(frame.number(), number);
                    return reply;
                }
            }
        }
    }

    /// Asks for what the kernel must not let the agent do.
    fn is_denied(&mut self, request: &Request) {
        const EACCES: i32 = 13;
        match self.ask(request) {
            Reply::Lock(Locked::Missing(errno)) => assert_eq!(errno, EACCES, "{request:?}"),
            Reply::Fault(fault) | Reply::Located(Located::Refused(_, fault)) => {
                assert_eq!(
                    fault.on(Side::Replica).errno,
                    EACCES,
                    "{request:?}: {fault:?}"
                );
            }
            Reply::Removed(removed) => {
                let removed = removed.on(Side::Replica);
                let is_denied = matches!(removed.stuck[..], [(_, fault)] if fault.errno == EACCES);
                assert!(
                    removed.entries == 0 && is_denied,
                    "{request:?}: {removed:?}"
                );
            }
            other => panic!("{request:?}: {other:?}"),
        }
    }

    /// Says all this and hangs up behind it, whether or not the agent reads it.
    fn part_with(mut self, bytes: Vec<u8>, context: &str) -> (i32, String) {
        let mut to = self.to.take().expect("it is open");
        let speaker = std::thread::spawn(move || to.write_all(&bytes));
        let said = self.part(context);
        let _the_agent_may_have_ended_before = speaker.join().expect("speaker");
        said
    }

    /// Hangs up; the agent must end soon, without a crash. Returns its code and what it said.
    fn part(mut self, context: &str) -> (i32, String) {
        drop(self.to.take());
        let mut stderr = self.agent.stderr.take().expect("piped");
        let words = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let mut from = self.from;
        let rest = std::thread::spawn(move || std::io::copy(&mut from, &mut std::io::sink()));
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.agent.try_wait().expect("wait") {
                break status;
            }
            if since.elapsed() > END_MAX {
                let _ = self.agent.kill();
                let _ = self.agent.wait();
                panic!("{context}: the agent does not end when its client has");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let (words, _) = (words.join().expect("reader"), rest.join().expect("reader"));
        let code = status.code().unwrap_or(-1);
        assert!(
            code >= 0 && !CRASHES.contains(&code),
            "{context}: a crash: {status}\n{words}"
        );
        (code, words)
    }
}

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
fn names_that_lead_out_of_a_directory_end_the_line() {
    for bad in [
        "../outside",
        "../outside/victim",
        "/etc",
        "..",
        ".",
        "",
        "a/b",
    ] {
        let stage = Stage::new();
        let (beside, before) = (stage.beside(), snapshot_hash(&stage.dst, false));
        let requests: [fn(Name) -> Request; 8] = [
            |name| Request::Enter {
                dir: 1,
                name,
                at: 9,
                survey: None,
            },
            |name| Request::Create {
                dir: 1,
                name,
                mode: 0o644,
                at: 9,
            },
            |name| Request::RemoveTree {
                dir: 1,
                name,
                spared: None,
            },
            |name| Request::Remove { dir: 1, name },
            |name| Request::MakeDir {
                dir: 1,
                name,
                at: 9,
            },
            |name| Request::Rename {
                dir: 1,
                from: Name(c"sub".into()),
                to: name,
            },
            |name| Request::Link {
                dir: 1,
                name: Name(c"new".into()),
                from: 1,
                from_name: name,
                id: (1, 2),
            },
            |name| Request::Open {
                dir: 1,
                name,
                at: 9,
            },
        ];
        for request in requests {
            let mut victim = Victim::of(&stage.dst);
            victim.send(&request(name(bad)), Vec::new());
            let (code, words) = victim.part(bad);
            assert_eq!(code, 1, "\"{bad}\": {words}");
        }
        assert_eq!(stage.beside(), beside, "{bad}");
        assert_eq!(snapshot_hash(&stage.dst, false), before, "{bad}");
    }
}

#[test]
fn links_are_never_followed_for_a_client() {
    let stage = Stage::new();
    for (link, target) in [("out", "../outside"), ("file", "../outside/victim")] {
        std::os::unix::fs::symlink(target, stage.dst.join(link)).expect("symlink");
    }
    let beside = stage.beside();
    let mut victim = Victim::of(&stage.dst);
    let requests = [
        Request::Enter {
            dir: 1,
            name: name("out"),
            at: 20,
            survey: None,
        },
        Request::Open {
            dir: 1,
            name: name("file"),
            at: 21,
        },
        Request::Reopen {
            dir: 1,
            name: name("file"),
            at: 22,
        },
        Request::Create {
            dir: 1,
            name: name("file"),
            mode: 0o666,
            at: 23,
        },
        Request::MakeDir {
            dir: 1,
            name: name("out"),
            at: 24,
        },
        Request::Fetch {
            dir: 1,
            name: name("file"),
            keep: Keep::default(),
        },
        Request::RemoveDir {
            dir: 1,
            name: name("out"),
        },
        // What could not be opened is not there either.
        Request::List {
            dir: 20,
            survey: Survey {
                keep: Keep::default(),
                files: true,
                entries_max: 10,
            },
        },
        Request::Remove {
            dir: 20,
            name: name("victim"),
        },
        Request::Read {
            file: 21,
            offset: 0,
            len: 100,
        },
        Request::SetLen { file: 22, len: 0 },
        Request::Remove {
            dir: 24,
            name: name("victim"),
        },
    ];
    for request in requests {
        let reply = victim.ask(&request);
        assert!(matches!(reply, Reply::Fault(_)), "{request:?}: {reply:?}");
    }
    let removed = victim.ask(&Request::RemoveTree {
        dir: 1,
        name: name("out"),
        spared: None,
    });
    let Reply::Removed(removed) = removed else {
        panic!("{removed:?}")
    };
    let removed = removed.on(Side::Replica);
    assert!(
        removed.entries == 1 && !removed.stays(),
        "the link itself: {removed:?}"
    );
    assert_eq!(stage.beside(), beside);
    assert_eq!(victim.part("links").0, 0);
}

/// ENXIO: what says that something else than a file stands there by now (open(2)).
#[test]
fn what_is_no_file_any_more_when_it_is_opened_is_told_to_be_another_kind() {
    const OTHER_KIND: i32 = 6;
    let stage = Stage::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        stage.dst.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("mkfifo");
    let mut victim = Victim::of(&stage.dst);
    for (entry, at) in ["fifo", "sub"].into_iter().zip(20..) {
        let requests = [
            Request::Open {
                dir: 1,
                name: name(entry),
                at,
            },
            Request::Fetch {
                dir: 1,
                name: name(entry),
                keep: Keep::default(),
            },
        ];
        for request in requests {
            let reply = victim.ask(&request);
            let Reply::Fault(fault) = reply else {
                panic!("{request:?}: {reply:?}")
            };
            assert_eq!(fault.on(Side::Source).errno, OTHER_KIND, "{request:?}");
        }
    }
    assert_eq!(victim.part("kinds").0, 0);
}

/// Everything that opens, makes, renames or removes something below directory 2.
fn acts_in(file: &str, folder: &str) -> Vec<Request> {
    let (file, folder, new) = (name(file), name(folder), || name("new"));
    vec![
        Request::Enter {
            dir: 2,
            name: folder.clone(),
            at: 30,
            survey: None,
        },
        Request::Open {
            dir: 2,
            name: file.clone(),
            at: 31,
        },
        Request::Fetch {
            dir: 2,
            name: file.clone(),
            keep: Keep::default(),
        },
        Request::Reopen {
            dir: 2,
            name: file.clone(),
            at: 32,
        },
        Request::Create {
            dir: 2,
            name: new(),
            mode: 0o600,
            at: 33,
        },
        Request::MakeDir {
            dir: 2,
            name: new(),
            at: 34,
        },
        Request::Symlink {
            dir: 2,
            name: new(),
            target: c"x".into(),
        },
        Request::Node {
            dir: 2,
            name: new(),
            kind: Kind::Fifo,
            rdev: 0,
        },
        Request::Node {
            dir: 2,
            name: new(),
            kind: Kind::Socket,
            rdev: 0,
        },
        Request::Node {
            dir: 2,
            name: new(),
            kind: Kind::Char,
            rdev: 0x0103,
        },
        Request::Node {
            dir: 2,
            name: new(),
            kind: Kind::Block,
            rdev: 0x0103,
        },
        Request::Lock {
            dir: 2,
            name: Some(file.clone()),
            reach: Reach::Everywhere,
            at: 35,
        },
        Request::Lock {
            dir: 2,
            name: None,
            reach: Reach::Everywhere,
            at: 36,
        },
        Request::Rename {
            dir: 2,
            from: file.clone(),
            to: new(),
        },
        Request::Link {
            dir: 2,
            name: new(),
            from: 2,
            from_name: file.clone(),
            id: (1, 2),
        },
        Request::RemoveTree {
            dir: 2,
            name: folder.clone(),
            spared: None,
        },
        Request::Remove { dir: 2, name: file },
        Request::RemoveDir {
            dir: 2,
            name: folder,
        },
    ]
}

#[test]
fn a_directory_that_is_moved_out_of_the_root_leads_nobody_out() {
    let stage = Stage::new();
    fs::create_dir(stage.dst.join("sub/folder")).expect("mkdir");
    let mut victim = Victim::of(&stage.dst);
    assert!(matches!(
        victim.ask(&Request::Enter {
            dir: 1,
            name: name("sub"),
            at: 2,
            survey: None
        }),
        Reply::Entered(..)
    ));
    fs::rename(stage.dst.join("sub"), stage.outside.join("sub")).expect("rename");
    let beside = stage.beside();
    for request in acts_in("old", "folder") {
        victim.is_denied(&request);
    }
    // Nor is anything brought in from there, or out.
    put(&stage.dst.join("inside"), "content");
    for (to, from, from_name, path) in [
        (1, 2, "old", stage.outside.join("sub/old")),
        (2, 1, "inside", stage.dst.join("inside")),
    ] {
        let request = Request::Link {
            dir: to,
            name: name("linked"),
            from,
            from_name: name(from_name),
            id: id_of(&path),
        };
        let reply = victim.ask(&request);
        assert!(matches!(reply, Reply::Fault(_)), "{reply:?}");
    }
    assert_eq!(stage.beside(), beside);
    // Where it was, all is as ever.
    fs::rename(stage.outside.join("sub"), stage.dst.join("sub")).expect("rename");
    assert!(matches!(
        victim.ask(&Request::Open {
            dir: 2,
            name: name("old"),
            at: 50
        }),
        Reply::Meta(_)
    ));
    assert!(matches!(
        victim.ask(&Request::Create {
            dir: 2,
            name: name("made"),
            mode: 0o600,
            at: 51
        }),
        Reply::Meta(_)
    ));
    assert_eq!(victim.part("a directory that was moved").0, 0);
}

#[test]
fn a_root_that_becomes_another_is_not_opened_again() {
    let stage = Stage::new();
    let mut victim = Victim::of(&stage.dst);
    assert!(
        matches!(
            victim.ask(&Request::Locate { root: 0, at: 2 }),
            Reply::Located(Located::Dir(_))
        ),
        "once more"
    );
    fs::rename(&stage.dst, stage.scratch.path().join("moved")).expect("rename");
    std::os::unix::fs::symlink("outside", &stage.dst).expect("symlink");
    victim.is_denied(&Request::Locate { root: 0, at: 3 });
    for root in [1, 2, u32::MAX] {
        let reply = victim.ask(&Request::Locate {
            root,
            at: 100 + u64::from(root),
        });
        assert!(
            matches!(reply, Reply::Fault(_)),
            "a root that was not named: {reply:?}"
        );
    }
    assert!(matches!(
        victim.ask(&Request::Create {
            dir: 1,
            name: name("made"),
            mode: 0o600,
            at: 4
        }),
        Reply::Meta(_)
    ));
    assert_eq!(victim.part("a root that was replaced").0, 0);
}

#[test]
fn what_is_named_as_a_source_is_only_read() {
    let stage = Stage::new();
    fs::create_dir(stage.src.join("sub/folder")).expect("mkdir");
    let before = snapshot_hash(&stage.src, true);
    let mut victim = Victim::letting_in(&[&stage.src], Side::Source);
    assert!(matches!(
        victim.ask(&Request::Locate { root: 0, at: 1 }),
        Reply::Located(Located::Dir(_))
    ));
    assert!(matches!(
        victim.ask(&Request::Enter {
            dir: 1,
            name: name("sub"),
            at: 2,
            survey: None
        }),
        Reply::Entered(..)
    ));
    for request in acts_in("b", "folder") {
        match request {
            Request::Enter { .. } => assert!(matches!(victim.ask(&request), Reply::Entered(..))),
            Request::Open { .. } => assert!(matches!(victim.ask(&request), Reply::Meta(_))),
            Request::Fetch { .. } => assert!(matches!(victim.ask(&request), Reply::Whole(Some(_)))),
            _ => victim.is_denied(&request),
        }
    }
    // Attributes are not Landlock's affair.
    victim.is_denied(&Request::SetMark {
        dir: 2,
        text: b"driftless mark 1".to_vec(),
        durable: false,
    });
    assert_eq!(victim.part("a source").0, 0);
    assert_eq!(snapshot_hash(&stage.src, true), before);
}

/// Device and inode of a file.
fn id_of(path: &Path) -> (u64, u64) {
    let meta = fs::metadata(path).expect("stat");
    (meta.dev(), meta.ino())
}

#[test]
fn what_is_not_there_yet_is_made_and_a_single_entry_replaced() {
    let stage = Stage::new();
    let mut victim = Victim::letting_in(
        &[&stage.dst.join("new"), &stage.dst.join("sub/old")],
        Side::Replica,
    );
    assert!(matches!(
        victim.ask(&Request::Locate { root: 0, at: 1 }),
        Reply::Located(Located::Missing(..))
    ));
    assert!(matches!(
        victim.ask(&Request::MakeDir {
            dir: 1,
            name: name("new"),
            at: 2
        }),
        Reply::Meta(_)
    ));
    assert!(matches!(
        victim.ask(&Request::Create {
            dir: 2,
            name: name("file"),
            mode: 0o600,
            at: 3
        }),
        Reply::Meta(_)
    ));
    assert!(matches!(
        victim.ask(&Request::Locate { root: 1, at: 4 }),
        Reply::Located(Located::Entry(..))
    ));
    assert!(matches!(
        victim.ask(&Request::Lock {
            dir: 4,
            name: Some(name("old")),
            reach: Reach::Everywhere,
            at: 5
        }),
        Reply::Lock(Locked::Held)
    ));
    assert!(matches!(
        victim.ask(&Request::Create {
            dir: 4,
            name: name("temporary"),
            mode: 0o600,
            at: 6
        }),
        Reply::Meta(_)
    ));
    assert!(matches!(
        victim.ask(&Request::Rename {
            dir: 4,
            from: name("temporary"),
            to: name("old")
        }),
        Reply::Done
    ));
    // From one root to the other, as for --link-dest.
    let id = id_of(&stage.dst.join("sub/old"));
    let link = |id| Request::Link {
        dir: 2,
        name: name("linked"),
        from: 4,
        from_name: name("old"),
        id,
    };
    assert!(
        matches!(victim.ask(&link((id.0, id.1 + 1))), Reply::Fault(_)),
        "another file than was meant"
    );
    assert!(matches!(victim.ask(&link(id)), Reply::Done));
    assert_eq!(victim.part("roots that are made").0, 0);
}

#[test]
fn devices_are_not_opened_through_nodes_in_a_root() {
    const ZERO: u64 = 0x0105;
    let stage = Stage::new();
    let mut victim = Victim::of(&stage.dst);
    assert!(matches!(
        victim.ask(&Request::Node {
            dir: 1,
            name: name("zero"),
            kind: Kind::Char,
            rdev: ZERO
        }),
        Reply::Done
    ));
    for request in [
        Request::Open {
            dir: 1,
            name: name("zero"),
            at: 2,
        },
        Request::Reopen {
            dir: 1,
            name: name("zero"),
            at: 3,
        },
        Request::Fetch {
            dir: 1,
            name: name("zero"),
            keep: Keep::default(),
        },
    ] {
        let reply = victim.ask(&request);
        assert!(matches!(reply, Reply::Fault(_)), "{request:?}: {reply:?}");
    }
    assert!(matches!(
        victim.ask(&Request::Read {
            file: 2,
            offset: 0,
            len: 10
        }),
        Reply::Fault(_)
    ));
    assert_eq!(victim.part("a device").0, 0);
}

#[test]
fn further_lines_are_not_given_to_an_agent_of_another_user() {
    let stage = Stage::new();
    let mut victim = Victim::of(&stage.dst);
    let Reply::Gathers { place, secret } = victim.ask(&Request::Gather { secret: 7 }) else {
        panic!("no place for further lines")
    };
    let place = String::from_utf8(place).expect("text");
    let mut other = Command::new("setpriv");
    other.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        agent(),
        "agent",
        "--join",
        &place,
    ]);
    let mut other = other
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("setpriv");
    // Whoever has given it to him.
    other
        .stdin
        .take()
        .expect("piped")
        .write_all(&secret.to_le_bytes())
        .expect("room in the pipe");
    let refused = other.wait_with_output().expect("wait");
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(
        refused.status.code() == Some(1) && words.contains("cannot join the agent"),
        "{:?}: {words}",
        refused.status
    );
    assert!(
        matches!(victim.ask(&Request::Meta { at: 1 }), Reply::Meta(_)),
        "it still works"
    );
    assert_eq!(victim.part("another user").0, 0);
}

#[test]
fn a_process_that_connects_and_brings_no_line_keeps_no_agent() {
    let stage = Stage::new();
    let mut victim = Victim::of(&stage.dst);
    let Reply::Gathers { place, .. } = victim.ask(&Request::Gather { secret: 1 }) else {
        panic!("no place for further lines")
    };
    let place = SocketAddr::from_abstract_name(&place).expect("a name");
    let silent = UnixStream::connect_addr(&place).expect("connect");
    // The agent takes it while it has nothing else to do.
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(10));
        assert!(matches!(
            victim.ask(&Request::Meta { at: 1 }),
            Reply::Meta(_)
        ));
    }
    assert_eq!(victim.part("with a process that says nothing").0, 0);
    drop(silent);
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

/// The most memory that a process has had, in KiB.
fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap_or("0 kB")
        .to_owned();
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number")
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
    common::wait_until("the agent has ended", END_MAX, || {
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
    programs::script(
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

// ---- compressed data ----

/// The bit of a frame's number that says that its data are compressed.
const COMPRESSED: u64 = 1 << 63;

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

impl Victim {
    /// Sends a request with data that it says are compressed.
    fn send_compressed(&mut self, request: &Request, data: Vec<u8>) -> bool {
        self.next += 1;
        let mut bytes = Vec::new();
        Frame::new(self.next | COMPRESSED, request, data)
            .write(&mut bytes)
            .expect("memory");
        self.say(&bytes)
    }

    fn hear(&mut self) -> Reply {
        Frame::read(&mut self.from)
            .expect("a frame")
            .expect("the agent lives")
            .message()
            .expect("the agent speaks properly")
    }
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
        code == 1 && words.contains("nobody asked"),
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
        outcome.stderr_text().contains("nobody asked"),
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
