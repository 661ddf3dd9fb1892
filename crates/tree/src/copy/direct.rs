//! Copying that does not fill the page cache: content passes through the cache and leaves it again
//! (RWF_DONTCACHE, posix_fadvise(2)), or passes it by (O_DIRECT).

use crate::Done;
use crate::copy::Copier;
use crate::copy::block::{io_fault, move_with};
use crate::local::file::LocalFile;
use crate::local::look::fault;
use crate::local::xattr::proc_path;
use driftless_model::{Act, Side};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, Advice, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering::Relaxed;

/// `RWF_DONTCACHE` of linux/fs.h (Linux 6.14): pages that this call brings in leave the cache when
/// it is done.
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

impl Copier {
    /// Moves a block whose pages leave the cache again, in the way that this kernel knows.
    pub(super) fn move_dropping(
        &mut self,
        from: &LocalFile,
        to: &LocalFile,
        at: u64,
        len: usize,
    ) -> Done<usize> {
        let plain = self.ladder.no_dontcache.load(Relaxed);
        let flags = if plain {
            ReadWriteFlags::empty()
        } else {
            DONTCACHE
        };
        let moved = move_with(&from.fd, &to.fd, self.block(len), at, flags);
        if !plain
            && matches!(
                moved,
                Err((_, Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS))
            )
        {
            self.ladder.no_dontcache.store(true, Relaxed);
            return self.move_dropping(from, to, at, len);
        }
        let moved = moved.map_err(|(side, errno)| io_fault(side, errno))?;
        self.digest_block(moved);
        if plain {
            self.forget(from, to, at, len)?;
        }
        Ok(moved)
    }

    /// The older way: write out, then advise the kernel to let go (posix_fadvise(2)).
    fn forget(&self, from: &LocalFile, to: &LocalFile, at: u64, len: usize) -> Done {
        fs::fdatasync(&to.fd).map_err(|e| fault(Side::Replica, Act::Flush, e))?;
        for file in [from, to] {
            let _only_advice =
                fs::fadvise(&file.fd, at, NonZeroU64::new(len as u64), Advice::DontNeed);
        }
        Ok(())
    }

    /// Moves a block of `len` bytes: the first `aligned` bytes past the page cache, the rest
    /// through it. The whole block goes through the cache where the file system or the device wants
    /// that.
    pub(super) fn move_direct(
        &mut self,
        from: &LocalFile,
        to: &LocalFile,
        at: u64,
        aligned: usize,
        len: usize,
    ) -> Done<usize> {
        let handles = if self.ladder.no_direct.load(Relaxed) {
            None
        } else {
            from.direct().zip(to.direct())
        };
        let Some((source, replica)) = handles else {
            return self.move_dropping(from, to, at, len);
        };
        let moved = move_with(
            source,
            replica,
            self.block(aligned),
            at,
            ReadWriteFlags::empty(),
        );
        if let Ok(moved) = moved {
            self.digest_block(moved);
        }
        match moved {
            Ok(n) if n == aligned && aligned < len => {
                let tail = self.move_dropping(from, to, at + n as u64, len - aligned)?;
                Ok(n + tail)
            }
            Ok(n) => Ok(n),
            // The device wants something else (EINVAL), or the file ended within a block.
            Err(_) => {
                self.ladder.no_direct.store(true, Relaxed);
                self.move_dropping(from, to, at, len)
            }
        }
    }
}

impl LocalFile {
    /// A second descriptor of the same file, with which reads and writes pass the page cache by, if
    /// the file system offers one.
    fn direct(&self) -> Option<&OwnedFd> {
        let access = if self.side == Side::Source {
            OFlags::RDONLY
        } else {
            OFlags::RDWR
        };
        let flags = access | OFlags::DIRECT | OFlags::CLOEXEC;
        self.direct
            .get_or_init(|| fs::open(proc_path(self.fd.as_fd(), None), flags, Mode::empty()).ok())
            .as_ref()
    }
}
