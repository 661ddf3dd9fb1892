//! The agent itself: it takes in what the threads have heard, keeps it, and looks at the clock.

use crate::book::Book;
use crate::clock::now;
use crate::config::{Config, Detect};
use crate::coverage::Coverage;
use crate::hear::{Watched, hear_posts, hear_shims};
use crate::heard::Heard;
use crate::own::Own;
use crate::pace::GapPace;
use crate::publish::{Announcer, Announcing};
use crate::rounds::{Asked, Deliverer, Outlet, Reached};
use crate::scout::{AGENT, look_for_mirrors};
use crate::status::{Counts, Status};
use driftless_detect::fanotify::Unwatched;
use driftless_detect::post::Posts;
use driftless_detect::{Deaf, Detector, Seen, Waker};
use driftless_spool::{Shims, SpoolError};
use driftless_state::StateError;
use driftless_state::watch::WatchState;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// What was heard and waits to be taken in, in batches.
const HEARD_WAITING_MAX: usize = 64;
/// How often it is looked whether something is to be done, when nothing is heard.
const TURN: Duration = Duration::from_millis(250);
/// What is heard within this is kept together.
const GATHER: Duration = Duration::from_millis(4);
/// Batches that are kept together.
const GATHERED_MAX: usize = 32;
/// Where nothing can be kept, it is tried again after so long.
const UNSAVED_PAUSE: Duration = Duration::from_secs(5);

/// What an agent begins with.
pub struct Setup {
    /// What it is asked to do; its trees without symbolic links.
    pub config: Config,
    /// What an earlier life has left.
    pub state: WatchState,
    /// Folders in which mirrors listen for posts.
    pub mirrors: Vec<PathBuf>,
    /// Where the posts of users are heard, a socket for each tree, if that is asked for.
    pub posts: Vec<PathBuf>,
    /// Where what it hears is announced, if that is asked for.
    pub announcing: Option<Announcing>,
    /// What it keeps for itself, and does not tell of where that lies in a tree: absolute paths
    /// without symbolic links.
    pub own: Vec<PathBuf>,
    /// Ends it, cleanly.
    pub stop: Arc<AtomicBool>,
}

