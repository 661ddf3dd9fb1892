//! The agent: what runs on the other host and serves its file systems to a client, over its
//! standard input and output.
//!
//! One thread reads requests, some carry them out, one writes replies. Requests that need nothing
//! of each other are carried out at the same time. When the stream ends, or its client falls
//! silent, so does the agent: what waits is dropped, what takes long is broken off, and when
//! nothing is under way any more, locks and open files go.

mod calls;
mod confine;
mod fence;
mod hold;
mod home;
mod objects;
mod serve;
pub mod streams;
pub mod takeover;

use crate::agent::calls::{Burst, CallQueue};
use crate::agent::confine::{can_hold, confine, confine_within};
use crate::agent::fence::Fence;
use crate::agent::objects::{CALL_BYTES, Call, Table};
use crate::agent::serve::{Replied, Server};
use crate::agent::streams::Gathering;
use crate::budget::{Budget, Taken};
use crate::wire::Limits;
use crate::wire::alive::{CLIENT_SILENCE_SECONDS, Ear};
use crate::wire::handshake::greet;
use crate::wire::send::{FrameCompressor, write_all};
use crate::wire::{
    Announced, Frame, Hello, Opening, Reply, ReplyMax, Request, Root, WireFault, bad,
};
use crossbeam_channel::{Sender, bounded, unbounded};
use driftless_lock::Mutex;
use driftless_model::{Act, Cache};
use driftless_mover::{Mover, Terms};
use driftless_tree::{Copier, HandlePool, Ladder};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Requests that were read and not answered, at most; then the stream waits.
const OPEN_MAX: usize = 32 * 1024;
/// Bytes of requests that were read and not carried out, at most; then all streams wait. More than
/// a client sends ahead that keeps to its own bounds (80 MiB of small files, 24 MiB of large ones):
/// a stream that waits for room must not hold up what would make room.
const REQUEST_BYTES_MAX: u64 = 112 << 20;
/// Bytes of replies that are being made, of content that is open for it, and of replies that wait
/// to be written, at most.
const REPLY_BYTES_MAX: u64 = 64 << 20;
/// Streams of one client at most; no client asks for more (`--streams`).
const STREAMS_MAX: usize = 64;
/// Bytes of replies that wait for others to be sent together with them, at most.
const SAID_BYTES_MAX: u64 = 64 << 10;
/// Requests that wait for others to be handed out together with them, at most.
const READY_MAX: usize = 64;
/// Bytes that are read or written at once.
const BUFFER_BYTES: usize = 256 * 1024;
/// Threads at most, however slow the file system is.
const THREADS_MAX: usize = 128;
/// Threads a processor to begin with.
const THREADS_PER_CORE: usize = 2;
/// How long the last replies may take to be written when the stream has ended: nobody may be there
/// to read them.
const PARTING_GRACE: Duration = Duration::from_secs(2);
/// Between two looks at whether more threads would help.
const TICK: Duration = Duration::from_millis(10);
/// Above this share of the processors' time more threads do not help.
const BUSY_SHARE: f64 = 0.7;

/// Why clients that are limited are not served.
const NO_LANDLOCK: &str = "this kernel has no Landlock (Linux 5.19 or later) to hold clients to --only and --read-only: \
    use the agent's own checks with --without-landlock";

/// What all threads of an agent share.
struct Agent {
    /// What it says of itself.
    hello: Hello,
    /// What the client may ask for.
    roots: Vec<Root>,
    fence: Fence,
    cores: usize,
    table: Table,
    pool: Arc<HandlePool>,
    ladder: Arc<Ladder>,
    /// What is to be carried out.
    calls: CallQueue,
    /// Requests that were read and not answered.
    open: AtomicUsize,
    /// The client is gone.
    over: AtomicBool,
    /// The client's run is to end.
    ceased: AtomicBool,
    /// What requests may take of memory.
    requests: Arc<Budget>,
    /// What replies may take of memory.
    replies: Arc<Budget>,
    /// The threads that write replies hold it.
    writing: Sender<()>,
    /// Further streams that are there or are being handed over.
    brought: AtomicUsize,
    /// Where further streams of the same client are handed over.
    gathering: Mutex<Option<Gathering>>,
    /// At which level of zstd content is compressed on all streams, if the client wants it.
    compress: Option<i32>,
}

