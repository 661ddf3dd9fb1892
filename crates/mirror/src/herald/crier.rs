//! The thread that tells others what has changed on a replica.
//!
//! Whoever has made something durable leaves what it was in a bounded queue and goes on. The thread
//! looks at each entry as it is by then, has it told, and waits until that has arrived. While
//! nobody can be told, or the trees are closed, all waits in the queue.

use super::ages::Ages;
use super::waiting::{Batch, New, News, Waiting};
use super::{Herald, ToldNow, Untold};
use crate::clock::now;
use crate::hands::{Ended, Hands, Outcome};
use crate::message::Message;
use crate::worded::shown;
use crossbeam_channel::Sender;
use driftless_engine::{Onlooker, Stood};
use driftless_lock::{Condvar, Mutex};
use driftless_model::{Fault, RelPath};
use driftless_sarracenia::{About, Announced, Became, Standing};
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Changes that are looked at and told in one go.
const BATCH: usize = 500;
/// How long one call to whoever is told may take, so that an end is not waited for.
const TURN: Duration = Duration::from_millis(250);
/// Who refuses at once is asked again after this.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// Whoever cannot be told for so long is away.
const AWAY_AFTER: Duration = Duration::from_secs(2);
/// How long what is left may take when the mirror ends, while somebody can be told.
const END_MAX: Duration = Duration::from_secs(10);
/// The longest sleep of one who has nothing to tell.
const IDLE: Duration = Duration::from_secs(3600);
/// How often it is looked whether closed trees are open again.
const CLOSED_LOOK: Duration = Duration::from_millis(100);

/// Tells others what has changed on one replica.
pub(crate) struct Crier {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// What the thread shares with those that have something to tell.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    waiting: Waiting,
    /// What was pushed until then has arrived.
    arrived: u64,
    ages: Ages,
    now: ToldNow,
    /// The mirror ends: until when what is left may take.
    ends: Option<Instant>,
    /// What was pushed until then is not told any more, if it was not.
    given_up: u64,
}

impl State {
    /// Whether all that was changed was told, and has arrived.
    fn has_told_all(&self) -> bool {
        self.waiting.is_settled() && self.arrived == self.waiting.pushed()
    }

    /// Something may have been left to be told.
    fn note_left(&mut self) {
        self.ages.left(self.waiting.pushed(), now());
    }

    /// What was pushed until then has arrived.
    fn note_arrived(&mut self, until: u64) {
        self.arrived = until;
        self.ages.arrived(until);
    }
}

/// The thread.
struct Teller {
    shared: Arc<Shared>,
    herald: Box<dyn Herald>,
    hands: Arc<Hands>,
    outbox: Sender<Message>,
    is_connected: bool,
    /// Since when nobody can be told.
    failing: Option<Instant>,
}

