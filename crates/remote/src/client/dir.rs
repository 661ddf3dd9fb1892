//! A directory on another host.
//!
//! What a listing told of an entry answers the first look at it, so that a directory costs one
//! round trip and not one for each entry. Every later look, and every look at what this side has
//! changed, goes over the connection. A directory that is made is used at once; if it could not be
//! made, everything in it fails for that reason.

mod change;
mod completions;
mod listing;

use driftless_lock::Mutex;

use crate::budget::Room;
use crate::client::Client;
use crate::client::connection::{Promise, Space, nonsense, on};
use crate::client::file::RemoteFile;
use crate::client::replies::{long_if_need_be, not_set};
use crate::wire::{
    Handle, Listing, Located, Name, Own, Reply, Request, SparingRules, Survey, WireFault,
};
use completions::{fetched, looked};
use driftless_model::{Act, Fault, Keep, Kind, Meta, Side, Stamp, Unkept, Xattrs, errno};
use driftless_tree::{
    Ancestor, Completion, Dir, DirRef, Done, Held, MarkText, NameStream, Op, ReadFile, Removed,
    Rights, Spared,
};
use listing::{Entries, RemoteNames};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

/// Entries that come with a directory that was expected. Most directories have fewer; room is taken
/// for as many, and what there is room for bounds how many directories are expected at the same
/// time.
const EXPECTED_ENTRIES: u32 = 64;
/// Directories that are expected at once, at most.
const AHEAD_MAX: usize = 4096;
/// What their replies may take, in bytes: as much as may come while they are under way, then what
/// came.
const AHEAD_BYTES_MAX: u64 = 48 << 20;

enum First {
    /// What it was like, and whether something is mounted there.
    Known(Meta, Option<bool>),
    /// It is being made.
    Coming(Arc<Promise>, OnceLock<Result<Meta, WireFault>>),
}

/// An open directory of another host.
pub struct RemoteDir(Arc<Inner>);

struct Inner {
    client: Arc<Client>,
    side: Side,
    at: Handle,
    first: First,
    /// In which it is being made, and which must not be let go of before it is.
    above: Option<Arc<Inner>>,
    own: Mutex<Option<Xattrs>>,
    foretold: Mutex<Foretold>,
    is_marked: bool,
    is_unfinished: bool,
    files: bool,
    entries: Mutex<Entries>,
    ahead: Mutex<HashMap<CString, Expected>>,
}

/// What is asked of each root first, and was asked for together with it. Each answers one question,
/// and that one alone: what is asked again is meant to be looked at again.
#[derive(Default)]
pub struct Foretold {
    lineage: Option<Arc<Promise>>,
    xattrs: Option<Arc<Promise>>,
}

impl Foretold {
    /// Asks for it, about a directory whose number the other side has been told.
    pub fn ask(client: &Client, at: Handle) -> Foretold {
        let ask = |request| Some(client.connection.ask(&request, Vec::new()));
        let xattrs = Request::Xattrs {
            at,
            keep: client.keep,
            long: false,
        };
        Foretold {
            lineage: ask(Request::Lineage { dir: at }),
            xattrs: ask(xattrs),
        }
    }
}

/// A directory that was asked for before it is entered.
struct Expected {
    at: Handle,
    files: bool,
    promise: Arc<Promise>,
    /// What its reply takes, or may take.
    _room: Arc<Mutex<Room>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let ahead = std::mem::take(&mut *self.ahead.lock());
        self.client.connection.ahead.fetch_sub(ahead.len(), Relaxed);
        ahead
            .into_values()
            .for_each(|expected| self.client.connection.forget(expected.at));
        self.client.connection.forget(self.at);
        // One by one, not each within the other: a chain of some ten thousand would overflow the
        // stack.
        let mut above = self.above.take();
        while let Some(mut inner) = above.and_then(Arc::into_inner) {
            above = inner.above.take();
        }
    }
}

impl Inner {
    fn open(self) -> RemoteDir {
        RemoteDir(Arc::new(self))
    }

    /// Its attributes are what they were only if it is.
    fn looked(&self, now: &Meta) {
        if !matches!(&self.first, First::Known(first, _) if first.unchanged(now)) {
            self.forget_own();
        }
    }

    /// What was heard of its attributes does not hold any more.
    fn forget_own(&self) {
        self.own.lock().take();
        self.foretold.lock().xattrs.take();
    }
}

impl RemoteDir {
    /// A directory that was found at a path of the user's.
    pub fn found(
        client: &Arc<Client>,
        side: Side,
        at: Handle,
        (own, foretold): (Own, Foretold),
    ) -> RemoteDir {
        let mut found = Self::of(
            client,
            side,
            at,
            First::Known(own.meta, own.is_mount_root),
            (own.xattrs, true, None),
        );
        found.is_unfinished = own.is_unfinished;
        found.foretold = Mutex::new(foretold);
        found.open()
    }

