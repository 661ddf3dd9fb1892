//! What the service manager is told (sd_notify(3)): that the mirror is ready, how it stands, that it
//! goes on, and that it ends.
//!
//! It is told by a thread that looks whether each life has had its turn lately, so that one which hangs
//! is noticed. Without a service manager nothing of this is begun.

use driftless_mirror::clock::now;
use driftless_mirror::hub::statuses;
use driftless_mirror::message::Inboxes;
use driftless_mirror::pulse::Pulse;
use driftless_mirror::status::Status;
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
/// How often it is told how the mirror stands.
const STATUS_EVERY: Duration = Duration::from_secs(10);
/// A mirror that does not say within this how it stands is not asked for longer.
const PATIENCE: Duration = Duration::from_secs(2);

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

/// Tells the service manager, if there is one, that the mirror is ready, how it goes on, and that it
/// ends: the thread that does so ends then, too.
pub fn begin(
    inboxes: Inboxes,
    pulses: Vec<Pulse>,
    stop: Arc<AtomicBool>,
) -> Option<JoinHandle<()>> {
    let address = std::env::var_os("NOTIFY_SOCKET")?;
    let manager = Manager::at(&address)
        .inspect_err(|error| tracing::warn!("the service manager cannot be told: {error}"))
        .ok()?;
    manager.tell("READY=1");
    let watchdog = watchdog();
    let tell = move || follow(&manager, &inboxes, (&pulses, watchdog), &stop);
    Builder::new()
        .name("service".into())
        .spawn(tell)
        .inspect_err(|error| {
            tracing::warn!("the service manager is not told how it goes on: {error}");
        })
        .ok()
}

/// How long the service manager waits for a word, if it does (sd_watchdog_enabled(3)).
fn watchdog() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let time = number("WATCHDOG_USEC").filter(|micros| is_ours && *micros > 0);
    time.map(Duration::from_micros)
}

fn follow(
    manager: &Manager,
    inboxes: &Inboxes,
    (pulses, watchdog): (&[Pulse], Option<Duration>),
    stop: &AtomicBool,
) {
    let (mut alive, mut told) = (Instant::now(), None::<Instant>);
    while !stop.load(Relaxed) {
        if let Some(patience) = watchdog {
            let goes_on = pulses.iter().all(|pulse| pulse.age(now()) <= patience / 2);
            if goes_on && alive.elapsed() >= patience / 4 {
                manager.tell("WATCHDOG=1");
                alive = Instant::now();
            }
        }
        if told.is_none_or(|told| told.elapsed() >= STATUS_EVERY) {
            if let Some(statuses) = statuses(inboxes, PATIENCE) {
                manager.tell(&format!("STATUS={}", words(&statuses)));
            }
            told = Some(Instant::now());
        }
        thread::sleep(TURN);
    }
    manager.tell("STOPPING=1");
}

/// How the replicas stand, in a line.
fn words(statuses: &[Status]) -> String {
    let all = statuses.iter().map(|status| {
        let (left, problems) = (status.left, status.problems);
        let what = match &status.away {
            Some(_) => "out of reach, ",
            None if status.is_paused => "paused, ",
            None => "",
        };
        let behind = status.behind().as_secs();
        format!("{what}{behind} s behind, {left} left, {problems} problems")
    });
    all.collect::<Vec<_>>().join("; ")
}
