//! Collection of results from one node: seal, copy with the rights of the user, discard.
//!
//! `driftless sync` runs as the user and reads from an agent on the node, which runs as the user as
//! well. This process carries their bytes, and believes neither. Only after the run reported that all
//! is equal and durable does the node remove anything.

use crate::distribution::{CollectOrder, CollectedResults};
use crate::users::User;
use driftless_cast::{
    CastNode, OrderFault, OrderSettings, OutboxReader, Pace, SealMove, SealOutcome, SealedPath,
    discard_outbox, relay_outbox, seal_and_list,
};
use rustix::fs::{Gid, Uid, chown};
use rustix::net::sockopt::socket_peercred;
use serde::Deserialize;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Pause between two looks at the run.
const TICK: Duration = Duration::from_millis(5);
/// Makes the destination with mode 0700 if it is missing, and prints its owner and mode.
const PREPARE: &str = r#"umask 022
[ -d "$1" ] || { mkdir -p -- "$(dirname -- "$1")" && mkdir -m 700 -- "$1"; } || exit
stat -c '%u %a' -- "$1""#;
/// Bytes of a message of a program that are shown.
const SHOWN_BYTES_MAX: usize = 2000;

/// Ways of a gateway to the results of one node.
pub(crate) struct CollectionWays {
    /// Orders to the node.
    pub orders: OrderSettings,
    /// The node.
    pub node: CastNode,
    /// Program of driftless on this host.
    pub program: String,
    /// Directory of the sockets to which runs of users connect.
    pub relay_dir: PathBuf,
    /// Directory of the sealed results of the job on the node.
    pub sealed_dir: PathBuf,
    /// Limit on the bytes of all collections.
    pub pace: Option<Arc<Pace>>,
}

/// A collection from one node.
pub(crate) struct Collection<'a> {
    ways: CollectionWays,
    order: &'a CollectOrder,
    user: User,
    stop: &'a AtomicBool,
}

/// The last line of `driftless sync --json`.
#[derive(Deserialize)]
struct CollectionSummary {
    event: String,
    #[serde(default)]
    changed: u64,
    #[serde(default)]
    bytes_copied: u64,
}

impl<'a> Collection<'a> {
    /// Prepares a collection.
    ///
    /// # Errors
    /// The user is unknown.
    pub fn new(
        ways: CollectionWays,
        order: &'a CollectOrder,
        stop: &'a AtomicBool,
    ) -> Result<Self, String> {
        Ok(Collection {
            ways,
            order,
            user: User::find(order.uid)?,
            stop,
        })
    }

    /// Collects, and removes from the node what is durable here.
    ///
    /// # Errors
    /// Cause and remedy. What did not arrive stays on the node.
    pub fn run(&self) -> Result<CollectedResults, String> {
        let names = self.seal()?;
        if names.is_empty() {
            return Ok(CollectedResults::default());
        }
        let mut collected = CollectedResults::default();
        for (from, to) in self.targets(&names)? {
            let one = self.copy(&from, &to)?;
            collected.entries = collected.entries.saturating_add(one.entries);
            collected.bytes = collected.bytes.saturating_add(one.bytes);
        }
        self.discard(&names)?;
        Ok(collected)
    }

    /// Seals what is complete. Returns the names at the top of all that is sealed.
    fn seal(&self) -> Result<Vec<Vec<u8>>, String> {
        let refused = |name: &[u8], why: &str| {
            let name = driftless_model::escape(name);
            format!("result \"{name}\": {why}")
        };
        let mut moves = Vec::new();
        for (name, path) in &self.order.moves {
            let path = SealedPath::parse(path).map_err(|why| refused(name, why))?;
            let entry = name.clone().try_into();
            let entry = entry.map_err(|_| refused(name, "it is no name of an entry"))?;
            moves.push(SealMove { name: entry, path });
        }
        let (orders, job) = (&self.ways.orders, self.order.job.as_str());
        let sealed = seal_and_list(orders, &self.ways.node, (job, &moves), self.stop);
        let sealed = sealed.map_err(text)?;
        for (outcome, (name, _)) in sealed.outcomes.into_iter().zip(&self.order.moves) {
            if let SealOutcome::Refused(why) = outcome {
                return Err(refused(name, &why));
            }
        }
        Ok(sealed.names)
    }

