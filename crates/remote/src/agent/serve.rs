//! Carrying out one request on this machine's file systems.

mod content;
mod entry;
mod listing;

pub use self::content::Replied;
use self::content::{OTHER_KIND, digests, fetched, read};
use self::listing::next_listing;
use crate::agent::fence::Fence;
use crate::agent::home::find;
use crate::agent::objects::{Call, Cursor, Object, OpenDir, OpenFile, Table};
use crate::wire::HEAD_BYTES_MAX;
use crate::wire::{
    FAULTS_MAX, Handle, Listing, Located, Locked, Name, Own, Reply, Request, Root,
    SHORT_XATTRS_BYTES_MAX, Sparing, Survey, WireFault, WireSpared,
};
use driftless_lock::Mutex;
use driftless_model::{Act, Fault, Kind, Xattrs, errno};
use driftless_mover::{Mover, Trouble};
use driftless_tree::{
    Dir, DirMutRef, DirRef, Done, Halt, HandlePool, Lock, Place, ReadFile, RootError, Spared,
    WriteFile,
};
use std::ffi::{CStr, OsStr};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// One thread's hands on this side.
pub struct Server<'a> {
    /// What the client may ask for.
    pub roots: &'a [Root],
    /// What it is held to, whatever it asks for.
    pub fence: &'a Fence,
    /// What the client holds.
    pub table: &'a Table,
    /// Bounds open directories.
    pub pool: &'a Arc<HandlePool>,
    /// Makes entries.
    pub mover: Mover<'a>,
    /// Whether the client is gone.
    pub is_over: &'a dyn Fn() -> bool,
    /// Whether nobody wants any more that what takes long comes to its end.
    pub is_unwanted: &'a dyn Fn() -> bool,
}

/// What came of a request: its reply, and the object that it made.
pub struct Outcome {
    /// What is answered.
    pub replied: Replied,
    /// The number of the object that was to be made, and whether it was.
    pub made: Option<(Handle, Result<Object, WireFault>)>,
}

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Self {
        Outcome {
            replied: (reply, Vec::new()),
            made: None,
        }
    }
}

fn faults(faults: Vec<Fault>) -> Reply {
    if faults.is_empty() {
        Reply::Done
    } else {
        Reply::Faults(
            faults
                .into_iter()
                .map(WireFault::from)
                .take(FAULTS_MAX)
                .collect(),
        )
    }
}

/// `Done`, or what went wrong.
fn done(result: Done) -> Reply {
    told(result, |()| Reply::Done)
}

fn told<T>(result: Done<T>, reply: impl FnOnce(T) -> Reply) -> Reply {
    result.map_or_else(|fault| Reply::Fault(fault.into()), reply)
}

