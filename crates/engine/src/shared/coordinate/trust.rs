//! What movers say is looked at: one that sees another tree than the coordinator, somewhere below
//! the right roots, has made nothing there, however much it says.
//!
//! A batch is settled when the coordinator sees the sample of entries that its mover names as the
//! mover saw them at work, on the source and on the replica, and when its own view of both agrees
//! for an entry that the mover made. A view that is missing is a difference. What is not seen yet
//! may be on its way (file systems of servers remember for a while what they have looked at), so it
//! is looked at again for some time. Then the mover is in doubt: somebody may have changed the
//! replica meanwhile. The batch is carried out again, and before the end everything is looked at
//! once more. The second time it is believed no more, and gets no further batches.
//!
//! A mover that has another file system mounted in its replica sees other inodes there, also where
//! all else is equal.

use super::Coordinator;
use crate::monitor::Progress;
use crate::shared::exchange::PartOfOutcome;
use crate::shared::settled::{ReplicaView, Settled};
use crate::trees::error::RunError;
use crate::view::{Further, OTHER_WAY, View, ViewThreads, Views};
use driftless_lock::Mutex;
use driftless_model::{Keep, RelPath, Side, escape};
use driftless_reconcile::EVER;
use driftless_tree::{DirRef, shows_changes_at_once};
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Outcomes of a batch that are not believed, after which it is given up.
const DISBELIEVED_MAX: u32 = 5;
/// Between two looks at what was not there.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// For so long what another host has made may not be seen here.
const SEEN_LATE: Duration = Duration::from_secs(3);
/// How long what a mover did may stay unseen where a server or another host keeps the replica: an
/// NFS client believes what it knows of a directory for up to a minute (nfs(5), `acdirmax`).
const SEEN_LATE_OF_SERVERS: Duration = Duration::from_secs(65);
/// Seconds by which the clock of a file system may be ahead of the coordinator's. A change that
/// lies further in the future tells nothing of when it was made.
const CLOCK_AHEAD: i64 = 10;

/// What was said and is not seen here.
#[derive(Default)]
pub(super) struct Trust {
    /// Movers whose word was wrong once.
    doubted: HashSet<String>,
    /// How often what was said of a batch was not believed.
    batches: HashMap<u64, u32>,
    /// Outcomes that were held, as batches and tries: where one comes twice, it says nothing new.
    known: HashSet<(u64, u64)>,
    /// Outcomes that name what was not seen yet, with their tickets: since when, and the last look.
    held: Vec<(PartOfOutcome, u64, [Instant; 2])>,
}

/// View of a mover that is not the coordinator's.
struct Difference {
    path: RelPath,
    side: Side,
    /// Attribute that differs, with both values; `None` if the coordinator sees no such entry.
    what: Option<String>,
}

impl Difference {
    /// Returns the words for a mover with this view.
    fn words(&self) -> String {
        let path = escape(self.path.as_bytes());
        match &self.what {
            None if self.side == Side::Replica => format!(
                "it says that \"{path}\" is equal, and the coordinator does not see it so: is another file system mounted there on that host?"
            ),
            None => format!(
                "it sees \"{path}\" in the source, and the coordinator does not: is another file system, a snapshot or an old copy mounted on that host?"
            ),
            Some(what) => format!(
                "it sees \"{path}\" of the {} with {what}: is another file system, a snapshot or an old copy mounted on that host?",
                self.side.word()
            ),
        }
    }
}

