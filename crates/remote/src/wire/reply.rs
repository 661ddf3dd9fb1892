//! What an agent answers, and what that takes of memory.

use crate::wire::bounds::{ENTRIES_MAX, FAULTS_MAX, LINEAGE_MAX, at_most};
use crate::wire::fault::{WireFault, kernels};
use crate::wire::frame::Frame;
use crate::wire::name::Name;
use crate::wire::sparing::WireRemoved;
use driftless_model::{Act, Entry, Kind, Meta, Stamp, Xattrs, errno};
use driftless_tree::{Ancestor, Holder, MarkText};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::ops::Range;

/// What attributes take of memory, in bytes. A peer can tell one in three bytes.
pub fn xattrs_memory(xattrs: &Xattrs) -> u64 {
    xattrs
        .iter()
        .map(|(name, value)| Xattrs::memory_of_one(name, value))
        .sum()
}

/// What came of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Locked {
    /// It is held.
    Held,
    /// Another run has it: who, as far as that can be told.
    Taken(Option<Holder>),
    /// A run that is over has left the file of this name.
    Left(Vec<u8>),
    /// There is none to be had, and why.
    Missing(#[serde(deserialize_with = "kernels")] i32),
}

/// What stands at a path.
#[derive(Debug, Serialize, Deserialize)]
pub enum Located {
    /// A directory.
    Dir(Own),
    /// Something else: its directory, its name and its metadata.
    Entry(Own, Name, Meta),
    /// Nothing: the directory that would hold it, and its name.
    Missing(Own, Name),
    /// It cannot be used: the path, what was tried, and why it failed.
    Refused(Vec<u8>, WireFault),
}

/// What is known of a directory that was opened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Own {
    /// Its metadata.
    pub meta: Meta,
    /// Whether something is mounted on it, if that can be told.
    pub is_mount_root: Option<bool>,
    /// Its extended attributes, if they were asked for and could be read.
    pub xattrs: Option<Xattrs>,
    /// A mark is among them.
    pub is_marked: bool,
    /// It is closed to others until it is finished.
    pub is_unfinished: bool,
}

/// An entry as a listing tells it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Told {
    /// Its name.
    pub name: Name,
    /// Its kind, if known.
    pub kind: Option<Kind>,
    /// Its metadata and extended attributes, where they were asked for and could be read.
    pub entry: Option<Entry>,
    /// Target of a symbolic link.
    pub target: Option<CString>,
}

