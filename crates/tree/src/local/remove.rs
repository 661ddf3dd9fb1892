//! Removing an entry and all below it, or counting what would go: one walk, on the same terms,
//! through open directories only and without recursion.
//!
//! What is spared stays, with all directories that lead to it. Where another file system is
//! mounted, and where it is not known whether one is, nothing is entered or removed. A directory
//! that contains itself, as a server that follows links may show it, is not entered again.

use crate::DirMut;
use crate::Done;
use crate::dir::Dir;
use crate::local::LocalDir;
use crate::local::look::fault;
use crate::mounts::{is_crossing, is_subvolume};
use crate::names::Names;
use driftless_model::{Act, Fault, Filter, Kind, Meta, RelPath, Unkept};
use rustix::io::Errno;
use std::ffi::{CStr, CString};

/// Names that are held of one directory at a time.
const WINDOW_NAMES: usize = 4096;
/// The most failures that a removal tells; the first ones show what keeps an entry.
pub const STUCK_MAX: usize = 64;

/// What stays although what is around it goes.
#[derive(Clone, Copy, Default)]
pub struct Spared<'a> {
    /// What these rules leave out. The path is that of the directory in which the removal begins,
    /// as the rules see it.
    pub rules: Option<(&'a Filter, &'a RelPath)>,
    /// Everything that is still there once this says `true`.
    pub is_over: Option<&'a dyn Fn() -> bool>,
    /// A count looks at each entry for what would keep it: something that is mounted there, and
    /// flags (chattr(1)). Where all goes or nothing does, that has to be known before.
    pub is_wary: bool,
    /// Device and inode of a directory that stays: the source of a run, which a bind mount may show
    /// below the replica's root.
    pub kept: Option<(u64, u64)>,
}

impl Spared<'_> {
    /// Nothing but what is mounted.
    pub const NOTHING: Spared<'static> = Spared {
        rules: None,
        is_over: None,
        is_wary: false,
        kept: None,
    };
}

/// What a removal did, or would do.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Removed {
    /// How many entries went.
    pub entries: u64,
    /// How many entries the walk met: those that go and those that stay.
    pub met: u64,
    /// Something was spared.
    pub spares: bool,
    /// What could not be removed, by its path below the directory in which the removal began, and
    /// why; [`STUCK_MAX`] of them at most.
    pub stuck: Vec<(RelPath, Fault)>,
}

impl Removed {
    /// Whether something is still there.
    pub fn stays(&self) -> bool {
        self.spares || !self.stuck.is_empty()
    }

    /// The first fault, if something could not be removed. What was spared is no fault.
    pub fn done(self) -> Done {
        self.stuck.first().map_or(Ok(()), |(_, fault)| Err(*fault))
    }

    /// A removal that could not begin.
    pub fn failed(name: &CStr, fault: Fault) -> Removed {
        Removed {
            stuck: vec![(RelPath::from_names([name.to_bytes()]), fault)],
            ..Removed::default()
        }
    }
}

/// Removes `name` in `dir` and all below it but for what is spared.
pub fn remove_tree(dir: &LocalDir, name: &CStr, spared: Spared<'_>) -> Removed {
    Walk::new(dir, spared, true).whole(name)
}

/// Counts what would go if `name` in `dir` were removed; stops when that is more than `max`
/// entries.
pub fn count_tree(dir: &LocalDir, name: &CStr, max: u64, spared: Spared<'_>) -> Removed {
    Walk {
        max,
        ..Walk::new(dir, spared, false)
    }
    .whole(name)
}

impl LocalDir {
    /// Removes all that is in this directory, by its handle, whatever stands at its name.
    pub fn clear(&self) -> Removed {
        clear(self)
    }
}

/// Removes all that is in `dir`.
pub fn clear(dir: &LocalDir) -> Removed {
    Walk::within(dir, true).go()
}

/// Counts what [`clear`] would remove, and looks at each entry for what would keep it; stops when
/// that is more than `max` entries.
pub fn count_in(dir: &LocalDir, max: u64) -> Removed {
    let mut walk = Walk {
        max,
        ..Walk::within(dir, false)
    };
    walk.spared.is_wary = true;
    walk.go()
}

/// Enters a subdirectory in which nothing is mounted. A subvolume, which may be somebody's
/// snapshot, goes only if nothing lies in it: rmdir(2) removes it then, since Linux 4.18.
pub fn enter_same(above: &LocalDir, name: &CStr) -> Done<LocalDir> {
    let dir = above.enter_local(name)?;
    if !is_crossing(above, &dir)? {
        return Ok(dir);
    }
    if !is_subvolume(&dir) {
        return Err(fault(dir.side(), Act::RemoveMount, Errno::BUSY));
    }
    if is_empty(&dir)? {
        Ok(dir)
    } else {
        Err(fault(dir.side(), Act::RemoveSubvolume, Errno::NOTEMPTY))
    }
}

