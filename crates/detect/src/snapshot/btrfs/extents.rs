//! The extents of a file, and where those of two files differ: what has the same extent at the same
//! place has the same content there, as long as nobody writes to it.
//!
//! Source: `btrfs_file_extent_item` (linux/btrfs_tree.h).

use super::sys::word;
use std::ops::Range;

/// Where an item has the transaction that wrote it, the bytes that are read from it, how they are
/// stored, and the kind of extent; then its bytes, or where they are.
const BYTES: usize = 8;
const COMPRESSION: usize = 16;
const ENCODING: Range<usize> = 17..20;
const KIND: usize = 20;
const INLINE: usize = 21;
const DISK: usize = 21;
const OFFSET: usize = 37;
const LEN: usize = 45;
/// `BTRFS_FILE_EXTENT_INLINE`, `_REG` and `_PREALLOC`.
const KIND_INLINE: u8 = 0;
const KIND_REGULAR: u8 = 1;
const KIND_PREALLOCATED: u8 = 2;

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Extent {
    /// In bytes.
    range: Range<u64>,
    content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Zeros,
    /// As it is stored, with the compression.
    Inline(Vec<u8>, u8),
    Stored {
        /// The bytes of the disk, which belong to this transaction.
        disk: u64,
        written_in: u64,
        compression: u8,
        /// Within what they are unpacked to.
        offset: u64,
    },
}

impl Extent {
    /// The item of the extent that begins at `start`; none if it cannot be understood.
    pub(super) fn read(start: u64, item: &[u8]) -> Option<Extent> {
        let number = |at| word(&mut item.get(at..)?);
        let compression = *item.get(COMPRESSION)?;
        if item.get(ENCODING)?.iter().any(|&byte| byte != 0) {
            return None;
        }
        let (len, content) = match *item.get(KIND)? {
            KIND_INLINE => {
                let bytes = item.get(INLINE..)?.to_vec();
                (number(BYTES)?, Content::Inline(bytes, compression))
            }
            KIND_PREALLOCATED => (number(LEN)?, Content::Zeros),
            KIND_REGULAR => (number(LEN)?, Content::stored(number, compression)?),
            _ => return None,
        };
        let range = start..start.checked_add(len)?;
        Some(Extent { range, content })
    }
}

impl Content {
    fn stored(number: impl Fn(usize) -> Option<u64>, compression: u8) -> Option<Content> {
        let (disk, written_in, offset) = (number(DISK)?, number(0)?, number(OFFSET)?);
        Some(match disk {
            0 => Content::Zeros,
            _ => Content::Stored {
                disk,
                written_in,
                compression,
                offset,
            },
        })
    }

    /// What is so many bytes further on.
    fn after(&self, bytes: u64) -> Content {
        let mut content = self.clone();
        if let Content::Stored { offset, .. } = &mut content {
            *offset += bytes;
        }
        content
    }
}

/// Where two files differ within the first bytes of both.
pub(super) fn differing((old, new): (&[Extent], &[Extent]), bytes: u64) -> Vec<Range<u64>> {
    let (mut old, mut new, mut at) = (old, new, 0);
    let mut found = Vec::new();
    while at < bytes {
        let (was, was_until) = content_at(&mut old, at);
        let (is, is_until) = content_at(&mut new, at);
        let end = was_until.min(is_until).min(bytes);
        if was != is {
            add(&mut found, at..end);
        }
        at = end;
    }
    found
}

/// What is at a place, and up to where; extents before it are passed over.
fn content_at(extents: &mut &[Extent], at: u64) -> (Content, u64) {
    while let [first, rest @ ..] = extents
        && first.range.end <= at
    {
        *extents = rest;
    }
    match extents.first() {
        None => (Content::Zeros, u64::MAX),
        Some(next) if next.range.start > at => (Content::Zeros, next.range.start),
        Some(here) => (here.content.after(at - here.range.start), here.range.end),
    }
}

/// Adds a range behind the others.
pub(super) fn add(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    fn stored(range: Range<u64>, disk: u64, offset: u64) -> Extent {
        Extent {
            range: range.start * BLOCK..range.end * BLOCK,
            content: Content::Stored {
                disk,
                written_in: 7,
                compression: 0,
                offset: offset * BLOCK,
            },
        }
    }

    #[test]
    fn what_is_another_extent_or_another_part_of_it_differs() {
        let whole = vec![stored(0..10, 1, 0)];
        let rewritten = vec![stored(0..3, 1, 0), stored(3..5, 2, 0), stored(5..10, 1, 5)];
        let shifted = vec![stored(0..3, 1, 0), stored(3..10, 1, 4)];
        let punched = vec![stored(0..3, 1, 0), stored(4..10, 1, 4)];
        let mut preallocated = whole.clone();
        preallocated[0].content = Content::Zeros;
        let inline = |byte| Extent {
            range: 0..9,
            content: Content::Inline(vec![byte; 9], 0),
        };
        let found = |was: &[Extent], is: &[Extent], bytes| -> Vec<(u64, u64)> {
            let found = differing((was, is), bytes).into_iter();
            found.map(|range| (range.start, range.end)).collect()
        };
        for (was, is, expected) in [
            (&whole, &whole, None),
            (&whole, &rewritten, Some((3, 5))),
            (&rewritten, &whole, Some((3, 5))),
            (&whole, &shifted, Some((3, 10))),
            (&whole, &punched, Some((3, 4))),
            (&preallocated, &vec![], None),
            (&whole, &vec![], Some((0, 10))),
        ] {
            let expected = expected.map(|(start, end)| (start * BLOCK, end * BLOCK));
            let found = found(was, is, 10 * BLOCK);
            assert_eq!(found, Vec::from_iter(expected), "{was:?} {is:?}");
        }
        assert_eq!(found(&[inline(1)], &[inline(1)], 9), []);
        assert_eq!(found(&[inline(1)], &[inline(2)], 9), [(0, 9)]);
        let end = 3 * BLOCK + 1;
        assert_eq!(found(&whole, &rewritten, end), [(3 * BLOCK, end)]);
    }

    #[test]
    fn an_item_is_understood_whole_or_not_at_all() {
        let mut item = vec![0; 53];
        item[..8].copy_from_slice(&7_u64.to_le_bytes());
        item[KIND] = KIND_REGULAR;
        item[DISK..DISK + 8].copy_from_slice(&1_u64.to_le_bytes());
        item[OFFSET..OFFSET + 8].copy_from_slice(&BLOCK.to_le_bytes());
        item[LEN..].copy_from_slice(&(2 * BLOCK).to_le_bytes());
        assert_eq!(
            Extent::read(3 * BLOCK, &item),
            Some(stored(3..5, 1, 1)),
            "regular"
        );
        for end in 0..item.len() {
            assert_eq!(Extent::read(0, &item[..end]), None, "{end}");
        }
        item[KIND] = KIND_PREALLOCATED;
        let zeros = Extent::read(0, &item).expect("it is whole");
        assert_eq!(zeros.content, Content::Zeros);
        item[KIND] = 3;
        assert_eq!(Extent::read(0, &item), None);
        item[KIND] = KIND_REGULAR;
        item[ENCODING.start] = 1;
        assert_eq!(Extent::read(0, &item), None, "encrypted");
    }
}
