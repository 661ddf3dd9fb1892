//! A regular file on another host.
//!
//! Blocks are written without waiting for each, and read ahead where they are read one after
//! another: a round trip costs a delay and not a factor. What goes wrong with a block is told
//! before anything relies on it ([`WriteFile::settle`]).

use crate::budget::{Room, Taken};
use crate::client::Client;
use crate::client::connection::{Promise, Space, nonsense, on};
use crate::client::replies::{long_if_need_be, not_set};
use crate::wire::{Handle, Reply, Request, WireFault};
use driftless_lock::Mutex;
use driftless_model::{Act, Fault, Keep, Meta, Side, Xattrs, errno};
use driftless_reconcile::Ranges;
use driftless_tree::{Attributes, Done, Known, ReadFile, WriteFile};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of one block on the connection.
const BLOCK_BYTES: usize = 1 << 20;
/// Blocks of a file that were written, or ranges that the other host is to copy, and that were not
/// answered, at most.
const WRITES_MAX: usize = 16;
/// Blocks that are read ahead of a reader.
const AHEAD_BLOCKS: u64 = 8;
/// Bytes that are read ahead in all files of a connection, at most.
const AHEAD_BYTES_MAX: u64 = 32 << 20;
/// Blocks that are kept for all readers of a file, at most.
const KEPT_BLOCKS_MAX: usize = 64;
/// Ranges of a file that are remembered as asked for, at most.
const ASKED_RANGES_MAX: usize = 256;

/// An open file of another host.
pub struct RemoteFile {
    client: Arc<Client>,
    side: Side,
    at: Handle,
    /// What it was like when it was opened; answers the first look.
    first: Mutex<Option<Meta>>,
    size: u64,
    writes: Mutex<Writes>,
    ahead: Mutex<Ahead>,
}

/// The room of a block that somebody waits for.
struct BlockRoom {
    _ahead: Option<Room>,
    _asked: Option<Taken>,
}

/// What was read ahead.
#[derive(Default)]
struct Ahead {
    /// Blocks that are on their way, by offset, with their lengths.
    blocks: BTreeMap<u64, (usize, Arc<Promise>, Room)>,
    /// What was asked for, ahead or not: where one reader's range meets another's, nothing has to
    /// cross twice.
    asked: Ranges,
}

impl Ahead {
    fn note(&mut self, range: Range<u64>) {
        if self.asked.len() >= ASKED_RANGES_MAX {
            self.asked = Ranges::default();
        }
        self.asked.add(range);
    }

    /// Whether a block is worth asking for.
    fn is_new(&self, range: &Range<u64>) -> bool {
        self.blocks.len() < KEPT_BLOCKS_MAX
            && self
                .asked
                .cut(range.clone())
                .iter()
                .all(|(_, asked)| !asked)
    }
}

#[derive(Default)]
struct Writes {
    /// Each with the bytes that are to be copied, if it is about copying.
    pending: VecDeque<(Arc<Promise>, Option<u64>)>,
    fault: Option<WireFault>,
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        self.client.connection.forget(self.at);
    }
}

impl RemoteFile {
    /// A file that was just opened.
    pub fn new(client: &Arc<Client>, side: Side, at: Handle, meta: Meta) -> Self {
        let (first, size) = (Mutex::new(Some(meta)), meta.size);
        RemoteFile {
            client: client.clone(),
            side,
            at,
            first,
            size,
            writes: Mutex::default(),
            ahead: Mutex::default(),
        }
    }

    /// Asks once all that was written has arrived.
    fn call(&self, request: &Request) -> Done<(Reply, Vec<u8>)> {
        self.settle_writes(0)?;
        on(self.side, self.client.connection.call(request, Vec::new()))
    }

    fn confused<T>(&self) -> Done<T> {
        Err(nonsense().on(self.side))
    }

    /// What it is like now.
    fn now(&self) -> Done<Meta> {
        // A write that failed is told by what follows on it; what is to be removed must be known
        // all the same.
        let _is_told_later = self.settle_writes(0);
        match on(
            self.side,
            self.client
                .connection
                .call(&Request::Meta { at: self.at }, Vec::new()),
        )? {
            (Reply::Meta(meta), _) => Ok(meta),
            _ => self.confused(),
        }
    }

