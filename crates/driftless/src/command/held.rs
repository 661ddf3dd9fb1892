//! Who has a name: a mirror its job, an agent its own. The lock says that one has it, and the text
//! of the locked file which process of which host that is. The folder for state may be on a server,
//! so that the process is one of another host, which nothing here can ask or end.
//!
//! A server, or a mount of it, may not share locks between hosts. There a process changes the text
//! all the time (a *beat*), and one that ends takes its host out of the text: a free lock whose text
//! names another host is watched for a beat before it counts as free.

use crate::exit::Exit;
use crate::output::mirror as say;
use crate::own;
use driftless_lock::Mutex;
use driftless_model::{cause, escape};
use driftless_tree::{may_be_shared, this_machine};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::system::uname;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// The exit code, and what to say.
type Failure = (Exit, String);

/// Pause between two tries of a lock, and their number: a process that asks whether another one has
/// it has it itself for a moment.
const LOCK_EVERY: Duration = Duration::from_millis(20);
const LOCK_TIMES: u32 = 5;
/// Bytes of the text: a number, the name of a host (at most 64 bytes, escaped) and that of a boot.
const TEXT_BYTES_MAX: u64 = 400;

/// Interval of beats.
const BEAT_EVERY: Duration = Duration::from_secs(3);
/// Time without a beat after which a process of another host has ended.
const BEAT_WATCH: Duration = Duration::from_secs(10);
/// Between two looks at a text that may change.
const BEAT_LOOK: Duration = Duration::from_millis(100);

/// Files of locks that this process has watched, and that had no beat.
static WATCHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Holds a name as long as the value lives; its file names the process.
pub struct Held {
    lock: File,
    /// Its drop ends the beats.
    _beats: Option<Sender<()>>,
}

impl Held {
    /// Names this process in the file of a lock that it has.
    fn begin(lock: File) -> io::Result<Held> {
        lock.set_len(0)?;
        lock.write_all_at(own_text(0).as_bytes(), 0)?;
        let beats = may_be_shared(&lock).then(|| lock.try_clone().and_then(beat));
        Ok(Held {
            lock,
            _beats: beats.transpose()?,
        })
    }
}

impl Drop for Held {
    /// Takes the host out of the text.
    fn drop(&mut self) {
        let _others_watch_it_otherwise = self.lock.set_len(own_process().len() as u64);
    }
}

/// Changes the text of a lock until the sender is dropped. Each change is flushed, for other hosts to
/// see it.
fn beat(lock: File) -> io::Result<Sender<()>> {
    let (sender, over) = channel();
    let beats = move || {
        let mut number = 0;
        while over.recv_timeout(BEAT_EVERY) == Err(RecvTimeoutError::Timeout) {
            number += 1;
            let written = lock.write_all_at(own_text(number).as_bytes(), 0);
            let _the_next_may_come_through = written.and_then(|()| lock.sync_data());
        }
    };
    Builder::new().name("beat".into()).spawn(beats)?;
    Ok(sender)
}

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

/// Returns the first line of that text, which stays when the process has ended.
fn own_process() -> String {
    format!("process {}\n", std::process::id())
}

/// Returns the text for the file of a lock that this process has; all texts have one length.
fn own_text(beat: u64) -> String {
    let (process, host) = (own_process(), own_host());
    format!(
        "{process}host {host}\nboot {}\nbeat {beat:020}\n",
        machine()
    )
}

/// Returns the name of this host.
fn own_host() -> String {
    escape(uname().nodename().to_bytes())
}

/// Returns the boot of this host; nothing if it cannot be read.
fn machine() -> String {
    String::from_utf8(this_machine()).unwrap_or_default()
}

