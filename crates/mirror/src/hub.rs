//! The mirror of a job: a life for each of its replicas, and detectors that tell all of them.
//!
//! Each replica has its own thread, lanes and state, so that one which is away, full or slow holds
//! up no other. What a detector has heard is told to all of them; whoever asks is answered for all.

use crate::ask::{Answer, Ask};
use crate::clock::now;
use crate::hearing::{Hearing, Shared};
use crate::listener::Listener;
use crate::live::{BeginError, Beginning, Live};
use crate::message::{Inbox, Inboxes};
use crate::pulse::Pulse;
use crate::status::Status;
use crossbeam_channel::RecvTimeoutError;
use driftless_detect::Detector;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Interval at which it is looked whether an answer is still awaited.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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
        detectors: Vec<Box<dyn Detector>>,
        stop: Arc<AtomicBool>,
    ) -> Result<(Mirror, Inboxes), BeginError> {
        let shared = |one: &dyn Detector| {
            let kept = (one.name(), one.keeps_position());
            Shared::new(kept, one.waker(), beginnings.len())
        };
        let all = detectors.iter().map(AsRef::as_ref);
        let shared: Vec<Arc<Shared>> = all.map(shared).collect();
        let mut lives = Vec::new();
        let mut inboxes: Vec<Inbox> = Vec::new();
        for (number, mut beginning) in beginnings.into_iter().enumerate() {
            for detector in &detectors {
                if let Some(source) = detector.source()? {
                    beginning.hands.watched = Some(source);
                }
            }
            let hearing = Hearing::of(&shared, number, now());
            let (live, inbox) = Live::begin(beginning, hearing, stop.clone())?;
            lives.push(live);
            inboxes.push(inbox);
        }
        let inboxes = Inboxes::new(inboxes);
        let mut mirror = Mirror {
            lives,
            detectors: Vec::new(),
            stop,
        };
        for (number, (detector, shared)) in detectors.into_iter().zip(shared).enumerate() {
            mirror.listen(Listener {
                detector,
                number,
                shared,
                inboxes: inboxes.clone(),
                stop: mirror.stop.clone(),
            })?;
        }
        Ok((mirror, inboxes))
    }

    /// Whether each life goes on.
    pub fn pulses(&self) -> Vec<Pulse> {
        self.lives.iter().map(|live| live.pulse.clone()).collect()
    }

    fn listen(&mut self, listener: Listener) -> std::io::Result<()> {
        let name = listener.detector.name();
        let thread = Builder::new().name(name).spawn(|| listener.run())?;
        self.detectors.push(thread);
        Ok(())
    }

    /// Works until it is to stop; whether it is to begin anew, since nothing would be heard of what
    /// is the source by now. What ends one life ends all of them.
    pub fn run(self) -> bool {
        let (stop, is_deaf) = (&self.stop, &AtomicBool::new(false));
        std::thread::scope(|scope| {
            for live in self.lives {
                scope.spawn(move || {
                    let _ends_the_others = Stopped(stop);
                    is_deaf.fetch_or(live.run(), Relaxed);
                });
            }
        });
        for thread in self.detectors {
            let _its_panic_was_told = thread.join();
        }
        is_deaf.load(Relaxed)
    }
}

/// Says that all is to stop when a life ends, also by a panic.
struct Stopped<'a>(&'a AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Asks all replicas of a mirror; the answer is that of all. The answer is given up when
/// `is_awaited` says that its client waits no more.
pub fn ask_while(inboxes: &Inboxes, ask: &Ask, is_awaited: &dyn Fn() -> bool) -> Answer {
    let is_over = || {
        Answer::Refused(
            "the mirror is about to end; ask again when it has been started anew".into(),
        )
    };
    let answers = inboxes.ask(ask);
    let answers = answers.into_iter().map(|answer| {
        loop {
            match answer.recv_timeout(LOOK_EVERY) {
                Err(RecvTimeoutError::Timeout) if is_awaited() => {}
                received => return received.ok(),
            }
        }
    });
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