    /// Waits until at most `left` blocks are unanswered. The first fault stays: the file is not
    /// what was written.
    fn settle_writes(&self, left: usize) -> Done {
        let mut writes = self.writes.lock();
        while writes.pending.len() > left {
            let (promise, bytes) = writes.pending.pop_front().expect("it is not empty");
            let done = self
                .client
                .connection
                .wait(&promise)
                .and_then(|(reply, _)| match (reply, bytes) {
                    (Reply::Count(copied), Some(bytes)) if copied < bytes => {
                        Err(WireFault::new(Act::CopyOld, errno::ENODATA))
                    }
                    (Reply::Count(..), Some(_)) | (_, None) => Ok(()),
                    _ => Err(nonsense()),
                });
            if let Err(fault) = done {
                writes.fault.get_or_insert(fault);
            }
        }
        writes
            .fault
            .as_ref()
            .map_or(Ok(()), |fault| Err(fault.on(self.side)))
    }

    /// Lets a change of it through.
    fn pass_gate(&self) -> Done {
        if self.side == Side::Replica {
            self.client.gate.pass()
        } else {
            Ok(())
        }
    }

    /// Asks for something to be written, and does not wait for it; `bytes` is how much is to be
    /// copied there.
    fn write(&self, request: &Request, data: Vec<u8>, bytes: Option<u64>) -> Done {
        self.pass_gate()?;
        self.settle_writes(WRITES_MAX - 1)?;
        let space = if data.is_empty() {
            Space::Nothing
        } else {
            Space::Sent(self.client.connection.awaited(data.len() as u64))
        };
        let promise = self.client.connection.ask_with(request, data, space);
        self.writes.lock().pending.push_back((promise, bytes));
        Ok(())
    }

    fn request(&self, offset: u64, len: usize) -> Arc<Promise> {
        self.client.connection.ask(
            &Request::Read {
                file: self.at,
                offset,
                len: len as u32,
            },
            Vec::new(),
        )
    }

    /// The block at an offset, as it was asked for ahead, or asked for now, with its room; and asks
    /// for those that follow.
    fn block(&self, offset: u64, len: usize) -> (Arc<Promise>, BlockRoom) {
        let mut next = offset + len as u64;
        let kept = {
            let mut ahead = self.ahead.lock();
            ahead.note(offset..next);
            ahead.blocks.remove(&offset)
        };
        let sequential = kept.is_some() || offset == 0;
        let found = match kept {
            Some((kept, promise, room)) if kept == len => (
                promise,
                BlockRoom {
                    _ahead: Some(room),
                    _asked: None,
                },
            ),
            _ => {
                let room = self.client.connection.awaited(len as u64);
                (
                    self.request(offset, len),
                    BlockRoom {
                        _ahead: None,
                        _asked: Some(room),
                    },
                )
            }
        };
        let mut ahead = self.ahead.lock();
        if ahead.blocks.len() >= KEPT_BLOCKS_MAX {
            ahead.blocks.retain(|at, _| *at > offset);
        }
        let end = if sequential {
            self.size.min(next + AHEAD_BLOCKS * len as u64)
        } else {
            0
        };
        while next < end {
            let block = next..next + len as u64;
            if ahead.is_new(&block) {
                let Some(room) = Room::take(
                    &self.client.connection.read_ahead,
                    len as u64,
                    AHEAD_BYTES_MAX,
                ) else {
                    break;
                };
                ahead.note(block);
                ahead
                    .blocks
                    .insert(next, (len, self.request(next, len), room));
            }
            next += len as u64;
        }
        found
    }
}

impl ReadFile for RemoteFile {
    fn meta(&self) -> Done<Meta> {
        if let Some(first) = self.first.lock().take() {
            return Ok(first);
        }
        self.now()
    }

    fn meta_again(&self) -> Done<Meta> {
        self.now()
    }

