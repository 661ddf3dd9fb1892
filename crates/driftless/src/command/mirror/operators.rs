//! The group of operators of a job: its members ask a mirror of another user for what changes
//! nothing.
//!
//! The mirror's own socket is in the state folder of its user, which nobody else can enter. The
//! socket for operators is beside the sockets for posts, and belongs to the group: the kernel decides
//! who may connect.

use super::Failure;
use crate::command::job;
use crate::exit::Exit;
use crate::own;
use driftless_mirror::ask::{Answer, Ask, AskState, forbidden};
use driftless_mirror::control::{self, Operators};
use driftless_mirror::job::Job;
use driftless_model::{cause, quote};
use rustix::process::{getegid, geteuid, getgroups};
use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The end of the name of a socket for operators, behind the name of the job.
const SUFFIX: &str = ".operators";
/// The file with the groups of this host (group(5)).
const GROUPS: &str = "/etc/group";
/// The longest a report may take: its state has a few thousand rows.
const REPORT_LIMIT: Duration = Duration::from_secs(60);
/// The longest that another user's mirror is asked for whether it runs.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// Returns the group of operators that a job names, and makes the folder of their socket. Returns
/// `None` for a job without one.
pub fn of(job: &Job) -> Result<Option<Operators>, Failure> {
    looked_up(job, own::runtime_folder)
}

/// Says what is wrong with the group of operators that a job names; makes nothing.
pub fn check(job: &Job) -> Result<(), Failure> {
    looked_up(job, own::runtime_place).map(drop)
}

fn looked_up(
    job: &Job,
    folder: impl Fn() -> Result<PathBuf, String>,
) -> Result<Option<Operators>, Failure> {
    let refuse = |why: String| (Exit::CouldNotRun, format!("{}: operators: {why}", job.name));
    let Some(group) = &job.operators else {
        return Ok(None);
    };
    let gid = gid_of(group).map_err(refuse)?;
    let is_own = getegid().as_raw() == gid
        || getgroups().is_ok_and(|all| all.iter().any(|one| one.as_raw() == gid));
    if !is_own && !geteuid().is_root() {
        return Err(refuse(format!(
            "cannot give a socket to the group {}: this user is no member of it; make it one",
            quote(Path::new(group))
        )));
    }
    let path = folder().map_err(refuse)?.join(socket_name(&job.name));
    let socket = own::socket_path(path, "DRIFTLESS_RUNTIME_DIR").map_err(refuse)?;
    Ok(Some(Operators {
        group: group.clone(),
        gid,
        socket,
    }))
}

fn socket_name(job: &str) -> String {
    format!("{job}{SUFFIX}")
}

/// Returns the number of a group: that of this host's file, or the one that another source of names
/// has (getent(1)).
fn gid_of(group: &str) -> Result<u32, String> {
    let missing = || {
        let group = quote(Path::new(group));
        format!("there is no group {group} on this host; make it (groupadd), or name another")
    };
    let text = job::text_of(Path::new(GROUPS)).unwrap_or_default();
    if let Some(gid) = gid_in(&text, group) {
        return Ok(gid);
    }
    let mut getent = Command::new("getent");
    let said = getent.args(["group", group]).stdin(Stdio::null()).output();
    match said {
        Ok(said) => gid_in(&String::from_utf8_lossy(&said.stdout), group).ok_or_else(missing),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing()),
        Err(error) => Err(format!("cannot start getent: {}", cause(&error))),
    }
}

/// Returns the number of a group in lines of the form of group(5).
fn gid_in(text: &str, group: &str) -> Option<u32> {
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(group))?;
    line.split(':').nth(2)?.parse().ok()
}

/// Returns the socket at which the mirror of a job answers this user: that of its own, or that for
/// operators of another user's mirror, if this user's does not run.
pub fn place(name: &str) -> Result<PathBuf, Failure> {
    match of_other_user(name) {
        Some(socket) => Ok(socket),
        None => job::socket(name),
    }
}

/// Returns the socket for operators of a job that no mirror of this user has.
#[allow(
    clippy::disallowed_methods,
    reason = "our own socket, no part of a replicated tree"
)]
fn of_other_user(name: &str) -> Option<PathBuf> {
    if job::holder(name).is_ok_and(|holder| holder.is_some()) {
        return None;
    }
    let places = own::runtime_places().into_iter();
    let mut sockets = places.map(|place| place.join(socket_name(name)));
    sockets.find(|socket| std::fs::symlink_metadata(socket).is_ok())
}

/// Returns the names of jobs whose mirrors answer this user as an operator.
#[allow(
    clippy::disallowed_methods,
    reason = "our own folder, no part of a replicated tree"
)]
pub fn jobs() -> Vec<String> {
    let folders = own::runtime_places().into_iter();
    let entries = folders.filter_map(|folder| std::fs::read_dir(folder).ok());
    let paths = entries.flatten().flatten().map(|entry| entry.path());
    let name = |path: PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str)?;
        let name = name.strip_suffix(SUFFIX)?.to_owned();
        UnixStream::connect(&path).ok().map(|_| name)
    };
    paths.filter_map(name).collect()
}

/// Refuses to do something to a job whose mirror runs as another user. That mirror says so first:
/// one that has ended is no reason.
pub fn refuse(job: &Job, what: &str) -> Result<(), Failure> {
    let socket = of_other_user(&job.name).filter(|_| !geteuid().is_root());
    let (Some(socket), Some(group)) = (socket, &job.operators) else {
        return Ok(());
    };
    match control::ask_within(&socket, &Ask::Status, Some(LOOK_LIMIT)) {
        Ok(Answer::Status(_)) => {
            let why = forbidden(what, group);
            Err((Exit::CouldNotRun, format!("{}: {why}", job.name)))
        }
        _ => Ok(()),
    }
}

/// Returns the report of another user's mirror; `None` if none of this job runs.
pub fn report(name: &str, question: &AskState) -> Result<Option<String>, Failure> {
    let Some(socket) = of_other_user(name) else {
        return Ok(None);
    };
    let failed = |why: String| Err((Exit::CouldNotRun, format!("{name}: {why}")));
    match control::ask_within(&socket, question, Some(REPORT_LIMIT)) {
        Ok(Answer::Report(text)) => Ok(Some(text)),
        Ok(Answer::Refused(why) | Answer::Forbidden(why) | Answer::Busy(why)) => failed(why),
        Ok(_) => Err((Exit::Bug, "the mirror gave another answer".into())),
        Err(error) if is_silent(&error) => Ok(None),
        Err(error) => failed(unreached(&error)),
    }
}

/// Returns whether nothing listens at a socket.
pub fn is_silent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// Returns the reason why a mirror that listens does not take a question.
pub fn unreached(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "its mirror runs as another user, and answers that user, root and the members of its group of operators only".into()
        }
        io::ErrorKind::TimedOut => "its mirror does not answer".into(),
        _ => cause(error),
    }
}
