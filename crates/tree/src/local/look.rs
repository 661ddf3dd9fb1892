//! What the kernel says of an inode: stat(2) and statx(2).

use driftless_model::{Act, Fault, Kind, Meta, Side, Stamp, Unkept};
use rustix::fd::AsFd;
use rustix::fs::{
    self, AtFlags, FileType, Stat, Statx, StatxAttributes, StatxFlags, StatxTimestamp,
};
use rustix::io::Errno;
use std::ffi::CStr;

/// A fault from an error number.
pub fn fault(side: Side, act: Act, errno: Errno) -> Fault {
    Fault {
        side,
        act,
        errno: errno.raw_os_error(),
    }
}

/// The most blocks, of 512 bytes each, that are told of a file: more would have more bytes than a
/// number holds.
const BLOCKS_MAX: u64 = u64::MAX / 512;

/// A time as a file system tells it, with no more nanoseconds than a second has. Not every kernel
/// checks what it is told through FUSE, and larger numbers would mean something else to
/// utimensat(2).
pub fn stamp(sec: i64, nsec: u32) -> Stamp {
    Stamp {
        sec,
        nsec: nsec.min(999_999_999),
    }
}

/// Metadata from stat(2).
pub fn meta_of(st: &Stat) -> Meta {
    Meta {
        kind: kind_of(FileType::from_raw_mode(st.st_mode))
            .expect("the kernel knows no other kinds"),
        mode: st.st_mode & 0o7777,
        uid: st.st_uid,
        gid: st.st_gid,
        size: st.st_size.cast_unsigned(),
        blocks: st.st_blocks.cast_unsigned().min(BLOCKS_MAX),
        mtime: stamp(st.st_mtime, st.st_mtime_nsec as u32),
        atime: stamp(st.st_atime, st.st_atime_nsec as u32),
        ctime: stamp(st.st_ctime, st.st_ctime_nsec as u32),
        nlink: st.st_nlink,
        dev: st.st_dev,
        ino: st.st_ino,
        rdev: st.st_rdev,
        unkept: Unkept::NONE,
    }
}

/// Metadata of what is open, asked of the file system and not of what a network file system or FUSE
/// remembers of it (statx(2), `AT_STATX_FORCE_SYNC`). Where nothing is remembered, that costs what
/// fstat(2) does.
pub fn meta_again(fd: impl AsFd) -> Result<Meta, Errno> {
    look_at(fd, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC).map(|look| look.0)
}

/// Metadata of what is open, as cheap as fstat(2).
pub fn meta_open(fd: impl AsFd) -> Result<Meta, Errno> {
    first_look(fd).map(|look| look.0)
}

/// The metadata of what was just opened, and whether something is mounted there (`None` before
/// Linux 5.8, which does not tell).
pub fn first_look(fd: impl AsFd) -> Result<(Meta, Option<bool>), Errno> {
    look_at(fd, c"", AtFlags::EMPTY_PATH)
}

/// Metadata of an entry, with the flags of its inode where statx(2) can be asked, and whether
/// something is mounted there; `None` where the kernel does not tell that.
pub fn look_at(dir: impl AsFd, name: &CStr, flags: AtFlags) -> Result<(Meta, Option<bool>), Errno> {
    match fs::statx(&dir, name, flags, StatxFlags::BASIC_STATS) {
        Ok(st) => Ok((meta_of_statx(&st), is_mount_root(&st))),
        // An old kernel does not have the call, and a sandbox that does not know the call forbids
        // it.
        Err(Errno::NOSYS | Errno::PERM) => fs::statat(
            &dir,
            name,
            flags - AtFlags::STATX_FORCE_SYNC - AtFlags::STATX_DONT_SYNC,
        )
        .map(|st| (meta_of(&st), None)),
        Err(errno) => Err(errno),
    }
}

/// When an entry was made, if the file system tells; with an empty name, when what is open was
/// made.
pub fn made_at(fd: impl AsFd, name: &CStr) -> Option<Stamp> {
    birth_of(
        &fs::statx(
            fd,
            name,
            AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW,
            StatxFlags::BTIME,
        )
        .ok()?,
    )
}

/// What an open directory is known by on all hosts that see it. The number of a file system alone
/// (statvfs(3), `f_fsid`) would not do: some make it of that of the device, and servers of network
/// file systems tell none.
pub fn birthmark(fd: impl AsFd) -> Option<u128> {
    let fd = fd.as_fd();
    // A file system that was made as an image may have no such time, and tell it.
    let made = made_at(fd, c"").filter(|made| made.sec > 0)?;
    let of_its = fs::fstat(fd).ok()?;
    let file_system = fs::fstatvfs(fd).map_or(0, |told| told.f_fsid);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&file_system.to_le_bytes());
    hasher.update(&of_its.st_ino.to_le_bytes());
    hasher.update(&made.sec.to_le_bytes());
    hasher.update(&made.nsec.to_le_bytes());
    let first = hasher.finalize().as_bytes()[..16].try_into();
    first.ok().map(u128::from_le_bytes)
}

