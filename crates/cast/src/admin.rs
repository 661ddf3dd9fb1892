//! Questions about a node on this host: its copies, their removal and their verification.
//!
//! A daemon answers over a Unix socket. Without a daemon, the caller's process opens the store.

use crate::Error;
use crate::message::{decode, encode, shown};
use crate::node::host::open_store;
use crate::report::StayingCopyInfo;
use driftless_store::{
    CheckReport, CopyFinding, CopyRow, CopyState, NodeStore, PurgeWhat, SetHash,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Name of the socket in the directory of the node.
pub(crate) const SOCKET: &str = "node.sock";
/// Digits that select a data set by its root hash.
const SET_DIGITS_MIN: usize = 8;
const SET_DIGITS_MAX: usize = 64;
/// Bytes of a message on the socket at most.
const ADMIN_BYTES_MAX: u32 = 64 << 20;

/// Error of a question to a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The store failed.
    #[error(transparent)]
    Node(#[from] Error),
    /// The daemon answers this user no questions.
    #[error(
        "{}: the daemon belongs to another user; ask as that user or as root",
        driftless_model::quote(.0)
    )]
    Denied(PathBuf),
    /// The daemon cannot be asked.
    #[error(
        "{}: cannot ask the daemon: {}; check that it runs",
        driftless_model::quote(path),
        driftless_model::cause(cause)
    )]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Cause.
        cause: io::Error,
    },
    /// The daemon answered with an error.
    #[error("{0}")]
    Refused(String),
    /// A process is at work on the copy.
    #[error("{0}")]
    Busy(String),
    /// The node has no copy with this number.
    #[error("no copy of this node has the number {0}; \"driftless node status\" lists them")]
    NoCopy(u64),
}

impl AdminError {
    /// Returns whether another process holds the store or a copy. A later attempt may succeed.
    pub fn is_busy(&self) -> bool {
        match self {
            AdminError::Node(error) => error.is_busy(),
            AdminError::Busy(_) => true,
            _ => false,
        }
    }
}

/// State of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Whether a daemon runs.
    pub has_daemon: bool,
    /// Key of the daemon, 64 hexadecimal digits.
    pub key: Option<String>,
    /// Address and port for coordinators.
    pub address: Option<String>,
    /// Casts at work.
    pub casts: u32,
    /// Bytes of cached copies.
    pub cached_bytes: u64,
    /// Bytes of cached copies at most.
    pub cache_bytes_max: Option<u64>,
    /// Copies, finished or not.
    pub copies: Vec<HeldCopyInfo>,
}

/// A copy that a node holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldCopyInfo {
    /// Number.
    pub copy: u64,
    /// Root hash of the data set, 64 hexadecimal digits.
    pub set: String,
    /// Directory that holds the copy.
    pub place: PathBuf,
    /// Names at the place.
    pub names: Vec<String>,
    /// Bytes of content.
    pub bytes: u64,
    /// State: "complete", "unfinished" or "damaged".
    pub state: String,
    /// Whether the copy is in the cache.
    pub is_cached: bool,
    /// Jobs that refer to the copy.
    pub jobs: Vec<String>,
    /// Whether the copy stays until it is purged.
    pub is_pinned: bool,
    /// Seconds since 1970 after which it may go.
    pub expires: Option<u64>,
    /// Seconds since 1970 of the last use.
    pub used: u64,
}

/// Copies to remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PurgeSelection {
    /// A copy by its number.
    Copy(u64),
    /// Each copy of a data set, by the first digits of its root hash.
    Set(String),
    /// Copies that only this job needs. The job's references end.
    Job(String),
    /// Each copy.
    All,
}

/// Result of a removal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeSummary {
    /// Copies that the selection names.
    pub selected: u64,
    /// Copies that were removed.
    pub copies: u64,
    /// Bytes of content that were removed.
    pub bytes: u64,
    /// Entries that stay because driftless did not place them, or they cannot be removed.
    pub kept: Vec<KeptEntryInfo>,
    /// Copies that could not be removed.
    pub staying: Vec<StayingCopyInfo>,
}

/// An entry that a removal left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptEntryInfo {
    /// Path, with bytes that are no text escaped.
    pub path: String,
    /// Cause.
    pub reason: String,
}

impl PurgeSummary {
    /// Returns whether nothing was removed, only because other processes are at work on the copies.
    pub fn is_busy(&self) -> bool {
        let is_untouched = self.copies == 0 && self.kept.is_empty() && !self.staying.is_empty();
        is_untouched && self.staying.iter().all(|copy| copy.is_busy)
    }

