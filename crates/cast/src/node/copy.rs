//! The copy of a set at a node while a cast runs: opening, writing, commit, and reading for feeders.

use crate::feed::UnitContent;
use crate::node::opening::OpeningSteps;
use crate::settings::ContentLimits;
use crossbeam_channel::{Receiver, RecvError};
use driftless_lock::{Condvar, Mutex};
use driftless_store::{
    Catalogue, CopyUse, Error, NodeStore, PlacedCopy, Placing, Receiving, ReplacedVersions,
    SetReceiver, UnitReader, VerifiedUnit,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time to wait for another process that receives the same set, after it was at work last. The
/// process of an earlier cast ends within seconds of the death of its coordinator.
const BUSY_MAX: Duration = Duration::from_secs(120);
/// Pause between two attempts.
const BUSY_PAUSE: Duration = Duration::from_millis(200);

/// Time in which units gather before they are written.
const GATHER: Duration = Duration::from_millis(4);

/// Copy at a node.
pub(crate) struct NodeCopy {
    store: NodeStore,
    state: Mutex<CopyStage>,
    changed: Condvar,
}

enum CopyStage {
    /// Units arrive.
    Receiving(Box<SetReceiver>),
    /// The copy gets its metadata and its final names.
    Committing,
    /// The copy has its final names. Nothing removes it meanwhile.
    Placed(CopyUse),
    /// The copy failed.
    Gone,
}

/// A copy that has its final names, and older versions that are to be removed.
pub(crate) struct WrittenCopy {
    pub placed: PlacedCopy,
    pub replaced: Option<ReplacedVersions>,
}

/// Set to be opened.
pub(crate) struct CopyRequest {
    pub store: NodeStore,
    pub catalogue: Arc<Catalogue>,
    pub placing: Placing,
    pub cache_bytes_max: Option<u64>,
}

/// A copy that was opened.
pub(crate) enum OpenedCopy {
    /// The node held the complete set, and hashed it again.
    Held(CopyUse),
    /// Units are missing, or the copy needs its commit.
    Open(Box<SetReceiver>),
}

impl CopyRequest {
    /// Opens the copy, and takes over content that the node holds. Counts `steps`.
    ///
    /// # Errors
    /// The place is unusable or full, or `stop` is set.
    pub fn open(&self, stop: &AtomicBool, steps: &OpeningSteps) -> Result<OpenedCopy, Error> {
        let mut pace = |_| {
            steps.count();
            !stop.load(Relaxed)
        };
        if let Err(error) = self.store.sweep() {
            tracing::warn!("an earlier cast is not finished: {error}");
        }
        if self.placing.is_cached() {
            self.store
                .evict(Some(&self.catalogue), self.cache_bytes_max)?;
        }
        steps.count();
        let copy = match self.receive(stop)? {
            Receiving::Open(receiver) => return reuse(receiver, &mut pace),
            Receiving::Held(copy) => copy,
        };
        let in_use = self.store.use_copy(copy)?;
        if self.store.verify_daily(copy, &mut pace)?.is_sound() {
            return Ok(OpenedCopy::Held(in_use));
        }
        drop(in_use);
        match self.receive(stop)? {
            Receiving::Open(receiver) => reuse(receiver, &mut pace),
            Receiving::Held(copy) => Err(Error::Unusable { copy }),
        }
    }

    /// Waits for a process of an earlier cast that still has the copy.
    fn receive(&self, stop: &AtomicBool) -> Result<Receiving, Error> {
        let (mut last_use, mut since) = (None, Instant::now());
        loop {
            match self.store.receive(&self.catalogue, &self.placing) {
                Err(Error::Busy { .. }) if since.elapsed() < BUSY_MAX => {}
                other => return other,
            }
            let used = self.store.last_use(self.catalogue.hash())?;
            if used != last_use {
                (last_use, since) = (used, Instant::now());
            }
            if stop.load(Relaxed) {
                return Err(Error::Stopped);
            }
            std::thread::sleep(BUSY_PAUSE);
        }
    }
}

fn reuse(
    mut receiver: Box<SetReceiver>,
    pace: &mut dyn FnMut(u64) -> bool,
) -> Result<OpenedCopy, Error> {
    receiver.reuse(pace)?;
    Ok(OpenedCopy::Open(receiver))
}

impl NodeCopy {
    /// Returns the copy for the threads of a cast.
    pub fn new(store: NodeStore, opened: OpenedCopy) -> Self {
        let stage = match opened {
            OpenedCopy::Held(in_use) => CopyStage::Placed(in_use),
            OpenedCopy::Open(receiver) => CopyStage::Receiving(receiver),
        };
        NodeCopy {
            store,
            state: Mutex::new(stage),
            changed: Condvar::new(),
        }
    }

    /// Writes units until the set is complete, and commits it. Returns `None` if the units end before.
    ///
    /// # Errors
    /// The copy cannot be written. What was written stays for the next cast.
    pub fn write_all(&self, units: &Receiver<VerifiedUnit>) -> Result<Option<WrittenCopy>, Error> {
        let result = self.write_units(units);
        if let Ok(true) = result {
            return self.commit().map(Some);
        }
        self.set_stage(CopyStage::Gone);
        result.map(|_| None)
    }

    fn write_units(&self, units: &Receiver<VerifiedUnit>) -> Result<bool, Error> {
        loop {
            let present = match &*self.state.lock() {
                CopyStage::Receiving(receiver) => receiver.present(),
                _ => return Ok(false),
            };
            if present.is_complete() {
                return Ok(true);
            }
            let Ok(unit) = next_unit(units) else {
                return Ok(false);
            };
            if let CopyStage::Receiving(receiver) = &mut *self.state.lock() {
                receiver.put_verified(&unit)?;
            }
        }
    }

    fn commit(&self) -> Result<WrittenCopy, Error> {
        let stage = std::mem::replace(&mut *self.state.lock(), CopyStage::Committing);
        let result = match stage {
            CopyStage::Receiving(receiver) => receiver.place(),
            _ => Err(Error::Stopped),
        };
        let in_use = result
            .as_ref()
            .ok()
            .and_then(|(placed, _)| self.store.use_copy(placed.copy).ok());
        self.set_stage(in_use.map_or(CopyStage::Gone, CopyStage::Placed));
        result.map(|(placed, replaced)| WrittenCopy { placed, replaced })
    }

    fn set_stage(&self, stage: CopyStage) {
        *self.state.lock() = stage;
        self.changed.notify_all();
    }

    /// Notes that the placed copy cannot be read. Returns whether it is placed.
    pub fn mark_damaged(&self) -> bool {
        let copy = match &*self.state.lock() {
            CopyStage::Placed(in_use) => in_use.copy(),
            _ => return false,
        };
        let _the_next_verification_finds_it = self.store.mark_damaged(copy);
        true
    }
}

/// Returns the next unit. Lets further units gather before it waits for one, so that not each unit
/// wakes this thread.
fn next_unit(units: &Receiver<VerifiedUnit>) -> Result<VerifiedUnit, RecvError> {
    units.try_recv().or_else(|_| {
        std::thread::sleep(GATHER);
        units.recv()
    })
}

/// Notes the job, its user and the lifetime of a copy, and makes the outbox of the job.
pub(crate) fn keep_copy(store: &NodeStore, copy: u64, limits: &ContentLimits) -> Result<(), Error> {
    if let Some(job) = &limits.job {
        store.add_job(copy, job, limits.reader)?;
        if limits.has_outbox {
            store.make_outbox(job, limits.reader)?;
        }
    }
    if limits.is_pinned {
        store.pin(copy, true)?;
    }
    // The last cast decides.
    store.expire(copy, limits.seconds_max.map(Duration::from_secs))
}

impl UnitContent for NodeCopy {
    fn reader(&self) -> Result<UnitReader, Error> {
        let mut state = self.state.lock();
        loop {
            match &*state {
                CopyStage::Receiving(receiver) => return receiver.reader(),
                CopyStage::Placed(in_use) => {
                    let copy = in_use.copy();
                    drop(state);
                    return self.store.reader(copy);
                }
                CopyStage::Committing => state = self.changed.wait(state),
                CopyStage::Gone => return Err(Error::Stopped),
            }
        }
    }

    fn may_recover(&self) -> bool {
        !matches!(*self.state.lock(), CopyStage::Gone)
    }
}
