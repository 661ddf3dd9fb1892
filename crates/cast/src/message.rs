//! Messages between the coordinator and a node, and the frames of a trunk.
//!
//! A message is a kind of the data plane and a value of postcard. A peer is authenticated, and still
//! not believed: each value is bounded, and text of a peer is escaped before a message shows it.

use crate::report::StayingCopyInfo;
use crate::settings::{CastPlace, ContentLimits};
use driftless_dataplane::PeerKey;
use driftless_planner::{NodeId, OrderAction, StreamCause, StreamId, UnitSet};
use driftless_store::SetHash;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Number of this protocol. Peers with another one are refused.
pub(crate) const PROTOCOL: u32 = 5;
/// Bytes of the largest message: a part of a catalogue, or [`driftless_planner::RANGES_MAX`] ranges.
pub(crate) const MESSAGE_BYTES_MAX: usize = 2 << 20;
/// Peers that one message names.
pub(crate) const PEERS_PER_MESSAGE: usize = 2048;
/// Addresses of one peer.
pub(crate) const ADDRESSES_MAX: usize = 8;
/// Ranges that one request for units has.
pub(crate) const RANGES_PER_MESSAGE: usize = 32_768;
/// Names of jobs in one message.
pub(crate) const JOBS_PER_MESSAGE: usize = 256;
/// Copies with a cause in one message.
pub(crate) const COPIES_PER_MESSAGE: usize = 256;
/// Results that one order seals or discards.
pub(crate) const SEALS_PER_MESSAGE: usize = 2048;
/// Bytes that one message of a relay carries.
pub(crate) const RELAY_BYTES_MAX: usize = 64 << 10;
/// Characters of a text of a peer.
pub(crate) const TEXT_CHARS_MAX: usize = 1000;
/// Bytes of a name, a job or a path of a peer (limits.h, `PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;

/// Refusal of a reader without a job, or of one of a directory.
pub(crate) const READER_ALONE: &str =
    "a copy for one user needs a job and a place in the cache; name a job, and cast to the cache";

/// Refusal of an outbox without a job, or of one of a directory.
pub(crate) const OUTBOX_ALONE: &str = "an outbox needs a job whose name can be that of a directory, and a place in the cache; name a job, and cast to the cache";

/// Kinds of messages of the data plane.
pub(crate) mod kind {
    /// First message of a connection: [`super::PeerOpening`].
    pub const OPENING: u8 = 1;
    /// [`super::NodeOrder`] of the coordinator.
    pub const ORDER: u8 = 2;
    /// Part of a catalogue: its number (4 bytes, little-endian) and its bytes.
    pub const PART: u8 = 3;
    /// [`super::NodeMessage`] of a node.
    pub const NODE: u8 = 4;
    /// [`super::TrunkMessage`] between two nodes.
    pub const TRUNK: u8 = 5;
    /// Filler of a measurement.
    pub const FILL: u8 = 6;
    /// Bytes of a relay, at most [`super::RELAY_BYTES_MAX`].
    pub const RELAY: u8 = 7;
    /// End of the bytes of a relay in this direction. The message is empty.
    pub const RELAY_END: u8 = 8;
}

/// Number of a cast, drawn at random by its coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct CastId(pub [u8; 16]);

/// First message of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PeerOpening {
    /// A coordinator begins a cast, or an examination.
    Control {
        /// [`PROTOCOL`] of the coordinator.
        protocol: u32,
    },
    /// A feeder begins a stream.
    Trunk {
        /// [`PROTOCOL`] of the feeder.
        protocol: u32,
        /// The cast.
        cast: CastId,
        /// The stream.
        stream: StreamId,
    },
    /// A node measures the connection to its successor.
    Probe {
        /// [`PROTOCOL`] of the node.
        protocol: u32,
    },
    /// A node asks another one for the catalogue. The number of the cast is known to its nodes alone.
    Catalogue {
        /// [`PROTOCOL`] of the node.
        protocol: u32,
        /// The cast.
        cast: CastId,
        /// The data set.
        set: SetHash,
    },
}

/// Place of a set, as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WirePlace {
    /// Path as bytes.
    Directory(Vec<u8>),
    /// The cache of the node.
    Cache,
}

/// Begin of a cast at a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CastBrief {
    pub cast: CastId,
    pub set: SetHash,
    pub place: WirePlace,
    pub job: Option<String>,
    pub reader: Option<u32>,
    pub has_outbox: bool,
    pub is_pinned: bool,
    pub seconds_max: Option<u64>,
    pub bytes_per_second_max: Option<u64>,
    pub connections: u8,
}

/// A node that other nodes may meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CastPeer {
    pub node: NodeId,
    pub key: [u8; 32],
    pub addresses: Vec<SocketAddr>,
}