impl Server<'_> {
    /// Carries out a request.
    pub fn carry_out(&mut self, call: Call) -> Outcome {
        let at = crate::agent::objects::makes(&call.request);
        match self.try_carry_out(call) {
            Ok(outcome) => outcome,
            Err(fault) => Outcome {
                replied: (Reply::Fault(fault.clone()), Vec::new()),
                made: at.map(|at| (at, Err(fault))),
            },
        }
    }

    fn try_carry_out(&mut self, call: Call) -> Result<Outcome, WireFault> {
        let Call {
            request,
            data,
            compressed,
            room: _room,
            ..
        } = call;
        let _permit = self.fence.permit(&request, &|at| self.dir(at))?;
        let data = if compressed {
            opened_data(&data)?
        } else {
            data
        };
        self.on_dir(request, data)
    }

    /// Directories that become objects of the client, and their listings.
    fn on_dir(&mut self, request: Request, data: Vec<u8>) -> Result<Outcome, WireFault> {
        use Request as R;
        Ok(match request {
            R::Locate { root, at } => self.locate(root, at)?,
            R::Enter {
                dir,
                name,
                at,
                survey,
            } => self.enter(&self.open_dir(dir)?, &name.0, at, survey)?,
            R::MakeDir { dir, name, at } => {
                let made = self.replica(dir, Act::MakeDirectory)?.make_dir(&name.0)?;
                Outcome {
                    replied: (Reply::Meta(*made.first_meta()), Vec::new()),
                    made: Some((at, Ok(Object::dir(OpenDir::Write(made))))),
                }
            }
            R::Nest { dir, hidden, at } => {
                nested(at, self.replica(dir, Act::MakeDirectory)?.nest(hidden)?)
            }
            R::Again { dir, at } => Outcome {
                replied: (Reply::Done, Vec::new()),
                made: Some((at, Ok(Object::dir(self.open_dir(dir)?)))),
            },
            R::List { dir, survey } => Reply::Listing(self.list(dir, survey)?).into(),
            other => self.on_opening(other, data)?,
        })
    }

    /// Files and locks that become objects of the client.
    fn on_opening(&mut self, request: Request, data: Vec<u8>) -> Result<Outcome, WireFault> {
        use Request as R;
        Ok(match request {
            R::Open { dir, name, at } => {
                opened(at, self.dir(dir)?.open_file(&name.0).map(OpenFile::Read)?)?
            }
            R::Create {
                dir,
                name,
                mode,
                at,
            } => opened(
                at,
                self.replica(dir, Act::Create)?
                    .create_file(&name.0, mode)
                    .map(OpenFile::written)?,
            )?,
            R::Reopen { dir, name, at } => opened(
                at,
                self.replica(dir, Act::Open)?
                    .reopen_file(&name.0)
                    .map(OpenFile::written)?,
            )?,
            R::Lock {
                dir,
                name,
                reach,
                at,
            } => locked(
                at,
                self.replica(dir, Act::Lock)?
                    .lock(name.as_ref().map(|name| &*name.0), reach)?,
            ),
            other => self.on_content(other, data)?,
        })
    }

    /// Content that is read or written, and what an object itself is like.
    fn on_content(&mut self, request: Request, data: Vec<u8>) -> Result<Outcome, WireFault> {
        use Request as R;
        Ok(match request {
            R::Make { dir, new } => self.make(dir, new.with(data))?.into(),
            R::Fetch { dir, name, keep } => {
                let (reply, data) = fetched(&*self.dir(dir)?, &name.0, &keep)?;
                Outcome {
                    replied: (reply, data),
                    made: None,
                }
            }
            R::Read { file, offset, len } => {
                let data = read(self.file(file)?.reader(), offset, len as usize)?;
                Outcome {
                    replied: (Reply::Done, data),
                    made: None,
                }
            }
            R::Digests { file, range, piece } => Reply::Digests(digests(
                self.file(file)?.reader(),
                range,
                piece,
                self.is_over,
            )?)
            .into(),
            R::CopyRange { from, file, range } => {
                let (from, to) = (self.file(from)?, self.file(file)?);
                self.copy_within(&from, &to, range)?.into()
            }
            R::Meta { at } => self.meta(at)?.into(),
            R::Xattrs { at, keep, long } => {
                told(self.xattrs(at, &keep, xattrs_max(long))?, or_too_long).into()
            }
            R::SetOwn {
                at,
                known,
                attributes,
            } => self.set_own(at, &known, &attributes)?.into(),
            R::Write { file, offset } => {
                done(self.file(file)?.writer()?.write_at(&data, offset)).into()
            }
            other => self.on_entry(other)?.into(),
        })
    }

    fn spared<'s>(&'s self, sparing: &'s Sparing) -> Spared<'s> {
        Spared {
            rules: sparing.rules.as_ref().map(|(filter, dir)| (filter, dir)),
            kept: sparing.kept,
            is_over: Some(self.is_unwanted),
            ..Spared::NOTHING
        }
    }

    fn open_dir(&self, at: Handle) -> Result<OpenDir, WireFault> {
        match self.table.get(at)? {
            Object::Dir(dir, _) => Ok(dir),
            _ => Err(WireFault::new(Act::Obey, errno::EBADF)),
        }
    }

    fn dir(&self, at: Handle) -> Result<DirRef, WireFault> {
        Ok(self.open_dir(at)?.reader())
    }

    /// A directory that may be changed; `act` is what is to be done to it.
    fn replica(&self, at: Handle, act: Act) -> Result<DirMutRef, WireFault> {
        self.open_dir(at)?.writer(act)
    }

    fn file(&self, at: Handle) -> Result<Arc<OpenFile>, WireFault> {
        match self.table.get(at)? {
            Object::File(file) => Ok(file),
            _ => Err(WireFault::new(Act::Obey, errno::EBADF)),
        }
    }

    fn meta(&self, at: Handle) -> Result<Reply, WireFault> {
        match self.table.get(at)? {
            // The first look came with the opening.
            Object::Dir(dir, _) => Ok(told(dir.reader().meta_again(), Reply::Meta)),
            Object::File(file) => Ok(told(file.reader().meta_again(), Reply::Meta)),
            Object::Lock(_) => Err(WireFault::new(Act::LookAt, errno::EBADF)),
        }
    }

    fn xattrs(
        &self,
        at: Handle,
        keep: &driftless_model::Keep,
        bytes_max: u64,
    ) -> Result<Done<Option<Xattrs>>, WireFault> {
        match self.table.get(at)? {
            Object::Dir(dir, _) => Ok(dir.reader().xattrs_within(keep, bytes_max)),
            Object::File(file) => Ok(file.reader().xattrs_within(keep, bytes_max)),
            Object::Lock(_) => Err(WireFault::new(Act::LookAt, errno::EBADF)),
        }
    }

    fn set_own(
        &self,
        at: Handle,
        known: &driftless_tree::Known,
        attributes: &driftless_tree::Attributes,
    ) -> Result<Reply, WireFault> {
        match self.table.get(at)? {
            Object::Dir(dir, _) => Ok(faults(
                dir.writer(Act::SetAttributes)?.set_own(known, attributes),
            )),
            Object::File(file) => Ok(faults(file.writer()?.set(known, attributes))),
            Object::Lock(_) => Err(WireFault::new(Act::SetAttributes, errno::EBADF)),
        }
    }

    fn is_kept(&self, at: Handle) -> Result<Reply, WireFault> {
        match self.table.get(at)? {
            Object::Lock(lock) => Ok(told(lock.is_kept(), Reply::Kept)),
            Object::Dir(..) | Object::File(_) => Err(WireFault::new(Act::KeepLock, errno::EBADF)),
        }
    }

    fn locate(&self, root: u32, at: Handle) -> Result<Outcome, WireFault> {
        let Root { path, side } = self
            .roots
            .get(root as usize)
            .ok_or_else(|| WireFault::new(Act::Obey, errno::EINVAL))?;
        let own = |dir: &OpenDir| own_of(&*dir.reader(), None);
        let found = find((path, *side), self.pool).and_then(|place| self.within(path, place));
        let (located, dir) = match found {
            Ok(Place::Dir(dir)) => (Located::Dir(own(&dir)), dir),
            Ok(Place::Entry { parent, name, meta }) => {
                (Located::Entry(own(&parent), Name(name), meta), parent)
            }
            Ok(Place::Missing { parent, name }) => {
                (Located::Missing(own(&parent), Name(name)), parent)
            }
            Err(error) => {
                let (act, errno) = error.parts();
                let fault = WireFault::new(act, errno);
                let refused =
                    Located::Refused(error.path().as_os_str().as_bytes().to_vec(), fault.clone());
                return Ok(Outcome {
                    replied: (Reply::Located(refused), Vec::new()),
                    made: Some((at, Err(fault))),
                });
            }
        };
        Ok(Outcome {
            replied: (Reply::Located(located), Vec::new()),
            made: Some((at, Ok(Object::dir(dir)))),
        })
    }

    /// What stands at a path, unless the client is not let in there.
    fn within(&self, path: &[u8], place: Place<OpenDir>) -> Result<Place<OpenDir>, RootError> {
        let refused =
            || RootError::from_errno(Path::new(OsStr::from_bytes(path)), Act::Use, errno::EACCES);
        if self.fence.holds(&place.dir().reader()) {
            Ok(place)
        } else {
            Err(refused())
        }
    }

    fn enter(
        &self,
        parent: &OpenDir,
        name: &CStr,
        at: Handle,
        survey: Option<Survey>,
    ) -> Result<Outcome, WireFault> {
        let opened = parent.enter(name)?;
        let dir = opened.reader();
        let told = |survey: Survey| {
            dir.xattrs_within(&survey.keep, survey.listing_bytes_max() as u64)
                .ok()
                .flatten()
        };
        let own = own_of(&*dir, survey.and_then(told));
        let cursor = Mutex::new(Cursor::default());
        let listing = survey.and_then(|survey| next_listing((&*dir, &cursor), survey, self.table));
        let object = Object::Dir(opened, Arc::new(cursor));
        Ok(Outcome {
            replied: (Reply::Entered(own, listing), Vec::new()),
            made: Some((at, Ok(object))),
        })
    }

    fn list(&self, at: Handle, survey: Survey) -> Result<Listing, WireFault> {
        match self.table.get(at)? {
            Object::Dir(dir, cursor) => next_listing((&*dir.reader(), &cursor), survey, self.table)
                .ok_or_else(|| WireFault::new(Act::List, errno::ENOBUFS)),
            _ => Err(WireFault::new(Act::List, errno::EBADF)),
        }
    }

    fn copy_within(
        &mut self,
        from: &OpenFile,
        to: &OpenFile,
        range: Range<u64>,
    ) -> Result<Reply, WireFault> {
        let writer = to.writer()?;
        let _alone = if let OpenFile::Write(_, copying) = to {
            Some(copying.lock())
        } else {
            None
        };
        let is_over = self.is_over;
        let mut pace = |_| {
            if is_over() {
                Err(Halt::Stopped)
            } else {
                Ok(())
            }
        };
        Ok(
            match self
                .mover
                .copier
                .copy((from.reader(), writer), range, false, &mut pace)
            {
                Ok(bytes) => Reply::Count(bytes),
                Err(Halt::Fault(fault)) => Reply::Fault(fault.into()),
                Err(Halt::Stopped) => Reply::Fault(WireFault::new(Act::Obey, errno::ECANCELED)),
            },
        )
    }

    fn make(
        &mut self,
        dir: Handle,
        new: Option<driftless_tree::NewEntry>,
    ) -> Result<Reply, WireFault> {
        let new = new.ok_or_else(|| WireFault::new(Act::Obey, errno::EINVAL))?;
        let dir = self.replica(dir, Act::MakeEntry)?;
        Ok(match self.mover.unpack(&*dir, new) {
            Ok(moved) => faults(moved.faults),
            Err(Trouble::Mismatch) => Reply::Mismatch,
            Err(Trouble::Stuck(removed)) => Reply::Removed(shortened(removed).into()),
            Err(Trouble::Failed(fault)) => Reply::Fault(fault.into()),
            Err(Trouble::Lost(fault)) => Reply::Lost(fault.into()),
            Err(
                Trouble::Vanished
                | Trouble::Changing
                | Trouble::Stopped
                | Trouble::Barred(..)
                | Trouble::Undone(_)
                | Trouble::Postponed
                | Trouble::InTheWay(_),
            ) => Reply::Fault(WireFault::new(Act::Obey, errno::EINVAL)),
        })
    }
}

