//! A process that serves casts: its store, its endpoint, its rules, and the keys that it trusts.

use crate::message::{CastId, MESSAGE_BYTES_MAX};
use crate::node::inputs::CastTrunk;
use crate::node::log::RefusalLog;
use crate::settings::{NodeSettings, TransferSettings};
use crate::{Error, PeerKey};
use crossbeam_channel::Sender;
use driftless_dataplane::{DataEndpoint, LinkHandle, LinkPeer, LinkSettings};
use driftless_lock::Mutex;
use driftless_pool::Pace;
use driftless_store::{Catalogue, Error as StoreError, NodeStore, Placing, SetHash};
use rustix::fs::{Mode, OFlags};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Relays that are at work at the same time, each with an agent.
const RELAYS_MAX: u32 = 64;
/// Longest attempt to connect.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// Peers that may command a node.
#[derive(Clone)]
pub(crate) enum CommandRule {
    /// Owners of these keys.
    Keys(Vec<PeerKey>),
    /// Owners of certificates with one of these names.
    Names(Vec<String>),
}

/// Directories that a coordinator may name.
#[derive(Clone)]
pub(crate) enum PlaceRule {
    /// Any that the user of the process can write.
    Any,
    /// These, and those below.
    Below(Vec<PathBuf>),
}

/// Process that serves casts.
pub(crate) struct NodeHost {
    pub store: NodeStore,
    pub endpoint: DataEndpoint,
    pub settings: NodeSettings,
    commanders: CommandRule,
    places: PlaceRule,
    casts: Mutex<HashMap<CastId, CastEntry>>,
    /// Casts that trust a key.
    peers: Mutex<HashMap<PeerKey, u32>>,
    /// Hosts whose connections were refused.
    pub refusals: RefusalLog,
    is_stopped: AtomicBool,
    served: AtomicU32,
    relays: AtomicU32,
}

/// A relay at work, until the value is dropped.
pub(crate) struct RelayPlace<'a>(&'a AtomicU32);

impl Drop for RelayPlace<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A cast at work.
struct CastEntry {
    inbox: Sender<CastTrunk>,
    commander: CastCommander,
    /// The catalogue for other nodes, once it is complete.
    catalogue: Option<OfferedCatalogue>,
    /// Connections of nodes that get the catalogue.
    gives: Vec<LinkHandle>,
}

/// Connection of the coordinator of a cast.
#[derive(Clone)]
pub(crate) struct CastCommander {
    pub key: PeerKey,
    pub handles: Vec<LinkHandle>,
}

/// A catalogue for other nodes of its cast.
#[derive(Clone)]
pub(crate) struct OfferedCatalogue {
    pub catalogue: Arc<Catalogue>,
    pub pace: Option<Arc<Pace>>,
}

/// Returns the time since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// Returns the settings of connections.
pub(crate) fn link_settings(transfer: &TransferSettings) -> LinkSettings {
    LinkSettings {
        message_bytes_max: MESSAGE_BYTES_MAX,
        heartbeat: transfer.heartbeat,
        silence_max: transfer.silence_max,
        connect_max: CONNECT_MAX,
        cipher: transfer.cipher,
        ..LinkSettings::default()
    }
}

impl NodeHost {
    /// Returns a host whose store is open.
    pub fn new(
        store: NodeStore,
        endpoint: DataEndpoint,
        settings: NodeSettings,
        (commanders, places): (CommandRule, PlaceRule),
    ) -> Arc<Self> {
        Arc::new(NodeHost {
            store,
            endpoint,
            settings,
            commanders,
            places,
            casts: Mutex::new(HashMap::new()),
            peers: Mutex::new(HashMap::new()),
            refusals: RefusalLog::default(),
            is_stopped: AtomicBool::new(false),
            served: AtomicU32::new(0),
            relays: AtomicU32::new(0),
        })
    }

    /// Whether the process is to end.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }

    /// Returns the number of casts and examinations at work.
    pub fn casts_at_work(&self) -> u32 {
        self.served.load(Relaxed)
    }

    /// Counts casts and examinations that begin or end.
    pub fn count_served(&self, change: i32) {
        self.served.fetch_add(change.cast_unsigned(), Relaxed);
    }

