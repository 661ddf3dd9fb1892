//! Hard-link groups during a run: the first name met leads, the others become links to it.
//!
//! Whoever meets a further name while the first is still being copied leaves it here and goes on; it is put back into the
//! queue when the group is settled.

use driftless_state::{InodeId, Leader, LinkTable};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Inodes held in memory; more spill to disk. At some 200 bytes each this is 20 MB.
const MEMORY_INODES_MAX: usize = 100_000;

/// What is to be done with a name of a file that has several.
#[derive(Debug)]
pub enum Arrival<T> {
    /// It is the first: make it equal, then settle the group.
    Lead(T),
    /// Link it to this one.
    Follow(T, Leader),
    /// It was kept until the group is settled.
    Waits,
}

#[derive(Debug)]
struct Open<T> {
    waiting: Vec<T>,
}

/// The groups of a run; `T` is a name that waits.
#[derive(Debug)]
pub struct Links<T> {
    state: Mutex<(LinkTable, HashMap<InodeId, Open<T>>)>,
}

type Store<R> = Result<R, driftless_state::StoreError>;

impl<T> Links<T> {
    /// No groups yet.
    pub fn new() -> Self {
        Links { state: Mutex::new((LinkTable::new(MEMORY_INODES_MAX), HashMap::new())) }
    }

    fn lock(&self) -> MutexGuard<'_, (LinkTable, HashMap<InodeId, Open<T>>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name of the source inode `id` was met.
    pub fn arrive(&self, id: InodeId, name: T) -> Store<Arrival<T>> {
        let (table, open) = &mut *self.lock();
        if let Some(group) = open.get_mut(&id) {
            group.waiting.push(name);
            return Ok(Arrival::Waits);
        }
        if let Some(leader) = table.meet(id)? {
            return Ok(Arrival::Follow(name, leader));
        }
        open.insert(id, Open { waiting: Vec::new() });
        Ok(Arrival::Lead(name))
    }

    /// The first name of a group is equal now (`leader`, with the names still to come), or failed (`None`: the next leads).
    /// Returns the names that waited.
    pub fn settle(&self, id: InodeId, leader: Option<Leader>) -> Store<Vec<T>> {
        let (table, open) = &mut *self.lock();
        let waiting = open.remove(&id).map(|group| group.waiting).unwrap_or_default();
        if let Some(leader) = leader {
            table.settle(id, leader)?;
        }
        Ok(waiting)
    }

    /// Claims an inode of the replica for an inode of the source.
    pub fn claim(&self, replica: InodeId, source: InodeId) -> Store<bool> {
        self.lock().0.claim(replica, source)
    }
}
