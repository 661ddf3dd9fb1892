//! The mirror of a job: a life for each of its replicas, and detectors that tell all of them.
//!
//! Each replica has its own thread, lanes and state, so that one which is away, full or slow holds
//! up no other. What a detector has heard is told to all of them; whoever asks is answered for all.

use crate::ask::{Answer, Ask};
use crate::live::{BeginError, Beginning, Live, now};
use crate::message::{Inbox, Inboxes, Message};
use crate::pulse::Pulse;
use crate::status::Status;
use driftless_detect::fanotify::{Unwatched, Watch};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// All replicas of a job, kept equal.
pub struct Mirror {
    lives: Vec<Live>,
    detectors: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Mirror {
    /// Begins to hear of changes, and to work on each replica. `stop` ends all of it, cleanly.
    ///
    /// # Errors
    /// A thread cannot be started, or what an earlier life left cannot be read.
    pub fn begin(
        beginnings: Vec<Beginning>,
        watch: Option<Watch>,
        stop: Arc<AtomicBool>,
    ) -> Result<(Mirror, Inboxes), BeginError> {
        let waker = watch.as_ref().map(Watch::waker);
        let mut lives = Vec::new();
        let mut inboxes: Vec<Inbox> = Vec::new();
        for mut beginning in beginnings {
            beginning.hands.watched = watch.as_ref().map(Watch::root).transpose()?;
            let (live, inbox) = Live::begin(beginning, waker.clone(), stop.clone())?;
            lives.push(live);
            inboxes.push(inbox);
        }
        let inboxes = Inboxes::new(inboxes);
        let mut mirror = Mirror {
            lives,
            detectors: Vec::new(),
            stop,
        };
        if let Some(watch) = watch {
            mirror.start_watch(watch, inboxes.clone())?;
        }
        Ok((mirror, inboxes))
    }

    /// Whether each life goes on.
    pub fn pulses(&self) -> Vec<Pulse> {
        self.lives.iter().map(|live| live.pulse.clone()).collect()
    }

    fn start_watch(&mut self, watch: Watch, inboxes: Inboxes) -> std::io::Result<()> {
        let stop = self.stop.clone();
        let hear = move || {
            if let Err(error) = hear(watch, &inboxes, &stop) {
                inboxes.send(|| Message::Deaf(error.to_string()));
            }
        };
        let thread = Builder::new().name("fanotify".into()).spawn(hear)?;
        self.detectors.push(thread);
        Ok(())
    }

    /// Works until it is to stop. What ends one life ends all of them.
    pub fn run(self) {
        let stop = &self.stop;
        std::thread::scope(|scope| {
            for live in self.lives {
                scope.spawn(move || {
                    let _ends_the_others = Stopped(stop);
                    live.run();
                });
            }
        });
        for thread in self.detectors {
            let _its_panic_was_told = thread.join();
        }
    }
}

/// Says that all is to stop when a life ends, also by a panic.
struct Stopped<'a>(&'a AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Hears of changes until the mirror is to stop.
fn hear(mut watch: Watch, inboxes: &Inboxes, stop: &AtomicBool) -> Result<(), Unwatched> {
    while !stop.load(Relaxed) {
        let before = now();
        let heard = watch.hear(Duration::ZERO)?;
        let is_heard = if heard.events == 0 {
            let is_heard = inboxes.send(|| Message::HeardUntil(before));
            watch.wait()?;
            is_heard
        } else {
            let is_heard = inboxes.send(|| Message::Heard(heard.seen.clone()));
            if heard.is_overflown || heard.is_doubtful {
                tracing::warn!("the kernel has told too little: what has changed is looked for");
                inboxes.send(|| Message::Missed);
            }
            if heard.is_all {
                inboxes.send(|| Message::HeardUntil(before));
            }
            is_heard
        };
        if !is_heard {
            return Ok(());
        }
    }
    Ok(())
}

/// Asks all replicas of a mirror; the answer is that of all.
pub fn ask(inboxes: &Inboxes, ask: &Ask) -> Answer {
    let is_over = || Answer::Refused("the mirror is about to end".into());
    let answers = inboxes.ask(ask);
    let answers = answers.into_iter().map(|answer| answer.recv().ok());
    let answers: Option<Vec<Answer>> = answers.collect();
    answers.and_then(Answer::of_all).unwrap_or_else(is_over)
}

/// How each replica stands; `None` if one of them does not answer in time.
pub fn statuses(inboxes: &Inboxes, patience: Duration) -> Option<Vec<Status>> {
    let deadline = Instant::now() + patience;
    let answers = inboxes.ask(&Ask::Status);
    let answers = answers
        .into_iter()
        .map(|answer| answer.recv_deadline(deadline).ok());
    match Answer::of_all(answers.collect::<Option<_>>()?)? {
        Answer::Status(statuses) => Some(statuses),
        _ => None,
    }
}
