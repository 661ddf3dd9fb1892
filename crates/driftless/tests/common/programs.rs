//! Programs of a test's own, and signals to single processes.

use driftless_testkit::{Scratch, write_program};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;

/// A program of this name in a scratch folder, which bash runs.
pub fn bash(scratch: &Scratch, name: &str, text: &str) -> PathBuf {
    let path = scratch.path().join(name);
    write_program(&path, &format!("#!/bin/bash\n{text}\n"));
    path
}

/// Signals one process, and not those that it has started.
pub fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).expect("a process"), signal).expect("signal");
}
