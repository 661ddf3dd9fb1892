//! Trees that others change at the same time: a replica that is lent to members, or that a lead has
//! lent to this process.

use super::crossings::NotesOfPool;
use super::{Hands, Open};
use crate::pool::Crossings;
use driftless_engine::{Lent, Options, RunError};
use driftless_lock::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Who else changes the replica.
#[derive(Debug, Default)]
pub struct Company {
    /// It helps a lead, and never opens the replica by itself.
    is_member: bool,
    /// By which number members know whoever lends them the replica; 0 while there are none.
    members: AtomicU64,
    /// What members must know, while the trees are open and lent.
    lent: Mutex<Option<Lent>>,
    /// What a lead has lent to this process.
    borrowed: Mutex<Option<Lent>>,
    /// Where something is mounted on the host of the lead.
    pub(super) crossings: Arc<Mutex<Crossings>>,
    /// Others may be changing the replica.
    is_there: Arc<AtomicBool>,
    /// What a member calls itself.
    own: u128,
}

impl Company {
    /// Options by which the trees are opened.
    ///
    /// # Errors
    /// No lead has lent the replica to this member.
    pub(super) fn apply(&self, options: &mut Options) -> Result<(), RunError> {
        options.members = Some(self.members.load(Relaxed)).filter(|number| *number > 0);
        options.is_among_others = self.is_there.clone();
        options.own = self.own;
        options.lent = self.borrowed.lock().clone();
        if let Some(lent) = &options.lent {
            options.known_replica = Some(lent.identity);
            let notes = NotesOfPool::new(options.mount_notes.take(), self.crossings.clone());
            options.mount_notes = Some(Arc::new(notes));
        } else if self.is_member {
            let why = "no leader leases it to this follower";
            return Err(RunError::NotHeld {
                path: options.replica.to_string(),
                why: why.into(),
            });
        }
        Ok(())
    }

    pub(super) fn is_member(&self) -> bool {
        self.is_member
    }

    /// The trees are closed.
    pub(super) fn closed(&self) {
        *self.lent.lock() = None;
    }
}

impl Hands {
    /// The same for a member of a pool, which calls itself so.
    #[must_use]
    pub fn of_member(mut self, own: u128) -> Hands {
        self.company = Company {
            is_member: true,
            is_there: Arc::new(AtomicBool::new(true)),
            own: own.max(1),
            ..Company::default()
        };
        self
    }

    /// Whether others may be changing the replica.
    pub fn has_company(&self) -> bool {
        self.company.is_there.load(Relaxed)
    }

    /// Members are about to change the replica, who know it by this number. It is lent to them when
    /// something is looked at next.
    pub fn expect_members(&self, number: u64) {
        self.company.is_there.store(true, Relaxed);
        self.company.members.store(number.max(1), Relaxed);
    }

    /// Nobody else changes the replica any more, and all that others did is durable, or comes to
    /// this process by the queue.
    pub fn is_alone(&self) {
        self.company.members.store(0, Relaxed);
        self.company.closed();
        self.company.is_there.store(false, Relaxed);
        if let Some(open) = self.open.read().clone() {
            open.trees.take_back();
        }
    }

    /// What members must know; nothing while the replica is not lent.
    pub fn lent(&self) -> Option<Lent> {
        self.company.lent.lock().clone()
    }

    /// Lends the replica to the members that are expected, unless it is lent.
    pub(super) fn lend(&self, open: &Open) -> Result<(), RunError> {
        let number = self.company.members.load(Relaxed);
        let mut lent = self.company.lent.lock();
        if number > 0 && lent.is_none() {
            *lent = open.trees.lend(number)?;
        }
        Ok(())
    }

    /// A lead has lent the replica to this member, or does not any more.
    pub fn borrow(&self, lent: Option<Lent>) {
        *self.company.borrowed.lock() = lent;
    }

    /// The lead was heard of.
    pub fn heard_of_lead(&self) {
        if let Some(open) = self.open.try_read().as_deref().and_then(Option::as_ref) {
            open.trees.heard_of_lender();
        }
    }

    /// The lead is not heard of any more: what is in work ends.
    pub fn give_up(&self) {
        if let Some(open) = self.open.try_read().as_deref().and_then(Option::as_ref) {
            open.trees.give_up();
        }
    }
}
