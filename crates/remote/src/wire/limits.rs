//! What whoever starts an agent lets its clients do, whatever they ask for: `driftless agent --only
//! PATH --no-delete` as the forced command of a key (sshd(8), "AUTHORIZED_KEYS FILE FORMAT").
//!
//! That clients stay below the paths, and that they only read, the kernel holds as well
//! ([`confine`](crate::agent::confine)). Landlock knows no difference between a name that is
//! removed and one that is given to a finished file, so what removes nothing is held here alone:
//! each request is judged before it is carried out, and one that is new has to be judged, too.

use crate::wire::bounds::{ONLY_MAX, at_most};
use crate::wire::fault::WireFault;
use crate::wire::name::{Handle, Name};
use crate::wire::new_entry::NewEntryHead;
use crate::wire::request::Request;
use driftless_model::{Act, Kind, errno, quote};
use driftless_tree::{DirRef, Reach, is_root_name, is_temp_name};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What a client may do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// The directories that it may reach, with all below them; any if there are none here.
    #[serde(deserialize_with = "at_most::<ONLY_MAX, _, _>")]
    pub only: Vec<Vec<u8>>,
    /// What it may do there.
    pub may: May,
}

/// What a client may do to what it reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum May {
    /// Whatever the user may.
    #[default]
    Everything,
    /// It makes entries and changes them, and removes none: a file may be replaced by a file, and
    /// nothing by something of another kind.
    Keep,
    /// It looks and reads.
    Read,
}

impl Limits {
    /// Whether the kernel has to hold them.
    pub fn need_kernel(&self) -> bool {
        !self.only.is_empty() || self.may == May::Read
    }

    /// The directories that it may reach, for a person; `None` if it may reach any.
    pub fn places(&self) -> Option<String> {
        let quoted = |path: &Vec<u8>| quote(Path::new(OsStr::from_bytes(path))).to_string();
        let all: Vec<String> = self.only.iter().map(quoted).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Whether a request may be carried out. `dir` finds a directory that it is about.
    ///
    /// # Errors
    /// It is refused, or it cannot be told whether it may be.
    pub fn permit(
        &self,
        request: &Request,
        dir: &dyn Fn(Handle) -> Result<DirRef, WireFault>,
    ) -> Result<(), WireFault> {
        match (self.may, deed(request)) {
            (May::Everything, _) | (_, Deed::Reads) | (May::Keep, Deed::Changes | Deed::Makes) => {
                Ok(())
            }
            (May::Read, deed) => Err(WireFault::new(deed.act(), errno::EROFS)),
            (May::Keep, Deed::Publishes { at, name, kind }) => {
                replaces_its_kind(&dir(at)?, name, || Ok(kind))
            }
            (
                May::Keep,
                Deed::Names {
                    from,
                    name,
                    to,
                    new,
                },
            ) => {
                refuse_unless(is_unfinished(name), Act::Rename)?;
                let from = dir(from)?;
                replaces_its_kind(&dir(to)?, &new.0, || Ok(from.look(&name.0)?.kind))
            }
            (May::Keep, Deed::Opens(name)) => refuse_unless(is_unfinished(name), Act::Open),
            (May::Keep, Deed::Removes { at, name }) => {
                let permitted = is_unfinished(name)
                    || !is_root_name(&name.0) && is_within_unfinished(&dir(at)?)?;
                refuse_unless(permitted, Act::Remove)
            }
            (May::Keep, Deed::Destroys) => refuse_unless(false, Act::Remove),
        }
    }
}

/// What must not be done at the same time as a request, from when it is judged until it is carried
/// out: where nothing may be lost, it is judged by what stands at its names, and done to that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apart {
    /// Whatever is.
    Nothing,
    /// What takes a name from an entry or gives it one.
    Renaming,
    /// Whatever changes a name.
    Naming,
}

impl Limits {
    /// What a request has to be kept apart from. What takes long, such as copying into an open
    /// file, is from nothing.
    pub fn apart(&self, request: &Request) -> Apart {
        match (self.may, deed(request)) {
            (May::Everything | May::Read, _)
            | (_, Deed::Reads | Deed::Changes | Deed::Destroys) => Apart::Nothing,
            (May::Keep, Deed::Makes | Deed::Publishes { .. } | Deed::Opens(_)) => Apart::Renaming,
            (May::Keep, Deed::Names { .. } | Deed::Removes { .. }) => Apart::Naming,
        }
    }
}

/// Access is denied: EPERM would have a user look for a flag of the file (chattr(1)).
fn refuse_unless(permitted: bool, act: Act) -> Result<(), WireFault> {
    if permitted {
        Ok(())
    } else {
        Err(WireFault::new(act, errno::EACCES))
    }
}

/// Whether a name is one that only unfinished entries have: nobody misses what goes with it.
fn is_unfinished(name: &Name) -> bool {
    is_temp_name(&name.0) && !is_root_name(&name.0)
}