/// A fault if an entry that is no directory cannot be removed, as far as a look at it tells.
fn what_holds(dir: &LocalDir, name: &CStr) -> Done {
    let (meta, is_mount_root) = dir.look_closely(name)?;
    match () {
        () if is_mount_root == Some(true) => Err(fault(dir.side(), Act::RemoveMount, Errno::BUSY)),
        () if is_frozen(&meta) => Err(fault(dir.side(), Act::Remove, Errno::PERM)),
        () => Ok(()),
    }
}

/// Whether flags keep an entry, and the names in it, from being removed by anybody (chattr(1)).
fn is_frozen(meta: &Meta) -> bool {
    [Unkept::IMMUTABLE, Unkept::APPEND_ONLY]
        .into_iter()
        .any(|flag| meta.unkept.has(flag))
}

/// Whether a directory lists no name.
pub fn is_empty(dir: &LocalDir) -> Done<bool> {
    let (mut at, mut names) = (0, Names::default());
    dir.list_from(&mut at, &mut names, 1)?;
    Ok(names.is_empty())
}

/// A directory on the way down.
struct Frame {
    dir: LocalDir,
    name: CString,
    /// Subdirectories that are still to be removed.
    subdirs: Vec<CString>,
    /// How far its listing was read.
    at: u64,
    /// Something in it stays, so it stays itself.
    stays: bool,
    /// All of it was seen.
    over: bool,
}

impl Frame {
    fn new(dir: LocalDir, name: &CStr) -> Frame {
        Frame {
            dir,
            name: name.into(),
            subdirs: Vec::new(),
            at: 0,
            stays: false,
            over: false,
        }
    }
}

struct Walk<'a> {
    top: &'a LocalDir,
    spared: Spared<'a>,
    /// Entries are removed, and not only counted.
    acts: bool,
    max: u64,
    /// The outermost directory is emptied and stays.
    keeps_top: bool,
    frames: Vec<Frame>,
    /// Where the entries lie that are met, as rules see it.
    place: RelPath,
    removed: Removed,
}

impl<'a> Walk<'a> {
    fn new(top: &'a LocalDir, spared: Spared<'a>, acts: bool) -> Self {
        let place = spared.rules.map(|(_, dir)| dir.clone()).unwrap_or_default();
        Walk {
            top,
            spared,
            acts,
            max: u64::MAX,
            keeps_top: false,
            frames: Vec::new(),
            place,
            removed: Removed::default(),
        }
    }

    fn within(dir: &'a LocalDir, acts: bool) -> Self {
        Walk {
            keeps_top: true,
            frames: vec![Frame::new(dir.clone(), c"")],
            ..Walk::new(dir, Spared::NOTHING, acts)
        }
    }

    fn whole(mut self, name: &CStr) -> Removed {
        if self.meet(name, None) {
            self.enter(name);
        }
        self.go()
    }

    fn go(mut self) -> Removed {
        while !self.frames.is_empty() && self.removed.entries <= self.max && !self.is_over() {
            let frame = self.frames.last_mut().expect("there is one");
            if let Some(sub) = frame.subdirs.pop() {
                self.enter(&sub);
            } else if frame.over {
                self.leave();
            } else {
                self.window();
            }
        }
        self.removed
    }

    /// Whether nobody wants the walk to go on. What is left then is spared.
    fn is_over(&mut self) -> bool {
        let is_over = self.spared.is_over.is_some_and(|says| says());
        self.removed.spares |= is_over;
        is_over
    }

    fn innermost(&self) -> &LocalDir {
        self.frames.last().map_or(self.top, |frame| &frame.dir)
    }

    /// Removes or counts an entry of the innermost directory. Returns whether it is a directory
    /// that must be entered first.
    fn meet(&mut self, name: &CStr, hint: Option<Kind>) -> bool {
        if self.is_over() {
            return false;
        }
        self.removed.met += 1;
        let is_dir = match self.is_dir(name, hint) {
            Ok(is_dir) => is_dir,
            Err(gone) if gone.is_missing() => return false,
            Err(fault) => {
                self.stuck(name, fault);
                return false;
            }
        };
        if self.spares(name, is_dir) {
            return false;
        }
        if !is_dir && self.acts {
            return self.unlink(name);
        }
        if !is_dir && !self.is_held(name) {
            self.removed.entries += 1;
        }
        is_dir
    }

    /// Whether something keeps an entry that is no directory, if the walk is wary; the entry is
    /// stuck then.
    fn is_held(&mut self, name: &CStr) -> bool {
        let held = if self.spared.is_wary {
            what_holds(self.innermost(), name)
        } else {
            Ok(())
        };
        held.map_err(|fault| self.stuck(name, fault)).is_err()
    }

    /// Whether an entry is a directory. Where the listing does not tell, rules and counts need a
    /// look. A removal without rules takes it for no directory: the kernel says so if it is one.
    fn is_dir(&self, name: &CStr, hint: Option<Kind>) -> Done<bool> {
        match hint {
            Some(kind) => Ok(kind == Kind::Dir),
            None if self.acts && self.spared.rules.is_none() => Ok(false),
            None => self
                .innermost()
                .look(name)
                .map(|meta| meta.kind == Kind::Dir),
        }
    }

