//! Regular files of a local tree, read and written.

use crate::Done;
use crate::copy::digests;
use crate::dir::ReadFile;
use crate::dir_mut::WriteFile;
use crate::gate::Gate;
use crate::local::attributes::Setter;
use crate::local::look::{fault, meta_again, meta_open};
use crate::local::sys::{self, Mapping};
use crate::local::wanted::{Attributes, Known};
use crate::local::xattr::Target;
use crate::magic::{TMPFS, TOLD, is_on};
use driftless_model::{Act, Fault, Keep, Meta, Side, Xattrs};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Advice, FallocateFlags, SeekFrom};
use rustix::io::Errno;
use std::ffi::CStr;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The attribute in which the progress of an unfinished file is kept.
const PROGRESS: &CStr = c"user.driftless.resume";
/// Bytes of the largest note of progress; ext4 keeps all attributes of a file in one block of 4
/// KiB.
const PROGRESS_BYTES_MAX: usize = 2048;

/// Granularity of the holes that are found by reading: the block size of most file systems.
const HOLE_BYTES: u64 = 4096;
/// Data that is found by reading is handed over in pieces of about this size.
const READ_TWICE_BYTES: u64 = 1024 * 1024;

/// Below this many bytes it costs more to map a range than to copy it.
const MAPPED_BYTES_MIN: u64 = 256 * 1024;

/// An open regular file.
#[derive(Debug)]
pub struct LocalFile {
    pub(crate) fd: OwnedFd,
    pub(crate) side: Side,
    /// A second descriptor for direct I/O, opened when it is first wanted.
    pub(crate) direct: OnceLock<Option<OwnedFd>>,
    /// The gate that each change of the file passes, if it was opened to be written.
    gate: Option<Arc<Gate>>,
}

impl LocalFile {
    /// A file that was just opened.
    pub(crate) fn new(fd: OwnedFd, side: Side) -> Self {
        LocalFile {
            fd,
            side,
            direct: OnceLock::new(),
            gate: None,
        }
    }

    /// The file, each change of which passes a gate.
    pub(crate) fn behind(self, gate: &Arc<Gate>) -> Self {
        LocalFile {
            gate: Some(gate.clone()),
            ..self
        }
    }

    /// Lets a change of the file through its gate.
    pub(crate) fn pass_gate(&self) -> Done {
        self.gate.as_ref().map_or(Ok(()), |gate| gate.pass())
    }

    /// Hands over a range as it stands in the page cache, without copying it. Returns `false` if
    /// the range is not all there or is below 256 KiB, and then what was handed over, if anything,
    /// is not to be used.
    pub fn with_cached(&self, range: Range<u64>, use_bytes: impl FnOnce(&[u8])) -> bool {
        if range.end - range.start < MAPPED_BYTES_MIN {
            return false;
        }
        let mapping = Mapping::new(self.fd.as_fd(), range);
        mapping.is_ok_and(|mapping| mapping.is_cached() && mapping.read(use_bytes))
    }

    fn fail<T>(&self, act: Act, done: Result<T, Errno>) -> Done<T> {
        done.map_err(|errno| fault(self.side, act, errno))
    }

    /// Returns whether a file has bytes beyond the size that it states, as a server or a program behind
    /// FUSE may show it. A file system on a disk of this host knows the size of its files.
    fn goes_on_at(&self, meta: &Meta) -> bool {
        rustix::fs::major(meta.dev) == 0
            && is_on(&self.fd, &TOLD)
            && matches!(read_full(&self.fd, &mut [0], meta.size), Ok(1..))
    }

    fn seek(&self, from: SeekFrom) -> Result<Option<u64>, Errno> {
        match rustix::fs::seek(&self.fd, from) {
            Err(Errno::NXIO) => Ok(None),
            other => other.map(Some),
        }
    }

    fn data_from(&self, within: &Range<u64>) -> Result<Option<Range<u64>>, Errno> {
        let start = match self.seek(SeekFrom::Data(within.start)) {
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return self.data_by_reading(within),
            other => other?,
        };
        let Some(start) = start.filter(|start| *start < within.end) else {
            return Ok(None);
        };
        let end = match self.seek(SeekFrom::Hole(start)) {
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return self.data_by_reading(within),
            other => other?.unwrap_or(within.end),
        };
        Ok(Some(start..end.min(within.end)))
    }

    /// Finds data where the file system cannot tell (lseek(2): EINVAL): blocks of zeros count as
    /// holes. The range that is found ends after about `READ_TWICE_BYTES`, since the caller reads
    /// all of it again.
    fn data_by_reading(&self, within: &Range<u64>) -> Result<Option<Range<u64>>, Errno> {
        let mut block = [0; HOLE_BYTES as usize];
        let (mut start, mut at) = (None, within.start);
        while at < within.end && start.is_none_or(|start| at - start < READ_TWICE_BYTES) {
            let end = (at / HOLE_BYTES + 1) * HOLE_BYTES;
            let block = &mut block[..(end.min(within.end) - at) as usize];
            let got = read_full(&self.fd, block, at)?;
            match block[..got].iter().any(|byte| *byte != 0) {
                true => _ = start.get_or_insert(at),
                false if start.is_some() => break,
                false => {}
            }
            at += block.len() as u64;
        }
        Ok(start.map(|start| start..at))
    }
}

