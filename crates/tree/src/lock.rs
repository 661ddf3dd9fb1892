//! What a lock is asked for, and what came of it.

pub mod file;
pub mod host;
pub mod names;
pub mod started;

use crate::Hold;
use serde::{Deserialize, Serialize};

/// How far a lock reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// Runs on this host, those on a tree above or below this one included.
    Host,
    /// Runs on all hosts that share the locks of the file system.
    Everywhere,
    /// Runs on all hosts that share the locks of the file system, but only where a lock file stands
    /// already, of a run at work or of one that was killed: no file is made.
    Found,
    /// Runs on all hosts that share the locks of the file system, where a lock file stands already.
    /// Locks of directories above do not count: it is for a run that has locked one of them.
    Within,
    /// Nothing is locked: only who has the lock of this host is told.
    Seen,
}

/// What came of a lock.
pub enum Lock {
    /// It is held until this is dropped.
    Held(Hold),
    /// Another run has it; which one, if that can be told.
    Taken(Option<Holder>),
    /// A run that is over has left the file of this name, which this user may not remove.
    Left(Vec<u8>),
    /// There is none to be had, and why (errno(3)); 0 if nobody has the lock that was asked about
    /// with [`Reach::Seen`].
    Missing(i32),
}

/// Who has a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The number of its process.
    pub process: u32,
    /// The name of its host.
    pub host: Vec<u8>,
    /// Since when it has the lock, or runs: seconds since 1970. Locks of earlier forms do not tell.
    pub since: Option<i64>,
}

impl Holder {
    /// A process of this host.
    pub(crate) fn here(process: u32) -> Holder {
        let host = rustix::system::uname().nodename().to_bytes().to_vec();
        Holder {
            process,
            host,
            since: crate::lock::started::started(process),
        }
    }

    /// The lines of a lock file that programs read: one with the process and its host, and one with
    /// the time, which earlier forms do not have.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let since = self
            .since
            .map_or_else(String::new, |since| format!("{since}\n"));
        [
            format!("{} ", self.process).as_bytes(),
            &self.host,
            b"\n",
            since.as_bytes(),
        ]
        .concat()
    }

    pub(crate) fn decode(text: &[u8]) -> Option<Holder> {
        let mut lines = text.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
        let line = lines.next()?;
        let space = line.iter().position(|byte| *byte == b' ')?;
        let process = number(&line[..space])?;
        Some(Holder {
            process,
            host: line[space + 1..].to_vec(),
            since: lines.next().and_then(number),
        })
    }
}

fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
