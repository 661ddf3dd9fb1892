//! A directory on another host.
//!
//! What a listing told of an entry answers the first look at it, so that a directory costs one
//! round trip and not one for each entry. Every later look, and every look at what this side has
//! changed, goes over the connection. A directory that is made is used at once; if it could not be
//! made, everything in it fails for that reason.

mod lock;
mod read;

mod change;
mod completions;
mod listing;

use driftless_lock::Mutex;

use crate::budget::Room;
use crate::client::Client;
use crate::client::connection::{Promise, nonsense, on};
use crate::client::file::RemoteFile;
use crate::client::replies::not_set;
use crate::wire::{Handle, Listing, Located, Own, Reply, Request, Survey, WireFault};
use driftless_model::{Fault, Kind, Meta, Side, Stamp, Unkept, Xattrs};
use driftless_tree::{Done, Removed};
use listing::Entries;
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
    birthmark: Option<Arc<Promise>>,
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
            birthmark: ask(Request::Birthmark { dir: at }),
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

/// What came with a directory, beside its first look.
#[derive(Default)]
struct Came {
    /// Its extended attributes.
    xattrs: Option<Xattrs>,
    /// Its listings bring no metadata of regular files.
    without_files: bool,
    /// Its first entries.
    listing: Option<Listing>,
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
            Came {
                xattrs: own.xattrs,
                ..Came::default()
            },
        );
        found.is_unfinished = own.is_unfinished;
        found.foretold = Mutex::new(foretold);
        found.open()
    }

    fn of(client: &Arc<Client>, side: Side, at: Handle, first: First, came: Came) -> Inner {
        let entries = Mutex::new(Entries::with(came.listing, &client.connection.known));
        let (client, own) = (client.clone(), Mutex::new(came.xattrs));
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
            files: !came.without_files,
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

    /// Returns the answer to a request that was asked ahead, or asks now.
    fn answer(&self, foretold: Option<Arc<Promise>>, request: &Request) -> Done<(Reply, Vec<u8>)> {
        match foretold {
            Some(promise) => on(self.0.side, self.0.client.connection.wait(&promise)),
            None => self.call(request),
        }
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
                    Came {
                        xattrs: own.xattrs,
                        without_files: !files,
                        listing,
                    },
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