impl Coordinator<'_> {
    /// Notes what came of a batch, once it is believed.
    pub(super) fn weigh(&mut self, part: PartOfOutcome, ticket: u64) -> Result<(), RunError> {
        // What nobody waits for any more is passed over.
        let counts = part.run == self.record.run() && self.sent.contains_key(&part.id);
        if counts && part.last {
            if let Some(why) = self.brief.distrusts(&part.mover).map(str::to_owned) {
                self.disbelieve(&part, &why)?;
                self.exchange.accept(ticket);
                return Ok(());
            }
            if self.trust.known.contains(&(part.id, part.attempt)) {
                self.exchange.accept(ticket);
                return Ok(());
            }
            if self.first_difference(&part).is_some() {
                self.trust.known.insert((part.id, part.attempt));
                let now = self.clock.now();
                self.trust.held.push((part, ticket, [now, now]));
                return Ok(());
            }
            return self.believe_if_read(&part, ticket);
        }
        self.believe(&part, ticket)
    }

    /// Notes what came of a batch, unless its mover could not read what the coordinator can.
    fn believe_if_read(&mut self, part: &PartOfOutcome, ticket: u64) -> Result<(), RunError> {
        if self.does_elsewhere(part)? {
            self.trust.known.insert((part.id, part.attempt));
            self.exchange.accept(ticket);
            return Ok(());
        }
        self.believe(part, ticket)
    }

    fn believe(&mut self, part: &PartOfOutcome, ticket: u64) -> Result<(), RunError> {
        if part.run == self.record.run() {
            self.note(part)?;
        }
        self.exchange.accept(ticket);
        Ok(())
    }

    /// Looks again at what was not there.
    pub(super) fn look_at_held(&mut self) -> Result<(), RunError> {
        let now = self.clock.now();
        let due: Vec<_> = self
            .trust
            .held
            .extract_if(.., |(.., [_, looked])| now - *looked >= LOOK_AGAIN)
            .collect();
        for (part, ticket, [since, _]) in due {
            match self.first_difference(&part) {
                Some(difference) if now - since >= self.seen_late() => {
                    self.doubt(&part, &difference)?;
                    self.exchange.accept(ticket);
                }
                Some(_) => self.trust.held.push((part, ticket, [since, now])),
                None => self.believe_if_read(&part, ticket)?,
            }
        }
        Ok(())
    }

    fn seen_late(&self) -> Duration {
        let is_near = self
            .roots
            .1
            .as_ref()
            .and_then(|dir| dir.as_local())
            .is_some_and(shows_changes_at_once);
        if is_near {
            SEEN_LATE
        } else {
            SEEN_LATE_OF_SERVERS
        }
    }

    /// Returns the first entry of an open batch that the mover sees otherwise than the coordinator.
    fn first_difference(&self, part: &PartOfOutcome) -> Option<Difference> {
        let (source, replica) = (&self.roots.0, self.roots.1.as_ref()?);
        let replica = &(replica.clone() as DirRef);
        let keep = &self.options.policy.keep;
        let renamed = self.single.as_ref().map(|(_, renamed)| &**renamed);
        let last = self.clock.seconds().cast_signed();
        let during = self.began.saturating_add(1)..=last.saturating_add(CLOCK_AHEAD);
        let (all, found) = (part.read()?.settled, Mutex::new(None));
        let (told, first) = (&all[..], &found);
        let (monitor, changes) = (self.monitor, &self.changes);
        let (progress, looked) = (self.progress(), Instant::now());
        let tell = || {
            monitor.progress(&Progress {
                elapsed: progress.elapsed + looked.elapsed(),
                ..progress
            });
            changes.look_after();
        };
        let threads = ViewThreads::of(&self.options.throttle, self.threads_max, &tell);
        threads.read_each(told.len(), &|| {
            let mut own = Own {
                source: Views::of(source, keep),
                replica: Views::of(replica, keep).under_name(renamed),
                keep: *keep,
                during: during.clone(),
            };
            move |number: usize| own.compare(told, number, first)
        });
        found.into_inner().map(|(_, difference)| difference)
    }

    /// A mover's word is not what is seen here.
    fn doubt(&mut self, part: &PartOfOutcome, difference: &Difference) -> Result<(), RunError> {
        // What it has said of other batches may be as wrong, wherever nobody looked.
        self.life.is_second_hand = true;
        self.note_life()?;
        if difference.side == Side::Source {
            self.suspect_content();
        }
        let why = difference.words();
        let is_known = !self.trust.doubted.insert(part.mover.clone());
        if is_known && self.brief.distrusts(&part.mover).is_none() {
            self.monitor
                .note(&format!("{}: {why}; it gets no more work", part.mover));
            self.brief.distrust(&part.mover, &why);
            self.exchange.dismiss(&part.mover, &why);
        }
        self.disbelieve(part, &why)
    }

    /// Has the last look compare the content of all that this run has changed: it may be that of
    /// another source, with the size and the time of the right one. Until then the mover may be at
    /// work still, and would put its own content in the place of the right one.
    pub(super) fn suspect_content(&mut self) {
        let since = self.changes.changed_since().unwrap_or(EVER);
        self.settled_since = Some(self.settled_since.map_or(since, |other| other.min(since)));
    }

    /// Has a batch carried out again, by another mover if there is one.
    pub(super) fn disbelieve(&mut self, part: &PartOfOutcome, why: &str) -> Result<(), RunError> {
        let count = self.trust.batches.entry(part.id).or_default();
        *count += 1;
        if *count >= DISBELIEVED_MAX {
            return self.give_up(part.id, &format!("{}: {why}", part.mover));
        }
        self.alive.remove(&part.id);
        self.hand_out_again(part.id)
    }
}

