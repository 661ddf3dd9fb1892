//! The place where an entry is made equal, and what can come of it.

use driftless_model::{Act, Entry, Fault, Keep, Kind, Meta, Side, Unkept, Xattrs, errno};
use driftless_reconcile::held_back;
use driftless_tree::{Dir, DirMut, Halt, Known, ReadFile, Removed};
use std::ffi::CStr;
use std::sync::Arc;

/// An entry on both sides. The two names differ only where a single file is copied under another
/// name.
#[derive(Clone, Copy)]
pub struct Spot<'a> {
    /// Directory of the source.
    pub source: &'a dyn Dir,
    /// Name in it.
    pub source_name: &'a CStr,
    /// Directory of the replica.
    pub replica: &'a dyn DirMut,
    /// Name in it.
    pub name: &'a CStr,
    /// The replica's directory is new and private: entries are made under their own names.
    pub private: bool,
    /// The replica's directory is private, but was made in a directory of another user: which owner
    /// and group that one hands down to new entries is not known.
    pub nested: bool,
    /// Owner and group that new entries in the replica's directory are known to get.
    pub birth: Option<(u32, u32)>,
    /// How many entries in a directory that stands at the name may go with it.
    pub room: u64,
    /// The mode of the entry that stands at the name and is replaced, if it is of the same kind.
    pub stood: Option<u32>,
    /// The inode that the source's name is to be: where others become links to its copy, one that
    /// took its place is none of them.
    pub only: Option<(u64, u64)>,
}

impl Spot<'_> {
    /// What is known of an entry that was just made here with `mode`.
    pub fn newborn(&self, kind: Kind, mode: u32) -> Known {
        Known {
            made_now: true,
            private: self.private,
            owner: self.birth.filter(|_| self.private),
            mode: Some(mode).filter(|_| self.private && !self.nested),
            clean: self.private && !self.nested,
            symlink: kind == Kind::Symlink,
            ..Known::default()
        }
    }

    /// Opens the source file. Where it was looked at and something else stands now, it is gone, and
    /// the name is to be looked at again.
    pub fn open(&self) -> Result<Opened, Trouble> {
        Opened::of(self.source, self.source_name, self.only)
    }
}

/// What was a regular file or a symbolic link when it was looked at and is now a link, a directory
/// or a device fails in ways of its own to be opened or read (open(2), readlink(2)): ELOOP, ENXIO,
/// ENODEV, ENOTDIR, EISDIR, EINVAL.
pub fn kind_changed(fault: Fault) -> Trouble {
    const KIND_ERRORS: [i32; 5] = [
        errno::ELOOP,
        errno::ENXIO,
        errno::ENODEV,
        errno::ENOTDIR,
        errno::EISDIR,
    ];
    let is_no_link = fault.act == Act::ReadLink && fault.errno == errno::EINVAL;
    let changed = fault.side == Side::Source && (is_no_link || KIND_ERRORS.contains(&fault.errno));
    if changed {
        Trouble::Vanished
    } else {
        fault.into()
    }
}

/// A source file that was opened, and its metadata at that moment.
#[derive(Clone)]
pub struct Opened {
    /// The file.
    pub file: Arc<dyn ReadFile>,
    /// What it was like when it was opened.
    pub meta: Meta,
    /// It does not come to rest: what is written to it after it was read may get the time that it
    /// has.
    pub young: bool,
}

impl Opened {
    /// Opens the file `name` of a directory of the source. Where another inode than `only` stands
    /// at the name, or no file, it has vanished.
    pub fn of(source: &dyn Dir, name: &CStr, only: Option<(u64, u64)>) -> Result<Opened, Trouble> {
        let file: Arc<dyn ReadFile> = source.open_file(name).map_err(kind_changed)?.into();
        let meta = file.meta()?;
        if meta.kind != Kind::File || only.is_some_and(|id| id != meta.id()) {
            return Err(Trouble::Vanished);
        }
        Ok(Opened {
            file,
            meta,
            young: false,
        })
    }

