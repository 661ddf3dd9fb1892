//! What an agent lets a client do with its roots: sources are only read, devices stay shut, and
//! neither another user nor another root comes in.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::agent;
use common::liar::Stage;
use common::victim::{Victim, acts_in, id_of, name};
use driftless_model::{Keep, Kind, Side};
use driftless_remote::wire::{Located, Locked, Reply, Request};
use driftless_testkit::snapshot_hash;
use driftless_tree::Reach;
use std::fs;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

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