/// First difference that any thread has found, and its number.
type FirstDifference = Mutex<Option<(usize, Difference)>>;

/// Views of the coordinator.
struct Own {
    source: Views,
    replica: Views,
    keep: Keep,
    /// Seconds in which a change of the source may have been made during the run.
    during: RangeInclusive<i64>,
}

impl Own {
    /// Compares the view of a mover that has this number, unless one before it is known to differ.
    fn compare(&mut self, told: &[Settled], number: usize, first: &FirstDifference) {
        let is_later = |first: &Option<(usize, Difference)>| {
            first.as_ref().is_some_and(|(before, _)| *before < number)
        };
        if is_later(&first.lock()) {
            return;
        }
        let difference = self.difference(&told[number]);
        let mut first = first.lock();
        if let Some(difference) = difference
            && !is_later(&first)
        {
            *first = Some((number, difference));
        }
    }

    /// Compares the view of a mover. An entry of the source that changed during the run may differ,
    /// and one that cannot be read may be there.
    fn difference(&mut self, told: &Settled) -> Option<Difference> {
        let differs = |side, what| Difference {
            path: told.path.clone(),
            side,
            what,
        };
        let Some(theirs) = &told.source else {
            let own = self.source.read(&told.path, Further::default());
            let is_there = own.is_ok_and(|own| !own.is_changed_in(&self.during));
            let what = "no attributes, and the coordinator some";
            return is_there.then(|| differs(Side::Source, Some(what.into())));
        };
        if told.is_mounted && self.source.lacks_mount(&told.path, theirs) {
            let what = "a file system mounted there, and the coordinator without one";
            return Some(differs(Side::Source, Some(what.into())));
        }
        let further = Further {
            names: theirs.names.is_some(),
            birth: false,
        };
        let source = match self.source.read(&told.path, further) {
            Ok(own) => match theirs.difference(&own, (Side::Source, &self.keep)) {
                Some(_) if theirs.may_be_outdated(&own, &self.during) => return None,
                Some(what) => return Some(differs(Side::Source, Some(what))),
                None => own,
            },
            Err(fault) if fault.is_missing() && self.is_old_above(&told.path) => {
                return Some(differs(Side::Source, None));
            }
            Err(_) => return None,
        };
        self.difference_on_replica(told, &source)
    }

    /// Compares the replica's entry with the view of a mover, and with the coordinator's own view of
    /// the source's.
    fn difference_on_replica(&mut self, told: &Settled, source: &View) -> Option<Difference> {
        let differs = |what| Difference {
            path: told.path.clone(),
            side: Side::Replica,
            what,
        };
        let further = Further {
            names: false,
            birth: matches!(&told.replica, ReplicaView::Seen(theirs) if theirs.born.is_some()),
        };
        if told.replica == ReplicaView::Left {
            return None;
        }
        let own = match self.replica.read(&told.path, further) {
            Ok(own) => own,
            Err(fault) => return fault.is_missing().then(|| differs(None)),
        };
        let what = match &told.replica {
            ReplicaView::Seen(theirs) => self.difference_of_seen(&told.path, theirs, &own),
            ReplicaView::Made(way) => {
                let is_elsewhere = self.replica.has_other_way(&told.path, *way, &own);
                is_elsewhere.then(|| OTHER_WAY.to_owned())
            }
            ReplicaView::Left => None,
        };
        let began = self.during.start().saturating_sub(CLOCK_AHEAD);
        match what {
            None if told.is_equal && own.is_unlike(source, &self.keep, began) => {
                Some(differs(None))
            }
            what => what.map(|what| differs(Some(what))),
        }
    }

    fn difference_of_seen(&mut self, path: &RelPath, theirs: &View, own: &View) -> Option<String> {
        match theirs.difference(own, (Side::Replica, &self.keep)) {
            None if self.replica.is_other(path, theirs, own) => Some(theirs.inode_words(own)),
            what => what,
        }
    }

    /// Returns whether no name of the source's directory around `path` came or went during the
    /// run.
    fn is_old_above(&mut self, path: &RelPath) -> bool {
        let above = path.split_last().map(|(above, _)| above);
        let view = above.and_then(|above| self.source.read(&above, Further::default()).ok());
        view.is_some_and(|view| !view.is_changed_in(&self.during))
    }
}
