//! Open directories under a bound on file descriptors.
//!
//! A [`Node`] remembers its parent, its name and which inode it is. Its descriptor may be taken
//! away when too many are open; then it is opened again from the nearest open ancestor, one name at
//! a time, and must be the same inode. So trees may be deeper than the limit on open files, and
//! paths longer than the kernel takes in one call.

use crate::Done;
use crate::gate::Gate;
use crate::local::look::fault;
use crate::local::shown::{is_encrypted, refuse_locked};
use driftless_lock::Mutex;
use driftless_model::{Act, Fault, Meta, Side};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Weak};

/// Bounds how many directory descriptors are open at once.
#[derive(Debug)]
pub struct HandlePool {
    open_max: usize,
    open: AtomicUsize,
    order: Mutex<VecDeque<Weak<Node>>>,
    /// What new entries look like, by the number of the device, where a look was needed.
    births: Mutex<HashMap<u64, Birth>>,
    /// Whether the attributes of a symbolic link reach what it leads to, by the number of the
    /// device, where that was tried.
    follows_links: Mutex<HashMap<u64, bool>>,
    /// The gate that each change of the replica passes.
    gate: Arc<Gate>,
    /// Files on which another process holds a lease are not waited for.
    passes_by_leases: AtomicBool,
    /// Directories that stand in the place of others are entered.
    enters_stand_ins: AtomicBool,
}

/// What an entry looks like that this process has just made for itself alone: some file systems
/// have owners or modes of their own.
#[derive(Debug, Clone, Copy)]
pub struct Birth {
    pub uid: u32,
    /// Others have rights, although none were given to them.
    pub is_open: bool,
}

impl HandlePool {
    /// From now on, a file on which another process holds a lease is a fault (EAGAIN) and not
    /// waited for: the process is asked to give the lease up, and who tries again later may have
    /// the file (fcntl(2), `F_SETLEASE`).
    pub fn pass_by_leases(&self) {
        self.passes_by_leases.store(true, Relaxed);
    }

    /// Lets directories be entered that do not show what belongs there, such as those in the place
    /// of subvolumes: the caller knows that nothing follows from what they lack.
    pub fn enter_stand_ins(&self) {
        self.enters_stand_ins.store(true, Relaxed);
    }

    /// A pool for at most about `open_max` descriptors, but no fewer than 4 (those of the roots and
    /// those in use at the moment come on top).
    pub fn new(open_max: usize) -> Arc<Self> {
        Arc::new(HandlePool {
            open_max: open_max.max(4),
            open: AtomicUsize::new(0),
            passes_by_leases: AtomicBool::new(false),
            enters_stand_ins: AtomicBool::new(false),
            order: Mutex::default(),
            births: Mutex::default(),
            follows_links: Mutex::default(),
            gate: Arc::default(),
        })
    }

    fn opened(&self, node: &Arc<Node>) {
        self.open.fetch_add(1, Relaxed);
        let mut order = self.order.lock();
        order.push_back(Arc::downgrade(node));
        if order.len() > self.open_max * 2 {
            order.retain(|node| node.strong_count() > 0);
        }
        let mut tries = order.len().min(16);
        while self.open.load(Relaxed) > self.open_max && tries > 0 {
            tries -= 1;
            let Some(oldest) = order.pop_front() else {
                break;
            };
            self.take_back(oldest, &mut order);
        }
    }

    fn take_back(&self, oldest: Weak<Node>, order: &mut VecDeque<Weak<Node>>) {
        let Some(node) = oldest.upgrade() else { return };
        if node.give_back() {
            self.open.fetch_sub(1, Relaxed);
        } else {
            order.push_back(oldest);
        }
        // This may drop the last reference to a node while the caller holds the lock of `order`: a
        // node's Drop does not take that lock.
    }
}

/// A directory that was opened once and can be opened again.
#[derive(Debug)]
pub struct Node {
    pool: Arc<HandlePool>,
    side: Side,
    parent: Option<Arc<Node>>,
    name: CString,
    id: (u64, u64),
    /// What is opened again is asked for its key.
    is_encrypted: bool,
    fd: Mutex<Option<Arc<OwnedFd>>>,
}

/// Opens a directory below an open one without following a symlink, and without touching its access
/// time where that is allowed.
pub fn open_dir(at: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(at, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => openat(at, name, flags, Mode::empty()),
        other => other,
    }
}

fn id_of(fd: &OwnedFd) -> Result<(u64, u64), Errno> {
    rustix::fs::fstat(fd).map(|st| (st.st_dev, st.st_ino))
}

impl Node {
    /// The root of a tree; its descriptor is never taken away.
    pub fn root(pool: &Arc<HandlePool>, side: Side, fd: OwnedFd, first: &Meta) -> Arc<Node> {
        let fd = Mutex::new(Some(Arc::new(fd)));
        Arc::new(Node {
            pool: pool.clone(),
            side,
            parent: None,
            name: c".".into(),
            id: first.id(),
            is_encrypted: is_encrypted(first),
            fd,
        })
    }

    /// Whether it is the root of a tree.
    pub fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    /// Returns whether a directory above it is the same one, as where a server follows links.
    pub fn lies_in_itself(&self) -> bool {
        std::iter::successors(self.parent.as_deref(), |node| node.parent.as_deref())
            .any(|above| above.id == self.id)
    }

    /// A directory below `parent` that was just opened.
    pub fn child(parent: &Arc<Node>, name: &CStr, fd: OwnedFd, first: &Meta) -> Arc<Node> {
        let (pool, side) = (parent.pool.clone(), parent.side);
        let fd = Mutex::new(Some(Arc::new(fd)));
        let node = Arc::new(Node {
            pool,
            side,
            parent: Some(parent.clone()),
            name: name.into(),
            id: first.id(),
            // All in an encrypted directory is encrypted.
            is_encrypted: parent.is_encrypted || is_encrypted(first),
            fd,
        });
        node.pool.opened(&node);
        node
    }

