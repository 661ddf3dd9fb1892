//! The program `lfs`: it prints the changelog, clears it, and says where a number is to be found.
//!
//! A program that hangs, as `lfs` does while a server is away, is waited for as long as the mirror
//! goes on, and ended with it.

use super::record::Fid;
use super::resolve::{Fids, Place};
use crate::base::Base;
use crate::detector::{Deaf, Waker, is_ready};
use driftless_model::RelPath;
use rustix::fs::{FileType, lstat, stat};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

/// What a program says that fails is told up to so many bytes.
const TOLD_BYTES_MAX: u64 = 4096;
/// How often it is looked whether the mirror goes on.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// What `lfs` ends with where a number is none any more (`ENOENT`).
const GONE: i32 = 2;

/// Runs `lfs`.
#[derive(Debug, Clone)]
pub(super) struct Lfs {
    pub(super) waker: Arc<Waker>,
}

/// `lfs` while it prints.
#[derive(Debug)]
pub(super) struct Running {
    what: String,
    child: Child,
    said: Option<JoinHandle<String>>,
}

/// What `lfs` prints, until the mirror is to stop.
#[derive(Debug)]
pub(super) struct Printed {
    out: ChildStdout,
    waker: Arc<Waker>,
}

/// How `lfs` failed.
#[derive(Debug)]
pub(super) struct Failure {
    code: Option<i32>,
    deaf: Deaf,
}

impl Lfs {
    pub(super) fn start(&self, words: &[&OsStr]) -> Result<(Running, Printed), Deaf> {
        let what = format!("lfs {}", words[0].to_string_lossy());
        let mut command = Command::new("lfs");
        command.args(words).env("LC_ALL", "C").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let spawned = command.spawn();
        let mut child = spawned.map_err(|error| {
            Deaf::for_now(format!("{what}: {}", driftless_model::cause(&error)))
        })?;
        let out = child.stdout.take().expect("it is piped");
        let said = child.stderr.take().map(|pipe| spawn(|| text(pipe)));
        let waker = self.waker.clone();
        Ok((Running { what, child, said }, Printed { out, waker }))
    }

    /// Runs it to its end; returns what it printed.
    pub(super) fn run(&self, words: &[&OsStr]) -> Result<Vec<u8>, Failure> {
        let failed = |deaf| Failure { code: None, deaf };
        let (mut running, mut printed) = self.start(words).map_err(failed)?;
        let mut all = Vec::new();
        let read = printed.read_to_end(&mut all);
        read.map_err(|error| failed(Deaf::for_now(format!("{}: {error}", running.what))))?;
        running.end().map(|()| all)
    }
}

impl Running {
    /// How it ended, when it has printed all.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        let failed = |code, why: String| Failure {
            code,
            deaf: Deaf::for_now(format!("{}: {why}", self.what)),
        };
        let status = self
            .child
            .wait()
            .map_err(|error| failed(None, error.to_string()))?;
        if status.success() {
            return Ok(());
        }
        let said = self.said.take().and_then(|said| said.join().ok());
        let said = said.unwrap_or_default();
        Err(failed(
            status.code(),
            match said.trim() {
                "" => status.to_string(),
                said => format!("{status}: {said}"),
            },
        ))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _it_may_have_ended = self.child.kill();
        let _nobody_asks_for_its_end = self.child.wait();
    }
}

impl Read for Printed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !is_ready(&self.out, LOOK_EVERY)? {
            if self.waker.is_stopping() {
                return Err(io::Error::other("the mirror is about to end"));
            }
        }
        self.out.read(buffer)
    }
}

impl From<Failure> for Deaf {
    fn from(failure: Failure) -> Deaf {
        failure.deaf
    }
}

/// What a program says of errors, to its end.
fn text(mut pipe: ChildStderr) -> String {
    let mut text = Vec::new();
    let _as_far_as_it_goes = (&mut pipe).take(TOLD_BYTES_MAX).read_to_end(&mut text);
    let _nobody_wants_more = io::copy(&mut pipe, &mut io::sink());
    String::from_utf8_lossy(&text).into_owned()
}

