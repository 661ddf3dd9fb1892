//! Where the names of a directory stand: found by hashes that take no heed of case, Unicode form
//! and end, so that one pass over them says both which names there are and which of them some file
//! system takes for one.

use crate::fold::{fold, without_end};

/// The names of one window of a listing. A thread keeps it and fills it anew for each, so that it
/// costs no memory of its own each time.
///
/// It holds numbers of names and not the names, so the caller hands them in, by their numbers.
#[derive(Debug)]
pub struct NameIndex {
    /// As many as a power of two, at least twice as many as there are names.
    slots: Vec<Slot>,
    seed: u64,
}

/// A name, or none.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// One more than the number of the name; 0 is empty.
    number: u32,
    /// The upper half of its hash: few names have to be looked at that are not the one that is
    /// sought.
    upper: u32,
}

impl NameIndex {
    /// An empty one. Who does not know the seed, a random number, cannot think of names that all
    /// get one hash.
    pub fn new(seed: u64) -> Self {
        NameIndex {
            slots: Vec::new(),
            seed,
        }
    }

    /// Takes `count` names in the place of what was there. Returns those that differ from an
    /// earlier one in case, form or end alone: the number of the first of their kind, and theirs.
    pub fn fill<'n>(
        &mut self,
        count: usize,
        name: impl Fn(usize) -> &'n [u8],
    ) -> Vec<(usize, usize)> {
        self.slots.clear();
        self.slots
            .resize((2 * count).next_power_of_two(), Slot::default());
        let mut alike = Vec::new();
        for later in 0..count {
            let first = self.add(later, name(later), &name);
            alike.extend(
                first
                    .filter(|first| name(*first) != name(later))
                    .map(|first| (first, later)),
            );
        }
        alike
    }

    /// Adds a name; returns the first that folds to the same.
    fn add<'n>(
        &mut self,
        number: usize,
        bytes: &[u8],
        name: impl Fn(usize) -> &'n [u8],
    ) -> Option<usize> {
        let hash = self.hash(bytes);
        let mut first = None;
        for at in self.tried(hash) {
            let slot = &mut self.slots[at];
            if slot.number == 0 {
                let number =
                    u32::try_from(number + 1).expect("windows of names are far below 4 GiB");
                *slot = Slot {
                    number,
                    upper: upper(hash),
                };
                break;
            }
            // Names of one hash stand in the order in which they came.
            if first.is_none() && slot.upper == upper(hash) {
                let earlier = slot.number as usize - 1;
                first = (fold(name(earlier)) == fold(bytes)).then_some(earlier);
            }
        }
        first
    }

    /// Whether `wanted` is among the names with which this was filled.
    pub fn contains<'n>(&self, wanted: &[u8], name: impl Fn(usize) -> &'n [u8]) -> bool {
        let hash = self.hash(wanted);
        let met = self
            .tried(hash)
            .map(|at| self.slots[at])
            .take_while(|slot| slot.number != 0);
        met.into_iter()
            .any(|slot| slot.upper == upper(hash) && name(slot.number as usize - 1) == wanted)
    }

    /// The numbers of the names that differ from `wanted` in case, form or end alone.
    pub fn alike<'n>(&self, wanted: &[u8], name: impl Fn(usize) -> &'n [u8]) -> Vec<usize> {
        let hash = self.hash(wanted);
        let met = self
            .tried(hash)
            .map(|at| self.slots[at])
            .take_while(|slot| slot.number != 0);
        let numbers = met
            .filter(|slot| slot.upper == upper(hash))
            .map(|slot| slot.number as usize - 1);
        numbers
            .filter(|number| name(*number) != wanted && fold(name(*number)) == fold(wanted))
            .collect()
    }

    /// The slots in which a name may stand, in the order in which they are tried.
    fn tried(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (hash as usize, self.slots.len());
        (0..count).map(move |step| first.wrapping_add(step) & (count - 1))
    }

    /// Most names are ASCII: nothing is allocated for them.
    fn hash(&self, name: &[u8]) -> u64 {
        let name = without_end(name);
        if name.is_ascii() {
            hash(self.seed, name)
        } else {
            hash(self.seed, &fold(name))
        }
    }
}

