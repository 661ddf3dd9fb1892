//! The way to the agent: a datagram that waits for nobody. If the agent does not take it, it goes
//! to the end of a file; if that cannot be, the tree has a gap.
//!
//! ```text
//! 0  3 bytes  "DS1"
//! 3  1 byte   what happened: one of the letters of [`Kind`]
//! 4           the path, and NUL; of a rename the old path, NUL, the new path, NUL
//! ```
//!
//! In the file, each is a record:
//!
//! ```text
//! 0  u16      how many bytes follow
//! 2  u64      when: nanoseconds of CLOCK_REALTIME
//! 10          the message, as above
//! ```

use crate::buffers::{self, Buffer};
use crate::config::{Gap, Map, watched};
use crate::paths::{self, Last};
use crate::process;
use crate::sys::{self, File, PATH_MAX};
use core::mem::zeroed;
use core::ops::Range;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use libc::{c_char, c_int, c_long};

/// What stands before a message where it is a record.
const RECORD: usize = 10;
/// Where the path stands in a buffer: behind all that may stand before it.
const PATH: usize = RECORD + 4;
/// Bytes of the path of a user's file in the spool: a folder's, a slash, a number, and an end.
const SPOOL_PATH: usize = 512 + 12;
/// A file that lost its name meanwhile is followed by another.
const SPOOL_TRIES: usize = 3;
/// The file grows no longer.
const SPOOL_BYTES_MAX: u64 = 64 << 20;
/// Descriptors are nobody's before they are as high, where so many may be open. Tables of those
/// that are much higher cost a process, and each of its children, time and memory.
const DESCRIPTORS: u64 = 1024;
const BELOW_DESCRIPTORS: u64 = 24;

/// What happened to a path.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A file was closed that may have been written, or was cut off.
    Written = b'w',
    /// It came to be, by another way than that.
    Made = b'c',
    /// Its attributes were changed.
    Attributes = b'm',
    /// It is gone.
    Removed = b'd',
    /// It has the second name now; without a second one, it came from elsewhere or went there.
    Renamed = b'r',
    /// Both names have changed places.
    Exchanged = b'x',
    /// This process has it open for writing, and announces no more of it: it is to be looked at
    /// when the process has ended, and now and then before.
    Left = b'l',
}

/// A path as a call takes it: relative to an open directory (openat(2)).
#[derive(Clone, Copy)]
pub struct Named {
    pub at: c_int,
    pub path: *const c_char,
}

impl Named {
    /// What the path was when a call that has succeeded took it.
    ///
    /// # Safety
    /// The path ends.
    unsafe fn resolve(self, last: Last, into: &mut [u8]) -> Option<usize> {
        // SAFETY: by the caller.
        paths::resolve(self.at, unsafe { sys::bytes(self.path) }, last, into)
    }

    /// Counts a gap of it: of the trees that may have files where it is.
    fn count_gap(self) {
        let Some(map) = watched() else { return };
        if sys::is_confined() {
            // SAFETY: a path that is named ends, or is null.
            return map.count_gap_of_text(unsafe { sys::bytes(self.path) });
        }
        let found = sys::lstat(self.at, self.path);
        map.count_gap(found.map_or(Gap::Anywhere, |file| Gap::On(file.device)));
    }
}

/// The room of a path in a buffer.
pub fn room(buffer: &mut Buffer) -> &mut [u8] {
    buffer.get_mut(PATH..PATH + PATH_MAX).unwrap_or_default()
}

/// Puts a path into a buffer; none if it is too long.
pub fn put_path(buffer: &mut Buffer, path: &[u8]) -> Option<usize> {
    sys::put(room(buffer), 0, path)
}

/// The path of so many bytes that stands in a buffer.
pub fn path(buffer: &Buffer, len: usize) -> &[u8] {
    buffer.get(PATH..PATH + len).unwrap_or_default()
}

