//! Session: a process that serves one client, from the first reply to the end of its connection.
//!
//! The connection is the standard input of the process, and the socket to the server is its standard
//! output. libunftp sets no limit for a line of a client that has not logged in, so the kernel limits
//! the memory of the process.

use crate::channels::{CommandWatch, PassivePorts, SessionChannels};
use crate::login::{DepositUser, LoginChecks, PasswordCheck, ServerLine, SessionLogin};
use crate::storage::DepositStorage;
use crate::{Error, FtpsSettings, memory, tls};
use driftless_model::cause;
use libunftp::ServerBuilder;
use libunftp::options::{ActivePassiveMode, FtpsRequired, PassiveHost, SiteMd5};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::watch;

/// First reply.
const GREETING: &str = "Driftless deposits; log in with TLS (AUTH TLS)";
/// Time between two looks at the end of the server and of the idle time.
const LOOK: Duration = Duration::from_millis(100);
/// Time that transfers of an ended session get to keep what has arrived.
const PARTING: Duration = Duration::from_secs(5);
/// Threads that wait for a home or for PAM.
const THREADS_MAX: usize = 8;
/// Exit code of a session that failed in the middle.
const FAILED_CODE: i32 = 1;

/// Serves the client at the other end of the standard input, until its connection or the server ends.
/// A set `stop` ends the session, too.
///
/// # Errors
/// A file of the administrator cannot be used, or a call failed.
pub fn run_session(
    settings: FtpsSettings,
    password: Option<Arc<dyn PasswordCheck>>,
    stop: &AtomicBool,
) -> Result<(), Error> {
    protect_server();
    memory::limit_for_strangers();
    let stream = TcpStream::from(duplicate(io::stdin())?);
    let server = UnixStream::from(duplicate(io::stdout())?);
    let client = stream.peer_addr().map_err(Error::system("the client"))?;
    end_on_panic(client.to_string());
    rustix::net::sockopt::set_socket_keepalive(&stream, true)
        .map_err(|errno| Error::system("the connection")(errno.into()))?;
    stream
        .set_nonblocking(true)
        .map_err(Error::system("the connection"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(THREADS_MAX)
        .build()
        .map_err(Error::system("the runtime of a session"))?;
    let session = ClientSession {
        client: client.ip(),
        settings,
        password,
    };
    let ended = runtime.block_on(session.serve(stream, server, stop));
    runtime.shutdown_timeout(PARTING);
    ended
}

/// Returns an own handle of a standard stream.
fn duplicate(stream: impl AsFd) -> Result<OwnedFd, Error> {
    let handle = stream.as_fd().try_clone_to_owned();
    handle.map_err(Error::system("a standard stream"))
}

/// A panic of libunftp, for example in a handshake that fails, ends the session and nothing else.
fn end_on_panic(client: String) {
    std::panic::set_hook(Box::new(move |panic| {
        tracing::warn!("{client}: session broke off: {panic}");
        std::process::exit(FAILED_CODE);
    }));
}

/// Has the kernel write no dump of this process, which has passwords and the key of the server, and
/// end it before the server if memory is short.
#[allow(
    clippy::disallowed_methods,
    reason = "a file of the kernel, no part of a tree of a user"
)]
fn protect_server() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    let _a_kernel_without_it_has_no_score = std::fs::write("/proc/self/oom_score_adj", "500");
    if let Err(errno) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!("cannot forbid dumps of a session: {errno}");
    }
}

struct ClientSession {
    client: IpAddr,
    settings: FtpsSettings,
    password: Option<Arc<dyn PasswordCheck>>,
}

impl ClientSession {
    async fn serve(
        self,
        stream: TcpStream,
        server: UnixStream,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        let idle_max = self.settings.idle_max;
        let (config, handshakes) = tls::server_config(&self.settings)?;
        let channels = Arc::new(SessionChannels::new(handshakes.clone()));
        let (stopping, stopped) = watch::channel(false);
        let transfers = Arc::new(AtomicUsize::new(0));
        let storage = DepositStorage {
            channels: channels.clone(),
            idle_max,
            stop: stopped,
            transfers: transfers.clone(),
            client: self.client.to_canonical().to_string(),
        };
        let ending = server.try_clone().map_err(Error::system("the server"))?;
        let ftp = self.ftp(storage, config, (server, handshakes))?;
        let stream = tokio::net::TcpStream::from_std(stream);
        let stream = stream.map_err(Error::system("the connection"))?;
        tokio::select! {
            _ = ftp.service(stream) => {}
            () = until_end(&channels, idle_max, &ending, stop) => {}
        }
        // A client may close the control connection before the last byte of an upload is read.
        let is_over = || transfers.load(Relaxed) == 0;
        tokio::select! {
            () = until(is_over) => {}
            () = until_end(&channels, idle_max, &ending, stop) => {}
        }
        let _no_transfer_listens = stopping.send(true);
        let _they_are_cut_off = tokio::time::timeout(PARTING, until(is_over)).await;
        Ok(())
    }

    fn ftp(
        self,
        storage: DepositStorage,
        config: Arc<rustls::ServerConfig>,
        (server, handshakes): (UnixStream, Arc<tls::Handshakes>),
    ) -> Result<libunftp::Server<DepositStorage, DepositUser>, Error> {
        let (settings, client) = (self.settings.clone(), self.client);
        let channels = storage.channels.clone();
        let server = ServerLine::new(server).map_err(Error::system("the server"))?;
        let login = Arc::new(SessionLogin(Arc::new(LoginChecks {
            settings: self.settings,
            password: self.password,
            server,
            handshakes,
            channels: channels.clone(),
            tries: AtomicUsize::new(0),
        })));
        let host = settings
            .passive_address
            .map_or(PassiveHost::FromConnection, PassiveHost::Ip);
        let make = Box::new(move || storage.clone());
        ServerBuilder::<DepositStorage, DepositUser>::with_user_detail_provider(make, login.clone())
            .authenticator(login)
            .greeting(GREETING)
            .ftps_manual::<std::path::PathBuf>(config)
            .ftps_required(FtpsRequired::All, FtpsRequired::All)
            .active_passive_mode(ActivePassiveMode::PassiveOnly)
            .passive_ports(settings.passive_ports)
            .passive_host(host)
            .idle_session_timeout(settings.idle_max.as_secs().max(1))
            .sitemd5(SiteMd5::None)
            .logger(slog::Logger::root(
                CommandWatch(channels.clone()),
                slog::o!(),
            ))
            .binder(PassivePorts::new(channels, client))
            .build()
            .map_err(|error| Error::Tls(error.to_string()))
    }
}

/// Waits until a condition holds.
async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until the server or this process ends, no act can succeed any more, or the client is idle for
/// longer than libunftp allows: it waits for a handshake without a limit.
async fn until_end(
    channels: &SessionChannels,
    idle_max: Duration,
    server: &UnixStream,
    stop: &AtomicBool,
) {
    until(|| {
        let is_idle = channels.idle() > idle_max + PARTING;
        stop.load(Relaxed) || is_idle || channels.is_over() || is_closed(server)
    })
    .await;
}

/// Returns whether the server closed its end of the socket.
fn is_closed(server: &UnixStream) -> bool {
    use rustix::net::{RecvFlags, recv};
    let mut byte = [0];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(server, &mut byte[..], flags) {
        Ok((_, count)) => count == 0,
        Err(errno) => {
            let error = io::Error::from(errno);
            if error.kind() == ErrorKind::WouldBlock {
                return false;
            }
            tracing::warn!("the server: {}", cause(&error));
            true
        }
    }
}