/// Instruction of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NodeOrder {
    /// Begins a cast. The first order on a connection.
    Begin(CastBrief),
    /// Names nodes, with their keys and addresses.
    Peers(Vec<CastPeer>),
    /// An order of the planner.
    Plan(OrderAction),
    /// Ends the cast. The node closes the connection.
    End,
    /// Measures disk and processor. The first order on a connection.
    Examine {
        /// Directory whose disk is measured.
        place: Option<Vec<u8>>,
        /// Bytes to write.
        disk_bytes: u64,
    },
    /// Measures the connection to another node.
    ProbePeer {
        peer: CastPeer,
        /// Duration in milliseconds.
        milliseconds: u64,
    },
    /// Answered with [`NodeMessage::Pong`].
    Ping,
    /// Ends a row of [`kind::FILL`]. Answered with [`NodeMessage::Filled`].
    Fill,
    /// Names the node that gives the catalogue. Without success, the node answers with
    /// [`NodeMessage::CatalogueFailed`].
    FetchCatalogue {
        /// The giver.
        from: NodeId,
        /// Time for all parts.
        milliseconds: u64,
    },
    /// Ends a job, and removes copies that nothing else keeps. Answered with
    /// [`NodeMessage::JobEnded`] or [`NodeMessage::OrderFailed`].
    EndJob { job: String },
    /// Asks for names of jobs. Answered with [`NodeMessage::Jobs`] or [`NodeMessage::OrderFailed`].
    ListJobs {
        /// Begin of the names.
        prefix: String,
        /// The name behind which the list begins.
        after: String,
    },
    /// Asks for names in the outbox of a job. Answered with [`NodeMessage::Results`] or
    /// [`NodeMessage::OrderFailed`].
    ListOutbox {
        job: String,
        /// The name behind which the list begins.
        after: Vec<u8>,
    },
    /// Seals entries of an outbox. Answered with [`NodeMessage::Sealed`] or
    /// [`NodeMessage::OrderFailed`].
    Seal {
        job: String,
        /// At most [`SEALS_PER_MESSAGE`].
        moves: Vec<WireSeal>,
    },
    /// Asks for names of sealed results, as [`NodeOrder::ListOutbox`].
    ListSealed {
        job: String,
        /// Path of a directory of sealed results; empty for the top.
        below: Vec<u8>,
        /// The name behind which the list begins.
        after: Vec<u8>,
    },
    /// Starts an agent that reads the sealed results. Answered with [`NodeMessage::Relaying`] or
    /// [`NodeMessage::OrderFailed`]. Messages of [`kind::RELAY`] follow both ways, and
    /// [`NodeMessage::RelayEnded`] is the last.
    RelayOutbox { job: String },
    /// Removes sealed results. Answered with [`NodeMessage::Discarded`] or
    /// [`NodeMessage::OrderFailed`].
    DiscardSealed {
        job: String,
        /// At most [`SEALS_PER_MESSAGE`].
        paths: Vec<Vec<u8>>,
    },
}

/// Order to seal an entry, as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireSeal {
    /// Name at the top of the outbox.
    pub name: Vec<u8>,
    /// Path of the sealed result.
    pub path: Vec<u8>,
}

/// Outcome of a [`WireSeal`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SealAnswer {
    /// The entry is sealed.
    Sealed,
    /// The entry is neither in the outbox nor sealed.
    Missing,
    /// The entry stays, for this cause.
    Refused(String),
}

/// Outcome of the end of a job at a node. At most [`COPIES_PER_MESSAGE`] copies have a cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobEndMessage {
    pub copies: u64,
    pub bytes: u64,
    pub entries_kept: u64,
    pub kept: Vec<StayingCopyInfo>,
    pub staying: Vec<StayingCopyInfo>,
}

/// Outcome of a node that committed the set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FinishedCopy {
    pub root: SetHash,
    pub received_bytes: u64,
    pub owners_not_kept: u64,
    pub attributes_not_kept: u64,
    pub first_not_kept: Option<String>,
}

