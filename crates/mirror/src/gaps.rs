//! From when on changes may have been missed: while the mirror did not run, and when the kernel
//! told too little.
//!
//! Everything before a moment was heard of, and is on the replica or in the state. Whether times of
//! change can say what came after it depends on where both trees are and on the clock; in doubt,
//! nothing is known, and all is compared.

use crate::job::Job;
use driftless_detect::place::{Clock, Place};
use driftless_model::Stamp;
use driftless_remote::Target;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// How often it is kept until when all was heard of.
const KEEP_EVERY: Duration = Duration::from_secs(5);
/// How often the clock is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Everything before a moment was heard of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Heard {
    until: Stamp,
    clock: Clock,
}

/// Both trees, and what is done between them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Ground {
    /// What the job takes, keeps and leaves out, and by which version of the program.
    job: u64,
    source: Place,
    replica: Place,
}

/// What is kept of a moment.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    heard: Heard,
    ground: Ground,
}

/// What is known of times.
pub struct Gaps {
    job: u64,
    source: Option<OwnedFd>,
    /// Where the replica is, if it is on this host.
    replica: Option<PathBuf>,
    /// As it was when the trees were equal.
    ground: Option<Ground>,
    heard: Option<(Duration, Heard)>,
    /// What was heard of until then is done or saved by now.
    settled: Option<(Duration, Heard)>,
    kept: Duration,
    /// From when on changes may not have been heard of that no comparison of all has looked at.
    unheard: Option<Stamp>,
}

impl Gaps {
    /// Of a job with one replica, and the directory of its source if it is watched.
    pub fn of(job: &Job, source: Option<OwnedFd>) -> Gaps {
        let replica = Target::parse(job.replicas[0].as_ref());
        let replica = replica.ok().filter(|target| target.host.is_none());
        Gaps {
            job: job.rules(),
            source,
            replica: replica.map(|target| target.path),
            ground: None,
            heard: None,
            settled: None,
            kept: Duration::ZERO,
            unheard: None,
        }
    }

    /// Everything until `moment` was heard of.
    pub fn heard_until(&mut self, moment: Duration, now: Duration) {
        let is_new = |(at, _): &(Duration, Heard)| now.saturating_sub(*at) < LOOK_EVERY;
        if self.source.is_none() || self.heard.as_ref().is_some_and(is_new) {
            return;
        }
        let clock = Clock::now().ok();
        let until = stamp(now.saturating_sub(moment));
        self.heard = clock
            .zip(until)
            .map(|(clock, until)| (now, Heard { until, clock }));
    }

    /// From when on something may have been missed that the kernel should have told of.
    pub fn since_heard(&self) -> Option<Stamp> {
        let (_, heard) = self.heard.as_ref()?;
        heard.still()
    }

    /// From when on changes were not heard of, as an earlier life of the mirror has kept it.
    pub fn since_kept(&mut self, kept: &[u8]) -> Option<Stamp> {
        let kept: Kept = serde_json::from_slice(kept).ok()?;
        self.ground = self.look().filter(|ground| *ground == kept.ground);
        self.ground.as_ref().and_then(|_| kept.heard.still())
    }

    /// Notes that changes since a moment may not have been heard of: the next comparison of all looks
    /// at the content of what was changed since.
    pub fn miss_since(&mut self, since: Option<Stamp>) {
        self.unheard = self.unheard.into_iter().chain(since).min();
    }

    /// Returns that moment for the comparison that begins now; one that is not done gives it back.
    pub fn take_missed(&mut self) -> Option<Stamp> {
        self.unheard.take()
    }

    /// The trees are equal, where they are.
    pub fn equal(&mut self) {
        self.ground = self.look();
    }

    /// What is to be kept, if it is time: nothing, where an earlier life would not know what is
    /// equal. Of what was heard of within `young` not all may be saved.
    pub fn to_keep(&mut self, now: Duration, young: Duration, is_known: bool) -> Option<Vec<u8>> {
        if !is_known {
            self.settled = None;
            let is_kept = std::mem::take(&mut self.kept) > Duration::ZERO;
            return is_kept.then(Vec::new);
        }
        if now.saturating_sub(self.kept) < KEEP_EVERY {
            return None;
        }
        match &self.settled {
            Some((at, _)) if now.saturating_sub(*at) < young => return None,
            Some((_, heard)) => {
                let kept = Kept {
                    heard: heard.clone(),
                    ground: self.ground.clone()?,
                };
                self.kept = now;
                self.settled = None;
                return serde_json::to_vec(&kept).ok();
            }
            None => {}
        }
        self.settled = self.heard.clone().map(|(_, heard)| (now, heard));
        None
    }

    fn look(&self) -> Option<Ground> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let replica = open(self.replica.as_ref()?, flags, Mode::empty()).ok()?;
        Some(Ground {
            job: self.job,
            source: Place::of(self.source.as_ref()?.as_fd()).ok()?,
            replica: Place::of(replica.as_fd()).ok()?,
        })
    }
}

impl Heard {
    /// The moment, if the clock is still the same.
    fn still(&self) -> Option<Stamp> {
        let now = Clock::now().ok()?;
        now.follows(&self.clock).then_some(self.until)
    }
}

/// Returns a moment as files have it.
pub fn stamp_of(moment: Duration) -> Stamp {
    Stamp {
        sec: moment.as_secs().cast_signed(),
        nsec: moment.subsec_nanos(),
    }
}

/// The time of day so long ago.
fn stamp(ago: Duration) -> Option<Stamp> {
    let then = SystemTime::now().checked_sub(ago)?;
    let since = then.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Stamp {
        sec: since.as_secs().cast_signed(),
        nsec: since.subsec_nanos(),
    })
}