/// Some entries of a directory.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Listing {
    /// The entries.
    #[serde(deserialize_with = "at_most::<ENTRIES_MAX, _, _>")]
    pub told: Vec<Told>,
    /// There may be more.
    pub more: bool,
    /// Listing failed here.
    pub fault: Option<WireFault>,
}

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// It is done; what was read is the frame's data.
    Done,
    /// It failed.
    Fault(WireFault),
    /// It is done, but for these.
    Faults(#[serde(deserialize_with = "at_most::<FAULTS_MAX, _, _>")] Vec<WireFault>),
    /// Metadata.
    Meta(Meta),
    /// Extended attributes.
    Xattrs(Xattrs),
    /// BLAKE3 hashes.
    Digests(Vec<[u8; 32]>),
    /// A range, if there is one.
    Range(Option<Range<u64>>),
    /// Bytes that were copied.
    Count(u64),
    /// What was removed, or would be.
    Removed(WireRemoved),
    /// What stands at a path.
    Located(Located),
    /// A directory was entered.
    Entered(Own, Option<Listing>),
    /// Entries.
    Listing(Listing),
    /// A file, whole, with the frame's data; `None` if it cannot be had whole.
    Whole(Option<(Entry, Vec<Range<u64>>)>),
    /// The disk did not keep what it was given.
    Lost(WireFault),
    /// What was written is not what was read back.
    Mismatch,
    /// What came of a lock.
    Lock(Locked),
    /// Whether a lock still keeps others out.
    Kept(bool),
    /// What time it is by the clock of the file system.
    Time(Stamp),
    /// Devices and inodes.
    Lineage(#[serde(deserialize_with = "at_most::<LINEAGE_MAX, _, _>")] Vec<Ancestor>),
    /// What a directory is known by.
    Birthmark(Option<u128>),
    /// Marks of replicas.
    Marks(#[serde(deserialize_with = "at_most::<LINEAGE_MAX, _, _>")] Vec<MarkText>),
    /// A note of progress, or the target of a link.
    Note(Option<Vec<u8>>),
    /// Where further streams are handed over, and what has to be said there.
    Gathers {
        /// What `--join` is given.
        place: Vec<u8>,
        /// What is sent first on each, ahead of all frames: 16 bytes, little endian.
        secret: u128,
    },
    /// The agent is there. Answers nothing.
    Alive,
}

impl Reply {
    /// What the lists in it take of memory, where that may be much more than of the message, in
    /// bytes.
    pub fn lists_memory(&self) -> u64 {
        match self {
            Reply::Whole(Some((entry, extents))) => {
                xattrs_memory(&entry.xattrs) + size_of_val(&extents[..]) as u64
            }
            Reply::Entered(own, listing) => {
                own.xattrs.as_ref().map_or(0, xattrs_memory)
                    + listing.as_ref().map_or(0, Listing::strings_memory)
            }
            Reply::Listing(listing) => listing.strings_memory(),
            Reply::Xattrs(xattrs) => xattrs_memory(xattrs),
            _ => 0,
        }
    }
}

impl Listing {
    fn strings_memory(&self) -> u64 {
        self.told.iter().map(Told::strings_memory).sum()
    }
}

impl Told {
    /// What its name, target and attributes take of memory, in bytes.
    pub fn strings_memory(&self) -> u64 {
        let xattrs = self
            .entry
            .as_ref()
            .map_or(0, |entry| xattrs_memory(&entry.xattrs));
        let target = self
            .target
            .as_ref()
            .map_or(0, |target| target.count_bytes());
        (self.name.0.count_bytes() + target) as u64 + xattrs
    }
}

impl Frame {
    /// This frame, if its head is no longer than the other side reads. Otherwise a frame with the
    /// fault that it is too long, so that one entry has a problem and the connection goes on.
    pub fn or_too_long(self, head_bytes_max: u64, act: Act) -> Frame {
        let fits = self.head.len() as u64 <= head_bytes_max;
        if fits {
            self
        } else {
            Frame::new(
                self.number(),
                &Reply::Fault(WireFault::new(act, errno::E2BIG)),
                Vec::new(),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::NUMBER_BYTES;
    use driftless_model::{LINE_LOST, Side};

    #[test]
    fn an_act_that_is_none_of_ours_is_no_message() {
        let mut frame = Frame::new(1, &Reply::Fault(WireFault::new(Act::Open, 5)), Vec::new());
        assert!(frame.message::<Reply>().is_ok());
        // Behind the number of the request and that of the reply stands the act.
        assert_eq!(frame.head[NUMBER_BYTES + 1], Act::Open as u8);
        frame.head[NUMBER_BYTES + 1] = Act::ALL.len() as u8;
        assert!(frame.message::<Reply>().is_err());
    }

    #[test]
    fn no_peer_can_say_that_the_line_is_lost() {
        for errno in [LINE_LOST, 0, -1, i32::MIN, i32::MAX] {
            let said = Frame::new(
                1,
                &Reply::Fault(WireFault::new(Act::ReachAgent, errno)),
                Vec::new(),
            );
            let Ok(Reply::Fault(heard)) = said.message() else {
                panic!("{errno}")
            };
            let heard = heard.on(Side::Source);
            assert!(
                heard.errno == errno::EPROTO && !heard.is_cut_off(),
                "{errno}"
            );
        }
        assert!(
            WireFault::new(Act::ReachAgent, LINE_LOST)
                .on(Side::Source)
                .is_cut_off(),
            "this side can"
        );
    }

    #[test]
    fn lists_that_would_take_much_memory_are_not_read() {
        let read = |count: usize| {
            Frame::new(
                1,
                &Reply::Faults(vec![WireFault::new(Act::Open, 1); count]),
                Vec::new(),
            )
            .message::<Reply>()
        };
        assert!(read(FAULTS_MAX).is_ok());
        assert!(read(FAULTS_MAX + 1).is_err());
    }
}
