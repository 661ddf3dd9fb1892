//! Removing an entry and all below it, through open directories only and without recursion.

use crate::{Dir, DirRef, Done, Names};
use driftless_model::{Fault, Kind};
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

/// Tells which entries stay although what is around them goes: asked with the path below the directory in which the removal
/// began, and whether it is a directory.
pub type Spare<'a> = &'a dyn Fn(&[u8], bool) -> bool;

/// A directory on the way down, with its subdirectories that are still to be removed.
struct Frame {
    dir: DirRef,
    name: CString,
    subdirs: Vec<CString>,
    /// Something in it stays, because it could not be removed or was spared: it is not listed again, and stays itself.
    stays: bool,
}

/// Removes `name` in `dir` and all below it but for what is spared.
pub fn remove_tree(dir: &dyn Dir, name: &CStr, spare: Option<Spare<'_>>) -> Removed {
    let mut removed = Removed::default();
    match dir.remove(name) {
        Ok(()) => removed.entries += 1,
        Err(e) if is_directory(&e) => descend(dir, name, spare, &mut removed),
        Err(e) => removed.fail(e),
    }
    removed
}

fn is_directory(fault: &Fault) -> bool {
    // Linux says EISDIR, POSIX allows EPERM (unlink(2)).
    [Errno::ISDIR, Errno::PERM].iter().any(|e| e.raw_os_error() == fault.errno)
}

fn descend(top: &dyn Dir, name: &CStr, spare: Option<Spare<'_>>, removed: &mut Removed) {
    let mut frames: Vec<Frame> = Vec::new();
    match open_frame(top, name) {
        Ok(frame) => frames.push(frame),
        Err(e) => return removed.fail(e),
    }
    while let Some(frame) = frames.last_mut() {
        if let Some(sub) = frame.subdirs.pop() {
            match open_frame(&*frame.dir, &sub) {
                Ok(next) => frames.push(next),
                Err(e) => {
                    frame.stays = true;
                    removed.fail(e);
                }
            }
        } else if frame.stays || !clear_window(&mut frames, spare, removed) {
            let done = frames.pop().expect("the loop holds a frame");
            leave(top, done, &mut frames, removed);
        }
    }
}

fn leave(top: &dyn Dir, done: Frame, frames: &mut [Frame], removed: &mut Removed) {
    done.dir.leave();
    let parent = frames.last().map_or(top, |frame| &*frame.dir);
    let gone = !done.stays
        && match parent.remove_dir(&done.name) {
            Ok(()) => true,
            Err(e) => {
                removed.fail(e);
                false
            }
        };
    removed.entries += u64::from(gone);
    if let Some(frame) = frames.last_mut() {
        frame.stays |= !gone;
    }
}

fn open_frame(parent: &dyn Dir, name: &CStr) -> Done<Frame> {
    let dir = parent.enter(name)?;
    dir.make_writable();
    Ok(Frame { dir, name: name.into(), subdirs: Vec::new(), stays: false })
}

/// Unlinks what a window of the innermost directory's listing shows and notes its subdirectories; returns whether there was anything.
fn clear_window(frames: &mut [Frame], spare: Option<Spare<'_>>, removed: &mut Removed) -> bool {
    let above = if spare.is_some() { path_of(frames) } else { Vec::new() };
    let frame = frames.last_mut().expect("the caller holds a frame");
    let mut names = Names::default();
    let listed = frame.dir.list().and_then(|mut stream| stream.fill(&mut names, WINDOW_NAMES));
    if let Err(e) = listed {
        frame.stays = true;
        removed.fail(e);
        return true;
    }
    for index in 0..names.len() {
        let (name, kind) = names.get(index);
        let spared = spare.is_some_and(|spare| spare(&[&above, name.to_bytes()].concat(), kind == Some(Kind::Dir)));
        if spared {
            frame.stays = true;
        } else if kind == Some(Kind::Dir) {
            frame.subdirs.push(name.into());
        } else {
            clear_one(frame, name, removed);
        }
    }
    !names.is_empty()
}

fn clear_one(frame: &mut Frame, name: &CStr, removed: &mut Removed) {
    match frame.dir.remove(name) {
        Ok(()) => removed.entries += 1,
        Err(e) if is_directory(&e) => frame.subdirs.push(name.into()),
        Err(e) => {
            frame.stays = true;
            removed.fail(e);
        }
    }
}

/// The path of the innermost directory, with a slash at its end.
fn path_of(frames: &[Frame]) -> Vec<u8> {
    frames.iter().flat_map(|frame| frame.name.to_bytes().iter().chain(b"/")).copied().collect()
}

/// Counts `name` in `dir` and all below it, stopping at `max`.
pub fn count_tree(dir: &dyn Dir, name: &CStr, max: u64) -> u64 {
    let mut count = 1;
    let Ok(top) = dir.enter(name) else { return count };
    let mut open = vec![top];
    while let Some(dir) = open.pop() {
        let Ok(mut stream) = dir.list() else { continue };
        let mut more = true;
        while more && count < max {
            let mut names = Names::default();
            more = stream.fill(&mut names, WINDOW_NAMES).unwrap_or(false);
            count += names.len() as u64;
            let subdirs = (0..names.len()).map(|i| names.get(i)).filter(|(_, kind)| matches!(kind, None | Some(Kind::Dir)));
            open.extend(subdirs.filter_map(|(name, _)| dir.enter(name).ok()));
        }
    }
    count
}
