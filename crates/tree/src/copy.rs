//! The copy ladder: reflink, copy within the kernel or on the server, read and write. Only data is
//! copied where holes are to stay holes; content stays in the page cache, leaves it again, or
//! passes it by.
//!
//! One [`Copier`] belongs to one thread and owns its buffer. What the two file systems can do is
//! learned by trying once and shared by all threads ([`Ladder`]).

mod block;
pub mod compare;
pub mod digests;
mod direct;

use crate::Done;
use crate::dir::ReadFile;
use crate::dir_mut::WriteFile;
use crate::local::file::LocalFile;
use crate::local::look::fault;
use crate::magic::{CEPH, CIFS, NFS, SMB2, is_on};
use crate::whole::has_zero_block;
use driftless_model::{Act, Cache, Fault, Side};
use rustix::fd::OwnedFd;
use rustix::fs;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Bytes of a read or write; larger blocks do not stay in the processor's cache.
const BLOCK_BYTES: usize = 256 * 1024;
/// Bytes that the kernel is asked to copy by itself at a time.
const OFFLOAD_BYTES: u64 = 1024 * 1024;
/// Bytes of a read or write past the page cache, where each is a request to the device.
const DIRECT_BYTES: usize = 1024 * 1024;
/// Alignment of addresses, offsets and lengths of direct I/O: a page, which is enough for every
/// device in use.
const ALIGN: usize = 4096;

/// What was learned about a pair of file systems; shared by all copiers of a run.
#[derive(Debug, Default)]
pub struct Ladder {
    /// Hash of the last pair of devices that refused to share extents.
    no_clone: AtomicU64,
    /// Hash of the last pair of devices between which the kernel does not copy by itself.
    no_offload: AtomicU64,
    no_dontcache: AtomicBool,
    no_direct: AtomicBool,
}

/// Copies and compares content.
#[derive(Debug)]
pub struct Copier {
    buffer: Vec<u8>,
    cache: Cache,
    ladder: Arc<Ladder>,
    /// The hash of what was read from the source, while a copy is to be verified.
    digest: Option<blake3::Hasher>,
}

/// Why content was not moved or compared to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halt {
    /// A call failed.
    Fault(Fault),
    /// The run was asked to stop.
    Stopped,
}

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Self {
        Halt::Fault(fault)
    }
}

/// Is told how many bytes are about to be moved or compared, before each block; may wait, and may
/// say that the run is to stop.
pub type Pace<'a> = &'a mut dyn FnMut(u64) -> Result<(), Halt>;

/// The number of bytes, or why there are fewer than there should be.
type Counted = Result<u64, Halt>;

fn pair_hash(devices: (u64, u64)) -> u64 {
    devices.0.rotate_left(32) ^ devices.1 ^ 0x9e37_79b9_7f4a_7c15
}

impl Copier {
    /// A copier with a buffer of its own; memory is taken as it is used.
    pub fn new(cache: Cache, ladder: Arc<Ladder>) -> Self {
        let size = if cache == Cache::Direct {
            DIRECT_BYTES
        } else {
            BLOCK_BYTES
        };
        Copier {
            buffer: vec![0; size + ALIGN],
            cache,
            ladder,
            digest: None,
        }
    }

    /// Forgets what it began to hash, for the next file.
    pub fn reset(&mut self) {
        self.digest = None;
    }

