//! A catalogue: the list of the entries of a data set, and the hashes of its content.
//!
//! It stands in one file, part behind part, with the head and its length at the end. Entries and
//! hashes stay in the file, and a few decoded parts in memory, so a set of millions of files takes
//! some bytes of memory for each. Each part is checked by its hash whenever it is read: a disk that
//! lost something shows here, and not in the copies.

use crate::error::{Error, Result, own_file};
use crate::format::{
    CatalogueEntry, CatalogueHead, ENTRIES_MAX, ENTRIES_PER_PART, FORMAT, HASHES_PER_PART, Hash,
    PART_BYTES_MAX, PARTS_MAX, PartKind, PartRef, SMALL_FILES_PER_PART, SetHash, SmallFile, decode,
};
use crate::layout::{Layout, LayoutBuilder, UnitPiece};
use driftless_lock::Mutex;
use driftless_model::EntryName;
use driftless_tree::ReadFile;
use std::collections::VecDeque;
use std::sync::Arc;

/// Decoded parts of each kind that stay in memory.
const CACHED_PARTS: usize = 16;
/// Bytes of the length of the head, which ends the file.
const TRAILER_BYTES: u64 = 4;

/// The catalogue of a data set. Shared by all threads.
pub struct Catalogue {
    hash: SetHash,
    head_bytes: Vec<u8>,
    head: CatalogueHead,
    /// The offset of each part in the file.
    offsets: Vec<u64>,
    entries: PartIndex,
    small: PartIndex,
    hashes: PartIndex,
    layout: Layout,
    file: Box<dyn ReadFile>,
    entry_cache: PartCache<CatalogueEntry>,
    small_cache: PartCache<SmallFile>,
    hash_cache: PartCache<Hash>,
}

/// The parts of one kind: each with its number, and the number of its first item.
#[derive(Debug, Default)]
struct PartIndex(Vec<(usize, u64)>);

impl PartIndex {
    fn of(head: &CatalogueHead, kind: PartKind) -> PartIndex {
        let (mut parts, mut first) = (Vec::new(), 0u64);
        for (number, part) in head.parts.iter().enumerate() {
            if part.kind == kind {
                parts.push((number, first));
                first = first.saturating_add(part.items.into());
            }
        }
        PartIndex(parts)
    }

    /// Returns the part that has an item, and the place of the item in it.
    fn find(&self, item: u64) -> Option<(usize, usize)> {
        let behind = self.0.partition_point(|(_, first)| *first <= item);
        let (part, first) = *self.0.get(behind.checked_sub(1)?)?;
        let place = usize::try_from(item.checked_sub(first)?).ok()?;
        Some((part, place))
    }
}

/// The parts that were decoded last.
struct PartCache<T>(Mutex<VecDeque<(usize, Arc<Vec<T>>)>>);

impl<T> Default for PartCache<T> {
    fn default() -> Self {
        PartCache(Mutex::new(VecDeque::new()))
    }
}

impl<T> PartCache<T> {
    fn get(&self, part: usize, load: impl FnOnce() -> Result<Vec<T>>) -> Result<Arc<Vec<T>>> {
        let mut kept = self.0.lock();
        if let Some(at) = kept.iter().position(|(number, _)| *number == part)
            && let Some(found) = kept.remove(at)
        {
            let items = found.1.clone();
            kept.push_back(found);
            return Ok(items);
        }
        let items = Arc::new(load()?);
        kept.push_back((part, items.clone()));
        if kept.len() > CACHED_PARTS {
            kept.pop_front();
        }
        Ok(items)
    }
}

