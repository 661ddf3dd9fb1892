//! The line to an agent, as many threads share it: requests go out as they come, replies find whoever waits for them.
//!
//! Nobody holds the line while he waits, so thousands of requests are under way at once. What is posted has its answer kept until
//! somebody asks for it; how much may be posted is bounded. When the line is lost, everything that waits fails at once.

use crate::budget::Budget;
use crate::wire::{Frame, HEAD_BYTES_MAX, Handle, Reply, Request, WireFault};
use crossbeam_channel::Sender;
use driftless_model::{Act, Fault, LINE_LOST, Side};
use driftless_tree::{Done, Loss};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// Bytes of posted orders that were not answered, or whose answers nobody has taken, at most.
const POSTED_BYTES_MAX: u64 = 32 << 20;
/// What an order costs besides its data, for that bound: a reply may carry a file of this size.
const ORDER_BYTES: u64 = 32 << 10;
/// Answers that one listener takes at once, at most.
const ANSWERS_MAX: usize = 16;
/// `EPROTO` of errno(3).
const EPROTO: i32 = 71;

/// Locks, also after a panic elsewhere.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a reply arrives that somebody waits for, now or later.
#[derive(Default)]
pub struct Promise {
    frame: Mutex<Option<Result<Frame, ()>>>,
    arrived: Condvar,
}

impl Promise {
    fn keep(&self, frame: Result<Frame, ()>) {
        *lock(&self.frame) = Some(frame);
        self.arrived.notify_all();
    }