fn birth_of(st: &Statx) -> Option<Stamp> {
    let is_told = st.stx_mask & StatxFlags::BTIME.bits() != 0;
    is_told.then(|| stamp(st.stx_btime.tv_sec, st.stx_btime.tv_nsec))
}

/// The flags of an inode that no copy gets. That of DAX is not among them: it says how the file
/// system is mounted, and nothing of the entry.
fn unkept_of(attributes: StatxAttributes) -> Unkept {
    const FLAGS: [(StatxAttributes, Unkept); 6] = [
        (StatxAttributes::IMMUTABLE, Unkept::IMMUTABLE),
        (StatxAttributes::APPEND, Unkept::APPEND_ONLY),
        (StatxAttributes::NODUMP, Unkept::NO_DUMP),
        (StatxAttributes::COMPRESSED, Unkept::COMPRESSED),
        (StatxAttributes::ENCRYPTED, Unkept::ENCRYPTED),
        (StatxAttributes::VERITY, Unkept::VERITY),
    ];
    // Hardly any entry has such a flag, and each entry is asked.
    if !attributes.intersects(
        FLAGS
            .iter()
            .fold(StatxAttributes::empty(), |all, (flag, _)| all | *flag),
    ) {
        return Unkept::NONE;
    }
    FLAGS
        .iter()
        .filter(|(flag, _)| attributes.contains(*flag))
        .fold(Unkept::NONE, |all, (_, unkept)| all | *unkept)
}

fn meta_of_statx(st: &Statx) -> Meta {
    let stamp = |of: StatxTimestamp| stamp(of.tv_sec, of.tv_nsec);
    let mode = u32::from(st.stx_mode);
    Meta {
        kind: kind_of(FileType::from_raw_mode(mode)).expect("the kernel knows no other kinds"),
        mode: mode & 0o7777,
        uid: st.stx_uid,
        gid: st.stx_gid,
        size: st.stx_size,
        blocks: st.stx_blocks.min(BLOCKS_MAX),
        mtime: stamp(st.stx_mtime),
        atime: stamp(st.stx_atime),
        ctime: stamp(st.stx_ctime),
        nlink: st.stx_nlink.into(),
        dev: fs::makedev(st.stx_dev_major, st.stx_dev_minor),
        ino: st.stx_ino,
        rdev: fs::makedev(st.stx_rdev_major, st.stx_rdev_minor),
        unkept: unkept_of(st.stx_attributes),
    }
}

/// The rights of group and others.
pub const OTHERS: u32 = 0o077;

pub fn is_own(uid: u32) -> bool {
    uid == rustix::process::geteuid().as_raw()
}

pub fn kind_of(file_type: FileType) -> Option<Kind> {
    match file_type {
        FileType::RegularFile => Some(Kind::File),
        FileType::Directory => Some(Kind::Dir),
        FileType::Symlink => Some(Kind::Symlink),
        FileType::Fifo => Some(Kind::Fifo),
        FileType::Socket => Some(Kind::Socket),
        FileType::CharacterDevice => Some(Kind::Char),
        FileType::BlockDevice => Some(Kind::Block),
        _ => None,
    }
}

/// `STATX_ATTR_MOUNT_ROOT` of statx(2), if this kernel knows it.
pub fn is_mount_root(found: &Statx) -> Option<bool> {
    let known = found
        .stx_attributes_mask
        .contains(StatxAttributes::MOUNT_ROOT);
    known.then(|| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};

    #[test]
    fn both_ways_to_look_at_an_inode_say_the_same() {
        for path in [c"/", c"/dev/null", c"/proc/self/stat", c"/etc"] {
            let fd = fs::openat(fs::CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .expect("open");
            let first = fs::fstat(&fd).map(|st| meta_of(&st)).expect("look");
            let again = meta_again(&fd).expect("look again");
            assert_eq!(
                again,
                Meta {
                    atime: again.atime,
                    unkept: again.unkept,
                    ..first
                },
                "{path:?}"
            );
        }
    }

    #[test]
    fn the_time_when_something_was_made_has_no_more_nanoseconds_than_a_second_has() {
        let mut st = fs::statx(fs::CWD, c"/", AtFlags::empty(), StatxFlags::BTIME).expect("look");
        st.stx_mask = StatxFlags::BTIME.bits();
        (st.stx_btime.tv_sec, st.stx_btime.tv_nsec) = (7, 1_000_000_000);
        assert_eq!(
            birth_of(&st),
            Some(Stamp {
                sec: 7,
                nsec: 999_999_999
            })
        );
        st.stx_mask = 0;
        assert_eq!(birth_of(&st), None, "not every file system tells");
    }
}
