//! The server: accepts connections, starts a process for each, and answers what the sessions ask.
//!
//! The server reads nothing of a client.

use crate::message::{ServerAnswer, SessionQuestion, receive, send};
use crate::policy::LoginPolicy;
use crate::refusals::RefusedConnections;
use crate::{Error, FtpsSettings, ServerProcess, tls, users};
use driftless_lock::Mutex;
use driftless_model::cause;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::collections::BTreeMap;
use std::io::{self, BufReader, ErrorKind, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Time for a login. A client that takes longer is disconnected.
const LOGIN_MAX: Duration = Duration::from_secs(90);
/// Time between two looks at the signal that ends the server.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
/// Time that sessions get to end.
const PARTING: Duration = Duration::from_secs(12);
/// Time between two looks at a process that ends.
const WAIT: Duration = Duration::from_millis(50);
/// Logins that one session may try. Then it ends, so that a client cannot fill the log.
const ATTEMPTS_MAX: u32 = 6;
/// Connections that wait for their acceptance.
const BACKLOG: i32 = 128;
/// Reply to a connection that gets no session.
const BUSY: &[u8] = b"421 Too many connections; try again later\r\n";

/// FTPS server.
pub struct FtpsServer {
    listeners: Vec<TcpListener>,
    process: ServerProcess,
    policy: Mutex<LoginPolicy>,
    refusals: Mutex<RefusedConnections>,
    /// Sockets of the sessions. A session ends when its socket is shut down.
    sockets: Mutex<BTreeMap<u64, UnixStream>>,
}

impl FtpsServer {
    /// Checks the files of the administrator, and listens.
    ///
    /// # Errors
    /// A file cannot be used, or the address is in use.
    pub fn start(settings: &FtpsSettings, process: ServerProcess) -> Result<Self, Error> {
        tls::server_config(settings)?;
        if let Some(keys) = &settings.client_keys {
            users::ClientUsers::read(&keys.users)?;
        }
        let listen = |address: &SocketAddr| {
            let address = *address;
            listen(address).map_err(|cause| Error::Listen { address, cause })
        };
        Ok(FtpsServer {
            listeners: settings
                .listen
                .iter()
                .map(listen)
                .collect::<Result<_, _>>()?,
            process,
            policy: Mutex::new(LoginPolicy::new(settings.limits)),
            refusals: Mutex::default(),
            sockets: Mutex::default(),
        })
    }

    /// Returns the addresses of the control connections.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let all = self.listeners.iter();
        all.map(TcpListener::local_addr).collect()
    }

    /// Serves until `stop` is set. Then it ends its sessions: uploads that run break off.
    pub fn run(self, stop: &AtomicBool) {
        let server = Arc::new(self);
        while !stop.load(Relaxed) {
            let polled = server.listeners.iter();
            let mut ready: Vec<PollFd<'_>> = polled
                .map(|listener| PollFd::new(listener, PollFlags::IN))
                .collect();
            if !matches!(poll(&mut ready, Some(&LOOK)), Ok(1..)) {
                continue;
            }
            for listener in &server.listeners {
                server.accept(listener);
            }
        }
        server.end();
    }

    /// Accepts a connection, if one waits.
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        match listener.accept() {
            Ok((stream, client)) => self.clone().admit(stream, client.ip()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::error!("cannot accept a connection: {}", cause(&error));
                thread::sleep(WAIT);
            }
        }
    }

    /// Ends all sessions.
    fn end(&self) {
        let begin = Instant::now();
        while !self.sockets.lock().is_empty() && begin.elapsed() < PARTING {
            for socket in self.sockets.lock().values() {
                let _it_ended_by_itself = socket.shutdown(Shutdown::Both);
            }
            thread::sleep(WAIT);
        }
    }

    /// Begins a session for a connection, if there may be one more.
    fn admit(self: Arc<Self>, stream: TcpStream, client: IpAddr) {
        let begun = self.policy.lock().begin(client);
        let session = match begun {
            Ok(session) => session,
            Err(why) => {
                let count = self.refusals.lock().note(client, Instant::now());
                if let Some(count) = count {
                    let client = client.to_canonical();
                    tracing::warn!("{client}: {count} connections refused: {why}");
                }
                let _the_client_may_be_gone = (&stream).write_all(BUSY);
                return;
            }
        };
        let server = self.clone();
        let serve = move || {
            if let Err(error) = server.serve(session, stream) {
                tracing::warn!("{}: session: {}", client.to_canonical(), cause(&error));
            }
            server.sockets.lock().remove(&session);
            server.policy.lock().end(session);
        };
        if let Err(error) = thread::Builder::new().spawn(serve) {
            tracing::error!("cannot start a thread: {}", cause(&error));
            self.policy.lock().end(session);
        }
    }

    /// Starts the process of a session, and serves it until it ends.
    fn serve(&self, session: u64, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        let (own, other) = UnixStream::pair()?;
        let mut child = Command::new(&self.process.program)
            .args(&self.process.arguments)
            .stdin(Stdio::from(OwnedFd::from(stream)))
            .stdout(Stdio::from(OwnedFd::from(other)))
            .spawn()?;
        self.sockets.lock().insert(session, own.try_clone()?);
        let answered = self.answer(session, &own);
        // The end of the socket ends the session.
        let _it_ended_by_itself = own.shutdown(Shutdown::Both);
        reap(&mut child)?;
        answered
    }

    /// Answers a session until it ends.
    fn answer(&self, session: u64, socket: &UnixStream) -> io::Result<()> {
        let begin = Instant::now();
        let mut from = BufReader::new(socket.try_clone()?);
        let (mut has_login, mut attempts) = (false, 0);
        loop {
            let rest = LOGIN_MAX.saturating_sub(begin.elapsed()).max(WAIT);
            socket.set_read_timeout((!has_login).then_some(rest))?;
            let question = match receive(&mut from) {
                Ok(Some(question)) => question,
                Ok(None) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(io::Error::other("no login in time"));
                }
                Err(error) => return Err(error),
            };
            let answer = self.decide(session, &question);
            has_login |= answer.is_ok() && !matches!(question, SessionQuestion::Attempt(_));
            attempts += u32::from(matches!(question, SessionQuestion::Attempt(_)));
            if attempts > ATTEMPTS_MAX {
                return Err(io::Error::other("too many logins of one session"));
            }
            send(socket, &answer)?;
        }
    }

    fn decide(&self, session: u64, question: &SessionQuestion) -> ServerAnswer {
        let mut policy = self.policy.lock();
        match question {
            SessionQuestion::Attempt(user) => policy.attempt(session, user, Instant::now()),
            SessionQuestion::LogIn(user) => policy.log_in(session, user),
            SessionQuestion::Certified(user) => policy.log_in_without_attempt(session, user),
        }
    }
}

/// Listens on an address. A socket for all addresses of IPv6 takes none of IPv4, whose clients would
/// get no answer to `PASV`.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// Waits for a process that ends, and kills it if it takes too long.
fn reap(child: &mut Child) -> io::Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < PARTING {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        thread::sleep(WAIT);
    }
    child.kill()?;
    child.wait().map(drop)
}