    fn spares(&mut self, name: &CStr, is_dir: bool) -> bool {
        let Some((filter, _)) = self.spared.rules else {
            return false;
        };
        let spares = !filter.takes(self.place.join(name.to_bytes()).as_bytes(), is_dir);
        if spares {
            self.removed.spares = true;
            self.stay();
        }
        spares
    }

    /// Removes an entry that is not known to be a directory. Returns whether it is one that must be
    /// entered.
    fn unlink(&mut self, name: &CStr) -> bool {
        let dir = self.innermost();
        let Err(fault) = dir.remove(name) else {
            self.removed.entries += 1;
            return false;
        };
        // Of a directory Linux says EISDIR. POSIX allows EPERM, which has other reasons, too
        // (unlink(2)).
        let perhaps = fault.errno == Errno::PERM.raw_os_error();
        let is_dir = perhaps && dir.look(name).is_ok_and(|meta| meta.kind == Kind::Dir);
        if is_dir || fault.errno == Errno::ISDIR.raw_os_error() {
            return !self.spares(name, true);
        }
        if !fault.is_missing() {
            self.stuck(name, fault);
        }
        false
    }

    fn enter(&mut self, name: &CStr) {
        match enter_same(self.innermost(), name) {
            Ok(dir) if self.spared.kept == Some(dir.first_meta().id()) => {
                self.stuck(name, fault(dir.side(), Act::RemoveSource, Errno::BUSY));
            }
            // All below it lies elsewhere, too, such as in a directory that stays.
            Ok(dir) if dir.node.lies_in_itself() => {
                self.stuck(name, fault(dir.side(), Act::Enter, Errno::NOTUNIQ));
            }
            Ok(dir) if self.spared.is_wary && is_frozen(dir.first_meta()) => {
                self.stuck(name, fault(dir.side(), Act::RemoveDirectory, Errno::PERM));
            }
            Ok(dir) => {
                if self.acts {
                    dir.make_writable();
                }
                self.frames.push(Frame::new(dir, name));
            }
            Err(gone) if gone.is_missing() => {}
            Err(fault) => self.stuck(name, fault),
        }
    }

    /// Goes through a window of the innermost directory's listing.
    fn window(&mut self) {
        self.place_innermost();
        let acts = self.acts;
        let frame = self.frames.last_mut().expect("the caller holds a frame");
        if acts && !frame.stays {
            // All that was read before is removed. In some file systems the position is no longer
            // good then, so the listing begins anew.
            frame.at = 0;
        }
        let mut names = Names::default();
        if let Err(fault) = frame.dir.list_from(&mut frame.at, &mut names, WINDOW_NAMES) {
            frame.over = true;
            return self.stuck_innermost(fault);
        }
        let before = self.removed.entries;
        let subdirs: Vec<CString> = (0..names.len())
            .map(|i| names.get(i))
            .filter(|(name, kind)| self.meet(name, *kind))
            .map(|(name, _)| name.into())
            .collect();
        let progress = self.removed.entries > before || !subdirs.is_empty();
        let frame = self.frames.last_mut().expect("the caller holds a frame");
        frame.subdirs = subdirs;
        // A listing that goes on showing removed names would never end.
        frame.over = names.is_empty() || acts && !frame.stays && !progress;
    }

    fn leave(&mut self) {
        let Some(done) = self.frames.pop() else {
            return;
        };
        done.dir.leave();
        if self.keeps_top && self.frames.is_empty() {
            return;
        }
        if done.stays {
            return self.stay();
        }
        match if self.acts {
            self.innermost().remove_dir(&done.name)
        } else {
            Ok(())
        } {
            Ok(()) => self.removed.entries += 1,
            Err(gone) if gone.is_missing() => {}
            Err(fault) => self.stuck(&done.name, fault),
        }
    }

    /// Something in the innermost directory stays.
    fn stay(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.stays = true;
        }
    }

    /// An entry of the innermost directory cannot be removed.
    fn stuck(&mut self, name: &CStr, fault: Fault) {
        let path = self.path_below().join(name.to_bytes());
        self.tell(path, fault);
    }

    fn stuck_innermost(&mut self, fault: Fault) {
        let path = self.path_below();
        self.tell(path, fault);
    }

    fn tell(&mut self, path: RelPath, fault: Fault) {
        self.stay();
        if self.removed.stuck.len() < STUCK_MAX {
            self.removed.stuck.push((path, fault));
        }
    }

    /// The innermost directory's path below the one in which the removal began.
    fn path_below(&self) -> RelPath {
        RelPath::from_names(
            self.frames
                .iter()
                .map(|frame| frame.name.to_bytes())
                .filter(|name| !name.is_empty()),
        )
    }

    fn place_innermost(&mut self) {
        if let Some((_, dir)) = self.spared.rules {
            let below = self.path_below();
            self.place = RelPath::from_names(dir.names().chain(below.names()));
        }
    }
}
