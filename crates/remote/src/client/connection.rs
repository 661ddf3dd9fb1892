//! The connection to an agent, as many threads share it: requests go out as they come, replies find
//! the threads that wait for them.
//!
//! No thread holds the connection while it waits, so thousands of requests are under way at once.
//! What is submitted has its completion kept until somebody asks for it; how much may be submitted
//! is bounded. When the connection is lost, everything that waits fails at once.

use crate::budget::{Budget, Room, Taken};
use crate::wire::{
    Announced, Frame, HEAD_BYTES_MAX, Handle, Reply, ReplyMax, Request, SMALL_BYTES, WireFault,
};
use crossbeam_channel::Sender;
use driftless_lock::{Condvar, Mutex, RwLock};
use driftless_model::{Act, Fault, LINE_LOST, Side, errno};
use driftless_tree::{Done, Loss};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// Bytes of submissions that are not complete, or whose completions nobody has taken, at most. One
/// that is not complete counts as much as its reply may have.
const SUBMITTED_BYTES_MAX: u64 = 80 << 20;
/// Bytes of answers that threads wait for, and of blocks of files that were sent and not answered,
/// at most. What says little is not counted.
const AWAITED_BYTES_MAX: u64 = 24 << 20;
/// What a submission costs besides its data and those of its reply, for that bound; the head of its
/// reply takes no more.
const SUBMISSION_BYTES: u64 = 32 << 10;
/// How another side does not keep to the protocol.
const UNASKED: &str = "reply to an unknown request";
const TOO_MUCH: &str = "reply larger than requested";
/// Answers that one listener takes at once, at most.
const COMPLETIONS_MAX: usize = 16;

/// Where a reply arrives that somebody waits for, now or later.
pub struct Promise {
    /// What its lists may take of memory.
    memory_max: u64,
    frame: Mutex<Option<Result<Frame, ()>>>,
    arrived: Condvar,
}

impl Promise {
    fn of(request: &Request) -> Arc<Promise> {
        Arc::new(Promise {
            memory_max: request.reply_max().bytes(),
            frame: Mutex::default(),
            arrived: Condvar::new(),
        })
    }

    fn keep(&self, frame: Result<Frame, ()>) {
        *self.frame.lock() = Some(frame);
        self.arrived.notify_all();
    }

    /// Waits for the reply; it can be taken once.
    fn take(&self) -> Result<Frame, ()> {
        let mut frame = self.frame.lock();
        loop {
            if let Some(frame) = frame.take() {
                return frame;
            }
            frame = self.arrived.wait(frame);
        }
    }
}

/// Turns the reply to a submission into its completion.
pub type Finish<A> = Box<dyn FnOnce(Result<(Reply, Vec<u8>), WireFault>) -> A + Send>;

/// Room that is held until an answer is here.
pub enum Space {
    /// None.
    Nothing,
    /// That of the answer, which keeps what it takes.
    Completion(Arc<Mutex<Room>>),
    /// That of what was sent.
    Sent(Taken),
}

enum Waiter<A> {
    Promise(Arc<Promise>, Space),
    Submitted {
        token: u64,
        bytes: u64,
        room: u64,
        finish: Finish<A>,
    },
}

/// Somebody who waits, and what the reply may have at most.
struct Waiting<A>(Waiter<A>, ReplyMax);

/// The completion of a submission that nobody has taken yet.
struct Completed<A> {
    token: u64,
    answer: A,
    /// What it counts of what may be submitted.
    bytes: u64,
}

/// A connection. `A` is what submissions complete with.
pub struct Connection<A> {
    /// The streams; the first is the one that the others depend on. Empty when all is lost.
    outs: RwLock<Vec<Sender<Frame>>>,
    turn: AtomicUsize,
    content_bytes: AtomicU64,
    /// Answers that have come.
    come: AtomicU64,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiting<A>>>,
    completions: Mutex<VecDeque<Completed<A>>>,
    answered: Condvar,
    submitted: Budget,
    awaited: Arc<Budget>,
    lost: OnceLock<Loss>,
    /// The shortest time that an answer took, in nanoseconds.
    fastest: AtomicU64,
    /// Directories that were asked for ahead and not used yet.
    pub ahead: AtomicUsize,
    /// Bytes that these take, or may take.
    pub expected: Arc<AtomicU64>,
    /// Bytes of what listings have told and nobody has asked for.
    pub heard: Arc<AtomicU64>,
    /// Bytes by which the names of replicas' directories are known.
    pub known: Arc<AtomicU64>,
    /// Bytes of files that are read ahead.
    pub read_ahead: Arc<AtomicU64>,
}

