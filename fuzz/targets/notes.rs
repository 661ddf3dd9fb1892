//! The note of how far a large file has come, and the set of ranges that it is made of, beside a
//! plain model of such a set.
#![no_main]

use driftless_fuzz::{begin, bounded, meta};
use driftless_model::{Kind, Meta, Stamp};
use driftless_reconcile::{Fingerprint, Ranges, Resume};
use libfuzzer_sys::fuzz_target;
use std::ops::Range;

/// Longest note that is kept with a file, in bytes.
const NOTE_BYTES_MAX: usize = 2048;
/// Offsets of the model.
const BYTES: usize = 256;

fuzz_target!(init: begin(seeds()), |bytes: &[u8]| {
    bounded(bytes.len(), || {
        if let Some(note) = Resume::decode(bytes) {
            noted_again(&note);
            sizes(bytes).for_each(|size| check_gaps(&note.done, size));
        }
        check_model(bytes);
    });
});

/// A note keeps the largest ranges; what it keeps is read as it was written.
fn noted_again(note: &Resume) {
    let written = note.encode();
    assert!(written.len() <= NOTE_BYTES_MAX);
    let read = Resume::decode(&written).expect("what was written is read");
    assert_eq!(read.source, note.source);
    assert!(
        read.done
            .iter()
            .all(|kept| note.done.iter().any(|range| range == kept))
    );
    assert!(read.done == note.done || read.done.len() < note.done.len());
    assert_eq!(Resume::decode(&read.encode()).as_ref(), Some(&read));
}

/// Sizes of files at and around the ends of what the note could mean.
fn sizes(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let any = bytes.iter().fold(0, |size: u64, byte| {
        size.wrapping_mul(7).wrapping_add(u64::from(*byte))
    });
    [0, 1, 10, 1000, any, u64::MAX].into_iter()
}

fn check_gaps(done: &Ranges, size: u64) {
    let mut at = 0;
    for gap in done.missing(size) {
        assert!(
            gap.start >= at && gap.start < gap.end && gap.end <= size,
            "{gap:?} is missing of {size} bytes"
        );
        at = gap.end;
    }
    let inside: u64 = done
        .cut(0..size)
        .iter()
        .filter(|(_, is_in)| *is_in)
        .map(|(range, _)| range.end - range.start)
        .sum();
    let outside: u64 = done
        .missing(size)
        .iter()
        .map(|gap| gap.end - gap.start)
        .sum();
    assert_eq!(inside + outside, size);
}

/// Two bytes are a range, which may be empty or end before it begins.
fn check_model(bytes: &[u8]) {
    let (mut set, mut model) = (Ranges::default(), [false; BYTES]);
    for pair in bytes.chunks_exact(2) {
        let range = usize::from(pair[0])..usize::from(pair[1]);
        set.add(range.start as u64..range.end as u64);
        model[range.start.min(range.end)..range.end].fill(true);
    }
    assert_eq!(
        set.bytes(),
        model.iter().filter(|is_in| **is_in).count() as u64
    );
    let mut whole = [false; BYTES];
    let mut last = None;
    for (Range { start, end }, is_in) in set.cut(0..BYTES as u64) {
        assert!(start < end && last != Some(is_in), "pieces take turns");
        whole[start as usize..end as usize].fill(is_in);
        last = Some(is_in);
    }
    assert_eq!(whole, model);
    check_gaps(&set, BYTES as u64);
}

fn seeds() -> Vec<Vec<u8>> {
    let stamp = Stamp {
        sec: -1,
        nsec: 999_999_999,
    };
    let meta = Meta {
        mtime: stamp,
        atime: stamp,
        ctime: stamp,
        ..meta(Kind::File, 1 << 40)
    };
    let note = |count: u64| {
        let mut done = Ranges::default();
        (0..count).for_each(|index| done.add(index * 1000..index * 1000 + 10 + index));
        Resume {
            source: Fingerprint::of(&meta),
            done,
        }
        .encode()
    };
    vec![
        note(0),
        note(1),
        note(5),
        note(50),
        vec![1, 9, 20, 30, 9, 20, 5, 2, 0, 255],
    ]
}
