//! One direction of one connection: a thread takes bytes in and notes when they are due, another
//! delivers them.

use super::{Shared, Way};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How soon a thread that waits sees that it need not wait any longer.
pub(super) const TICK: Duration = Duration::from_millis(10);
/// How much is taken in at once.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// How much is on its way at most: 100 ms at 640 MB a second.
const QUEUE_BYTES_MAX: usize = 64 << 20;
/// At a limited rate, bytes come in pieces of so many milliseconds' worth.
const PACED_MILLISECONDS: u64 = 5;

pub(super) struct Pipe<'a> {
    shared: &'a Shared,
    way: &'a Way,
    from: &'a TcpStream,
    to: &'a TcpStream,
    /// Set by whoever finds that this connection must end now.
    cut: &'a AtomicBool,
    queue: Mutex<Queue>,
    filled: Condvar,
}

/// What is on its way, and when each piece is due. An empty piece is the end.
#[derive(Default)]
struct Queue {
    pieces: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
}

impl<'a> Pipe<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        way: &'a Way,
        (from, to): (&'a TcpStream, &'a TcpStream),
        cut: &'a AtomicBool,
    ) -> Pipe<'a> {
        Pipe {
            shared,
            way,
            from,
            to,
            cut,
            queue: Mutex::default(),
            filled: Condvar::new(),
        }
    }

    /// Reads to the end of the stream, or until the connection is cut.
    pub(super) fn take_in(&self) {
        let mut buffer = vec![0; PIECE_BYTES_MAX];
        let mut stream = self.from;
        while !self.is_cut() {
            if self.shared.is_stalled() || self.queue().bytes >= QUEUE_BYTES_MAX {
                std::thread::sleep(TICK);
                continue;
            }
            match stream.read(&mut buffer) {
                Ok(length) => {
                    self.push(&buffer[..length]);
                    if length == 0 {
                        return;
                    }
                }
                Err(error) if is_passing(error.kind()) => (),
                Err(_) => self.cut.store(true, Ordering::SeqCst),
            }
        }
    }

    /// Writes what is due, to the end of the stream or until the connection is cut.
    pub(super) fn deliver(&self) {
        while let Some((due, piece)) = self.pop() {
            self.wait_until(due);
            if piece.is_empty() {
                return self.end();
            }
            for part in piece.chunks(self.part_bytes()) {
                self.pace(part.len());
                self.write(part);
            }
        }
    }

    /// Passes on that nothing more comes.
    fn end(&self) {
        self.wait_for_resume();
        if !self.is_cut() {
            let _ = self.to.shutdown(Shutdown::Write);
        }
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, bytes: &[u8]) {
        let due = Instant::now() + self.shared.weather.delay;
        let mut queue = self.queue();
        queue.bytes += bytes.len();
        queue.pieces.push_back((due, bytes.to_vec()));
        self.filled.notify_one();
    }

    /// The next piece; waits for it; `None` when the connection is cut.
    fn pop(&self) -> Option<(Instant, Vec<u8>)> {
        let mut queue = self.queue();
        while !self.is_cut() {
            if let Some((due, piece)) = queue.pieces.pop_front() {
                queue.bytes -= piece.len();
                return Some((due, piece));
            }
            queue = self
                .filled
                .wait_timeout(queue, TICK)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        None
    }

    fn wait_until(&self, due: Instant) {
        while !self.is_cut() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(TICK));
        }
    }

    fn wait_for_resume(&self) {
        while self.shared.is_stalled() && !self.is_cut() {
            std::thread::sleep(TICK);
        }
    }

    fn part_bytes(&self) -> usize {
        let rate = self.shared.weather.bytes_per_second_max;
        rate.map_or(PIECE_BYTES_MAX, |rate| {
            (rate * PACED_MILLISECONDS / 1000).clamp(1, PIECE_BYTES_MAX as u64) as usize
        })
    }

    /// Waits until so many bytes have passed at the limited rate, which all connections share.
    fn pace(&self, bytes: usize) {
        let Some(rate) = self.shared.weather.bytes_per_second_max else {
            return;
        };
        let passed = {
            let mut free_at = self
                .way
                .free_at
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *free_at =
                Instant::now().max(*free_at) + Duration::from_secs_f64(bytes as f64 / rate as f64);
            *free_at
        };
        self.wait_until(passed);
    }

    fn write(&self, mut bytes: &[u8]) {
        let mut stream = self.to;
        while !bytes.is_empty() && !self.is_cut() {
            self.wait_for_resume();
            match stream.write(bytes) {
                Ok(length) => {
                    self.way
                        .delivered
                        .fetch_add(length as u64, Ordering::SeqCst);
                    bytes = &bytes[length..];
                }
                Err(error) if is_passing(error.kind()) => (),
                Err(_) => self.cut.store(true, Ordering::SeqCst),
            }
        }
    }
}

/// Whether the call may be made again: a time limit is no error here.
fn is_passing(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
