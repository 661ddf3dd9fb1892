//! The node daemon: serves the casts of several coordinators, and questions of local users.

use crate::admin::{
    AdminReply, AdminRequest, SOCKET, info_of, purge_in, read_message, refusal_of, verify_in,
    write_message,
};
use crate::node::host::{CommandRule, NodeHost, PlaceRule, link_settings, open_store};
use crate::node::serve::NodeServer;
use crate::stream::start_thread;
use crate::{DaemonSettings, DaemonTrust, Error, PeerKey, PeerTrust, TlsIdentity};
use driftless_dataplane::{DataEndpoint, LinkListener};
use rustix::net::sockopt::socket_peercred;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// File of the daemon's key in its directory.
const IDENTITY: &str = "identity.pem";
/// File of the boot at which copies were verified last.
const BOOT: &str = "boot";
/// Number of the current boot (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Interval at which copies whose time is over are removed.
const EVICT_INTERVAL: Duration = Duration::from_secs(60);
/// Local users that are answered at the same time.
const ASKING_MAX: u32 = 8;
/// Longest wait for the question of a local user.
const QUESTION_MAX: Duration = Duration::from_secs(10);
/// Pause between two looks at the socket.
const TICK: Duration = Duration::from_millis(100);

/// A node daemon that listens.
pub struct NodeDaemon {
    host: Arc<NodeHost>,
    listener: LinkListener,
    socket: UnixListener,
    socket_path: PathBuf,
}

impl NodeDaemon {
    /// Opens the store, removes unfinished copies that no process needs, and listens for
    /// coordinators and on the Unix socket `node.sock` in the store's directory.
    ///
    /// # Errors
    /// Fails if the store or the key cannot be opened, no port is free, or another daemon serves
    /// this directory.
    pub fn start(settings: &DaemonSettings) -> Result<Self, Error> {
        let store = open_store(&settings.node.dir)?;
        let socket_path = settings.node.dir.join(SOCKET);
        let socket = bind(&socket_path)?;
        store.sweep()?;
        let (identity, trust, commanders) = credentials(settings)?;
        let transfer = link_settings(&settings.node.transfer);
        let endpoint = DataEndpoint::new(identity, trust, transfer)?;
        let listener = endpoint.listen(settings.node.listen, settings.node.ports)?;
        let rules = (commanders, PlaceRule::Below(settings.places.clone()));
        Ok(NodeDaemon {
            host: NodeHost::new(store, endpoint, settings.node.clone(), rules),
            listener,
            socket,
            socket_path,
        })
    }

    /// Returns the key that coordinators know this daemon by.
    pub fn key(&self) -> PeerKey {
        self.host.endpoint.key()
    }

    /// Returns the address and port for coordinators.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Serves until `stop` is set. Casts at work end then, and keep what they have received.
    ///
    /// Verifies the copies in the background if the host was started anew since the last time.
    ///
    /// # Errors
    /// Fails if the kernel refuses a thread.
    pub fn run(self, stop: &AtomicBool) -> Result<(), Error> {
        let local = LocalUsers {
            host: Arc::clone(&self.host),
            address: self.address(),
            asking: AtomicU32::new(0),
        };
        let local = Arc::new(local);
        std::thread::scope(|scope| {
            let thread = |name: &str| std::thread::Builder::new().name(name.into());
            thread("local users")
                .spawn_scoped(scope, || serve_local(&local, &self.socket, stop))
                .map_err(Error::Thread)?;
            thread("upkeep")
                .spawn_scoped(scope, || keep_up(&self.host, stop))
                .map_err(Error::Thread)?;
            NodeServer::new(&self.host).run(&self.listener, &|_| stop.load(Relaxed));
            Ok(())
        })
    }
}

#[allow(clippy::disallowed_methods, reason = "the socket of the daemon itself")]
impl Drop for NodeDaemon {
    fn drop(&mut self) {
        let _the_next_daemon_removes_it = fs::remove_file(&self.socket_path);
    }
}

/// Returns the key of the daemon, its trust, and its coordinators.
fn credentials(settings: &DaemonSettings) -> Result<(TlsIdentity, PeerTrust, CommandRule), Error> {
    Ok(match &settings.trust {
        DaemonTrust::Keys(keys) => (
            stored_identity(&settings.node.dir.join(IDENTITY))?,
            PeerTrust::keys(keys.iter().copied()),
            CommandRule::Keys(keys.clone()),
        ),
        DaemonTrust::Authority {
            authority_pem,
            identity,
            coordinators,
        } => (
            (**identity).clone(),
            PeerTrust::authority(authority_pem)?,
            CommandRule::Names(coordinators.clone()),
        ),
    })
}

fn own_file(path: &Path, act: &'static str) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |cause| Error::OwnFile {
        path: path.clone(),
        act,
        cause,
    }
}

/// Reads the key of a file, or makes a key and writes the file with mode 0600.
///
/// # Errors
/// The file cannot be read or written, or has no key.
#[allow(clippy::disallowed_methods, reason = "a file of the node itself")]
pub fn stored_identity(path: &Path) -> Result<TlsIdentity, Error> {
    match fs::read(path) {
        Ok(pem) => return Ok(TlsIdentity::from_pem(&pem)?),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(own_file(path, "read the key")(error)),
    }
    let identity = TlsIdentity::generate()?;
    let failed = own_file(path, "write the key");
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let _left_by_a_crash = fs::remove_file(&new);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .map_err(&failed)?;
    file.write_all(identity.to_pem().as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&new, path))
        .map_err(&failed)?;
    Ok(identity)
}