/// Says that a call has changed a path.
///
/// # Safety
/// The path ends.
pub unsafe fn tell(kind: Kind, named: Named, last: Last) {
    if watched().is_none() {
        return;
    }
    sys::quietly(|| {
        let found = buffers::take().and_then(|mut buffer| {
            // SAFETY: by the caller.
            let len = unsafe { named.resolve(last, room(&mut buffer)) }?;
            Some((buffer, len))
        });
        match found {
            Some((buffer, len)) => send_one(kind, buffer, len),
            None => named.count_gap(),
        }
    });
}

/// Says that a call has given a path another name.
///
/// # Safety
/// The paths end.
pub unsafe fn tell_two(kind: Kind, from: Named, to: Named) {
    if watched().is_none() {
        return;
    }
    sys::quietly(|| {
        let resolved = |named: Named| {
            let mut buffer = buffers::take()?;
            // SAFETY: by the caller.
            let len = unsafe { named.resolve(Last::Keep, room(&mut buffer)) }?;
            Some((buffer, len))
        };
        let (Some(from), Some(to_path)) = (resolved(from), resolved(to)) else {
            if sys::is_confined() {
                from.count_gap();
            }
            return to.count_gap();
        };
        send_two(kind, from, to_path);
    });
}

fn send_two(kind: Kind, from: (Buffer, usize), to: (Buffer, usize)) {
    let Some(map) = watched() else { return };
    let ((mut buffer, first), (second, other)) = (from, to);
    let to = path(&second, other);
    let trees = (map.tree_of(path(&buffer, first)), map.tree_of(to));
    match trees {
        (Some(tree), Some(_)) => {
            let end = sys::put(&mut buffer[..], PATH + first, &[0])
                .and_then(|at| sys::put(&mut buffer[..], at, to));
            match end {
                Some(end) => send(&map, tree, (kind, buffer, end)),
                None => map.count_gap(Gap::Of(tree)),
            }
        }
        // What comes from elsewhere, or goes there, is told as such by its one name.
        (Some(_), None) => send_one(Kind::Renamed, buffer, first),
        (None, Some(_)) => send_one(Kind::Renamed, second, other),
        (None, None) => {}
    }
}

/// Sends the path of so many bytes that stands in a buffer, if it is in one of the trees.
pub fn send_one(kind: Kind, buffer: Buffer, len: usize) {
    let Some(map) = watched() else { return };
    if let Some(tree) = map.tree_of(path(&buffer, len)) {
        send(&map, tree, (kind, buffer, PATH + len));
    }
}

/// Whether the agent knows that the path of so many bytes that stands in a buffer is left to it. It
/// has to hear that at once, since the kernel says then which process it is.
pub fn is_left(map: &Map, mut buffer: Buffer, len: usize) -> bool {
    let message = message(&mut buffer, Kind::Left, PATH + len);
    message.is_some_and(|message| is_sent(map, buffer.get(message).unwrap_or_default()))
}

/// Puts all that stands around the paths from [`PATH`] to an end into a buffer, and says where the
/// message stands.
fn message(buffer: &mut Buffer, kind: Kind, end: usize) -> Option<Range<usize>> {
    let head = [b'D', b'S', b'1', kind as u8];
    sys::put(&mut buffer[..], RECORD, &head)?;
    let over = sys::put(&mut buffer[..], end, &[0])?;
    Some(RECORD..over)
}

/// Sends what stands in a buffer from [`PATH`] to an end.
fn send(map: &Map, tree: usize, (kind, mut buffer, end): (Kind, Buffer, usize)) {
    let is_told = message(&mut buffer, kind, end).is_some_and(|message| {
        is_sent(map, buffer.get(message.clone()).unwrap_or_default())
            || is_spooled(map, &mut buffer, message)
    });
    if !is_told {
        map.count_gap(Gap::Of(tree));
    }
}

#[unsafe(link_section = ".data")]
static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// From this number on, a descriptor of the program shows that it may need all that it may have.
#[unsafe(link_section = ".data")]
static NEAR: AtomicI32 = AtomicI32::new(c_int::MAX);
/// There was no descriptor to spare when one was last asked for.
#[unsafe(link_section = ".data")]
static IS_CROWDED: AtomicBool = AtomicBool::new(false);
/// The inode of the socket: another descriptor may have its number by now.
#[unsafe(link_section = ".data")]
static INODE: AtomicU64 = AtomicU64::new(0);