    fn xattrs(&self, keep: &Keep) -> Done<Xattrs> {
        long_if_need_be(|long| {
            match self.call(&Request::Xattrs {
                at: self.at,
                keep: *keep,
                long,
            })? {
                (Reply::Xattrs(xattrs), _) => Ok(xattrs),
                _ => self.confused(),
            }
        })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Done<usize> {
        self.settle_writes(0)?;
        let mut filled = 0;
        while filled < buffer.len() {
            let len = (buffer.len() - filled).min(BLOCK_BYTES);
            let (promise, room) = self.block(offset + filled as u64, len);
            let (_, data) = on(self.side, self.client.connection.wait(&promise))?;
            if data.len() > len {
                return self.confused();
            }
            buffer[filled..filled + data.len()].copy_from_slice(&data);
            filled += data.len();
            let came = data.len();
            drop((data, room));
            if came < len {
                // Less than was asked for is the end of the file, or a lie, whoever told it.
                let end = offset + filled as u64;
                if end < self.size && self.now()?.size > end {
                    return Err(Fault {
                        side: self.side,
                        act: Act::ReadAll,
                        errno: errno::ENODATA,
                    });
                }
                break;
            }
        }
        Ok(filled)
    }

    fn digests(&self, range: Range<u64>, piece: u64) -> Done<Vec<[u8; 32]>> {
        match self.call(&Request::Digests {
            file: self.at,
            range,
            piece,
        })? {
            (Reply::Digests(digests), _) => Ok(digests),
            _ => self.confused(),
        }
    }

    fn token(&self) -> Option<(usize, u64)> {
        Some((Arc::as_ptr(&self.client) as usize, self.at))
    }

    fn drop_cached(&self) -> Done {
        self.call(&Request::DropCached { file: self.at }).map(drop)
    }

    fn next_data(&self, within: Range<u64>) -> Done<Option<Range<u64>>> {
        if within.is_empty() {
            return Ok(None);
        }
        match self.call(&Request::NextData {
            file: self.at,
            within: within.clone(),
        })? {
            (Reply::Range(None), _) => Ok(None),
            (Reply::Range(Some(data)), _)
                if within.start <= data.start
                    && data.start < data.end
                    && data.end <= within.end =>
            {
                Ok(Some(data))
            }
            _ => self.confused(),
        }
    }
}

impl WriteFile for RemoteFile {
    fn write_at(&self, data: &[u8], offset: u64) -> Done {
        let mut at = offset;
        for block in data.chunks(BLOCK_BYTES) {
            self.write(
                &Request::Write {
                    file: self.at,
                    offset: at,
                },
                block.to_vec(),
                None,
            )?;
            at += block.len() as u64;
        }
        Ok(())
    }

    fn copy_from(&self, from: &dyn ReadFile, range: Range<u64>) -> Option<Done<u64>> {
        let (client, from) = from.token()?;
        if client != Arc::as_ptr(&self.client) as usize {
            return None;
        }
        let bytes = range.end - range.start;
        Some(
            self.write(
                &Request::CopyRange {
                    from,
                    file: self.at,
                    range,
                },
                Vec::new(),
                Some(bytes),
            )
            .map(|()| bytes),
        )
    }

    fn settle(&self) -> Done {
        self.settle_writes(0)
    }

    fn set_len(&self, len: u64) -> Done {
        self.pass_gate()?;
        self.call(&Request::SetLen { file: self.at, len }).map(drop)
    }

    fn allocate(&self, range: Range<u64>) -> Done {
        self.pass_gate()?;
        // Nothing relies on what was written before, so there is no need to wait for it.
        on(
            self.side,
            self.client.connection.call(
                &Request::Allocate {
                    file: self.at,
                    range,
                },
                Vec::new(),
            ),
        )
        .map(drop)
    }

    fn set(&self, known: &Known, attributes: &Attributes) -> Vec<Fault> {
        if let Err(fault) = self.pass_gate() {
            return vec![fault];
        }
        let done = self.call(&Request::SetOwn {
            at: self.at,
            known: *known,
            attributes: attributes.clone(),
        });
        done.and_then(|(reply, _)| not_set(self.side, reply))
            .unwrap_or_else(|fault| vec![fault])
    }

    fn sync(&self) -> Done {
        self.call(&Request::SyncFile { file: self.at }).map(drop)
    }

    fn flush(&self) -> Done {
        self.call(&Request::FlushFile { file: self.at }).map(drop)
    }

    fn close(self: Box<Self>) -> Done {
        self.flush()
    }

    fn progress(&self) -> Option<Vec<u8>> {
        match self.call(&Request::Progress { file: self.at }) {
            Ok((Reply::Note(note), _)) => note,
            _ => None,
        }
    }

    fn save_progress(&self, note: Option<&[u8]>) -> Done {
        self.pass_gate()?;
        self.call(&Request::SaveProgress {
            file: self.at,
            note: note.map(<[u8]>::to_vec),
        })
        .map(drop)
    }
}
