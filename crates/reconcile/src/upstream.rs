//! Where a replica comes from: the trees that lead to it, by numbers, the nearest first.
//!
//! Mirrors one behind the other make a chain. One from its end to its beginning would close it to a
//! ring, in which each replica is overwritten by what others had before. So the mark of a replica
//! says which trees lead to it, and a mirror whose own replica is among those that lead to its
//! source works on nothing.

use crate::Mark;

/// Trees that a mark names at most; what lies further away is not known.
pub const UPSTREAM_MAX: usize = 8;

/// What leads to a replica that is filled from a source with this mark, if it has one; else it is
/// known by the birthmark of its directory.
///
/// A mark says where a tree comes from for as long as mirrors fill it: of the active side of a
/// job, on which people work, it says nothing any more.
pub fn upstream_by(source: Option<&Mark>, birthmark: Option<u128>) -> Vec<u128> {
    let Some(mark) = source.filter(|mark| mark.run != 0) else {
        return birthmark.into_iter().collect();
    };
    let above: &[u128] = match mark.active {
        None => &mark.upstream,
        Some(_) => &[],
    };
    let mut all = vec![mark.identity];
    for tree in above {
        if !all.contains(tree) {
            all.push(*tree);
        }
    }
    all.truncate(UPSTREAM_MAX);
    all
}

/// How many mirrors lead from a replica, known by each of these numbers, to the source that leads
/// to it so; `None` if none do. The source itself is no proof: a copy of a tree has its mark.
pub fn ring(upstream: &[u128], replica: &[u128]) -> Option<usize> {
    upstream
        .iter()
        .skip(1)
        .position(|tree| replica.contains(tree))
        .map(|position| position + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(identity: u128, upstream: &[u128]) -> Mark {
        Mark {
            run: 7,
            upstream: upstream.to_vec(),
            ..Mark::new(identity)
        }
    }

    #[test]
    fn a_chain_is_known_to_its_beginning_and_within_bounds() {
        assert_eq!(upstream_by(None, Some(1)), [1]);
        assert_eq!(upstream_by(None, None), [0; 0]);
        assert_eq!(upstream_by(Some(&Mark::new(2)), Some(1)), [1], "never run");
        assert_eq!(upstream_by(Some(&mark(2, &[1])), Some(9)), [2, 1]);
        assert_eq!(upstream_by(Some(&mark(2, &[1, 2, 1])), None), [2, 1]);
        let active = Mark {
            active: Some(5),
            ..mark(2, &[1])
        };
        assert_eq!(upstream_by(Some(&active), Some(9)), [2]);
        let long: Vec<u128> = (10..30).collect();
        assert_eq!(upstream_by(Some(&mark(2, &long)), None).len(), UPSTREAM_MAX);
    }

    #[test]
    fn a_ring_is_one_whatever_the_replica_is_known_by() {
        let chain = [4, 3, 2, 1];
        assert_eq!(ring(&chain, &[1]), Some(3));
        assert_eq!(ring(&chain, &[9, 3]), Some(1));
        assert_eq!(ring(&chain, &[9]), None);
        assert_eq!(ring(&chain, &[4]), None, "a copy of the source");
        assert_eq!(ring(&[], &[4]), None);
    }
}
