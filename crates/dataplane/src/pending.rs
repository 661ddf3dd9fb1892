//! Unauthenticated connections, of which only a number is kept.
//!
//! A handshake takes milliseconds. When the table is full, the oldest connection gives way, so that
//! silent connections do not keep others out.

use driftless_lock::Mutex;
use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};

/// Table of unauthenticated connections.
#[derive(Debug)]
pub(crate) struct PendingPeers {
    peers_max: usize,
    table: Mutex<PendingTable>,
}

#[derive(Debug, Default)]
struct PendingTable {
    next: u64,
    sockets: VecDeque<(u64, TcpStream)>,
}

impl PendingPeers {
    pub(crate) fn new(peers_max: usize) -> Self {
        PendingPeers {
            peers_max: peers_max.max(1),
            table: Mutex::default(),
        }
    }

    /// Adds a connection, and ends the oldest one if the table is full. Returns its number.
    pub(crate) fn add(&self, socket: TcpStream) -> u64 {
        let mut table = self.table.lock();
        while table.sockets.len() >= self.peers_max {
            if let Some((_, oldest)) = table.sockets.pop_front() {
                let _ended_before = oldest.shutdown(Shutdown::Both);
            }
        }
        let number = table.next;
        table.next = number.wrapping_add(1);
        table.sockets.push_back((number, socket));
        number
    }

    /// Removes a connection whose handshake has ended. Returns `false` if it had to give way.
    pub(crate) fn remove(&self, number: u64) -> bool {
        let mut table = self.table.lock();
        let before = table.sockets.len();
        table.sockets.retain(|(one, _)| *one != number);
        table.sockets.len() < before
    }

    /// Ends every connection.
    pub(crate) fn end_all(&self) {
        for (_, socket) in self.table.lock().sockets.drain(..) {
            let _ended_before = socket.shutdown(Shutdown::Both);
        }
    }
}
