//! Runs that many movers share: through a broker, or through ssh.

use super::far::agent;
use super::{driftless, sync};
use driftless_testkit::{Driftless, EVENT_MAX, Host, Outcome, Rabbit, Running};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Limit of a wait for a mover or a run, on a busy machine.
pub const LIMIT: Duration = EVENT_MAX;
/// Limit of a process that waits for several events of its test.
const PROCESS_MAX: Duration = Duration::from_secs(900);

/// A job on a broker, with a folder for the records of its coordinators.
pub struct Job {
    pub url: String,
    pub name: String,
    state: tempfile::TempDir,
}

impl Job {
    /// A job of this test's own.
    pub fn new(rabbit: &Rabbit) -> Job {
        static JOBS: AtomicU32 = AtomicU32::new(0);
        let name = format!("job{}", JOBS.fetch_add(1, Ordering::Relaxed));
        Job {
            url: rabbit.url(),
            name,
            state: tempfile::tempdir().expect("a folder"),
        }
    }

    /// Where its coordinators keep their records.
    pub fn state(&self) -> PathBuf {
        self.state.path().to_owned()
    }

    fn with(&self, run: Driftless) -> Driftless {
        run.args(["--queue", &self.url, "--job", &self.name])
            .env("DRIFTLESS_QUEUE_PASSWORD", Rabbit::PASSWORD)
            .limit(PROCESS_MAX)
    }

    /// `driftless sync --queue`, ready for more options.
    pub fn sync(&self, src: &Path, dst: &Path) -> Driftless {
        self.coordinate(sync(src, dst))
    }

    /// The same command of `sync`, which coordinates the job.
    pub fn coordinate(&self, run: Driftless) -> Driftless {
        self.with(run).env("XDG_STATE_HOME", self.state.path())
    }

    /// `driftless mover`, ready for more options.
    pub fn mover(&self) -> Driftless {
        self.with(driftless().arg("mover"))
    }

    /// A mover at work.
    pub fn start_mover(&self) -> Running {
        self.mover().spawn()
    }

    /// A mover at work on a host of a lab.
    pub fn start_mover_on(&self, host: &Host, arguments: &[&str]) -> Running {
        self.mover().args(arguments).through(host.words()).spawn()
    }
}

/// `driftless sync --hosts`, by way of these words for ssh.
pub fn sync_on_hosts(hosts: &str, ssh: &str, src: &Path, dst: &Path) -> Driftless {
    sync(src, dst)
        .args(["--hosts", hosts, "--ssh", ssh, "--agent-path", agent()])
        .limit(LIMIT)
}

/// Returns a line of shell that runs `$command` in a mount namespace of its own, after the shell
/// commands `mounts`.
pub fn in_own_mounts(mounts: &str) -> String {
    format!("exec unshare --mount sh -c \"{mounts}; exec $command\"")
}

/// Checks that a run has printed all of these words.
pub fn check_output_has(outcome: &Outcome, words: &[&str]) {
    let said = outcome.stdout_text() + &outcome.stderr_text();
    let missing: Vec<_> = words.iter().filter(|word| !said.contains(**word)).collect();
    assert!(
        missing.is_empty(),
        "{missing:?} is missing\n{}",
        outcome.describe()
    );
}

/// Asks a mover to end, and waits for it.
pub fn end_mover(mover: Running) {
    mover.signal(rustix::process::Signal::TERM);
    assert_eq!(mover.wait().code(), 128 + 15);
}
