//! Programs of a test's own, and signals to single processes.

use driftless_testkit::Scratch;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Writes a script, whose first line names its interpreter, as a program.
pub fn script(path: &Path, text: &str) {
    fs::write(path, text).expect("script");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("chmod");
}

/// A program of this name in a scratch folder, which bash runs.
pub fn bash(scratch: &Scratch, name: &str, text: &str) -> PathBuf {
    let path = scratch.path().join(name);
    script(&path, &format!("#!/bin/bash\n{text}\n"));
    path
}

/// Signals one process, and not those that it has started.
pub fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).expect("a process"), signal).expect("signal");
}
