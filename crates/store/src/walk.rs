//! The first pass over sources: their entries, in the order of their names.

use crate::cursor::TopPlace;
use crate::error::{Error, Result};
use crate::format::{
    CatalogueEntry, DataExtent, EXTENTS_MAX, EntryBody, EntryFacts, XATTR_BYTES_MAX,
};
use crate::part_writer::PartWriter;
use crate::place::is_private_name;
use crate::seen::SeenIdentities;
use crate::sources::OpenSource;
use driftless_model::{
    EntryName, Fault, Keep, Kind, Meta, Side, Xattrs, is_reserved_name, is_set_aside,
};
use driftless_tree::{DirRef, Done, Levels, Names, ReadFile};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Options of a catalogue.
pub struct BuildOptions<'a> {
    /// The metadata that copies keep.
    pub keep: Keep,
    /// Owners and rights of the entries of copies.
    pub rights: CopyRights,
    /// User who reads the sources. Sources that this user read before, and that have not changed since,
    /// are not read again.
    pub user: u32,
    /// Receives the bytes before each unit is hashed; may wait. `false` stops.
    pub pace: &'a mut dyn FnMut(u64) -> bool,
}

/// Owners and rights of the entries of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CopyRights {
    /// Those of the source.
    #[default]
    OfSource,
    /// Every user who can enter the directory of the copy may read all entries, and no user may write.
    /// Entries belong to the user who makes the catalogue. Files have mode 0444, or 0555 if the source
    /// has a right to execute, and directories 0555. Devices, pipes, sockets, ACLs, and attributes
    /// other than `user.*`, are left out. The source may belong to a user who is not trusted.
    ReadOnly,
}

impl CopyRights {
    /// Returns the metadata that are read of the source.
    fn keep(self, keep: Keep) -> Keep {
        match self {
            CopyRights::OfSource => keep,
            CopyRights::ReadOnly => Keep {
                acls: false,
                devices: false,
                specials: false,
                ..keep
            },
        }
    }

    /// Returns the metadata of an entry of a copy that `owner` makes.
    fn facts(self, meta: &Meta, xattrs: Xattrs, owner: (u32, u32)) -> EntryFacts {
        let facts = EntryFacts::of(meta, xattrs);
        match self {
            CopyRights::OfSource => facts,
            CopyRights::ReadOnly => facts.read_only(meta.kind, owner),
        }
    }
}

/// A file with data, as the first pass saw it.
pub(crate) struct SeenFile {
    pub(crate) entry: u32,
    pub(crate) bytes: u64,
    /// Seconds since 1970 of the last modification.
    pub(crate) mtime: i64,
    /// The digest of the metadata that show a change.
    pub(crate) digest: u64,
}

/// The files that the first pass saw.
pub(crate) struct SeenFiles {
    /// Files with data, in the order of the entries.
    pub(crate) files: Vec<SeenFile>,
    pub(crate) identities: SeenIdentities,
}

/// A directory on the way down.
struct WalkLevel {
    dir: DirRef,
    levels: Levels,
    number: u32,
    names: Names,
    next: usize,
}

/// The first pass over sources.
pub(crate) struct SourceWalk<'a, 'b> {
    writer: &'a mut PartWriter,
    options: &'a BuildOptions<'b>,
    keep: Keep,
    /// User and group of this process.
    owner: (u32, u32),
    seen: SeenFiles,
    /// First names of inodes that have several.
    linked: HashMap<(u64, u64), u32>,
    open: Vec<WalkLevel>,
    /// The path of the last entry, for messages.
    path: Vec<Vec<u8>>,
}

impl<'a, 'b> SourceWalk<'a, 'b> {
    pub(crate) fn new(
        writer: &'a mut PartWriter,
        options: &'a BuildOptions<'b>,
        owner: (u32, u32),
    ) -> SourceWalk<'a, 'b> {
        SourceWalk {
            writer,
            options,
            keep: options.rights.keep(options.keep),
            owner,
            seen: SeenFiles {
                files: Vec::new(),
                identities: SeenIdentities::for_user(options.user),
            },
            linked: HashMap::new(),
            open: Vec::new(),
            path: Vec::new(),
        }
    }