/// Whether a directory is an unfinished one itself. Nothing that had another name can have been
/// moved into it.
fn is_within_unfinished(dir: &DirRef) -> Result<bool, WireFault> {
    let name = dir.lineage()?.into_iter().next().and_then(|own| own.name);
    Ok(
        name.is_some_and(|name| {
            CString::new(name.as_bytes()).is_ok_and(|name| is_temp_name(&name))
        }),
    )
}

/// What stands at the name stays what it is, or nothing does.
fn replaces_its_kind(
    dir: &DirRef,
    name: &CStr,
    kind: impl Fn() -> Result<Kind, WireFault>,
) -> Result<(), WireFault> {
    // A lock or a mark that is replaced is gone.
    refuse_unless(!is_root_name(name), Act::Replace)?;
    match dir.look(name) {
        Ok(there) => refuse_unless(
            there.kind != Kind::Dir && there.kind == kind()?,
            Act::Replace,
        ),
        Err(fault) if fault.is_missing() => Ok(()),
        Err(fault) => Err(fault.into()),
    }
}

/// What a request does to a tree.
enum Deed<'r> {
    /// Nothing.
    Reads,
    /// It changes what this client made, or the attributes of an entry, and no name.
    Changes,
    /// It makes what was not there.
    Makes,
    /// It makes an entry of a kind and gives it its name.
    Publishes {
        at: Handle,
        name: &'r CStr,
        kind: Kind,
    },
    /// It gives a new name to an entry.
    Names {
        from: Handle,
        name: &'r Name,
        to: Handle,
        new: &'r Name,
    },
    /// It opens a file that is there to be written.
    Opens(&'r Name),
    /// It removes an entry that is no directory, or an empty one, or a leftover.
    Removes { at: Handle, name: &'r Name },
    /// It removes whatever there is.
    Destroys,
}

impl<'r> Deed<'r> {
    fn names(from: Handle, name: &'r Name, to: Handle, new: &'r Name) -> Self {
        Deed::Names {
            from,
            name,
            to,
            new,
        }
    }

    fn publishes(at: Handle, new: &'r NewEntryHead) -> Self {
        let (name, kind) = new.place();
        Deed::Publishes { at, name, kind }
    }

    fn act(&self) -> Act {
        match self {
            Deed::Removes { .. } | Deed::Destroys => Act::Remove,
            Deed::Names { .. } => Act::Rename,
            Deed::Publishes { .. } => Act::MakeEntry,
            Deed::Reads | Deed::Changes | Deed::Makes | Deed::Opens(_) => Act::Change,
        }
    }
}

fn deed(request: &Request) -> Deed<'_> {
    use Request as R;
    match request {
        R::Locate { .. }
        | R::Enter { .. }
        | R::Again { .. }
        | R::List { .. }
        | R::Meta { .. }
        | R::Xattrs { .. }
        | R::Look { .. } => Deed::Reads,
        R::EntryXattrs { .. }
        | R::ReadLink { .. }
        | R::Open { .. }
        | R::Read { .. }
        | R::Digests { .. } => Deed::Reads,
        R::NextData { .. }
        | R::DropCached { .. }
        | R::CountTree { .. }
        | R::Marks { .. }
        | R::Birthmark { .. }
        | R::Lineage { .. } => Deed::Reads,
        R::Fetch { .. }
        | R::Peek { .. }
        | R::IsKept { .. }
        | R::Lock {
            reach: Reach::Seen, ..
        } => Deed::Reads,
        R::Gather { .. } | R::Hold { .. } | R::Forget { .. } | R::Alive | R::Cease => Deed::Reads,
        R::MakeDir { .. }
        | R::Create { .. }
        | R::Symlink { .. }
        | R::Node { .. }
        | R::Link { .. }
        | R::Nest { .. } => Deed::Makes,
        R::CopyRange { .. }
        | R::Write { .. }
        | R::SetLen { .. }
        | R::Allocate { .. }
        | R::SaveProgress { .. } => Deed::Changes,
        R::SyncFile { .. }
        | R::FlushFile { .. }
        | R::Progress { .. }
        | R::SyncAll { .. }
        | R::SetUnfinished { .. } => Deed::Changes,
        R::SetOwn { .. }
        | R::SetEntry { .. }
        | R::MakeWritable { .. }
        | R::SetMark { .. }
        | R::Lock { .. } => Deed::Changes,
        R::Make { dir, new } => Deed::publishes(*dir, new),
        R::Rename { dir, from, to } => Deed::names(*dir, from, *dir, to),
        R::Take {
            dir,
            from,
            name,
            to,
        } => Deed::names(*from, name, *dir, to),
        R::Reopen { name, .. } => Deed::Opens(name),
        R::Remove { dir, name } | R::RemoveDir { dir, name } | R::RemoveLeftover { dir, name } => {
            Deed::Removes { at: *dir, name }
        }
        R::Displace { .. } | R::RemoveTree { .. } => Deed::Destroys,
    }
}
