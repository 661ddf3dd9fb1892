//! The agent: what runs on the other host and serves its file systems to a client, over its standard input and output.
//!
//! One thread reads requests, some carry them out, one writes replies. Requests that need nothing of each other are carried out
//! at the same time. When the line ends, or its client falls silent, so does the agent: what waits is dropped, what takes long is broken
//! off, and when nothing is under way any more, locks and open files go.

use crate::alive::{BEAT, CLIENT_SILENCE_SECONDS, Ear};
use crate::budget::{Budget, Taken};
use crate::compress::FrameCompressor;
use crate::confine::{can_hold, confine, confine_within};
use crate::fence::Fence;
use crate::gather::Gathering;
use crate::greeting::greet;
use crate::jobs::{Handful, Jobs};
use crate::limits::Limits;
use crate::serve::{Replied, Server};
use crate::table::{JOB_BYTES, Job, Table};
use crate::wire::{Announced, Frame, Hello, Opening, Reply, ReplyMax, Request, Root, WireFault, bad};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use driftless_lock::Mutex;
use driftless_model::Act;
use driftless_mover::{Mover, Terms};
use driftless_tree::{Cache, Copier, HandlePool, Ladder};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Requests that were read and not answered, at most; then the line waits.
const OPEN_MAX: usize = 32 * 1024;
/// Bytes of requests that were read and not carried out, at most; then all lines wait. More than a client sends ahead that keeps to its own
/// bounds (80 MiB of small files, 24 MiB of large ones): a line that waits for room must not hold up what would make room.
const REQUEST_BYTES_MAX: u64 = 112 << 20;
/// Bytes of replies that are being made, of content that is open for it, and of replies that wait to be written, at most.
const REPLY_BYTES_MAX: u64 = 64 << 20;
/// Lines of one client at most; no client asks for more (`--streams`).
const LINES_MAX: usize = 64;
/// Bytes of replies that wait for others to be sent together with them, at most.
const SAID_BYTES_MAX: u64 = 64 << 10;
/// Requests that wait for others to be handed out together with them, at most.
const READY_MAX: usize = 64;
/// Bytes that are read or written at once.
const LINE_BYTES: usize = 256 * 1024;
/// Threads at most, however slow the file system is.
const THREADS_MAX: usize = 128;
/// Threads a processor to begin with.
const THREADS_PER_CORE: usize = 2;
/// How long the last replies may take to be written when the line has ended: nobody may be there to read them.
const PARTING: Duration = Duration::from_secs(2);
/// Between two looks at whether more threads would help.
const TICK: Duration = Duration::from_millis(10);
/// How long small messages that follow each other wait for those behind them: each that goes out alone costs both hosts several system
/// calls, and their ssh a packet.
const GATHERING: Duration = Duration::from_micros(100);
/// Above this share of the processors' time more threads do not help.
const BUSY_SHARE: f64 = 0.7;

/// Why clients that are limited are not served.
const NO_LANDLOCK: &str = "this kernel has no Landlock (Linux 5.19 or later) to hold clients to --only and --read-only: have the agent's own \
    checks do with --without-landlock";

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
    jobs: Jobs,
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
    /// Further lines that are there or are being handed over.
    brought: AtomicUsize,
    /// Where further lines of the same client are handed over.
    gathering: Mutex<Option<Gathering>>,
    /// At which level of zstd content is compressed on all lines, if the client wants it.
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

/// Serves one client until the line ends. An error says that it broke, that the client does not keep to the protocol, or that the limits
/// cannot be held. This thread, which must be the only one, and all that it starts then are confined to the client's roots.
pub fn serve(input: File, output: File, service: Service) -> io::Result<()> {
    let Service { directories_max, compress, limits, without_kernel } = service;
    let (mut input, mut output) = (heard(input), BufWriter::with_capacity(LINE_BYTES, output));
    let pool = HandlePool::new(directories_max);
    let needs_kernel = limits.need_kernel() && !without_kernel;
    if needs_kernel && !can_hold() {
        return Err(io::Error::other(NO_LANDLOCK));
    }
    let fence = Fence::open(limits, &pool)?;
    let hello = Hello { limits: fence.limits().clone(), compresses: compress.is_some(), ..Hello::own() };
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
    let Some(Opening { roots }) = Opening::read(&mut input)? else { return Ok(()) };
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
        jobs: Jobs::default(),
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
        let read = agent.serve_line(scope, input, output);
        agent.end();
        watcher.join().expect("the watcher does not panic");
        read
    });
    // Nothing is under way any more that a lock stands for.
    agent.table.forget_all();
    drop(agent);
    let _they_are_through_or_nobody_reads = written.recv_timeout(PARTING);
    read
}

/// A further line, which counts as long as this is there.
struct Brought<'a>(&'a AtomicUsize);

impl Drop for Brought<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The end of a line at which requests arrive.
fn heard<'a>(input: File) -> BufReader<Ear<'a, File>> {
    BufReader::with_capacity(LINE_BYTES, Ear::new(input))
}