    fn discard(&self, names: &[Vec<u8>]) -> Result<(), String> {
        let paths = names.iter().map(|name| SealedPath::parse(name));
        let paths = paths
            .collect::<Result<Vec<_>, _>>()
            .map_err(str::to_owned)?;
        let (orders, job) = (&self.ways.orders, self.order.job.as_str());
        let causes =
            discard_outbox(orders, &self.ways.node, (job, &paths), self.stop).map_err(text)?;
        match causes.into_iter().flatten().next() {
            Some(cause) => Err(cause),
            None => Ok(()),
        }
    }

    /// Returns the directories to copy, each with its destination. `sync` gives the destination the
    /// metadata of the directory, and a directory of the user keeps its own. So only a private
    /// directory is a destination as a whole.
    fn targets(&self, names: &[Vec<u8>]) -> Result<Vec<(PathBuf, PathBuf)>, String> {
        let base = path_of(&self.order.base);
        let mut prepare = self.as_user("/bin/sh");
        prepare.args(["-c", PREPARE, "prepare"]).arg(&base);
        let output = output_of(&mut prepare)?;
        let shown = String::from_utf8_lossy(&output.stdout);
        let is_private = shown.trim() == format!("{} 700", self.order.uid);
        let sealed = self.ways.sealed_dir.clone();
        if is_private {
            return Ok(vec![(sealed, base)]);
        }
        let below = |name: &Vec<u8>| (sealed.join(path_of(name)), base.join(path_of(name)));
        Ok(names.iter().map(below).collect())
    }

    /// Copies a directory of the node with `driftless sync`.
    fn copy(&self, from: &Path, to: &Path) -> Result<CollectedResults, String> {
        let socket = RelaySocket::new(&self.ways.relay_dir, self.order.uid)?;
        let mut sync = self.as_user(self.ways.program.as_str());
        let path = socket.path.to_string_lossy();
        let relay = shell_words::join([self.ways.program.as_str(), "relay", &path]);
        sync.args([
            "sync",
            "--json",
            "--no-owner",
            "--no-group",
            "--streams",
            "1",
        ]);
        sync.args(["--copy-into", "--reconnect", "0", "--ssh", &relay]);
        let mut source = OsString::from("node:");
        source.push(from);
        sync.arg(source).arg(to);
        sync.stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = sync.spawn().map_err(|error| unstarted(&sync, &error))?;
        let is_over = AtomicBool::new(false);
        let (output, relayed) = thread::scope(|scope| {
            let relay = || self.relay(&socket, &is_over);
            let relaying = thread::Builder::new().name("relay".into());
            let relaying = relaying.spawn_scoped(scope, relay);
            let output = self.wait(child);
            is_over.store(true, Relaxed);
            let relayed = match relaying {
                Ok(thread) => thread.join().unwrap_or(Ok(())),
                Err(error) => Err(driftless_model::cause(&error)),
            };
            (output, relayed)
        });
        let output = output?;
        match (output.status.success(), relayed) {
            (true, _) => Ok(collected_of(&output)),
            (false, Err(cause)) => Err(cause),
            (false, Ok(())) => Err(complaint(&output)),
        }
    }

    /// Carries the bytes of the run to the agent on the node, once the run has connected.
    fn relay(&self, socket: &RelaySocket, is_over: &AtomicBool) -> Result<(), String> {
        let stream = loop {
            match socket.listener.accept() {
                Ok((stream, _)) if self.is_of_user(&stream) => break stream,
                Ok(_) => {}
                Err(_) if is_over.load(Relaxed) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(TICK),
                Err(error) => return Err(driftless_model::cause(&error)),
            }
        };
        let blocking = stream.set_nonblocking(false);
        blocking.map_err(|error| driftless_model::cause(&error))?;
        let reader = OutboxReader {
            job: &self.order.job,
            stream: &stream,
            pace: self.ways.pace.as_deref(),
        };
        let ended = relay_outbox(&self.ways.orders, &self.ways.node, &reader, self.stop);
        ended.map(drop).map_err(text)
    }

    /// Whether the user of the job is at the other end (unix(7), `SO_PEERCRED`).
    fn is_of_user(&self, stream: &UnixStream) -> bool {
        socket_peercred(stream).is_ok_and(|peer| peer.uid.as_raw() == self.order.uid)
    }