    /// Waits for the reply; it can be taken once.
    fn take(&self) -> Result<Frame, ()> {
        let mut frame = lock(&self.frame);
        loop {
            if let Some(frame) = frame.take() {
                return frame;
            }
            frame = self.arrived.wait(frame).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Turns the reply to a posted order into its answer.
pub type Finish<A> = Box<dyn FnOnce(Result<(Reply, Vec<u8>), WireFault>) -> A + Send>;

enum Waiter<A> {
    Promise(Arc<Promise>),
    Posted { token: u64, bytes: u64, finish: Finish<A> },
}

/// The answer to a posted order that nobody has taken yet.
struct Answered<A> {
    token: u64,
    answer: A,
    /// What it counts of what may be posted.
    bytes: u64,
}

/// A line. `A` is what posted orders are answered with.
pub struct Link<A> {
    /// The lines; the first is the one that the others depend on. Empty when all is lost.
    outs: RwLock<Vec<Sender<Frame>>>,
    turn: AtomicUsize,
    content_bytes: AtomicU64,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiter<A>>>,
    answers: Mutex<VecDeque<Answered<A>>>,
    answered: Condvar,
    posted: Budget,
    lost: OnceLock<Loss>,
    /// The shortest time that an answer took, in nanoseconds.
    fastest: AtomicU64,
    /// Directories that were asked for ahead and not used yet.
    pub ahead: AtomicUsize,
}

impl<A: Send> Link<A> {
    /// A line whose frames go out through `out`.
    pub fn new(out: Sender<Frame>) -> Self {
        Link {
            outs: RwLock::new(vec![out]),
            turn: AtomicUsize::new(0),
            content_bytes: AtomicU64::new(0),
            next: AtomicU64::new(1),
            waiting: Mutex::default(),
            answers: Mutex::default(),
            answered: Condvar::new(),
            posted: Budget::new(POSTED_BYTES_MAX),
            lost: OnceLock::new(),
            fastest: AtomicU64::new(u64::MAX),
            ahead: AtomicUsize::new(0),
        }
    }

    /// A number for a new object.
    pub fn handle(&self) -> Handle {
        self.next.fetch_add(1, Relaxed)
    }

    /// Asks without waiting; the reply is there when the promise is [kept](Link::wait).
    pub fn ask(&self, request: &Request, data: Vec<u8>) -> Arc<Promise> {
        let promise = Arc::new(Promise::default());
        self.send(request, data, Waiter::Promise(promise.clone()));
        promise
    }

    /// Waits for a reply.
    pub fn wait(&self, promise: &Promise) -> Result<(Reply, Vec<u8>), WireFault> {
        promise.take().map_err(|()| lost_fault()).and_then(open)
    }

    /// Asks and waits.
    pub fn call(&self, request: &Request, data: Vec<u8>) -> Result<(Reply, Vec<u8>), WireFault> {
        let asked = Instant::now();
        let answer = self.wait(&self.ask(request, data));
        self.fastest.fetch_min(asked.elapsed().as_nanos() as u64, Relaxed);
        answer
    }

    /// How long a round trip takes, by the shortest that was waited for; nothing before the first.
    pub fn round_trip(&self) -> Duration {
        let nanos = self.fastest.load(Relaxed);
        if nanos == u64::MAX { Duration::ZERO } else { Duration::from_nanos(nanos) }
    }

    /// Posts an order; `finish` turns its reply into the answer. Waits while too much is posted, unless it is `urgent`.
    pub fn post(&self, token: u64, (request, data): (&Request, Vec<u8>), urgent: bool, finish: Finish<A>) {
        let bytes = ORDER_BYTES + data.len() as u64;
        if urgent {
            self.posted.overdraw(bytes)
        } else {
            self.posted.take(bytes)
        }
        self.send(request, data, Waiter::Posted { token, bytes, finish });
    }

    /// Lets go of an object.
    pub fn forget(&self, at: Handle) {
        if let Some(out) = self.outs().first() {
            let _the_line_is_gone = out.send(Frame::new(0, &Request::Forget { at }, Vec::new()));
        }
    }

    fn send(&self, request: &Request, data: Vec<u8>, waiter: Waiter<A>) {
        let number = self.next.fetch_add(1, Relaxed);
        self.content_bytes.fetch_add(data.len() as u64, Relaxed);
        let frame = Frame::new(number, request, data);
        if frame.head.len() > HEAD_BYTES_MAX {
            return self.answer(waiter, Ok(frame.or_too_long(Act::SendRequest)));
        }
        lock(&self.waiting).insert(number, waiter);
        let sent = self.line_for(request).is_some_and(|out| out.send(frame).is_ok());
        // Whoever loses the line says so first and then answers all who wait: one of the two sees the other.
        if (!sent || self.lost.get().is_some())
            && let Some(waiter) = self.waiter(number)
        {
            self.answer(waiter, Err(()));
        }
    }

    fn outs(&self) -> RwLockReadGuard<'_, Vec<Sender<Frame>>> {
        self.outs.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What carries content, there or back, takes the lines but the first in turn; everything else takes the first, and so is not held up.
    fn line_for(&self, request: &Request) -> Option<Sender<Frame>> {
        let outs = self.outs();
        let heavy = matches!(request, Request::Make { .. } | Request::Fetch { .. } | Request::Write { .. } | Request::Read { .. });
        let index = if heavy && outs.len() > 1 { 1 + self.turn.fetch_add(1, Relaxed) % (outs.len() - 1) } else { 0 };
        outs.get(index).cloned()
    }

    /// Bytes of content that have crossed, both ways.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes.load(Relaxed)
    }

    /// Adds a line.
    pub fn add_line(&self, out: Sender<Frame>) {
        let mut outs = self.outs.write().unwrap_or_else(PoisonError::into_inner);
        if self.lost.get().is_none() {
            outs.push(out);
        }
    }

    fn waiter(&self, number: u64) -> Option<Waiter<A>> {
        lock(&self.waiting).remove(&number)
    }

    fn answer(&self, waiter: Waiter<A>, frame: Result<Frame, ()>) {
        match waiter {
            Waiter::Promise(promise) => promise.keep(frame),
            Waiter::Posted { token, bytes, finish } => {
                // What came with the answer takes memory until a listener takes it.
                let came = frame.as_ref().map_or(0, |frame| frame.data.len() as u64);
                self.posted.overdraw(came);
                let answer = finish(frame.map_err(|()| lost_fault()).and_then(open));
                self.hand_over(Answered { token, answer, bytes: bytes + came });
            }
        }
    }

    fn hand_over(&self, answered: Answered<A>) {
        let mut answers = lock(&self.answers);
        answers.push_back(answered);
        // More than one answer is worth one listener's waking.
        if answers.len() == 1 || answers.len().is_multiple_of(ANSWERS_MAX) {
            self.answered.notify_one();
        }
    }

    /// Answers an order that is not sent.
    pub fn refuse(&self, token: u64, answer: A) {
        self.hand_over(Answered { token, answer, bytes: 0 });
    }

    /// A frame has come. `false` if nobody waits for it.
    pub fn arrived(&self, frame: Frame) -> bool {
        self.content_bytes.fetch_add(frame.data.len() as u64, Relaxed);
        let waiter = self.waiter(frame.number());
        waiter.map(|waiter| self.answer(waiter, Ok(frame))).is_some()
    }

    /// The next answers to posted orders; none if none comes within `wait`.
    pub fn next_answers(&self, wait: Duration) -> Vec<(u64, A)> {
        let mut answers = lock(&self.answers);
        if answers.is_empty() {
            answers = self.answered.wait_timeout(answers, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        let some = answers.len().min(ANSWERS_MAX);
        let taken: Vec<Answered<A>> = answers.drain(..some).collect();
        drop(answers);
        if !taken.is_empty() {
            self.posted.give(taken.iter().map(|answered| answered.bytes).sum());
        }
        taken.into_iter().map(|Answered { token, answer, .. }| (token, answer)).collect()
    }

    /// The line is lost: whoever waits hears of it.
    pub fn lose(&self, loss: Loss) {
        let _the_first_reason_counts = self.lost.set(loss);
        self.outs.write().unwrap_or_else(PoisonError::into_inner).clear();
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        waiting.into_values().for_each(|waiter| self.answer(waiter, Err(())));
    }

    /// Why the line is lost, if it is.
    pub fn lost(&self) -> Option<Loss> {
        self.lost.get().cloned()
    }
}

/// What every act on a tree fails with whose line is lost. Nothing else makes one.
fn lost_fault() -> WireFault {
    WireFault::new(Act::ReachAgent, LINE_LOST)
}

/// A fault of the other side is an error here; what cannot be understood is, too.
fn open(frame: Frame) -> Result<(Reply, Vec<u8>), WireFault> {
    match frame.message() {
        Ok(Reply::Fault(fault)) => Err(fault),
        Ok(reply) => frame.into_data().map(|data| (reply, data)).map_err(|_| nonsense()),
        Err(_) => Err(nonsense()),
    }
}

/// The reply is none to this request.
pub fn nonsense() -> WireFault {
    WireFault::new(Act::Understand, EPROTO)
}

/// A result on one side of a run.
pub fn on<T>(side: Side, result: Result<T, WireFault>) -> Done<T> {
    result.map_err(|fault| -> Fault { fault.on(side) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::unbounded;

    #[test]
    fn no_more_is_posted_while_what_came_takes_all_the_room() {
        let (out, frames) = unbounded();
        let link: Link<()> = Link::new(out);
        let post = |token| link.post(token, (&Request::Meta { at: 1 }, Vec::new()), false, Box::new(|_| ()));
        post(1);
        let number = frames.recv().expect("it was posted").number();
        assert!(link.arrived(Frame::new(number, &Reply::Done, vec![0; POSTED_BYTES_MAX as usize])));
        std::thread::scope(|scope| {
            scope.spawn(|| post(2));
            assert!(frames.recv_timeout(Duration::from_millis(200)).is_err(), "nobody has taken the first answer");
            assert_eq!(link.next_answers(Duration::ZERO).len(), 1);
            assert!(frames.recv().is_ok(), "there is room again");
        });
    }
}