/// What is known of a directory that was opened. Its attributes have shown whether it is marked, if
/// they were read.
fn own_of(dir: &dyn Dir, xattrs: Option<Xattrs>) -> Own {
    let (is_mount_root, is_marked, is_unfinished) =
        (dir.is_mount_root(), dir.is_marked(), dir.is_unfinished());
    Own {
        meta: *dir.first_meta(),
        is_mount_root,
        xattrs,
        is_marked,
        is_unfinished,
    }
}

/// What attributes may take of memory: no more is read, so that a file of many megabytes of them
/// takes that much only where room was made.
fn xattrs_max(long: bool) -> u64 {
    if long {
        HEAD_BYTES_MAX as u64
    } else {
        SHORT_XATTRS_BYTES_MAX
    }
}

fn or_too_long(xattrs: Option<Xattrs>) -> Reply {
    xattrs.map_or_else(
        || Reply::Fault(WireFault::new(Act::SendReply, errno::E2BIG)),
        Reply::Xattrs,
    )
}

fn sparing(spared: Option<WireSpared>) -> Result<Sparing, WireFault> {
    let opened = spared.map_or_else(|| Ok(Sparing::default()), WireSpared::open);
    opened.map_err(|_| WireFault::new(Act::Obey, errno::EINVAL))
}