/// How a client is served.
#[derive(Debug, Clone, Default)]
pub struct Service {
    /// Directories that are open at the same time, at most.
    pub directories_max: usize,
    /// The level of zstd with which content is compressed, both ways, if the client wants it.
    pub compress: Option<i32>,
    /// What clients may do, whatever they ask for.
    pub limits: Limits,
    /// The limits hold also where the kernel cannot hold them.
    pub without_kernel: bool,
}

/// Serves one client until the stream ends. An error says that it broke, that the client does not
/// keep to the protocol, or that the limits cannot be held. This thread, which must be the only
/// one, and all that it starts then are confined to the client's roots.
pub fn serve(input: File, output: File, service: Service) -> io::Result<()> {
    let Service {
        directories_max,
        compress,
        limits,
        without_kernel,
    } = service;
    let (mut input, mut output) = (heard(input), BufWriter::with_capacity(BUFFER_BYTES, output));
    let pool = HandlePool::new(directories_max);
    let needs_kernel = limits.need_kernel() && !without_kernel;
    if needs_kernel && !can_hold() {
        return Err(io::Error::other(NO_LANDLOCK));
    }
    let fence = Fence::open(limits, &pool)?;
    let hello = Hello {
        limits: fence.limits().clone(),
        compresses: compress.is_some(),
        ..Hello::own()
    };
    greet(&mut output, &hello)?;
    let silence = (CLIENT_SILENCE_SECONDS, CLIENT_SILENCE_SECONDS);
    input.get_mut().watch(Box::new(|| Ok(())), silence);
    // The number of processors is read from files that are out of reach soon.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // So is the file of this host's locks.
    driftless_tree::prepare_locks();
    if fence.directories().next().is_some() {
        confine_within(&fence, needs_kernel)?;
    }
    let Some(Opening { roots }) = Opening::read(&mut input)? else {
        return Ok(());
    };
    confine(&roots, &fence, &pool)?;
    let (writing, written) = bounded(0);
    let agent = Agent {
        hello,
        roots,
        fence,
        cores,
        table: Table::default(),
        pool,
        ladder: Arc::default(),
        calls: CallQueue::default(),
        open: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        ceased: AtomicBool::new(false),
        requests: Arc::new(Budget::new(REQUEST_BYTES_MAX)),
        replies: Arc::new(Budget::new(REPLY_BYTES_MAX)),
        writing,
        brought: AtomicUsize::new(0),
        gathering: Mutex::default(),
        compress,
    };
    let read = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| agent.watch(scope));
        let read = agent.serve_stream(scope, input, output);
        agent.end();
        watcher.join().expect("the watcher does not panic");
        read
    });
    // Nothing is under way any more that a lock stands for.
    agent.table.forget_all();
    drop(agent);
    let _they_are_through_or_nobody_reads = written.recv_timeout(PARTING_GRACE);
    read
}

/// A further stream, which counts as long as this is there.
struct Brought<'a>(&'a AtomicUsize);

impl Drop for Brought<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The end of a stream at which requests arrive.
fn heard<'a>(input: File) -> BufReader<Ear<'a, File>> {
    BufReader::with_capacity(BUFFER_BYTES, Ear::new(input))
}