/// Binds the socket. A socket that no process listens on is replaced.
#[allow(clippy::disallowed_methods, reason = "the socket of the daemon itself")]
fn bind(path: &Path) -> Result<UnixListener, Error> {
    if UnixStream::connect(path).is_ok() {
        return Err(Error::Taken(path.to_owned()));
    }
    let _it_may_be_missing = fs::remove_file(path);
    let failed = own_file(path, "listen");
    let socket = UnixListener::bind(path).map_err(&failed)?;
    socket.set_nonblocking(true).map_err(&failed)?;
    Ok(socket)
}

/// State that the threads for local users share.
struct LocalUsers {
    host: Arc<NodeHost>,
    address: SocketAddr,
    asking: AtomicU32,
}

fn serve_local(local: &Arc<LocalUsers>, socket: &UnixListener, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        match socket.accept() {
            Ok((stream, _)) if local.asking.load(Relaxed) < ASKING_MAX => {
                local.asking.fetch_add(1, Relaxed);
                let serving = Arc::clone(local);
                let started = start_thread("local user", move || {
                    serving.answer(stream);
                    serving.asking.fetch_sub(1, Relaxed);
                });
                if started.is_err() {
                    local.asking.fetch_sub(1, Relaxed);
                }
            }
            // Too many at a time: the connection closes.
            Ok(_) => {}
            Err(_) => std::thread::sleep(TICK),
        }
    }
}

impl LocalUsers {
    fn answer(&self, mut stream: UnixStream) {
        if !is_allowed(&stream) || stream.set_nonblocking(false).is_err() {
            return;
        }
        let limited = stream.set_read_timeout(Some(QUESTION_MAX));
        let Ok(request) = limited.and_then(|()| read_message::<AdminRequest>(&mut stream)) else {
            return;
        };
        let reply = self.reply(request);
        let reply = reply.unwrap_or_else(|refusal| refusal);
        let _the_user_may_be_gone = write_message(&mut stream, &reply);
    }

    /// Returns the answer, or the refusal as error.
    fn reply(&self, request: AdminRequest) -> Result<AdminReply, AdminReply> {
        let (host, store) = (&self.host, &self.host.store);
        Ok(match request {
            AdminRequest::Info => {
                let mut info = info_of(store).map_err(refusal_of)?;
                info.has_daemon = true;
                info.key = Some(host.endpoint.key().to_string());
                info.address = Some(self.address.to_string());
                info.casts = host.casts_at_work();
                info.cache_bytes_max = host.settings.cache_bytes_max;
                AdminReply::Info(info)
            }
            AdminRequest::Purge(what) => AdminReply::Purged(purge_in(store, &what)?),
            AdminRequest::Verify(copy) => {
                let mut pace = |_| !host.is_stopped();
                let found = verify_in(store, copy, &mut pace).map_err(refusal_of)?;
                AdminReply::Verified(found)
            }
        })
    }
}

/// Whether the peer of a socket is root or the user of this process (unix(7), `SO_PEERCRED`).
fn is_allowed(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == own)
}

/// Verifies copies after a reboot, and removes those whose time is over.
fn keep_up(host: &NodeHost, stop: &AtomicBool) {
    verify_after_reboot(host, stop);
    let mut evicted: Option<Instant> = None;
    while !stop.load(Relaxed) {
        if evicted.is_none_or(|at| at.elapsed() >= EVICT_INTERVAL) {
            evicted = Some(Instant::now());
            if let Err(error) = host.store.evict(None, host.settings.cache_bytes_max) {
                tracing::warn!("{error}");
            }
        }
        std::thread::sleep(TICK);
    }
}

/// Writes a file of the daemon, with mode 0600: the daemon has given up its umask.
#[allow(clippy::disallowed_methods, reason = "a file of the node itself")]
fn write_own(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)
}

/// Hashes each copy again if the host was started anew: content that a crash damaged is not served.
#[allow(
    clippy::disallowed_methods,
    reason = "files of the node itself and of proc(5)"
)]
fn verify_after_reboot(host: &NodeHost, stop: &AtomicBool) {
    let file = host.settings.dir.join(BOOT);
    let boot = fs::read(BOOT_ID).unwrap_or_default();
    if !boot.is_empty() && fs::read(&file).is_ok_and(|known| known == boot) {
        return;
    }
    match verify_in(&host.store, None, &mut |_| !stop.load(Relaxed)) {
        Ok(found) => {
            for copy in found.iter().filter(|copy| !copy.is_sound) {
                match &copy.fault {
                    Some(fault) => tracing::warn!("not checked: {fault}"),
                    None => {
                        let (copy, set) = (copy.copy, &copy.set);
                        tracing::warn!("copy {copy} of {set} is damaged; cast it again");
                    }
                }
            }
            let _verified_again_at_the_next_start = write_own(&file, &boot);
        }
        Err(error) => tracing::warn!("{error}"),
    }
}
