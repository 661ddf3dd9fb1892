//! A directory on another host.
//!
//! What a listing told of an entry answers the first look at it, so that a directory costs one round trip and not one for each
//! entry. Every later look, and every look at what this side has changed, goes over the connection. A directory that is made is used at
//! once; if it could not be made, everything in it fails for that reason.

mod completions;
mod listing;

use driftless_lock::Mutex;

use crate::budget::Room;
use crate::client::Client;
use crate::client::connection::{Promise, Space, nonsense, on};
use crate::client::file::RemoteFile;
use crate::client::replies::{long_if_need_be, not_set};
use crate::wire::{Handle, Listing, Located, Locked, Name, NewEntryHead, Own, Reply, Request, SparingRules, Survey, WireFault};
use completions::{fetched, looked, made, own_set};
use driftless_model::{Act, Fault, Keep, Kind, Meta, Side, Stamp, Unkept, Xattrs, errno};
use driftless_tree::{
    Ancestor, Attributes, BeforeChange, Completion, Dir, DirRef, Done, Held, Known, Lock, MarkText, NameStream, Op, Reach, ReadFile,
    Removed, Rights, Sentry, Spared, WriteFile,
};
use listing::{Entries, RemoteNames};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

/// Entries that come with a directory that was expected. Most directories have fewer; room is taken for as many, and what there is room for
/// bounds how many directories are expected at the same time.
const EXPECTED_ENTRIES: u32 = 64;
/// Directories that are expected at once, at most.
const AHEAD_MAX: usize = 4096;
/// What their replies may take, in bytes: as much as may come while they are under way, then what came.
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

/// What is asked of each root first, and was asked for together with it. Each answers one question, and that one alone: what is asked
/// again is meant to be looked at again.
#[derive(Default)]
pub struct Foretold {
    lineage: Option<Arc<Promise>>,
    xattrs: Option<Arc<Promise>>,
}

impl Foretold {
    /// Asks for it, about a directory whose number the other side has been told.
    pub fn ask(client: &Client, at: Handle) -> Foretold {
        let ask = |request| Some(client.connection.ask(&request, Vec::new()));
        let xattrs = Request::Xattrs { at, keep: client.keep, long: false };
        Foretold { lineage: ask(Request::Lineage { dir: at }), xattrs: ask(xattrs) }
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
        ahead.into_values().for_each(|expected| self.client.connection.forget(expected.at));
        self.client.connection.forget(self.at);
        // One by one, not each within the other: a chain of some ten thousand would overflow the stack.
        let mut above = self.above.take();
        while let Some(mut inner) = above.and_then(Arc::into_inner) {
            above = inner.above.take();
        }
    }
}

