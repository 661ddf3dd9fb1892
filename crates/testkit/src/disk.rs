//! A disk whose power can be cut: an image file behind a recording layer, and what a cut leaves of
//! it.
//!
//! The image is the one file of a FUSE file system of our own, and a loop device makes a disk of
//! it. Every write and every flush that the file system on it makes is recorded in order. What a
//! cut at some point leaves is rebuilt from the record: all that was written before the last flush,
//! and of what came after it any subset, as a disk may write its cache out in any order. A sector
//! of [`SECTOR_BYTES`] is there whole or not at all, as disks promise; a write of several may be
//! torn between them. A flush is ordered where the loop device asks for it (`REQ_OP_FLUSH` becomes
//! an fsync of the file), and nothing is discarded.

use crate::fuse::door::{Door, Server};
use crate::fuse::wire::{Answer, Attr, Call, Op, Words};
use crate::scratch::{FsKind, Scratch, format_image, must_run, scratch_folder, unmount};
use fastrand::Rng;
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a disk writes whole or not at all; 4096 is a sector of today's, and the block of the file
/// systems.
pub const SECTOR_BYTES: usize = 4096;
const NAME: &[u8] = b"image";
const ROOT: u64 = 1;
const IMAGE: u64 = 2;
const DIRECTORY: u32 = 0o040755;
const REGULAR: u32 = 0o100600;
const SEEN_FOR: Duration = Duration::from_secs(3600);

/// What reached the disk.
#[derive(Debug)]
enum Event {
    Write { at: u64, data: Vec<u8> },
    Flush,
}

/// The image as it is, and what was done to it since it was formatted.
#[derive(Debug)]
struct Image {
    now: File,
    bytes: u64,
    events: Mutex<Vec<Event>>,
}

/// A mounted file system on a disk that is recorded.
#[derive(Debug)]
pub struct Disk {
    // Fields are dropped in this order: the file system, then the disk below it, then the folder.
    mounted: Mounted,
    door: Door,
    image: Arc<Image>,
    folder: tempfile::TempDir,
}

/// What is known of a disk that is switched off.
#[derive(Debug)]
pub struct Recording {
    events: Vec<Event>,
    formatted: PathBuf,
    options: &'static str,
    _folder: tempfile::TempDir,
}

#[derive(Debug)]
struct Mounted(PathBuf);

impl Disk {
    /// A new disk, formatted and mounted; needs root.
    pub fn new(kind: FsKind) -> Disk {
        let (format, options, size_mib) = shape(kind);
        let folder = scratch_folder();
        let [formatted, now, served, mount] =
            ["formatted", "now", "served", "mnt"].map(|name| folder.path().join(name));
        format_image(&formatted, format, size_mib);
        copy_sparse(&formatted, &now);
        [&served, &mount]
            .into_iter()
            .for_each(|path| fs::create_dir(path).expect("mount point"));
        let now = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&now)
            .expect("image");
        let image = Arc::new(Image {
            now,
            bytes: size_mib << 20,
            events: Mutex::default(),
        });
        let door = Door::open(&served, image.clone());
        crate::scratch::mount_loop(&served.join("image"), &mount, options);
        Disk {
            mounted: Mounted(mount),
            door,
            image,
            folder,
        }
    }

    /// Where its file system is mounted.
    pub fn path(&self) -> &Path {
        &self.mounted.0
    }

    /// How many writes and flushes it has seen so far: a point at which it can be cut.
    pub fn now(&self) -> usize {
        lock(&self.image.events).len()
    }

    /// Unmounts it; what that writes is in the record, too.
    pub fn switch_off(self, kind: FsKind) -> Recording {
        let Disk {
            mounted,
            door,
            image,
            folder,
        } = self;
        assert!(unmount(&mounted.0), "{} is busy", mounted.0.display());
        drop(door);
        let events = std::mem::take(&mut *lock(&image.events));
        Recording {
            events,
            formatted: folder.path().join("formatted"),
            options: shape(kind).1,
            _folder: folder,
        }
    }
}

impl Recording {
    /// Mounts what a cut after so many writes and flushes has left, which `rng` decides.
    pub fn cut(&self, at: usize, rng: &mut Rng) -> Scratch {
        Scratch::found(self.options, |image| {
            copy_sparse(&self.formatted, image);
            let file = OpenOptions::new().write(true).open(image).expect("image");
            let before = &self.events[..at];
            let flushed = before
                .iter()
                .rposition(|event| matches!(event, Event::Flush))
                .unwrap_or(0);
            before[..flushed]
                .iter()
                .for_each(|event| event.put(&file, |_| true));
            // From a cache that was lost as a whole to one that was written out but for a little.
            let kept = [0.0, 0.3, 0.7, 0.97][rng.usize(..4)];
            for event in &before[flushed..] {
                let (is_kept, is_torn) = (rng.f64() < kept, rng.u8(0..8) == 0);
                event.put(&file, |_| if is_torn { rng.bool() } else { is_kept });
            }
        })
    }

    /// Where flushes stand in the record, within a range.
    pub fn flushes(&self, range: Range<usize>) -> usize {
        self.events[range]
            .iter()
            .filter(|event| matches!(event, Event::Flush))
            .count()
    }
}

