//! A socket that listens, and the handshakes of those who connect to it.
//!
//! Each handshake has a thread, a time limit and a place in the table of pending peers. The caller
//! receives connections after both ends are authenticated.

use crate::context::EndpointShared;
use crate::gather::BundleGathering;
use crate::handshake::{Handshake, OpenWire};
use crate::opening::LinkOpening;
use crate::pending::PendingPeers;
use crate::sockets::{canonical, listen_on, prepare};
use crate::{DataLink, Error, LinkBundle, PortRange};
use crossbeam_channel::{Receiver, Sender, bounded};
use driftless_lock::Mutex;
use driftless_model::cause;
use rustix::net::{Shutdown, shutdown};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Authenticated connections that wait for the caller. Further ones are refused.
const ARRIVED_MAX: usize = 256;
/// Stack of a thread of a handshake in bytes.
const STACK_BYTES: usize = 512 << 10;
/// Pause after the kernel had no descriptor or memory for a connection.
const PAUSE: Duration = Duration::from_millis(50);

/// Connection or bundle of a peer that has connected.
pub enum ArrivedLink {
    /// A connection that stands alone.
    Link(DataLink),
    /// A bundle with all its connections.
    Bundle(LinkBundle),
}

/// Connections that a listener refused.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RefusedPeers {
    /// Number of them.
    pub count: u64,
    /// Address and cause of the last one.
    pub last: Option<(SocketAddr, String)>,
}

/// State that the listener shares with its threads.
struct ListenerShared {
    endpoint: Arc<EndpointShared>,
    socket: TcpListener,
    pending: PendingPeers,
    gathering: Mutex<BundleGathering>,
    refused: Mutex<RefusedPeers>,
    arrived: Sender<ArrivedLink>,
    is_closed: AtomicBool,
}

/// Listening socket of an endpoint. Dropping it closes the socket and keeps its connections.
pub struct LinkListener {
    shared: Arc<ListenerShared>,
    arrived: Receiver<ArrivedLink>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl LinkListener {
    pub(crate) fn start(
        endpoint: Arc<EndpointShared>,
        address: IpAddr,
        ports: PortRange,
    ) -> Result<Self, Error> {
        let refused = |error: std::io::Error| Error::Listen {
            address,
            ports,
            cause: match error.kind() {
                ErrorKind::AddrInUse => {
                    "the port is in use; stop its program, or choose another with --ports".into()
                }
                _ => format!("{}; check --listen and --ports", cause(&error)),
            },
        };
        let socket = listen_on(address, ports, &endpoint.settings).map_err(refused)?;
        let address = socket.local_addr().map_err(refused)?;
        let (sender, arrived) = bounded(ARRIVED_MAX);
        let shared = Arc::new(ListenerShared {
            pending: PendingPeers::new(endpoint.settings.handshakes_max),
            gathering: Mutex::new(BundleGathering::new(endpoint.settings.handshake_max)),
            refused: Mutex::default(),
            arrived: sender,
            is_closed: AtomicBool::new(false),
            endpoint,
            socket,
        });
        let accepting = Arc::clone(&shared);
        let thread = spawn("accept", move || accepting.run())?;
        Ok(LinkListener {
            shared,
            arrived,
            address,
            thread: Some(thread),
        })
    }

    /// Returns the address and the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next authenticated peer. Returns `None` at the end of `limit`.
    pub fn accept(&self, limit: Duration) -> Option<ArrivedLink> {
        self.arrived.recv_timeout(limit).ok()
    }

    /// Returns the number of refused connections, and the last cause.
    pub fn refused(&self) -> RefusedPeers {
        self.shared.refused.lock().clone()
    }
}

impl Drop for LinkListener {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Relaxed);
        // Wakes accept(2), which fails with EINVAL then.
        let _not_connected = shutdown(&self.shared.socket, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _panic_was_printed = thread.join();
        }
        self.shared.pending.end_all();
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let builder = thread::Builder::new().name(name.into());
    let spawned = builder.stack_size(STACK_BYTES).spawn(run);
    spawned.map_err(|error| Error::Resource {
        object: "thread of a listener",
        cause: cause(&error),
    })
}

impl ListenerShared {
    fn run(self: Arc<Self>) {
        while !self.is_closed.load(Relaxed) {
            match self.socket.accept() {
                Ok((stream, address)) => Arc::clone(&self).begin(stream, address),
                Err(_) if self.is_closed.load(Relaxed) => return,
                // A connection that ended early, or a lack of descriptors (accept(2)).
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    /// Starts the thread of a handshake.
    fn begin(self: Arc<Self>, stream: TcpStream, address: SocketAddr) {
        let address = canonical(address);
        let admitted = prepare(&stream).and_then(|()| stream.try_clone());
        let shared = Arc::clone(&self);
        let run = move |number| {
            let result = shared.handshake(stream);
            let kept_its_place = shared.pending.remove(number);
            match result {
                _ if !kept_its_place => {
                    shared.refuse(address, "too many connections at a time".into());
                }
                Ok((open, opening)) => shared.hand_over(open, opening),
                Err(cause) => shared.refuse(address, cause),
            }
        };
        let started = admitted.map_err(|error| cause(&error)).and_then(|socket| {
            let number = self.pending.add(socket);
            let spawned = spawn("handshake", move || run(number));
            spawned.map(drop).map_err(|error| {
                self.pending.remove(number);
                error.to_string()
            })
        });
        if let Err(cause) = started {
            self.refuse(address, cause);
        }
    }

    fn handshake(&self, stream: TcpStream) -> Result<(OpenWire, LinkOpening), String> {
        let session = self
            .endpoint
            .tls
            .acceptor()
            .map_err(|error| error.to_string())?;
        let handshake = Handshake::new(stream, session, self.endpoint.settings.handshake_max);
        handshake.accept(self.endpoint.tls.trust())
    }

    fn hand_over(&self, open: OpenWire, opening: LinkOpening) {
        let address = open.peer.address;
        let link = self.endpoint.link(open);
        let arrived = if opening.is_alone() {
            Some(ArrivedLink::Link(link))
        } else {
            let complete = self.gathering.lock().add(link, opening);
            complete
                .and_then(|links| LinkBundle::new(links).ok())
                .map(ArrivedLink::Bundle)
        };
        let is_full = arrived.is_some_and(|arrived| self.arrived.try_send(arrived).is_err());
        if is_full {
            self.refuse(address, "more connections than the caller takes".into());
        }
    }

    fn refuse(&self, address: SocketAddr, cause: String) {
        let mut refused = self.refused.lock();
        refused.count = refused.count.saturating_add(1);
        refused.last = Some((address, cause));
    }
}