impl Inner {
    fn open(self) -> DirRef {
        Arc::new(RemoteDir(Arc::new(self)))
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
    pub fn found(client: &Arc<Client>, side: Side, at: Handle, (own, foretold): (Own, Foretold)) -> DirRef {
        let mut found = Self::of(client, side, at, First::Known(own.meta, own.is_mount_root), (own.xattrs, true, None));
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
        on(self.0.side, self.0.client.connection.call(request, Vec::new()))
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
        if self.0.side == Side::Replica { self.0.client.gate.pass() } else { Ok(()) }
    }

    fn survey(&self, entries_max: u32, files: bool) -> Survey {
        Survey { keep: self.0.client.keep, files, entries_max }
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
    fn entered(&self, at: Handle, files: bool, reply: Result<(Reply, Vec<u8>), WireFault>) -> Done<DirRef> {
        match on(self.0.side, reply) {
            Ok((Reply::Entered(own, listing), _)) if is_as_asked(listing.as_ref()) => {
                let first = First::Known(own.meta, own.is_mount_root);
                let mut entered = Self::of(&self.0.client, self.0.side, at, first, (own.xattrs, files, listing));
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

impl Dir for RemoteDir {
    fn enter(&self, name: &CStr) -> Done<DirRef> {
        let connection = &self.0.client.connection;
        if let Some(expected) = self.0.ahead.lock().remove(name) {
            connection.ahead.fetch_sub(1, Relaxed);
            return self.entered(expected.at, expected.files, connection.wait(&expected.promise));
        }
        let (at, survey) = (connection.handle(), Some(self.survey(EXPECTED_ENTRIES, true)));
        self.entered(at, true, connection.call(&Request::Enter { dir: self.0.at, name: name.into(), at, survey }, Vec::new()))
    }

    fn expect(&self, name: &CStr, look: bool) {
        let connection = &self.0.client.connection;
        if connection.ahead.load(Relaxed) >= AHEAD_MAX {
            return;
        }
        let (at, survey) = (connection.handle(), Some(self.survey(EXPECTED_ENTRIES, look)));
        let request = Request::Enter { dir: self.0.at, name: name.into(), at, survey };
        let Some(room) = Room::take(&connection.expected, request.reply_max().bytes(), AHEAD_BYTES_MAX) else { return };
        connection.ahead.fetch_add(1, Relaxed);
        let room = Arc::new(Mutex::new(room));
        let promise = connection.ask_with(&request, Vec::new(), Space::Completion(room.clone()));
        if let Some(unused) = self.0.ahead.lock().insert(name.into(), Expected { at, files: look, promise, _room: room }) {
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

    fn birth(&self) -> Option<(u32, u32)> {
        None
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
        let foretold = if *keep == self.0.client.keep { self.0.foretold.lock().xattrs.take() } else { None };
        if let Some(Ok((Reply::Xattrs(xattrs), _))) = foretold.map(|promise| self.0.client.connection.wait(&promise)) {
            return Ok(xattrs);
        }
        long_if_need_be(|long| self.xattrs_reply(&Request::Xattrs { at: self.0.at, keep: *keep, long }))
    }

    fn list(&self) -> Done<Box<dyn NameStream>> {
        let mut entries = self.0.entries.lock();
        let restart = std::mem::replace(&mut entries.listed, true);
        if restart {
            *entries = Entries::anew(&self.0.client.connection.known);
        }
        Ok(Box::new(RemoteNames::new(self.0.clone(), restart)))
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
                return Err(Fault { side: self.0.side, act: Act::LookAt, errno: errno::ENOENT });
            }
        }
        self.meta_reply(&Request::Look { dir: self.0.at, name: name.into() })
    }

    fn peek(&self, name: &CStr) -> Done<Meta> {
        self.meta_reply(&Request::Peek { dir: self.0.at, name: name.into() })
    }

    fn xattrs_of(&self, name: &CStr, keep: &Keep) -> Done<Xattrs> {
        if *keep == self.0.client.keep
            && let Some(xattrs) = self.0.entries.lock().take(name, |heard| heard.xattrs.take())
        {
            return Ok(xattrs);
        }
        long_if_need_be(|long| self.xattrs_reply(&Request::EntryXattrs { dir: self.0.at, name: name.into(), keep: *keep, long }))
    }

    fn read_link(&self, name: &CStr) -> Done<CString> {
        if let Some(target) = self.0.entries.lock().take(name, |heard| heard.target.take()) {
            return Ok(target);
        }
        match self.call(&Request::ReadLink { dir: self.0.at, name: name.into() })? {
            (Reply::Note(Some(target)), _) => CString::new(target).or_else(|_| self.confused()),
            _ => self.confused(),
        }
    }

    fn open_file(&self, name: &CStr) -> Done<Box<dyn ReadFile>> {
        let at = self.0.client.connection.handle();
        let file = self.open(at, &Request::Open { dir: self.0.at, name: name.into(), at })?;
        Ok(Box::new(file))
    }

    fn make_dir(&self, name: &CStr) -> Done<DirRef> {
        self.touched(name)?;
        let at = self.0.client.connection.handle();
        let promise = self.0.client.connection.ask(&Request::MakeDir { dir: self.0.at, name: name.into(), at }, Vec::new());
        let first = First::Coming(promise, OnceLock::new());
        let mut made = Self::of(&self.0.client, self.0.side, at, first, (None, true, None));
        made.above = Some(self.0.clone());
        Ok(made.open())
    }

    fn create_file(&self, name: &CStr, mode: u32) -> Done<Box<dyn WriteFile>> {
        self.touched(name)?;
        let at = self.0.client.connection.handle();
        let file = self.open(at, &Request::Create { dir: self.0.at, name: name.into(), mode, at })?;
        Ok(Box::new(file))
    }

    fn reopen_file(&self, name: &CStr) -> Done<Box<dyn WriteFile>> {
        self.touched(name)?;
        let at = self.0.client.connection.handle();
        let file = self.open(at, &Request::Reopen { dir: self.0.at, name: name.into(), at })?;
        Ok(Box::new(file))
    }

    fn make_symlink(&self, name: &CStr, target: &CStr) -> Done {
        self.touched(name)?;
        self.done(&Request::Symlink { dir: self.0.at, name: name.into(), target: target.into() })
    }

    fn make_node(&self, name: &CStr, kind: Kind, rdev: u64) -> Done {
        self.touched(name)?;
        self.done(&Request::Node { dir: self.0.at, name: name.into(), kind, rdev })
    }

    fn link(&self, name: &CStr, (from, from_name): (&dyn Dir, &CStr), id: (u64, u64)) -> Done {
        self.touched(name)?;
        let from = from.token().filter(|(client, _)| *client == Arc::as_ptr(&self.0.client) as usize);
        let Some((_, from)) = from else { return Err(Fault { side: self.0.side, act: Act::Link, errno: errno::EXDEV }) };
        self.done(&Request::Link { dir: self.0.at, name: name.into(), from, from_name: from_name.into(), id })
    }

    fn token(&self) -> Option<(usize, u64)> {
        Some((Arc::as_ptr(&self.0.client) as usize, self.0.at))
    }

    fn set(&self, name: &CStr, expected: &Known, attributes: &Attributes) -> Done<Vec<Fault>> {
        self.touched(name)?;
        let (known, attributes) = (*expected, attributes.clone());
        self.faults_reply(&Request::SetEntry { dir: self.0.at, name: name.into(), known, attributes })
    }

    fn set_own(&self, known: &Known, attributes: &Attributes) -> Vec<Fault> {
        if let Err(fault) = self.pass_gate() {
            return vec![fault];
        }
        self.0.forget_own();
        let request = Request::SetOwn { at: self.0.at, known: *known, attributes: attributes.clone() };
        self.faults_reply(&request).unwrap_or_else(|fault| vec![fault])
    }

    fn make_writable(&self) {
        if self.pass_gate().is_err() {
            return;
        }
        let _may_fail_for_others = self.done(&Request::MakeWritable { dir: self.0.at });
    }

    fn nest(&self, hidden: bool) -> Done<Option<DirRef>> {
        self.pass_gate()?;
        let at = self.0.client.connection.handle();
        // Its number is given back when this is dropped, also if there is none.
        let nested = |meta| Self::of(&self.0.client, self.0.side, at, First::Known(meta, Some(false)), (None, true, None)).open();
        match self.call(&Request::Nest { dir: self.0.at, hidden, at }) {
            Ok((Reply::Meta(meta), _)) => Ok(Some(nested(meta))),
            other => {
                drop(nested(NO_META));
                if matches!(other?.0, Reply::Done) { Ok(None) } else { self.confused() }
            }
        }
    }

    fn take(&self, from: &dyn Dir, name: &CStr, to: &CStr) -> Done {
        self.touched(to)?;
        let from = from.token().filter(|(client, _)| *client == Arc::as_ptr(&self.0.client) as usize);
        let Some((_, from)) = from else { return Err(Fault { side: self.0.side, act: Act::Rename, errno: errno::EXDEV }) };
        self.done(&Request::Take { dir: self.0.at, from, name: name.into(), to: to.into() })
    }

    fn rename(&self, from: &CStr, to: &CStr) -> Done {
        self.touched(from)?;
        self.touched(to)?;
        self.done(&Request::Rename { dir: self.0.at, from: from.into(), to: to.into() })
    }

    fn displace(&self, from: &CStr, to: &CStr, below_max: u64) -> Removed {
        if let Err(fault) = self.touched(from).and_then(|()| self.touched(to)) {
            return Removed::failed(to, fault);
        }
        self.removed(to, &Request::Displace { dir: self.0.at, from: from.into(), to: to.into(), below_max })
    }

    fn remove(&self, name: &CStr) -> Done {
        self.touched(name)?;
        self.done(&Request::Remove { dir: self.0.at, name: name.into() })
    }

    fn remove_dir(&self, name: &CStr) -> Done {
        self.touched(name)?;
        self.done(&Request::RemoveDir { dir: self.0.at, name: name.into() })
    }

    fn remove_tree(&self, name: &CStr, spared: Spared<'_>) -> Removed {
        // Most of what goes is no directory, and that needs no rules, which may be long.
        if spared.rules.is_some() {
            match self.remove(name) {
                Ok(()) => return Removed { entries: 1, met: 1, ..Removed::default() },
                Err(fault) if !may_be_directory(&fault) => return Removed::failed(name, fault),
                Err(_) => {}
            }
        }
        if let Err(fault) = self.touched(name) {
            return Removed::failed(name, fault);
        }
        self.removed(name, &Request::RemoveTree { dir: self.0.at, name: name.into(), spared: SparingRules::of(spared) })
    }

    fn remove_leftover(&self, name: &CStr) -> Removed {
        if let Err(fault) = self.touched(name) {
            return Removed::failed(name, fault);
        }
        self.removed(name, &Request::RemoveLeftover { dir: self.0.at, name: name.into() })
    }

    fn count_tree(&self, name: &CStr, max: u64, spared: Spared<'_>) -> Removed {
        let (dir, is_wary, spared) = (self.0.at, spared.is_wary, SparingRules::of(spared));
        self.removed(name, &Request::CountTree { dir, name: name.into(), max, spared, is_wary })
    }

    fn sync_all(&self) -> Done {
        self.done(&Request::SyncAll { dir: self.0.at })
    }

    fn user(&self) -> (u32, u32) {
        (self.0.client.rights.uid, self.0.client.rights.gid)
    }

    fn rights(&self) -> Rights {
        self.0.client.rights.clone()
    }

    fn lock(&self, name: Option<&CStr>, reach: Reach) -> Done<Lock> {
        let at = self.0.client.connection.handle();
        let held = FarLock(self.0.client.clone(), self.0.side, at);
        match self.call(&Request::Lock { dir: self.0.at, name: name.map(Name::from), reach, at })? {
            (Reply::Lock(Locked::Held), _) => Ok(Lock::Held(Box::new(held))),
            (Reply::Lock(Locked::Taken(holder)), _) => Ok(Lock::Taken(holder)),
            (Reply::Lock(Locked::Left(name)), _) => Ok(Lock::Left(name)),
            (Reply::Lock(Locked::Missing(errno)), _) => Ok(Lock::Missing(errno)),
            _ => self.confused(),
        }
    }

    fn marks(&self, above: bool) -> Done<Vec<MarkText>> {
        match self.call(&Request::Marks { dir: self.0.at, above })? {
            (Reply::Marks(found), _) => Ok(found),
            _ => self.confused(),
        }
    }

    fn is_marked(&self) -> bool {
        self.0.is_marked
    }

    fn set_unfinished(&self, is: bool) -> Done {
        self.pass_gate()?;
        self.done(&Request::SetUnfinished { dir: self.0.at, is })
    }

    fn is_unfinished(&self) -> bool {
        self.0.is_unfinished
    }

    fn set_mark(&self, text: &[u8], durable: bool) -> Done<Stamp> {
        match self.call(&Request::SetMark { dir: self.0.at, text: text.to_vec(), durable })? {
            (Reply::Time(now), _) => Ok(now),
            _ => self.confused(),
        }
    }

    fn before_change(&self, act: Option<BeforeChange>) {
        self.0.client.gate.set(act);
    }

    fn guard(&self, sentry: Option<Arc<dyn Sentry>>) {
        self.0.client.gate.guard(sentry);
    }

    fn hold(&self, identity: u128, movers: u128) -> Done {
        self.done(&Request::Hold { dir: self.0.at, identity, movers })
    }

    fn confirm(&self) -> Done {
        if self.0.side == Side::Replica { self.0.client.gate.confirm() } else { Ok(()) }
    }

    fn lineage(&self) -> Done<Vec<Ancestor>> {
        let connection = &self.0.client.connection;
        let foretold = self.0.foretold.lock().lineage.take().map(|promise| on(self.0.side, connection.wait(&promise)));
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
            Op::Make(new) => {
                if let Err(fault) = self.touched(&new.name) {
                    return connection.refuse(token, Completion::Made(Err(fault)));
                }
                let (new, data) = NewEntryHead::of(*new);
                let request = Request::Make { dir: at, new: Box::new(new) };
                connection.submit(token, (&request, data), false, Box::new(move |reply| made(&kept, side, reply)));
            }
            Op::Fetch(name, keep) => {
                self.0.entries.lock().drop_heard(&name);
                let request = Request::Fetch { dir: at, name: Name(name), keep };
                connection.submit(token, (&request, Vec::new()), false, Box::new(move |reply| fetched(&kept, side, reply)));
            }
            Op::Meta => {
                let finish = move |reply| Completion::Meta(looked(&kept, side, reply));
                connection.submit(token, (&Request::Meta { at }, Vec::new()), true, Box::new(finish));
            }
            Op::SetOwn(known, attributes) => {
                if let Err(fault) = self.pass_gate() {
                    return connection.refuse(token, Completion::OwnSet(vec![fault]));
                }
                self.0.forget_own();
                let request = Request::SetOwn { at, known, attributes: *attributes };
                connection.submit(token, (&request, Vec::new()), true, Box::new(move |reply| own_set(&kept, side, reply)));
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
        match on(self.1, self.0.connection.call(&Request::IsKept { at: self.2 }, Vec::new()))? {
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
) -> Result<driftless_tree::Place, (Vec<u8>, WireFault)> {
    use driftless_tree::Place;
    Ok(match located {
        Located::Dir(own) => Place::Dir(RemoteDir::found(client, side, at, (own, foretold))),
        Located::Entry(own, name, meta) => Place::Entry { parent: RemoteDir::found(client, side, at, (own, foretold)), name: name.0, meta },
        Located::Missing(own, name) => Place::Missing { parent: RemoteDir::found(client, side, at, (own, foretold)), name: name.0 },
        Located::Refused(path, fault) => return Err((path, fault)),
    })
}
