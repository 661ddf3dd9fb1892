//! Endpoints on loopback, and a relay that misbehaves on order.
#![allow(dead_code, reason = "each test program uses a part of it")]

use driftless_dataplane::{
    ArrivedLink, DataEndpoint, DataLink, ExpectedPeer, LinkBundle, LinkListener, LinkSettings,
    PeerTrust, PortRange, TlsIdentity,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait of a test for anything.
pub const LONG: Duration = Duration::from_secs(60);
pub const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Returns settings for tests that are not about silence: other tests may use every processor.
pub fn patient() -> LinkSettings {
    LinkSettings {
        silence_max: LONG,
        handshake_max: LONG,
        connect_max: LONG,
        ..LinkSettings::default()
    }
}

/// Two endpoints that trust each other, and a listener of the first one.
pub struct Ends {
    pub listening: DataEndpoint,
    pub connecting: DataEndpoint,
    pub listener: LinkListener,
}

impl Ends {
    pub fn new(listening: LinkSettings, connecting: LinkSettings) -> Self {
        let identities = [(); 2].map(|()| TlsIdentity::generate().expect("a key"));
        let trust = PeerTrust::keys(identities.iter().map(TlsIdentity::key));
        let [one, two] = identities;
        let listening = DataEndpoint::new(one, trust.clone(), listening).expect("an endpoint");
        let connecting = DataEndpoint::new(two, trust, connecting).expect("an endpoint");
        let listener = listening.listen(LOCALHOST, PortRange::ANY).expect("a port");
        Ends {
            listening,
            connecting,
            listener,
        }
    }

    pub fn peer(&self) -> ExpectedPeer {
        ExpectedPeer::Key(self.listening.key())
    }

    /// Connects, perhaps through a relay, and returns both ends.
    pub fn link_at(&self, address: SocketAddr) -> (DataLink, DataLink) {
        let connected = self.connecting.connect(&[address], &self.peer());
        (connected.expect("connected"), arrived(&self.listener))
    }

    pub fn link(&self) -> (DataLink, DataLink) {
        self.link_at(self.listener.address())
    }

    pub fn bundle(&self, count: u8) -> (LinkBundle, LinkBundle) {
        let addresses = [self.listener.address()];
        let connected = self
            .connecting
            .connect_bundle(&addresses, &self.peer(), count);
        let connected = connected.expect("connected");
        match self.listener.accept(LONG) {
            Some(ArrivedLink::Bundle(arrived)) => (connected, arrived),
            _ => panic!("no bundle: {:?}", self.listener.refused()),
        }
    }
}

/// Returns the two ends of a connection with these settings.
pub fn linked(settings: LinkSettings) -> (DataLink, DataLink) {
    Ends::new(settings.clone(), settings).link()
}

/// Waits for a connection.
pub fn arrived(listener: &LinkListener) -> DataLink {
    match listener.accept(LONG) {
        Some(ArrivedLink::Link(link)) => link,
        _ => panic!("no connection: {:?}", listener.refused()),
    }
}

/// Waits until a condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

const PASS: u8 = 0;
const HOLD: u8 = 1;
const CUT: u8 = 2;
const DAMAGE: u8 = 3;

/// TCP relay between two ends.
pub struct Relay {
    pub address: SocketAddr,
    mood: Arc<AtomicU8>,
    /// Bytes that still pass before the relay holds.
    budget: Arc<AtomicUsize>,
}

impl Relay {
    pub fn to(target: SocketAddr) -> Self {
        Self::with_budget(target, usize::MAX)
    }

    /// Returns a relay that passes so many bytes and then holds everything.
    pub fn with_budget(target: SocketAddr, bytes: usize) -> Self {
        let listener = TcpListener::bind((LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (mood, budget) = (
            Arc::new(AtomicU8::new(PASS)),
            Arc::new(AtomicUsize::new(bytes)),
        );
        let relay = Relay {
            address,
            mood: Arc::clone(&mood),
            budget: Arc::clone(&budget),
        };
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let far = TcpStream::connect(target).expect("the target listens");
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let from = from.try_clone().expect("a clone");
                    let to = to.try_clone().expect("a clone");
                    let (mood, budget) = (Arc::clone(&mood), Arc::clone(&budget));
                    thread::spawn(move || pass(from, to, &mood, &budget));
                }
            }
        });
        relay
    }

    /// Keeps both connections open and passes nothing more.
    pub fn hold(&self) {
        self.mood.store(HOLD, SeqCst);
    }

    /// Ends both connections without a word.
    pub fn cut(&self) {
        self.mood.store(CUT, SeqCst);
    }

    /// Changes a bit of all that passes.
    pub fn damage(&self) {
        self.mood.store(DAMAGE, SeqCst);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mood: &AtomicU8, budget: &AtomicUsize) {
    from.set_read_timeout(Some(Duration::from_millis(20)))
        .expect("a limit");
    let mut bytes = [0; 16 << 10];
    loop {
        let count = match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => break,
        };
        match mood.load(SeqCst) {
            CUT => break,
            DAMAGE if count > 0 => bytes[count - 1] ^= 1,
            _ => {}
        }
        let taken = budget.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(count));
        while mood.load(SeqCst) == HOLD || taken.is_err() {
            thread::sleep(Duration::from_millis(20));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ended_before = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