    /// Counts a relay that begins. Returns `None` if too many are at work.
    pub fn begin_relay(&self) -> Option<RelayPlace<'_>> {
        let place = RelayPlace(&self.relays);
        (self.relays.fetch_add(1, Relaxed) < RELAYS_MAX).then_some(place)
    }

    /// Ends the casts at work, and the process with them.
    pub fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
    }

    /// Notes a cast that begins. Returns `false` if it is at work already.
    pub fn begin_cast(
        &self,
        cast: CastId,
        inbox: Sender<CastTrunk>,
        commander: CastCommander,
    ) -> bool {
        match self.casts.lock().entry(cast) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(CastEntry {
                    inbox,
                    commander,
                    catalogue: None,
                    gives: Vec::new(),
                });
                true
            }
        }
    }

    /// Whether the coordinator with this key has a cast at work over a connection that is open.
    pub fn commands(&self, cast: CastId, key: PeerKey) -> bool {
        self.casts.lock().get(&cast).is_some_and(|entry| {
            let commander = &entry.commander;
            commander.key == key && !commander.handles.iter().any(LinkHandle::has_failed)
        })
    }

    /// Forgets a cast.
    pub fn end_cast(&self, cast: CastId) {
        let ended = self.casts.lock().remove(&cast);
        for give in ended.into_iter().flat_map(|entry| entry.gives) {
            give.abort("the cast is over");
        }
    }

    /// Offers the catalogue of a cast to its other nodes.
    pub fn offer(&self, cast: CastId, catalogue: OfferedCatalogue) {
        if let Some(entry) = self.casts.lock().get_mut(&cast) {
            entry.catalogue = Some(catalogue);
        }
    }

    /// Returns the catalogue of a cast for a peer. The connection of the peer ends with the cast.
    pub fn offered(
        &self,
        cast: CastId,
        set: SetHash,
        peer: &[LinkHandle],
    ) -> Option<OfferedCatalogue> {
        let mut casts = self.casts.lock();
        let entry = casts.get_mut(&cast)?;
        let offered = entry.catalogue.clone()?;
        if offered.catalogue.hash() != set {
            return None;
        }
        entry.gives.retain(|give| !give.has_failed());
        entry.gives.extend_from_slice(peer);
        Some(offered)
    }

    /// Returns the way for feeders to a cast, or `None` if the cast is unknown.
    pub fn inbox(&self, cast: CastId) -> Option<Sender<CastTrunk>> {
        self.casts
            .lock()
            .get(&cast)
            .map(|entry| entry.inbox.clone())
    }

    /// Returns the placing in a directory that a coordinator names. The store checks the directory itself,
    /// because a name in the path can be a symbolic link.
    ///
    /// # Errors
    /// The configuration of the node does not allow the path.
    pub fn placing(&self, path: PathBuf) -> Result<Placing, String> {
        let PlaceRule::Below(allowed) = &self.places else {
            return Ok(Placing::Directory(path));
        };
        let is_plain = path.components().all(|part| part != Component::ParentDir);
        if is_plain && allowed.iter().any(|root| path.starts_with(root)) {
            return Ok(Placing::Below(path, allowed.clone()));
        }
        Err(StoreError::Disallowed { path }.to_string())
    }

    /// Opens a directory that a coordinator names, for measurements. Returns a path that leads to this
    /// directory while the descriptor is open (proc(5), `/proc/PID/fd`).
    ///
    /// # Errors
    /// The directory cannot be opened, or the configuration of the node does not allow it.
    pub fn open_measured(&self, path: PathBuf) -> Result<(OwnedFd, PathBuf), String> {
        let refused = StoreError::Disallowed { path: path.clone() };
        let placing = self.placing(path.clone())?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::empty());
        let opened = opened.map_err(|errno| {
            let (path, cause) = (driftless_model::quote(&path), errno.into());
            let cause = driftless_model::cause(&cause);
            format!("{path}: cannot measure the disk: {cause}; check path and owner")
        })?;
        let held = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
        if let Placing::Below(_, allowed) = placing {
            let checked = self.store.check_target(&held, &allowed);
            checked.map_err(|_| refused.to_string())?;
        }
        Ok((opened, held))
    }

    /// Trusts the key of a peer of a cast.
    pub fn trust_peer(&self, key: PeerKey) {
        let CommandRule::Keys(_) = self.commanders else {
            // The authority vouches for every node, and a revocation stays.
            return;
        };
        let mut peers = self.peers.lock();
        let count = peers.entry(key).or_default();
        *count = count.saturating_add(1);
        self.endpoint.trust().trust(key);
    }

    /// Ends the trust in keys of a cast that no other cast trusts.
    pub fn forget_peers(&self, keys: impl IntoIterator<Item = PeerKey>) {
        let CommandRule::Keys(commanders) = &self.commanders else {
            return;
        };
        let mut peers = self.peers.lock();
        for key in keys {
            let Some(count) = peers.get_mut(&key) else {
                continue;
            };
            *count = count.saturating_sub(1);
            if *count == 0 {
                peers.remove(&key);
                if !commanders.contains(&key) {
                    self.endpoint.trust().revoke(key);
                }
            }
        }
    }

    /// Returns the cause for which a peer may not command this node.
    pub fn command_refusal(&self) -> &'static str {
        match &self.commanders {
            CommandRule::Keys(_) => "its key is not among the trusted keys (--trust)",
            CommandRule::Names(_) => "its certificate has no name of --coordinator",
        }
    }

    /// Whether a peer may command this node.
    pub fn may_command(&self, peer: &LinkPeer) -> bool {
        match &self.commanders {
            CommandRule::Keys(keys) => keys.contains(&peer.key),
            CommandRule::Names(names) => names.iter().any(|name| peer.is_named(name)),
        }
    }
}

/// Opens the store of a node.
///
/// # Errors
/// The directory is unusable or of another user.
pub(crate) fn open_store(dir: &Path) -> Result<NodeStore, Error> {
    Ok(NodeStore::open(dir, Arc::new(now))?)
}
