//! Errors of the store. Each names the object, the cause and the remedy.

use crate::format::SetHash;
use driftless_model::units::size_text;
use driftless_model::{Fault, escape, quote};
use driftless_state::StateError;
use driftless_tree::RootError;
use std::path::PathBuf;

/// A call of the store that failed. Unless a variant says otherwise, everything is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A path that the user gave cannot be opened.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The index cannot be read or written.
    #[error(transparent)]
    Index(#[from] StateError),
    /// A call on an entry failed. The path begins at the place that the user named.
    #[error("\"{}\": {}", escape(path), fault.alone())]
    Entry {
        /// The path as bytes.
        path: Vec<u8>,
        /// The call and its error number.
        fault: Fault,
    },
    /// A file of the store itself cannot be read or written.
    #[error("\"{}\" in the directory of the node: {}", escape(name), fault.alone())]
    OwnFile {
        /// Its name below the directory of the node.
        name: Vec<u8>,
        /// The call and its error number.
        fault: Fault,
    },
    /// The directory of the store cannot be made or changed.
    #[error(
        "{}: cannot use the directory as store: {}; name another one (--dir, or --node-dir for the nodes of a cast)",
        quote(path),
        fault.alone()
    )]
    Store {
        /// The path.
        path: PathBuf,
        /// The call and its error number.
        fault: Fault,
    },
    /// The source changed after its content was hashed.
    #[error(
        "\"{}\": the source changed while it was distributed; start again when it is quiet",
        escape(path)
    )]
    SourceChanged {
        /// The path below the source.
        path: Vec<u8>,
    },
    /// A copy no longer holds the content that was placed.
    #[error(
        "\"{}\": the copy was changed or its disk is damaged; repair it by casting the data set again",
        escape(path)
    )]
    CopyChanged {
        /// The path below the copy.
        path: Vec<u8>,
    },
    /// Two sources have the same last name, or a source has a reserved one.
    #[error(
        "\"{}\": cannot distribute it under this name: {why}; rename it",
        escape(name)
    )]
    SourceName {
        /// The name.
        name: Vec<u8>,
        /// The cause.
        why: &'static str,
    },
    /// A source has nothing to distribute, which would replace the copies of nodes by nothing.
    #[error("{}: {why}; is its file system mounted?", quote(path))]
    HollowSource {
        /// The path that the user gave.
        path: PathBuf,
        /// The cause.
        why: &'static str,
    },
    /// A source is a FIFO, a socket or a device.
    #[error("{}: neither a file nor a directory; name files and directories", quote(.0))]
    SourceKind(PathBuf),
    /// A source is beyond a bound of the catalogue.
    #[error("{what}: more than {max}; distribute the data in several sets")]
    TooLarge {
        /// The number that is too large.
        what: &'static str,
        /// The bound.
        max: u64,
    },
    /// An entry has more extended attributes than a catalogue takes.
    #[error(
        "\"{}\": its extended attributes take more than {max} bytes; remove some",
        escape(path)
    )]
    TooManyAttributes {
        /// The path below the source.
        path: Vec<u8>,
        /// The bound in bytes.
        max: u64,
    },
    /// The bytes of a unit do not have the hash that the catalogue states. Nothing was written.
    #[error("unit {unit}: its hash differs from the catalogue; fetch it from another node")]
    WrongUnit {
        /// The number of the unit.
        unit: u64,
    },
    /// The bytes of a part do not have the hash that the head states, or the head another one than
    /// was asked for.
    #[error("part {part} of the catalogue: its hash differs; fetch it from another node")]
    WrongPart {
        /// The number of the part.
        part: u32,
    },
    /// A catalogue has the right hash and breaks the rules of the format.
    #[error("catalogue {hash}: malformed: {what}; use the same version of driftless on all nodes")]
    Malformed {
        /// The set.
        hash: SetHash,
        /// The rule.
        what: &'static str,
    },
    /// The set has no unit or part of this number.
    #[error("catalogue {hash}: no unit or part has the number {number}")]
    NoSuchUnit {
        /// The set.
        hash: SetHash,
        /// The number.
        number: u64,
    },
    /// The file system has no room for the set.
    #[error(
        "\"{}\": no room: {}; make room or choose another directory",
        escape(path),
        room_text((*needed, *free), (*inodes, *free_inodes))
    )]
    NoRoom {
        /// The place.
        path: Vec<u8>,
        /// Bytes that are needed.
        needed: u64,
        /// Entries that are needed.
        inodes: u64,
        /// Bytes that are free.
        free: u64,
        /// Inodes that are free, if the file system has a limit.
        free_inodes: Option<u64>,
    },
    /// A write found no room, although the file system has free bytes: a quota is used up, or another process
    /// removed files meanwhile.
    #[error(
        "\"{}\": {}; {} are missing, and the file system has {} free: make room, or raise the quota",
        escape(path),
        fault.alone(),
        size_text(*needed),
        size_text(*free)
    )]
    Quota {
        /// The path below the place.
        path: Vec<u8>,
        /// The call and its error number.
        fault: Fault,
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The cache has no room for the set, even without the copies that may go.
    #[error(
        "the cache in \"{}\" has no room for {}: copies that are pinned, in use, or kept by jobs have {} of its {}; purge copies, or raise --cache-max",
        escape(path.as_os_str().as_encoded_bytes()),
        size_text(*needed),
        size_text(*used),
        size_text(*quota)
    )]
    CacheFull {
        /// The directory of the node.
        path: PathBuf,
        /// Bytes of the set.
        needed: u64,
        /// Bytes that the cache may have.
        quota: u64,
        /// Bytes of the copies that stay.
        used: u64,
    },
    /// Something stands at a final name that this store did not place.
    #[error(
        "\"{}\": driftless cast did not place it, so it stays; move it away or choose another directory",
        escape(path)
    )]
    Occupied {
        /// The path.
        path: Vec<u8>,
    },
    /// A user gave an entry that this store placed another owner.
    #[error(
        "\"{}\": its owner was changed after driftless cast placed it, so it stays; change the owner back, or move it away",
        escape(path)
    )]
    OtherOwner {
        /// The path.
        path: Vec<u8>,
    },
    /// Another process receives the same set at the same place, or synchronises that place.
    #[error(
        "{hash} in {}: another process is at work there; wait for its end",
        quote(place)
    )]
    Busy {
        /// The set.
        hash: SetHash,
        /// The place.
        place: PathBuf,
    },
    /// Units are missing.
    #[error("{hash}: units are missing ({lacking}); fetch them and finish again")]
    Incomplete {
        /// The set.
        hash: SetHash,
        /// The number of units.
        lacking: u64,
    },
    /// The directory of the node, or an unfinished copy, belongs to another user or is open to
    /// other users.
    #[error(
        "{}: it belongs to another user, or other users may write to it; choose another directory",
        quote(path)
    )]
    Foreign {
        /// The path.
        path: PathBuf,
    },
    /// The directory for copies is missing.
    #[error(
        "{}: no such directory; make it on the node, or choose another one with --to",
        quote(path)
    )]
    NoDirectory {
        /// The path.
        path: PathBuf,
    },
    /// The directory for copies lies in the store.
    #[error(
        "{}: cannot place a data set in the store of the node; choose another directory with --to",
        quote(path)
    )]
    InStore {
        /// The path.
        path: PathBuf,
    },
    /// The configuration of the node does not allow the directory for copies.
    #[error(
        "{}: cannot place a data set: its daemon allows no copies there; start it with --place DIR",
        quote(path)
    )]
    Disallowed {
        /// The path.
        path: PathBuf,
    },
    /// The file system of the cache cannot give one user the right to read a copy.
    #[error(
        "\"{}\": its file system keeps no POSIX ACLs, so no copy can be for one user alone; mount it with ACLs, or move the directory of the node (--dir) to another file system",
        escape(path)
    )]
    NoAcls {
        /// The path.
        path: Vec<u8>,
    },
    /// The node runs as an ordinary user, and the copy is for another user.
    #[error(
        "a copy for the user {reader}: this node runs as the user {own}, who cannot give it to others; run the daemon of the node as root, or as the user {reader}"
    )]
    OtherReader {
        /// UID of the user who is to read the copy.
        reader: u32,
        /// UID of the process.
        own: u32,
    },
    /// The name of a job cannot be that of its outbox.
    #[error(
        "job \"{}\": no directory for its results can have this name; choose a name without \"/\" and of at most 255 bytes",
        driftless_model::escape_text(job)
    )]
    OutboxName {
        /// The job.
        job: String,
    },
    /// The job has no outbox here, or no sealed results.
    #[error(
        "job \"{}\": this node has no results of it; look for them on the other nodes of the job",
        driftless_model::escape_text(job)
    )]
    NoOutbox {
        /// The job.
        job: String,
    },
    /// The store has no such copy.
    #[error("copy {copy}: the node does not hold it")]
    UnknownCopy {
        /// The number.
        copy: u64,
    },
    /// The copy is damaged, or is not finished.
    #[error("copy {copy}: it is damaged or unfinished; repair it by casting the data set again")]
    Unusable {
        /// The number.
        copy: u64,
    },
    /// Another directory stands at the path of the one in which a copy was placed.
    #[error(
        "copy {copy}: \"{}\" is another directory than the one in which the copy was placed; mount its file system, or forget the copy with \"driftless node purge {copy}\"",
        escape(path)
    )]
    OtherPlace {
        /// The path.
        path: Vec<u8>,
        /// The number of the copy.
        copy: u64,
    },
    /// The caller asked to stop.
    #[error("stopped")]
    Stopped,
}

