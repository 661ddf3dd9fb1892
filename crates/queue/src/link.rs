//! A connection that is made anew whenever it is lost: the supervisor.
//!
//! Connecting runs as a task of its own, with pauses that grow, until it succeeds or the patience
//! with the broker is at an end. So a call with a short limit neither cuts it off nor waits longer
//! than its limit. It begins with a call that needs the connection; nobody connects for a caller
//! who has gone.

use crate::backoff::Backoff;
use crate::deadline::Deadline;
use crate::session::{Role, Session};
use crate::topology::Topology;
use crate::{Broker, Error};
use driftless_lock::Mutex;
use futures_lite::StreamExt;
use lapin::{Connection, Event};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;
use tokio::task::{AbortHandle, JoinHandle};

/// The broker takes no messages since then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// When it said so.
    pub since: Instant,
    /// Why, in its words, such as `low on memory`.
    pub why: String,
}

/// What the broker last said about taking messages, and on which connection; outlives connections,
/// so that one that is made anew under the same alarm does not begin a new time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(Arc<Mutex<Option<(Blocked, u64)>>>);

/// The connection for one purpose.
pub(crate) struct Link {
    plan: Arc<Plan>,
    state: State,
    was_up: bool,
    epoch: Arc<AtomicU64>,
    gate: Gate,
    last: Arc<Mutex<String>>,
}

/// All that is needed to connect.
struct Plan {
    broker: Broker,
    topology: Topology,
    role: Role,
}

enum State {
    Down,
    Trying(JoinHandle<Result<Session, Error>>),
    Up(Box<Session>),
}

impl Link {
    pub(crate) fn new(broker: &Broker, topology: Topology, role: Role) -> Link {
        Link {
            plan: Arc::new(Plan {
                broker: broker.clone(),
                topology,
                role,
            }),
            state: State::Down,
            was_up: false,
            epoch: Arc::default(),
            gate: Gate::default(),
            last: Arc::default(),
        }
    }

    pub(crate) fn broker(&self) -> &Broker {
        &self.plan.broker
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The number of the connection that stands; what belongs to an older one is void.
    pub(crate) fn epoch(&self) -> &Arc<AtomicU64> {
        &self.epoch
    }

    /// What the last try to connect ended with.
    pub(crate) fn last_failure(&self) -> String {
        let last = self.last.lock();
        if last.is_empty() {
            "no answer yet".to_owned()
        } else {
            last.clone()
        }
    }

    /// The session that stands, or a new one. May be dropped while it waits: connecting goes on.
    pub(crate) async fn session(&mut self) -> Result<&mut Session, Error> {
        if matches!(&self.state, State::Up(session) if !session.is_alive()) {
            self.lose();
        }
        self.begin();
        if let State::Trying(task) = &mut self.state {
            let outcome = task
                .await
                .unwrap_or_else(|_| Err(self.plan.broker.lost("the task that connects was ended")));
            self.state = State::Down;
            self.state = State::Up(Box::new(outcome?));
            self.was_up = true;
        }
        match &mut self.state {
            State::Up(session) => Ok(session),
            _ => Err(self.plan.broker.lost("not connected")),
        }
    }

    /// Begins to connect, if there is no connection.
    pub(crate) fn begin(&mut self) {
        if matches!(self.state, State::Down) {
            let (plan, last, gate, again) = (
                self.plan.clone(),
                self.last.clone(),
                self.gate.clone(),
                self.was_up,
            );
            let epoch = self.epoch.load(Ordering::SeqCst);
            let connecting = async move {
                let mut session = establish(&plan, &last, again).await?;
                session.listener = Some(listen(&session.connection, gate, epoch));
                Ok(session)
            };
            self.state = State::Trying(self.plan.broker.runtime.spawn(connecting));
        }
    }

    /// Takes note that the broker has confirmed something on the session that stands.
    pub(crate) fn confirmed(&self) {
        self.gate.confirmed(self.epoch.load(Ordering::SeqCst));
    }

    /// The session, if one stands at this moment.
    pub(crate) fn standing(&mut self) -> Option<&mut Session> {
        match &mut self.state {
            State::Up(session) if session.is_alive() => Some(session),
            _ => None,
        }
    }

    /// Gives the session up, if there is one; all that came by it is void from now on.
    pub(crate) fn lose(&mut self) {
        if matches!(self.state, State::Up(_))
            && let State::Up(session) = std::mem::replace(&mut self.state, State::Down)
        {
            self.epoch.fetch_add(1, Ordering::SeqCst);
            self.plan.broker.runtime.spawn(session.close());
        }
    }
}

impl Drop for Link {
    /// Ends the connection in order and waits for it, within bounds: acknowledgements may still be
    /// on their way.
    fn drop(&mut self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        match std::mem::replace(&mut self.state, State::Down) {
            State::Down => {}
            State::Trying(task) => task.abort(),
            State::Up(session) => self.plan.broker.runtime.block_on(session.close()),
        }
    }
}

impl Gate {
    pub(crate) fn blocked(&self) -> Option<Blocked> {
        self.lock().as_ref().map(|(blocked, _)| blocked.clone())
    }

