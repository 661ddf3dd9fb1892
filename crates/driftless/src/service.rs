//! What the service manager is told (sd_notify(3)) of a mirror or an agent: that it is ready, how it
//! stands, that it goes on, and that it ends.
//!
//! It is told by a thread that looks whether the others have had their turns lately, so that one which
//! hangs is noticed. Without a service manager nothing of this is begun.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How often it is looked whether something is to be told.
const TURN: Duration = Duration::from_millis(500);
/// How often it is told how things stand.
const STATUS_EVERY: Duration = Duration::from_secs(10);

/// What is told of.
pub trait Served: Send + 'static {
    /// How long ago the last turn was of whoever has had none for longest.
    fn idle(&self) -> Duration;

    /// How it stands, in a line; none if it does not say.
    fn words(&self) -> Option<String>;
}

/// The service manager.
struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Manager {
    /// Who listens at this address: a path, or `@` and a name that is no path (unix(7)).
    fn at(address: &OsStr) -> io::Result<Manager> {
        let bytes = address.as_bytes();
        let address = match bytes.strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(address)?,
        };
        let socket = UnixDatagram::unbound()?;
        // It may be busy: nothing waits for it.
        socket.set_nonblocking(true)?;
        Ok(Manager { socket, address })
    }

    fn tell(&self, text: &str) {
        let _it_may_not_listen = self.socket.send_to_addr(text.as_bytes(), &self.address);
    }
}

/// Tells the service manager, if there is one, that `served` is ready, how it goes on, and that it
/// ends: the thread that does so ends then, too.
pub fn begin(served: impl Served, stop: Arc<AtomicBool>) -> Option<JoinHandle<()>> {
    let address = std::env::var_os("NOTIFY_SOCKET")?;
    let manager = Manager::at(&address)
        .inspect_err(|error| tracing::warn!("cannot notify the service manager: {error}"))
        .ok()?;
    manager.tell("READY=1");
    let watchdog = watchdog();
    let tell = move || follow(&manager, &served, watchdog, &stop);
    Builder::new()
        .name("service".into())
        .spawn(tell)
        .inspect_err(|error| {
            tracing::warn!("the service manager is not told how it goes on: {error}");
        })
        .ok()
}

/// Ends the thread that tells the service manager, and waits for it.
pub fn end(stop: &AtomicBool, service: Option<thread::JoinHandle<()>>) {
    stop.store(true, Relaxed);
    let _a_panic_was_reported = service.map(thread::JoinHandle::join);
}

/// How long the service manager waits for a word, if it does (sd_watchdog_enabled(3)).
fn watchdog() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let time = number("WATCHDOG_USEC").filter(|micros| is_ours && *micros > 0);
    time.map(Duration::from_micros)
}

fn follow(manager: &Manager, served: &impl Served, watchdog: Option<Duration>, stop: &AtomicBool) {
    let (mut alive, mut told) = (Instant::now(), None::<Instant>);
    while !stop.load(Relaxed) {
        if let Some(patience) = watchdog {
            let goes_on = served.idle() <= patience / 2;
            if goes_on && alive.elapsed() >= patience / 4 {
                manager.tell("WATCHDOG=1");
                alive = Instant::now();
            }
        }
        if told.is_none_or(|told| told.elapsed() >= STATUS_EVERY) {
            if let Some(words) = served.words() {
                manager.tell(&format!("STATUS={words}"));
            }
            told = Some(Instant::now());
        }
        thread::sleep(TURN);
    }
    manager.tell("STOPPING=1");
}