/// Why an agent does not begin.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// A thread cannot be started, or there are too many open files.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
    /// What an earlier life left cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// Shims cannot be heard, or another agent hears them.
    #[error(transparent)]
    Shims(#[from] SpoolError),
    /// The posts of users cannot be heard.
    #[error(transparent)]
    Posts(#[from] Deaf),
    /// The kernel does not tell of a tree.
    #[error("\"{tree}\": {why}", tree = driftless_model::escape(.0.as_os_str().as_bytes()), why = .1)]
    Unwatched(PathBuf, Unwatched),
}

/// An agent at work.
pub struct Agent {
    state: WatchState,
    book: Arc<Book>,
    own: Own,
    inbox: Receiver<Heard>,
    wakers: Vec<Arc<Waker>>,
    asked: Arc<Asked>,
    reached: Reached,
    shims: Option<JoinHandle<Shims>>,
    others: Vec<JoinHandle<()>>,
    announcer: Option<JoinHandle<()>>,
    gaps: Vec<GapPace>,
    coverage: Option<Coverage>,
    began: Instant,
    pulse: Pulse,
    unsaved: Option<Instant>,
    stop: Arc<AtomicBool>,
}

/// When an agent has had its last turn.
#[derive(Debug, Clone)]
pub struct Pulse {
    began: Instant,
    millis: Arc<AtomicU64>,
}

impl Pulse {
    fn beat(&self) {
        self.millis.store(self.now(), Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// How long ago that was.
    pub fn age(&self) -> Duration {
        Duration::from_millis(self.now().saturating_sub(self.millis.load(Relaxed)))
    }
}

impl Agent {
    /// Begins to hear.
    ///
    /// # Errors
    /// Something that was asked for cannot be heard, or what an earlier life left cannot be read.
    pub fn begin(setup: Setup) -> Result<Agent, BeginError> {
        let Setup {
            config,
            mut state,
            mirrors,
            posts,
            announcing,
            own,
            stop,
        } = setup;
        let paths = config.trees.iter();
        let paths: Vec<Vec<u8>> = paths
            .map(|tree| tree.as_os_str().as_bytes().to_vec())
            .collect();
        let taken = state.take_trees(&paths, now())?;
        let is_new = taken.iter().map(|(_, is_new)| *is_new);
        let is_new: Vec<bool> = is_new.collect();
        let trees = taken.into_iter().map(|(row, _)| row).collect();
        let (outbox, inbox) = sync_channel(HEARD_WAITING_MAX);
        let began = Instant::now();
        let mut agent = Agent {
            book: Arc::new(Book::of(&state, trees)?),
            state,
            own: Own::of(&config.trees, &own),
            inbox,
            wakers: Vec::new(),
            asked: Arc::default(),
            reached: Reached::default(),
            shims: None,
            others: Vec::new(),
            announcer: None,
            gaps: config.trees.iter().map(|_| GapPace::new()).collect(),
            coverage: None,
            began,
            pulse: Pulse {
                began,
                millis: Arc::default(),
            },
            unsaved: None,
            stop,
        };
        agent.hear(&config, &outbox)?;
        agent.hear_posts(&config, &posts, &outbox)?;
        if let Some(announcing) = announcing {
            agent.announce(&config, announcing)?;
        }
        let book = agent.book.clone();
        let look = move || look_for_mirrors(&mirrors, &book);
        Builder::new().name("scout".into()).spawn(look)?;
        agent.miss_at_first(&config, &is_new);
        Ok(agent)
    }

    /// Begins all that hears. It is begun as a whole before a thread is.
    fn hear(&mut self, config: &Config, outbox: &SyncSender<Heard>) -> Result<(), BeginError> {
        let (hears_shims, watches) = (config.has(Detect::Shim), config.has(Detect::Fanotify));
        let trees = config.trees.iter().enumerate().filter(|_| watches);
        let watched = trees.map(|(number, path)| {
            let begun = Watched::begin(number, path);
            begun.map_err(|why| BeginError::Unwatched(path.clone(), why))
        });
        for watched in watched.collect::<Result<Vec<_>, _>>()? {
            let mut outlet = self.outlet(watched.waker(), outbox);
            let thread = Builder::new().name("fanotify".into());
            self.others
                .push(thread.spawn(move || watched.hear(&mut outlet))?);
        }
        if hears_shims {
            let waker = Waker::new().map_err(io::Error::from)?;
            let shims = Shims::listen(&config.shim, &config.trees)?;
            let mut outlet = self.outlet(waker.clone(), outbox);
            let trees = config.trees.len();
            let hear = move || hear_shims(shims, trees, &waker, &mut outlet);
            self.shims = Some(Builder::new().name("shims".into()).spawn(hear)?);
        }
        self.coverage = (hears_shims && watches).then(Coverage::default);
        Ok(())
    }

    /// Returns the outlet of one more thread that hears, which this wakes.
    fn outlet(&mut self, waker: Arc<Waker>, outbox: &SyncSender<Heard>) -> Outlet {
        self.wakers.push(waker);
        Outlet::of(outbox.clone(), self.asked.clone(), self.reached.add())
    }

    /// Begins to hear what users post, at a socket for each tree.
    fn hear_posts(
        &mut self,
        config: &Config,
        sockets: &[PathBuf],
        outbox: &SyncSender<Heard>,
    ) -> Result<(), BeginError> {
        let name = format!("{AGENT}{}", config.name);
        for (tree, (path, socket)) in config.trees.iter().zip(sockets).enumerate() {
            let posts = Posts::listen(socket, &name, path)?;
            let mut outlet = self.outlet(posts.waker(), outbox);
            let hear = move || hear_posts(posts, tree, &mut outlet);
            let thread = Builder::new().name("posts".into()).spawn(hear)?;
            self.others.push(thread);
        }
        Ok(())
    }

    /// Begins to announce.
    fn announce(&mut self, config: &Config, announcing: Announcing) -> Result<(), BeginError> {
        self.book.publish(announcing.status());
        let announcer = Announcer::new(announcing, config.trees.clone(), self.book.clone());
        let thread = Builder::new().name("announcer".into());
        self.announcer = Some(thread.spawn(move || announcer.run())?);
        Ok(())
    }

    /// Of a tree that is new, nobody has heard what happened before; and neither the kernel nor users
    /// have told anybody what happened while no agent ran. Whether shims were heard all the time,
    /// they know.
    fn miss_at_first(&mut self, config: &Config, is_new: &[bool]) {
        for (tree, is_new) in is_new.iter().enumerate() {
            if *is_new || config.has(Detect::Fanotify) || config.has(Detect::Posts) {
                self.miss(tree);
            }
        }
    }

    /// Whether it goes on.
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// How it stands, for others to ask.
    pub fn status(&self, config: &Config) -> impl Fn() -> Status + Send + Sync + Clone + 'static {
        let book = self.book.clone();
        let (name, detect) = (config.name.clone(), config.detect.clone());
        move || {
            let (counts, trees, mirrors) = book.status();
            Status {
                name: name.clone(),
                is_running: true,
                process: Some(std::process::id()),
                detect: detect.iter().map(|one| one.name().to_owned()).collect(),
                counts,
                trees,
                mirrors,
                publisher: book.publisher_status(),
            }
        }
    }

    /// Returns what delivers to mirrors all that was said.
    pub fn deliverer(&self) -> Deliverer {
        Deliverer {
            book: self.book.clone(),
            asked: self.asked.clone(),
            wakers: self.wakers.clone(),
        }
    }

    /// Works until it is to stop.
    pub fn run(mut self) {
        while !self.stop.load(Relaxed) {
            self.pulse.beat();
            match self.inbox.recv_timeout(TURN) {
                Ok(heard) => self.gather(heard),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.tell_gaps();
            self.look_at_coverage();
            self.save();
            self.keep_rounds();
        }
        self.end();
    }

    /// Takes in what is heard, and what else is heard within a moment.
    fn gather(&mut self, heard: Heard) {
        let until = Instant::now() + GATHER;
        self.take_in(heard);
        for _ in 1..GATHERED_MAX {
            let left = until.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left) {
                Ok(heard) => self.take_in(heard),
                Err(_) => return,
            }
        }
    }

    fn take_in(&mut self, mut heard: Heard) {
        if let Some(reached) = heard.reached {
            self.reached.note(reached);
        }
        let is_others = |tree: usize, seen: &Seen| !self.own.has(tree, &seen.change.path);
        heard.seen.retain(|(tree, seen)| is_others(*tree, seen));
        let clock = self.began.elapsed();
        if let Some(coverage) = &mut self.coverage {
            for (tree, seen) in heard.seen.iter().filter(|_| heard.is_announced) {
                coverage.announce(clock, (*tree, seen.change.path.clone()));
            }
            for (tree, path, program) in heard.written {
                coverage.write(clock, (tree, path), program);
            }
        }
        self.book.count(|counts| {
            counts.messages += heard.messages;
            counts.unread += heard.unread;
            counts.dropped += heard.dropped;
            counts.events += heard.events;
            counts.posts += heard.posts;
            if let Some((who, why)) = heard.deaf {
                match why {
                    Some(why) => drop(counts.deaf.insert(who, why)),
                    None => drop(counts.deaf.remove(&who)),
                }
            }
        });
        self.book.add(heard.seen, now());
        for tree in heard.missed {
            self.miss(tree);
        }
    }

    /// All of a tree may differ. What is missed before that is told is one gap.
    fn miss(&mut self, tree: usize) {
        if self.gaps[tree].miss() {
            self.book.count_gap(tree, now());
        }
    }

    fn tell_gaps(&mut self) {
        let clock = self.began.elapsed();
        for (tree, gap) in self.gaps.iter_mut().enumerate() {
            if gap.take(clock) {
                self.book.add_all(tree, now());
            }
        }
    }

    fn look_at_coverage(&mut self) {
        let Some(coverage) = &mut self.coverage else {
            return;
        };
        coverage.look(self.began.elapsed());
        self.book.count(|counts: &mut Counts| {
            counts.covered = coverage.covered();
            counts.uncovered.clone_from(coverage.uncovered());
        });
    }

    /// Makes what was taken in durable, and has it handed on.
    fn save(&mut self) -> bool {
        let has_just_failed = |since: &Instant| since.elapsed() < UNSAVED_PAUSE;
        if self.unsaved.as_ref().is_some_and(has_just_failed) {
            self.book.hand_on_unsaved();
            return false;
        }
        let done = self.book.save(&mut self.state);
        match &done {
            Ok(()) => self.unsaved = None,
            Err(error) => {
                if self.unsaved.is_none() {
                    tracing::error!(
                        "cannot write the journal: {error}; events are still delivered, but a crash would lose them"
                    );
                }
                self.unsaved = Some(Instant::now());
            }
        }
        let why = done.as_ref().err().map(ToString::to_string);
        self.book.count(|counts| counts.unsaved = why);
        done.is_ok()
    }

    /// Notes which rounds are kept. A gap that is held back is told first.
    fn keep_rounds(&mut self) {
        if self.gaps.iter().any(GapPace::is_waiting) {
            return;
        }
        if let Some(round) = self.reached.take() {
            self.book.keep_round(round);
        }
    }

    /// Hears what was said before, and keeps it: the next agent has missed nothing then.
    fn end(mut self) {
        for waker in &self.wakers {
            waker.stop();
        }
        // Those that hear end when they have told all, and let go of the other side of it.
        while let Ok(heard) = self.inbox.recv() {
            self.take_in(heard);
        }
        for tree in 0..self.gaps.len() {
            if self.gaps[tree].take_at_end() {
                self.book.add_all(tree, now());
            }
        }
        self.unsaved = None;
        let is_kept = self.save();
        self.book.end();
        if let Some(announcer) = self.announcer.take() {
            let _its_panic_was_told = announcer.join();
            // What was confirmed meanwhile is not announced again.
            let _it_is_then = self.save();
        }
        let shims = self.shims.take().map(JoinHandle::join);
        if let Some(Ok(shims)) = shims.filter(|_| is_kept) {
            shims.ended();
        }
        for thread in self.others {
            let _its_panic_was_told = thread.join();
        }
    }
}