/// Whether this process, or one that it is a child of, has sent anything.
#[unsafe(link_section = ".data")]
static HAS_SPOKEN: AtomicBool = AtomicBool::new(false);

/// Whether the agent has it. Many programs have one thing to say: a socket is kept from the second
/// on.
fn is_sent(map: &Map, message: &[u8]) -> bool {
    if !HAS_SPOKEN.swap(true, Relaxed) {
        return is_sent_once(map, message);
    }
    for is_new in [false, true] {
        let Some(fd) = socket(map, is_new) else {
            return IS_CROWDED.load(Relaxed) && is_sent_once(map, message);
        };
        if sys::send(fd, message) {
            return true;
        }
        // Only another socket may still be taken: the agent was started anew.
        let is_gone = [
            libc::ECONNREFUSED,
            libc::ENOTCONN,
            libc::ECONNRESET,
            libc::EPIPE,
        ];
        if !is_gone.contains(&sys::errno()) {
            return false;
        }
    }
    false
}

/// Whether a descriptor is the socket of this library, which is none of the program's.
pub fn is_own(fd: c_int) -> bool {
    fd >= 0 && SOCKET.load(Relaxed) == fd && sys::quietly(|| own_socket() == Some(fd))
}

/// The descriptor of the socket, if it still is one.
fn own_socket() -> Option<c_int> {
    let fd = SOCKET.load(Acquire);
    let is_own = |file: File| file.is(libc::S_IFSOCK) && file.inode == INODE.load(Relaxed);
    (fd >= 0 && sys::fstat(fd).is_some_and(is_own)).then_some(fd)
}

fn socket(map: &Map, is_new: bool) -> Option<c_int> {
    if let Some(fd) = own_socket() {
        if !is_new {
            return Some(fd);
        }
        let_go();
    }
    // The parent, whose memory this is, has not the same descriptors.
    if process::is_borrowed() {
        return None;
    }
    let fd = connected(map)?;
    let Some(file) = sys::fstat(fd) else {
        sys::close(fd);
        return None;
    };
    // Another thread may have done the same: then the first socket stays.
    let before = SOCKET.load(Relaxed);
    if before >= 0 && own_socket().is_some() {
        sys::close(fd);
        return Some(before);
    }
    INODE.store(file.inode, Relaxed);
    match SOCKET.compare_exchange(before, fd, Release, Relaxed) {
        Ok(_) => Some(fd),
        Err(other) => {
            sys::close(fd);
            Some(other)
        }
    }
}

/// Closes the socket: a program wants its number, or the agent is another one. In the memory of a
/// parent it stays known, since the parent has it still. Whether there was one to close.
pub fn let_go() -> bool {
    if process::is_borrowed() {
        return false;
    }
    let own = own_socket();
    let own = own.filter(|fd| SOCKET.compare_exchange(*fd, -1, Relaxed, Relaxed).is_ok());
    own.is_some_and(|fd| {
        sys::close(fd);
        true
    })
}

/// The program has this descriptor now. Near the limit it may need the one of the socket, too.
pub fn make_room(fd: c_int) {
    if fd >= NEAR.load(Relaxed) && SOCKET.load(Relaxed) >= 0 {
        sys::quietly(let_go);
    }
}

/// A call has made no descriptor: whether there is one to be had now, since that of the socket was
/// what it lacked.
pub fn gives_way() -> bool {
    sys::errno() == libc::EMFILE && SOCKET.load(Relaxed) >= 0 && sys::quietly(let_go)
}

/// Closes the socket if its number is one of these.
pub fn let_go_within(numbers: &Range<usize>) {
    let fd = SOCKET.load(Relaxed);
    if usize::try_from(fd).is_ok_and(|fd| numbers.contains(&fd)) {
        sys::quietly(let_go);
    }
}

