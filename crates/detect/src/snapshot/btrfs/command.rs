//! The commands of a send stream, as far as they concern which paths differ.
//!
//! Source: fs/btrfs/send.h (`enum btrfs_send_cmd`). Versions 2 and 3 add commands at the end.

use super::attributes::{
    Attributes, CLONE_CTRANSID, CLONE_LEN, CLONE_UUID, CTRANSID, DATA, INO, PATH, PATH_LINK,
    PATH_TO, SIZE, UNENCODED_FILE_LEN, UUID,
};
use super::fault::StreamFault;
use driftless_model::RelPath;
use std::ops::Range;

/// The number of the command that ends a stream.
pub(super) const END: u16 = 21;

/// One command. Paths are as they are when the command is replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// The stream is of this snapshot: of all that is in it, or, with a parent, of what differs.
    Subvolume {
        /// The snapshot that the stream is of.
        this: Subvolume,
        /// The snapshot that it is compared with; its name is not told.
        parent: Option<([u8; 16], u64)>,
    },
    /// A new entry.
    Make {
        /// Where.
        path: RelPath,
        /// Its inode number in the newer snapshot.
        ino: u64,
        /// What it is.
        made: Made,
    },
    /// An entry is elsewhere now.
    Rename {
        /// Where it was.
        path: RelPath,
        /// Where it is.
        to: RelPath,
    },
    /// A further name of an entry.
    Link {
        /// The new name.
        path: RelPath,
        /// A name that it has already.
        existing: RelPath,
    },
    /// A name of an entry that is no directory goes.
    Unlink {
        /// Which.
        path: RelPath,
    },
    /// An empty directory goes.
    RemoveDirectory {
        /// Which.
        path: RelPath,
    },
    /// Content in this range differs; data that the stream has are passed over.
    Content {
        /// Of which file.
        path: RelPath,
        /// In bytes.
        range: Range<u64>,
    },
    /// A file has this size.
    Truncate {
        /// Which file.
        path: RelPath,
        /// In bytes.
        size: u64,
    },
    /// Mode, owner, times, attributes or verity are others.
    Meta {
        /// Of which entry.
        path: RelPath,
    },
}

/// Which snapshot it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subvolume {
    /// Its name, as bytes.
    pub name: Vec<u8>,
    /// Its UUID, or the one that it was received with.
    pub uuid: [u8; 16],
    /// The transaction that it was last changed in.
    pub ctransid: u64,
}

/// What a new entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A device.
    Node,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A symbolic link.
    Symlink,
}

impl Command {
    /// Reads the attributes of the command with this number.
    pub(super) fn parse(number: u16, payload: &[u8], version: u32) -> Result<Command, StreamFault> {
        let all = Attributes::parse(number, payload, version)?;
        match number {
            1 => subvolume(&all, false),
            2 => subvolume(&all, true),
            3 => make(&all, Made::File),
            4 => make(&all, Made::Directory),
            5 => make(&all, Made::Node),
            6 => make(&all, Made::Fifo),
            7 => make(&all, Made::Socket),
            8 => make(&all, Made::Symlink),
            9 => rename(&all),
            10 => link(&all),
            11 => all.path(PATH).map(|path| Command::Unlink { path }),
            12 => all.path(PATH).map(|path| Command::RemoveDirectory { path }),
            15 => content(&all, all.bytes(DATA)?.len() as u64),
            16 => content(&all, all.number(CLONE_LEN)?),
            17 => truncate(&all),
            // SET_XATTR, REMOVE_XATTR, CHMOD, CHOWN, UTIMES, FILEATTR, ENABLE_VERITY.
            13 | 14 | 18..=20 | 24 | 26 => all.path(PATH).map(|path| Command::Meta { path }),
            // UPDATE_EXTENT, FALLOCATE.
            22 | 23 => content(&all, all.number(SIZE)?),
            25 => content(&all, all.number(UNENCODED_FILE_LEN)?),
            _ => Err(StreamFault::Command(number)),
        }
    }
}

fn subvolume(all: &Attributes<'_>, has_parent: bool) -> Result<Command, StreamFault> {
    let this = Subvolume {
        name: all.bytes(PATH)?.to_vec(),
        uuid: all.uuid(UUID)?,
        ctransid: all.number(CTRANSID)?,
    };
    let parent = has_parent.then(|| Ok((all.uuid(CLONE_UUID)?, all.number(CLONE_CTRANSID)?)));
    Ok(Command::Subvolume {
        this,
        parent: parent.transpose()?,
    })
}

fn make(all: &Attributes<'_>, made: Made) -> Result<Command, StreamFault> {
    Ok(Command::Make {
        path: all.path(PATH)?,
        ino: all.number(INO)?,
        made,
    })
}

fn rename(all: &Attributes<'_>) -> Result<Command, StreamFault> {
    Ok(Command::Rename {
        path: all.path(PATH)?,
        to: all.path(PATH_TO)?,
    })
}

fn link(all: &Attributes<'_>) -> Result<Command, StreamFault> {
    Ok(Command::Link {
        path: all.path(PATH)?,
        existing: all.path(PATH_LINK)?,
    })
}

fn content(all: &Attributes<'_>, length: u64) -> Result<Command, StreamFault> {
    Ok(Command::Content {
        path: all.path(PATH)?,
        range: all.range(length)?,
    })
}

fn truncate(all: &Attributes<'_>) -> Result<Command, StreamFault> {
    Ok(Command::Truncate {
        path: all.path(PATH)?,
        size: all.number(SIZE)?,
    })
}