impl<A: Send> Connection<A> {
    /// A connection whose frames go out through `out`.
    pub fn new(out: Sender<Frame>) -> Self {
        Connection {
            outs: RwLock::new(vec![out]),
            turn: AtomicUsize::new(0),
            content_bytes: AtomicU64::new(0),
            come: AtomicU64::new(0),
            next: AtomicU64::new(1),
            waiting: Mutex::default(),
            completions: Mutex::default(),
            answered: Condvar::new(),
            submitted: Budget::new(SUBMITTED_BYTES_MAX),
            awaited: Arc::new(Budget::new(AWAITED_BYTES_MAX)),
            lost: OnceLock::new(),
            fastest: AtomicU64::new(u64::MAX),
            ahead: AtomicUsize::new(0),
            expected: Arc::default(),
            heard: Arc::default(),
            known: Arc::default(),
            read_ahead: Arc::default(),
        }
    }

    /// A number for a new object.
    pub fn handle(&self) -> Handle {
        self.next.fetch_add(1, Relaxed)
    }

    /// Asks without waiting; the reply is there when the promise is [kept](Connection::wait).
    pub fn ask(&self, request: &Request, data: Vec<u8>) -> Arc<Promise> {
        self.ask_with(request, data, Space::Nothing)
    }

    /// Asks without waiting. Of the room that was taken for it, what the reply does not need is
    /// given back when that is here.
    pub fn ask_with(&self, request: &Request, data: Vec<u8>, space: Space) -> Arc<Promise> {
        let promise = Promise::of(request);
        self.send(request, data, Waiter::Promise(promise.clone(), space));
        promise
    }

    /// Takes room for what a thread waits for, waiting for it. A thread that has some must not wait
    /// for more.
    pub fn awaited(&self, bytes: u64) -> Taken {
        self.awaited.taken(bytes)
    }

    /// Waits for a reply.
    pub fn wait(&self, promise: &Promise) -> Result<(Reply, Vec<u8>), WireFault> {
        let opened = promise.take().map_err(|()| lost_fault()).and_then(open);
        opened.and_then(|opened| within(promise.memory_max, opened))
    }

    /// Asks and waits.
    pub fn call(&self, request: &Request, data: Vec<u8>) -> Result<(Reply, Vec<u8>), WireFault> {
        self.call_and(request, data, || ())
    }

    /// Asks, does `more` while the request is under way, and waits.
    pub fn call_and(
        &self,
        request: &Request,
        data: Vec<u8>,
        more: impl FnOnce(),
    ) -> Result<(Reply, Vec<u8>), WireFault> {
        let max = request.reply_max().bytes();
        let _room = (max > SMALL_BYTES).then(|| self.awaited(max));
        let asked = Instant::now();
        let promise = self.ask(request, data);
        more();
        let answer = self.wait(&promise);
        self.fastest
            .fetch_min(asked.elapsed().as_nanos() as u64, Relaxed);
        answer
    }

    /// How long a round trip takes, by the shortest that was waited for; nothing before the first.
    pub fn round_trip(&self) -> Duration {
        let nanos = self.fastest.load(Relaxed);
        if nanos == u64::MAX {
            Duration::ZERO
        } else {
            Duration::from_nanos(nanos)
        }
    }

    /// Submits a request; `finish` turns its reply into the completion. Waits while too much is
    /// submitted, unless it is `urgent`.
    pub fn submit(
        &self,
        token: u64,
        (request, data): (&Request, Vec<u8>),
        urgent: bool,
        finish: Finish<A>,
    ) {
        let (frame, room) = (self.frame(request, data), request.reply_max().data);
        let bytes = SUBMISSION_BYTES + frame.bytes();
        if urgent {
            self.submitted.overdraw(bytes + room)
        } else {
            self.submitted.take(bytes + room)
        }
        self.send_frame(
            request,
            frame,
            Waiter::Submitted {
                token,
                bytes,
                room,
                finish,
            },
        );
    }