impl Crier {
    /// Starts to tell. `is_known` says that an earlier life has told everything.
    pub(crate) fn start(
        herald: Box<dyn Herald>,
        (hands, outbox): (&Arc<Hands>, &Sender<Message>),
        is_known: bool,
    ) -> io::Result<Crier> {
        let waiting = match is_known {
            true => Waiting::default(),
            false => Waiting::after_unknown(),
        };
        let mut ages = Ages::default();
        ages.left(waiting.pushed(), now());
        let state = State {
            waiting,
            arrived: 0,
            ages,
            now: ToldNow::default(),
            ends: None,
            given_up: 0,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let teller = Teller {
            shared: shared.clone(),
            herald,
            hands: hands.clone(),
            outbox: outbox.clone(),
            is_connected: false,
            failing: None,
        };
        let thread = Builder::new()
            .name("herald".into())
            .spawn(move || teller.run())?;
        Ok(Crier { shared, thread })
    }

    /// Where lanes leave what they have done.
    pub(crate) fn desk(&self) -> Desk {
        Desk(Some(self.shared.clone()))
    }

    /// How far others were told.
    pub(crate) fn now(&self) -> ToldNow {
        let state = self.shared.state.lock();
        ToldNow {
            waiting: state.waiting.pushed() - state.arrived,
            oldest: state.ages.oldest(),
            ..state.now.clone()
        }
    }

    /// How much was to be told until now.
    pub(crate) fn pushed(&self) -> u64 {
        self.shared.state.lock().waiting.pushed()
    }

    /// Whether what was pushed until then has arrived.
    pub(crate) fn has_told(&self, pushed: u64) -> bool {
        self.shared.state.lock().arrived >= pushed
    }

    /// Whether something is being told, and somebody is there to hear it.
    pub(crate) fn is_telling(&self) -> bool {
        let state = self.shared.state.lock();
        state.now.away.is_none() && state.arrived < state.waiting.pushed()
    }

    /// Whether everything that was changed until now was told, and has arrived.
    pub(crate) fn has_told_all(&self) -> bool {
        self.shared.state.lock().has_told_all()
    }

    /// Whether something was changed that may not be durable, and is not to be told before it is.
    pub(crate) fn waits_for_disk(&self) -> bool {
        let state = self.shared.state.lock();
        state.waiting.is_empty() && !state.waiting.is_settled()
    }

    /// What was changed until now is not told, while the trees are closed: another tells of it.
    pub(crate) fn give_up(&self) {
        let mut state = self.shared.state.lock();
        state.waiting.forget();
        state.given_up = state.waiting.pushed();
        self.shared.changed.notify_all();
    }

    /// Nothing is changed any more, and the trees are still open: tells what is left, as long as
    /// somebody can be told. Whether everything was told and has arrived.
    pub(crate) fn end(self) -> bool {
        self.shared.state.lock().ends = Some(Instant::now() + END_MAX);
        self.shared.changed.notify_all();
        let _its_panic_was_told = self.thread.join();
        self.shared.state.lock().has_told_all()
    }
}

/// Where it is left what has changed; nowhere, if nobody is told.
#[derive(Clone, Default)]
pub(crate) struct Desk(Option<Arc<Shared>>);

impl Desk {
    /// A piece of work has come to its end, and what it has changed is durable if it is done.
    pub(crate) fn leave(&self, outcome: &mut Outcome) {
        let Some(shared) = &self.0 else { return };
        let news = std::mem::take(&mut outcome.news);
        let mut state = shared.state.lock();
        match outcome.end {
            Ended::Done => state.waiting.push(news),
            Ended::Stopped | Ended::Wide => state.waiting.postpone(news),
            // Nothing is known of what was done.
            Ended::Away(_) => state.waiting.postpone(News {
                is_more: true,
                ..News::default()
            }),
        }
        state.note_left();
        shared.changed.notify_all();
    }

    /// What others have changed on the replica may never have been told: it is told that all may
    /// differ.
    pub(crate) fn doubt(&self) {
        let Some(shared) = &self.0 else { return };
        shared.state.lock().waiting.doubt();
        shared.changed.notify_all();
    }

    /// All that was changed until now is durable.
    pub(crate) fn settled(&self) {
        let Some(shared) = &self.0 else { return };
        let mut state = shared.state.lock();
        state.waiting.push(News::default());
        state.note_left();
        shared.changed.notify_all();
    }
}

impl Teller {
    fn run(mut self) {
        while let Some(batch) = self.next() {
            let Some(announced) = self.look(&batch) else {
                return;
            };
            if !self.tell(&announced) {
                return;
            }
            self.shared.state.lock().note_arrived(batch.until);
            // Somebody may wait for it; where nobody has room, it is looked at anyhow.
            let _it_is_busy = self.outbox.try_send(Message::Announced);
        }
    }

    /// Waits for something to tell; `None` at the end.
    fn next(&mut self) -> Option<Batch> {
        loop {
            if !self.is_connected {
                let connected = self.herald.connect(TURN);
                self.is_connected = connected.is_ok();
                self.note(connected);
            }
            let mut state = self.shared.state.lock();
            state.arrived = state.arrived.max(state.given_up);
            if let Some(batch) = state.waiting.take(BATCH) {
                return Some(batch);
            }
            if state.ends.is_some() {
                return None;
            }
            let wait = if self.is_connected { IDLE } else { TURN };
            drop(self.shared.changed.wait_for(state, wait));
        }
    }

    /// What became of all that is to be told; `None` if the mirror ends before that can be seen.
    fn look(&mut self, batch: &Batch) -> Option<Vec<Announced>> {
        loop {
            if let Some(onlooker) = self.hands.onlooker() {
                match looked(onlooker, batch.news.as_deref()) {
                    Ok(announced) => return Some(announced),
                    Err(fault) if fault.is_cut_off() || batch.news.is_none() => {}
                    Err(fault) => {
                        tracing::warn!("what is to be announced cannot be looked at: {fault}");
                        let mut state = self.shared.state.lock();
                        state.waiting.doubt();
                        state.note_left();
                        return Some(Vec::new());
                    }
                }
            }
            if self.is_over() {
                return None;
            }
            let state = self.shared.state.lock();
            if batch.until <= state.given_up {
                return Some(Vec::new());
            }
            drop(self.shared.changed.wait_for(state, CLOSED_LOOK));
        }
    }

