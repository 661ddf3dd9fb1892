//! A TCP relay in the test's own process, for what a network does to connections: delay,
//! narrowness, silence, sudden ends.
//!
//! It stands in for the kernel's netem, which is missing on many machines. It works on streams and
//! not on packets: nothing is reordered or lost within a connection, and a connection that is made
//! reaches the relay at once; only what is sent through it is late. Started within
//! [`Host::inside`](crate::Host::inside), it listens on that host and connects from there.

mod pipe;

use pipe::{Pipe, TICK};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::net::sockopt::set_socket_linger;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the relay tries to reach its destination.
const CONNECT_SECONDS_MAX: u64 = 60;

/// What a relay does to what passes, each way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Bytes are delivered so long after they came in; how many are on their way is not limited by
    /// it.
    pub delay: Duration,
    /// All connections share this.
    pub bytes_per_second_max: Option<u64>,
}

/// How many bytes were delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// From those who connect to the destination.
    pub there: u64,
    /// From the destination to those who connect.
    pub back: u64,
}

impl Passed {
    /// In both directions.
    pub fn both(&self) -> u64 {
        self.there + self.back
    }
}

/// A relay that runs until it is dropped, and its connections with it.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// What all threads of a relay share.
#[derive(Debug)]
struct Shared {
    destination: SocketAddr,
    weather: Weather,
    ending: AtomicBool,
    stalled: AtomicBool,
    accepted: AtomicU64,
    there: Way,
    back: Way,
    connections: Mutex<Vec<Connection>>,
}

/// One direction of all connections.
#[derive(Debug)]
struct Way {
    delivered: AtomicU64,
    /// When what was let through so far has passed, at the limited rate.
    free_at: Mutex<Instant>,
}

#[derive(Debug)]
struct Connection {
    cut: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Relay {
    /// Listens on a free port of the loopback interface and passes everything on to `destination`,
    /// at once.
    pub fn start(destination: SocketAddr) -> Relay {
        Relay::with(destination, Weather::default())
    }

    /// The same with a delay each way.
    pub fn delayed(destination: SocketAddr, delay: Duration) -> Relay {
        Relay::with(
            destination,
            Weather {
                delay,
                ..Weather::default()
            },
        )
    }

    /// The same with any weather.
    pub fn with(destination: SocketAddr, weather: Weather) -> Relay {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen on loopback");
        listener.set_nonblocking(true).expect("not blocking");
        let address = listener.local_addr().expect("an address");
        let way = || Way {
            delivered: AtomicU64::new(0),
            free_at: Mutex::new(Instant::now()),
        };
        let shared = Arc::new(Shared {
            destination,
            weather,
            ending: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            accepted: AtomicU64::new(0),
            there: way(),
            back: way(),
            connections: Mutex::new(Vec::new()),
        });
        let acceptor = std::thread::spawn({
            let shared = shared.clone();
            move || shared.accept_all(&listener)
        });
        Relay {
            address,
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resets all connections that there are, at both ends; what was on its way is lost. New ones
    /// are accepted.
    pub fn cut(&self) {
        let connections = std::mem::take(&mut *self.shared.connections());
        connections
            .iter()
            .for_each(|connection| connection.cut.store(true, Ordering::SeqCst));
        for connection in connections {
            let _ = connection.thread.join();
        }
    }

    /// From now on nothing passes, neither bytes nor the end of a connection; connections stay
    /// open, new ones wait.
    pub fn stall(&self) {
        self.shared.stalled.store(true, Ordering::SeqCst);
    }

    /// What has waited since [`stall`](Relay::stall) passes.
    pub fn resume(&self) {
        self.shared.stalled.store(false, Ordering::SeqCst);
    }

    /// How many bytes have been delivered so far.
    pub fn passed(&self) -> Passed {
        let delivered = |way: &Way| way.delivered.load(Ordering::SeqCst);
        Passed {
            there: delivered(&self.shared.there),
            back: delivered(&self.shared.back),
        }
    }

    /// How many connections have been accepted so far.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.cut();
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::SeqCst)
    }

    fn accept_all(self: &Arc<Shared>, listener: &TcpListener) {
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: TICK.subsec_nanos().into(),
        };
        while !self.ending.load(Ordering::SeqCst) {
            if self.is_stalled() {
                std::thread::sleep(TICK);
                continue;
            }
            let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&tick));
            // Nobody there, or gone again already: the next one, then.
            let Ok((stream, _)) = listener.accept() else {
                continue;
            };
            self.accepted.fetch_add(1, Ordering::SeqCst);
            self.begin(stream);
        }
    }

    fn begin(self: &Arc<Shared>, near: TcpStream) {
        let cut = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (shared, cut) = (self.clone(), cut.clone());
            move || shared.serve(&near, &cut)
        });
        let mut connections = self.connections();
        connections.retain(|connection| !connection.thread.is_finished());
        connections.push(Connection { cut, thread });
    }

    /// Carries one connection to its end. Both sockets are closed when this returns and its caller
    /// drops `near`.
    fn serve(&self, near: &TcpStream, cut: &AtomicBool) {
        let limit = Duration::from_secs(CONNECT_SECONDS_MAX);
        let Ok(far) = TcpStream::connect_timeout(&self.destination, limit) else {
            return reset(near);
        };
        for stream in [near, &far] {
            stream.set_nodelay(true).expect("no delay of small packets");
            // Only so does a thread that waits for a socket see that the connection is cut.
            stream
                .set_read_timeout(Some(TICK))
                .and_then(|()| stream.set_write_timeout(Some(TICK)))
                .expect("time limits");
        }
        let there = Pipe::new(self, &self.there, (near, &far), cut);
        let back = Pipe::new(self, &self.back, (&far, near), cut);
        std::thread::scope(|scope| {
            for pipe in [&there, &back] {
                scope.spawn(|| pipe.take_in());
                scope.spawn(|| pipe.deliver());
            }
        });
        if cut.load(Ordering::SeqCst) {
            reset(near);
            reset(&far);
        }
    }
}

