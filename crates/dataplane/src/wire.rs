//! A TCP connection with its TLS state, and the only code that moves bytes between both.
//!
//! The socket never blocks. The TLS state is locked for one step of encryption or decryption and
//! never while a thread waits, so that both directions go on when both ends send at once.

use crate::LinkFault;
use crate::frame::FrameReader;
use driftless_lock::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustls::Connection;
use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Plaintext that rustls encrypts ahead of the socket: one unit of 64 KiB with its head, and the
/// records around it.
const ENCRYPTED_BYTES_MAX: usize = 128 << 10;

/// A socket in non-blocking mode and its TLS state.
pub(crate) struct Wire {
    stream: TcpStream,
    tls: Mutex<Connection>,
}

/// Result of a step that writes.
pub(crate) struct WriteStep {
    /// Bytes of plaintext that were encrypted.
    pub(crate) encrypted: usize,
    /// Bytes that the socket took.
    pub(crate) written: usize,
    /// Whether the socket took all.
    pub(crate) is_flushed: bool,
}

/// Returns the cause of a failed system call.
pub(crate) fn io_fault(error: &io::Error) -> LinkFault {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => LinkFault::Truncated,
        _ => LinkFault::Io(driftless_model::cause(error)),
    }
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, mut tls: Connection) -> Self {
        tls.set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
        let tls = Mutex::new(tls);
        Wire { stream, tls }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads the TLS state.
    pub(crate) fn inspect<T>(&self, read: impl FnOnce(&Connection) -> T) -> T {
        read(&self.tls.lock())
    }

    /// Encrypts as much of `plain` as there is room for, and writes what the socket takes.
    pub(crate) fn write(&self, plain: &[IoSlice<'_>]) -> io::Result<WriteStep> {
        let mut tls = self.tls.lock();
        let encrypted = if plain.is_empty() {
            0
        } else {
            tls.writer().write_vectored(plain)?
        };
        let written = flush(&mut tls, &self.stream)?;
        Ok(WriteStep {
            encrypted,
            written,
            is_flushed: !tls.wants_write(),
        })
    }

    /// Writes `plain` only if nothing else waits for the socket.
    pub(crate) fn write_if_idle(&self, plain: &[u8]) -> io::Result<usize> {
        let mut tls = self.tls.lock();
        let written = flush(&mut tls, &self.stream)?;
        if tls.wants_write() {
            return Ok(written);
        }
        tls.writer().write_all(plain)?;
        Ok(written.saturating_add(flush(&mut tls, &self.stream)?))
    }

    /// Queues the alert that ends this direction (`close_notify`, RFC 8446 section 6.1).
    pub(crate) fn queue_close(&self) {
        self.tls.lock().send_close_notify();
    }

    /// Waits until the socket is ready. Returns `false` at the end of `limit`.
    pub(crate) fn wait(&self, ready: PollFlags, limit: Duration) -> io::Result<bool> {
        wait_for(&self.stream, ready, limit)
    }

    /// Ends both directions at once. Threads that wait for the socket wake.
    pub(crate) fn cut(&self) {
        let _ended_before = self.stream.shutdown(Shutdown::Both);
    }
}

/// Waits until a socket is ready, has failed or was shut down. Returns `false` at the end of `limit`.
pub(crate) fn wait_for(stream: &TcpStream, ready: PollFlags, limit: Duration) -> io::Result<bool> {
    // A limit above the range of a timestamp is none.
    let deadline = Instant::now().checked_add(limit);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(stream, ready)], left.as_ref()) {
            Err(Errno::INTR) => {}
            count => return Ok(count? > 0),
        }
    }
}

/// Writes records until the socket is full. Returns the number of bytes.
fn flush(tls: &mut Connection, mut stream: &TcpStream) -> io::Result<usize> {
    let mut written = 0_usize;
    while tls.wants_write() {
        match tls.write_tls(&mut stream) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(bytes) => written = written.saturating_add(bytes),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}

/// Result of a step that reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadStep {
    /// Bytes of the socket arrived.
    Received,
    /// Bytes that had arrived before were decrypted.
    Decrypted,
    /// The socket has no bytes.
    Empty,
    /// The peer closed its direction, and everything before that was read.
    Closed,
}

/// The receiving side: bytes of the socket, and messages made of them.
pub(crate) struct Intake {
    arrived: Vec<u8>,
    start: usize,
    end: usize,
    pub(crate) frames: FrameReader,
}

impl Intake {
    pub(crate) fn new(buffer_bytes: usize, frames: FrameReader) -> Self {
        Intake {
            arrived: vec![0; buffer_bytes],
            start: 0,
            end: 0,
            frames,
        }
    }

    /// Enlarges the buffer.
    pub(crate) fn grow(&mut self, buffer_bytes: usize) {
        if buffer_bytes > self.arrived.len() {
            self.arrived.resize(buffer_bytes, 0);
        }
    }

    /// Decrypts bytes that have arrived, or reads the socket if there are none.
    pub(crate) fn step(&mut self, wire: &Wire) -> Result<ReadStep, LinkFault> {
        let mut step = ReadStep::Decrypted;
        if self.start >= self.end {
            step = ReadStep::Received;
            match (&wire.stream).read(&mut self.arrived) {
                Ok(0) => return Err(LinkFault::Truncated),
                Ok(bytes) => (self.start, self.end) = (0, bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(ReadStep::Empty),
                Err(error) => return Err(io_fault(&error)),
            }
        }
        let is_closed = self.decrypt(wire)?;
        Ok(if is_closed { ReadStep::Closed } else { step })
    }

    /// Takes what rustls takes at a time. Returns `true` if the peer has closed its direction.
    fn decrypt(&mut self, wire: &Wire) -> Result<bool, LinkFault> {
        let mut tls = wire.tls.lock();
        let mut rest = self.arrived.get(self.start..self.end).unwrap_or_default();
        let taken = tls.read_tls(&mut rest).map_err(|error| io_fault(&error))?;
        self.start = self.start.saturating_add(taken);
        if let Err(error) = tls.process_new_packets() {
            // The alert tells the peer why. Nothing depends on its arrival.
            let _best_effort = flush(&mut tls, &wire.stream);
            return Err(LinkFault::Tls(error.to_string()));
        }
        let is_closed = self.take_plaintext(&mut tls)?;
        // An answer to a key update. If the socket is full, the next sender writes it.
        let _sender_reports = flush(&mut tls, &wire.stream);
        Ok(is_closed)
    }

    fn take_plaintext(&mut self, tls: &mut Connection) -> Result<bool, LinkFault> {
        let mut reader = tls.reader();
        loop {
            let bytes = match reader.fill_buf() {
                Ok([]) => return Ok(true),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(io_fault(&error)),
            };
            let pushed = self.frames.push(bytes);
            pushed.map_err(|error| LinkFault::Protocol(error.to_string()))?;
            let count = bytes.len();
            reader.consume(count);
        }
    }
}
