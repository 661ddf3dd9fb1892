//! Looks at a source with a few threads, directory by directory, each opened from the root without
//! following a link.

use super::{CHANGES_MAX, Doubt, Found, Habits, Look, WAITING_MAX, begin_of, habits};
use driftless_lock::{Condvar, Mutex};
use driftless_model::{Change, RelPath, SNAPSHOTS, Stamp, check_name};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fstatfs, openat2, statat,
};
use rustix::io::Errno;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Threads that look: enough for a disk to have some requests at a time.
const THREADS: usize = 4;

/// Returns whether the kernel of this host stamps the changes of a tree by its own clock, as far as
/// the file system is known.
pub fn has_own_clock(root: BorrowedFd<'_>) -> bool {
    fstatfs(root).is_ok_and(|of| habits(of.f_type.cast_unsigned()).is_some())
}

/// Finds what may have changed in the tree `root` since that moment.
///
/// # Errors
/// The root cannot be looked at.
pub fn scan(root: BorrowedFd<'_>, since: Stamp, stop: &AtomicBool) -> Result<Found, Errno> {
    let Some(habits) = habits(fstatfs(root)?.f_type.cast_unsigned()) else {
        return Ok(Found::All);
    };
    let scan = Scan {
        root,
        device: fstat(root)?.st_dev,
        begin: begin_of(since),
        habits,
        waiting: Mutex::new(Waiting {
            dirs: vec![Waits {
                path: RelPath::root(),
                is_above_changed: false,
            }],
            ..Waiting::default()
        }),
        more: Condvar::default(),
        stop,
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| scan.work());
        }
    });
    let waiting = scan.waiting.into_inner();
    let is_all = waiting.is_too_much || waiting.changes.contains(&Change::subtree(RelPath::root()));
    Ok(match (stop.load(Relaxed), is_all) {
        (true, _) => Found::Stopped,
        (_, true) => Found::All,
        _ => Found::Changes(waiting.changes),
    })
}

struct Scan<'a> {
    root: BorrowedFd<'a>,
    device: u64,
    begin: Stamp,
    habits: Habits,
    waiting: Mutex<Waiting>,
    /// There is something to do, or nothing any more.
    more: Condvar,
    stop: &'a AtomicBool,
}

/// What threads share.
#[derive(Default)]
struct Waiting {
    dirs: Vec<Waits>,
    /// Directories that are being looked at.
    in_work: usize,
    changes: Vec<Change>,
    is_too_much: bool,
}

/// A directory that is to be looked at.
struct Waits {
    path: RelPath,
    is_above_changed: bool,
}

/// What one directory comes to.
#[derive(Default)]
struct Seen {
    changes: Vec<Change>,
    below: Vec<Waits>,
}

