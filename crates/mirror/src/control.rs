//! How a mirror that runs is asked: a socket, one line of JSON for a question and one for its
//! answer.
//!
//! Only the user whose mirror it is and root may ask; the kernel says who does (unix(7),
//! `SO_PEERCRED`). The socket lies in a folder that is closed to others.

use crate::ask::{Answer, Ask};
use crate::hub;
use crate::message::Inboxes;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::Builder;
use std::time::Duration;

/// Bytes of a question.
const QUESTION_BYTES_MAX: u64 = 64 << 10;
/// Bytes of an answer: that about problems is the longest.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// A socket takes a limit of nothing for none.
const LIMIT_MIN: Duration = Duration::from_millis(1);

/// Begins to hear questions at a socket. What stands at `path` goes: whoever calls this holds the
/// job.
///
/// # Errors
/// The socket cannot be made.
#[allow(
    clippy::disallowed_methods,
    reason = "our own socket, no part of a replicated tree"
)]
pub fn listen(path: &Path, inboxes: Inboxes) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    let serve = move || {
        for stream in listener.incoming().flatten() {
            let inboxes = inboxes.clone();
            let answer = move || {
                let _it_may_have_hung_up = serve(&stream, &inboxes);
            };
            let _without_a_thread_nobody_answers =
                Builder::new().name("control".into()).spawn(answer);
        }
    };
    Builder::new().name("control".into()).spawn(serve)?;
    Ok(())
}

/// Answers the questions of one connection.
fn serve(stream: &UnixStream, inboxes: &Inboxes) -> io::Result<()> {
    if !may_ask(stream) {
        return Ok(());
    }
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut lines).take(QUESTION_BYTES_MAX);
        if bounded.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let answer = match serde_json::from_slice(&line) {
            Ok(ask) => hub::ask(inboxes, &ask),
            Err(error) => Answer::Refused(format!("no question: {error}")),
        };
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        (&mut &*stream).write_all(&text)?;
    }
}

fn may_ask(stream: &UnixStream) -> bool {
    socket_peercred(stream)
        .is_ok_and(|who| who.uid.is_root() || who.uid == rustix::process::geteuid())
}

/// Asks the mirror that listens at `path`, and waits for as long as [the question](Ask::limit) may
/// take.
///
/// # Errors
/// None listens there, it hung up, or it did not answer in time (`TimedOut`).
pub fn ask(path: &Path, ask: &Ask) -> io::Result<Answer> {
    ask_within(path, ask, ask.limit())
}

/// Asks the mirror that listens at `path`, and waits for so long at most: to be connected, to be
/// heard, and to be answered.
///
/// # Errors
/// None listens there, it hung up, or it did not answer in time (`TimedOut`).
pub fn ask_within(path: &Path, ask: &Ask, limit: Option<Duration>) -> io::Result<Answer> {
    asked(path, ask, limit).map_err(|error| match error.kind() {
        // What a socket with a limit says when that is over (socket(7), `SO_RCVTIMEO`).
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    })
}

fn asked(path: &Path, ask: &Ask, limit: Option<Duration>) -> io::Result<Answer> {
    let stream = connect(path, limit)?;
    let mut text = serde_json::to_vec(ask)?;
    text.push(b'\n');
    (&mut &stream).write_all(&text)?;
    let mut answer = Vec::new();
    let mut bounded = BufReader::new(&stream).take(ANSWER_BYTES_MAX);
    if bounded.read_until(b'\n', &mut answer)? == 0 {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    Ok(serde_json::from_slice(&answer)?)
}

/// A process that hangs takes no connection any more, and so many wait: to connect has a limit, too.
fn connect(path: &Path, limit: Option<Duration>) -> io::Result<UnixStream> {
    let limit = limit.map(|limit| limit.max(LIMIT_MIN));
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    set_socket_timeout(&socket, Timeout::Send, limit)?;
    set_socket_timeout(&socket, Timeout::Recv, limit)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}
