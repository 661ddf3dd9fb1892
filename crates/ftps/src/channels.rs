//! Connections of one session: which ports the data connections use, that each has TLS, and how long
//! the client has been silent.
//!
//! libunftp 0.24 checks `PROT P` before `PASV` alone, and not before `EPSV`. It shows commands to its
//! logger and asks a binder for each port. So the binder here gives no port to a client that did not
//! choose `P`. The count of handshakes is a second check: a change of the log only refuses transfers.

use crate::commands::{CommandState, is_abort};
use crate::filter;
use crate::tls::Handshakes;
use async_trait::async_trait;
use driftless_lock::Mutex;
use libunftp::options::Binder;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;
use tokio::sync::watch;

/// Ports of one session that wait for a connection at the same time.
const WAITING_PORTS_MAX: usize = 4;
/// Time that a port of libunftp waits for its connection, and a second more.
const PORT_WAIT: Duration = Duration::from_secs(16);
/// Connections that wait for their acceptance.
const BACKLOG: i32 = 8;

/// State of the connections of a session.
#[derive(Debug)]
pub struct SessionChannels {
    commands: Mutex<CommandState>,
    handshakes: Arc<Handshakes>,
    began: Instant,
    /// Milliseconds from the begin until the last command or byte.
    active_ms: AtomicU64,
    /// Acts on the home that have begun and not ended.
    acts: AtomicUsize,
    is_over: AtomicBool,
    /// Whether the client sent `ABOR` since it got the last port.
    aborted: watch::Sender<bool>,
}

impl SessionChannels {
    /// Returns the state at the begin of a session.
    pub fn new(handshakes: Arc<Handshakes>) -> Self {
        SessionChannels {
            commands: Mutex::new(CommandState::new()),
            handshakes,
            began: Instant::now(),
            active_ms: AtomicU64::new(0),
            acts: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            aborted: watch::Sender::new(false),
        }
    }

    /// Notes that the client sent or took something.
    pub fn touch(&self) {
        let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.active_ms.store(since, Relaxed);
    }

    /// Returns the time since the client sent or took something, or an act on the home ended. While an
    /// act runs, such as the flush of a large file, the client only waits.
    pub fn idle(&self) -> Duration {
        if self.acts.load(Relaxed) > 0 {
            return Duration::ZERO;
        }
        let active = Duration::from_millis(self.active_ms.load(Relaxed));
        self.began.elapsed().saturating_sub(active)
    }

    /// Begins an act on the home. It ends with the value.
    pub fn begin_act(self: &Arc<Self>) -> RunningAct {
        self.acts.fetch_add(1, Relaxed);
        RunningAct(self.clone())
    }

    /// Begins a transfer at `end` for `APPE`, or at the position of a `REST` before it. Returns this
    /// position, or `None` if the data connection has no TLS of this client.
    pub fn begin_transfer(&self, end: u64) -> Option<u64> {
        self.touch();
        let mut commands = self.commands.lock();
        let start = commands.take_start(end);
        let has_tls = self.handshakes.take() && commands.is_port_private();
        has_tls.then_some(start)
    }

    /// Notes that the client changed to a directory.
    pub fn enter_dir(&self, path: &Path) {
        self.commands.lock().enter_dir(path);
    }

    /// Returns the absolute path of a client. Returns `None` if libunftp has another working directory
    /// than the client.
    pub fn absolute(&self, path: &Path) -> Option<PathBuf> {
        self.commands.lock().absolute(path)
    }

    /// Ends the session soon, because no act can succeed any more.
    pub fn give_up(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// Returns whether no act can succeed any more.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// Waits until the client aborts the transfer.
    pub async fn aborted(&self) {
        let mut aborted = self.aborted.subscribe();
        let _the_sender_lives = aborted.wait_for(|aborted| *aborted).await;
    }

    /// Returns whether the client aborted the transfer.
    pub fn is_aborted(&self) -> bool {
        *self.aborted.borrow()
    }

    fn note(&self, line: &str) {
        self.touch();
        if is_abort(line) {
            self.aborted.send_replace(true);
        }
        let mut commands = self.commands.lock();
        let was_wrong = commands.is_dir_wrong();
        commands.note(line);
        if commands.is_dir_wrong() && !was_wrong {
            tracing::warn!("ends a session: CDUP follows a CWD to \"..\"");
            self.give_up();
        }
    }
}

/// Act on the home that runs.
pub struct RunningAct(Arc<SessionChannels>);

impl Drop for RunningAct {
    fn drop(&mut self) {
        self.0.touch();
        self.0.acts.fetch_sub(1, Relaxed);
    }
}

/// Receiver of the log of libunftp. It prints nothing.
pub struct CommandWatch(pub Arc<SessionChannels>);

impl slog::Drain for CommandWatch {
    type Ok = ();
    type Err = slog::Never;