    fn of(
        client: &Arc<Client>,
        side: Side,
        at: Handle,
        first: First,
        (own, files, listing): (Option<Xattrs>, bool, Option<Listing>),
    ) -> Inner {
        let entries = Mutex::new(Entries::with(listing, &client.connection.known));
        let (client, own) = (client.clone(), Mutex::new(own));
        let foretold = Mutex::default();
        Inner {
            client,
            side,
            at,
            first,
            above: None,
            own,
            foretold,
            is_marked: false,
            is_unfinished: false,
            files,
            entries,
            ahead: Mutex::default(),
        }
    }

    fn call(&self, request: &Request) -> Done<(Reply, Vec<u8>)> {
        on(
            self.0.side,
            self.0.client.connection.call(request, Vec::new()),
        )
    }

    fn done(&self, request: &Request) -> Done {
        self.call(request).map(drop)
    }

    fn confused<T>(&self) -> Done<T> {
        Err(nonsense().on(self.0.side))
    }

    fn meta_reply(&self, request: &Request) -> Done<Meta> {
        match self.call(request)? {
            (Reply::Meta(meta), _) => Ok(meta),
            _ => self.confused(),
        }
    }

    fn xattrs_reply(&self, request: &Request) -> Done<Xattrs> {
        match self.call(request)? {
            (Reply::Xattrs(xattrs), _) => Ok(xattrs),
            _ => self.confused(),
        }
    }

    fn faults_reply(&self, request: &Request) -> Done<Vec<Fault>> {
        not_set(self.0.side, self.call(request)?.0)
    }

    fn removed(&self, name: &CStr, request: &Request) -> Removed {
        match self.call(request) {
            Ok((Reply::Removed(told), _)) => told.on(self.0.side),
            Ok(_) => Removed::failed(name, nonsense().on(self.0.side)),
            Err(fault) => Removed::failed(name, fault),
        }
    }

    /// An entry is about to be changed: what was heard of it does not hold any more.
    fn touched(&self, name: &CStr) -> Done {
        self.pass_gate()?;
        self.0.entries.lock().forget(name);
        Ok(())
    }

    /// Lets a change through.
    fn pass_gate(&self) -> Done {
        if self.0.side == Side::Replica {
            self.0.client.gate.pass()
        } else {
            Ok(())
        }
    }

    fn survey(&self, entries_max: u32, files: bool) -> Survey {
        Survey {
            keep: self.0.client.keep,
            files,
            entries_max,
        }
    }

    fn open(&self, at: Handle, request: &Request) -> Done<RemoteFile> {
        match self.meta_reply(request) {
            Ok(meta) => Ok(RemoteFile::new(&self.0.client, self.0.side, at, meta)),
            Err(fault) => {
                self.0.client.connection.forget(at);
                Err(fault)
            }
        }
    }

    /// The reply to a request to enter.
    fn entered(
        &self,
        at: Handle,
        files: bool,
        reply: Result<(Reply, Vec<u8>), WireFault>,
    ) -> Done<RemoteDir> {
        match on(self.0.side, reply) {
            Ok((Reply::Entered(own, listing), _)) if is_as_asked(listing.as_ref()) => {
                let first = First::Known(own.meta, own.is_mount_root);
                let mut entered = Self::of(
                    &self.0.client,
                    self.0.side,
                    at,
                    first,
                    (own.xattrs, files, listing),
                );
                (entered.is_marked, entered.is_unfinished) = (own.is_marked, own.is_unfinished);
                Ok(entered.open())
            }
            other => {
                self.0.client.connection.forget(at);
                other.and_then(|_| self.confused())
            }
        }
    }
}

/// Whether a listing that comes with a directory has no more entries than it may.
fn is_as_asked(listing: Option<&Listing>) -> bool {
    listing.is_none_or(|listing| listing.told.len() <= EXPECTED_ENTRIES as usize)
}

/// What a lost or failed directory is said to be like.
const NO_META: Meta = Meta {
    kind: Kind::Dir,
    mode: 0,
    uid: u32::MAX,
    gid: u32::MAX,
    size: 0,
    blocks: 0,
    mtime: Stamp { sec: 0, nsec: 0 },
    atime: Stamp { sec: 0, nsec: 0 },
    ctime: Stamp { sec: 0, nsec: 0 },
    nlink: 0,
    dev: 0,
    ino: 0,
    rdev: 0,
    unkept: Unkept::NONE,
};

