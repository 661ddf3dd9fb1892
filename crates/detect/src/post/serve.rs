//! The side of a mirror: a socket that every user of this host may use, and what keeps one of them
//! from holding up the mirror or the others.
//!
//! A connection has a thread, of which there are few, and fewer for one user. The thread waits for
//! its program, and for room in a queue that the mirror empties; the mirror waits for neither. Who
//! says nothing for a while is hung up on. Posts are taken at a limited pace, but for those of root
//! and of the mirror's own user, and all below a directory counts as many.

use super::{GREETING, POST_BYTES_MAX, read};
use crate::agents::Courier;
use crate::base::Base;
use crate::connections::take_each;
use crate::detector::{Deaf, Detector, Heard, Seen, Waker};
use driftless_model::quote;
use rustix::net::sockopt::socket_peercred;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// Connections of one user at a time; of root, as many as there are.
const CONNECTIONS_OF_USER_MAX: usize = 8;
/// Who says nothing for so long is hung up on.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Posts that are told at once.
const POSTS_AT_ONCE: usize = 256;
/// What a batch of posts takes at least: 256 in so long are 12,800 in a second.
const BATCH_TIME: Duration = Duration::from_millis(20);
/// A post of all below a directory takes so many times as long.
const SUBTREE_WEIGHT: usize = 64;
/// Batches that wait for the mirror.
const BATCHES_WAITING_MAX: usize = 16;

/// A socket for posts.
#[derive(Debug)]
pub struct Posts {
    socket: PathBuf,
    batches: Receiver<Batch>,
    waker: Arc<Waker>,
    /// Asks the agents of this host to post what they have heard, for a mirror.
    courier: Option<Courier>,
}

#[derive(Debug, Default)]
struct Batch {
    seen: Vec<Seen>,
    taken: u64,
    refused: u64,
    weight: usize,
}

/// What all connections share.
struct Desk {
    job: String,
    source: Base,
    batches: SyncSender<Batch>,
    waker: Arc<Waker>,
    /// Connections by user.
    open: Mutex<BTreeMap<u32, usize>>,
}