impl Event {
    /// Writes the sectors that are wanted.
    fn put(&self, file: &File, mut wants: impl FnMut(usize) -> bool) {
        let Event::Write { at, data } = self else {
            return;
        };
        for (index, sector) in data.chunks(SECTOR_BYTES).enumerate() {
            if wants(index) {
                file.write_all_at(sector, at + (index * SECTOR_BYTES) as u64)
                    .expect("write a sector");
            }
        }
    }
}

/// How a kind is formatted and mounted: what is not flushed gets into the journal as soon as it
/// can, which is what users meet after half a minute.
fn shape(kind: FsKind) -> (&'static [&'static str], &'static str, u64) {
    match kind {
        FsKind::Ext4 => (
            &[
                "mkfs.ext4",
                "-q",
                "-F",
                "-b",
                "4096",
                "-m",
                "0",
                "-E",
                "lazy_itable_init=0",
            ],
            "loop,commit=1",
            160,
        ),
        FsKind::Xfs => (&["mkfs.xfs", "-q", "-m", "reflink=1"], "loop", 300),
        FsKind::Btrfs => (&["mkfs.btrfs", "-q"], "loop,commit=1", 160),
        other => panic!("{other:?} is on no disk"),
    }
}

fn copy_sparse(from: &Path, to: &Path) {
    must_run(Command::new("cp").arg("--sparse=always").args([from, to]));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What was switched off is unmounted already.
        let _ = Command::new("umount")
            .args(["-q", "-l"])
            .arg(&self.0)
            .stderr(std::process::Stdio::null())
            .status();
    }
}

impl Server for Image {
    fn answer(&self, call: &Call<'_>) -> Answer {
        let mut fields = call.fields();
        match call.op {
            Some(Op::Forget | Op::BatchForget | Op::Interrupt) => Answer::Silence,
            Some(Op::Lookup) if fields.name() == NAME => {
                Answer::Done(self.attr(IMAGE).entry(IMAGE, SEEN_FOR))
            }
            Some(Op::Lookup) => Answer::Failed(Errno::NOENT),
            Some(Op::Getattr | Op::Setattr) => Answer::Done(self.attr(call.node).out(SEEN_FOR)),
            Some(Op::Open | Op::Opendir) => Answer::Done(Words::new().u64(1).u64(0).0),
            Some(Op::Release | Op::Releasedir | Op::Flush) => Answer::Done(Vec::new()),
            Some(Op::Read) => self.read(call).into(),
            Some(Op::Write) => self.write(call).into(),
            Some(Op::Fsync) => {
                lock(&self.events).push(Event::Flush);
                Answer::Done(Vec::new())
            }
            _ => Answer::Failed(Errno::NOSYS),
        }
    }
}

impl Image {
    fn attr(&self, node: u64) -> Attr {
        let (mode, size, nlink) = if node == ROOT {
            (DIRECTORY, 0, 2)
        } else {
            (REGULAR, self.bytes, 1)
        };
        let times = [(1, 0); 3];
        Attr {
            ino: node,
            size,
            blocks: size / 512,
            times,
            mode,
            nlink,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: SECTOR_BYTES as u32,
        }
    }

    /// `fuse_read_in`.
    fn read(&self, call: &Call<'_>) -> Result<Vec<u8>, Errno> {
        let mut fields = call.fields();
        let (_handle, offset, size) = (fields.u64(), fields.u64(), fields.u32());
        let mut data = vec![0; u64::from(size).min(self.bytes.saturating_sub(offset)) as usize];
        self.now
            .read_exact_at(&mut data, offset)
            .map_err(|_| Errno::IO)?;
        Ok(data)
    }

    /// `fuse_write_in`: recorded and written as one step, so that the record has the order of the
    /// disk.
    fn write(&self, call: &Call<'_>) -> Result<Vec<u8>, Errno> {
        let mut fields = call.fields();
        let (_handle, at, size) = (fields.u64(), fields.u64(), fields.u32());
        let _rest_of_the_header = fields.bytes(20);
        let data = fields.bytes(size as usize).to_vec();
        let mut events = lock(&self.events);
        self.now.write_all_at(&data, at).map_err(|_| Errno::IO)?;
        events.push(Event::Write { at, data });
        Ok(Words::new().u32(size).u32(0).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_flushed_survives_every_cut_and_what_was_not_may_be_lost() {
        for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
            let disk = Disk::new(kind);
            let kept = File::create(disk.path().join("kept")).expect("create");
            kept.write_all_at(&[7; 100_000], 0).expect("write");
            rustix::fs::syncfs(&kept).expect("flush");
            let from = disk.now();
            fs::write(disk.path().join("lost"), [8; 100_000]).expect("write");
            let to = disk.now();
            drop(kept);
            let recording = disk.switch_off(kind);
            let mut rng = Rng::with_seed(1);
            for at in [from, to, recording.events.len()] {
                let after = recording.cut(at, &mut rng);
                assert_eq!(
                    fs::read(after.path().join("kept")).expect("read"),
                    vec![7; 100_000],
                    "{kind:?}, cut at {at}"
                );
                let is_lost = fs::metadata(after.path().join("lost")).is_err();
                assert!(
                    at > from || is_lost,
                    "{kind:?}: a file that was made after the cut"
                );
            }
        }
    }
}