/// Looks numbers up below a source.
#[derive(Debug)]
pub(super) struct Fid2Path {
    lfs: Lfs,
    mount: PathBuf,
    source: Base,
}

impl Fid2Path {
    /// For the source at this absolute path.
    pub(super) fn below(source: &Path, lfs: Lfs) -> Fid2Path {
        Fid2Path {
            lfs,
            mount: mount_of(source),
            source: Base::new(source.as_os_str().as_bytes()),
        }
    }

    /// Older versions tell paths from the mount point, newer ones absolute.
    fn absolute(&self, line: &[u8]) -> PathBuf {
        let is_absolute = line.starts_with(b"/") && line != b"/";
        if is_absolute {
            return OsStr::from_bytes(line).into();
        }
        self.mount
            .join(OsStr::from_bytes(line.strip_prefix(b"/").unwrap_or(line)))
    }
}

impl Fids for Fid2Path {
    type Error = Deaf;

    fn place(&mut self, fid: Fid) -> Result<Place, Deaf> {
        let number = fid.to_string();
        let words = ["fid2path".as_ref(), self.mount.as_os_str(), number.as_ref()];
        let printed = match self.lfs.run(&words) {
            Ok(printed) => printed,
            Err(failure) if failure.code == Some(GONE) => return Ok(Place::Gone),
            Err(failure) => return Err(failure.into()),
        };
        let sort = |path: &Path| {
            lstat(path)
                .ok()
                .map(|meta| FileType::from_raw_mode(meta.st_mode))
        };
        let is_there = |line: &[u8]| sort(&self.absolute(line)).is_some();
        let found = names(&printed, is_there);
        let all: Vec<PathBuf> = found.iter().map(|line| self.absolute(line)).collect();
        let below = |path: &PathBuf| self.source.below(path.as_os_str().as_bytes());
        let paths: Vec<RelPath> = all.iter().filter_map(below).collect();
        // What has gone since may have been one, with something in it.
        let is_directory = all
            .iter()
            .all(|path| sort(path).is_none_or(|sort| sort.is_dir()));
        Ok(match (all.is_empty(), paths.is_empty()) {
            (true, _) => Place::Gone,
            (false, true) => Place::Elsewhere,
            (false, false) => Place::At {
                paths,
                is_directory,
            },
        })
    }
}

/// The paths that were printed, each with a line end. A path may hold line ends, too: lines that are
/// no path by themselves, and are one with those behind them, belong together.
fn names(printed: &[u8], is_there: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
    let text = printed.strip_suffix(b"\n").unwrap_or(printed);
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < lines.len() && !text.is_empty() {
        let whole = (at + 1..=lines.len()).find(|end| is_there(&lines[at..*end].join(&b'\n')));
        let end = whole.unwrap_or(at + 1);
        found.push(lines[at..end].join(&b'\n'));
        at = end;
    }
    found
}

/// Where the file system of a directory is mounted.
fn mount_of(path: &Path) -> PathBuf {
    let device = |path: &Path| stat(path).ok().map(|meta| meta.st_dev);
    let own = device(path);
    let within = path.ancestors().take_while(|above| device(above) == own);
    within.last().unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_line_ends_are_put_together() {
        let there: [&[u8]; 4] = [b"/m/a", b"/m/b\nc", b"/m/d", b"/m/e\n\nf"];
        let is_there = |path: &[u8]| there.contains(&path);
        let cases: [(&[u8], &[&[u8]]); 6] = [
            (b"", &[]),
            (b"/m/a\n", &[b"/m/a"]),
            (b"/m/a\n/m/d\n", &[b"/m/a", b"/m/d"]),
            (b"/m/b\nc\n/m/a\n", &[b"/m/b\nc", b"/m/a"]),
            (b"/m/e\n\nf\n", &[b"/m/e\n\nf"]),
            (b"/m/gone\n", &[b"/m/gone"]),
        ];
        for (printed, expected) in cases {
            assert_eq!(names(printed, is_there), expected, "{printed:?}");
        }
    }
}