/// Holds a name by a file in the folder for state; `taken` is what is said of the process that has
/// it.
pub fn hold(lock: &str, name: &str, taken: &str) -> Result<Held, Failure> {
    let failed = |why: String| (Exit::CouldNotRun, format!("{name}: {why}"));
    let path = own::state_folder().map_err(failed)?.join(lock);
    let lock = own::job_lock(&path).map_err(|error| failed(cause(&error)))?;
    let holder = match lock_now(&lock) {
        Ok(()) => unseen(&path, &lock, name),
        Err(Errno::AGAIN) => Some(named_in(&path)),
        Err(error) => return Err(failed(cause(&error.into()))),
    };
    if let Some(holder) = holder {
        return Err((Exit::Locked, format!("{name}: {} {taken}", holder.words)));
    }
    Held::begin(lock).map_err(|error| failed(cause(&error)))
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
fn named_in(path: &Path) -> Holder {
    Holder::of_text(&text_in(path), &machine())
}

/// Returns the text of a file, which is opened anew: other hosts see what was written before that.
#[allow(
    clippy::disallowed_methods,
    reason = "our own file, no part of a replicated tree"
)]
fn text_in(path: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| {
        file.take(TEXT_BYTES_MAX)
            .read_to_string(&mut text)
            .map(drop)
    });
    let _nothing_is_named_otherwise = read;
    text
}

/// Returns the process of another host that has a lock which is free on this one.
fn unseen(path: &Path, lock: &File, name: &str) -> Option<Holder> {
    if !may_be_shared(lock) || WATCHED.lock().contains(path) {
        return None;
    }
    let text = text_in(path);
    let left = of_other_host(&text)?;
    say::complaint(&format!(
        "{name}: looking for {} s whether {} still has it",
        BEAT_WATCH.as_secs(),
        left.words
    ));
    let found = beats_within(BEAT_WATCH, path, &text);
    if found.is_none() {
        WATCHED.lock().insert(path.to_owned());
    }
    found
}

/// Returns the process that a text names, if it is one of another host. A host that was started again
/// has another boot, and its former name.
fn of_other_host(text: &str) -> Option<Holder> {
    let holder = Holder::of_text(text, &machine());
    let is_other = holder
        .elsewhere
        .as_ref()
        .is_some_and(|host| *host != own_host());
    is_other.then_some(holder)
}

/// Returns the process of another host that changes the text of a file within a time.
fn beats_within(limit: Duration, path: &Path, text: &str) -> Option<Holder> {
    let began = Instant::now();
    while began.elapsed() < limit {
        sleep(BEAT_LOOK);
        let now = text_in(path);
        if now != text {
            return of_other_host(&now);
        }
    }
    None
}

/// Returns the process that has a name by this file in the folder for state, if one has.
#[allow(
    clippy::disallowed_methods,
    reason = "our own file, no part of a replicated tree"
)]
pub fn holder(lock: &str, name: &str) -> Result<Option<Holder>, Failure> {
    let failed = |error: io::Error| (Exit::CouldNotRun, format!("{name}: {}", cause(&error)));
    let folder = own::state_folder().map_err(|why| (Exit::CouldNotRun, why))?;
    let path = folder.join(lock);
    let lock = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    match flock(&lock, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            // A mirror of this host may begin meanwhile.
            flock(&lock, FlockOperation::Unlock).map_err(|error| failed(error.into()))?;
            Ok(unseen(&path, &lock, name))
        }
        Err(Errno::AGAIN) => Ok(Some(named_in(&path))),
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
        let own = Holder::of_text(&own_text(1), &machine());
        assert_eq!(format!("{}\n", own.words), own_process());
        assert_eq!(own.elsewhere, None);
        assert_eq!(own_text(1).len(), own_text(u64::MAX).len());
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a file of the test")]
    fn process_of_another_host_goes_on_while_it_beats() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let beat = |host: &str, beat: u32| {
            let text = format!("process 7\nhost {host}\nboot another\nbeat {beat:020}\n");
            std::fs::write(&path, &text).expect("written");
            text
        };
        let (none, moment) = (Duration::ZERO, Duration::from_secs(60));
        let text = beat("far", 1);
        assert_eq!(beats_within(none, &path, &text), None);
        beat("far", 2);
        let found = beats_within(moment, &path, &text).expect("it goes on");
        assert_eq!(found.elsewhere.as_deref(), Some("far"));
        // It has ended meanwhile.
        std::fs::write(&path, own_process()).expect("written");
        assert_eq!(beats_within(moment, &path, &text), None);
        let before = beat(&own_host(), 1);
        assert_eq!(of_other_host(&before), None, "it was started again");
        let held = Held::begin(own::job_lock(&path).expect("a lock")).expect("held");
        assert_eq!(text_in(&path), own_text(0));
        drop(held);
        assert_eq!(text_in(&path), own_process());
    }
}