    /// Returns whether all that the selection names is gone.
    pub fn is_complete(&self) -> bool {
        self.kept.is_empty() && self.staying.is_empty()
    }
}

/// Result of a verification of one copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckSummary {
    /// Number of the copy.
    pub copy: u64,
    /// Root hash of the data set.
    pub set: String,
    /// Bytes that were hashed.
    pub bytes: u64,
    /// Whether the copy has each entry as it was placed. Extra entries do not count.
    pub is_sound: bool,
    /// Cause and remedy, if the copy could not be checked.
    pub fault: Option<String>,
    /// The first entries with other content or metadata.
    pub changed: Vec<String>,
    /// The first entries that are missing.
    pub missing: Vec<String>,
    /// The first entries that the data set lacks.
    pub extra: Vec<String>,
}

/// Question to a daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum AdminRequest {
    Info,
    Purge(PurgeSelection),
    Verify(Option<u64>),
}

/// AdminAnswer of a daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum AdminReply {
    Info(NodeInfo),
    Purged(PurgeSummary),
    Verified(Vec<CheckSummary>),
    Refused(String),
    /// A process is at work on the copy.
    Busy(String),
}

/// Returns the state of the node with this directory.
///
/// # Errors
/// Fails if the store or the daemon cannot be read.
pub fn node_info(dir: &Path) -> Result<NodeInfo, AdminError> {
    match ask(dir, &AdminRequest::Info)? {
        AdminAnswer::Daemon(AdminReply::Info(info)) => Ok(info),
        AdminAnswer::Daemon(other) => Err(refused(other)),
        AdminAnswer::NoDaemon(store) => Ok(info_of(&store).map_err(Error::from)?),
    }
}

/// Removes copies from the node with this directory.
///
/// # Errors
/// Fails if the store or the daemon cannot be read, or the selection names no copy.
pub fn purge_node(dir: &Path, what: &PurgeSelection) -> Result<PurgeSummary, AdminError> {
    match ask(dir, &AdminRequest::Purge(what.clone()))? {
        AdminAnswer::Daemon(AdminReply::Purged(summary)) => Ok(summary),
        AdminAnswer::Daemon(other) => Err(refused(other)),
        AdminAnswer::NoDaemon(store) => purge_in(&store, what).map_err(refused),
    }
}

/// Hashes copies of the node with this directory again: one, or each finished copy if `None`.
/// A damaged copy is not served any more.
///
/// # Errors
/// Fails if the store or the daemon cannot be read, or the number names no copy.
pub fn verify_node(dir: &Path, copy: Option<u64>) -> Result<Vec<CheckSummary>, AdminError> {
    let found = match ask(dir, &AdminRequest::Verify(copy))? {
        AdminAnswer::Daemon(AdminReply::Verified(found)) => found,
        AdminAnswer::Daemon(other) => return Err(refused(other)),
        AdminAnswer::NoDaemon(store) => {
            verify_in(&store, copy, &mut |_| true).map_err(Error::from)?
        }
    };
    match copy {
        Some(copy) if found.is_empty() => Err(AdminError::NoCopy(copy)),
        _ => Ok(found),
    }
}

/// Source of an answer.
enum AdminAnswer {
    Daemon(AdminReply),
    /// No daemon runs. The store is open.
    NoDaemon(NodeStore),
}

fn refused(reply: AdminReply) -> AdminError {
    match reply {
        AdminReply::Refused(cause) => AdminError::Refused(cause),
        AdminReply::Busy(cause) => AdminError::Busy(cause),
        _ => {
            AdminError::Refused("the daemon answered another question; run the same version".into())
        }
    }
}

/// Returns the refusal of a question for which the store failed.
pub(crate) fn refusal_of(error: driftless_store::Error) -> AdminReply {
    match error.is_busy() {
        true => AdminReply::Busy(error.to_string()),
        false => AdminReply::Refused(error.to_string()),
    }
}

/// Asks the daemon of a directory. Opens the store if no daemon listens.
fn ask(dir: &Path, request: &AdminRequest) -> Result<AdminAnswer, AdminError> {
    let path = dir.join(SOCKET);
    let failed = |cause: io::Error| AdminError::Socket {
        path: path.clone(),
        cause,
    };
    let mut stream = match UnixStream::connect(&path) {
        Ok(stream) => stream,
        Err(error) if is_without_daemon(&error) => return open_existing(dir),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(AdminError::Denied(path));
        }
        Err(error) => return Err(failed(error)),
    };
    let answer = write_message(&mut stream, request).and_then(|()| read_message(&mut stream));
    match answer {
        Ok(reply) => Ok(AdminAnswer::Daemon(reply)),
        Err(error) if is_hang_up(&error) => Err(AdminError::Denied(path)),
        Err(error) => Err(failed(error)),
    }
}

