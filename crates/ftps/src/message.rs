//! Messages between a session and its server: one JSON object a line, over the Unix socket that is
//! the standard output of a session.
//!
//! A session asks, and the server answers each question. The session ends when the server closes the
//! socket.

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

/// Longest message in bytes.
const MESSAGE_BYTES_MAX: u64 = 4096;

/// Question of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionQuestion {
    /// A client wants to try a login with this user name.
    Attempt(String),
    /// A client proved to be this user, and wants a session more.
    LogIn(String),
    /// A client proved to be this user without an attempt, and wants a session more.
    Certified(String),
}

/// Answer of the server. The text is the reason of a refusal.
pub type ServerAnswer = Result<(), String>;

/// Sends one message.
pub fn send(mut to: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Receives one message. Returns `None` if the other side closed the socket.
pub fn receive<T: for<'a> Deserialize<'a>>(
    from: &mut BufReader<UnixStream>,
) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    from.by_ref()
        .take(MESSAGE_BYTES_MAX)
        .read_until(b'\n', &mut line)?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(serde_json::from_slice(&line)?)),
        Some(_) => Err(ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_arrives_as_it_was_sent() {
        let (one, other) = UnixStream::pair().unwrap();
        let sent = SessionQuestion::Attempt("a \"b\"\n".to_owned());
        send(&one, &sent).unwrap();
        drop(one);
        let mut other = BufReader::new(other);
        assert_eq!(receive(&mut other).unwrap(), Some(sent));
        assert_eq!(receive::<SessionQuestion>(&mut other).unwrap(), None);
    }

    #[test]
    fn message_without_end_is_refused() {
        let (one, other) = UnixStream::pair().unwrap();
        (&one).write_all(&[b'a'; 5000]).unwrap();
        let mut other = BufReader::new(other);
        assert!(receive::<SessionQuestion>(&mut other).is_err());
    }
}
