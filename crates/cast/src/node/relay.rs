//! An agent that reads the sealed results of a job, with its standard streams carried over the connection
//! of a coordinator.
//!
//! The agent runs as the owner of the results, never as root for another user. Bytes wait in the
//! connection while an end does not read. The end of the agent ends the relay, and the end of the
//! connection ends the agent.

use crate::message::{
    NodeMessage, RELAY_BYTES_MAX, TEXT_CHARS_MAX, encode, is_job_name, kind, shown,
};
use crate::node::host::NodeHost;
use crate::node::inputs::{ControlInput, next_input};
use crate::node::jobs::{NO_NAME, failed, refused};
use crossbeam_channel::Receiver;
use driftless_dataplane::{BundleSender, LinkHandle};
use driftless_store::SealedPlace;
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Pause between two looks at the agent.
const TICK: Duration = Duration::from_millis(20);
/// Bytes of standard error that are kept.
const COMPLAINT_BYTES_MAX: usize = 2000;
/// Programs of the system, for an agent without an environment.
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
/// End of the path of a running program whose file was replaced (proc(5), `/proc/PID/exe`).
const DELETED: &[u8] = b" (deleted)";

/// Connection of a coordinator that sends orders without a cast.
pub(crate) struct OrderLink<'a> {
    pub sender: &'a BundleSender,
    pub handles: &'a [LinkHandle],
    pub control: &'a Receiver<ControlInput>,
}

impl OrderLink<'_> {
    /// Sends a message. Returns whether the connection took it.
    pub fn send(&self, message: &NodeMessage) -> bool {
        let sent = self.sender.send_control(kind::NODE, &[&encode(message)]);
        sent.is_ok()
    }

    fn has_failed(&self) -> bool {
        self.handles.iter().any(LinkHandle::has_failed)
    }

    fn abort(&self) {
        for handle in self.handles {
            handle.abort("the node ends");
        }
    }
}

/// Starts an agent for the sealed results of a job, and carries its bytes. Returns the answer for the
/// coordinator.
pub(crate) fn relay(host: &NodeHost, link: &OrderLink<'_>, job: &str) -> NodeMessage {
    if !is_job_name(job) {
        return refused(NO_NAME);
    }
    let Some(_relay) = host.begin_relay() else {
        return NodeMessage::OrderFailed {
            reason: "too many results are collected from this node now; try again later".into(),
            is_busy: true,
        };
    };
    let place = match host.store.sealed_place(job) {
        Ok(place) => place,
        Err(error) => return failed(&error),
    };
    let mut agent = match start_agent(host, &place) {
        Ok(agent) => agent,
        Err(cause) => return refused(&cause),
    };
    let streams = (agent.stdin.take(), agent.stdout.take(), agent.stderr.take());
    let (Some(input), Some(output), Some(errors)) = streams else {
        end(&mut agent);
        return refused("the agent has no standard streams");
    };
    if !link.send(&NodeMessage::Relaying) {
        end(&mut agent);
    }
    let (code, detail) = carry(host, link, &mut agent, (input, output, errors));
    tracing::info!(
        "results of the job {} were read as user {}",
        shown(job),
        place.owner
    );
    NodeMessage::RelayEnded { code, detail }
}

fn end(agent: &mut Child) {
    let _it_has_ended = agent.kill();
}

/// Carries bytes both ways until the agent has ended. Returns its exit code and its last words.
fn carry(
    host: &NodeHost,
    link: &OrderLink<'_>,
    agent: &mut Child,
    (input, output, errors): (ChildStdin, ChildStdout, ChildStderr),
) -> (Option<i32>, String) {
    let is_lost = || host.is_stopped() || link.has_failed();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| feed_agent(link.control, input, &is_over));
        let words = scope.spawn(|| last_words(errors));
        let sending = scope.spawn(|| send_output(output, link.sender));
        let code = wait_for(agent, &is_lost);
        // The connection may still take the last bytes.
        while !sending.is_finished() {
            if is_lost() {
                link.abort();
            }
            std::thread::sleep(TICK);
        }
        is_over.store(true, Relaxed);
        (code, words.join().unwrap_or_default())
    })
}

/// Waits for the end of an agent, which is killed once the connection is lost. Returns its exit code.
fn wait_for(agent: &mut Child, is_lost: &dyn Fn() -> bool) -> Option<i32> {
    loop {
        match agent.try_wait() {
            Ok(Some(status)) => return status.code(),
            Ok(None) if is_lost() => end(agent),
            Ok(None) => {}
            Err(_) => return None,
        }
        std::thread::sleep(TICK);
    }
}

