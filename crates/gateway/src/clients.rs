//! Clients of the socket: who is answered now, who waits, and how much memory their requests take.
//!
//! No user keeps the gateway from the others: clients beyond the limit of a user wait, in their order,
//! until an earlier one of the same user was answered.

use driftless_lock::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Clients that are answered at the same time.
const CLIENTS_MAX: usize = 128;
/// The same for one user.
const USER_CLIENTS_MAX: usize = 16;
/// Clients that wait.
const WAITING_MAX: usize = 512;
/// The same for one user.
const USER_WAITING_MAX: usize = 256;
/// Bytes of a request that need no room: so many that all clients together take little memory.
const SMALL: u32 = 64 << 10;
/// Bytes of larger requests at the same time.
const BYTES_MAX: u64 = 64 << 20;
/// The same for one user.
const USER_BYTES_MAX: u64 = 16 << 20;
/// Pause between two looks for room.
const PAUSE: Duration = Duration::from_millis(10);

/// Clients, each with the UID of its user.
#[derive(Debug)]
pub(crate) struct ClientQueue<T> {
    clients: Mutex<QueuedClients<T>>,
}

#[derive(Debug)]
struct QueuedClients<T> {
    active: Vec<u32>,
    waiting: VecDeque<(u32, T)>,
}

impl<T> Default for ClientQueue<T> {
    fn default() -> Self {
        ClientQueue {
            clients: Mutex::new(QueuedClients {
                active: Vec::new(),
                waiting: VecDeque::new(),
            }),
        }
    }
}

impl<T> ClientQueue<T> {
    /// Returns the client if it is to be answered now. Otherwise it waits, or is dropped if too many wait.
    pub fn admit(&self, uid: u32, client: T) -> Option<T> {
        let mut clients = self.clients.lock();
        if clients.has_room(uid) {
            clients.active.push(uid);
            return Some(client);
        }
        let own = clients.waiting.iter().filter(|(known, _)| *known == uid);
        if own.count() < USER_WAITING_MAX && clients.waiting.len() < WAITING_MAX {
            clients.waiting.push_back((uid, client));
        }
        None
    }

    /// Notes that a client of a user was answered. Returns the client that is answered next.
    pub fn next(&self, uid: u32) -> Option<(u32, T)> {
        self.leave(uid);
        let mut clients = self.clients.lock();
        let mut waiting = clients.waiting.iter();
        let at = waiting.position(|(uid, _)| clients.has_room(*uid))?;
        let next = clients.waiting.remove(at)?;
        clients.active.push(next.0);
        Some(next)
    }

    /// Notes that a client of a user is answered no more.
    pub fn leave(&self, uid: u32) {
        let mut clients = self.clients.lock();
        if let Some(at) = clients.active.iter().position(|known| *known == uid) {
            clients.active.swap_remove(at);
        }
    }
}

impl<T> QueuedClients<T> {
    fn has_room(&self, uid: u32) -> bool {
        let own = self.active.iter().filter(|known| **known == uid).count();
        self.active.len() < CLIENTS_MAX && own < USER_CLIENTS_MAX
    }
}

/// Bytes of the requests that are being read, with the UIDs of their users.
#[derive(Debug, Default)]
pub(crate) struct RequestRoom {
    taken: Mutex<Vec<(u32, u64)>>,
}

/// Room for one request. Dropping it frees the room.
#[derive(Debug)]
pub(crate) struct TakenRoom<'a> {
    room: &'a RequestRoom,
    taken: (u32, u64),
}

impl Drop for TakenRoom<'_> {
    fn drop(&mut self) {
        let mut all = self.room.taken.lock();
        if let Some(at) = all.iter().position(|one| *one == self.taken) {
            all.swap_remove(at);
        }
    }
}

impl RequestRoom {
    /// Waits until there is room for a request, at most until a time. Returns `None` if there is none.
    pub fn take(&self, uid: u32, bytes: u32, until: Instant) -> Option<TakenRoom<'_>> {
        let bytes = if bytes <= SMALL { 0 } else { u64::from(bytes) };
        while !self.try_take((uid, bytes)) {
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
        Some(TakenRoom {
            room: self,
            taken: (uid, bytes),
        })
    }

    fn try_take(&self, (uid, bytes): (u32, u64)) -> bool {
        let mut all = self.taken.lock();
        let own = all.iter().filter(|(known, _)| *known == uid);
        let own: u64 = own.map(|(_, bytes)| bytes).sum();
        let total: u64 = all.iter().map(|(_, bytes)| bytes).sum();
        let has_room = bytes == 0 || own + bytes <= USER_BYTES_MAX && total + bytes <= BYTES_MAX;
        if has_room {
            all.push((uid, bytes));
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_beyond_the_limit_wait() {
        let queue = ClientQueue::default();
        let answered: Vec<u32> = (0..100).filter_map(|one| queue.admit(1000, one)).collect();
        assert_eq!(answered, (0..16).collect::<Vec<u32>>());
        assert_eq!(queue.admit(1001, 7), Some(7), "another user");
        assert_eq!(queue.next(1001), None, "the first user has no room");
        for expected in 16..100 {
            assert_eq!(queue.next(1000), Some((1000, expected)));
        }
        assert_eq!(queue.next(1000), None);
    }

    #[test]
    fn waiting_clients_have_a_limit() {
        let queue = ClientQueue::default();
        for one in 0..1000 {
            queue.admit(1000, one);
        }
        let waiting = queue.clients.lock().waiting.len();
        assert_eq!(waiting, USER_WAITING_MAX);
    }

    #[test]
    fn large_requests_share_room() {
        let (room, now) = (RequestRoom::default(), Instant::now());
        let large = 8 << 20;
        let first: Vec<_> = (0..3).map(|_| room.take(1000, large, now)).collect();
        assert_eq!(first.iter().flatten().count(), 2);
        assert!(room.take(1000, SMALL, now).is_some());
        let others = 1..100;
        let others: Vec<_> = others.map(|uid| room.take(uid, large, now)).collect();
        assert_eq!(others.iter().flatten().count(), 6);
        drop(first);
        assert!(room.take(1000, large, now).is_some());
    }
}
