//! Lists that programs put into a directory as files: each is written under another name, and renamed
//! when it is complete. Names that begin with a dot or end with `.tmp` are left alone.
//!
//! A list is deleted when everything that it names is durable on the replica, and not before; after a
//! crash it is read once more. One that was changed since it was read is read again, and stays.
//!
//! Before it is deleted it is given a name of ours and looked at once more: so a list that somebody
//! renames into its place at that moment is not lost.

use super::{Format, List};
use crate::base::Base;
use crate::detector::{Deaf, Detector, Heard, Seen, Waker};
use driftless_model::{cause, escape, quote};
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat, fstat, open, openat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Lines that are told at once.
const LINES_AT_ONCE: usize = 1000;
/// How often the directory is looked at: inotify(7) does not hear of what other hosts put there.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Looking takes one part in so many of the time.
const LOOK_SHARE: u32 = 20;
/// The longest time between two looks.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(10);
/// What names of ours begin with. What an earlier life has left under them is read again.
const OWN: &[u8] = b".driftless-list-";

/// A directory of lists.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    format: Format,
    root: Base,
    waker: Arc<Waker>,
    /// The list that is being read.
    reading: Option<Reading>,
    /// Lists that were read, or cannot be, and are still there.
    known: BTreeMap<CString, Known>,
    position: u64,
    pause: Duration,
}

#[derive(Debug)]
struct Reading {
    name: CString,
    print: Print,
    list: List<BufReader<File>>,
}

/// A list that is still there.
#[derive(Debug)]
struct Known {
    print: Print,
    /// Where it stands among those that were read; `None` if it cannot be read.
    position: Option<u64>,
}

/// What a file shows of itself: inode, size, and the time of its last change in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Print(u64, i64, i128);

impl Print {
    fn of(meta: &Stat) -> Print {
        let nanoseconds = i128::from(meta.st_mtime) * 1_000_000_000 + meta.st_mtime_nsec as i128;
        Print(meta.st_ino, meta.st_size, nanoseconds)
    }
}

impl Folder {
    /// Reads lists of the directory at `path`.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path, format: Format, root: Base) -> Result<Folder, Deaf> {
        let shown = quote(path).to_string();
        let waker = Waker::new().map_err(|errno| Deaf::of(&shown, "wait for it", errno))?;
        let folder = Folder {
            path: path.to_owned(),
            format,
            root,
            waker,
            reading: None,
            known: BTreeMap::new(),
            position: 0,
            pause: LOOK_EVERY,
        };
        folder.opened().map(|_| folder)
    }

    fn opened(&self) -> Result<OwnedFd, Deaf> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open(&self.path, flags, Mode::empty()).map_err(|errno| self.failed("open it", errno))
    }

    fn failed(&self, act: &str, errno: Errno) -> Deaf {
        Deaf::of(&quote(&self.path).to_string(), act, errno)
    }

    fn shown(&self, name: &CStr) -> String {
        format!("{} in {}", escape(name.to_bytes()), quote(&self.path))
    }

    /// The oldest list that was not read as it is now.
    fn next(&mut self, folder: &OwnedFd) -> Result<Option<CString>, Deaf> {
        let failed = |errno| Deaf::of(&quote(&self.path).to_string(), "list it", errno);
        let mut there = BTreeMap::new();
        for entry in Dir::read_from(folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_owned();
            if !is_list(name.to_bytes()) {
                continue;
            }
            // It may be gone by now.
            if let Ok(meta) = statat(folder, &*name, AtFlags::SYMLINK_NOFOLLOW)
                && FileType::from_raw_mode(meta.st_mode).is_file()
            {
                there.insert(name, Print::of(&meta));
            }
        }
        self.known.retain(|name, _| there.contains_key(name));
        let is_new = |(name, print): &(&CString, &Print)| {
            self.known
                .get(*name)
                .is_none_or(|known| known.print != **print)
        };
        let oldest = there.iter().filter(is_new).min_by_key(|(_, print)| print.2);
        Ok(oldest.map(|(name, _)| name.clone()))
    }

    /// Begins to read a list. One that cannot be read is told once, and stays: nothing is lost.
    fn begin(&mut self, folder: &OwnedFd, name: CString, heard: &mut Heard) {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(folder, &*name, flags, Mode::empty());
        match file.and_then(|file| Ok((fstat(&file)?, file))) {
            Ok((meta, file)) => {
                let reader = BufReader::new(File::from(file));
                self.reading = Some(Reading {
                    name,
                    print: Print::of(&meta),
                    list: List::new(reader, self.format, self.root.clone()),
                });
            }
            Err(Errno::NOENT) => {}
            Err(errno) => {
                heard.unread += 1;
                let why = cause(&errno.into());
                tracing::warn!("{}: a list cannot be read: {why}", self.shown(&name));
                self.leave(folder, name);
            }
        }
    }

    /// A list stays as it is until it changes.
    fn leave(&mut self, folder: &OwnedFd, name: CString) {
        if let Ok(meta) = statat(folder, &*name, AtFlags::SYMLINK_NOFOLLOW) {
            let print = Print::of(&meta);
            let position = None;
            self.known.insert(name, Known { print, position });
        }
    }

    /// Some lines of the list that is being read; its position is told with the last of them.
    fn read_on(&mut self, heard: &mut Heard) {
        let Some(mut reading) = self.reading.take() else {
            return;
        };
        while heard.seen.len() < LINES_AT_ONCE && heard.events < 2 * LINES_AT_ONCE {
            heard.events += 1;
            match reading.list.next() {
                Some(Ok(change)) => heard.seen.push(Seen::closed(change)),
                Some(Err(bad)) => {
                    heard.unread += 1;
                    tracing::warn!("{}: left out: {bad}", self.shown(&reading.name));
                }
                None => {
                    self.position += 1;
                    heard.position = Some(self.position);
                    let (print, position) = (reading.print, Some(self.position));
                    self.known.insert(reading.name, Known { print, position });
                    return;
                }
            }
        }
        self.reading = Some(reading);
    }

    /// Deletes a list, if it still is the one that was read.
    fn delete(&self, folder: &OwnedFd, name: &CStr, print: Print) -> Result<(), Errno> {
        let aside = [OWN, print.0.to_string().as_bytes()].concat();
        let aside = CString::new(aside).map_err(|_| Errno::INVAL)?;
        renameat(folder, name, folder, &*aside)?;
        let meta = statat(folder, &*aside, AtFlags::SYMLINK_NOFOLLOW)?;
        if Print::of(&meta) == print {
            return unlinkat(folder, &*aside, AtFlags::empty());
        }
        // Another list, which has come this moment. Where its name is taken again, it is read under
        // ours.
        let _it_is_read_under_either =
            renameat_with(folder, &*aside, folder, name, RenameFlags::NOREPLACE);
        Ok(())
    }
}