impl Agent {
    /// Serves one stream until it ends.
    fn serve_stream<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        mut input: BufReader<Ear<'scope, File>>,
        output: BufWriter<File>,
    ) -> io::Result<()> {
        let silence = (CLIENT_SILENCE_SECONDS, CLIENT_SILENCE_SECONDS);
        input.get_mut().watch(Box::new(|| self.wanted()), silence);
        let replies = self.start_writer(output);
        self.table.streams.fetch_add(1, Relaxed);
        self.read_all(scope, &mut input, &Arc::new(replies))
    }

    /// Starts the thread that writes what this stream's client is told. None waits for it for ever:
    /// its client may not read any more.
    fn start_writer(&self, mut output: BufWriter<File>) -> Sender<Frame> {
        let (replies, written) = unbounded();
        let (compressor, budget, writing) = (
            FrameCompressor::new(self.compress),
            self.replies.clone(),
            self.writing.clone(),
        );
        std::thread::spawn(move || {
            let beat = || Frame::new(0, &Reply::Alive, Vec::new());
            write_all(&mut output, (&written, compressor), beat, |bytes| {
                budget.give(bytes)
            });
            drop(writing);
        });
        replies
    }

    /// An error ends the reading of a stream when the first one has ended.
    fn wanted(&self) -> io::Result<()> {
        if self.over.load(Relaxed) {
            Err(ErrorKind::BrokenPipe.into())
        } else {
            Ok(())
        }
    }

    /// Ends all threads but those that write.
    fn end(&self) {
        self.over.store(true, Relaxed);
        self.close_others();
        self.calls.end();
        // Who waits until replies are written waits for a client that is gone.
        self.replies.open();
    }

    fn read_all<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        input: &mut BufReader<Ear<'_, File>>,
        stream: &Arc<Sender<Frame>>,
    ) -> io::Result<()> {
        let mut ready = Vec::new();
        loop {
            // What has arrived together is handed out together, before this thread waits for more.
            if input.buffer().is_empty() || ready.len() >= READY_MAX {
                self.calls.push(ready.drain(..));
            }
            let admit = |input: &mut BufReader<Ear<'_, File>>, announced: &Announced| {
                announced.check_agreed(self.compress.is_some())?;
                self.room(input.get_ref(), announced, &mut ready)
            };
            let Some(read) = Frame::read_admitted(input, admit)? else {
                return Ok(());
            };
            let call = Call::of(read, stream)?;
            match call.request {
                Request::Alive => continue,
                Request::Cease => {
                    self.ceased.store(true, Relaxed);
                    continue;
                }
                Request::Gather { secret } => {
                    self.open.fetch_add(1, Relaxed);
                    let frame = self.frame(
                        call.number,
                        (self.gather(scope, secret), Vec::new()),
                        call.request.reply_max(),
                    );
                    self.reply(&Arc::downgrade(stream), frame);
                    continue;
                }
                _ => {}
            }
            if !self.table.announce(&call) {
                return Err(bad("duplicate number of an object, or too many objects"));
            }
            while self.open.load(Relaxed) >= OPEN_MAX {
                self.wanted()?;
                input.get_ref().check_open()?;
                if self.table.parked.load(Relaxed) >= OPEN_MAX {
                    return Err(bad("all requests wait for objects that no request creates"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            if call.is_answered() {
                self.open.fetch_add(1, Relaxed);
            }
            ready.extend(self.admit(call));
        }
    }

    /// Takes room for a request, once there is any; what was read before it is carried out
    /// meanwhile.
    fn room(
        &self,
        input: &Ear<'_, File>,
        announced: &Announced,
        ready: &mut Vec<Call>,
    ) -> io::Result<Taken> {
        let bytes = CALL_BYTES + announced.bytes();
        if self.requests.is_short_of(bytes) {
            self.calls.push(ready.drain(..));
        }
        self.requests
            .taken_while(bytes, || self.wanted().and_then(|()| input.check_open()))
    }

    /// Begins to take further streams of this client, which knows them by this number.
    fn gather<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, secret: u128) -> Reply {
        let told = |(place, secret)| Reply::Gathers { place, secret };
        if let Some(gathering) = &*self.gathering.lock() {
            return told(gathering.place());
        }
        let gathering = match Gathering::open(self.fence.limits()) {
            Ok(gathering) => gathering,
            Err(errno) => return Reply::Fault(WireFault::new(Act::AddLines, errno.raw_os_error())),
        };
        let place = gathering.place();
        let hello = Hello {
            joined: secret,
            ..self.hello.clone()
        };
        scope.spawn(move || self.take_streams(scope, &hello));
        *self.gathering.lock() = Some(gathering);
        told(place)
    }

    fn take_streams<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, hello: &Hello) {
        while !self.over.load(Relaxed) {
            // What a process does that has connected must hold nobody up, so only the look for one
            // takes the lock.
            let Some(bringer) = self.gathering.lock().as_ref().and_then(Gathering::accept) else {
                std::thread::sleep(TICK);
                continue;
            };
            if self.brought.load(Relaxed) >= STREAMS_MAX {
                continue;
            }
            self.brought.fetch_add(1, Relaxed);
            let hello = hello.clone();
            scope.spawn(move || {
                let _brought = Brought(&self.brought);
                let Some((input, output)) = bringer.stream(|| self.over.load(Relaxed)) else {
                    return;
                };
                let (input, mut output) = (
                    heard(File::from(input)),
                    BufWriter::with_capacity(BUFFER_BYTES, File::from(output)),
                );
                // One stream that breaks ends only itself: what was asked on it fails on the
                // client's side.
                let _its_end_is_told_by_the_peer = greet(&mut output, &hello)
                    .and_then(|()| self.serve_stream(scope, input, output));
                drop(bringer);
            });
        }
    }

    fn close_others(&self) {
        self.gathering.lock().take();
    }

    /// The request, if it can be carried out now.
    fn admit(&self, call: Call) -> Option<Call> {
        match self.table.admit(call)? {
            Call {
                request: Request::Forget { at },
                ..
            } => {
                self.table.forget(at);
                None
            }
            call => Some(call),
        }
    }

    /// Starts threads, and more of them while requests wait for them and the processors do not,
    /// until the stream has ended.
    fn watch<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let mut threads = 0;
        let mut wanted = THREADS_PER_CORE * self.cores;
        let mut last = (Instant::now(), cpu_seconds());
        while !self.over.load(Relaxed) {
            while threads < wanted {
                self.calls.join();
                scope.spawn(|| self.work());
                threads += 1;
            }
            std::thread::sleep(TICK);
            let now = (Instant::now(), cpu_seconds());
            let busy = (now.1 - last.1)
                / now.0.duration_since(last.0).as_secs_f64().max(1e-6)
                / self.cores as f64;
            if self.calls.is_short_of_threads() && busy < BUSY_SHARE {
                wanted = (threads * 2).min(THREADS_MAX);
            }
            last = now;
        }
    }

    fn work(&self) {
        let mover = Mover {
            copier: Copier::new(Cache::Keep, self.ladder.clone()),
            terms: Terms::default(),
            carrier: None,
            pace: &|_| (),
            stopped: &|| self.over.load(Relaxed),
        };
        let is_over = || self.over.load(Relaxed);
        let is_unwanted = || is_over() || self.ceased.load(Relaxed);
        let (is_over, is_unwanted): (&dyn Fn() -> bool, &dyn Fn() -> bool) =
            (&is_over, &is_unwanted);
        let mut server = Server {
            roots: &self.roots,
            fence: &self.fence,
            table: &self.table,
            pool: &self.pool,
            mover,
            is_over,
            is_unwanted,
        };
        let (mut burst, mut said) = (Burst::default(), Said::default());
        while self.calls.take(&mut burst) {
            while let Some(call) = burst.next(&self.calls).filter(|_| !is_over()) {
                self.carry_out(&mut server, call, &mut said);
            }
            said.send(self);
        }
    }

    fn carry_out(&self, server: &mut Server<'_>, call: Call, said: &mut Said) {
        let (number, stream) = (call.number, call.stream.clone());
        let (expected, max) = (
            call.request.reply_memory() + call.opened_bytes(),
            call.request.reply_max(),
        );
        // A client that does not listen gets no more of this host's memory than that.
        if !self.replies.try_take(expected) {
            // Whoever waits for room must not hold back what makes room.
            said.send(self);
            self.replies.take(expected);
        }
        let outcome = server.carry_out(call);
        let frame = self.frame(number, outcome.replied, max);
        self.replies.give(expected);
        // What waited for this goes on before the client hears of it, and may let go of it.
        let waiting = outcome
            .made
            .map(|(at, object)| self.table.settle(at, object))
            .unwrap_or_default();
        if !waiting.is_empty() {
            self.calls
                .push(waiting.into_iter().filter_map(|call| self.admit(call)));
        }
        said.add(self, stream, frame);
    }

    /// A reply that is to be sent; until it is, its bytes count as memory.
    fn frame(&self, number: u64, (reply, data): Replied, max: ReplyMax) -> Frame {
        self.open.fetch_sub(1, Relaxed);
        let takes_too_much = reply.lists_memory() > max.bytes();
        let head_bytes_max = if takes_too_much { 0 } else { max.head };
        let frame = Frame::new(number, &reply, data).or_too_long(head_bytes_max, Act::SendReply);
        self.replies.overdraw(frame.bytes());
        frame
    }

    fn reply(&self, stream: &Weak<Sender<Frame>>, frame: Frame) {
        let bytes = frame.bytes();
        if stream
            .upgrade()
            .is_none_or(|stream| stream.send(frame).is_err())
        {
            self.replies.give(bytes);
        }
    }
}

/// Replies that are sent together: the thread that writes them is woken once for all.
#[derive(Default)]
struct Said {
    frames: Vec<(Weak<Sender<Frame>>, Frame)>,
    bytes: u64,
}

impl Said {
    fn add(&mut self, agent: &Agent, stream: Weak<Sender<Frame>>, frame: Frame) {
        self.bytes += frame.bytes();
        self.frames.push((stream, frame));
        if self.bytes > SAID_BYTES_MAX {
            self.send(agent);
        }
    }

    fn send(&mut self, agent: &Agent) {
        self.bytes = 0;
        self.frames
            .drain(..)
            .for_each(|(stream, frame)| agent.reply(&stream, frame));
    }
}

fn cpu_seconds() -> f64 {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9
}