/// Makes the close to come a reset (socket(7), `SO_LINGER` of no time).
fn reset(stream: &TcpStream) {
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};

    /// Serves so many connections: sends back what it gets to the end of each, and returns how much
    /// that was, or what ended it.
    fn echo(connections: usize) -> (SocketAddr, JoinHandle<Vec<std::io::Result<u64>>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen");
        let address = listener.local_addr().expect("address");
        let serve = move || {
            let (mut stream, _) = listener.accept()?;
            std::io::copy(&mut stream.try_clone()?, &mut stream)
        };
        (
            address,
            std::thread::spawn(move || (0..connections).map(|_| serve()).collect()),
        )
    }

    fn connect(relay: &Relay) -> TcpStream {
        let stream = TcpStream::connect(relay.address()).expect("connect");
        stream.set_nodelay(true).expect("no delay");
        stream
    }

    /// Sends something, waits for it to come back, and returns how long that took.
    fn round_trip(stream: &mut TcpStream) -> Duration {
        let started = Instant::now();
        stream.write_all(b"hello").expect("write");
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).expect("read");
        assert_eq!(&answer, b"hello");
        started.elapsed()
    }

    /// Sends so many bytes, reads them all back, and returns how long that took.
    fn bulk(relay: &Relay, bytes: usize) -> Duration {
        let started = Instant::now();
        let mut stream = connect(relay);
        let mut half = stream.try_clone().expect("clone");
        let sender = std::thread::spawn(move || {
            half.write_all(&vec![7; bytes]).expect("write");
            half.shutdown(std::net::Shutdown::Write).expect("end");
        });
        let mut back = Vec::new();
        stream.read_to_end(&mut back).expect("read");
        sender.join().expect("sender");
        assert!(
            back.len() == bytes && back.iter().all(|byte| *byte == 7),
            "{} bytes came back",
            back.len()
        );
        started.elapsed()
    }

    #[test]
    fn every_message_is_late_each_way() {
        let (address, server) = echo(1);
        let relay = Relay::delayed(address, Duration::from_millis(30));
        let mut stream = connect(&relay);
        for _ in 0..3 {
            let elapsed = round_trip(&mut stream);
            assert!(elapsed >= Duration::from_millis(60), "{elapsed:?}");
        }
        drop(stream);
        assert_eq!(
            server.join().expect("server")[0]
                .as_ref()
                .expect("a proper end"),
            &15
        );
    }

    #[test]
    fn a_delay_does_not_make_a_stream_slow() {
        let (address, _server) = echo(1);
        let relay = Relay::delayed(address, Duration::from_millis(200));
        // One piece at a time would take more than three minutes.
        let elapsed = bulk(&relay, 32 << 20);
        assert!(elapsed < Duration::from_secs(60), "{elapsed:?}");
    }

    #[test]
    fn bytes_are_counted_each_way() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen");
        let relay = Relay::start(listener.local_addr().expect("address"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accept");
            let mut got = Vec::new();
            stream.read_to_end(&mut got).expect("read");
            stream.write_all(b"thanks").expect("write");
            got.len()
        });
        let mut stream = connect(&relay);
        stream.write_all(&[1; 1000]).expect("write");
        stream.shutdown(std::net::Shutdown::Write).expect("end");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read");
        assert_eq!(
            (server.join().expect("server"), answer.as_str()),
            (1000, "thanks")
        );
        assert_eq!(
            relay.passed(),
            Passed {
                there: 1000,
                back: 6
            }
        );
        assert_eq!(relay.accepted(), 1);
    }

    #[test]
    fn a_limited_relay_takes_its_time() {
        let (address, _server) = echo(1);
        let weather = Weather {
            bytes_per_second_max: Some(1 << 20),
            ..Weather::default()
        };
        let elapsed = bulk(&Relay::with(address, weather), 256 << 10);
        assert!(
            elapsed >= Duration::from_millis(240),
            "{elapsed:?} for a quarter of a second's worth"
        );
    }

    #[test]
    fn a_cut_resets_both_ends_and_a_new_connection_works() {
        let (address, server) = echo(2);
        let relay = Relay::start(address);
        let mut stream = connect(&relay);
        round_trip(&mut stream);
        relay.cut();
        assert_eq!(
            stream.read(&mut [0]).expect_err("a reset").kind(),
            ErrorKind::ConnectionReset
        );
        round_trip(&mut connect(&relay));
        let ends = server.join().expect("server");
        assert_eq!(
            ends[0].as_ref().expect_err("a reset").kind(),
            ErrorKind::ConnectionReset
        );
        assert_eq!(ends[1].as_ref().expect("a proper end"), &5);
    }

    #[test]
    fn nothing_passes_a_stalled_relay_until_it_resumes() {
        let (address, _server) = echo(1);
        let relay = Relay::start(address);
        let mut stream = connect(&relay);
        round_trip(&mut stream);
        relay.stall();
        stream.write_all(b"wait").expect("the near end is open");
        stream
            .set_read_timeout(Some(Duration::from_millis(100)))
            .expect("time limit");
        assert_eq!(
            stream.read(&mut [0]).expect_err("silence").kind(),
            ErrorKind::WouldBlock
        );
        relay.resume();
        stream.set_read_timeout(None).expect("time limit");
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).expect("read");
        assert_eq!(&answer, b"wait");
    }

    #[test]
    fn a_destination_that_refuses_looks_like_a_reset() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen");
        let address = listener.local_addr().expect("address");
        drop(listener);
        let relay = Relay::start(address);
        assert_eq!(
            connect(&relay).read(&mut [0]).expect_err("a reset").kind(),
            ErrorKind::ConnectionReset
        );
    }
}
