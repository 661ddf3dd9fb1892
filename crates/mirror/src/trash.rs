//! Keeps the trash of a replica within its bounds.
//!
//! To measure what lies there may take long, so a thread of its own does that, by handles of its
//! own: nothing waits for it. It begins when a comparison or a cycle is over, and every hour.

use crate::hands::Hands;
use crate::job::Job;
use crate::status::TrashNow;
use crate::worded::counted;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use driftless_engine::{Limits, Purged, Sizes};
use driftless_lock::Mutex;
use driftless_model::escape;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::Builder;
use std::time::Duration;

/// How often it is looked at what is too old, at least.
const EVERY: Duration = Duration::from_secs(3600);
/// What cannot be removed is told of so many paths.
const TOLD_MAX: usize = 5;

/// The trash of a replica, as a mirror sees it.
pub struct Trash {
    asks: Sender<()>,
    is_looking: Arc<AtomicBool>,
    now: Arc<Mutex<Option<TrashNow>>>,
}

/// What the thread works with.
struct Keeper {
    limits: Limits,
    hands: Arc<Hands>,
    stop: Arc<AtomicBool>,
    sizes: Sizes,
    is_looking: Arc<AtomicBool>,
    now: Arc<Mutex<Option<TrashNow>>>,
}

impl Trash {
    /// Starts to keep the trash of a job within its limits; `None` if it has no trash. Nobody waits
    /// for the end of the thread: what it has not removed is removed later.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn of(
        job: &Job,
        hands: &Arc<Hands>,
        stop: &Arc<AtomicBool>,
    ) -> std::io::Result<Option<Trash>> {
        let Some(trash) = job.trash else {
            return Ok(None);
        };
        let (asks, asked) = bounded(1);
        let (now, is_looking) = (Arc::default(), Arc::default());
        let keeper = Keeper {
            limits: trash.limits(),
            hands: Arc::clone(hands),
            stop: Arc::clone(stop),
            sizes: Sizes::default(),
            is_looking: Arc::clone(&is_looking),
            now: Arc::clone(&now),
        };
        Builder::new()
            .name("trash".into())
            .spawn(move || keeper.keep(&asked))?;
        Ok(Some(Trash {
            asks,
            is_looking,
            now,
        }))
    }

    /// Has it look soon.
    pub fn look(&self) {
        self.is_looking.store(true, Relaxed);
        let _it_was_asked_already = self.asks.try_send(());
    }

    /// Whether it has not looked yet, since it was asked to.
    pub fn is_looking(&self) -> bool {
        self.is_looking.load(Relaxed)
    }

    /// What is there, as it was when it was looked at last.
    pub fn now(&self) -> Option<TrashNow> {
        *self.now.lock()
    }
}

impl Keeper {
    fn keep(mut self, asked: &Receiver<()>) {
        while !matches!(
            asked.recv_timeout(EVERY),
            Err(RecvTimeoutError::Disconnected)
        ) {
            let (hands, stop) = (&self.hands, &self.stop);
            let is_over = || stop.load(Relaxed) || !hands.is_open();
            match hands.purge(self.limits, &mut self.sizes, &is_over) {
                None => {}
                Some(Ok(purged)) if !is_over() => self.take(&purged),
                Some(Ok(_)) => {}
                Some(Err(why)) => tracing::warn!("the trash of the replica: {why}"),
            }
            self.is_looking.store(!asked.is_empty(), Relaxed);
        }
    }

    fn take(&self, purged: &Purged) {
        *self.now.lock() = Some(TrashNow {
            entries: purged.left.entries,
            bytes: purged.left.bytes,
        });
        for (path, fault) in purged.stuck.iter().take(TOLD_MAX) {
            tracing::warn!("\"{}\": {fault}", escape(path.as_bytes()));
        }
        if purged.removed > 0 {
            let removed = counted(purged.removed, "entry", "entries");
            tracing::info!("gone from the trash: {removed}");
        }
    }
}
