//! What btrfs says of a subvolume: who it is, which of its inodes have changed since a transaction,
//! and by which names an inode is reached. Structures and numbers are those of linux/btrfs.h and
//! linux/btrfs_tree.h.
//!
//! Each change of an inode writes its item anew, with the number of the transaction
//! (`fill_inode_item`, fs/btrfs/inode.c), and so the leaf that holds it and all nodes above, which
//! note that number, too. A search passes over what is older (`btrfs_search_forward`,
//! fs/btrfs/ctree.c), so that it costs what has changed and not what there is.

use super::extents::Extent;
use super::sys::{self, FOUND_BYTES, ITEM_BYTES_MAX, Search, SearchHead, SearchKey, word};
use rustix::fd::BorrowedFd;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ops::Range;

/// The root directory of each subvolume: `BTRFS_FIRST_FREE_OBJECTID`.
pub(crate) const ROOT_INODE: u64 = 256;
/// `BTRFS_LAST_FREE_OBJECTID`.
const LAST_INODE: u64 = u64::MAX - 255;
/// `BTRFS_INODE_ITEM_KEY`, `BTRFS_INODE_REF_KEY`, `BTRFS_INODE_EXTREF_KEY`.
const INODE_ITEM: u32 = 1;
const INODE_REF: u32 = 12;
const INODE_EXTREF: u32 = 13;
/// `BTRFS_DIR_INDEX_KEY`: a name of a directory, by the order in which they came.
const DIR_INDEX: u32 = 96;
/// Where its item, `btrfs_dir_item`, has the length of the name, the kind of the entry and the name.
const ENTRY_NAME_LEN: Range<usize> = 27..29;
const ENTRY_KIND: usize = 29;
const ENTRY_NAME: usize = 30;
/// The entry that it leads to: a `btrfs_disk_key`, and where that has its type.
const ENTRY_KEY: Range<usize> = 0..17;
const KEY_TYPE: usize = 8;
/// `BTRFS_ROOT_ITEM_KEY`: the root of another subvolume.
const ROOT_ITEM: u8 = 132;
/// `BTRFS_FT_DIR`: a directory, or the root of another subvolume.
const KIND_DIR: u8 = 2;
/// `BTRFS_EXTENT_DATA_KEY`: an extent of a file, by where it begins.
const EXTENT_DATA: u32 = 108;
/// Where an inode's item, `btrfs_inode_item`, has the transaction that made it, the one that wrote it
/// last, the number of its names and its mode.
const ITEM_MADE_IN: usize = 0;
const ITEM_LINKS: usize = 40;
const ITEM_TRANSACTION: usize = 8;
/// Its owner and group stand before the mode.
const ITEM_OWNER: Range<usize> = 44..52;
const ITEM_MODE: usize = 52;
/// Its size, and its time of modification.
const ITEM_SIZE: Range<usize> = 16..24;
const ITEM_MTIME: Range<usize> = 136..148;
/// `btrfs_ioctl_search_header`.
const HEADER_BYTES: usize = 32;

/// What a search has found.
struct Item<'a> {
    key: ItemKey,
    bytes: &'a [u8],
}

/// `btrfs_key`, in whose order items are found.
#[derive(Clone, Copy)]
struct ItemKey {
    inode: u64,
    kind: u32,
    offset: u64,
}

impl SearchKey {
    /// All items of one kind of an inode.
    fn of(inode: u64, kind: u32) -> SearchKey {
        SearchKey {
            inode_min: inode,
            inode_max: inode,
            kind_min: kind,
            kind_max: kind,
            offset_max: u64::MAX,
            transaction_max: u64::MAX,
            ..SearchKey::default()
        }
    }

    /// What follows an item of the same inode; none if nothing can.
    fn behind(self, last: ItemKey) -> Option<SearchKey> {
        Some(SearchKey {
            inode_min: last.inode,
            kind_min: last.kind,
            offset_min: last.offset.checked_add(1)?,
            ..self
        })
    }
}

/// An inode that has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) inode: u64,
    pub(super) is_dir: bool,
    /// It was made after the transaction, too.
    pub(super) is_new: bool,
    pub(super) size_and_time: SizeAndTime,
    pub(super) owner: Owner,
    /// How many names it has.
    links: u32,
    /// Those of its names that were found with it: a leaf that has not changed may have others.
    names: Vec<Name>,
}

/// What a tree has of an inode.
#[derive(Default)]
pub(super) struct Known {
    /// The transaction that it was made in.
    pub(super) made_in: u64,
    pub(super) size_and_time: Option<SizeAndTime>,
    pub(super) owner: Option<Owner>,
    pub(super) names: Vec<Name>,
}

