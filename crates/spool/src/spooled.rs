//! What programs have said while the agent did not take it: in a folder, a file for each user, which
//! he alone writes to.
//!
//! ```text
//! 0   u16    bytes that follow
//! 2   u64    when it was said: nanoseconds of CLOCK_REALTIME
//! 10         the message, as in a datagram
//! ```
//!
//! Numbers are in the order of this machine. The reader removes the name of a file before it reads
//! it. A program looks after it has written whether the file still had a name; if not, it writes to
//! the next one. So each word is in a file that is read to its end, or is said again.

use crate::message::MESSAGE_BYTES_MAX;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, flock, fstat};
use rustix::io::Errno;
use std::ffi::CString;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// What stands before a message, behind the number of bytes: the moment.
const MOMENT: usize = 8;
/// Bytes of one user that are read at a time; of more, nobody is told.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Bytes that are read at a time.
const ALL_BYTES_MAX: u64 = 64 << 20;

/// The folder.
#[derive(Debug)]
pub struct Spool {
    path: PathBuf,
    folder: OwnedFd,
}

/// What was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Spooled {
    /// Messages, as they were written.
    pub messages: Vec<Vec<u8>>,
    /// Something could not be read, or was too much: what it said is not known.
    pub has_more: bool,
    /// How many bytes were read.
    bytes: u64,
}

impl Spool {
    /// The folder at `path`, in which every user may make a file, and nobody takes away another's
    /// (the sticky bit of chmod(2)). It is this one's alone while it is open.
    ///
    /// # Errors
    /// `EAGAIN` if another one has it, `EPERM` if it belongs to another user.
    pub fn open(path: &Path) -> Result<Spool, Errno> {
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty())?;
        // Whoever owns it could take words away.
        if fstat(&folder)?.st_uid != rustix::process::geteuid().as_raw() {
            return Err(Errno::PERM);
        }
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            // On NFS a directory has no lock (flock(2)).
            Ok(()) | Err(Errno::BADF | Errno::NOLCK | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
        rustix::fs::fchmod(&folder, Mode::from_raw_mode(0o1733))?;
        Ok(Spool {
            path: path.to_owned(),
            folder,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all files, which are gone then.
    pub fn take(&self) -> Result<Spooled, Errno> {
        let mut all = Spooled::default();
        for entry in rustix::fs::Dir::read_from(&self.folder)? {
            let name = entry?.file_name().to_owned();
            if !matches!(name.to_bytes(), b"." | b"..") {
                self.take_one(&name, &mut all);
            }
        }
        Ok(all)
    }

    fn take_one(&self, name: &CString, all: &mut Spooled) {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, name, flags, Mode::empty());
        let file = file.ok().filter(|file| is_own(file, name));
        // Another's file in the place of a user's takes his words away; it goes as well.
        let flags = AtFlags::empty();
        let removed = rustix::fs::unlinkat(&self.folder, name, flags)
            .or_else(|_| rustix::fs::unlinkat(&self.folder, name, AtFlags::REMOVEDIR));
        match removed {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => tracing::warn!("{}: {name:?} stays: {errno}", self.path.display()),
        }
        match file {
            Some(file) => read(std::fs::File::from(file), all),
            None => all.has_more = true,
        }
    }
}

/// Whether a file is of the user whose number is its name.
fn is_own(file: &OwnedFd, name: &CString) -> bool {
    let Ok(stat) = fstat(file) else {
        return false;
    };
    let owner = name.to_str().ok().and_then(|name| name.parse().ok());
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && owner == Some(stat.st_uid)
}

/// Reads a file to its end, or as far as it goes.
fn read(file: impl Read, all: &mut Spooled) {
    let room = FILE_BYTES_MAX.min(ALL_BYTES_MAX.saturating_sub(all.bytes));
    let mut from = BufReader::new(file.take(room));
    while let Some(message) = next(&mut from).transpose() {
        match message {
            Ok(message) => all.messages.push(message),
            Err(_) => {
                all.has_more = true;
                break;
            }
        }
    }
    let left = from.into_inner();
    all.bytes += room - left.limit();
    // Whether it ended there is not asked for: a file of just that size is too much.
    all.has_more |= left.limit() == 0;
}

/// The next message; none at the end.
fn next(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    if from.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut length = [0; 2];
    from.read_exact(&mut length)?;
    let mut record = vec![0; usize::from(u16::from_ne_bytes(length))];
    from.read_exact(&mut record)?;
    if record.len() <= MOMENT || record.len() > MOMENT + MESSAGE_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(Some(record.split_off(MOMENT)))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "folders of these tests")]
mod tests {
    use super::*;
    use rustix::fs::CWD;
    use std::fs;

    fn record(message: &[u8]) -> Vec<u8> {
        let length = (message.len() + MOMENT) as u16;
        [&length.to_ne_bytes()[..], &[7; MOMENT], message].concat()
    }

    fn spool() -> (tempfile::TempDir, Spool, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(&folder.path().join("spool")).unwrap();
        let own = spool
            .path
            .join(rustix::process::getuid().as_raw().to_string());
        (folder, spool, own)
    }

    #[test]
    fn what_was_written_is_read_once() {
        let (_folder, spool, own) = spool();
        assert_eq!(spool.take().unwrap(), Spooled::default());
        fs::write(&own, [record(b"one"), record(b"\0two\n")].concat()).unwrap();
        let taken = spool.take().unwrap();
        assert_eq!(taken.messages, [b"one".to_vec(), b"\0two\n".to_vec()]);
        assert!(!taken.has_more);
        assert!(!own.exists());
        assert_eq!(spool.take().unwrap(), Spooled::default());
    }

    #[test]
    fn what_is_cut_off_or_too_much_is_known_to_be_missed() {
        let (_folder, spool, own) = spool();
        let whole = [record(b"one"), record(b"two")].concat();
        let first = record(b"one").len();
        for length in 1..whole.len() {
            fs::write(&own, &whole[..length]).unwrap();
            let taken = spool.take().unwrap();
            assert_eq!(taken.messages.len(), length / first, "{length}");
            assert_eq!(taken.has_more, length != first, "{length}");
        }
        let one = record(b"m");
        let count = FILE_BYTES_MAX as usize / one.len();
        fs::write(&own, one.repeat(count + 1)).unwrap();
        let taken = spool.take().unwrap();
        assert_eq!((taken.messages.len(), taken.has_more), (count, true));
    }

    #[test]
    fn what_is_not_of_the_user_whose_name_it_has_goes_unread() {
        let (_folder, spool, own) = spool();
        for place in ["4294967294", "somebody", "-1"] {
            fs::write(spool.path.join(place), record(b"one")).unwrap();
        }
        fs::create_dir(&own).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", spool.path.join("1")).unwrap();
        rustix::fs::mknodat(CWD, spool.path.join("2"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let taken = spool.take().unwrap();
        assert_eq!(taken.messages, Vec::<Vec<u8>>::new());
        assert!(taken.has_more);
        assert_eq!(fs::read_dir(&spool.path).unwrap().count(), 0);
    }
}