impl RemoteDir {
    fn enter_far(&self, name: &CStr) -> Done<RemoteDir> {
        let connection = &self.0.client.connection;
        if let Some(expected) = self.0.ahead.lock().remove(name) {
            connection.ahead.fetch_sub(1, Relaxed);
            return self.entered(
                expected.at,
                expected.files,
                connection.wait(&expected.promise),
            );
        }
        let (at, survey) = (
            connection.handle(),
            Some(self.survey(EXPECTED_ENTRIES, true)),
        );
        self.entered(
            at,
            true,
            connection.call(
                &Request::Enter {
                    dir: self.0.at,
                    name: name.into(),
                    at,
                    survey,
                },
                Vec::new(),
            ),
        )
    }
}

impl Dir for RemoteDir {
    fn enter(&self, name: &CStr) -> Done<DirRef> {
        Ok(Arc::new(self.enter_far(name)?))
    }

    fn expect(&self, name: &CStr, look: bool) {
        let connection = &self.0.client.connection;
        if connection.ahead.load(Relaxed) >= AHEAD_MAX {
            return;
        }
        let (at, survey) = (
            connection.handle(),
            Some(self.survey(EXPECTED_ENTRIES, look)),
        );
        let request = Request::Enter {
            dir: self.0.at,
            name: name.into(),
            at,
            survey,
        };
        let Some(room) = Room::take(
            &connection.expected,
            request.reply_max().bytes(),
            AHEAD_BYTES_MAX,
        ) else {
            return;
        };
        connection.ahead.fetch_add(1, Relaxed);
        let room = Arc::new(Mutex::new(room));
        let promise = connection.ask_with(&request, Vec::new(), Space::Completion(room.clone()));
        if let Some(unused) = self.0.ahead.lock().insert(
            name.into(),
            Expected {
                at,
                files: look,
                promise,
                _room: room,
            },
        ) {
            connection.ahead.fetch_sub(1, Relaxed);
            connection.forget(unused.at);
        }
    }

    fn leave(&self) {}

    fn first_meta(&self) -> &Meta {
        match &self.0.first {
            First::Known(meta, _) => meta,
            First::Coming(promise, met) => {
                let met = met.get_or_init(|| match self.0.client.connection.wait(promise)? {
                    (Reply::Meta(meta), _) => Ok(meta),
                    _ => Err(nonsense()),
                });
                met.as_ref().unwrap_or(&NO_META)
            }
        }
    }

    fn meta(&self) -> Done<Meta> {
        self.meta_again()
    }

    fn meta_again(&self) -> Done<Meta> {
        let now = self.meta_reply(&Request::Meta { at: self.0.at })?;
        self.0.looked(&now);
        Ok(now)
    }

    fn xattrs(&self, keep: &Keep) -> Done<Xattrs> {
        if *keep == self.0.client.keep
            && let Some(own) = &*self.0.own.lock()
        {
            return Ok(own.clone());
        }
        let foretold = if *keep == self.0.client.keep {
            self.0.foretold.lock().xattrs.take()
        } else {
            None
        };
        if let Some(Ok((Reply::Xattrs(xattrs), _))) =
            foretold.map(|promise| self.0.client.connection.wait(&promise))
        {
            return Ok(xattrs);
        }
        long_if_need_be(|long| {
            self.xattrs_reply(&Request::Xattrs {
                at: self.0.at,
                keep: *keep,
                long,
            })
        })
    }

    fn list(&self) -> Done<Box<dyn NameStream>> {
        Ok(Box::new(RemoteNames::new(self.0.clone())))
    }

    fn look(&self, name: &CStr) -> Done<Meta> {
        {
            let mut entries = self.0.entries.lock();
            if let Some(meta) = entries.take(name, |heard| heard.meta.take()) {
                return Ok(meta);
            }
            // That the source lacks a name is proof enough to delete it only if it is so now.
            if self.0.side == Side::Replica && entries.lacks(name) {
                entries.forget(name);
                return Err(Fault {
                    side: self.0.side,
                    act: Act::LookAt,
                    errno: errno::ENOENT,
                });
            }
        }
        self.meta_reply(&Request::Look {
            dir: self.0.at,
            name: name.into(),
        })
    }

    fn peek(&self, name: &CStr) -> Done<Meta> {
        self.meta_reply(&Request::Peek {
            dir: self.0.at,
            name: name.into(),
        })
    }

    fn xattrs_of(&self, name: &CStr, keep: &Keep) -> Done<Xattrs> {
        if *keep == self.0.client.keep
            && let Some(xattrs) = self
                .0
                .entries
                .lock()
                .take(name, |heard| heard.xattrs.take())
        {
            return Ok(xattrs);
        }
        long_if_need_be(|long| {
            self.xattrs_reply(&Request::EntryXattrs {
                dir: self.0.at,
                name: name.into(),
                keep: *keep,
                long,
            })
        })
    }

    fn read_link(&self, name: &CStr) -> Done<CString> {
        if let Some(target) = self
            .0
            .entries
            .lock()
            .take(name, |heard| heard.target.take())
        {
            return Ok(target);
        }
        match self.call(&Request::ReadLink {
            dir: self.0.at,
            name: name.into(),
        })? {
            (Reply::Note(Some(target)), _) => CString::new(target).or_else(|_| self.confused()),
            _ => self.confused(),
        }
    }