    /// Whether it is to end, since what is left takes too long, or nobody can be told.
    fn is_over(&self) -> bool {
        let state = self.shared.state.lock();
        let is_away = state.now.away.is_some() || !self.is_connected;
        state
            .ends
            .is_some_and(|ends| is_away || Instant::now() >= ends)
    }

    /// Tells it, and waits until it has arrived; false if the mirror ends before.
    fn tell(&mut self, announced: &[Announced]) -> bool {
        if announced.is_empty() {
            return true;
        }
        for one in announced {
            while let Err(why) = self.herald.tell(one, TURN) {
                match why {
                    Untold::Never(why) => {
                        let path = shown(&one.path);
                        tracing::warn!("\"{path}\": it cannot be announced: {why}");
                        break;
                    }
                    Untold::Away(why) => self.note(Err(why)),
                }
                if self.is_over() {
                    return false;
                }
                std::thread::sleep(REFUSED_PAUSE);
            }
        }
        loop {
            let settled = self.herald.settle(TURN);
            let is_settled = settled.is_ok();
            self.note(settled);
            if is_settled || self.is_over() {
                return is_settled;
            }
            std::thread::sleep(REFUSED_PAUSE);
        }
    }

    /// Whether somebody could be told.
    fn note(&mut self, told: Result<(), String>) {
        let mut state = self.shared.state.lock();
        state.now.announced = self.herald.confirmed();
        state.now.unheard = self.herald.unheard();
        match told {
            Ok(()) => {
                self.is_connected = true;
                self.failing = None;
                if state.now.away.take().is_some() {
                    tracing::info!("changes are announced again");
                }
            }
            Err(why) => {
                let since = *self.failing.get_or_insert_with(Instant::now);
                if since.elapsed() < AWAY_AFTER {
                    return;
                }
                if state.now.away.is_none() {
                    tracing::warn!("changes cannot be announced: {why}");
                }
                state.now.away = Some(why);
            }
        }
    }
}

/// What became of these; `None` is all of the replica.
fn looked(mut onlooker: Onlooker, news: Option<&[New]>) -> Result<Vec<Announced>, Fault> {
    let Some(news) = news else {
        let root = RelPath::root();
        let stood = onlooker.look(&root)?;
        let below = stood.map(|stood| Announced {
            path: root,
            became: Became::Below(About::from(&stood.meta)),
        });
        return Ok(below.into_iter().collect());
    };
    let mut all = Vec::new();
    for new in news {
        match new {
            New::Entry { path, .. } => {
                let stood = onlooker.look(path)?;
                all.extend(became(new, stood).map(|became| Announced {
                    path: path.clone(),
                    became,
                }));
            }
            New::Moved { from, to, is_dir } => {
                let stood = onlooker.look(to)?;
                all.extend(moved((from, to), *is_dir, stood));
            }
        }
    }
    Ok(all)
}

/// What stands there; nothing of what has no message.
fn standing(stood: &Stood) -> Option<Standing> {
    let target = stood.target.as_ref().map(|target| target.to_bytes());
    Standing::of(&stood.meta, target)
}

/// What became of an entry that is not told as renamed. Of what has no message, such as a named pipe,
/// it is told that what it took the place of is gone.
fn became(new: &New, stood: Option<Stood>) -> Option<Became> {
    let New::Entry {
        is_dir,
        is_removed,
        of,
        ..
    } = new
    else {
        return None;
    };
    let Some(standing) = stood.as_ref().and_then(standing) else {
        let was_directory = *is_dir;
        return Some(Became::Gone { was_directory });
    };
    match (standing, of) {
        (Standing::File(file), Some(of)) => Some(Became::Linked {
            of: of.clone(),
            file,
        }),
        // It is another directory than the one that was there, or some of what was below it was not
        // to be removed.
        (Standing::Directory(about), _) if *is_removed || !*is_dir => Some(Became::Below(about)),
        (standing, _) => Some(Became::Here(standing)),
    }
}

/// What became of an entry that was renamed: it may have gone on, or have gone.
fn moved((from, to): (&RelPath, &RelPath), is_dir: bool, stood: Option<Stood>) -> Vec<Announced> {
    let gone = |path: &RelPath| Announced {
        path: path.clone(),
        became: Became::Gone {
            was_directory: is_dir,
        },
    };
    match stood.map(|stood| standing(&stood)) {
        None | Some(None) => vec![gone(from), gone(to)],
        Some(Some(now)) => vec![Announced {
            path: to.clone(),
            became: Became::Moved {
                from: from.clone(),
                now,
            },
        }],
    }
}
