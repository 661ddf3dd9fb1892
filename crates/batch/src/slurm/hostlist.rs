//! Lists of nodes as Slurm writes them: `n[1-8,12],login`.

use driftless_planner::parse_hostlist;
use std::collections::{BTreeMap, BTreeSet};

/// Digits of a number that fits into a range.
const DIGITS_MAX: usize = 18;

/// Returns the names of a list, or `None` for text that is none. No list has no names.
pub(super) fn names(list: &str) -> Option<Vec<String>> {
    if list.is_empty() || list == "(null)" {
        return Some(Vec::new());
    }
    parse_hostlist(list, &mut |_| Err("a file".to_owned())).ok()
}

/// Returns the shortest list of names in which each range has one width.
pub(super) fn collapse(names: &BTreeSet<String>) -> String {
    let mut groups: BTreeMap<(&str, usize), BTreeSet<u64>> = BTreeMap::new();
    let mut parts = Vec::new();
    for name in names {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &name[stem.len()..];
        match digits.parse() {
            Ok(number) if digits.len() <= DIGITS_MAX => {
                // Numbers with leading zeros need the width of the range, others must not have one.
                let width = if digits.starts_with('0') {
                    digits.len()
                } else {
                    0
                };
                groups.entry((stem, width)).or_default().insert(number);
            }
            _ => parts.push(name.clone()),
        }
    }
    for ((stem, width), numbers) in groups {
        let shown = shown(&ranges(&numbers), width);
        parts.push(match numbers.len() {
            1 => format!("{stem}{shown}"),
            _ => format!("{stem}[{shown}]"),
        });
    }
    parts.join(",")
}

/// Returns ranges as Slurm writes them between brackets, with so many digits at least.
pub(super) fn shown(ranges: &[(u64, u64)], width: usize) -> String {
    let show = |(first, last): &(u64, u64)| match first == last {
        true => format!("{first:0width$}"),
        false => format!("{first:0width$}-{last:0width$}"),
    };
    ranges.iter().map(show).collect::<Vec<_>>().join(",")
}

/// Returns the first and last numbers of the ranges without gaps.
pub(super) fn ranges(numbers: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match found.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => found.push((*number, *number)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_short_and_read_back() {
        for (list, shown) in [
            ("n1,n2,n3,n5,n10", "n[1-3,5,10]"),
            ("n08,n09,n10,n11", "n[10-11],n[08-09]"),
            ("a,b-ib,n7", "a,b-ib,n7"),
            ("r1n1,r1n2,r2n1", "r1n[1-2],r2n1"),
            ("n0,n00", "n0,n00"),
            ("", ""),
        ] {
            let set: BTreeSet<String> = names(list).unwrap().into_iter().collect();
            assert_eq!(names(&collapse(&set)).unwrap().len(), set.len(), "{list}");
            let again: BTreeSet<String> = names(&collapse(&set)).unwrap().into_iter().collect();
            assert_eq!(again, set);
            if list != "n0,n00" {
                assert_eq!(collapse(&set), shown);
            }
        }
        assert_eq!(names("n[1-"), None);
    }
}