    /// Which tree this belongs to.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Whether files on which another process holds a lease are not waited for.
    pub fn passes_by_leases(&self) -> bool {
        self.pool.passes_by_leases.load(Relaxed)
    }

    /// Whether directories that stand in the place of others are entered.
    pub fn enters_stand_ins(&self) -> bool {
        self.pool.enters_stand_ins.load(Relaxed)
    }

    /// The gate of the replica that this belongs to: each change passes it.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.pool.gate
    }

    /// Lets a change of a replica through its gate.
    pub fn pass_gate(&self) -> Done {
        if self.side == Side::Replica {
            self.pool.gate.pass()
        } else {
            Ok(())
        }
    }

    /// What new entries look like on this directory's device, which `probe` finds out once.
    pub fn birth(&self, probe: impl FnOnce() -> Option<Birth>) -> Option<Birth> {
        let mut births = self.pool.births.lock();
        if let Some(birth) = births.get(&self.id.0) {
            return Some(*birth);
        }
        let birth = probe()?;
        births.insert(self.id.0, birth);
        Some(birth)
    }

    /// Whether attributes of links reach what these lead to on the device `dev`, which `find_out`
    /// finds out once.
    pub fn follows_links(&self, dev: u64, find_out: impl FnOnce() -> Done<bool>) -> Done<bool> {
        let mut known = self.pool.follows_links.lock();
        if let Some(follows) = known.get(&dev) {
            return Ok(*follows);
        }
        let follows = find_out()?;
        known.insert(dev, follows);
        Ok(follows)
    }

    /// The open descriptor; opens it again if it was taken away.
    pub fn fd(self: &Arc<Self>) -> Result<Arc<OwnedFd>, Fault> {
        if let Some(fd) = &*self.fd.lock() {
            return Ok(fd.clone());
        }
        let fd = self
            .reopen()
            .map_err(|e| fault(self.side, Act::ReopenDirectory, e))?;
        Ok(self.keep(fd))
    }

    fn keep(self: &Arc<Self>, fd: OwnedFd) -> Arc<OwnedFd> {
        let mut slot = self.fd.lock();
        if let Some(fd) = &*slot {
            return fd.clone();
        }
        let fd = Arc::new(fd);
        *slot = Some(fd.clone());
        drop(slot);
        self.pool.opened(self);
        fd
    }

    fn reopen(self: &Arc<Self>) -> Result<OwnedFd, Errno> {
        let mut closed = vec![self.clone()];
        let mut at = loop {
            let parent = closed
                .last()
                .and_then(|node| node.parent.clone())
                .ok_or(Errno::STALE)?;
            let fd = parent.fd.lock().clone();
            match fd {
                Some(fd) => break fd,
                None => closed.push(parent),
            }
        };
        while let Some(node) = closed.pop() {
            let fd = open_dir(&at, &node.name)?;
            node.check(&fd)?;
            at = Arc::new(fd);
        }
        Arc::try_unwrap(at).map_err(|_| Errno::STALE)
    }

    fn check(&self, fd: &OwnedFd) -> Result<(), Errno> {
        if id_of(fd)? != self.id {
            return Err(Errno::STALE);
        }
        if self.is_encrypted {
            refuse_locked(fd)?;
        }
        Ok(())
    }

    /// Opens the parent again through `..`, if its descriptor was taken away and this one is open:
    /// that is one call, where otherwise a walk from an open ancestor is due.
    pub fn revive_parent(&self) {
        let Some(parent) = &self.parent else { return };
        if parent.fd.lock().is_some() {
            return;
        }
        let Some(own) = self.fd.lock().clone() else {
            return;
        };
        if let Ok(fd) = open_dir(&own, c"..")
            && parent.check(&fd).is_ok()
        {
            parent.keep(fd);
        }
    }

    /// Closes the descriptor unless somebody uses it or it is a root's; returns whether it did.
    fn give_back(&self) -> bool {
        if self.parent.is_none() {
            return false;
        }
        let Some(mut slot) = self.fd.try_lock() else {
            return false;
        };
        if slot.as_ref().is_some_and(|fd| Arc::strong_count(fd) == 1) {
            *slot = None;
            return true;
        }
        false
    }
}

impl Drop for Node {
    /// Lets go of a long chain of ancestors one by one: recursion would overflow the stack of a
    /// thread.
    fn drop(&mut self) {
        if self.parent.is_some() && self.fd.lock().is_some() {
            self.pool.open.fetch_sub(1, Relaxed);
        }
        let mut next = self.parent.take();
        while let Some(node) = next {
            match Arc::try_unwrap(node) {
                Ok(mut last) => {
                    if last.parent.is_some() && last.fd.lock().take().is_some() {
                        last.pool.open.fetch_sub(1, Relaxed);
                    }
                    next = last.parent.take();
                }
                Err(_) => break,
            }
        }
    }
}

/// Removes a nest when nobody uses it any more.
#[derive(Debug)]
pub struct Keeper {
    /// The directory that it is in.
    pub above: Arc<Node>,
    /// Its name there.
    pub name: CString,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // A run that may not change the tree any more leaves the nest to the next run.
        if self.above.pass_gate().is_ok()
            && let Ok(above) = self.above.fd()
        {
            let _or_the_next_run_does = unlinkat(&*above, &*self.name, AtFlags::REMOVEDIR);
        }
    }
}