    /// Waits for the run; ends it if the gateway stops.
    fn wait(&self, child: Child) -> Result<Output, String> {
        let pid = rustix::process::Pid::from_child(&child);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let watch = || {
                while !is_over.load(Relaxed) {
                    if self.stop.load(Relaxed) {
                        let signal = rustix::process::Signal::TERM;
                        let _it_may_have_ended = rustix::process::kill_process(pid, signal);
                        return;
                    }
                    thread::sleep(TICK.saturating_mul(10));
                }
            };
            let _without_it_the_run_ends_by_itself =
                thread::Builder::new().spawn_scoped(scope, watch);
            let output = child.wait_with_output();
            is_over.store(true, Relaxed);
            output.map_err(|error| driftless_model::cause(&error))
        })
    }

    /// Returns a command that runs as the user.
    fn as_user(&self, program: &str) -> Command {
        let mut words = self.user.words();
        words.push(program.to_owned());
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command
    }
}

/// Socket to which the run of a user connects.
struct RelaySocket {
    listener: UnixListener,
    path: PathBuf,
}

impl RelaySocket {
    /// Listens in a directory that users can pass and not list. Only the user can connect.
    #[allow(clippy::disallowed_methods, reason = "a socket of the gateway itself")]
    fn new(dir: &Path, uid: u32) -> Result<Self, String> {
        let failed = |error: io::Error| {
            let dir = driftless_model::quote(dir);
            format!("{dir}: cannot listen: {}", driftless_model::cause(&error))
        };
        let made = DirBuilder::new().recursive(true).mode(0o711).create(dir);
        made.map_err(failed)?;
        let meta = rustix::fs::lstat(dir).map_err(|error| failed(error.into()))?;
        if meta.st_uid != rustix::process::geteuid().as_raw() {
            return Err(failed(ErrorKind::PermissionDenied.into()));
        }
        let path = dir.join(format!("{:016x}", fastrand::u64(..)));
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let socket = RelaySocket { listener, path };
        // The process has no umask. No other user may take the place of the run.
        let own = Permissions::from_mode(0o600);
        fs::set_permissions(&socket.path, own).map_err(failed)?;
        let given = chown(&socket.path, Some(Uid::from_raw(uid)), None::<Gid>);
        given.map_err(|error| failed(error.into()))?;
        socket.listener.set_nonblocking(true).map_err(failed)?;
        Ok(socket)
    }
}

#[allow(clippy::disallowed_methods, reason = "a socket of the gateway itself")]
impl Drop for RelaySocket {
    fn drop(&mut self) {
        let _it_is_of_no_use = fs::remove_file(&self.path);
    }
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

fn text(fault: OrderFault) -> String {
    fault.to_string()
}

fn unstarted(command: &Command, error: &io::Error) -> String {
    let program = driftless_model::escape(command.get_program().as_bytes());
    format!("{program}: cannot start: {}", driftless_model::cause(error))
}

fn output_of(command: &mut Command) -> Result<Output, String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| unstarted(command, &error))?;
    match output.status.success() {
        true => Ok(output),
        false => Err(complaint(&output)),
    }
}

/// Returns the last words of a program that failed.
fn complaint(output: &Output) -> String {
    let words = String::from_utf8_lossy(&output.stderr);
    let begin = words.len().saturating_sub(SHOWN_BYTES_MAX);
    let last = words.get(begin..).unwrap_or(&words);
    let last: Vec<&str> = last.split_whitespace().collect();
    match last.is_empty() {
        true => format!("the run ended with {}", output.status),
        false => driftless_model::escape_text(&last.join(" ")),
    }
}

/// Returns the counts of a run. A run that reported success and no counts is no failure.
fn collected_of(output: &Output) -> CollectedResults {
    let lines = String::from_utf8_lossy(&output.stdout);
    let summary = lines.lines().rev().find_map(|line| {
        let line: Option<CollectionSummary> = serde_json::from_str(line).ok();
        line.filter(|line| line.event == "summary")
    });
    summary.map_or_else(CollectedResults::default, |summary| CollectedResults {
        entries: summary.changed,
        bytes: summary.bytes_copied,
    })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a socket of the test")]
mod tests {
    use super::*;

    #[test]
    fn relay_socket_is_closed_to_others() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let own = rustix::process::geteuid().as_raw();
        let socket = RelaySocket::new(&folder.path().join("relay"), own).expect("a socket");
        let meta = fs::metadata(&socket.path).expect("there");
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        let path = socket.path.clone();
        drop(socket);
        assert!(fs::metadata(path).is_err());
    }
}