/// A name of an inode.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Name {
    /// The directory that it stands in.
    pub(super) dir: u64,
    pub(super) name: Vec<u8>,
}

/// What a directory has by a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The later it came, the larger.
    pub(super) index: u64,
    /// What it leads to, in this subvolume or another.
    pub(super) key: [u8; 17],
    pub(super) is_dir: bool,
    pub(super) name: Vec<u8>,
}

/// The size of an inode and its time of modification, as they are kept.
pub(super) type SizeAndTime = [u8; 20];

/// The owner of an inode and its group, as they are kept.
pub(super) type Owner = [u8; 8];

impl Entry {
    /// It leads to another subvolume, of which a snapshot shows an empty directory.
    pub(super) fn is_subvolume(&self) -> bool {
        self.key[KEY_TYPE] == ROOT_ITEM
    }
}

impl Changed {
    /// Its size in bytes.
    pub(super) fn size(&self) -> u64 {
        size_of(&self.size_and_time)
    }
}

impl Known {
    /// Its size in bytes; none if it is not there.
    pub(super) fn size(&self) -> Option<u64> {
        self.size_and_time.as_ref().map(size_of)
    }
}

fn size_of(size_and_time: &SizeAndTime) -> u64 {
    word(&mut &size_and_time[..]).expect("it is long enough")
}

/// The tree of a subvolume that is searched.
pub(super) struct Tree<'a> {
    root: BorrowedFd<'a>,
    search: Box<Search>,
}