impl Posts {
    /// Listens at `socket`, where whatever stands there goes: the caller holds the job. `source` is
    /// the path of the source, without symbolic links.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn listen(socket: &Path, job: &str, source: &Path) -> Result<Posts, Deaf> {
        let failed = |error: io::Error| {
            let why = driftless_model::cause(&error);
            Deaf::for_now(format!("{}: cannot listen there: {why}", quote(socket)))
        };
        let waker = Waker::new().map_err(|errno| failed(errno.into()))?;
        let (outbox, batches) = sync_channel(BATCHES_WAITING_MAX);
        let desk = Desk {
            job: job.to_owned(),
            source: Base::new(std::os::unix::ffi::OsStrExt::as_bytes(source.as_os_str())),
            batches: outbox,
            waker: waker.clone(),
            open: Mutex::new(BTreeMap::new()),
        };
        let listener = bound(socket).map_err(failed)?;
        let desk = Arc::new(desk);
        let serve = move || take_each(&listener, |stream| desk.take(stream));
        let spawned = Builder::new().name("posts".into()).spawn(serve);
        spawned.map_err(failed)?;
        Ok(Posts {
            socket: socket.to_owned(),
            batches,
            waker,
            courier: None,
        })
    }

    /// Has agents of this host that hear what concerns `source` post what they have heard before
    /// anything is taken to be told.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn asking_agents(mut self, source: &Path) -> Result<Posts, Deaf> {
        let source = std::os::unix::ffi::OsStrExt::as_bytes(source.as_os_str()).to_vec();
        let courier = Courier::start(self.socket.clone(), source, self.waker.clone());
        let courier = courier.map_err(|error| Deaf::for_now(driftless_model::cause(&error)))?;
        self.courier = Some(courier);
        Ok(self)
    }

    /// Returns the moment before which agents have posted everything, where they are asked.
    fn until(&self) -> Result<Option<Instant>, Deaf> {
        let delivered = |courier: &Courier| courier.delivered(self.waker.asked());
        self.courier.as_ref().map(delivered).transpose()
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "our own socket, no part of a replicated tree"
)]
fn bound(socket: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    // Connecting takes the right to write (unix(7)).
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

impl Desk {
    /// Serves a connection in a thread of its own, if there is room for one of that user.
    fn take(self: &Arc<Desk>, stream: UnixStream) {
        let Ok(who) = socket_peercred(&stream) else {
            return;
        };
        let user = who.uid.as_raw();
        if !self.is_let_in(user) {
            tracing::debug!("posts: no room for one more connection of user {user}");
            return;
        }
        let desk = self.clone();
        let is_trusted = who.uid.is_root() || who.uid == rustix::process::geteuid();
        let serve = move || {
            let served = desk.serve(&stream, is_trusted);
            tracing::debug!("posts of user {user}, process {}: {served:?}", who.pid);
            desk.let_out(user);
        };
        if Builder::new().name("posts".into()).spawn(serve).is_err() {
            self.let_out(user);
        }
    }

    fn is_let_in(&self, user: u32) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = open.values().sum();
        let own = open.entry(user).or_default();
        let is_full = user != 0 && *own >= CONNECTIONS_OF_USER_MAX;
        if all >= CONNECTIONS_MAX || is_full {
            return false;
        }
        *own += 1;
        true
    }

    fn let_out(&self, user: u32) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = open.get_mut(&user) {
            *own -= 1;
        }
        open.retain(|_, own| *own > 0);
    }

    /// Takes the posts of one connection; returns how many were taken and how many were not.
    fn serve(&self, stream: &UnixStream, is_trusted: bool) -> io::Result<(u64, u64)> {
        stream.set_read_timeout(Some(SILENCE_TIMEOUT))?;
        stream.set_write_timeout(Some(SILENCE_TIMEOUT))?;
        let source = match self.source.as_bytes() {
            b"" => b"/",
            bytes => bytes,
        };
        let words = [GREETING, self.job.as_bytes(), source, b""].join(&0);
        (&mut &*stream).write_all(&words)?;
        let (mut taken, mut refused) = (0, 0);
        let mut posts = BufReader::new(stream);
        loop {
            let batch = self.batch(&mut posts, is_trusted)?;
            if batch.weight == 0 {
                break;
            }
            taken += batch.taken;
            refused += batch.refused;
            self.tell(batch, is_trusted)?;
        }
        (&mut &*stream).write_all(format!("{taken}\0{refused}\0").as_bytes())?;
        Ok((taken, refused))
    }

    /// The next posts, none at the end of all.
    fn batch(&self, from: &mut impl BufRead, is_trusted: bool) -> io::Result<Batch> {
        let mut batch = Batch::default();
        while batch.weight < POSTS_AT_ONCE {
            let mut post = Vec::new();
            let mut bounded = (&mut *from).take(POST_BYTES_MAX as u64);
            if bounded.read_until(0, &mut post)? == 0 {
                break;
            }
            // Behind a post that is too long nothing is where it should be.
            if post.pop() != Some(0) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            match read(&post, &self.source, is_trusted) {
                Some((sort, seen)) => {
                    let is_heavy = sort.is_deep() && !is_trusted;
                    let weight = if is_heavy { SUBTREE_WEIGHT } else { 1 };
                    batch.weight += weight * seen.len();
                    batch.seen.extend(seen);
                    batch.taken += 1;
                }
                None => {
                    batch.weight += 1;
                    batch.refused += 1;
                }
            }
        }
        Ok(batch)
    }

    /// Puts posts where the mirror takes them; waits for room, and for the pace of users who are not
    /// trusted.
    fn tell(&self, batch: Batch, is_trusted: bool) -> io::Result<()> {
        let share = batch.weight as f64 / POSTS_AT_ONCE as f64;
        let is_over = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.batches.send(batch).map_err(is_over)?;
        self.waker.wake();
        if !is_trusted {
            sleep(BATCH_TIME.mul_f64(share));
        }
        Ok(())
    }
}

impl Detector for Posts {
    fn name(&self) -> String {
        "announcements".into()
    }

    fn hear(&mut self) -> Result<Heard, Deaf> {
        // First: what agents posted before that is in the queue.
        let until = self.until();
        match self.batches.try_recv() {
            Ok(batch) => Ok(Heard {
                events: batch.weight,
                unread: batch.refused,
                seen: batch.seen,
                ..Heard::default()
            }),
            Err(TryRecvError::Empty) => Ok(Heard {
                until: until?,
                ..Heard::default()
            }),
            Err(TryRecvError::Disconnected) => Err(Deaf {
                what: format!("{}: no process listens there any more", quote(&self.socket)),
                is_final: true,
            }),
        }
    }

    fn wait(&mut self) -> Result<(), Deaf> {
        let waited = self.waker.wait(None, None);
        waited.map_err(|errno| Deaf::of(&quote(&self.socket).to_string(), "wait", errno))
    }

    fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }
}

impl Drop for Posts {
    #[allow(
        clippy::disallowed_methods,
        reason = "our own socket, no part of a replicated tree"
    )]
    fn drop(&mut self) {
        let _another_mirror_takes_it_away_otherwise = std::fs::remove_file(&self.socket);
    }
}
