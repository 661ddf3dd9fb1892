//! How a mirror that runs is asked: a socket, one line of JSON for a question and one for its
//! answer.
//!
//! The user whose mirror it is and root may ask for anything, at a socket in a folder that is closed
//! to others. Members of a group may ask for what changes nothing, at a second socket that the kernel
//! lets them connect to (unix(7)). Nothing of what a client says about itself is believed: the kernel
//! says which user asks (`SO_PEERCRED`).

use crate::ask::{Answer, Ask, AskState, Question, forbidden};
use crate::hub;
use crate::message::Inboxes;
use driftless_detect::take_each;
use driftless_lock::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use rustix::process::Uid;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Bytes of a question.
const QUESTION_BYTES_MAX: u64 = 64 << 10;
/// Bytes of an answer: that about problems is the longest.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// A socket takes a limit of nothing for none.
const LIMIT_MIN: Duration = Duration::from_millis(1);
/// Connections that wait to be taken.
const BACKLOG: i32 = 128;
/// Connections at a socket at the same time, most of which wait for a barrier.
const CONNECTIONS_MAX: usize = 256;
/// Connections of one operator at the same time.
const CONNECTIONS_OF_USER_MAX: usize = 16;
/// The longest that a client takes for a question, and for the next part of its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers a question from the mirror's state, or says why it cannot.
pub type StateReader = dyn Fn(&AskState) -> Result<String, String> + Send + Sync;

/// What answers at the sockets of a mirror.
#[derive(Clone)]
pub struct Desk {
    /// The replicas.
    pub inboxes: Inboxes,
    /// The mirror's state.
    pub state: Arc<StateReader>,
}

/// A group whose members may ask for what changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operators {
    /// Its name.
    pub group: String,
    /// Its number.
    pub gid: u32,
    /// The socket for its members.
    pub socket: PathBuf,
}

/// Begins to hear questions at a socket. What stands at `path` goes: whoever calls this holds the
/// job.
///
/// # Errors
/// The socket cannot be made.
pub fn listen(path: &Path, desk: Desk) -> io::Result<()> {
    serve_at(bound(path, None)?, desk, None)
}

/// Begins to hear questions of members of a group, as [`listen`] does.
///
/// # Errors
/// The socket cannot be made, or not be given to the group.
pub fn listen_to(operators: &Operators, desk: Desk) -> io::Result<()> {
    let listener = bound(&operators.socket, Some(operators.gid))?;
    serve_at(listener, desk, Some(operators.group.clone()))
}

/// Makes a socket for this user, and for a group. Nothing can connect before its mode is set: until
/// then it does not listen.
#[allow(
    clippy::disallowed_methods,
    reason = "our own socket, no part of a replicated tree"
)]
fn bound(path: &Path, gid: Option<u32>) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = socket()?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    if gid.is_some() {
        chown(path, None, gid)?;
    }
    // Connecting takes the right to write (unix(7)).
    let mode = if gid.is_some() { 0o660 } else { 0o600 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

fn serve_at(listener: UnixListener, desk: Desk, group: Option<String>) -> io::Result<()> {
    let room = Arc::new(Room::default());
    let serve = move || {
        take_each(&listener, |stream| {
            let Ok(who) = socket_peercred(&stream) else {
                return;
            };
            if group.is_none() && !is_own(who.uid) {
                return;
            }
            let Some(place) = room.enter(who.uid, group.is_none()) else {
                return turn_away(&stream);
            };
            let (desk, group) = (desk.clone(), group.clone());
            let answer = move || {
                let _place = place;
                let group = group.filter(|_| !is_own(who.uid));
                let _it_may_have_hung_up = serve(&stream, &desk, group.as_deref());
            };
            let _without_a_thread_nobody_answers =
                Builder::new().name("control".into()).spawn(answer);
        });
    };
    Builder::new().name("control".into()).spawn(serve)?;
    Ok(())
}

/// The connections at a socket, by the number of the user.
#[derive(Default)]
struct Room(Mutex<BTreeMap<u32, usize>>);

/// The place of a connection, which is free again when the value is dropped.
struct Place(Arc<Room>, u32);

impl Room {
    /// Takes a place for a connection of a user, if there is one; a socket of one user has no limit
    /// for each.
    fn enter(self: &Arc<Room>, user: Uid, is_of_one_user: bool) -> Option<Place> {
        let mut open = self.0.lock();
        let all: usize = open.values().sum();
        let own = open.entry(user.as_raw()).or_default();
        let max = match is_of_one_user || is_own(user) {
            true => CONNECTIONS_MAX,
            false => CONNECTIONS_OF_USER_MAX,
        };
        if all >= CONNECTIONS_MAX || *own >= max {
            return None;
        }
        *own += 1;
        Some(Place(self.clone(), user.as_raw()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.0.0.lock();
        if let Some(own) = open.get_mut(&self.1) {
            *own -= 1;
        }
        open.retain(|_, own| *own > 0);
    }
}

/// Says that too many ask. Nothing waits for the client: a connection that is new has room for a line.
fn turn_away(mut stream: &UnixStream) {
    let busy = format!(
        "the mirror answers as many as it can, {CONNECTIONS_MAX} at a time and {CONNECTIONS_OF_USER_MAX} of each operator: ask again"
    );
    let Ok(mut text) = serde_json::to_vec(&Answer::Busy(busy)) else {
        return;
    };
    text.push(b'\n');
    if stream.set_nonblocking(true).is_ok() {
        let _it_may_have_hung_up = stream.write_all(&text);
    }
}

/// Answers the questions of one connection: those of a member of a group if one is named.
fn serve(stream: &UnixStream, desk: &Desk, group: Option<&str>) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(Timed {
        stream,
        until: Instant::now(),
    });
    let is_awaited = || !has_hung_up(stream);
    loop {
        lines.get_mut().until = Instant::now() + PATIENCE;
        let mut line = Vec::new();
        let mut bounded = (&mut lines).take(QUESTION_BYTES_MAX);
        if bounded.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let mut text = serde_json::to_vec(&desk.answer(&line, group, &is_awaited))?;
        text.push(b'\n');
        (&mut &*stream).write_all(&text)?;
    }
}

/// A connection that is read until a moment, however slowly its client writes.
struct Timed<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left.max(LIMIT_MIN)))?;
        self.stream.read(buffer)
    }
}

