//! The names of a directory, in one piece of memory.

use driftless_model::Kind;
use std::collections::HashSet;
use std::ffi::CStr;
use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};

/// Names read from a directory, each with the kind that the listing gave, if it gave one.
///
/// All names stand in one buffer, NUL-terminated, so that a million of them cost their bytes and
/// twelve more each.
#[derive(Debug, Default)]
pub struct Names {
    bytes: Vec<u8>,
    items: Vec<Item>,
}

/// Where a name stands in the buffer.
#[derive(Debug, Clone, Copy)]
struct Item {
    at: u32,
    /// Without the NUL.
    len: u32,
    kind: Option<Kind>,
}

impl Names {
    /// Adds a name.
    pub fn push(&mut self, name: &CStr, kind: Option<Kind>) {
        let [at, len] = [self.bytes.len(), name.count_bytes()]
            .map(|count| u32::try_from(count).expect("windows of names are far below 4 GiB"));
        self.bytes.extend_from_slice(name.to_bytes_with_nul());
        self.items.push(Item { at, len, kind });
    }

    /// A copy of the names from `index` on.
    #[must_use]
    pub fn behind(&self, index: usize) -> Names {
        let mut rest = Names::default();
        (index..self.len())
            .map(|at| self.get(at))
            .for_each(|(name, kind)| rest.push(name, kind));
        rest
    }

    /// About what they take of memory, in bytes.
    pub fn memory(&self) -> usize {
        self.bytes.len() + self.items.len() * size_of::<Item>()
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The name at `index` and its kind, if known.
    pub fn get(&self, index: usize) -> (&CStr, Option<Kind>) {
        let Item { at, len, kind } = self.items[index];
        let bytes = &self.bytes[at as usize..=at as usize + len as usize];
        (
            CStr::from_bytes_with_nul(bytes).expect("names end with NUL"),
            kind,
        )
    }

    /// The bytes of the name at `index`, without the NUL. Their number is known, so the name is not
    /// searched for its end.
    pub fn bytes(&self, index: usize) -> &[u8] {
        self.bytes_of(self.items[index])
    }

    fn bytes_of(&self, Item { at, len, .. }: Item) -> &[u8] {
        &self.bytes[at as usize..at as usize + len as usize]
    }

    /// Sorts by bytes, so that [`contains`](Names::contains) can search, and keeps a name once that a
    /// listing has shown more often.
    pub fn sort(&mut self) {
        let mut items = std::mem::take(&mut self.items);
        items.sort_unstable_by(|a, b| self.bytes_of(*a).cmp(self.bytes_of(*b)));
        items.dedup_by(|later, first| self.bytes_of(*later) == self.bytes_of(*first));
        self.items = items;
    }

    /// Puts the names of directories before all others. Within both groups the order stays; the
    /// list as a whole is no longer sorted.
    pub fn put_directories_first(&mut self) {
        self.items.sort_by_key(|item| item.kind != Some(Kind::Dir));
    }

    /// Whether `name` is in the list, which must be sorted.
    pub fn contains(&self, name: &CStr) -> bool {
        self.items
            .binary_search_by(|item| self.bytes_of(*item).cmp(name.to_bytes()))
            .is_ok()
    }
}

/// Hashes of the names of a directory that has too many names to hold. A name that was not added is
/// not known.
#[derive(Debug, Default)]
pub struct NameHashes(HashSet<u64, BuildHasherDefault<AsItIs>>);

impl NameHashes {
    /// Keeps the hashes of the names of a part of the listing.
    pub fn add(&mut self, names: &Names) {
        self.0
            .extend((0..names.len()).map(|index| hash(names.bytes(index))));
    }

    /// Whether `name` was added. Another name may have the same hash of 64 bits, which hardly ever
    /// happens within a directory.
    pub fn contains(&self, name: &CStr) -> bool {
        !self.0.is_empty() && self.0.contains(&hash(name.to_bytes()))
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}

/// A hasher for keys that are hashes already: it gives them back as they are.
#[derive(Debug, Default)]
pub struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only hashes are hashed");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A listing in progress.
pub trait NameStream: Send {
    /// Adds names to `names` until it holds about `max` of them; returns whether there may be more.
    /// `.` and `..` are left out, and in the root of a tree the names that are not part of it.
    fn fill(&mut self, names: &mut Names, max: usize) -> crate::Done<bool>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_first_and_all_else_stays_in_its_order() {
        let mut names = Names::default();
        let kinds = [
            None,
            Some(Kind::Dir),
            Some(Kind::File),
            Some(Kind::Dir),
            None,
        ];
        [c"a", c"b", c"c", c"d", c"e"]
            .into_iter()
            .zip(kinds)
            .for_each(|(name, kind)| names.push(name, kind));
        names.put_directories_first();
        let order: Vec<&CStr> = (0..5).map(|index| names.get(index).0).collect();
        assert_eq!(order, [c"b", c"d", c"a", c"c", c"e"]);
    }

    #[test]
    fn sorted_names_are_found() {
        let mut names = Names::default();
        [c"b", c"a\n", c"\xff", c"a", c"b", c"a"]
            .iter()
            .for_each(|name| names.push(name, None));
        names.sort();
        assert_eq!((names.get(0).0, names.len()), (c"a", 4));
        assert!(names.contains(c"\xff") && names.contains(c"a\n") && !names.contains(c"c"));
    }
}