fn upper(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// A hash of bytes that takes no heed of the case of ASCII letters: eight at a time, by a
/// multiplication whose halves are folded together (wyhash, Wang Yi).
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    /// 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, 6.4).
    const MULTIPLE: u64 = 0x9e37_79b9_7f4a_7c15;
    /// What small letters have and capital letters lack. Some other characters become one by it,
    /// too, which does no harm.
    const SMALL: u64 = 0x2020_2020_2020_2020;
    let add = |hash: u64, word: u64| {
        let product = u128::from(hash ^ (word | SMALL)) * u128::from(MULTIPLE);
        product as u64 ^ (product >> 64) as u64
    };
    let (words, rest) = bytes.as_chunks();
    let hash = words.iter().fold(seed ^ bytes.len() as u64, |hash, word| {
        add(hash, u64::from_le_bytes(*word))
    });
    // What is left of a longer name is taken with bytes before it, as a word.
    let last = bytes.last_chunk().map_or_else(
        || {
            rest.iter()
                .fold(0, |word, byte| word << 8 | u64::from(*byte))
        },
        |last| u64::from_le_bytes(*last),
    );
    if rest.is_empty() {
        hash
    } else {
        add(hash, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alike(names: &[&[u8]]) -> Vec<(usize, usize)> {
        NameIndex::new(7).fill(names.len(), |number| names[number])
    }

    #[test]
    fn names_are_found_and_others_are_not() {
        let mut index = NameIndex::new(1);
        assert!(!index.contains(b"a", |_| unreachable!("it was never filled")));
        let names: Vec<String> = (0..2000)
            .map(|number| format!("{}name {number}", "x".repeat(number % 17)))
            .collect();
        for count in [1000, 3, 0, 1, 40] {
            let name = |number: usize| names[number].as_bytes();
            assert_eq!(index.fill(count, name), []);
            for (number, wanted) in names.iter().enumerate() {
                assert_eq!(
                    index.contains(wanted.as_bytes(), name),
                    number < count,
                    "{wanted:?} of {count}"
                );
            }
            assert!(!index.contains(b"NAME 0", name));
        }
    }

    #[test]
    fn names_that_fold_to_the_same_have_one_hash() {
        let same = [
            "README.and.more",
            "Ünder",
            "Straße",
            "ΟΔΟΣ",
            "\u{212a}",
            "A_long_NAME_of_MORE_than_SIXTEEN.bytes",
        ];
        for name in same {
            for seed in [0, 1, u64::MAX] {
                let index = NameIndex::new(seed);
                assert_eq!(
                    index.hash(name.as_bytes()),
                    index.hash(&fold(name.as_bytes())),
                    "{name}"
                );
                assert_ne!(
                    index.hash(name.as_bytes()),
                    index.hash(&[name.as_bytes(), b"x"].concat()),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn later_names_are_found_with_the_first_of_their_kind() {
        let pairs = alike(&[
            b"FILE",
            b"File",
            b"a",
            b"b",
            "É".as_bytes(),
            "e\u{301}".as_bytes(),
        ]);
        assert_eq!(pairs, [(0, 1), (4, 5)]);
        assert_eq!(alike(&[b"xx", b"XX", b"a", b"xX"]), [(0, 1), (0, 3)]);
        assert_eq!(
            alike(&[b"a@", b"a`", b"b_", b"b\x7f"]),
            [],
            "letters alone have a case"
        );
        assert_eq!(alike(&[]), []);
    }

    #[test]
    fn names_like_one_that_may_be_no_name_itself_are_found() {
        let names = ["File", "a", "FILE", "\u{c9}", "file"];
        let mut index = NameIndex::new(3);
        index.fill(names.len(), |number| names[number].as_bytes());
        let like = |wanted: &str| index.alike(wanted.as_bytes(), |number| names[number].as_bytes());
        assert_eq!(like("fILE"), [0, 2, 4]);
        assert_eq!(like("FILE"), [0, 4]);
        assert_eq!(like("e\u{301}"), [3]);
        assert_eq!([like("a"), like("b")], [[0; 0]; 2]);
    }

    #[test]
    fn a_name_that_is_listed_twice_is_not_another() {
        assert_eq!(alike(&[b"x", b"X", b"x"]), [(0, 1)]);
    }
}
