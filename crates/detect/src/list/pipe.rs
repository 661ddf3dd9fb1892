//! Paths that programs write into a named pipe (fifo(7)).
//!
//! Lines of several writers do not mix as long as each is written at once and has 4,096 bytes at most
//! (`PIPE_BUF`). The reader never waits for a writer, and a pipe that is open for reading all the time
//! keeps what was written also while it is opened anew. What is in the pipe when the process ends is
//! gone; all is compared when the next one begins.

use super::{Format, List};
use crate::base::Base;
use crate::detector::{Deaf, Detector, Heard, Seen, Waker};
use crate::lines::LINE_BYTES_MAX;
use driftless_model::quote;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, mknodat, open, stat};
use rustix::io::{Errno, read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are read at once: what a pipe holds (pipe(7)).
const READ_BYTES: usize = 64 << 10;
/// How often it is looked whether the pipe still has its name.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A named pipe that is read.
#[derive(Debug)]
pub struct Pipe {
    path: PathBuf,
    format: Format,
    root: Base,
    pipe: OwnedFd,
    waker: Arc<Waker>,
    /// The beginning of a line whose end has not come yet.
    begun: Vec<u8>,
    /// The line that is read is longer than any may be: nothing of it is kept.
    is_too_long: bool,
}

impl Pipe {
    /// Opens the pipe at `path`, or makes it, for this user alone.
    ///
    /// # Errors
    /// There is something else, or it can be neither opened nor made.
    pub fn open(path: &Path, format: Format, root: Base) -> Result<Pipe, Deaf> {
        let pipe = opened(path)?;
        let waker = Waker::new().map_err(|errno| Deaf::of(&shown(path), "wait for it", errno))?;
        Ok(Pipe {
            path: path.to_owned(),
            format,
            root,
            pipe,
            waker,
            begun: Vec::new(),
            is_too_long: false,
        })
    }

    /// What a line end of this format is.
    fn end(&self) -> u8 {
        self.format.end()
    }

    /// What was read, with what had begun before: whole lines are taken.
    fn take(&mut self, bytes: &[u8], heard: &mut Heard) {
        heard.events += 1;
        let last = bytes.iter().rposition(|byte| *byte == self.end());
        let Some(last) = last else {
            return self.keep(bytes);
        };
        let (whole, begun) = bytes.split_at(last + 1);
        let mut lines = std::mem::take(&mut self.begun);
        if std::mem::take(&mut self.is_too_long) {
            heard.unread += 1;
            tracing::warn!("{}: skipped a line that is too long", shown(&self.path));
            let first = whole.iter().position(|byte| *byte == self.end());
            self.read(&whole[first.map_or(0, |first| first + 1)..], heard);
        } else {
            lines.extend_from_slice(whole);
            self.read(&lines, heard);
        }
        self.keep(begun);
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.is_too_long |= self.begun.len() + bytes.len() > LINE_BYTES_MAX;
        if self.is_too_long {
            self.begun.clear();
        } else {
            self.begun.extend_from_slice(bytes);
        }
    }

    fn read(&self, lines: &[u8], heard: &mut Heard) {
        for line in List::new(lines, self.format, self.root.clone()) {
            match line {
                Ok(change) => heard.seen.push(Seen::closed(change)),
                Err(bad) => {
                    heard.unread += 1;
                    tracing::warn!("{}: skipped a line: {}", shown(&self.path), bad.fault);
                }
            }
        }
    }

    /// The last writer has gone: its last line may have no end. The new descriptor is there before
    /// the old one goes, so nothing is lost that another writer has written meanwhile.
    fn end_of_writers(&mut self, heard: &mut Heard) -> Result<(), Deaf> {
        let begun = std::mem::take(&mut self.begun);
        if std::mem::take(&mut self.is_too_long) {
            heard.unread += 1;
            tracing::warn!("{}: skipped a line without a newline", shown(&self.path));
        } else if !begun.is_empty() {
            heard.events += 1;
            self.read(&begun, heard);
        }
        let ours = fstat(&self.pipe).map_err(|errno| self.failed("look at it", errno))?;
        let is_named = stat(&self.path).is_ok_and(|named| is_same(&named, &ours));
        self.pipe = if is_named {
            opened(&self.path)?
        } else {
            // Somebody has put another one in its place, which has been written to perhaps.
            heard.missed = Some("the pipe of lists was replaced for a while");
            heard.events += 1;
            opened(&self.path)?
        };
        Ok(())
    }

    fn failed(&self, act: &str, errno: Errno) -> Deaf {
        Deaf::of(&shown(&self.path), act, errno)
    }
}

impl Detector for Pipe {
    fn name(&self) -> String {
        "list".into()
    }

    fn hear(&mut self) -> Result<Heard, Deaf> {
        let mut heard = Heard::default();
        let mut buffer = vec![0; READ_BYTES];
        match read(&self.pipe, &mut buffer[..]) {
            Ok(0) => self.end_of_writers(&mut heard)?,
            Ok(length) => self.take(&buffer[..length], &mut heard),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(self.failed("read it", errno)),
        }
        Ok(heard)
    }

    fn wait(&mut self) -> Result<(), Deaf> {
        let waited = self.waker.wait(Some(self.pipe.as_fd()), Some(LOOK_EVERY));
        waited.map_err(|errno| self.failed("wait for it", errno))
    }

    fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }
}

pub(super) fn shown(path: &Path) -> String {
    quote(path).to_string()
}

fn is_same(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

/// Something stands there from which no list is read.
pub(super) fn neither(path: &Path) -> Deaf {
    let why = "it is neither a named pipe nor a directory";
    Deaf::for_now(format!("{}: {why}", shown(path)))
}

fn opened(path: &Path) -> Result<OwnedFd, Deaf> {
    let failed = |act: &str, errno| Deaf::of(&shown(path), act, errno);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let pipe = match open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            let mode = Mode::RUSR | Mode::WUSR;
            mknodat(CWD, path, FileType::Fifo, mode, 0)
                .map_err(|errno| failed("make a named pipe", errno))?;
            open(path, flags, Mode::empty())
        }
        other => other,
    };
    let pipe = pipe.map_err(|errno| failed("open it", errno))?;
    let meta = fstat(&pipe).map_err(|errno| failed("look at it", errno))?;
    if FileType::from_raw_mode(meta.st_mode) != FileType::Fifo {
        return Err(neither(path));
    }
    Ok(pipe)
}