/// Checks what a head states of itself, before a part is read.
pub(crate) fn decode_head(hash: SetHash, bytes: &[u8]) -> Result<CatalogueHead> {
    if *blake3::hash(bytes).as_bytes() != hash.0 {
        return Err(Error::WrongPart { part: 0 });
    }
    let malformed = |what| Error::Malformed { hash, what };
    let head: CatalogueHead = decode(bytes).ok_or(malformed("the head is not readable"))?;
    let fits = |part: &PartRef| {
        let items_max = match part.kind {
            PartKind::Entries => ENTRIES_PER_PART,
            PartKind::SmallFiles => SMALL_FILES_PER_PART,
            PartKind::Hashes => HASHES_PER_PART,
        };
        part.bytes <= PART_BYTES_MAX && part.items > 0 && part.items as usize <= items_max
    };
    match () {
        () if head.format != FORMAT => Err(malformed("another form")),
        () if head.parts.len() > PARTS_MAX => Err(malformed("too many parts")),
        () if head.entries > ENTRIES_MAX => Err(malformed("too many entries")),
        () if !head.parts.iter().all(fits) => Err(malformed("a part is too large or empty")),
        () => Ok(head),
    }
}

/// Returns the offset of each part in the file, and that behind the last.
pub(crate) fn part_offsets(head: &CatalogueHead) -> Vec<u64> {
    let mut at = 0u64;
    let mut offsets = vec![at];
    for part in &head.parts {
        at = at.saturating_add(part.bytes.into());
        offsets.push(at);
    }
    offsets
}

/// Returns the end of the file: the head and its length.
pub(crate) fn tail(head_bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(head_bytes.len()).unwrap_or(u32::MAX);
    [head_bytes, &length.to_le_bytes()].concat()
}

impl Catalogue {
    /// Opens the catalogue in a file, and checks all of it but the hashes of units.
    ///
    /// # Errors
    /// The file cannot be read, is not the catalogue of this set, or breaks a rule of the format.
    pub(crate) fn open(file: Box<dyn ReadFile>, hash: SetHash) -> Result<Catalogue> {
        let head_bytes = read_head(&*file, hash)?;
        let head = decode_head(hash, &head_bytes)?;
        let mut catalogue = Catalogue::unchecked(file, hash, head_bytes, head);
        catalogue.layout = catalogue.check()?;
        Ok(catalogue)
    }

    /// Reads the entries of a catalogue whose content is not hashed yet.
    pub(crate) fn of_entries(file: Box<dyn ReadFile>, head: CatalogueHead) -> Result<Catalogue> {
        let mut catalogue = Catalogue::unchecked(file, SetHash([0; 32]), Vec::new(), head);
        let mut tops = Vec::new();
        for number in 0..catalogue.head.entries {
            if catalogue.entry(number)?.parent.is_none() {
                tops.push(number);
            }
        }
        catalogue.layout.tops = tops;
        Ok(catalogue)
    }

    /// Returns a catalogue without its layout, which the caller sets.
    fn unchecked(
        file: Box<dyn ReadFile>,
        hash: SetHash,
        head_bytes: Vec<u8>,
        head: CatalogueHead,
    ) -> Catalogue {
        Catalogue {
            hash,
            head_bytes,
            offsets: part_offsets(&head),
            entries: PartIndex::of(&head, PartKind::Entries),
            small: PartIndex::of(&head, PartKind::SmallFiles),
            hashes: PartIndex::of(&head, PartKind::Hashes),
            head,
            layout: Layout::default(),
            file,
            entry_cache: PartCache::default(),
            small_cache: PartCache::default(),
            hash_cache: PartCache::default(),
        }
    }

    fn check(&self) -> Result<Layout> {
        let malformed = |what| Error::Malformed {
            hash: self.hash,
            what,
        };
        let mut builder = LayoutBuilder::default();
        for number in 0..self.head.entries {
            builder.entry(&*self.entry(number)?).map_err(malformed)?;
        }
        let small = self.small.0.iter();
        for (part, _) in small {
            for file in self.small_part(*part)?.iter() {
                builder.small(file).map_err(malformed)?;
            }
        }
        let hashes = self.head.parts.iter();
        let hashes = hashes.filter(|part| part.kind == PartKind::Hashes);
        let hashes: u64 = hashes.map(|part| u64::from(part.items)).sum();
        if hashes != self.head.units {
            return Err(malformed("a wrong number of hashes"));
        }
        builder.finish(&self.head).map_err(malformed)
    }