    /// Returns how many bytes of it are data and no holes, where its copy shares its extents. Beyond
    /// so many pieces, all counts as data.
    pub(crate) fn data_bytes(&self) -> Result<u64, Fault> {
        const PIECES_MAX: usize = 10_000;
        let (mut rest, mut bytes) = (0..self.meta.size, 0);
        for _ in 0..PIECES_MAX {
            let Some(data) = self.file.next_data(rest.clone())? else {
                return Ok(bytes);
            };
            bytes += data.end - data.start;
            rest.start = data.end;
            if rest.is_empty() {
                return Ok(bytes);
            }
        }
        Ok(bytes + rest.end - rest.start)
    }

    /// What its copy shall be like: if it did not come to rest, with a time that shows the next run
    /// a difference.
    pub fn wanted(&self, keep: &Keep) -> Meta {
        let mtime = if self.young {
            held_back(self.meta.mtime, keep.modify_window)
        } else {
            self.meta.mtime
        };
        Meta { mtime, ..self.meta }
    }

    /// Returns the source's entry with these extended attributes.
    pub(crate) fn entry(&self, xattrs: &Xattrs) -> Box<Entry> {
        Box::new(Entry {
            meta: self.meta,
            xattrs: xattrs.clone(),
        })
    }

    /// Why reading it did not succeed. One that becomes shorter and longer again while it is read
    /// seems to end early.
    pub(crate) fn cause_of(&self, trouble: Trouble) -> Trouble {
        let ends_early = matches!(
            trouble,
            Trouble::Failed(Fault {
                act: Act::ReadAll,
                ..
            })
        );
        let has_changed = || {
            self.file
                .meta_again()
                .is_ok_and(|now| !self.meta.unchanged(&now))
        };
        if ends_early && has_changed() {
            Trouble::Changing
        } else {
            trouble
        }
    }
}

/// An entry that was made equal.
#[derive(Debug, Default)]
pub struct Moved {
    /// Bytes of content that were copied.
    pub bytes: u64,
    /// Properties that could not be kept.
    pub faults: Vec<Fault>,
    /// How often what was read back differed from what was written, before it agreed.
    pub mismatches: u64,
    /// Which inode it is, where other names may become links to it.
    pub id: Option<(u64, u64)>,
    /// Its source did not come to rest: the copy is whole, and without the time that would vouch
    /// for it.
    pub young: bool,
    /// What the source has that the entry did not get, as far as its flags and attributes tell.
    pub unkept: Unkept,
    /// Source's entry as it was read for this; `None` if it was only looked at before.
    pub source: Option<Box<Entry>>,
}

impl Moved {
    /// Returns the result for an entry of which nothing but metadata was set, from this source.
    pub fn of(source: &Entry) -> Moved {
        Moved {
            source: Some(Box::new(source.clone())),
            ..Moved::default()
        }
    }
}

/// Why an entry was not made equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The source is not there any more.
    Vanished,
    /// The source kept changing while it was copied.
    Changing,
    /// What was read back is not what was written.
    Mismatch,
    /// A call failed.
    Failed(Fault),
    /// The run must not touch it: on which side, and why, in words.
    Barred(Side, &'static str),
    /// It waits until more is known of the whole run.
    Postponed,
    /// What stands at the name has to stay: why, in words.
    InTheWay(String),
    /// Of the directory that stands at the name something could not be removed, and other entries
    /// in it went.
    Stuck(Removed),
    /// The program that moves content did not do its work: why, in words.
    Undone(String),
    /// The disk did not keep what it was given (fsync failed): the run must end.
    Lost(Fault),
    /// The run was asked to stop.
    Stopped,
}

impl Trouble {
    /// Whether the connection to the host that a tree is on was lost.
    pub fn is_cut_off(&self) -> bool {
        matches!(self, Trouble::Failed(fault) | Trouble::Lost(fault) if fault.is_cut_off())
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        let gone = fault.side == Side::Source && fault.is_missing();
        if gone {
            Trouble::Vanished
        } else {
            Trouble::Failed(fault)
        }
    }
}

impl From<Halt> for Trouble {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Fault(fault) => fault.into(),
            Halt::Stopped => Trouble::Stopped,
        }
    }
}
