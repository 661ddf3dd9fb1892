//! Trees on another host, which is this machine, reached through a real ssh server of the test's
//! own.
//!
//! The server is shared by all tests of a program that run at the same time; the last of them ends
//! it.

use super::{USER, check_accounts, wait_until};
use driftless_testkit::mutate::list_all;
use driftless_testkit::{Driftless, Outcome, Relay, Running, SshClient, Sshd, attrs};
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The ordinary user's names: whom the near side runs as, and whom it logs in as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Root,
    User,
}

/// Which of the trees are on the other host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Push,
    Pull,
    Between,
}

impl Way {
    pub const ALL: [Way; 3] = [Way::Push, Way::Pull, Way::Between];
}

/// A server, and settings of clients that reach it.
#[derive(Clone)]
pub struct Far {
    pub server: Arc<Sshd>,
    client: SshClient,
    who: Who,
}

/// Cuts all lines through the relay each time that so many bytes more have passed; ends with the
/// run.
pub fn cut_after(relay: &Relay, running: Running, marks: &[u64]) -> Outcome {
    for mark in marks {
        let until = relay.passed().both() + mark;
        wait_until("enough has passed", || {
            relay.passed().both() > until || running.ends_within(Duration::ZERO)
        });
        relay.cut();
    }
    running.wait()
}

static SHARED: Mutex<Weak<Sshd>> = Mutex::new(Weak::new());

fn shared() -> Arc<Sshd> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Sshd::start());
        *shared = Arc::downgrade(&server);
        server
    })
}

/// Which way all runs of [`sync`](super::sync) go, and as whom, if the environment says so.
pub fn over() -> Option<(Way, Who)> {
    let over = std::env::var("DRIFTLESS_TEST_OVER").ok()?;
    match &*over {
        "push" => Some((Way::Push, Who::Root)),
        "pull" => Some((Way::Pull, Who::Root)),
        "push-user" => Some((Way::Push, Who::User)),
        "pull-user" => Some((Way::Pull, Who::User)),
        other => panic!("DRIFTLESS_TEST_OVER is push, pull, push-user or pull-user, not {other}"),
    }
}

/// Source and replica as they are typed, with the one that is on another host if the environment
/// says so.
pub fn ends(src: &Path, dst: &Path) -> [OsString; 2] {
    over().map_or_else(
        || [src.into(), dst.into()],
        |(way, who)| kept(who).ends(way, src, dst),
    )
}

/// The shared server, for as long as this thread lives.
pub fn kept(who: Who) -> Far {
    thread_local!(static KEPT: Far = Far::root());
    Far::at(KEPT.with(|far| far.server.clone()), who)
}

/// Gives a tree to the ordinary user, who runs as if he had made it.
pub fn hand_over(root: &Path) {
    let all = list_all(root).unwrap_or_default();
    for path in all.iter().map(PathBuf::as_path).chain([root]) {
        let owner = std::fs::symlink_metadata(path)
            .ok()
            .map(|meta| (meta.uid(), meta.gid()));
        if owner.is_some_and(|owner| owner != (USER, USER)) {
            attrs::set_owner(path, USER, USER).expect("chown");
        }
    }
}

/// The binary under test, which is the agent, too.
pub fn agent() -> &'static str {
    env!("CARGO_BIN_EXE_driftless")
}

impl Far {
    /// The shared server, as root on both sides.
    pub fn root() -> Far {
        Far::of(Who::Root)
    }

    pub fn of(who: Who) -> Far {
        Far::at(shared(), who)
    }

    /// A server of this test alone, whose sessions it may kill.
    pub fn own() -> Far {
        Far::at(Arc::new(Sshd::start()), Who::Root)
    }

    fn at(server: Arc<Sshd>, who: Who) -> Far {
        let client = match who {
            Who::Root => server.client(),
            Who::User => server.client_of_user(server.address()),
        };
        Far {
            server,
            client,
            who,
        }
    }

    /// The same server by another way, such as a relay.
    pub fn via(&self, address: std::net::SocketAddr) -> Far {
        Far {
            server: self.server.clone(),
            client: self.server.client_via(address),
            who: self.who,
        }
    }

    /// What a user types for a path there.
    pub fn path(&self, path: &Path) -> OsString {
        let mut typed = OsString::from(if self.who == Who::Root {
            "far:"
        } else {
            "far-user:"
        });
        typed.push(path);
        typed
    }

    /// Source and replica as a user types them.
    pub fn ends(&self, way: Way, src: &Path, dst: &Path) -> [OsString; 2] {
        match way {
            Way::Push => [src.into(), self.path(dst)],
            Way::Pull => [self.path(src), dst.into()],
            Way::Between => [self.path(src), self.path(dst)],
        }
    }

    /// The command that connects, for `--ssh`.
    pub fn words(&self) -> String {
        self.client.words()
    }

    /// A command of driftless that reaches the server with another program as agent.
    pub fn command_with(
        &self,
        command: &str,
        agent: impl AsRef<OsStr>,
        ends: impl IntoIterator<Item = OsString>,
    ) -> Driftless {
        let run = super::driftless()
            .arg(command)
            .arg("--ssh")
            .arg(self.words())
            .arg("--agent-path")
            .arg(agent)
            .args(ends);
        if self.who == Who::User {
            run.as_user(USER, USER)
        } else {
            run
        }
    }

    /// A command of driftless, such as `sync`, that reaches the server.
    pub fn command(&self, command: &str, ends: impl IntoIterator<Item = OsString>) -> Driftless {
        self.command_with(command, agent(), ends)
    }

    /// `driftless sync --json`.
    pub fn sync(&self, way: Way, src: &Path, dst: &Path) -> Driftless {
        self.command("sync", self.ends(way, src, dst)).arg("--json")
    }

    /// Runs a sync that must end with exit code 0 and a summary that adds up.
    pub fn sync_ok<A: AsRef<OsStr>>(
        &self,
        way: Way,
        src: &Path,
        dst: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Outcome {
        let outcome = self.sync(way, src, dst).args(arguments).run().expect(0);
        check_accounts(&outcome);
        outcome
    }
}