/// Report of a node to the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum NodeMessage {
    /// First message: the version of the node.
    Welcome { protocol: u32, version: String },
    /// The node lacks the catalogue. The coordinator sends it, or names a node that gives it.
    LacksCatalogue,
    /// The node waits for orders of the planner.
    Ready { holds: UnitSet, held_bytes: u64 },
    /// Units that arrived on a stream.
    Progress { stream: StreamId, verified: UnitSet },
    /// A stream failed.
    StreamFailed {
        stream: StreamId,
        cause: StreamCause,
        detail: String,
    },
    /// The node itself cannot go on.
    Failed { reason: String },
    /// The node committed the set.
    Finished(FinishedCopy),
    /// Answer to [`NodeOrder::Ping`].
    Pong,
    /// Bytes of [`kind::FILL`] since the last answer, and nanoseconds from the first to the last.
    Filled { bytes: u64, nanoseconds: u64 },
    /// Results of [`NodeOrder::Examine`].
    Examined(ExaminedNode),
    /// Result of [`NodeOrder::ProbePeer`].
    Probed {
        bytes_per_second: u64,
        round_trip_microseconds: u64,
        fault: Option<String>,
    },
    /// The node has the catalogue, and can give it to other nodes.
    HasCatalogue,
    /// The giver of the catalogue failed. The coordinator sends the parts, each range without its end.
    CatalogueFailed {
        parts: Vec<(u32, u32)>,
        detail: String,
    },
    /// The node is not ready yet, and its loop runs.
    Preparing,
    /// Answer to [`NodeOrder::EndJob`].
    JobEnded(JobEndMessage),
    /// Answer to [`NodeOrder::ListJobs`]: at most [`JOBS_PER_MESSAGE`] names, ascending. An empty list
    /// is the end.
    Jobs(Vec<String>),
    /// An order without a cast failed.
    OrderFailed {
        reason: String,
        /// Whether a later attempt may succeed.
        is_busy: bool,
    },
    /// Answer to [`NodeOrder::ListOutbox`] and [`NodeOrder::ListSealed`]: at most
    /// [`driftless_store::OUTBOX_PAGE_NAMES`] names, ascending. An empty list is the end.
    Results(Vec<Vec<u8>>),
    /// Answer to [`NodeOrder::Seal`]: an outcome for each entry.
    Sealed(Vec<SealAnswer>),
    /// Answer to [`NodeOrder::DiscardSealed`]: what keeps each result.
    Discarded(Vec<Option<String>>),
    /// The agent of a relay runs.
    Relaying,
    /// The agent of a relay has ended.
    RelayEnded {
        /// Exit code; `None` if a signal ended the agent.
        code: Option<i32>,
        /// Last words on its standard error.
        detail: String,
    },
}

/// Measurements that a node makes alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExaminedNode {
    pub disk_write_bytes_per_second: Option<u64>,
    pub free_bytes: Option<u64>,
    pub hash_bytes_per_second: u64,
    pub processors: u32,
    pub has_aes: bool,
    pub faults: Vec<String>,
}

/// Control message of a trunk, from the receiver to the feeder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TrunkMessage {
    /// Units that the receiver lacks. Further messages add further units.
    Want(UnitSet),
    /// The receiver has no such stream.
    Unknown,
}

/// Encodes a message.
pub(crate) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    // Fails for types without a known length alone, and no message has one.
    postcard::to_stdvec(message).unwrap_or_default()
}

/// Decodes a message. Returns the broken rule as error.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err("bytes behind a message".into()),
        Err(error) => Err(format!("an unreadable message ({error})")),
    }
}

/// Decodes a message of each kind as nodes and coordinators do, and encodes the result again. Returns
/// whether one of them took it. For the fuzz target.
#[doc(hidden)]
pub fn decode_any(message_kind: u8, bytes: &[u8]) -> bool {
    match message_kind {
        kind::OPENING => decode_again::<PeerOpening>(bytes),
        kind::ORDER => decode_again::<NodeOrder>(bytes),
        kind::NODE => decode_again::<NodeMessage>(bytes),
        kind::TRUNK => decode_again::<TrunkMessage>(bytes),
        kind::RELAY => bytes.len() <= RELAY_BYTES_MAX,
        kind::RELAY_END => bytes.is_empty(),
        _ => false,
    }
}

fn decode_again<T: DeserializeOwned + Serialize + PartialEq>(bytes: &[u8]) -> bool {
    let Ok(message) = decode::<T>(bytes) else {
        return false;
    };
    let again = decode::<T>(&encode(&message));
    assert!(again.is_ok_and(|again| again == message), "another message");
    true
}

/// Returns a text of a peer for people: escaped, and shortened to 1000 characters.
pub(crate) fn shown(text: &str) -> String {
    let short: String = text.chars().take(TEXT_CHARS_MAX).collect();
    driftless_model::escape_text(&short)
}

impl WirePlace {
    /// Returns the place for a message.
    pub fn of(place: &CastPlace) -> Self {
        match place {
            CastPlace::Directory(path) => {
                WirePlace::Directory(path.as_os_str().as_bytes().to_vec())
            }
            CastPlace::Cache => WirePlace::Cache,
        }
    }

