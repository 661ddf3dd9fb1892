//! The kernel's protocol: requests read from `/dev/fuse`, and the structures of the answers.
//!
//! Layouts and numbers are those of `linux/fuse.h` (protocol 7.31), written and read field by field
//! in the machine's byte order, so that there is no unsafe code and an answer may lie: a library
//! would insist on a kind for every entry of a listing.

use rustix::io::Errno;
use std::time::Duration;

/// The version that is answered to `INIT`.
const MAJOR: u32 = 7;
const MINOR: u32 = 31;
/// The most that one `WRITE` carries.
pub const WRITE_BYTES_MAX: u32 = 128 << 10;
const HEADER_BYTES: usize = 40;

/// `FUSE_ASYNC_READ`, `FUSE_BIG_WRITES`, `FUSE_DONT_MASK`, `FUSE_AUTO_INVAL_DATA`,
/// `FUSE_ASYNC_DIO`, `FUSE_PARALLEL_DIROPS`.
const FEATURES: u32 = 1 | 1 << 5 | 1 << 6 | 1 << 12 | 1 << 15 | 1 << 18;
/// `FUSE_POSIX_ACL`: the kernel checks access by the ACLs that the server keeps.
pub const FEATURE_ACLS: u32 = 1 << 20;

macro_rules! operations {
    ($($name:ident = $code:literal,)*) => {
        /// What the kernel can ask for, by its name in `linux/fuse.h`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Op { $($name),* }

        impl Op {
            fn of(code: u32) -> Option<Op> {
                match code { $($code => Some(Op::$name),)* _ => None }
            }
        }
    };
}

operations! {
    Lookup = 1, Forget = 2, Getattr = 3, Setattr = 4, Readlink = 5, Symlink = 6, Mknod = 8, Mkdir = 9, Unlink = 10, Rmdir = 11,
    Rename = 12, Link = 13, Open = 14, Read = 15, Write = 16, Statfs = 17, Release = 18, Fsync = 20, Setxattr = 21, Getxattr = 22,
    Listxattr = 23, Removexattr = 24, Flush = 25, Init = 26, Opendir = 27, Readdir = 28, Releasedir = 29, Fsyncdir = 30,
    Create = 35, Interrupt = 36, Destroy = 38, BatchForget = 42, Fallocate = 43, Rename2 = 45, Lseek = 46, Syncfs = 50,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What is asked; none if this protocol has no name for it.
    pub op: Option<Op>,
    /// The request's number, which the answer repeats.
    pub unique: u64,
    /// The node it is asked of.
    pub node: u64,
    /// Who asks.
    pub uid: u32,
    /// Who asks.
    pub gid: u32,
    /// What follows the header.
    pub body: &'a [u8],
}

impl<'a> Call<'a> {
    /// Reads the header (`struct fuse_in_header`).
    pub fn read(bytes: &'a [u8]) -> Call<'a> {
        let mut fields = Fields(bytes);
        let (_length, code) = (fields.u32(), fields.u32());
        let (unique, node) = (fields.u64(), fields.u64());
        let (uid, gid) = (fields.u32(), fields.u32());
        Call {
            op: Op::of(code),
            unique,
            node,
            uid,
            gid,
            body: &bytes[HEADER_BYTES..],
        }
    }

    /// The fields of its body, from the first.
    pub fn fields(&self) -> Fields<'a> {
        Fields(self.body)
    }
}

/// Takes one field after the other.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// So many bytes; a request that ends early is a bug of the layouts here.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(count);
        self.0 = rest;
        head
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.bytes(4).try_into().expect("four bytes"))
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.bytes(8).try_into().expect("eight bytes"))
    }

    /// A name up to its NUL.
    pub fn name(&mut self) -> &'a [u8] {
        let end = self
            .0
            .iter()
            .position(|byte| *byte == 0)
            .expect("names end with NUL");
        let name = self.bytes(end);
        self.0 = &self.0[1..];
        name
    }
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It went well, with these structures.
    Done(Vec<u8>),
    /// It failed.
    Failed(Errno),
    /// The kernel expects no answer, or waits for one in vain.
    Silence,
}

impl From<Result<Vec<u8>, Errno>> for Answer {
    fn from(result: Result<Vec<u8>, Errno>) -> Answer {
        result.map_or_else(Answer::Failed, Answer::Done)
    }
}

impl Answer {
    /// The bytes for the device (`struct fuse_out_header` first).
    pub fn encode(self, unique: u64) -> Option<Vec<u8>> {
        let (error, body) = match self {
            Answer::Done(body) => (0, body),
            Answer::Failed(errno) => (-errno.raw_os_error(), Vec::new()),
            Answer::Silence => return None,
        };
        let length = 16 + body.len() as u32;
        let header = Words::new().u32(length).u32(error as u32).u64(unique);
        Some([header.0, body].concat())
    }
}