impl Agent {
    /// Serves one line until it ends.
    fn serve_line<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        mut input: BufReader<Ear<'scope, File>>,
        output: BufWriter<File>,
    ) -> io::Result<()> {
        let silence = (CLIENT_SILENCE_SECONDS, CLIENT_SILENCE_SECONDS);
        input.get_mut().watch(Box::new(|| self.wanted()), silence);
        let replies = self.start_writer(output);
        self.table.lines.fetch_add(1, Relaxed);
        self.read_all(scope, &mut input, &Arc::new(replies))
    }

    /// Starts the thread that writes what this line's client is told. None waits for it for ever: its client may not read any more.
    fn start_writer(&self, mut output: BufWriter<File>) -> Sender<Frame> {
        let (replies, written) = unbounded();
        let (compressor, budget, writing) = (FrameCompressor::new(self.compress), self.replies.clone(), self.writing.clone());
        std::thread::spawn(move || {
            let beat = || Frame::new(0, &Reply::Alive, Vec::new());
            write_all(&mut output, (&written, compressor), beat, |bytes| budget.give(bytes));
            drop(writing);
        });
        replies
    }

    /// An error ends the reading of a line when the first one has ended.
    fn wanted(&self) -> io::Result<()> {
        if self.over.load(Relaxed) { Err(ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    /// Ends all threads but those that write.
    fn end(&self) {
        self.over.store(true, Relaxed);
        self.close_others();
        self.jobs.end();
        // Who waits until replies are written waits for a client that is gone.
        self.replies.open();
    }

    fn read_all<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        input: &mut BufReader<Ear<'_, File>>,
        line: &Arc<Sender<Frame>>,
    ) -> io::Result<()> {
        let mut ready = Vec::new();
        loop {
            // What has arrived together is handed out together, before this thread waits for more.
            if input.buffer().is_empty() || ready.len() >= READY_MAX {
                self.jobs.push(ready.drain(..));
            }
            let admit = |input: &mut BufReader<Ear<'_, File>>, announced: &Announced| {
                announced.check_agreed(self.compress.is_some())?;
                self.room(input.get_ref(), announced, &mut ready)
            };
            let Some(read) = Frame::read_admitted(input, admit)? else { return Ok(()) };
            let job = Job::of(read, line)?;
            match job.request {
                Request::Alive => continue,
                Request::Cease => {
                    self.ceased.store(true, Relaxed);
                    continue;
                }
                Request::Gather { secret } => {
                    self.open.fetch_add(1, Relaxed);
                    let frame = self.frame(job.number, (self.gather(scope, secret), Vec::new()), job.request.reply_max());
                    self.reply(&Arc::downgrade(line), frame);
                    continue;
                }
                _ => {}
            }
            if !self.table.announce(&job) {
                return Err(bad("a number is given twice, or too many are"));
            }
            while self.open.load(Relaxed) >= OPEN_MAX {
                self.wanted()?;
                input.get_ref().check_open()?;
                if self.table.parked.load(Relaxed) >= OPEN_MAX {
                    return Err(bad("all requests wait for objects that are never made"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            if job.is_answered() {
                self.open.fetch_add(1, Relaxed);
            }
            ready.extend(self.admit(job));
        }
    }

    /// Takes room for a request, once there is any; what was read before it is carried out meanwhile.
    fn room(&self, input: &Ear<'_, File>, announced: &Announced, ready: &mut Vec<Job>) -> io::Result<Taken> {
        let bytes = JOB_BYTES + announced.bytes();
        if self.requests.is_short_of(bytes) {
            self.jobs.push(ready.drain(..));
        }
        self.requests.taken_while(bytes, || self.wanted().and_then(|()| input.check_open()))
    }

    /// Begins to take further lines of this client, which knows them by this number.
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
        let hello = Hello { joined: secret, ..self.hello.clone() };
        scope.spawn(move || self.take_lines(scope, &hello));
        *self.gathering.lock() = Some(gathering);
        told(place)
    }

    fn take_lines<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, hello: &Hello) {
        while !self.over.load(Relaxed) {
            // What a process does that has connected must hold nobody up, so only the look for one takes the lock.
            let Some(bringer) = self.gathering.lock().as_ref().and_then(Gathering::accept) else {
                std::thread::sleep(TICK);
                continue;
            };
            if self.brought.load(Relaxed) >= LINES_MAX {
                continue;
            }
            self.brought.fetch_add(1, Relaxed);
            let hello = hello.clone();
            scope.spawn(move || {
                let _brought = Brought(&self.brought);
                let Some((input, output)) = bringer.line(|| self.over.load(Relaxed)) else { return };
                let (input, mut output) = (heard(File::from(input)), BufWriter::with_capacity(LINE_BYTES, File::from(output)));
                // One line that breaks ends only itself: what was asked on it fails on the client's side.
                let _its_end_is_told_by_the_peer = greet(&mut output, &hello).and_then(|()| self.serve_line(scope, input, output));
                drop(bringer);
            });
        }
    }

    fn close_others(&self) {
        self.gathering.lock().take();
    }

    /// The request, if it can be carried out now.
    fn admit(&self, job: Job) -> Option<Job> {
        match self.table.admit(job)? {
            Job { request: Request::Forget { at }, .. } => {
                self.table.forget(at);
                None
            }
            job => Some(job),
        }
    }

    /// Starts threads, and more of them while requests wait for them and the processors do not, until the line has ended.
    fn watch<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let mut threads = 0;
        let mut wanted = THREADS_PER_CORE * self.cores;
        let mut last = (Instant::now(), cpu_seconds());
        while !self.over.load(Relaxed) {
            while threads < wanted {
                self.jobs.join();
                scope.spawn(|| self.work());
                threads += 1;
            }
            std::thread::sleep(TICK);
            let now = (Instant::now(), cpu_seconds());
            let busy = (now.1 - last.1) / now.0.duration_since(last.0).as_secs_f64().max(1e-6) / self.cores as f64;
            if self.jobs.is_short_of_threads() && busy < BUSY_SHARE {
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
        let (is_over, is_unwanted): (&dyn Fn() -> bool, &dyn Fn() -> bool) = (&is_over, &is_unwanted);
        let mut server =
            Server { roots: &self.roots, fence: &self.fence, table: &self.table, pool: &self.pool, mover, is_over, is_unwanted };
        let (mut handful, mut said) = (Handful::default(), Said::default());
        while self.jobs.take(&mut handful) {
            while let Some(job) = handful.next(&self.jobs).filter(|_| !is_over()) {
                self.carry_out(&mut server, job, &mut said);
            }
            said.send(self);
        }
    }

    fn carry_out(&self, server: &mut Server<'_>, job: Job, said: &mut Said) {
        let (number, line) = (job.number, job.line.clone());
        let (expected, max) = (job.request.reply_memory() + job.opened_bytes(), job.request.reply_max());
        // A client that does not listen gets no more of this host's memory than that.
        if !self.replies.try_take(expected) {
            // Whoever waits for room must not hold back what makes room.
            said.send(self);
            self.replies.take(expected);
        }
        let outcome = server.carry_out(job);
        let frame = self.frame(number, outcome.replied, max);
        self.replies.give(expected);
        // What waited for this goes on before the client hears of it, and may let go of it.
        let waiting = outcome.made.map(|(at, object)| self.table.settle(at, object)).unwrap_or_default();
        if !waiting.is_empty() {
            self.jobs.push(waiting.into_iter().filter_map(|job| self.admit(job)));
        }
        said.add(self, line, frame);
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

    fn reply(&self, line: &Weak<Sender<Frame>>, frame: Frame) {
        let bytes = frame.bytes();
        if line.upgrade().is_none_or(|line| line.send(frame).is_err()) {
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
    fn add(&mut self, agent: &Agent, line: Weak<Sender<Frame>>, frame: Frame) {
        self.bytes += frame.bytes();
        self.frames.push((line, frame));
        if self.bytes > SAID_BYTES_MAX {
            self.send(agent);
        }
    }

    fn send(&mut self, agent: &Agent) {
        self.bytes = 0;
        self.frames.drain(..).for_each(|(line, frame)| agent.reply(&line, frame));
    }
}

fn cpu_seconds() -> f64 {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9
}

/// Writes frames, and tells the bytes of each that is through, as many as it had before it was compressed; what stands in the buffer goes out
/// when no more wait, and, where many follow each other, not more often than once in [`GATHERING`]. Where there is nothing to say for a
/// while, a `beat` says that this side is there. Reads on when the line is gone, so that nobody waits for it.
pub fn write_all(
    line: &mut impl Write,
    (frames, mut compressor): (&Receiver<Frame>, FrameCompressor),
    beat: impl Fn() -> Frame,
    through: impl Fn(u64),
) {
    let (mut whole, mut holds, mut went) = (Ok(()), false, Instant::now());
    loop {
        let wait = if holds { GATHERING.saturating_sub(went.elapsed()) } else { BEAT };
        match frames.recv_timeout(wait) {
            Ok(frame) => {
                let bytes = frame.bytes();
                whole = whole.and_then(|()| compressor.compress(frame).write(line));
                through(bytes);
            }
            Err(RecvTimeoutError::Timeout) if holds => {}
            Err(RecvTimeoutError::Timeout) => whole = whole.and_then(|()| beat().write(line)),
            Err(RecvTimeoutError::Disconnected) => break,
        }
        holds = went.elapsed() < GATHERING;
        if !holds && frames.is_empty() {
            whole = whole.and_then(|()| line.flush());
            went = Instant::now();
        }
    }
    let _it_was_written_or_the_line_is_gone = line.flush();
}