    /// Lets go of an object.
    pub fn forget(&self, at: Handle) {
        self.tell(&Request::Forget { at });
    }

    /// Says what has no reply.
    pub fn tell(&self, request: &Request) {
        if let Some(out) = self.outs().first() {
            let _the_line_is_gone = out.send(Frame::new(0, request, Vec::new()));
        }
    }

    /// How many answers have come.
    pub fn answers_come(&self) -> u64 {
        self.come.load(Relaxed)
    }

    /// Whether something was asked that is not answered.
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.lock().is_empty()
    }

    fn frame(&self, request: &Request, data: Vec<u8>) -> Frame {
        Frame::new(self.next.fetch_add(1, Relaxed), request, data)
    }

    fn send(&self, request: &Request, data: Vec<u8>, waiter: Waiter<A>) {
        self.send_frame(request, self.frame(request, data), waiter);
    }

    fn send_frame(&self, request: &Request, frame: Frame, waiter: Waiter<A>) {
        let number = frame.number();
        self.content_bytes
            .fetch_add(frame.data.len() as u64, Relaxed);
        if frame.head.len() > HEAD_BYTES_MAX {
            return self.answer(
                waiter,
                Ok(frame.or_too_long(HEAD_BYTES_MAX as u64, Act::SendRequest)),
            );
        }
        self.waiting
            .lock()
            .insert(number, Waiting(waiter, request.reply_max()));
        let sent = self
            .stream_for(request)
            .is_some_and(|out| out.send(frame).is_ok());
        // Whoever loses the connection says so first and then answers all who wait: one of the two
        // sees the other.
        if (!sent || self.lost.get().is_some())
            && let Some(Waiting(waiter, _)) = self.waiter(number)
        {
            self.answer(waiter, Err(()));
        }
    }

    fn outs(&self) -> RwLockReadGuard<'_, Vec<Sender<Frame>>> {
        self.outs.read()
    }

    /// What carries content, there or back, takes the streams but the first in turn; everything
    /// else takes the first, and so is not held up.
    fn stream_for(&self, request: &Request) -> Option<Sender<Frame>> {
        let outs = self.outs();
        let heavy = matches!(
            request,
            Request::Make { .. }
                | Request::Fetch { .. }
                | Request::Write { .. }
                | Request::Read { .. }
        );
        let index = if heavy && outs.len() > 1 {
            1 + self.turn.fetch_add(1, Relaxed) % (outs.len() - 1)
        } else {
            0
        };
        outs.get(index).cloned()
    }

    /// Bytes of content that have crossed, both ways.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes.load(Relaxed)
    }

    /// Adds a stream.
    pub fn add_stream(&self, out: Sender<Frame>) {
        let mut outs = self.outs.write();
        if self.lost.get().is_none() {
            outs.push(out);
        }
    }

    fn waiter(&self, number: u64) -> Option<Waiting<A>> {
        self.waiting.lock().remove(&number)
    }

    fn answer(&self, waiter: Waiter<A>, frame: Result<Frame, ()>) {
        match waiter {
            Waiter::Promise(promise, space) => {
                match space {
                    Space::Nothing => {}
                    Space::Completion(room) => {
                        room.lock().shrink(frame.as_ref().map_or(0, Frame::bytes))
                    }
                    Space::Sent(room) => drop(room),
                }
                promise.keep(frame);
            }
            Waiter::Submitted {
                token,
                bytes,
                room,
                finish,
            } => {
                // What came with the answer takes memory until a listener takes it.
                let came = frame.as_ref().map_or(0, Frame::data_bytes);
                self.submitted.give(room.saturating_sub(came));
                let opened = frame.map_err(|()| lost_fault()).and_then(open);
                let answer = finish(opened.and_then(|opened| within(SUBMISSION_BYTES, opened)));
                self.hand_over(Completed {
                    token,
                    answer,
                    bytes: bytes + came.min(room),
                });
            }
        }
    }

    fn hand_over(&self, answered: Completed<A>) {
        let mut completions = self.completions.lock();
        completions.push_back(answered);
        // More than one answer is worth one listener's waking.
        if completions.len() == 1 || completions.len().is_multiple_of(COMPLETIONS_MAX) {
            self.answered.notify_one();
        }
    }

    /// Completes what is not sent.
    pub fn refuse(&self, token: u64, answer: A) {
        self.hand_over(Completed {
            token,
            answer,
            bytes: 0,
        });
    }

    /// Whether a frame that begins so may come.
    ///
    /// # Errors
    /// Nobody waits for it, or it has more than the reply may have: how the other side breaks the
    /// protocol.
    pub fn admit(&self, announced: &Announced) -> Result<(), &'static str> {
        // What answers nothing says that the other side is there, and no more.
        let alive = ReplyMax {
            head: SMALL_BYTES,
            data: 0,
        };
        let asked = || {
            self.waiting
                .lock()
                .get(&announced.number())
                .map(|waiting| waiting.1)
        };
        let max = if announced.number() == 0 {
            Some(alive)
        } else {
            asked()
        };
        let max = max.ok_or(UNASKED)?;
        if announced.head as u64 > max.head || announced.data as u64 > max.data {
            Err(TOO_MUCH)
        } else {
            Ok(())
        }
    }

    /// A frame has come.
    ///
    /// # Errors
    /// Nobody waits for it, or it has more than the reply may have: how the other side breaks the
    /// protocol.
    pub fn arrived(&self, frame: Frame) -> Result<(), &'static str> {
        self.content_bytes
            .fetch_add(frame.data.len() as u64, Relaxed);
        self.come.fetch_add(1, Relaxed);
        let Waiting(waiter, max) = self.waiter(frame.number()).ok_or(UNASKED)?;
        if frame.head.len() as u64 > max.head || frame.data_bytes() > max.data {
            // Whoever waits hears of it when the connection is lost for it.
            self.waiting
                .lock()
                .insert(frame.number(), Waiting(waiter, max));
            return Err(TOO_MUCH);
        }
        self.answer(waiter, Ok(frame));
        Ok(())
    }

    /// The next completions of submissions; none if none comes within `wait`.
    pub fn next_completions(&self, wait: Duration) -> Vec<(u64, A)> {
        let mut completions = self.completions.lock();
        if completions.is_empty() {
            completions = self.answered.wait_for(completions, wait);
        }
        let some = completions.len().min(COMPLETIONS_MAX);
        let taken: Vec<Completed<A>> = completions.drain(..some).collect();
        drop(completions);
        if !taken.is_empty() {
            self.submitted
                .give(taken.iter().map(|answered| answered.bytes).sum());
        }
        taken
            .into_iter()
            .map(|Completed { token, answer, .. }| (token, answer))
            .collect()
    }

    /// The connection is lost: the threads that wait hear of it.
    pub fn lose(&self, loss: Loss) {
        let _the_first_reason_counts = self.lost.set(loss);
        self.outs.write().clear();
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting
            .into_values()
            .for_each(|Waiting(waiter, _)| self.answer(waiter, Err(())));
    }

    /// Why the connection is lost, if it is.
    pub fn lost(&self) -> Option<Loss> {
        self.lost.get().cloned()
    }
}

