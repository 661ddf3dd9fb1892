//! The names of a directory, in one piece of memory.

use driftless_model::Kind;
use std::collections::HashSet;
use std::ffi::CStr;
use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};

/// Names read from a directory, each with the kind that the listing gave, if it gave one.
///
/// All names stand in one buffer, NUL-terminated, so that a million of them cost their bytes and eight more each.
#[derive(Debug, Default)]
pub struct Names {
    bytes: Vec<u8>,
    items: Vec<(u32, Option<Kind>)>,
}

impl Names {
    /// Adds a name.
    pub fn push(&mut self, name: &CStr, kind: Option<Kind>) {
        let at = u32::try_from(self.bytes.len()).expect("windows of names are far below 4 GiB");
        self.bytes.extend_from_slice(name.to_bytes_with_nul());
        self.items.push((at, kind));
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
        let (at, kind) = self.items[index];
        let name = CStr::from_bytes_until_nul(&self.bytes[at as usize..]).expect("names end with NUL");
        (name, kind)
    }

    /// Sorts by bytes, so that [`contains`](Names::contains) can search.
    pub fn sort(&mut self) {
        let mut items = std::mem::take(&mut self.items);
        items.sort_unstable_by(|a, b| self.at(a.0).cmp(self.at(b.0)));
        self.items = items;
    }

    /// Puts those of directories before all others, which otherwise stay in their order. The list is no longer sorted then.
    pub fn put_directories_first(&mut self) {
        self.items.sort_by_key(|(_, kind)| *kind != Some(Kind::Dir));
    }

    /// Whether a sorted list has `name`.
    pub fn contains(&self, name: &CStr) -> bool {
        self.items.binary_search_by(|item| self.at(item.0).cmp(name)).is_ok()
    }

    fn at(&self, at: u32) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes[at as usize..]).expect("names end with NUL")
    }
}

/// Where the names of one directory stand, by their hashes. A thread keeps it and fills it anew for each directory, so that it costs no
/// memory of its own each time.
#[derive(Debug, Default)]
pub struct NameIndex {
    /// One more than the number of a name; 0 is empty. As many as a power of two, at least twice as many as there are names.
    slots: Vec<u32>,
}

impl NameIndex {
    /// Takes the names of a directory in the place of what was there.
    pub fn fill(&mut self, names: &Names) {
        self.slots.clear();
        self.slots.resize((2 * names.len()).next_power_of_two(), 0);
        for index in 0..names.len() {
            let slot = self.probe(names.get(index).0).find(|slot| self.slots[*slot] == 0).expect("at least half of them are empty");
            self.slots[slot] = u32::try_from(index + 1).expect("windows of names are far below 4 GiB");
        }
    }

    /// Whether `name` is among `names`, with which this was filled.
    pub fn contains(&self, names: &Names, name: &CStr) -> bool {
        let met = self.probe(name).map(|slot| self.slots[slot]).take_while(|slot| *slot != 0);
        met.into_iter().any(|slot| names.get(slot as usize - 1).0 == name)
    }

    /// The slots in which a name may stand, in the order in which they are tried.
    fn probe(&self, name: &CStr) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (hash(name) as usize, self.slots.len());
        (0..count).map(move |step| (first.wrapping_add(step)) & (count - 1))
    }
}

/// The names of a directory that is too large to be held, by the hashes of them that are kept; others are not known.
#[derive(Debug, Default)]
pub struct NameHashes(HashSet<u64, BuildHasherDefault<AsItIs>>);

impl NameHashes {
    /// Keeps the names of a part of the listing.
    pub fn add(&mut self, names: &Names) {
        self.0.extend((0..names.len()).map(|index| hash(names.get(index).0)));
    }

    /// Whether `name` was kept. Two names of a directory have the same 64 bits hardly ever.
    pub fn contains(&self, name: &CStr) -> bool {
        !self.0.is_empty() && self.0.contains(&hash(name))
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

fn hash(name: &CStr) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name.to_bytes());
    hasher.finish()
}

/// Takes a hash for what it is.
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
    /// Adds names to `names` until it holds about `max` of them; returns whether there may be more. `.` and `..` are left out.
    fn fill(&mut self, names: &mut Names, max: usize) -> crate::Done<bool>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_first_and_all_else_stays_in_its_order() {
        let mut names = Names::default();
        let kinds = [None, Some(Kind::Dir), Some(Kind::File), Some(Kind::Dir), None];
        [c"a", c"b", c"c", c"d", c"e"].into_iter().zip(kinds).for_each(|(name, kind)| names.push(name, kind));
        names.put_directories_first();
        let order: Vec<&CStr> = (0..5).map(|index| names.get(index).0).collect();
        assert_eq!(order, [c"b", c"d", c"a", c"c", c"e"]);
    }

    #[test]
    fn sorted_names_are_found() {
        let mut names = Names::default();
        [c"b", c"a\n", c"\xff", c"a"].iter().for_each(|name| names.push(name, None));
        names.sort();
        assert_eq!(names.get(0).0, c"a");
        assert!(names.contains(c"\xff") && names.contains(c"a\n") && !names.contains(c"c"));
    }

    #[test]
    fn names_are_found_by_their_hashes() {
        let mut index = NameIndex::default();
        for count in [1000, 3, 0, 1, 40] {
            let name = |number: u32| std::ffi::CString::new(format!("name {number}")).expect("no NUL");
            let mut names = Names::default();
            (0..count).for_each(|number| names.push(&name(number), None));
            index.fill(&names);
            assert!((0..2000).all(|number| index.contains(&names, &name(number)) == (number < count)), "{count} names");
        }
    }
}