    /// Lists all sources.
    pub(crate) fn walk(mut self, sources: &[OpenSource]) -> Result<SeenFiles> {
        for OpenSource { name, top, .. } in sources {
            self.path = vec![name.clone()];
            match top {
                TopPlace::Whole(dir) => self.begin(None, name, dir.clone(), &Levels::default())?,
                TopPlace::Within(dir, own) => self.entry(None, (dir, own), name)?,
            }
            while !self.open.is_empty() {
                self.step()?;
            }
        }
        Ok(self.seen)
    }

    /// Goes on in the last directory that is open.
    fn step(&mut self) -> Result<()> {
        let Some(level) = self.open.last_mut() else {
            return Ok(());
        };
        if level.next >= level.names.len() {
            return self.end();
        }
        let name = CString::from(level.names.get(level.next).0);
        level.next = level.next.saturating_add(1);
        let is_top = self.open.len() == 1;
        if is_excluded(&name, is_top) {
            return Ok(());
        }
        let Some(level) = self.open.last() else {
            return Ok(());
        };
        let (dir, number, levels) = (level.dir.clone(), level.number, level.levels.clone());
        self.path.push(name.to_bytes().to_vec());
        let meta = dir.look(&name).map_err(|fault| self.failed(fault))?;
        if meta.kind == Kind::Dir {
            let below = dir.enter(&name).map_err(|fault| self.failed(fault))?;
            return self.begin(Some(number), name.to_bytes(), below, &levels);
        }
        self.entry(Some(number), (&dir, &name), name.to_bytes())?;
        self.path.pop();
        Ok(())
    }

    /// Adds a directory, and opens it for the walk.
    fn begin(
        &mut self,
        parent: Option<u32>,
        name: &[u8],
        dir: DirRef,
        above: &Levels,
    ) -> Result<()> {
        let levels = above
            .enter(&dir, Side::Source)
            .map_err(|fault| self.failed(fault))?;
        let xattrs = dir.xattrs_within(&self.keep, XATTR_BYTES_MAX);
        let xattrs = self.all_of(xattrs.map_err(|fault| self.failed(fault))?)?;
        let facts = self.facts(dir.first_meta(), xattrs);
        let number = self.add(parent, name, EntryBody::Dir(facts))?;
        let mut names = Names::default();
        let mut listing = dir.list().map_err(|fault| self.failed(fault))?;
        while listing
            .fill(&mut names, usize::MAX)
            .map_err(|fault| self.failed(fault))?
        {}
        names.sort();
        self.open.push(WalkLevel {
            dir,
            levels,
            number,
            names,
            next: 0,
        });
        Ok(())
    }

    /// Ends the last directory, if it is as it was when it was opened.
    fn end(&mut self) -> Result<()> {
        if let Some(level) = self.open.pop() {
            let now = level.dir.meta_again().map_err(|fault| self.failed(fault))?;
            level.dir.leave();
            if !level.dir.first_meta().unchanged(&now) {
                return Err(self.changed());
            }
        }
        self.path.pop();
        Ok(())
    }

    /// Adds an entry that is no directory.
    fn entry(&mut self, parent: Option<u32>, at: (&DirRef, &CStr), name: &[u8]) -> Result<()> {
        let (dir, own) = at;
        let meta = dir.look(own).map_err(|fault| self.failed(fault))?;
        let id = meta.id();
        if let Some(first) = self.linked.get(&id).filter(|_| self.keep.hard_links) {
            let body = EntryBody::HardLink { first: *first };
            return self.add(parent, name, body).map(drop);
        }
        if !self.keep.keeps_kind(meta.kind) {
            return Ok(());
        }
        let xattrs = dir.xattrs_of_within(own, &self.keep, XATTR_BYTES_MAX);
        let xattrs = self.all_of(xattrs.map_err(|fault| self.failed(fault))?)?;
        let facts = self.facts(&meta, xattrs);
        let body = self.body(dir, own, &meta, facts)?;
        let bytes = body.data_bytes();
        let number = self.add(parent, name, body)?;
        if meta.nlink > 1 {
            self.linked.insert(id, number);
        }
        if bytes > 0 {
            self.seen.identities.add(&meta);
            self.seen.files.push(SeenFile {
                entry: number,
                bytes,
                mtime: meta.mtime.sec,
                digest: digest(&meta),
            });
        }
        Ok(())
    }