/// Returns whether a daemon closed the connection. It does so if another user asks, maybe before the
/// question is written or read.
fn is_hang_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::NotConnected
    )
}

fn is_without_daemon(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

#[allow(clippy::disallowed_methods, reason = "a file of the node itself")]
fn open_existing(dir: &Path) -> Result<AdminAnswer, AdminError> {
    // Opening a store makes its directory, and a question must not.
    std::fs::symlink_metadata(dir).map_err(|cause| Error::OwnFile {
        path: dir.to_owned(),
        act: "open the directory of the node",
        cause,
    })?;
    Ok(AdminAnswer::NoDaemon(open_store(dir)?))
}

/// Writes a message: its length (4 bytes, little-endian) and its value.
pub(crate) fn write_message<T: Serialize>(stream: &mut UnixStream, value: &T) -> io::Result<()> {
    let bytes = encode(value);
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_le_bytes())?;
    stream.write_all(&bytes)
}

/// Reads a message, as [`write_message`] writes it.
pub(crate) fn read_message<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > ADMIN_BYTES_MAX {
        return Err(io::Error::other("the message is too long"));
    }
    let mut bytes = Vec::new();
    stream.take(length.into()).read_to_end(&mut bytes)?;
    decode(&bytes).map_err(io::Error::other)
}

/// Returns the copies of a store.
pub(crate) fn info_of(store: &NodeStore) -> Result<NodeInfo, driftless_store::Error> {
    let rows = store.copies()?;
    let cached = rows.iter().filter(|row| row.is_cached);
    let cached_bytes = cached.fold(0_u64, |sum, row| sum.saturating_add(row.bytes));
    Ok(NodeInfo {
        has_daemon: false,
        key: None,
        address: None,
        casts: 0,
        cached_bytes,
        cache_bytes_max: None,
        copies: rows.into_iter().map(info_of_copy).collect(),
    })
}

fn info_of_copy(row: CopyRow) -> HeldCopyInfo {
    let state = match row.state {
        CopyState::Held => "complete",
        CopyState::Damaged => "damaged",
        _ => "unfinished",
    };
    let names = row
        .tops
        .iter()
        .map(|top| driftless_model::escape(&top.name));
    HeldCopyInfo {
        copy: row.id,
        set: row.hash.clone(),
        place: PathBuf::from(OsString::from_vec(row.place.clone())),
        names: names.collect(),
        bytes: row.bytes,
        state: state.into(),
        is_cached: row.is_cached,
        jobs: row.jobs.clone(),
        is_pinned: row.is_pinned,
        expires: row.expires.map(|time| time.as_secs()),
        used: row.used.as_secs(),
    }
}

/// Removes copies of a store.
///
/// # Errors
/// Returns the refusal with its cause.
pub(crate) fn purge_in(
    store: &NodeStore,
    what: &PurgeSelection,
) -> Result<PurgeSummary, AdminReply> {
    let rows = store.copies().map_err(refusal_of)?;
    let what = match what {
        PurgeSelection::Copy(copy) => PurgeWhat::Copy(*copy),
        PurgeSelection::Set(digits) => match set_of(&hashes(&rows), digits)? {
            Some(set) => PurgeWhat::Set(set),
            None => return Ok(PurgeSummary::default()),
        },
        PurgeSelection::Job(job) => PurgeWhat::Job(job.clone()),
        PurgeSelection::All => PurgeWhat::All,
    };
    let is_selected = |row: &&CopyRow| match &what {
        PurgeWhat::Copy(copy) => row.id == *copy,
        PurgeWhat::Set(set) => row.hash == set.to_string(),
        PurgeWhat::Job(job) => row.jobs.contains(job),
        _ => true,
    };
    let selected = rows.iter().filter(is_selected).count() as u64;
    let report = store.purge(&what).map_err(refusal_of)?;
    // The copies that stay keep their job, so that the same purge finds them again.
    if let PurgeWhat::Job(job) = &what
        && report.staying.is_empty()
    {
        store.end_job(job).map_err(refusal_of)?;
    }
    let staying = report.staying.into_iter().map(StayingCopyInfo::from);
    let kept = report.first_kept.into_iter().map(|kept| KeptEntryInfo {
        path: driftless_model::escape(&kept.path),
        reason: kept.cause,
    });
    Ok(PurgeSummary {
        selected,
        copies: report.copies,
        bytes: report.bytes,
        kept: kept.collect(),
        staying: staying.collect(),
    })
}

