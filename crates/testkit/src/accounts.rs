//! What a machine needs so that one can log in to it: accounts that are not locked, and the folder
//! that sshd wants.
//!
//! Containers lack some of it. What is made here stays, for it is the machine's and not a test's:
//! an account that shares the number of `nobody`, and a folder below `/run`. Nothing of it opens a
//! way in: no account gets a password.

use crate::scratch::must_run;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// User and group of tests that do not run as root.
pub const ORDINARY_ID: u32 = 65534;
/// The name under which the ordinary user logs in; `nobody` has no shell.
pub const ORDINARY_NAME: &str = "driftless-test";

/// Where sshd locks itself in before anybody has logged in (Debian's sshd(8)).
const PRIVILEGE_SEPARATION: &str = "/run/sshd";

/// Makes what is missing; needs root.
pub(crate) fn prepare_logins() {
    let _turn = machine_lock();
    if !Path::new(PRIVILEGE_SEPARATION).is_dir() {
        fs::create_dir(PRIVILEGE_SEPARATION)
            .unwrap_or_else(|e| panic!("cannot make {PRIVILEGE_SEPARATION}: {e}"));
    }
    if field("/etc/shadow", "root", 1).is_some_and(|password| password.starts_with('!')) {
        must_run(Command::new("usermod").args(["--password", "*", "root"]));
    }
    let id = ORDINARY_ID.to_string();
    match field("/etc/passwd", ORDINARY_NAME, 2) {
        None => add_ordinary(&id),
        Some(found) => assert_eq!(found, id, "the user {ORDINARY_NAME} is somebody else's"),
    }
}

/// Two users who log in through servers of a test: names, and numbers of users and groups.
pub const DEPOSIT_USERS: [(&str, u32); 2] =
    [("driftless-alice", 59_901), ("driftless-bob", 59_902)];

/// Creates the two users if they are missing. They have no password, and no shell.
pub fn prepare_deposit_users() {
    let _turn = machine_lock();
    for (name, id) in DEPOSIT_USERS {
        let id = id.to_string();
        if field("/etc/group", name, 2).is_none() {
            must_run(Command::new("groupadd").args(["--gid", &id, name]));
        }
        match field("/etc/passwd", name, 2) {
            Some(found) => assert_eq!(found, id, "the user {name} is of another program"),
            None => {
                let mut useradd = Command::new("useradd");
                useradd.args([
                    "--uid",
                    &id,
                    "--gid",
                    &id,
                    "--no-create-home",
                    "--home-dir",
                    "/",
                ]);
                must_run(useradd.args(["--shell", "/usr/sbin/nologin", "--password", "*", name]));
            }
        }
    }
}

/// `*` is no password and, unlike what useradd sets by itself, not a lock either.
fn add_ordinary(id: &str) {
    let mut useradd = Command::new("useradd");
    useradd.args([
        "--system",
        "--non-unique",
        "--uid",
        id,
        "--gid",
        id,
        "--no-create-home",
        "--home-dir",
        "/",
    ]);
    must_run(useradd.args(["--shell", "/bin/sh", "--password", "*", ORDINARY_NAME]));
}

/// A field of a user's line, counted from the name.
fn field(file: &str, user: &str, index: usize) -> Option<String> {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("cannot read {file}: {e}"));
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(user))?;
    line.split(':').nth(index).map(str::to_owned)
}

/// Held by one test at a time, whichever process it is in, while it changes what belongs to the
/// machine.
pub(crate) fn machine_lock() -> File {
    let file = File::create("/run/driftless-test.lock")
        .unwrap_or_else(|e| panic!("cannot lock; tests of hosts need root: {e}"));
    flock(&file, FlockOperation::LockExclusive).expect("lock");
    file
}
