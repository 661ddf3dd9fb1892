//! Removing an entry and all below it, through open directories only and without recursion.

use crate::local::{LocalDir, fault};
use crate::{Dir, Done, Names};
use driftless_model::{Fault, Kind};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::ffi::{CStr, CString};

/// Names that are held of one directory at a time.
const WINDOW_NAMES: usize = 4096;

/// What a removal did.
#[derive(Debug, Default)]
pub struct Removed {
    /// How many entries went.
    pub entries: u64,
    /// The first failure, if something is still there.
    pub fault: Option<Fault>,
}

impl Removed {
    fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }
}

/// A directory on the way down, with its subdirectories that are still to be removed.
struct Frame {
    dir: LocalDir,
    name: CString,
    subdirs: Vec<CString>,
    /// Entries seen when it was last listed: a listing that brings nothing new ends the matter.
    failed: bool,
}

/// Removes `name` in `dir` and all below it.
pub fn remove_tree(dir: &LocalDir, name: &CStr) -> Removed {
    let mut removed = Removed::default();
    match unlink(dir, name) {
        Ok(()) => removed.entries += 1,
        Err(e) if is_directory(&e) => descend(dir, name, &mut removed),
        Err(e) => removed.fail(e),
    }
    removed
}

fn is_directory(fault: &Fault) -> bool {
    // Linux says EISDIR, POSIX allows EPERM (unlink(2)).
    [Errno::ISDIR, Errno::PERM].iter().any(|e| e.raw_os_error() == fault.errno)
}

fn unlink(dir: &LocalDir, name: &CStr) -> Done {
    let fd = dir.fd()?;
    rustix::fs::unlinkat(&*fd, name, AtFlags::empty()).map_err(|e| fault(dir.side(), "remove", e))
}

fn rmdir(dir: &LocalDir, name: &CStr) -> Done {
    let fd = dir.fd()?;
    rustix::fs::unlinkat(&*fd, name, AtFlags::REMOVEDIR).map_err(|e| fault(dir.side(), "remove directory of", e))
}

fn descend(top: &LocalDir, name: &CStr, removed: &mut Removed) {
    let mut frames: Vec<Frame> = Vec::new();
    match open_frame(top, name) {
        Ok(frame) => frames.push(frame),
        Err(e) => return removed.fail(e),
    }
    while let Some(frame) = frames.last_mut() {
        if let Some(sub) = frame.subdirs.pop() {
            match open_frame(&frame.dir, &sub) {
                Ok(next) => frames.push(next),
                Err(e) => {
                    frame.failed = true;
                    removed.fail(e);
                }
            }
        } else if frame.failed || !clear_window(frame, removed) {
            let done = frames.pop().expect("the loop holds a frame");
            leave(top, done, &mut frames, removed);
        }
    }
}

fn leave(top: &LocalDir, done: Frame, frames: &mut [Frame], removed: &mut Removed) {
    done.dir.leave();
    let parent = frames.last().map_or(top, |frame| &frame.dir);
    match rmdir(parent, &done.name) {
        Ok(()) => removed.entries += 1,
        Err(e) => {
            removed.fail(e);
            if let Some(frame) = frames.last_mut() {
                frame.failed = true;
            }
        }
    }
}

fn open_frame(parent: &LocalDir, name: &CStr) -> Done<Frame> {
    let dir = parent.enter_local(name)?;
    dir.make_writable();
    Ok(Frame { dir, name: name.into(), subdirs: Vec::new(), failed: false })
}

/// Unlinks what a window of the listing shows and notes its subdirectories; returns whether there was anything.
fn clear_window(frame: &mut Frame, removed: &mut Removed) -> bool {
    let mut names = Names::default();
    let listed = frame.dir.list().and_then(|mut stream| stream.fill(&mut names, WINDOW_NAMES));
    if let Err(e) = listed {
        removed.fail(e);
        return false;
    }
    for index in 0..names.len() {
        let (name, kind) = names.get(index);
        let gone = if kind == Some(Kind::Dir) { Err(None) } else { unlink(&frame.dir, name).map_err(Some) };
        match gone {
            Ok(()) => removed.entries += 1,
            Err(None) => frame.subdirs.push(name.into()),
            Err(Some(e)) if is_directory(&e) => frame.subdirs.push(name.into()),
            Err(Some(e)) => {
                frame.failed = true;
                removed.fail(e);
            }
        }
    }
    !names.is_empty()
}

/// Counts `name` in `dir` and all below it, stopping at `max`.
pub fn count_tree(dir: &LocalDir, name: &CStr, max: u64) -> u64 {
    let mut count = 1;
    let Ok(top) = dir.enter_local(name) else { return count };
    let mut open = vec![top];
    while let Some(dir) = open.pop() {
        let Ok(mut stream) = dir.list() else { continue };
        let mut more = true;
        while more && count < max {
            let mut names = Names::default();
            more = stream.fill(&mut names, WINDOW_NAMES).unwrap_or(false);
            count += names.len() as u64;
            let subdirs = (0..names.len()).map(|i| names.get(i)).filter(|(_, kind)| matches!(kind, None | Some(Kind::Dir)));
            open.extend(subdirs.filter_map(|(name, _)| dir.enter_local(name).ok()));
        }
    }
    count
}