/// Returns the numbers of copies and the root hashes of their data sets.
fn hashes(rows: &[CopyRow]) -> Vec<(u64, &str)> {
    let rows = rows.iter();
    rows.map(|row| (row.id, row.hash.as_str())).collect()
}

/// Returns the only data set whose root hash begins with these digits. Returns `None` if no copy has
/// such a hash.
///
/// # Errors
/// Returns the refusal of digits that are too few, or with which several hashes begin.
fn set_of(copies: &[(u64, &str)], digits: &str) -> Result<Option<SetHash>, AdminReply> {
    let is_digits = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !is_digits || !(SET_DIGITS_MIN..=SET_DIGITS_MAX).contains(&digits.len()) {
        let digits = shown(digits);
        let cause = format!(
            "{digits}: no root hash: write {SET_DIGITS_MIN} to {SET_DIGITS_MAX} hexadecimal digits"
        );
        return Err(AdminReply::Refused(cause));
    }
    let digits = digits.to_ascii_lowercase();
    let mut found = copies.to_vec();
    found.retain(|(_, hash)| hash.starts_with(&digits));
    found.sort_unstable();
    let first = found.first().map(|(_, hash)| *hash);
    if found.iter().any(|(_, hash)| Some(*hash) != first) {
        let copies: Vec<String> = found.iter().map(|(copy, _)| copy.to_string()).collect();
        let copies = copies.join(", ");
        let cause = format!(
            "{digits}: hashes of several data sets begin with it (copies {copies}); write more digits"
        );
        return Err(AdminReply::Refused(cause));
    }
    Ok(first.and_then(|hash| hash.parse().ok()))
}

/// Hashes copies of a store again. Returns an empty list if no copy has the number.
pub(crate) fn verify_in(
    store: &NodeStore,
    copy: Option<u64>,
    pace: &mut dyn FnMut(u64) -> bool,
) -> Result<Vec<CheckSummary>, driftless_store::Error> {
    use driftless_store::Error::{OtherPlace, Unusable};
    let rows = store.copies()?;
    let is_wanted = |row: &&CopyRow| match copy {
        Some(copy) => row.id == copy,
        None => matches!(row.state, CopyState::Held | CopyState::Damaged),
    };
    let mut found = Vec::new();
    for row in rows.iter().filter(is_wanted) {
        match store.verify(row.id, pace) {
            Ok(report) => found.push(summary_of(row, &report)),
            Err(error @ (OtherPlace { .. } | Unusable { .. })) => found.push(CheckSummary {
                copy: row.id,
                set: row.hash.clone(),
                fault: Some(error.to_string()),
                ..CheckSummary::default()
            }),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn summary_of(row: &CopyRow, report: &CheckReport) -> CheckSummary {
    let paths = |wanted: &[CopyFinding]| -> Vec<String> {
        let found = report.first.iter();
        let found = found.filter(|(_, finding)| wanted.contains(finding));
        found
            .map(|(path, _)| driftless_model::escape(path))
            .collect()
    };
    CheckSummary {
        copy: row.id,
        set: row.hash.clone(),
        bytes: report.bytes,
        is_sound: report.is_sound(),
        fault: None,
        changed: paths(&[CopyFinding::Content, CopyFinding::Metadata]),
        missing: paths(&[CopyFinding::Missing]),
        extra: paths(&[CopyFinding::Extra]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_digits_select_one_data_set() {
        let hashes = ["d103d44e5", "d103d44e7"].map(|digits| format!("{digits:0<64}"));
        let [one, other] = &hashes;
        let copies = [(3, &**other), (2, &**one), (1, &**one)];
        let found = |digits: &str| match set_of(&copies, digits) {
            Ok(found) => Ok(found.map(|set| set.to_string())),
            Err(AdminReply::Refused(cause)) => Err(cause),
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(found("D103D44E5"), Ok(Some(one.clone())));
        assert_eq!(found("d103d44e6"), Ok(None));
        let several = found("d103d44e").expect_err("not unique");
        assert!(several.contains("(copies 1, 2, 3)"), "{several}");
        assert!(found("d103d44").is_err() && found("not a hash").is_err());
    }
}
