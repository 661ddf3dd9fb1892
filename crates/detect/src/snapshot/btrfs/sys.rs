//! The calls by which btrfs is asked, and what it takes and gives: structures and numbers of
//! linux/btrfs.h.
#![allow(unsafe_code)]

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Updater, ioctl, opcode};

/// An item fits into a leaf, the largest of which has `BTRFS_MAX_METADATA_BLOCKSIZE`.
pub(super) const ITEM_BYTES_MAX: usize = 64 << 10;
pub(super) const FOUND_BYTES: usize = 4 * ITEM_BYTES_MAX;
const GROUP: u8 = 0x94;
const TREE_SEARCH_V2: Opcode = opcode::read_write::<SearchHead>(GROUP, 17);
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