/// Fills the buffer, as far as the file goes.
fn read_full(fd: &OwnedFd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::pread(fd, &mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}

impl ReadFile for LocalFile {
    fn meta(&self) -> Done<Meta> {
        self.fail(Act::LookAt, meta_open(&self.fd))
    }

    fn meta_again(&self) -> Done<Meta> {
        let again = || self.fail(Act::LookAt, meta_again(&self.fd));
        let meta = again()?;
        if self.side == Side::Replica || !self.goes_on_at(&meta) {
            return Ok(meta);
        }
        // It may have grown between the two looks.
        let now = again()?;
        match now.size > meta.size {
            true => Ok(now),
            false => self.fail(Act::ReadAll, Err(Errno::FBIG)),
        }
    }

    fn xattrs(&self, keep: &Keep) -> Done<Xattrs> {
        self.fail(Act::ReadXattrs, Target::Open(self.fd.as_fd()).read(keep))
    }

    fn xattrs_within(&self, keep: &Keep, bytes_max: u64) -> Done<Option<Xattrs>> {
        self.fail(
            Act::ReadXattrs,
            Target::Open(self.fd.as_fd()).read_within(keep, bytes_max),
        )
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Done<usize> {
        self.fail(Act::Read, read_full(&self.fd, buffer, offset))
    }

    fn digests(&self, range: Range<u64>, piece: u64) -> Done<Vec<[u8; 32]>> {
        let cached = digests::of_cached(self, range.clone(), piece);
        cached.map_or_else(|| digests::by_reading(self, range, piece), Ok)
    }

    /// The flush comes first: the kernel does not let go of dirty pages when it is advised to
    /// (posix_fadvise(2)).
    fn drop_cached(&self) -> Done {
        self.fail(Act::Flush, rustix::fs::fsync(&self.fd))?;
        self.fail(
            Act::LeaveCache,
            rustix::fs::fadvise(&self.fd, 0, None, Advice::DontNeed),
        )
    }

    fn next_data(&self, within: Range<u64>) -> Done<Option<Range<u64>>> {
        if within.is_empty() {
            return Ok(None);
        }
        self.fail(Act::FindHoles, self.data_from(&within))
    }

    fn as_local(&self) -> Option<&LocalFile> {
        Some(self)
    }
}

impl WriteFile for LocalFile {
    fn write_at(&self, data: &[u8], offset: u64) -> Done {
        self.pass_gate()?;
        let mut written = 0;
        while written < data.len() {
            match rustix::io::pwrite(&self.fd, &data[written..], offset + written as u64) {
                Ok(0) => return self.fail(Act::Write, Err(Errno::IO)),
                Ok(n) => written += n,
                Err(Errno::INTR) => {}
                Err(errno) => return self.fail(Act::Write, Err(errno)),
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Done {
        self.pass_gate()?;
        self.fail(Act::SetLength, rustix::fs::ftruncate(&self.fd, len))
    }

    fn allocate(&self, range: Range<u64>) -> Done {
        self.pass_gate()?;
        // Memory needs no placing: there, to reserve would only touch each page twice.
        if is_on(&self.fd, &[TMPFS]) {
            return Ok(());
        }
        let flags = FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.fd, flags, range.start, range.end - range.start) {
            Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => self.fail(Act::Reserve, Err(errno)),
            _ => Ok(()),
        }
    }

    fn set(&self, known: &Known, attributes: &Attributes) -> Vec<Fault> {
        if let Err(fault) = self.pass_gate() {
            return vec![fault];
        }
        Setter::apply(Target::Open(self.fd.as_fd()), self.side, known, attributes)
    }

    fn sync(&self) -> Done {
        self.fail(Act::Flush, rustix::fs::fsync(&self.fd))
    }

    /// Closes a second descriptor of the same open file: the file system is told whenever one of
    /// its descriptors is closed (filp_flush of fs/open.c).
    fn flush(&self) -> Done {
        let direct = self.direct.get().and_then(Option::as_ref);
        let close_one = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 0).and_then(sys::close);
        [&self.fd]
            .into_iter()
            .chain(direct)
            .try_for_each(|fd| self.fail(Act::Close, close_one(fd)))
    }

    fn close(self: Box<Self>) -> Done {
        let LocalFile {
            fd, side, direct, ..
        } = *self;
        let direct = direct.into_inner().flatten().map_or(Ok(()), sys::close);
        sys::close(fd)
            .and(direct)
            .map_err(|errno| fault(side, Act::Close, errno))
    }

    fn progress(&self) -> Option<Vec<u8>> {
        Target::Open(self.fd.as_fd()).read_one(PROGRESS)
    }

    fn save_progress(&self, note: Option<&[u8]>) -> Done {
        self.pass_gate()?;
        let target = Target::Open(self.fd.as_fd());
        let done = match note {
            Some(note) if note.len() <= PROGRESS_BYTES_MAX => target.set(PROGRESS, note),
            Some(_) => Ok(()),
            None => target.unset(PROGRESS),
        };
        match done {
            Err(Errno::OPNOTSUPP) => Ok(()),
            other => self.fail(Act::NoteProgress, other),
        }
    }
}
