//! Lists of sums as other programs write them, and files of hash trees.
#![no_main]

use driftless_fuzz::{begin, bounded};
use driftless_verify::{
    Algorithm, HashTree, Line, Lines, TreeReader, TreeWriter, digest_of, parse_line, push_line,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: begin(seeds()), |bytes: &[u8]| {
    bounded(bytes.len(), || {
        let mut lines = Lines::new(bytes);
        while let Some(line) = lines.read().expect("memory does not fail, and the input is short") {
            if let Ok(Some(found)) = parse_line(&line) {
                listed_again(&found);
            }
        }
        if let Some((leaf_bytes, trees)) = read(bytes) {
            written_again(leaf_bytes, &trees);
        }
    });
});

/// What is read of a line is read again from the line that we write for it.
fn listed_again(found: &Line) {
    let bytes = found.digest.as_bytes().len();
    let algorithm = found
        .algorithm
        .or_else(|| Algorithm::guess(bytes))
        .expect("a length that some algorithm has");
    assert_eq!(algorithm.digest_bytes(), bytes);
    let mut line = Vec::new();
    push_line(
        &mut line,
        algorithm,
        &found.digest,
        found.range.as_ref(),
        &found.name,
    );
    assert_eq!(line.pop(), Some(b'\n'));
    assert!(!line.contains(&b'\n'), "one line");
    let again = parse_line(&line)
        .expect("what we write is a line")
        .expect("with a sum");
    assert_eq!(
        (again.digest, &again.range, &again.name),
        (found.digest, &found.range, &found.name)
    );
}

type Trees = Vec<(Vec<u8>, HashTree)>;

fn read(bytes: &[u8]) -> Option<(u64, Trees)> {
    let mut reader = TreeReader::new(bytes).ok()?;
    let leaf_bytes = reader.leaf_bytes();
    let trees: Result<Trees, _> = std::iter::from_fn(|| reader.next_tree().transpose()).collect();
    Some((leaf_bytes, trees.ok()?))
}

fn written_again(leaf_bytes: u64, trees: &Trees) {
    let mut writer = TreeWriter::new(Vec::new(), leaf_bytes).expect("memory");
    trees
        .iter()
        .for_each(|(name, tree)| writer.add(name, tree).expect("memory"));
    let again = read(&writer.finish().expect("memory")).expect("what we write is a tree file");
    assert_eq!((again.0, &again.1), (leaf_bytes, trees));
    for pair in trees.windows(2) {
        check_differing(&pair[0].1, &pair[1].1);
    }
}

fn check_differing(one: &HashTree, other: &HashTree) {
    let ranges = one.differing(other);
    assert_eq!(ranges, other.differing(one));
    let mut at = 0;
    for range in ranges {
        assert!(
            range.start >= at
                && range.start <= range.end
                && range.end <= one.size().max(other.size())
        );
        at = range.end;
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let names: [&[u8]; 5] = [b"a", b"a\nb\\", b"*\r", b"\xff \xfe", b"a) = 00"];
    let mut list = Vec::new();
    for algorithm in Algorithm::ALL {
        for name in names {
            let digest = digest_of(algorithm, name);
            push_line(&mut list, algorithm, &digest, None, name);
            push_line(&mut list, algorithm, &digest, Some(&(3..9)), name);
            list.extend(format!("{} (name) = {digest}\n", algorithm.tag()).into_bytes());
        }
    }
    let mut writer = TreeWriter::new(Vec::new(), 1024).expect("memory");
    for (name, size) in [
        (names[0], 0),
        (names[1], 1),
        (names[3], 3000),
        (names[4], 5000),
    ] {
        writer
            .add(
                name,
                &HashTree::of(&vec![5; size], 1024).expect("a leaf size"),
            )
            .expect("memory");
    }
    let lines: Vec<Vec<u8>> = list
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    lines
        .into_iter()
        .chain([
            list,
            writer.finish().expect("memory"),
            b"driftless-tree 1\nleaf 1024\nend 0\n".to_vec(),
        ])
        .collect()
}