    /// Makes `to` share all extents of `from` (ioctl_ficlonerange(2)); returns whether it does.
    /// `devices` are the device numbers of the two files.
    pub fn clone_whole(
        &self,
        from: &dyn ReadFile,
        to: &dyn WriteFile,
        devices: (u64, u64),
    ) -> bool {
        let (Some(from), Some(to)) = (from.as_local(), to.as_local()) else {
            return false;
        };
        if self.ladder.no_clone.load(Relaxed) == pair_hash(devices) || to.pass_gate().is_err() {
            return false;
        }
        let done = fs::ioctl_ficlone(&to.fd, &from.fd);
        if matches!(
            done,
            Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::NOTTY | Errno::INVAL | Errno::NOSYS)
        ) {
            self.ladder.no_clone.store(pair_hash(devices), Relaxed);
        }
        done.is_ok()
    }

    /// Copies a range, only its data if `sparse`; returns the number of bytes copied. Stops early
    /// where the source has become shorter: the caller sees that when it looks at the source again.
    /// A source that ends before the size that it states is a fault: there is no telling what it
    /// holds.
    pub fn copy(
        &mut self,
        (from, to): (&dyn ReadFile, &dyn WriteFile),
        range: Range<u64>,
        sparse: bool,
        pace: Pace<'_>,
    ) -> Counted {
        let mut copied = 0;
        let mut at = range.start;
        while at < range.end {
            let extent = if sparse {
                from.next_data(at..range.end)?
            } else {
                Some(at..range.end)
            };
            let Some(extent) = extent else { break };
            let done = self.copy_extent(from, to, extent.clone(), pace)?;
            copied += done;
            if done < extent.end - extent.start {
                check_end(from, extent.start + done)?;
                break;
            }
            at = extent.end;
        }
        Ok(copied)
    }

    /// Copies a whole small file of `size` bytes; returns the number of bytes copied. Holes read as
    /// zeros, so only a file that shows a block of them is searched for holes: that saves two calls
    /// for almost every file.
    pub fn copy_small(
        &mut self,
        (from, to): (&dyn ReadFile, &dyn WriteFile),
        size: u64,
        sparse: bool,
        pace: Pace<'_>,
    ) -> Counted {
        if let (Some(bytes), true) = (from.bytes(), self.cache == Cache::Keep) {
            pace(size)?;
            return Ok(write_data((from, bytes), to, sparse)?);
        }
        let fits = size as usize <= self.buffer.len() - ALIGN && self.cache == Cache::Keep;
        if !fits {
            return self.copy((from, to), 0..size, sparse, pace);
        }
        pace(size)?;
        let block = self.block(size as usize);
        let got = from.read_at(block, 0)?;
        if got < block.len() {
            check_end(from, got as u64)?;
        }
        if sparse && has_zero_block(&block[..got]) {
            return self.copy((from, to), 0..size, true, &mut |_| Ok(()));
        }
        to.write_at(&block[..got], 0)?;
        Ok(got as u64)
    }

    fn copy_extent(
        &mut self,
        from: &dyn ReadFile,
        to: &dyn WriteFile,
        extent: Range<u64>,
        pace: Pace<'_>,
    ) -> Counted {
        if self.digest.is_none()
            && let Some(done) = to.copy_from(from, extent.clone())
        {
            return Ok(done?);
        }
        let locals = from.as_local().zip(to.as_local());
        let mut at = extent.start;
        if let Some((from, to)) = locals {
            at += self.offload(from, to, &extent, pace)?;
        }
        while at < extent.end {
            let len = self.block_len(at, extent.end);
            pace(len as u64)?;
            let done = match locals {
                Some((from, to)) => self.move_local(from, to, at, len)?,
                None => self.move_any(from, to, at, len)?,
            };
            at += done as u64;
            if done < len {
                break;
            }
        }
        Ok(at - extent.start)
    }

    /// The length of the block that begins at `at`. Blocks end at multiples of the block size, so
    /// that direct I/O is aligned again after an odd start.
    fn block_len(&self, at: u64, end: u64) -> usize {
        let block = (self.buffer.len() - ALIGN) as u64;
        let stop = (at / block + 1) * block;
        (stop.min(end) - at) as usize
    }

    fn block(&mut self, len: usize) -> &mut [u8] {
        let skip = self.buffer.as_ptr().align_offset(ALIGN);
        &mut self.buffer[skip..skip + len]
    }

    fn move_any(
        &mut self,
        from: &dyn ReadFile,
        to: &dyn WriteFile,
        at: u64,
        len: usize,
    ) -> Done<usize> {
        let block = self.block(len);
        let got = from.read_at(block, at)?;
        to.write_at(&block[..got], at)?;
        self.digest_block(got);
        Ok(got)
    }

    /// Adds the block that was just moved to the hash of the source.
    fn digest_block(&mut self, len: usize) {
        let skip = self.buffer.as_ptr().align_offset(ALIGN);
        if let Some(digest) = &mut self.digest {
            digest.update(&self.buffer[skip..skip + len]);
        }
    }

    fn move_local(&mut self, from: &LocalFile, to: &LocalFile, at: u64, len: usize) -> Done<usize> {
        to.pass_gate()?;
        match self.cache {
            Cache::Keep => self.move_any(from, to, at, len),
            Cache::Direct if at.is_multiple_of(ALIGN as u64) && len >= ALIGN => {
                self.move_direct(from, to, at, len / ALIGN * ALIGN, len)
            }
            Cache::Drop | Cache::Direct => self.move_dropping(from, to, at, len),
        }
    }

    /// Has the kernel copy as much of an extent as it does by itself (copy_file_range(2)); returns
    /// the number of bytes.
    fn offload(
        &self,
        from: &LocalFile,
        to: &LocalFile,
        extent: &Range<u64>,
        pace: Pace<'_>,
    ) -> Counted {
        let Some(pair) = self.offloads(from, to) else {
            return Ok(0);
        };
        let mut at = extent.start;
        while at < extent.end {
            let len = (extent.end - at).min(OFFLOAD_BYTES - at % OFFLOAD_BYTES);
            pace(len)?;
            to.pass_gate()?;
            let (mut offset_in, mut offset_out) = (at, at);
            match fs::copy_file_range(
                &from.fd,
                Some(&mut offset_in),
                &to.fd,
                Some(&mut offset_out),
                len as usize,
            ) {
                Ok(done) if done > 0 => at += done as u64,
                refused => {
                    if matches!(
                        refused,
                        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::XDEV)
                    ) {
                        self.ladder.no_offload.store(pair, Relaxed);
                    }
                    break;
                }
            }
        }
        Ok(at - extent.start)
    }

    /// Whether the kernel is asked to copy by itself; returns the hash of the pair of devices if it
    /// is. Within one file system the kernel may share blocks, and no byte passes through this
    /// program; a network file system's server may copy by itself. What is to be hashed has to be
    /// read.
    fn offloads(&self, from: &LocalFile, to: &LocalFile) -> Option<u64> {
        if self.digest.is_some() {
            return None;
        }
        let devices = (
            fs::fstat(&from.fd).ok()?.st_dev,
            fs::fstat(&to.fd).ok()?.st_dev,
        );
        let pair = pair_hash(devices);
        if self.ladder.no_offload.load(Relaxed) == pair {
            return None;
        }
        let within = devices.0 == devices.1 && self.cache == Cache::Keep;
        if within || (on_server(&from.fd) && on_server(&to.fd)) {
            return Some(pair);
        }
        self.ladder.no_offload.store(pair, Relaxed);
        None
    }
}

