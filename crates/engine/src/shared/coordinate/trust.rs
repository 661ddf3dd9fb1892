//! What movers say is looked at: one that sees another tree than the coordinator, somewhere below
//! the right roots, has made nothing there, however much it says.
//!
//! A batch is settled when the few entries that its mover names are seen here. What is not seen yet
//! may be on its way (file systems of servers remember for a while what they have looked at), so it
//! is looked at again for some time. Then the mover is in doubt: somebody may have changed the
//! replica meanwhile. The batch is carried out again, and before the end everything is looked at
//! once more. The second time it is believed no more, and gets no further batches.

use super::Coordinator;
use crate::shared::exchange::PartOfOutcome;
use crate::shared::settled::Settled;
use crate::trees::error::RunError;
use driftless_model::{Kind, Meta, RelPath, escape};
use driftless_tree::{DirMutRef, DirRef, Done, shows_changes_at_once};
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
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

/// What is wrong with a mover.
fn words(path: &RelPath) -> String {
    let path = escape(path.as_bytes());
    format!(
        "it says that \"{path}\" is equal, and the coordinator does not see it so: is another file system mounted there on that host?"
    )
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
            if self.first_missing(&part).is_some() {
                self.trust.known.insert((part.id, part.attempt));
                let now = self.clock.now();
                self.trust.held.push((part, ticket, [now, now]));
                return Ok(());
            }
        }
        self.believe(&part, ticket)
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
            match self.first_missing(&part) {
                Some(path) if now - since >= self.seen_late() => {
                    self.doubt(&part, &path)?;
                    self.exchange.accept(ticket);
                }
                Some(_) => self.trust.held.push((part, ticket, [since, now])),
                None => self.believe(&part, ticket)?,
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

    /// An entry that a mover of an open batch calls equal, and that is not there as it says.
    fn first_missing(&self, part: &PartOfOutcome) -> Option<RelPath> {
        let (source, replica) = (&self.roots.0, self.roots.1.as_ref()?);
        if self.single.is_some() {
            return None;
        }
        let told = part.read()?.settled;
        told.into_iter()
            .find(|told| is_missing(source, replica, told))
            .map(|told| told.path)
    }

    /// A mover's word is not what is seen here.
    fn doubt(&mut self, part: &PartOfOutcome, path: &RelPath) -> Result<(), RunError> {
        // What it has said of other batches may be as wrong, wherever nobody looked.
        self.life.is_second_hand = true;
        self.note_life()?;
        let why = words(path);
        let is_known = !self.trust.doubted.insert(part.mover.clone());
        if is_known && self.brief.distrusts(&part.mover).is_none() {
            self.monitor
                .note(&format!("{}: {why}; it gets no more work", part.mover));
            self.brief.distrust(&part.mover, &why);
            self.exchange.dismiss(&part.mover, &why);
        }
        self.disbelieve(part, &why)
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

/// Whether an entry is not on the replica as it was made, although the source has it still. What
/// cannot be looked at may be there.
fn is_missing(source: &DirRef, replica: &DirMutRef, told: &Settled) -> bool {
    let agrees = |meta: &Meta| {
        told.made.is_none_or(|(kind, size)| {
            meta.kind == kind && (kind != Kind::File || meta.size == size)
        })
    };
    let is_there = match look(&(replica.clone() as DirRef), &told.path) {
        Ok(meta) => agrees(&meta),
        Err(fault) => !fault.is_missing(),
    };
    !is_there && look(source, &told.path).is_ok_and(|meta| agrees(&meta))
}

/// What an entry is like now, by handles that are opened anew.
fn look(root: &DirRef, path: &RelPath) -> Done<Meta> {
    let names: Vec<CString> = path
        .names()
        .map(|name| CString::new(name).unwrap_or_default())
        .collect();
    let Some((last, above)) = names.split_last() else {
        return root.meta();
    };
    let mut dir = root.clone();
    for name in above {
        dir = dir.enter(name)?;
    }
    dir.look(last)
}
