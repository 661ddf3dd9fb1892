//! Replicas that a run has left unfinished, and what their marks say.

use super::{MARK_FILE, far, is_temp, put, sync, wait_until};
use driftless_testkit::{Driftless, Outcome, attrs};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;

pub const MIB: usize = 1 << 20;
/// What a run says that finds another one unfinished.
pub const SAYS: &str = "an earlier run was not made durable";

/// The mark of a replica, wherever it stands.
pub fn mark(root: &Path) -> Option<String> {
    let read = |name: &[u8]| {
        attrs::get_xattr(root, name)
            .ok()
            .flatten()
            .and_then(|text| String::from_utf8(text).ok())
    };
    read(b"trusted.driftless.mark")
        .or_else(|| read(b"user.driftless.mark"))
        .or_else(|| fs::read_to_string(root.join(MARK_FILE)).ok())
}

/// Whether a mark says that something may not be durable.
pub fn is_unsettled(root: &Path) -> bool {
    mark(root)
        .expect("a mark")
        .lines()
        .any(|line| line.starts_with("since "))
}

pub fn says_so(outcome: &Outcome) -> bool {
    outcome.stderr_text().contains(SAYS) && outcome.stdout_text().contains(SAYS)
}

/// Content that differs from file to file and does not compress away.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    fastrand::Rng::with_seed(seed).fill(&mut content);
    content
}

pub fn must_run(words: &[&str], paths: &[&Path]) {
    let done = Command::new(words[0])
        .args(&words[1..])
        .args(paths)
        .output()
        .expect("it starts");
    assert!(
        done.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// A run that is killed when it has copied some of its files.
pub fn killed(src: &Path, dst: &Path, arguments: &[&str]) {
    kill(sync(src, dst).args(arguments), dst);
}

pub fn kill(run: Driftless, dst: &Path) {
    let running = run.args(["--bwlimit=20M", "--jobs=1"]).spawn();
    let is_at_work = || {
        fs::read_dir(dst)
            .is_ok_and(|entries| entries.flatten().any(|entry| !is_temp(&entry.path())))
    };
    wait_until("something is copied", is_at_work);
    running.signal(Signal::KILL);
    assert_eq!(running.wait().code(), 137);
    // Over ssh, an agent has the lock until it has noticed.
    if far::over().is_some() {
        wait_until("the agent has let go of the replica", || !is_open(dst));
    }
}

/// Whether a process has something of a tree open.
fn is_open(root: &Path) -> bool {
    let entries = |dir: &Path| {
        fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
    };
    let processes = entries(Path::new("/proc")).filter(|path| path.join("fd").exists());
    let mut open = processes.flat_map(|process| entries(&process.join("fd")));
    open.any(|link| fs::read_link(link).is_ok_and(|to| to.starts_with(root)))
}

pub fn many_files(src: &Path) {
    (0..12).for_each(|seed| put(&src.join(format!("f{seed}")), noise(seed, 5 * MIB)));
}

/// Other content under the same size and times, as if it had never been written.
pub fn lose(path: &Path) {
    let meta = fs::metadata(path).expect("stat");
    fs::write(path, vec![0; meta.len() as usize]).expect("write");
    let times = fs::FileTimes::new().set_modified(meta.modified().expect("time"));
    fs::File::options()
        .write(true)
        .open(path)
        .expect("open")
        .set_times(times)
        .expect("times");
}
