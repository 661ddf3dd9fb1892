//! What coordinator and movers say to each other: shares, what comes of them, what is to be known of the run.
#![no_main]

use driftless_engine::{Brief, Outcome, Piece, Share};
use driftless_fuzz::{begin, bounded};
use driftless_model::{EntryName, RelPath};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

fuzz_target!(init: begin(seeds()), |bytes: &[u8]| {
    bounded(bytes.len(), || {
        read_again::<Share>(bytes);
        read_again::<Brief>(bytes);
        if let Some(outcome) = read_again::<Outcome>(bytes) {
            check_parts(&outcome);
        }
    });
});

/// What can be read is written and read as the same.
fn read_again<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let value = postcard::from_bytes::<T>(bytes).ok()?;
    let written = postcard::to_stdvec(&value).expect("plain values can be written");
    assert_eq!(postcard::from_bytes::<T>(&written).expect("what was written is read"), value);
    Some(value)
}

/// Nothing is lost, and nothing doubled, when an outcome is cut into parts.
fn check_parts(outcome: &Outcome) {
    let names = |outcome: &Outcome| -> usize {
        let rest = outcome.rest.iter().map(|(_, piece)| if let Piece::Entries(_, names) = piece { names.len() } else { 1 });
        rest.sum::<usize>() + outcome.extras.iter().map(|(_, names)| names.len()).sum::<usize>()
    };
    let paths = |outcome: &Outcome| outcome.done.len() + outcome.problems.len() + outcome.links.len() + outcome.no_room.len();
    let dirs = |outcome: &Outcome| outcome.unfinished.len() + outcome.copied.len();
    let count = |outcome: &Outcome| names(outcome) + paths(outcome) + dirs(outcome);
    for bytes_max in [1, 500] {
        let parts = outcome.clone().split(bytes_max);
        assert_eq!(parts.iter().map(count).sum::<usize>(), count(outcome));
        assert_eq!(parts[0].counts, outcome.counts);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let path = |text: &str| RelPath::parse(text.as_bytes()).expect("a path");
    let names: Vec<EntryName> = (0..3).filter_map(|index| EntryName::try_from(format!("n{index}").into_bytes()).ok()).collect();
    let pieces = vec![Piece::Root, Piece::Entries(path("a/b"), names.clone())];
    let rest = pieces.iter().map(|piece| (1, piece.clone())).collect();
    let share = Share { pieces, class: 1, alone: true, walk: 9 };
    let outcome = Outcome { rest, extras: vec![(path("c"), names)], no_room: vec![path("d")], ..Outcome::default() };
    let brief = Brief::of(&driftless_engine::Options::default(), &[], true);
    vec![
        postcard::to_stdvec(&share).expect("memory"),
        postcard::to_stdvec(&outcome).expect("memory"),
        postcard::to_stdvec(&brief).expect("memory"),
    ]
}