    fn open_file(&self, name: &CStr) -> Done<Box<dyn ReadFile>> {
        let at = self.0.client.connection.handle();
        let file = self.open(
            at,
            &Request::Open {
                dir: self.0.at,
                name: name.into(),
                at,
            },
        )?;
        Ok(Box::new(file))
    }

    fn token(&self) -> Option<(usize, u64)> {
        Some((Arc::as_ptr(&self.0.client) as usize, self.0.at))
    }

    fn count_tree(&self, name: &CStr, max: u64, spared: Spared<'_>) -> Removed {
        let (dir, is_wary, spared) = (self.0.at, spared.is_wary, SparingRules::of(spared));
        self.removed(
            name,
            &Request::CountTree {
                dir,
                name: name.into(),
                max,
                spared,
                is_wary,
            },
        )
    }

    fn user(&self) -> (u32, u32) {
        (self.0.client.rights.uid, self.0.client.rights.gid)
    }

    fn rights(&self) -> Rights {
        self.0.client.rights.clone()
    }

    fn marks(&self, above: bool) -> Done<Vec<MarkText>> {
        match self.call(&Request::Marks {
            dir: self.0.at,
            above,
        })? {
            (Reply::Marks(found), _) => Ok(found),
            _ => self.confused(),
        }
    }

    fn is_marked(&self) -> bool {
        self.0.is_marked
    }

    fn is_unfinished(&self) -> bool {
        self.0.is_unfinished
    }

    fn lineage(&self) -> Done<Vec<Ancestor>> {
        let connection = &self.0.client.connection;
        let foretold = self
            .0
            .foretold
            .lock()
            .lineage
            .take()
            .map(|promise| on(self.0.side, connection.wait(&promise)));
        match foretold.unwrap_or_else(|| self.call(&Request::Lineage { dir: self.0.at }))? {
            (Reply::Lineage(above), _) if !above.is_empty() => Ok(above),
            _ => self.confused(),
        }
    }

    fn is_mount_root(&self) -> Option<bool> {
        match &self.0.first {
            First::Known(_, is_mount_root) => *is_mount_root,
            First::Coming(..) => Some(false),
        }
    }

    fn takes_submissions(&self) -> bool {
        true
    }

    fn submit(&self, token: u64, op: Op) {
        let (at, side, kept) = (self.0.at, self.0.side, self.0.clone());
        let connection = &self.0.client.connection;
        match op {
            Op::Fetch(name, keep) => {
                self.0.entries.lock().drop_heard(&name);
                let request = Request::Fetch {
                    dir: at,
                    name: Name(name),
                    keep,
                };
                connection.submit(
                    token,
                    (&request, Vec::new()),
                    false,
                    Box::new(move |reply| fetched(&kept, side, reply)),
                );
            }
            Op::Meta => {
                let finish = move |reply| Completion::Meta(looked(&kept, side, reply));
                connection.submit(
                    token,
                    (&Request::Meta { at }, Vec::new()),
                    true,
                    Box::new(finish),
                );
            }
        }
    }
}

/// Linux says EISDIR, POSIX allows EPERM (unlink(2)).
fn may_be_directory(fault: &Fault) -> bool {
    matches!(fault.errno, errno::EPERM | errno::EISDIR)
}

/// A lock that is given up when it is dropped.
struct FarLock(Arc<Client>, Side, Handle);

impl Held for FarLock {
    fn is_kept(&self) -> Done<bool> {
        match on(
            self.1,
            self.0
                .connection
                .call(&Request::IsKept { at: self.2 }, Vec::new()),
        )? {
            (Reply::Kept(kept), _) => Ok(kept),
            _ => Err(nonsense().on(self.1)),
        }
    }
}

impl Drop for FarLock {
    fn drop(&mut self) {
        self.0.connection.forget(self.2);
    }
}

/// What stands at a path, as the agent says.
pub fn place(
    client: &Arc<Client>,
    (side, at): (Side, Handle),
    located: Located,
    foretold: Foretold,
) -> Result<driftless_tree::Place<RemoteDir>, (Vec<u8>, WireFault)> {
    use driftless_tree::Place;
    Ok(match located {
        Located::Dir(own) => Place::Dir(RemoteDir::found(client, side, at, (own, foretold))),
        Located::Entry(own, name, meta) => Place::Entry {
            parent: RemoteDir::found(client, side, at, (own, foretold)),
            name: name.0,
            meta,
        },
        Located::Missing(own, name) => Place::Missing {
            parent: RemoteDir::found(client, side, at, (own, foretold)),
            name: name.0,
        },
        Located::Refused(path, fault) => return Err((path, fault)),
    })
}