impl Scan<'_> {
    fn work(&self) {
        while let Some(dir) = self.next() {
            let seen = self.look(&dir);
            let mut waiting = self.waiting.lock();
            waiting.in_work -= 1;
            waiting.changes.extend(seen.changes);
            waiting.dirs.extend(seen.below);
            waiting.is_too_much |=
                waiting.changes.len() > CHANGES_MAX || waiting.dirs.len() > WAITING_MAX;
            self.more.notify_all();
        }
    }

    /// The next directory; the newest first, so that few wait.
    fn next(&self) -> Option<Waits> {
        let mut waiting = self.waiting.lock();
        loop {
            if self.stop.load(Relaxed) || waiting.is_too_much {
                return None;
            }
            if let Some(dir) = waiting.dirs.pop() {
                waiting.in_work += 1;
                return Some(dir);
            }
            if waiting.in_work == 0 {
                return None;
            }
            waiting = self.more.wait(waiting);
        }
    }

    /// What cannot be looked at is to be compared; what is gone meanwhile, somebody has heard of.
    fn look(&self, dir: &Waits) -> Seen {
        match self.try_look(dir) {
            Ok(seen) => seen,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if !dir.path.is_root() => {
                Seen::default()
            }
            Err(_) => Seen::all_of(dir),
        }
    }

    fn try_look(&self, dir: &Waits) -> Result<Seen, Errno> {
        let open = self.open(&dir.path)?;
        let meta = fstat(&open)?;
        // Nobody tells of what happens on another file system, or in another subvolume.
        if meta.st_dev != self.device {
            return Ok(Seen::all_of(dir));
        }
        let mut look = Look {
            is_changed: self.is_changed(&meta),
            is_above_changed: dir.is_above_changed,
            dirs: 0,
        };
        if look.doubt(self.habits) == Doubt::All {
            return Ok(Seen::all_of(dir));
        }
        let mut seen = Seen::default();
        self.list(&open, &dir.path, look.is_changed, &mut seen)?;
        look.dirs = seen.below.len() as u64;
        match look.doubt(self.habits) {
            Doubt::All => return Ok(Seen::all_of(dir)),
            Doubt::Names => seen.changes = vec![Change::names(dir.path.clone())],
            // The root is asked for in any case: nobody knows what is above it.
            Doubt::Entries if dir.path.is_root() => {
                seen.changes.push(Change::entry(dir.path.clone()));
            }
            Doubt::Entries => {}
        }
        Ok(seen)
    }

    /// Lists a directory, with those of its entries that have changed.
    fn list(
        &self,
        open: &OwnedFd,
        path: &RelPath,
        is_changed: bool,
        seen: &mut Seen,
    ) -> Result<(), Errno> {
        for entry in Dir::read_from(open)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_ours = path.is_root() && name == SNAPSHOTS;
            if is_ours || check_name(name.to_bytes()).is_err() {
                continue;
            }
            let kind = entry.file_type();
            if kind != FileType::Directory && !(is_changed && kind != FileType::Unknown) {
                self.look_at(open, name, path, seen)?;
            } else if kind == FileType::Directory {
                seen.add_dir(path, name, is_changed);
            }
        }
        // What is told of a file is told of a directory, if it is one.
        seen.below
            .iter_mut()
            .for_each(|below| below.is_above_changed = is_changed);
        Ok(())
    }

    fn look_at(
        &self,
        open: &OwnedFd,
        name: &CStr,
        path: &RelPath,
        seen: &mut Seen,
    ) -> Result<(), Errno> {
        let meta = match statat(open, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(meta) => meta,
            Err(Errno::NOENT) => return Ok(()),
            Err(cause) => return Err(cause),
        };
        if FileType::from_raw_mode(meta.st_mode).is_dir() {
            seen.add_dir(path, name, false);
        } else if self.is_changed(&meta) || meta.st_dev != self.device {
            seen.changes.push(Change::entry(path.join(name.to_bytes())));
        }
        Ok(())
    }

    /// Opens a directory below the root. A path that is too long for the kernel is an error.
    fn open(&self, path: &RelPath) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let confined = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let bytes = if path.is_root() {
            b"."
        } else {
            path.as_bytes()
        };
        loop {
            match openat2(self.root.as_fd(), bytes, flags, Mode::empty(), confined) {
                // Something was renamed just then (openat2(2), "EAGAIN").
                Err(Errno::AGAIN | Errno::INTR) => {}
                opened => return opened,
            }
        }
    }

    fn is_changed(&self, meta: &Stat) -> bool {
        let ctime = Stamp {
            sec: meta.st_ctime,
            nsec: u32::try_from(meta.st_ctime_nsec).unwrap_or(0),
        };
        ctime >= self.begin
    }
}

impl Seen {
    fn all_of(dir: &Waits) -> Seen {
        Seen {
            changes: vec![Change::subtree(dir.path.clone())],
            below: Vec::new(),
        }
    }

    fn add_dir(&mut self, above: &RelPath, name: &CStr, is_above_changed: bool) {
        self.below.push(Waits {
            path: above.join(name.to_bytes()),
            is_above_changed,
        });
    }
}