fn opened_data(compressed: &[u8]) -> Result<Vec<u8>, WireFault> {
    crate::wire::compress::open(compressed).map_err(|_| WireFault::new(Act::Obey, errno::EPROTO))
}

/// Only regular files are held open: what is read through a device lies outside of the root that
/// its node is in.
fn opened(at: Handle, file: OpenFile) -> Result<Outcome, WireFault> {
    let meta = file.reader().meta()?;
    if meta.kind != Kind::File {
        return Err(WireFault::new(Act::Open, OTHER_KIND));
    }
    Ok(Outcome {
        replied: (Reply::Meta(meta), Vec::new()),
        made: Some((at, Ok(Object::File(Arc::new(file))))),
    })
}

fn nested(at: Handle, nest: Option<DirMutRef>) -> Outcome {
    let reply = nest
        .as_ref()
        .map_or(Reply::Done, |nest| Reply::Meta(*nest.first_meta()));
    let object = nest
        .map(|nest| Object::dir(OpenDir::Write(nest)))
        .ok_or_else(|| WireFault::new(Act::Obey, errno::EBADF));
    Outcome {
        replied: (reply, Vec::new()),
        made: Some((at, object)),
    }
}

fn locked(at: Handle, lock: Lock) -> Outcome {
    let refused = |errno| Err(WireFault::new(Act::Lock, errno));
    let (told, object) = match lock {
        Lock::Held(hold) => (Locked::Held, Ok(Object::Lock(Arc::new(hold)))),
        Lock::Taken(holder) => (Locked::Taken(holder), refused(errno::EAGAIN)),
        Lock::Left(name) => (Locked::Left(name), refused(errno::EPERM)),
        Lock::Missing(errno) => (Locked::Missing(errno), refused(errno)),
    };
    Outcome {
        replied: (Reply::Lock(told), Vec::new()),
        made: Some((at, object)),
    }
}

impl OpenFile {
    fn written(file: Box<dyn WriteFile>) -> OpenFile {
        OpenFile::Write(file, Mutex::new(()))
    }

    fn reader(&self) -> &dyn ReadFile {
        match self {
            OpenFile::Read(file) => &**file,
            OpenFile::Write(file, _) => &**file,
        }
    }

    fn writer(&self) -> Result<&dyn WriteFile, WireFault> {
        match self {
            OpenFile::Write(file, _) => Ok(&**file),
            OpenFile::Read(_) => Err(WireFault::new(Act::Write, errno::EBADF)),
        }
    }
}

/// The first of what is stuck, as much as has room in one reply.
fn shortened(mut removed: driftless_tree::Removed) -> driftless_tree::Removed {
    const PATHS_BYTES_MAX: usize = 8 << 10;
    let mut bytes = 0;
    let fitting = removed.stuck.iter().take_while(|(path, _)| {
        bytes += path.as_bytes().len();
        bytes <= PATHS_BYTES_MAX
    });
    let fitting = fitting.count().max(1);
    removed.stuck.truncate(fitting);
    removed
}