    fn body(&self, dir: &DirRef, name: &CStr, meta: &Meta, facts: EntryFacts) -> Result<EntryBody> {
        match meta.kind {
            Kind::File => {
                let extents = self.extents(dir, name, meta)?;
                let size = meta.size;
                Ok(EntryBody::File {
                    facts,
                    size,
                    extents,
                })
            }
            Kind::Symlink => {
                let target = dir.read_link(name).map_err(|fault| self.failed(fault))?;
                let target = target.into_bytes();
                Ok(EntryBody::Symlink { facts, target })
            }
            // Another kind took the place of the entry since the caller looked.
            Kind::Dir => Err(self.changed()),
            kind => Ok(EntryBody::Node {
                facts,
                kind,
                rdev: meta.rdev,
            }),
        }
    }

    /// Looks for holes, if a file has fewer blocks than bytes.
    fn extents(&self, dir: &DirRef, name: &CStr, meta: &Meta) -> Result<Option<Vec<DataExtent>>> {
        const BLOCK_BYTES: u64 = 512;
        let is_sparse = meta.blocks.saturating_mul(BLOCK_BYTES) < meta.size;
        if !is_sparse || !self.keep.holes {
            return Ok(None);
        }
        let file = dir.open_file(name).map_err(|fault| self.failed(fault))?;
        extents_of(&*file, meta.size).map_err(|fault| self.failed(fault))
    }

    fn add(&mut self, parent: Option<u32>, name: &[u8], body: EntryBody) -> Result<u32> {
        let name = EntryName::try_from(name.to_vec()).map_err(|_| Error::SourceName {
            name: name.to_vec(),
            why: "it is no name of an entry",
        })?;
        let entry = CatalogueEntry { parent, name, body };
        self.writer.entry(entry)
    }

    fn facts(&self, meta: &Meta, xattrs: Xattrs) -> EntryFacts {
        self.options.rights.facts(meta, xattrs, self.owner)
    }

    /// Returns all attributes of an entry, or why there are not all.
    fn all_of(&self, xattrs: Option<Xattrs>) -> Result<Xattrs> {
        let xattrs = xattrs.ok_or_else(|| Error::TooManyAttributes {
            path: self.path.join(&b'/'),
            max: XATTR_BYTES_MAX,
        })?;
        xattrs
            .all_read(Side::Source)
            .map_err(|fault| self.failed(fault))
    }

    fn failed(&self, fault: Fault) -> Error {
        let path = self.path.join(&b'/');
        let is_below_a_source = self.path.len() > 1;
        match fault.is_absent() && is_below_a_source {
            true => Error::SourceChanged { path },
            false => Error::Entry { path, fault },
        }
    }

    fn changed(&self) -> Error {
        Error::SourceChanged {
            path: self.path.join(&b'/'),
        }
    }
}

/// Returns whether a name is none of a user's: an unfinished entry, a lock, an unfinished copy, or
/// at the top what a mirror keeps beside its tree.
fn is_excluded(name: &CStr, is_top: bool) -> bool {
    is_reserved_name(name.to_bytes()) || is_private_name(name) || is_top && is_set_aside(name)
}

/// Returns the digest of the metadata that show a change of a file. It is compared within one
/// process.
pub(crate) fn digest(meta: &Meta) -> u64 {
    let mut hasher = DefaultHasher::new();
    let times = (
        meta.mtime.sec,
        meta.mtime.nsec,
        meta.ctime.sec,
        meta.ctime.nsec,
    );
    (meta.id(), meta.size, times).hash(&mut hasher);
    hasher.finish()
}

/// Returns the ranges of data of a sparse file; `None` if it has no holes. Beyond [`EXTENTS_MAX`]
/// ranges, the rest of the file counts as data.
fn extents_of(file: &dyn ReadFile, size: u64) -> Done<Option<Vec<DataExtent>>> {
    let mut found: Vec<DataExtent> = Vec::new();
    let mut at = 0;
    while at < size {
        let is_full = found.len() == EXTENTS_MAX;
        let data = match is_full {
            true => Some(at..size),
            false => file.next_data(at..size)?,
        };
        let Some(data) = data.filter(|data| data.end > data.start) else {
            break;
        };
        match found.last_mut() {
            Some(last) if last.end() == data.start => {
                last.bytes = data.end.saturating_sub(last.offset);
            }
            _ => found.push(DataExtent {
                offset: data.start,
                bytes: data.end.saturating_sub(data.start),
            }),
        }
        at = data.end;
    }
    let whole = DataExtent {
        offset: 0,
        bytes: size,
    };
    Ok((found != [whole]).then_some(found))
}
