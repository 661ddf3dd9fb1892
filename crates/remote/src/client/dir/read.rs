//! What a directory of the other side is asked without changing it.

use super::completions::{fetched, looked};
use super::listing::RemoteNames;
use super::{AHEAD_BYTES_MAX, AHEAD_MAX, EXPECTED_ENTRIES, Expected, First, NO_META, RemoteDir};
use crate::budget::Room;
use crate::client::connection::{Space, nonsense};
use crate::client::replies::long_if_need_be;
use crate::wire::{Name, Reply, Request, WireSpared};
use driftless_lock::Mutex;
use driftless_model::{Act, Fault, Keep, Meta, Side, Xattrs, errno};
use driftless_tree::{
    Ancestor, Completion, Dir, DirRef, Done, MarkText, NameStream, Op, ReadFile, Removed, Rights,
    Spared,
};
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

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
        let (dir, is_wary, spared) = (self.0.at, spared.is_wary, WireSpared::of(spared));
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
        let foretold = self.0.foretold.lock().lineage.take();
        match self.answer(foretold, &Request::Lineage { dir: self.0.at })? {
            (Reply::Lineage(above), _) if !above.is_empty() => Ok(above),
            _ => self.confused(),
        }
    }

    fn birthmark(&self) -> Done<Option<u128>> {
        let foretold = self.0.foretold.lock().birthmark.take();
        match self.answer(foretold, &Request::Birthmark { dir: self.0.at })? {
            (Reply::Birthmark(told), _) => Ok(told),
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
pub(super) fn may_be_directory(fault: &Fault) -> bool {
    matches!(fault.errno, errno::EPERM | errno::EISDIR)
}
