//! Further lines of a client to one agent, where a round trip takes long.
//!
//! They are a gain if they come about, and no loss if they do not. A name may stand for several hosts, and a key for another command than
//! the one that was asked for, so a further line counts only once the first agent itself has greeted on it, with the number that it was
//! given on the first line. If one goes astray no more are tried in this run, and the user is told once.

use crate::dir::Line;
use crate::ssh::{Opened, Reach, part};
use crate::wire::{Reply, Request};
use crossbeam_channel::unbounded;
use driftless_lock::Mutex;
use driftless_tree::random_id;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A round trip that is worth more than one connection: one carries what fits into its window each time.
const LONG: Duration = Duration::from_millis(4);
/// Connections over a long line: one for requests, the others for content.
const STREAMS: usize = 9;
/// The first few further connections are opened when this much content has crossed, the next when twice as much has, and so on.
const LINE_EACH_BYTES: u64 = 4 << 20;
const LINES_AT_ONCE: usize = 3;
/// After so many losses that began with a further line there are none any more.
const LOSSES_MAX: u32 = 3;
/// Between two looks at how much has crossed.
const TICK: Duration = Duration::from_millis(10);

/// The ssh processes of all lines.
pub type Children = Arc<Mutex<Vec<Child>>>;

/// What a host's lines have taught, and what the user should be told of it: kept however often they are made again.
#[derive(Debug, Default)]
pub struct Told {
    notes: Mutex<Vec<String>>,
    /// No further line is tried any more.
    astray: AtomicBool,
    /// Losses that began with a further line.
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

    /// No further line is tried any more.
    fn give_up(&self, name: &str, why: &str) {
        if !self.astray.swap(true, Relaxed) {
            self.say(format!("{name}: the run goes on with one connection: {why}"));
        }
    }

    fn lost(&self, name: &str) {
        if self.losses.fetch_add(1, Relaxed) + 1 >= LOSSES_MAX {
            self.give_up(name, "others were lost again and again");
        }
    }
}

/// What is needed to open further lines.
#[derive(Clone)]
pub struct Further {
    name: String,
    reach: Reach,
    line: Arc<Line>,
    children: Weak<Mutex<Vec<Child>>>,
    told: Arc<Told>,
}

/// How a further line comes to the agent.
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
    /// Lines besides `line`.
    pub fn new(name: &str, reach: &Reach, (line, children): (&Arc<Line>, &Children), told: &Arc<Told>) -> Further {
        Further { name: name.into(), reach: reach.clone(), line: line.clone(), children: Arc::downgrade(children), told: told.clone() }
    }

    /// Opens them as content begins to flow.
    pub fn begin(self) {
        if !self.told.astray.load(Relaxed) {
            crate::ssh::start("lines", self, |further| further.add_all());
        }
    }

    fn add_all(self) {
        let Some(more) = self.wanted().checked_sub(1).filter(|more| *more > 0) else { return };
        let own = random_id();
        let Ok((Reply::Gathers { place, secret }, _)) = self.line.link.call(&Request::Gather { secret: own }, Vec::new()) else { return };
        let Ok(place) = String::from_utf8(place) else { return };
        let join = Join { arguments: format!("agent --join {}", shell_words::quote(&place)), secret, own };
        for number in 0..more {
            let (further, join) = (self.clone(), join.clone());
            let patience = if self.reach.streams.is_some() { 0 } else { LINE_EACH_BYTES << number.saturating_sub(LINES_AT_ONCE) };
            crate::ssh::start("lines", (), move |()| further.add(&join, patience));
        }
    }

    /// How many lines there shall be.
    fn wanted(&self) -> usize {
        self.reach.streams.unwrap_or_else(|| {
            let link = &self.line.link;
            // Asking about no object costs a round trip and nothing else.
            (0..3).for_each(|_| drop(link.call(&Request::Meta { at: 0 }, Vec::new())));
            if link.round_trip() < LONG { 1 } else { STREAMS }
        })
    }

    fn is_over(&self) -> bool {
        self.line.link.lost().is_some() || self.told.astray.load(Relaxed) || self.reach.is_stopped()
    }

    /// Opens one line more when so many bytes of content have crossed.
    fn add(self, join: &Join, patience: u64) {
        while self.line.link.content_bytes() < patience && !self.is_over() {
            std::thread::sleep(TICK);
        }
        if self.is_over() {
            return;
        }
        let started = (&*join.arguments, &join.secret.to_le_bytes()[..]);
        match Opened::open_with(&self.name, &self.reach, started, &|| self.is_over()) {
            Ok(opened) if opened.hello.joined == join.own => self.take(opened),
            Ok(opened) => {
                opened.give_up();
                self.told.give_up(
                    &self.name,
                    "a further one reached another agent (does the name stand for several hosts, or the key for a command?)",
                );
            }
            Err(_) if self.is_over() => {}
            Err(error) => self.told.give_up(&self.name, &format!("a further one did not reach the agent: {error}")),
        }
    }

    fn take(&self, opened: Opened) {
        let (out, frames) = unbounded();
        let (name, told, line) = (self.name.clone(), self.told.clone(), self.line.clone());
        let lost = move || {
            if line.link.lost().is_none() {
                told.lost(&name);
            }
        };
        let mut child = opened.run(frames, (&self.line, &self.reach), lost);
        match self.children.upgrade() {
            Some(children) if self.line.link.lost().is_none() => {
                children.lock().push(child);
                self.line.link.add_line(out);
            }
            _ => {
                drop(out);
                part(&mut child);
            }
        }
    }
}
