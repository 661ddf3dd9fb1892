//! The calls by which btrfs is asked, and what it takes and gives: structures and numbers of
//! linux/btrfs.h.
#![allow(unsafe_code)]

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl, opcode};
use std::ffi::CStr;

/// An item fits into a leaf, the largest of which has `BTRFS_MAX_METADATA_BLOCKSIZE`.
pub(super) const ITEM_BYTES_MAX: usize = 64 << 10;
pub(super) const FOUND_BYTES: usize = 4 * ITEM_BYTES_MAX;
/// `BTRFS_SUBVOL_RDONLY`.
const READ_ONLY_FLAG: u64 = 2;
const GROUP: u8 = 0x94;
const TREE_SEARCH_V2: Opcode = opcode::read_write::<SearchHead>(GROUP, 17);
const SNAP_CREATE_V2: Opcode = opcode::write::<Named<4040, 7>>(GROUP, 23);
const SNAP_DESTROY: Opcode = opcode::write::<Named<4088, 1>>(GROUP, 15);
const SUBVOL_GETFLAGS: Opcode = opcode::read::<u64>(GROUP, 25);
const SUBVOL_SETFLAGS: Opcode = opcode::write::<u64>(GROUP, 26);
const GET_SUBVOL_INFO: Opcode = opcode::read::<SubvolInfo>(GROUP, 60);

/// `btrfs_ioctl_search_key`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct SearchKey {
    pub(super) tree: u64,
    pub(super) inode_min: u64,
    pub(super) inode_max: u64,
    pub(super) offset_min: u64,
    pub(super) offset_max: u64,
    pub(super) transaction_min: u64,
    pub(super) transaction_max: u64,
    pub(super) kind_min: u32,
    pub(super) kind_max: u32,
    pub(super) items: u32,
    pub(super) unused: u32,
    pub(super) more: [u64; 4],
}

/// `btrfs_ioctl_search_args_v2` without what was found.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct SearchHead {
    pub(super) key: SearchKey,
    pub(super) bytes: u64,
}

#[repr(C)]
pub(super) struct Search {
    pub(super) head: SearchHead,
    pub(super) found: [u8; FOUND_BYTES],
}

/// `btrfs_ioctl_get_subvol_info_args`.
#[repr(C)]
pub(super) struct SubvolInfo {
    pub(super) tree: u64,
    pub(super) name: [u8; 256],
    pub(super) parent_tree: u64,
    pub(super) dir: u64,
    pub(super) generation: u64,
    pub(super) flags: u64,
    pub(super) uuid: [u8; 16],
    pub(super) parent_uuid: [u8; 16],
    pub(super) received_uuid: [u8; 16],
    pub(super) changed_in: u64,
    pub(super) made_in: u64,
    pub(super) sent_in: u64,
    pub(super) received_in: u64,
    pub(super) times: [u64; 8],
    pub(super) reserved: [u64; 8],
}

/// `btrfs_ioctl_vol_args` (`HEAD` is 1: a descriptor) and `btrfs_ioctl_vol_args_v2` (7: a
/// descriptor, a transaction, flags, and what is zero here).
#[repr(C)]
struct Named<const NAME: usize, const HEAD: usize> {
    head: [u64; HEAD],
    name: [u8; NAME],
}

impl<const NAME: usize, const HEAD: usize> Named<NAME, HEAD> {
    fn of(head: [u64; HEAD], name: &CStr) -> Result<Self, Errno> {
        let mut bytes = [0; NAME];
        let given = name.to_bytes_with_nul();
        let room = bytes.get_mut(..given.len()).ok_or(Errno::NAMETOOLONG)?;
        room.copy_from_slice(given);
        Ok(Named { head, name: bytes })
    }
}

/// Makes a read-only snapshot of an open subvolume, at a name in an open directory.
pub(super) fn snapshot(of: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let mut head = [0; 7];
    (head[0], head[2]) = (of.as_raw_fd() as u64, READ_ONLY_FLAG);
    let named = Named::of(head, name)?;
    // SAFETY: the kernel reads a structure of this size, which ends its name with a zero.
    unsafe { ioctl(dir, Setter::<SNAP_CREATE_V2, Named<4040, 7>>::new(named)) }
}

/// Deletes the subvolume at a name in an open directory.
pub(super) fn delete(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let named = Named::of([0], name)?;
    // SAFETY: as above.
    unsafe { ioctl(dir, Setter::<SNAP_DESTROY, Named<4088, 1>>::new(named)) }
}

/// Whether an open subvolume is read-only.
pub(super) fn is_read_only(root: BorrowedFd<'_>) -> Result<bool, Errno> {
    // SAFETY: the kernel writes a number of this size.
    let flags = unsafe { ioctl(root, Getter::<SUBVOL_GETFLAGS, u64>::new()) }?;
    Ok(flags & READ_ONLY_FLAG != 0)
}

/// Makes an open subvolume read-only or not; that flag is the only one that can be set.
pub(super) fn set_read_only(root: BorrowedFd<'_>, is_read_only: bool) -> Result<(), Errno> {
    let flags = if is_read_only { READ_ONLY_FLAG } else { 0 };
    // SAFETY: the kernel reads a number of this size.
    unsafe { ioctl(root, Setter::<SUBVOL_SETFLAGS, u64>::new(flags)) }
}

/// What the subvolume is whose root directory is open.
pub(super) fn subvolume(root: BorrowedFd<'_>) -> Result<SubvolInfo, Errno> {
    // SAFETY: the kernel fills a structure of this size, of which every value is valid.
    unsafe { ioctl(root, Getter::<GET_SUBVOL_INFO, SubvolInfo>::new()) }
}

/// Searches the tree of an open subvolume; needs `CAP_SYS_ADMIN`.
pub(super) fn search(root: BorrowedFd<'_>, search: &mut Search) -> Result<(), Errno> {
    // However the head was filled, this is the room behind it.
    search.head.bytes = FOUND_BYTES as u64;
    // SAFETY: the kernel writes no more than `bytes` behind the head, which are there.
    unsafe { ioctl(root, Updater::<TREE_SEARCH_V2, Search>::new(search)) }
}

/// A number of eight bytes. What the kernel says itself is in the order of this machine, what it
/// has read from the disk in little-endian order; Linux on machines of another order is not built
/// for.
pub(super) fn word(bytes: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.split_off(..8)?.try_into().ok()?))
}