    fn log(&self, record: &slog::Record<'_>, _: &slog::OwnedKVList) -> Result<Self::Ok, Self::Err> {
        self.0.note(&record.msg().to_string());
        Ok(())
    }
}

/// Source of ports for data connections.
#[derive(Debug)]
pub struct PassivePorts {
    channels: Arc<SessionChannels>,
    /// Address of the client.
    client: IpAddr,
    /// Ports that may wait for a connection.
    given: Vec<(SocketAddr, Instant)>,
}

impl PassivePorts {
    /// Returns the source of ports of a session.
    pub fn new(channels: Arc<SessionChannels>, client: IpAddr) -> Self {
        PassivePorts {
            channels,
            client,
            given: Vec::new(),
        }
    }

    /// Listens on a socket for connections of the client. libunftp compares the address again.
    fn listening(&self, socket: TcpSocket) -> io::Result<TcpSocket> {
        if let Err(error) = filter::allow_only(self.client, &socket) {
            let cause = driftless_model::cause(&error);
            tracing::warn!("cannot keep strangers from a data port: {cause}");
        }
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(socket)
    }

    /// Returns whether the session may have one more port. Without a limit, one user could take all.
    fn has_room(&mut self) -> bool {
        self.given.retain(|(_, since)| since.elapsed() < PORT_WAIT);
        if self.given.len() >= WAITING_PORTS_MAX {
            self.given.retain(|(address, _)| bound(*address).is_err());
        }
        self.given.len() < WAITING_PORTS_MAX
    }
}

#[async_trait]
impl Binder for PassivePorts {
    async fn bind(&mut self, local: IpAddr, ports: RangeInclusive<u16>) -> io::Result<TcpSocket> {
        if !self.channels.commands.lock().allow_port() {
            tracing::warn!("refused a data connection without TLS; the client must send PROT P");
            return Err(ErrorKind::PermissionDenied.into());
        }
        if !self.has_room() {
            tracing::warn!(
                "refused a data connection: {WAITING_PORTS_MAX} ports of the session wait"
            );
            return Err(ErrorKind::QuotaExceeded.into());
        }
        // An abort is of the transfer before: libunftp reads no further command during a transfer.
        self.channels.aborted.send_replace(false);
        // Handshakes of earlier connections prove nothing about this one.
        self.channels.handshakes.clear();
        let count = u32::from(ports.end().saturating_sub(*ports.start())) + 1;
        let first = random_below(count);
        for step in 0..count {
            let offset = u16::try_from((first + step) % count).unwrap_or_default();
            let address = SocketAddr::new(local, ports.start() + offset);
            // libunftp listens only later, when another session may have taken the port.
            let free = bound(address).and_then(|socket| self.listening(socket));
            if let Ok(socket) = free {
                self.given.push((address, Instant::now()));
                return Ok(socket);
            }
        }
        tracing::warn!("all passive ports are in use; give more with --passive-ports");
        Err(ErrorKind::AddrInUse.into())
    }
}

/// Returns a socket with this address, which no other socket listens on.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Connections that ended a moment ago keep no port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Returns a random number, so that another client cannot know the next port.
fn random_below(count: u32) -> u32 {
    let mut bytes = [0; 4];
    let _zero_is_a_port_too =
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u32::from_ne_bytes(bytes) % count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private_channels() -> Arc<SessionChannels> {
        let channels = Arc::new(SessionChannels::new(Arc::default()));
        let watch = slog::Logger::root(CommandWatch(channels.clone()), slog::o!());
        let line = "Control channel event Command(Prot { param: Private })";
        slog::debug!(watch, "{}", line);
        channels
    }

    #[test]
    fn each_transfer_needs_a_handshake() {
        let channels = private_channels();
        assert!(channels.commands.lock().allow_port());
        assert_eq!(channels.begin_transfer(0), None);
    }

    #[tokio::test]
    async fn abort_lasts_until_the_next_port() {
        let channels = private_channels();
        let watch = slog::Logger::root(CommandWatch(channels.clone()), slog::o!());
        let waiting = tokio::spawn({
            let channels = channels.clone();
            async move { channels.aborted().await }
        });
        assert!(!channels.is_aborted());
        slog::debug!(watch, "Control channel event Command(Abor)");
        assert!(channels.is_aborted());
        waiting.await.unwrap();
        let local = IpAddr::from([127, 0, 0, 1]);
        let mut ports = PassivePorts::new(channels.clone(), local);
        drop(ports.bind(local, 49_152..=65_535).await.unwrap());
        assert!(!channels.is_aborted());
    }

    #[test]
    fn session_is_not_idle_during_an_act() {
        let channels = private_channels();
        let act = channels.begin_act();
        assert_eq!(channels.idle(), Duration::ZERO);
        drop(act);
        assert_eq!(channels.acts.load(Relaxed), 0);
    }

    #[tokio::test]
    async fn session_cannot_take_all_ports() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let mut ports = PassivePorts::new(private_channels(), local);
        let mut listeners = Vec::new();
        for _ in 0..WAITING_PORTS_MAX {
            let socket = ports.bind(local, 49_152..=65_535).await.unwrap();
            listeners.push(socket);
        }
        assert!(ports.bind(local, 49_152..=65_535).await.is_err());
        listeners.pop();
        assert!(ports.bind(local, 49_152..=65_535).await.is_ok());
    }
}