/// Looks why reading ended at `at`, before the end of what was asked for. The source may have
/// become shorter, which is no fault here. It is a fault if the source still says that it has more
/// than `at` bytes (a file of sysfs, say, or of a server that lost some): what is missing must not
/// become zeros.
fn check_end(from: &dyn ReadFile, at: u64) -> Done {
    let side = from.as_local().map_or(Side::Source, |file| file.side);
    if from.meta()?.size > at {
        Err(fault(side, Act::ReadAll, Errno::NODATA))
    } else {
        Ok(())
    }
}

/// Writes a file that is in memory: all of it or, if `sparse`, only its data.
fn write_data(
    (from, bytes): (&dyn ReadFile, &[u8]),
    to: &dyn WriteFile,
    sparse: bool,
) -> Done<u64> {
    let (mut written, mut at, end) = (0, 0, bytes.len() as u64);
    while at < end {
        let extent = if sparse {
            from.next_data(at..end)?
        } else {
            Some(at..end)
        };
        let Some(extent) = extent else { break };
        to.write_at(
            &bytes[extent.start as usize..extent.end as usize],
            extent.start,
        )?;
        written += extent.end - extent.start;
        at = extent.end;
    }
    Ok(written)
}

/// Whether a file lies on a network file system whose server copies by itself: NFS, SMB, Ceph.
fn on_server(fd: &OwnedFd) -> bool {
    is_on(fd, &[NFS, SMB2, CIFS, CEPH])
}
