//! Which names of a directory a replica may take for one, as far as the names themselves tell that.

use driftless_reconcile::{NameIndex, without_case, without_form};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Of so many names of a directory, the numbers of those that differ from earlier ones in case,
/// form or end alone, each with the numbers of these.
pub fn alike_of<'n>(
    index: &mut NameIndex,
    count: usize,
    name: impl Fn(usize) -> &'n [u8],
) -> Vec<(usize, Vec<usize>)> {
    let mut firsts = Firsts::default();
    let found = index.fill(count, &name).into_iter();
    found
        .map(|(first, later)| (later, firsts.of((first, name(first)), (later, name(later)))))
        .collect()
}

/// For an index: a number that nobody knows beforehand.
pub fn random_seed() -> u64 {
    RandomState::new().hash_one(())
}

/// The first names of a window without case, and without form.
#[derive(Default)]
pub struct Firsts {
    cases: HashMap<Vec<u8>, usize>,
    forms: HashMap<Vec<u8>, usize>,
}

impl Firsts {
    /// Which names before the `later` one, whose first is that one, it may be one with: a file
    /// system that takes heed of form has another first. Numbers of names, each once; all later
    /// ones have to come, in their order.
    pub fn of(&mut self, first: (usize, &[u8]), later: (usize, &[u8])) -> Vec<usize> {
        let mut found = vec![first.0];
        for (number, name) in [first, later] {
            let of_case = *self.cases.entry(without_case(name)).or_insert(number);
            let of_form = *self.forms.entry(without_form(name)).or_insert(number);
            found.extend(
                [of_case, of_form]
                    .into_iter()
                    .filter(|earlier| number == later.0 && *earlier != number),
            );
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_held_against_the_first_of_each_likeness() {
        let names = ["\u{c9}", "\u{e9}", "e\u{301}", "E\u{301}"];
        let mut firsts = Firsts::default();
        let mut of =
            |later: usize| firsts.of((0, names[0].as_bytes()), (later, names[later].as_bytes()));
        assert_eq!(of(1), [0], "small");
        assert_eq!(of(2), [0, 1], "small, decomposed");
        assert_eq!(of(3), [0, 2], "decomposed");
    }
}
