//! Numbers of the kinds of file systems (statfs(2), `f_type`): linux/magic.h, and the file systems'
//! own headers.

use rustix::fd::AsFd;
use rustix::fs::fstatfs;

pub const AFS: u64 = 0x5346_414f;
pub const BTRFS: u64 = 0x9123_683e;
pub const CEPH: u64 = 0x00c3_6400;
pub const CIFS: u64 = 0xff53_4d42;
pub const EXT: u64 = 0xef53;
pub const F2FS: u64 = 0xf2f5_2010;
pub const FUSE: u64 = 0x6573_5546;
pub const GFS2: u64 = 0x0116_1970;
pub const GPFS: u64 = 0x4750_4653;
pub const LUSTRE: u64 = 0x0bd0_0bd0;
pub const NFS: u64 = 0x6969;
pub const OCFS2: u64 = 0x7461_636f;
pub const OVERLAY: u64 = 0x794c_7630;
pub const RAMFS: u64 = 0x8584_58f6;
pub const SMB: u64 = 0x517b;
pub const SMB2: u64 = 0xfe53_4d42;
pub const TMPFS: u64 = 0x0102_1994;
pub const V9FS: u64 = 0x0102_1997;
pub const XFS: u64 = 0x5846_5342;
pub const ZFS: u64 = 0x2fc1_2fc1;

/// Kinds whose entries another program tells, on this host or on a server.
pub const TOLD: [u64; 8] = [FUSE, NFS, SMB, CIFS, SMB2, V9FS, CEPH, AFS];
/// Kinds of which several hosts have one disk.
const CLUSTERED: [u64; 4] = [LUSTRE, GPFS, GFS2, OCFS2];

/// Returns the kind of the file system of a file; nothing if the kernel does not tell.
pub fn magic(file: impl AsFd) -> Option<u64> {
    fstatfs(file).ok().map(|of| of.f_type as u64)
}

/// Returns whether a file is on a file system of one of these kinds.
pub fn is_on(file: impl AsFd, magics: &[u64]) -> bool {
    magic(file).is_some_and(|magic| magics.contains(&magic))
}

/// Returns whether other hosts may have the file system of a file mounted.
pub fn may_be_shared(file: impl AsFd) -> bool {
    magic(file).is_some_and(|magic| TOLD.contains(&magic) || CLUSTERED.contains(&magic))
}
