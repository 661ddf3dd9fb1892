//! Further streams of a client to one agent, where a round trip takes long.
//!
//! They are a gain if they come about, and no loss if they do not. A name may stand for several
//! hosts, and a key for another command than the one that was asked for, so a further stream counts
//! only once the first agent itself has greeted on it, with the number that it was given on the
//! first stream. If one goes astray no more are tried in this run, and the user is told once.

use crate::client::Client;
use crate::ssh::child::{part, start};
use crate::ssh::reach::Reach;
use crate::ssh::stream::Stream;
use crate::wire::{Reply, Request};
use crossbeam_channel::unbounded;
use driftless_lock::Mutex;
use driftless_tree::random_id;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A round trip that is worth more than one connection: one carries what fits into its window each
/// time.
const LONG: Duration = Duration::from_millis(4);
/// Streams where round trips take long: one for requests, the others for content.
const STREAMS: usize = 9;
/// The first few further connections are opened when this much content has crossed, the next when
/// twice as much has, and so on.
const STREAM_EACH_BYTES: u64 = 4 << 20;
const STREAMS_AT_ONCE: usize = 3;
/// After so many losses that began with a further stream there are none any more.
const LOSSES_MAX: u32 = 3;
/// Between two looks at how much has crossed.
const TICK: Duration = Duration::from_millis(10);

/// The ssh processes of all streams.
pub type Children = Arc<Mutex<Vec<Child>>>;

/// What a host's streams have taught, and what the user should be told of it: kept however often
/// they are made again.
#[derive(Debug, Default)]
pub struct Told {
    notes: Mutex<Vec<String>>,
    /// No further stream is tried any more.
    astray: AtomicBool,
    /// Losses that began with a further stream.
    losses: AtomicU32,
}

impl Told {
    /// Has the user told.
    pub fn say(&self, note: String) {
        self.notes.lock().push(note);
    }

    /// What he was not told yet.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock())
    }

    /// No further stream is tried any more.
    fn give_up(&self, name: &str, why: &str) {
        if !self.astray.swap(true, Relaxed) {
            self.say(format!(
                "{name}: the run continues with one connection: {why}"
            ));
        }
    }

    fn lost(&self, name: &str) {
        if self.losses.fetch_add(1, Relaxed) + 1 >= LOSSES_MAX {
            self.give_up(name, "further connections were lost repeatedly");
        }
    }
}

/// What is needed to open further streams.
#[derive(Clone)]
pub struct Further {
    name: String,
    reach: Reach,
    client: Arc<Client>,
    children: Weak<Mutex<Vec<Child>>>,
    told: Arc<Told>,
}

/// How a further stream comes to the agent.
#[derive(Clone)]
struct Join {
    /// What it is started with there.
    arguments: String,
    /// By what the agent knows it, and takes it from nobody else.
    secret: u128,
    /// By what this side knows the agent.
    own: u128,
}

impl Further {
    /// Streams besides the first one of `client`.
    pub fn new(
        name: &str,
        reach: &Reach,
        (client, children): (&Arc<Client>, &Children),
        told: &Arc<Told>,
    ) -> Further {
        Further {
            name: name.into(),
            reach: reach.clone(),
            client: client.clone(),
            children: Arc::downgrade(children),
            told: told.clone(),
        }
    }

    /// Opens them as content begins to flow.
    pub fn begin(self) {
        if !self.told.astray.load(Relaxed) {
            start("streams", self, |further| further.add_all());
        }
    }

    fn add_all(self) {
        let Some(more) = self.wanted().checked_sub(1).filter(|more| *more > 0) else {
            return;
        };
        let own = random_id();
        let Ok((Reply::Gathers { place, secret }, _)) = self
            .client
            .connection
            .call(&Request::Gather { secret: own }, Vec::new())
        else {
            return;
        };
        let Ok(place) = String::from_utf8(place) else {
            return;
        };
        let join = Join {
            arguments: format!("agent --join {}", shell_words::quote(&place)),
            secret,
            own,
        };
        for number in 0..more {
            let (further, join) = (self.clone(), join.clone());
            let patience = if self.reach.streams.is_some() {
                0
            } else {
                STREAM_EACH_BYTES << number.saturating_sub(STREAMS_AT_ONCE)
            };
            start("streams", (), move |()| further.add(&join, patience));
        }
    }

    /// How many streams there shall be.
    fn wanted(&self) -> usize {
        self.reach.streams.unwrap_or_else(|| {
            let connection = &self.client.connection;
            // Asking about no object costs a round trip and nothing else.
            (0..3).for_each(|_| drop(connection.call(&Request::Meta { at: 0 }, Vec::new())));
            if connection.round_trip() < LONG {
                1
            } else {
                STREAMS
            }
        })
    }

    fn is_over(&self) -> bool {
        self.client.connection.lost().is_some()
            || self.told.astray.load(Relaxed)
            || self.reach.is_stopped()
    }

    /// Opens one stream more when so many bytes of content have crossed.
    fn add(self, join: &Join, patience: u64) {
        while self.client.connection.content_bytes() < patience && !self.is_over() {
            std::thread::sleep(TICK);
        }
        if self.is_over() {
            return;
        }
        let started = (&*join.arguments, &join.secret.to_le_bytes()[..]);
        match Stream::open_with(&self.name, &self.reach, started, &|| self.is_over()) {
            Ok(opened) if opened.hello.joined == join.own => self.take(opened),
            Ok(opened) => {
                opened.give_up();
                self.told.give_up(
                    &self.name,
                    "a further one reached another agent (does the name stand for several hosts, or the key for a command?)",
                );
            }
            Err(_) if self.is_over() => {}
            Err(error) => self.told.give_up(
                &self.name,
                &format!("a further one did not reach the agent: {error}"),
            ),
        }
    }

    fn take(&self, opened: Stream) {
        let (out, frames) = unbounded();
        let (name, told, client) = (self.name.clone(), self.told.clone(), self.client.clone());
        let lost = move || {
            if client.connection.lost().is_none() {
                told.lost(&name);
            }
        };
        let mut child = opened.run(frames, (&self.client, &self.reach), lost);
        match self.children.upgrade() {
            Some(children) if self.client.connection.lost().is_none() => {
                children.lock().push(child);
                self.client.connection.add_stream(out);
            }
            _ => {
                drop(out);
                part(&mut child);
            }
        }
    }
}