/// Writes bytes of the coordinator to an agent. The end of the coordinator's bytes is the end of its input.
fn feed_agent(control: &Receiver<ControlInput>, input: ChildStdin, is_over: &AtomicBool) {
    let mut input = Some(input);
    while let Some(next) = next_input(control, || is_over.load(Relaxed)) {
        let is_fed = match (next, &mut input) {
            (ControlInput::Relay(bytes), Some(input)) => input.write_all(&bytes).is_ok(),
            (ControlInput::RelayEnd, _) => false,
            // Bytes for an agent that takes no more must not hold up the connection.
            _ => continue,
        };
        if !is_fed {
            input = None;
        }
    }
}

/// Sends the output of an agent, and its end.
fn send_output(mut output: ChildStdout, link: &BundleSender) {
    let mut buffer = vec![0; RELAY_BYTES_MAX];
    loop {
        let sent = match output.read(&mut buffer) {
            Ok(0) => {
                let _the_coordinator_may_be_gone = link.send_control(kind::RELAY_END, &[]);
                return;
            }
            Ok(count) => {
                let bytes = buffer.get(..count).unwrap_or_default();
                link.send_control(kind::RELAY, &[bytes])
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Reads standard error to its end. Returns its last bytes as text.
fn last_words(mut errors: ChildStderr) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = errors.read(&mut buffer) {
        kept.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let surplus = kept.len().saturating_sub(COMPLAINT_BYTES_MAX);
        kept.drain(..surplus);
    }
    let text = String::from_utf8_lossy(kept.trim_ascii()).into_owned();
    text.chars().take(TEXT_CHARS_MAX).collect()
}

/// Starts an agent that can read one directory, with the rights of its owner.
fn start_agent(host: &NodeHost, place: &SealedPlace) -> Result<Child, String> {
    let mut command = agent_command(&program_of(host)?, place)?;
    // The shell of ssh may have set SSH_ORIGINAL_COMMAND, which an agent obeys.
    command
        .env_clear()
        .env("PATH", SYSTEM_PATH)
        .current_dir("/");
    let piped = (Stdio::piped(), Stdio::piped(), Stdio::piped());
    let command = command.stdin(piped.0).stdout(piped.1).stderr(piped.2);
    command.spawn().map_err(|error| {
        let program = driftless_model::quote(command.get_program().as_ref());
        let cause = driftless_model::cause(&error);
        format!("{program}: cannot start the agent of the results: {cause}; install it on the node")
    })
}

fn agent_command(program: &std::path::Path, place: &SealedPlace) -> Result<Command, String> {
    let own = rustix::process::geteuid();
    let mut command = match own.as_raw() == place.owner {
        true => Command::new(program),
        false if own.is_root() => {
            let group = group_of(place.owner)?;
            let mut setpriv = Command::new("setpriv");
            setpriv.arg(format!("--reuid={}", place.owner));
            setpriv.arg(format!("--regid={group}"));
            setpriv.args(["--init-groups", "--no-new-privs", "--"]);
            setpriv.arg(program);
            setpriv
        }
        false => {
            let (own, owner) = (own.as_raw(), place.owner);
            return Err(format!(
                "results of the user {owner}: this node runs as the user {own}, who cannot read them; run it as root"
            ));
        }
    };
    command.arg("agent").arg("--only").arg(&place.path);
    // Landlock would protect the owner from the owner, and old kernels lack it.
    command.args(["--read-only", "--without-landlock"]);
    Ok(command)
}

/// Returns the program of agents: that of the settings, or the one of this process.
fn program_of(host: &NodeHost) -> Result<PathBuf, String> {
    if let Some(program) = &host.settings.program {
        return Ok(program.clone());
    }
    let own = std::env::current_exe().map_err(|error| {
        let cause = driftless_model::cause(&error);
        format!("cannot find the program of this node: {cause}; mount /proc")
    })?;
    let bytes = own.as_os_str().as_bytes();
    let bytes = bytes.strip_suffix(DELETED).unwrap_or(bytes);
    Ok(std::ffi::OsString::from_vec(bytes.to_vec()).into())
}

/// Returns the GID of the first group of a user. getent(1) asks all sources that the system has.
fn group_of(uid: u32) -> Result<u32, String> {
    let mut getent = Command::new("getent");
    getent.args(["passwd", &uid.to_string()]);
    let output = getent.stdin(Stdio::null()).output().map_err(|error| {
        let cause = driftless_model::cause(&error);
        format!("getent: cannot start: {cause}; install it on the node")
    })?;
    let line = String::from_utf8_lossy(&output.stdout);
    let mut fields = line.lines().next().unwrap_or_default().split(':').skip(2);
    let found = (
        fields.next(),
        fields.next().and_then(|gid| gid.parse().ok()),
    );
    match found {
        (Some(own), Some(gid)) if own == uid.to_string() => Ok(gid),
        _ => Err(format!(
            "no user of this node has the UID {uid}; give the node the users of the batch system"
        )),
    }
}