impl Detector for Folder {
    fn name(&self) -> String {
        "list".into()
    }

    fn hear(&mut self) -> Result<Heard, Deaf> {
        let mut heard = Heard::default();
        if self.reading.is_none() {
            let began = Instant::now();
            let folder = self.opened()?;
            let next = self.next(&folder)?;
            let pause = (began.elapsed() * LOOK_SHARE).max(LOOK_EVERY);
            self.pause = pause.min(LOOK_AT_LEAST_EVERY);
            if let Some(name) = next {
                // One that is gone meanwhile, or cannot be read, is not the last one perhaps.
                heard.events += 1;
                self.begin(&folder, name, &mut heard);
            }
        }
        self.read_on(&mut heard);
        Ok(heard)
    }

    fn wait(&mut self) -> Result<(), Deaf> {
        let waited = self.waker.wait(None, Some(self.pause));
        waited.map_err(|errno| self.failed("wait", errno))
    }

    fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }

    fn acknowledge(&mut self, position: u64) -> Result<(), Deaf> {
        let folder = self.opened()?;
        let is_done = |known: &Known| known.position.is_some_and(|at| at <= position);
        let done = self.known.iter_mut().filter(|(_, known)| is_done(known));
        let done: Vec<(CString, Print)> = done
            .map(|(name, known)| {
                // Whatever comes of it, it is tried once.
                known.position = None;
                (name.clone(), known.print)
            })
            .collect();
        for (name, print) in done {
            match self.delete(&folder, &name, print) {
                Ok(()) => drop(self.known.remove(&name)),
                Err(Errno::NOENT) => {}
                Err(errno) => {
                    let (shown, why) = (self.shown(&name), cause(&errno.into()));
                    tracing::warn!("{shown}: a list that is done cannot be deleted: {why}");
                }
            }
        }
        Ok(())
    }
}

/// Whether a file of this name is a complete list.
fn is_list(name: &[u8]) -> bool {
    name.starts_with(OWN) || !name.starts_with(b".") && !name.ends_with(b".tmp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_are_not_complete_are_known_by_their_names() {
        let cases: [(&[u8], bool); 8] = [
            (b"a", true),
            (b"a.list", true),
            (b"tmp", true),
            (b"a.tmp", false),
            (b".a", false),
            (b"..", false),
            (b"\xff", true),
            (b".driftless-list-a.tmp", true),
        ];
        for (name, expected) in cases {
            assert_eq!(is_list(name), expected, "{name:?}");
        }
    }
}