    fn shut(&self, why: String, epoch: u64) {
        let mut gate = self.lock();
        let since = gate
            .as_ref()
            .map_or_else(Instant::now, |(blocked, _)| blocked.since);
        *gate = Some((Blocked { since, why }, epoch));
    }

    fn open(&self) {
        *self.lock() = None;
    }

    /// Something was confirmed on the connection `epoch`. If an older one was blocked, nobody told
    /// us of the end of it.
    fn confirmed(&self, epoch: u64) {
        let mut gate = self.lock();
        if gate.as_ref().is_some_and(|(_, shut)| *shut < epoch) {
            *gate = None;
        }
    }

    /// The error of a call that has waited to its end.
    pub(crate) fn late(&self, broker: &Broker, deadline: Deadline) -> Error {
        let broker = broker.url().to_string();
        match self.blocked() {
            Some(blocked) => Error::Blocked {
                broker,
                seconds: blocked.since.elapsed().as_secs(),
                why: blocked.why,
            },
            None => Error::Unconfirmed {
                broker,
                seconds: deadline.waited().as_secs(),
            },
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Blocked, u64)>> {
        self.0.lock()
    }
}

/// Tries until it succeeds, is refused the first time, or has taken longer than the broker may be
/// away.
async fn establish(plan: &Plan, last: &Mutex<String>, again: bool) -> Result<Session, Error> {
    let (begin, mut backoff) = (Instant::now(), Backoff::default());
    loop {
        let failure = match Session::open(&plan.broker, &plan.topology, &plan.role).await {
            Ok(session) => return Ok(session),
            Err(failure) => failure,
        };
        // A broker that let us in before may refuse for a while when it restarts.
        if failure.for_good && !again {
            return Err(failure.error);
        }
        let pause = backoff.pause();
        if begin.elapsed() + pause > plan.broker.patience() {
            return Err(plan
                .broker
                .unreachable(begin.elapsed(), reason(&failure.error)));
        }
        *last.lock() = reason(&failure.error);
        tokio::time::sleep(pause).await;
    }
}

/// The reason within an error, without the broker's name, which the error around it has.
fn reason(error: &Error) -> String {
    match error {
        Error::Lost { why, .. } | Error::Refused { why, .. } | Error::Unreachable { why, .. } => {
            why.clone()
        }
        other => other.to_string(),
    }
}

/// Notes when the broker stops and begins to take messages.
fn listen(connection: &Connection, gate: Gate, epoch: u64) -> AbortHandle {
    let mut events = Box::pin(connection.events_listener());
    let listening = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            match event {
                Event::ConnectionBlocked(why) => gate.shut(why, epoch),
                Event::ConnectionUnblocked => gate.open(),
                _ => {}
            }
        }
    });
    listening.abort_handle()
}