/// Puts one field after the other.
#[derive(Clone, Debug, Default)]
pub struct Words(pub Vec<u8>);

impl Words {
    /// None yet.
    pub fn new() -> Words {
        Words::default()
    }

    /// Adds four bytes.
    #[must_use]
    pub fn u32(mut self, value: u32) -> Words {
        self.0.extend(value.to_ne_bytes());
        self
    }

    /// Adds eight bytes.
    #[must_use]
    pub fn u64(mut self, value: u64) -> Words {
        self.0.extend(value.to_ne_bytes());
        self
    }
}

/// The answer to `INIT` (`struct fuse_init_out`): what the kernel offers and we can do as well.
pub fn greeting(call: &Call<'_>, features: u32) -> Vec<u8> {
    let mut offered = call.fields();
    let (_major, _minor, readahead, flags) =
        (offered.u32(), offered.u32(), offered.u32(), offered.u32());
    let head = Words::new()
        .u32(MAJOR)
        .u32(MINOR)
        .u32(readahead)
        .u32(flags & (FEATURES | features));
    // No bounds on requests in the background; times as fine as nanoseconds.
    let mut all = head.u32(0).u32(WRITE_BYTES_MAX).u32(1).0;
    all.resize(64, 0);
    all
}

/// What is told of an inode (`struct fuse_attr`).
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Attr {
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    /// Access, modification and change, each in seconds and nanoseconds.
    pub times: [(i64, u32); 3],
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub blksize: u32,
}

impl Attr {
    fn put(&self, words: Words) -> Words {
        let words = words.u64(self.ino).u64(self.size).u64(self.blocks);
        let words = self
            .times
            .iter()
            .fold(words, |words, time| words.u64(time.0 as u64));
        let words = self
            .times
            .iter()
            .fold(words, |words, time| words.u32(time.1));
        let words = words
            .u32(self.mode)
            .u32(self.nlink)
            .u32(self.uid)
            .u32(self.gid)
            .u32(self.rdev);
        words.u32(self.blksize).u32(0)
    }

    /// `struct fuse_attr_out`, which the kernel may use for so long.
    pub fn out(&self, valid: Duration) -> Vec<u8> {
        self.put(
            Words::new()
                .u64(valid.as_secs())
                .u32(valid.subsec_nanos())
                .u32(0),
        )
        .0
    }

    /// `struct fuse_entry_out`: a node with its attributes, which the kernel may use for so long.
    pub fn entry(&self, node: u64, valid: Duration) -> Vec<u8> {
        let words = Words::new()
            .u64(node)
            .u64(0)
            .u64(valid.as_secs())
            .u64(valid.as_secs());
        self.put(words.u32(valid.subsec_nanos()).u32(valid.subsec_nanos()))
            .0
    }
}

/// Adds an entry of a listing (`struct fuse_dirent`) while it fits into `max` bytes; `kind` is one
/// of `DT_*`.
pub fn add_entry(
    list: &mut Vec<u8>,
    max: usize,
    (ino, next, kind, name): (u64, u64, u32, &[u8]),
) -> bool {
    let length = (24 + name.len()).next_multiple_of(8);
    if list.len() + length > max {
        return false;
    }
    let end = list.len() + length;
    list.extend(
        Words::new()
            .u64(ino)
            .u64(next)
            .u32(name.len() as u32)
            .u32(kind)
            .0,
    );
    list.extend(name);
    list.resize(end, 0);
    true
}

/// A device number as the kernel's user interface packs it into 32 bits (`new_encode_dev` in
/// `linux/kdev_t.h`).
pub fn pack_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// Major and minor of such a number.
pub fn unpack_device(device: u32) -> (u32, u32) {
    (
        (device & 0xfff00) >> 8,
        (device & 0xff) | ((device >> 12) & 0xfff00),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_lengths_of_the_header_file() {
        let attr = Attr {
            ino: 1,
            size: 2,
            blocks: 3,
            times: [(-1, 5); 3],
            mode: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
        };
        assert_eq!(attr.out(Duration::ZERO).len(), 16 + 88);
        assert_eq!(attr.entry(9, Duration::ZERO).len(), 40 + 88);
    }

    #[test]
    fn device_numbers_come_back() {
        for device in [(1, 3), (511, 262_143), (0, 0), (4095, 1 << 19)] {
            assert_eq!(unpack_device(pack_device(device.0, device.1)), device);
        }
    }
}