fn is_sent_once(map: &Map, message: &[u8]) -> bool {
    let Some(fd) = sys::socket() else {
        return false;
    };
    let is_sent = sys::send_to(fd, message, &address(map));
    sys::close(fd);
    is_sent
}

fn connected(map: &Map) -> Option<c_int> {
    let fd = out_of_the_way(sys::socket()?)?;
    if !sys::connect(fd, &address(map)) {
        sys::close(fd);
        return None;
    }
    Some(fd)
}

fn address(map: &Map) -> libc::sockaddr_un {
    // SAFETY: all zeros are an address.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // SAFETY: it was checked to end.
    let path = unsafe { sys::bytes(map.socket()) };
    let room = address.sun_path.iter_mut().take(107);
    for (to, from) in room.zip(path) {
        *to = *from as c_char;
    }
    address
}

/// Gives the socket a number where no program expects a descriptor of its own; none if there is
/// none, or the program has so many that it may need it.
fn out_of_the_way(low: c_int) -> Option<c_int> {
    let all = sys::descriptors_max();
    let below = |count: u64| count.saturating_sub(BELOW_DESCRIPTORS).max(3);
    let near = c_int::try_from(below(all)).unwrap_or(c_int::MAX);
    NEAR.store(near, Relaxed);
    let high = match low < near {
        true => sys::fcntl(
            low,
            libc::F_DUPFD_CLOEXEC,
            below(all.min(DESCRIPTORS)) as c_long,
        ),
        false => -1,
    };
    sys::close(low);
    IS_CROWDED.store(high < 0, Relaxed);
    (high >= 0).then_some(high)
}

/// Whether a message that stands in a buffer stands at the end of the user's file now.
fn is_spooled(map: &Map, buffer: &mut Buffer, message: Range<usize>) -> bool {
    let (seconds, nanoseconds) = sys::time(libc::CLOCK_REALTIME);
    let time = seconds as u64 * 1_000_000_000 + nanoseconds as u64;
    let len = (message.end - RECORD + size_of::<u64>()) as u16;
    let is_put = sys::put(&mut buffer[..], 0, &len.to_ne_bytes())
        .and_then(|at| sys::put(&mut buffer[..], at, &time.to_ne_bytes()))
        .is_some();
    let user = sys::user();
    let Some(path) = spool_of(map, user).filter(|_| is_put) else {
        return false;
    };
    let record = buffer.get(..message.end).unwrap_or_default();
    (0..SPOOL_TRIES).any(|_| is_appended(&path, user, record))
}

/// Where the user's file is, with an end.
fn spool_of(map: &Map, user: u32) -> Option<[u8; SPOOL_PATH]> {
    let mut path = [0; SPOOL_PATH];
    // SAFETY: it was checked to end.
    let folder = unsafe { sys::bytes(map.spool()) };
    let at = sys::put(&mut path, 0, folder)?;
    let at = sys::put(&mut path, at, b"/")?;
    let at = sys::put_number(&mut path, at, user)?;
    (at < SPOOL_PATH).then_some(path)
}

/// What this record takes, and what other programs may append at the same moment.
const BESIDE_BYTES: u64 = 64 << 10;

/// Whether a record stands at the end of the user's file, and whoever reads that will see it: he
/// takes the file's name away first.
fn is_appended(path: &[u8; SPOOL_PATH], user: u32, record: &[u8]) -> bool {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_NOFOLLOW | libc::O_CREAT;
    let Some(fd) = sys::open(path.as_ptr().cast(), flags) else {
        return false;
    };
    // A write beyond the limit of this process would end it (SIGXFSZ, setrlimit(2)).
    let bytes_max = SPOOL_BYTES_MAX.min(sys::file_bytes_max().saturating_sub(BESIDE_BYTES));
    let is_room =
        |file: File| file.is(libc::S_IFREG) && file.owner == user && file.bytes < bytes_max;
    let is_there = sys::fstat(fd).is_some_and(is_room)
        && sys::write(fd, record)
        && sys::fstat(fd).is_some_and(|file| file.names > 0);
    sys::close(fd);
    is_there
}
