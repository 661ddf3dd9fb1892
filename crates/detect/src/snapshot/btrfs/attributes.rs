//! The attributes of a command: a type, a length, so many bytes.
//!
//! Source: fs/btrfs/send.h (`enum` of `BTRFS_SEND_A_*`), fs/btrfs/send.c (`tlv_put`,
//! `put_data_header`). All numbers are little endian.

use super::fault::StreamFault;
use driftless_model::RelPath;
use std::ops::Range;

pub(super) const UUID: u16 = 1;
pub(super) const CTRANSID: u16 = 2;
pub(super) const INO: u16 = 3;
pub(super) const SIZE: u16 = 4;
pub(super) const PATH: u16 = 15;
pub(super) const PATH_TO: u16 = 16;
pub(super) const PATH_LINK: u16 = 17;
pub(super) const FILE_OFFSET: u16 = 18;
pub(super) const DATA: u16 = 19;
pub(super) const CLONE_UUID: u16 = 20;
pub(super) const CLONE_CTRANSID: u16 = 21;
pub(super) const CLONE_LEN: u16 = 24;
pub(super) const UNENCODED_FILE_LEN: u16 = 27;

/// One more than the largest type that any version has.
const TYPES: usize = 36;

/// Where in a payload each attribute is.
pub(super) struct Attributes<'a> {
    command: u16,
    found: [Option<&'a [u8]>; TYPES],
}

impl<'a> Attributes<'a> {
    /// Takes a payload apart. Types that are not known are passed over. From version 2 on, the
    /// data have no length and go to the end of the payload.
    pub(super) fn parse(
        command: u16,
        payload: &'a [u8],
        version: u32,
    ) -> Result<Self, StreamFault> {
        let mut found = [None; TYPES];
        let mut rest = payload;
        while !rest.is_empty() {
            let kind = take_number(&mut rest).ok_or(StreamFault::Attribute(0))?;
            let value = if kind == DATA && version >= 2 {
                std::mem::take(&mut rest)
            } else {
                let length = take_number(&mut rest);
                let value = length.and_then(|length| rest.split_off(..usize::from(length)));
                value.ok_or(StreamFault::Attribute(kind))?
            };
            let place = found.get_mut(usize::from(kind));
            if place.is_some_and(|place| place.replace(value).is_some()) {
                return Err(StreamFault::Twice(kind));
            }
        }
        Ok(Attributes { command, found })
    }

    /// The bytes of an attribute.
    pub(super) fn bytes(&self, attribute: u16) -> Result<&'a [u8], StreamFault> {
        let missing = StreamFault::Missing {
            command: self.command,
            attribute,
        };
        self.found[usize::from(attribute)].ok_or(missing)
    }

    fn array<const N: usize>(&self, attribute: u16) -> Result<[u8; N], StreamFault> {
        let bytes = self.bytes(attribute)?;
        let length = StreamFault::Length(attribute, bytes.len());
        bytes.try_into().map_err(|_| length)
    }

    /// An attribute of eight bytes, as a number.
    pub(super) fn number(&self, attribute: u16) -> Result<u64, StreamFault> {
        self.array(attribute).map(u64::from_le_bytes)
    }

    /// An attribute of 16 bytes.
    pub(super) fn uuid(&self, attribute: u16) -> Result<[u8; 16], StreamFault> {
        self.array(attribute)
    }

    /// An attribute that is a path below the subvolume; the subvolume itself is empty.
    pub(super) fn path(&self, attribute: u16) -> Result<RelPath, StreamFault> {
        let bytes = self.bytes(attribute)?;
        RelPath::parse(bytes).map_err(|_| StreamFault::Path(bytes.to_vec()))
    }

    /// `length` bytes from the file offset on.
    pub(super) fn range(&self, length: u64) -> Result<Range<u64>, StreamFault> {
        let start = self.number(FILE_OFFSET)?;
        let end = start.checked_add(length);
        end.map(|end| start..end)
            .ok_or(StreamFault::Range(start, length))
    }
}

fn take_number(rest: &mut &[u8]) -> Option<u16> {
    let (bytes, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u16::from_le_bytes(*bytes))
}