impl Tree<'_> {
    /// The subvolume whose root directory is open.
    pub(super) fn of(root: BorrowedFd<'_>) -> Tree<'_> {
        let head = SearchHead::default();
        Tree {
            root,
            search: Box::new(Search {
                head,
                found: [0; FOUND_BYTES],
            }),
        }
    }

    /// The inodes that have changed after a transaction.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`; `E2BIG` if there are more than `max`.
    pub(super) fn changed_after(
        &mut self,
        transaction: u64,
        max: usize,
    ) -> Result<Vec<Changed>, Errno> {
        let mut key = SearchKey {
            inode_min: ROOT_INODE,
            inode_max: LAST_INODE,
            offset_max: u64::MAX,
            transaction_min: transaction + 1,
            transaction_max: u64::MAX,
            kind_max: u8::MAX.into(),
            ..SearchKey::default()
        };
        let mut changed = Vec::<Changed>::new();
        while let Some(last) = self.search(key, |item| {
            match changed.last_mut() {
                Some(one) if one.inode == item.key.inode => item.names(&mut one.names)?,
                _ => changed.extend(item.changed_after(transaction)),
            }
            Some(())
        })? {
            if changed.len() > max {
                return Err(Errno::TOOBIG);
            }
            // An inode's own item and its names are its first; the others say nothing.
            let rest = key.behind(last).filter(|_| last.kind <= INODE_EXTREF);
            key = rest.unwrap_or(SearchKey {
                inode_min: last.inode + 1,
                kind_min: 0,
                offset_min: 0,
                ..key
            });
        }
        Ok(changed)
    }

    /// All names of an inode that has changed.
    pub(super) fn names_of(&mut self, one: &Changed) -> Result<Vec<Name>, Errno> {
        match one.names.len() == one.links as usize {
            true => Ok(one.names.clone()),
            false => self.names(one.inode),
        }
    }

    /// All names of an inode, each with the directory that it stands in; none of one that had been
    /// removed and was open still.
    pub(super) fn names(&mut self, inode: u64) -> Result<Vec<Name>, Errno> {
        self.known(inode).map(|known| known.names)
    }

    /// What there is of an inode; nothing of one that is not there.
    pub(super) fn known(&mut self, inode: u64) -> Result<Known, Errno> {
        let mut key = SearchKey {
            kind_max: INODE_EXTREF,
            ..SearchKey::of(inode, INODE_ITEM)
        };
        let mut known = Known::default();
        while let Some(last) = self.search(key, |item| {
            if item.key.kind == INODE_ITEM {
                known.made_in = word(&mut item.bytes.get(ITEM_MADE_IN..)?)?;
                known.size_and_time = Some(item.size_and_time()?);
                known.owner = Some(item.owner()?);
            }
            item.names(&mut known.names)
        })? {
            let Some(rest) = key.behind(last) else {
                break;
            };
            key = rest;
        }
        Ok(known)
    }

    /// The entries of a directory, in the order of their indices.
    pub(super) fn entries(&mut self, dir: u64) -> impl Iterator<Item = Result<Entry, Errno>> {
        self.items(SearchKey::of(dir, DIR_INDEX), |item| item.entry())
    }

    /// The extents of a file, in their order. Where none is, zeros are read.
    pub(super) fn extents(&mut self, inode: u64) -> impl Iterator<Item = Result<Extent, Errno>> {
        self.items(SearchKey::of(inode, EXTENT_DATA), |item| item.extent())
    }

    /// What the items say that one inode has of one kind.
    fn items<T>(
        &mut self,
        key: SearchKey,
        read: impl Fn(&Item<'_>) -> Option<T>,
    ) -> impl Iterator<Item = Result<T, Errno>> {
        let (mut key, mut told) = (Some(key), VecDeque::new());
        std::iter::from_fn(move || {
            while told.is_empty() {
                let from = key.take()?;
                let found = self.search(from, |item| read(item).map(|one| told.push_back(one)));
                let last = match found {
                    Ok(last) => last,
                    Err(cause) => return Some(Err(cause)),
                };
                key = last.and_then(|last| from.behind(last));
            }
            told.pop_front().map(Ok)
        })
    }

    /// Finds the first items of a range; behind which the others follow, if there are any.
    fn search(
        &mut self,
        key: SearchKey,
        mut each: impl FnMut(&Item<'_>) -> Option<()>,
    ) -> Result<Option<ItemKey>, Errno> {
        self.search.head.key = SearchKey {
            items: u32::MAX,
            ..key
        };
        sys::search(self.root, &mut self.search)?;
        let mut rest = &self.search.found[..];
        let mut last = None;
        for _ in 0..self.search.head.key.items {
            let item = Item::next(&mut rest).ok_or(Errno::IO)?;
            each(&item).ok_or(Errno::IO)?;
            last = Some(item.key);
        }
        // There would have been room for another.
        Ok(last.filter(|_| rest.len() < HEADER_BYTES + ITEM_BYTES_MAX))
    }
}

impl<'a> Item<'a> {
    fn next(rest: &mut &'a [u8]) -> Option<Item<'a>> {
        let mut head = rest.split_off(..HEADER_BYTES)?;
        let _transaction_of_the_leaf = word(&mut head)?;
        let (inode, offset) = (word(&mut head)?, word(&mut head)?);
        let half = |at: usize| Some(u32::from_ne_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let kind = half(0)?;
        Some(Item {
            key: ItemKey {
                inode,
                kind,
                offset,
            },
            bytes: rest.split_off(..half(4)? as usize)?,
        })
    }

    /// What an inode's item says, if it was written after a transaction.
    fn changed_after(&self, transaction: u64) -> Option<Changed> {
        if self.key.kind != INODE_ITEM {
            return None;
        }
        let number = |at| word(&mut self.bytes.get(at..)?);
        let (made, written) = (number(ITEM_MADE_IN)?, number(ITEM_TRANSACTION)?);
        let mode = self.bytes.get(ITEM_MODE..ITEM_MODE + 4)?;
        let mode = u32::from_le_bytes(mode.try_into().ok()?);
        let links = self.bytes.get(ITEM_LINKS..ITEM_LINKS + 4)?;
        let links = u32::from_le_bytes(links.try_into().ok()?);
        let size_and_time = self.size_and_time()?;
        (written > transaction).then_some(Changed {
            inode: self.key.inode,
            is_dir: FileType::from_raw_mode(mode).is_dir(),
            is_new: made > transaction,
            size_and_time,
            owner: self.owner()?,
            links,
            names: Vec::new(),
        })
    }

    /// What an item of a directory says.
    fn entry(&self) -> Option<Entry> {
        let len = u16::from_le_bytes(self.bytes.get(ENTRY_NAME_LEN)?.try_into().ok()?);
        Some(Entry {
            index: self.key.offset,
            key: self.bytes.get(ENTRY_KEY)?.try_into().ok()?,
            is_dir: *self.bytes.get(ENTRY_KIND)? == KIND_DIR,
            name: self.bytes.get(ENTRY_NAME..)?.get(..len.into())?.to_vec(),
        })
    }

    /// What the item of an extent says.
    fn extent(&self) -> Option<Extent> {
        Extent::read(self.key.offset, self.bytes)
    }

    /// What an inode's item says of these.
    fn size_and_time(&self) -> Option<SizeAndTime> {
        let (size, time) = (self.bytes.get(ITEM_SIZE)?, self.bytes.get(ITEM_MTIME)?);
        [size, time].concat().try_into().ok()
    }

    /// And of these.
    fn owner(&self) -> Option<Owner> {
        self.bytes.get(ITEM_OWNER)?.try_into().ok()
    }

    /// Adds the names that it tells, if any: `btrfs_inode_ref` and `btrfs_inode_extref`, each with a
    /// name behind it.
    fn names(&self, names: &mut Vec<Name>) -> Option<()> {
        if !matches!(self.key.kind, INODE_REF | INODE_EXTREF) {
            return Some(());
        }
        let mut rest = self.bytes;
        while !rest.is_empty() {
            let dir = match self.key.kind {
                INODE_REF => self.key.offset,
                _ => word(&mut rest)?,
            };
            let _place_in_the_directory = word(&mut rest)?;
            let len = u16::from_le_bytes(rest.split_off(..2)?.try_into().ok()?);
            let name = rest.split_off(..usize::from(len))?.to_vec();
            names.push(Name { dir, name });
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_has_all_names_of_an_item_and_what_is_cut_off_is_none() {
        let name = |dir: Option<u64>, name: &str| {
            let mut bytes: Vec<u8> = dir.iter().flat_map(|dir| dir.to_le_bytes()).collect();
            bytes.extend(7_u64.to_le_bytes());
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes.extend(name.as_bytes());
            bytes
        };
        let found = |kind, bytes: &[u8]| {
            let (inode, offset) = (300, 256);
            let key = ItemKey {
                inode,
                kind,
                offset,
            };
            let item = Item { key, bytes };
            let mut names = Vec::new();
            item.names(&mut names).map(|()| names)
        };
        let short = [name(None, "a"), name(None, "b\n")].concat();
        let both = |[a, b]: [u64; 2]| {
            let named = [(a, "a"), (b, "b\n")].map(|(dir, name)| {
                let name = name.as_bytes().to_vec();
                Name { dir, name }
            });
            Some(named.to_vec())
        };
        assert_eq!(found(INODE_REF, &short), both([256, 256]));
        let long = [name(Some(5), "a"), name(Some(6), "b\n")].concat();
        assert_eq!(found(INODE_EXTREF, &long), both([5, 6]));
        for end in 1..short.len() {
            let is_whole = end == name(None, "a").len();
            assert_eq!(found(INODE_REF, &short[..end]).is_some(), is_whole);
        }
    }

    #[test]
    fn an_inode_has_changed_if_its_own_item_was_written_later() {
        let mut bytes = [0; 160];
        bytes[ITEM_TRANSACTION] = 9;
        bytes[ITEM_LINKS] = 3;
        bytes[ITEM_OWNER.start + 4] = 7;
        bytes[ITEM_MODE..ITEM_MODE + 4].copy_from_slice(&0o040_755_u32.to_le_bytes());
        let (inode, offset) = (300, 0);
        let item = |kind, bytes| Item {
            key: ItemKey {
                inode,
                kind,
                offset,
            },
            bytes,
        };
        let changed = Changed {
            inode,
            is_dir: true,
            is_new: false,
            size_and_time: [0; 20],
            owner: [0, 0, 0, 0, 7, 0, 0, 0],
            links: 3,
            names: Vec::new(),
        };
        assert_eq!(item(INODE_ITEM, &bytes[..]).changed_after(8), Some(changed));
        assert_eq!(item(INODE_ITEM, &bytes[..]).changed_after(9), None);
        assert_eq!(item(INODE_REF, &bytes[..]).changed_after(8), None);
        assert_eq!(item(INODE_ITEM, &bytes[..40]).changed_after(8), None);
        let mut new = bytes;
        new[ITEM_MADE_IN] = 9;
        let new = item(INODE_ITEM, &new[..]).changed_after(8);
        assert!(new.expect("it was written later").is_new);
    }

    #[test]
    fn an_entry_of_a_directory_is_read_whole_or_not_at_all() {
        let mut bytes = vec![7; 17];
        bytes.extend(9_u64.to_le_bytes());
        bytes.extend([0, 0, 3, 0, KIND_DIR]);
        bytes.extend(b"a\nb");
        let entry = |bytes| {
            let (inode, kind, offset) = (300, DIR_INDEX, 12);
            let key = ItemKey {
                inode,
                kind,
                offset,
            };
            Item { key, bytes }.entry()
        };
        let expected = Entry {
            index: 12,
            key: [7; 17],
            is_dir: true,
            name: b"a\nb".to_vec(),
        };
        assert_eq!(entry(&bytes), Some(expected));
        for end in 0..bytes.len() {
            assert_eq!(entry(&bytes[..end]), None);
        }
    }
}