impl Error {
    /// Names an entry by the path that the user gave for its source.
    pub(crate) fn with_sources(mut self, sources: &[PathBuf]) -> Error {
        if let Error::Entry { path, .. }
        | Error::SourceChanged { path }
        | Error::TooManyAttributes { path, .. } = &mut self
        {
            let end = path.iter().position(|byte| *byte == b'/');
            let (name, below) = path.split_at(end.unwrap_or(path.len()));
            let is_it = |source: &&PathBuf| {
                let own = source.file_name();
                own.is_some_and(|own| own.as_encoded_bytes() == name)
            };
            if let Some(source) = sources.iter().find(is_it) {
                *path = [source.as_os_str().as_encoded_bytes(), below].concat();
            }
        }
        self
    }

    /// Returns whether another process holds the store or the copy. A later attempt may succeed.
    pub fn is_busy(&self) -> bool {
        match self {
            Error::Busy { .. } => true,
            Error::Index(error) => error.is_busy(),
            _ => false,
        }
    }

    /// Returns whether the file system or the quota of a user is full.
    pub fn is_of_room(&self) -> bool {
        match self {
            Error::NoRoom { .. } | Error::Quota { .. } | Error::CacheFull { .. } => true,
            Error::Entry { fault, .. } | Error::OwnFile { fault, .. } => fault.lacks_room(),
            _ => false,
        }
    }
}

/// Returns what is needed and what is free: bytes, or the inodes of which there are too few.
fn room_text((needed, free): (u64, u64), (inodes, free_inodes): (u64, Option<u64>)) -> String {
    let bytes = format!("{} needed, {} free", size_text(needed), size_text(free));
    match free_inodes {
        Some(left) if left < inodes && free < needed => {
            format!("{bytes}; {inodes} inodes needed, {left} inodes free")
        }
        Some(left) if left < inodes => format!("{inodes} inodes needed, {left} inodes free"),
        _ => bytes,
    }
}

/// The result of a call of the store.
pub type Result<T> = std::result::Result<T, Error>;

/// Names the file of the store whose call failed.
pub(crate) fn own_file(name: &[u8]) -> impl Fn(Fault) -> Error + use<> {
    let name = name.to_vec();
    move |fault| Error::OwnFile {
        name: name.clone(),
        fault,
    }
}