/// Returns whether the client has closed a connection: one that only writes no more still reads
/// (poll(2), `POLLHUP`).
fn has_hung_up(stream: &UnixStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::empty())];
    let looked = poll(&mut polled, Some(&Timespec::default()));
    looked.is_ok() && polled[0].revents().contains(PollFlags::HUP)
}

impl Desk {
    /// Answers a question; that of a member of a group if one is named.
    fn answer(&self, line: &[u8], group: Option<&str>, is_awaited: &dyn Fn() -> bool) -> Answer {
        match (serde_json::from_slice(line), group) {
            (Err(error), _) => Answer::Refused(format!("no question: {error}")),
            (Ok(Question::State(ask)), _) => {
                (self.state)(&ask).map_or_else(Answer::Refused, Answer::Report)
            }
            (Ok(Question::Mirror(ask)), Some(group)) if !ask.only_reads() => {
                Answer::Forbidden(forbidden(ask.word(), group))
            }
            (Ok(Question::Mirror(ask)), _) => hub::ask_while(&self.inboxes, &ask, is_awaited),
        }
    }
}

/// Returns whether a user is that of this process, or root.
fn is_own(user: Uid) -> bool {
    user.is_root() || user == rustix::process::geteuid()
}

/// Asks the mirror that listens at `path`, and waits for as long as [the question](Ask::limit) may
/// take.
///
/// # Errors
/// None listens there, it hung up, or it did not answer in time (`TimedOut`).
pub fn ask(path: &Path, ask: &Ask) -> io::Result<Answer> {
    ask_within(path, ask, ask.limit())
}

/// Asks the mirror that listens at `path`, an [`Ask`] or an [`AskState`], and waits for so long at
/// most: to be connected, to be heard, and to be answered.
///
/// # Errors
/// None listens there, it hung up, or it did not answer in time (`TimedOut`).
pub fn ask_within(
    path: &Path,
    ask: &impl Serialize,
    limit: Option<Duration>,
) -> io::Result<Answer> {
    asked(path, ask, limit).map_err(|error| match error.kind() {
        // What a socket with a limit says when that is over (socket(7), `SO_RCVTIMEO`).
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    })
}

fn asked(path: &Path, ask: &impl Serialize, limit: Option<Duration>) -> io::Result<Answer> {
    let stream = connect(path, limit)?;
    let mut text = serde_json::to_vec(ask)?;
    text.push(b'\n');
    let sent = (&mut &stream).write_all(&text);
    let mut answer = Vec::new();
    let mut bounded = BufReader::new(&stream).take(ANSWER_BYTES_MAX);
    // A mirror that turns a client away says so before it has read the question.
    let received = bounded.read_until(b'\n', &mut answer);
    if answer.is_empty() {
        sent?;
    }
    if received? == 0 {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    Ok(serde_json::from_slice(&answer)?)
}

/// A process that hangs takes no connection any more, and so many wait: to connect has a limit, too.
fn connect(path: &Path, limit: Option<Duration>) -> io::Result<UnixStream> {
    let limit = limit.map(|limit| limit.max(LIMIT_MIN));
    let socket = socket()?;
    set_socket_timeout(&socket, Timeout::Send, limit)?;
    set_socket_timeout(&socket, Timeout::Recv, limit)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}