    /// Returns the path of the directory, or `None` for the cache.
    ///
    /// # Errors
    /// The path is too long, has a zero byte, or is not absolute.
    pub fn directory(&self) -> Result<Option<PathBuf>, String> {
        let WirePlace::Directory(bytes) = self else {
            return Ok(None);
        };
        let path = PathBuf::from(OsString::from_vec(bytes.clone()));
        let is_path = bytes.len() < PATH_BYTES_MAX && !bytes.contains(&0) && path.is_absolute();
        is_path.then_some(Some(path)).ok_or_else(|| {
            let shown = driftless_model::escape(bytes.get(..80).unwrap_or(bytes));
            format!(
                "\"{shown}\": cannot place a data set: the path is not absolute; give one that is"
            )
        })
    }
}

impl CastBrief {
    /// Returns the limits of the copy.
    ///
    /// # Errors
    /// The name of the job is empty or too long, or a reader or an outbox has no job or no cached copy.
    pub fn content(&self) -> Result<ContentLimits, String> {
        if self.job.as_ref().is_some_and(|job| !is_job_name(job)) {
            return Err(
                "name of the job: it is empty, too long or has control characters; choose another one".into(),
            );
        }
        let is_closed = self.job.is_some() && self.place == WirePlace::Cache;
        if self.reader.is_some() && !is_closed {
            return Err(READER_ALONE.into());
        }
        // No user has this number (chown(2)).
        if self.reader == Some(u32::MAX) {
            return Err("user of the copy: no user has the number 4294967295".into());
        }
        let is_outbox_name = |job: &String| driftless_store::is_outbox_name(job);
        if self.has_outbox && !(is_closed && self.job.as_ref().is_some_and(is_outbox_name)) {
            return Err(OUTBOX_ALONE.into());
        }
        Ok(ContentLimits {
            job: self.job.clone(),
            reader: self.reader,
            has_outbox: self.has_outbox,
            is_pinned: self.is_pinned,
            seconds_max: self.seconds_max,
        })
    }
}

impl CastPeer {
    /// Returns the key.
    pub fn key(&self) -> PeerKey {
        PeerKey::from(self.key)
    }
}

/// Returns whether a text can be the begin of the name of a job.
pub(crate) fn is_job_prefix(prefix: &str) -> bool {
    prefix.is_empty() || is_job_name(prefix)
}

/// Returns whether a text can be the name of a job: not empty, shorter than a path, without control
/// characters.
pub fn is_job_name(name: &str) -> bool {
    !name.is_empty() && name.len() < PATH_BYTES_MAX && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_decoded_again() {
        let order = NodeOrder::Peers(vec![CastPeer {
            node: NodeId(7),
            key: [3; 32],
            addresses: vec!["127.0.0.1:9".parse().unwrap(), "[::1]:8".parse().unwrap()],
        }]);
        assert_eq!(decode(&encode(&order)), Ok(order));
        let message = NodeMessage::Ready {
            holds: UnitSet::range(4, 9),
            held_bytes: 5,
        };
        assert_eq!(decode(&encode(&message)), Ok(message));
    }

    #[test]
    fn malformed_messages_are_refused() {
        let whole = encode(&NodeMessage::Pong);
        assert!(decode::<NodeMessage>(&[whole.clone(), vec![0]].concat()).is_err());
        assert!(decode::<NodeMessage>(&[]).is_err());
        assert!(decode::<NodeOrder>(&[255; 40]).is_err());
        // A set whose ranges are not in order.
        let wrong = encode(&(4_u8, 1_u8, vec![(5_u64, 2_u64)]));
        assert!(decode::<NodeMessage>(&wrong).is_err());
    }

    #[test]
    fn readers_need_a_job_and_the_cache() {
        let brief = |job: Option<&str>, place: WirePlace, reader| CastBrief {
            cast: CastId([0; 16]),
            set: SetHash([0; 32]),
            place,
            job: job.map(str::to_owned),
            reader,
            has_outbox: false,
            is_pinned: false,
            seconds_max: None,
            bytes_per_second_max: None,
            connections: 1,
        };
        let directory = WirePlace::Directory(b"/a".to_vec());
        let content = |job, place, reader| brief(job, place, reader).content();
        assert!(content(Some("a"), WirePlace::Cache, Some(7)).is_ok());
        assert!(content(None, WirePlace::Cache, None).is_ok());
        assert!(content(None, WirePlace::Cache, Some(7)).is_err());
        assert!(content(Some("a"), directory, Some(7)).is_err());
        assert!(content(Some("a"), WirePlace::Cache, Some(u32::MAX)).is_err());
    }

    #[test]
    fn places_are_absolute_paths() {
        let of = |bytes: &[u8]| WirePlace::Directory(bytes.to_vec()).directory();
        assert_eq!(of(b"/a").unwrap(), Some(PathBuf::from("/a")));
        for wrong in [&b""[..], b"a", b"/a\0b", &[b'/'; 5000]] {
            assert!(of(wrong).is_err());
        }
    }
}