/// What every act on a tree fails with whose connection is lost. Nothing else makes one.
fn lost_fault() -> WireFault {
    WireFault::new(Act::ReachAgent, LINE_LOST)
}

/// A fault of the other side is an error here; what cannot be understood is, too.
fn open(frame: Frame) -> Result<(Reply, Vec<u8>), WireFault> {
    match frame.message() {
        Ok(Reply::Fault(fault)) => Err(fault),
        Ok(reply) => frame
            .into_data()
            .map(|data| (reply, data))
            .map_err(|_| nonsense()),
        Err(_) => Err(nonsense()),
    }
}

/// An opened reply, if its lists take no more of memory than that, of which the length of a message
/// says little.
fn within(memory_max: u64, opened: (Reply, Vec<u8>)) -> Result<(Reply, Vec<u8>), WireFault> {
    if opened.0.lists_memory() <= memory_max {
        Ok(opened)
    } else {
        Err(nonsense())
    }
}

/// The reply is none to this request.
pub fn nonsense() -> WireFault {
    WireFault::new(Act::Understand, errno::EPROTO)
}

/// A result on one side of a run.
pub fn on<T>(side: Side, result: Result<T, WireFault>) -> Done<T> {
    result.map_err(|fault| -> Fault { fault.on(side) })
}

#[cfg(test)]
mod tests;