    /// Returns the name of the set.
    pub fn hash(&self) -> SetHash {
        self.hash
    }

    /// Returns the number of units.
    pub fn units(&self) -> u64 {
        self.head.units
    }

    /// Returns the bytes of all units: the content without holes.
    pub fn bytes(&self) -> u64 {
        self.head.bytes
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u32 {
        self.head.entries
    }

    /// Returns the bytes of a unit; 0 if the set has no such unit.
    pub fn unit_bytes(&self, unit: u64) -> u32 {
        self.layout.unit_bytes(unit)
    }

    /// Returns the BLAKE3 hash of a unit.
    ///
    /// # Errors
    /// The set has no such unit, or the file of the catalogue cannot be read.
    pub fn unit_hash(&self, unit: u64) -> Result<Hash> {
        let missing = || self.no_such(unit);
        let (part, place) = self.hashes.find(unit).ok_or_else(missing)?;
        let hashes = self.hash_cache.get(part, || {
            let bytes = self.read_part(part)?;
            let (hashes, rest) = bytes.as_chunks::<32>();
            match rest.is_empty() && hashes.len() == self.items_of(part) {
                true => Ok(hashes.to_vec()),
                false => Err(self.malformed("a part of hashes")),
            }
        })?;
        hashes.get(place).copied().ok_or_else(missing)
    }

    /// Checks the hash of a unit.
    pub(crate) fn check_unit(&self, unit: u64, bytes: &[u8]) -> Result<()> {
        match *blake3::hash(bytes).as_bytes() == self.unit_hash(unit)? {
            true => Ok(()),
            false => Err(Error::WrongUnit { unit }),
        }
    }

    /// Returns an entry.
    ///
    /// # Errors
    /// The set has no such entry, or the file of the catalogue cannot be read.
    pub fn entry(&self, number: u32) -> Result<EntryGuard> {
        let missing = || self.no_such(number.into());
        let (part, place) = self.entries.find(number.into()).ok_or_else(missing)?;
        let entries = self.entry_cache.get(part, || self.decoded(part))?;
        if place >= entries.len() {
            return Err(missing());
        }
        Ok(EntryGuard { entries, place })
    }

    /// Returns the number of parts for a transfer; part 0 is the head.
    pub fn parts(&self) -> u32 {
        u32::try_from(self.head.parts.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1)
    }

    /// Returns the bytes of all parts.
    pub fn file_bytes(&self) -> u64 {
        let parts = self.head.parts.iter().map(|part| u64::from(part.bytes));
        let head = u64::try_from(self.head_bytes.len()).unwrap_or(u64::MAX);
        parts.fold(head, u64::saturating_add)
    }

    /// Returns a part for a transfer.
    ///
    /// # Errors
    /// There is no such part, or the file of the catalogue cannot be read.
    pub fn part(&self, number: u32) -> Result<Vec<u8>> {
        match number.checked_sub(1) {
            None => Ok(self.head_bytes.clone()),
            Some(part) if (part as usize) < self.head.parts.len() => self.read_part(part as usize),
            Some(_) => Err(self.no_such(number.into())),
        }
    }

    /// Returns the names at the top: each is one entry below the place of a copy.
    ///
    /// # Errors
    /// The file of the catalogue cannot be read.
    pub fn tops(&self) -> Result<Vec<EntryName>> {
        let name = |number: &u32| Ok(self.entry(*number)?.name.clone());
        self.layout.tops.iter().map(name).collect()
    }

    /// Returns the path of an entry below the place of a copy, for messages.
    pub fn path(&self, number: u32) -> Vec<u8> {
        let (mut names, mut next) = (Vec::new(), Some(number));
        while let Some(number) = next {
            let Ok(entry) = self.entry(number) else { break };
            names.push(entry.name.as_bytes().to_vec());
            next = entry.parent.filter(|parent| *parent < number);
        }
        names.reverse();
        names.join(&b'/')
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the pieces of a unit.
    pub(crate) fn pieces(&self, unit: u64) -> Result<Vec<UnitPiece>> {
        if unit >= self.units() {
            return Err(self.no_such(unit));
        }
        Ok(self.layout.pieces(unit))
    }

    /// Returns a small file, by its place in the content.
    pub(crate) fn small_file(&self, number: usize) -> Result<SmallFile> {
        let missing = || self.no_such(number as u64);
        let (part, place) = self.small.find(number as u64).ok_or_else(missing)?;
        let files = self.small_part(part)?;
        files.get(place).copied().ok_or_else(missing)
    }

    fn small_part(&self, part: usize) -> Result<Arc<Vec<SmallFile>>> {
        self.small_cache.get(part, || self.decoded(part))
    }

    fn decoded<T: serde::de::DeserializeOwned>(&self, part: usize) -> Result<Vec<T>> {
        let items: Option<Vec<T>> = decode(&self.read_part(part)?);
        items
            .filter(|items| items.len() == self.items_of(part))
            .ok_or_else(|| self.malformed("a part is not readable"))
    }

    fn items_of(&self, part: usize) -> usize {
        self.head
            .parts
            .get(part)
            .map_or(0, |part| part.items as usize)
    }

    fn read_part(&self, part: usize) -> Result<Vec<u8>> {
        let missing = || self.no_such(part as u64);
        let named = self.head.parts.get(part).ok_or_else(missing)?;
        let at = *self.offsets.get(part).ok_or_else(missing)?;
        let mut bytes = vec![0; named.bytes as usize];
        let got = self.file.read_at(&mut bytes, at);
        let got = got.map_err(|fault| own_file(self.hash.to_string().as_bytes())(fault))?;
        if got == bytes.len() && *blake3::hash(&bytes).as_bytes() == named.hash {
            Ok(bytes)
        } else {
            let part = u32::try_from(part).unwrap_or(u32::MAX).saturating_add(1);
            Err(Error::WrongPart { part })
        }
    }

    fn malformed(&self, what: &'static str) -> Error {
        Error::Malformed {
            hash: self.hash,
            what,
        }
    }

    fn no_such(&self, number: u64) -> Error {
        Error::NoSuchUnit {
            hash: self.hash,
            number,
        }
    }
}

/// An entry of a catalogue, with the part of the catalogue that it is in.
pub struct EntryGuard {
    entries: Arc<Vec<CatalogueEntry>>,
    place: usize,
}

impl std::ops::Deref for EntryGuard {
    type Target = CatalogueEntry;

    fn deref(&self) -> &CatalogueEntry {
        // The place was checked when this was made.
        &self.entries[self.place]
    }
}

fn read_head(file: &dyn ReadFile, hash: SetHash) -> Result<Vec<u8>> {
    let name = hash.to_string();
    let failed = own_file(name.as_bytes());
    let wrong = Error::WrongPart { part: 0 };
    let size = file.meta().map_err(&failed)?.size;
    let Some(end) = size.checked_sub(TRAILER_BYTES) else {
        return Err(wrong);
    };
    let mut length = [0; TRAILER_BYTES as usize];
    file.read_at(&mut length, end).map_err(&failed)?;
    let length = u32::from_le_bytes(length);
    let Some(at) = end.checked_sub(length.into()) else {
        return Err(wrong);
    };
    if length > PART_BYTES_MAX {
        return Err(wrong);
    }
    let mut bytes = vec![0; length as usize];
    let got = file.read_at(&mut bytes, at).map_err(&failed)?;
    bytes.truncate(got);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{DataExtent, EntryBody, EntryFacts, encode};
    use crate::parts::CatalogueReceiver;
    use driftless_model::{Kind, Stamp, Xattrs};
    use driftless_tree::{HandlePool, Place, locate_mut};

    fn facts() -> EntryFacts {
        EntryFacts {
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: Stamp { sec: 1, nsec: 2 },
            xattrs: Xattrs::default(),
        }
    }

    fn entry(parent: Option<u32>, name: &str, body: EntryBody) -> CatalogueEntry {
        let name = EntryName::try_from(name.as_bytes().to_vec()).expect("a name");
        CatalogueEntry { parent, name, body }
    }

    fn dir(parent: Option<u32>, name: &str) -> CatalogueEntry {
        entry(parent, name, EntryBody::Dir(facts()))
    }

    fn file(
        parent: u32,
        name: &str,
        size: u64,
        extents: Option<Vec<DataExtent>>,
    ) -> CatalogueEntry {
        let facts = facts();
        let body = EntryBody::File {
            facts,
            size,
            extents,
        };
        entry(Some(parent), name, body)
    }

    fn link(parent: u32, name: &str, first: u32) -> CatalogueEntry {
        entry(Some(parent), name, EntryBody::HardLink { first })
    }

    /// The parts of a catalogue, which need not keep the rules.
    #[derive(Clone)]
    struct Parts {
        entries: Vec<CatalogueEntry>,
        small: Vec<SmallFile>,
        hashes: Vec<Hash>,
    }

    /// Returns a set with a directory, a file of two units, a small one, links and a sparse file.
    fn sound() -> Parts {
        let extent = |offset, bytes| DataExtent { offset, bytes };
        let small = |entry, bytes| SmallFile {
            entry,
            bytes,
            hash: [9; 32],
        };
        let target = b"target".to_vec();
        let symlink = EntryBody::Symlink {
            facts: facts(),
            target,
        };
        Parts {
            entries: vec![
                dir(None, "top"),
                file(0, "a", 70_000, None),
                file(0, "b", 5, None),
                link(0, "c", 1),
                dir(Some(0), "d"),
                file(4, "a", 1 << 30, Some(vec![extent(5, 10), extent(100, 20)])),
                entry(Some(0), "e", symlink),
                file(0, "f", 0, None),
            ],
            small: vec![small(5, 30), small(2, 5)],
            hashes: vec![[1; 32], [2; 32], [3; 32]],
        }
    }

    impl Parts {
        fn encoded(&self) -> [Vec<u8>; 3] {
            [
                encode(&self.entries),
                encode(&self.small),
                self.hashes.concat(),
            ]
        }

        fn open(&self) -> Result<Arc<Catalogue>> {
            let counts = [self.entries.len(), self.small.len(), self.hashes.len()];
            open(&self.encoded(), counts, |head| head.bytes = 70_035)
        }
    }

    /// Receives a catalogue of these parts, whose hashes are right.
    fn open(
        parts: &[Vec<u8>; 3],
        counts: [usize; 3],
        change: impl FnOnce(&mut CatalogueHead),
    ) -> Result<Arc<Catalogue>> {
        let folder = driftless_testkit::scratch::scratch_folder();
        let place = locate_mut(folder.path(), &HandlePool::new(9)).expect("found");
        let Place::Dir(dir) = place else {
            panic!("no directory");
        };
        let kinds = [PartKind::Entries, PartKind::SmallFiles, PartKind::Hashes];
        let refs = kinds.iter().zip(parts).zip(counts);
        let refs = refs.map(|((kind, bytes), items)| PartRef {
            kind: *kind,
            hash: *blake3::hash(bytes).as_bytes(),
            bytes: bytes.len() as u32,
            items: items as u32,
        });
        let mut head = CatalogueHead {
            format: FORMAT,
            entries: counts[0] as u32,
            units: counts[2] as u64,
            bytes: 0,
            parts: refs.collect(),
        };
        change(&mut head);
        let head = encode(&head);
        let hash = SetHash(*blake3::hash(&head).as_bytes());
        let mut receiver = CatalogueReceiver::new(hash, &dir)?;
        receiver.put(0, &head)?;
        for (number, part) in (1..).zip(parts) {
            receiver.put(number, part)?;
        }
        receiver.finish()
    }

    #[test]
    fn sound_catalogue_is_opened() {
        let catalogue = sound().open().expect("sound");
        assert_eq!((catalogue.units(), catalogue.entries()), (3, 8));
        let bytes = (0..4).map(|unit| catalogue.unit_bytes(unit));
        assert_eq!(bytes.collect::<Vec<_>>(), [65_536, 4_464, 35, 0]);
        assert_eq!(catalogue.path(5), b"top/d/a");
        assert_eq!(catalogue.unit_hash(2).expect("there"), [3; 32]);
        assert!(catalogue.unit_hash(3).is_err() && catalogue.entry(8).is_err());
    }

    #[test]
    fn broken_rules_are_found() {
        type Change = fn(&mut Parts);
        let changes: [(&str, Change); 16] = [
            ("order", |parts| parts.entries.swap(1, 2)),
            ("twice", |parts| {
                parts.entries[2].name = parts.entries[1].name.clone()
            }),
            ("no parent", |parts| parts.entries[1].parent = Some(9)),
            ("own parent", |parts| parts.entries[4].parent = Some(4)),
            ("parent is a file", |parts| {
                parts.entries[2].parent = Some(1)
            }),
            ("left parent", |parts| parts.entries[7].parent = Some(4)),
            ("late link", |parts| parts.entries[3] = link(0, "c", 7)),
            ("link to a directory", |parts| {
                parts.entries[3] = link(0, "c", 0)
            }),
            ("reserved", |parts| {
                parts.entries[0] = dir(None, &format!(".driftless-tmp-{:032x}", 1));
            }),
            ("target", |parts| {
                let (facts, target) = (facts(), b"a\0b".to_vec());
                parts.entries[6].body = EntryBody::Symlink { facts, target };
            }),
            ("node", |parts| {
                let (facts, kind, rdev) = (facts(), Kind::Dir, 0);
                parts.entries[7].body = EntryBody::Node { facts, kind, rdev };
            }),
            ("extents", |parts| {
                let extent = |offset, bytes| DataExtent { offset, bytes };
                parts.entries[5] = file(4, "a", 1 << 30, Some(vec![extent(5, 10), extent(14, 20)]));
            }),
            ("beyond the end", |parts| {
                let extent = DataExtent {
                    offset: u64::MAX - 3,
                    bytes: 30,
                };
                parts.entries[5] = file(4, "a", 1 << 30, Some(vec![extent]));
            }),
            ("small file twice", |parts| parts.small[1] = parts.small[0]),
            ("small file of another size", |parts| {
                parts.small[0].bytes = 31
            }),
            ("hashes", |parts| parts.hashes.truncate(2)),
        ];
        for (name, change) in changes {
            let mut parts = sound();
            change(&mut parts);
            let opened = parts.open();
            assert!(matches!(opened, Err(Error::Malformed { .. })), "{name}");
        }
    }

    #[test]
    fn damaged_parts_never_panic() {
        let (parts, counts) = (sound().encoded(), [8, 2, 3]);
        let mut opened = 0;
        for seed in 0..4000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut parts = parts.clone();
            for _ in 0..rng.usize(1..4) {
                let part = &mut parts[rng.usize(..2)];
                let at = rng.usize(..part.len());
                part[at] = rng.u8(..);
            }
            let Ok(catalogue) = open(&parts, counts, |head| head.bytes = 70_035) else {
                continue;
            };
            opened += 1;
            for unit in 0..catalogue.units() {
                assert!(catalogue.unit_bytes(unit) > 0, "seed {seed}");
            }
            for number in 0..catalogue.entries() {
                assert!(!catalogue.path(number).is_empty(), "seed {seed}");
            }
        }
        assert!(opened > 100, "{opened} were sound");
    }
}
