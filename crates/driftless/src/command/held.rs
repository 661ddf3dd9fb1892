//! Who has a name: a mirror its job, an agent its own. The lock says that one has it, and the text
//! of the locked file which process of which host that is. The folder for state may be on a server,
//! so that the process is one of another host, which nothing here can ask or end.

use crate::command::job;
use crate::exit::Exit;
use crate::own;
use driftless_model::{cause, escape};
use driftless_tree::this_machine;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::system::uname;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::time::Duration;

/// The exit code, and what to say.
type Failure = (Exit, String);

/// Pause between two tries of a lock, and their number: a process that asks whether another one has
/// it has it itself for a moment.
const LOCK_EVERY: Duration = Duration::from_millis(20);
const LOCK_TIMES: u32 = 5;
/// Bytes of the text: a number, the name of a host (at most 64 bytes, escaped) and that of a boot.
const TEXT_BYTES_MAX: u64 = 400;

/// Holds a name as long as the value lives; its file names the process.
pub struct Held(#[allow(dead_code, reason = "the lock goes with it")] File);

/// Process that has a name, as the file of its lock says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The process in words, and its host if that is another one.
    pub words: String,
    /// The host, if it is another one.
    pub elsewhere: Option<String>,
}

impl Holder {
    /// Reads the text of a locked file; `machine` is the boot of this host, empty if that is unknown.
    fn of_text(text: &str, machine: &str) -> Holder {
        let mut lines = text.lines();
        let process = lines.next().filter(|process| !process.is_empty());
        let process = process.unwrap_or("another process").to_owned();
        let mut told = |key: &str| lines.next()?.strip_prefix(key).map(str::to_owned);
        let (host, boot) = (told("host "), told("boot "));
        let is_other = boot.is_some_and(|boot| !boot.is_empty() && boot != machine);
        match host.filter(|_| is_other && !machine.is_empty()) {
            None => Holder {
                words: process,
                elsewhere: None,
            },
            Some(host) => Holder {
                words: format!("{process} on the host \"{host}\""),
                elsewhere: Some(host),
            },
        }
    }

    /// Returns a process of which nothing is known.
    pub fn unknown() -> Holder {
        Holder::of_text("", "")
    }

    /// Returns what is to be done about a process that neither answers nor ends.
    pub fn way_out(&self) -> String {
        match &self.elsewhere {
            Some(host) => format!("only the host \"{host}\" can ask or end it: do that there"),
            None => "look at it with ps, have it go on with kill -CONT, or end it with kill -KILL"
                .into(),
        }
    }
}

/// Returns the text for the file of a lock that this process has.
fn own_text() -> String {
    let (process, host) = (std::process::id(), uname());
    let host = escape(host.nodename().to_bytes());
    format!("process {process}\nhost {host}\nboot {}\n", machine())
}

/// Returns the boot of this host; nothing if it cannot be read.
fn machine() -> String {
    String::from_utf8(this_machine()).unwrap_or_default()
}

/// Holds a name by a file in the folder for state; `taken` is what is said of the process that has
/// it.
pub fn hold(lock: &str, name: &str, taken: &str) -> Result<Held, Failure> {
    let failed = |why: String| (Exit::CouldNotRun, format!("{name}: {why}"));
    let path = job::file(lock)?;
    let mut lock = own::job_lock(&path).map_err(|error| failed(cause(&error)))?;
    match lock_now(&lock) {
        Ok(()) => {}
        Err(Errno::AGAIN) => {
            let why = format!("{name}: {} {taken}", named_in(&lock).words);
            return Err((Exit::Locked, why));
        }
        Err(error) => return Err(failed(cause(&error.into()))),
    }
    let write = |lock: &mut File| {
        lock.set_len(0)?;
        lock.rewind()?;
        lock.write_all(own_text().as_bytes())
    };
    write(&mut lock).map_err(|error| failed(cause(&error)))?;
    Ok(Held(lock))
}

fn lock_now(lock: &File) -> Result<(), Errno> {
    for _ in 1..LOCK_TIMES {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) => std::thread::sleep(LOCK_EVERY),
            done => return done,
        }
    }
    flock(lock, FlockOperation::NonBlockingLockExclusive)
}

/// Returns the process that the file of a lock names.
fn named_in(lock: &File) -> Holder {
    let mut text = String::new();
    let _unknown_otherwise = lock.take(TEXT_BYTES_MAX).read_to_string(&mut text);
    Holder::of_text(&text, &machine())
}

/// Returns the process that has a name by this file in the folder for state, if one has.
#[allow(
    clippy::disallowed_methods,
    reason = "our own file, no part of a replicated tree"
)]
pub fn holder(lock: &str, name: &str) -> Result<Option<Holder>, Failure> {
    let failed = |error: io::Error| (Exit::CouldNotRun, format!("{name}: {}", cause(&error)));
    let lock = match File::open(job::file(lock)?) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    match flock(&lock, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(None),
        Err(Errno::AGAIN) => Ok(Some(named_in(&lock))),
        Err(error) => Err(failed(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_of_another_boot_is_elsewhere() {
        for (text, machine, words, elsewhere) in [
            ("process 7\nhost a\nboot 1\n", "1", "process 7", None),
            (
                "process 7\nhost a\nboot 2\n",
                "1",
                "process 7 on the host \"a\"",
                Some("a"),
            ),
            ("process 7\nhost a\nboot 2\n", "", "process 7", None),
            ("process 7\nhost a\nboot \n", "1", "process 7", None),
            ("process 7\n", "1", "process 7", None),
            ("", "1", "another process", None),
        ] {
            let told = Holder::of_text(text, machine);
            assert_eq!(told.words, words, "{text}");
            assert_eq!(told.elsewhere.as_deref(), elsewhere, "{text}");
        }
        let own = Holder::of_text(&own_text(), &machine());
        let process = format!("process {}", std::process::id());
        assert_eq!((own.words, own.elsewhere), (process, None));
    }
}
