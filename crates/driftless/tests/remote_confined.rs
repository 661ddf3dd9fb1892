//! Clients that ask an agent for what lies outside of its roots: names that lead out, links,
//! directories that are moved away.
#![allow(clippy::disallowed_methods)]

mod common;

use common::liar::Stage;
use common::put;
use common::victim::{Victim, acts_in, id_of, name};
use driftless_model::Keep;
use driftless_model::Side;
use driftless_remote::wire::{Located, Name, Reply, Request, Survey};
use driftless_testkit::snapshot_hash;
use std::fs;

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
