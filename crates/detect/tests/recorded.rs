//! Streams that a kernel made, recorded by `streams/record.sh`, give the changes that were made.

use driftless_detect::snapshot::btrfs::{Stream, changes};
use driftless_model::{Change, Hint, Scope};

/// A change in words: path, `below` for a subtree, origin or ranges.
fn told(change: &Change) -> String {
    let scope = match change.scope {
        Scope::Names => " names",
        Scope::Subtree => " below",
        Scope::Entry => "",
    };
    let hint = match &change.hint {
        None => String::new(),
        Some(Hint::MovedFrom(from)) => format!(" from {from}"),
        Some(Hint::Ranges(ranges)) => format!(" {ranges:?}"),
    };
    format!("{}{scope}{hint}", change.path)
}

fn check(stream: &[u8], expected: &[&str]) {
    let found = changes(stream).unwrap_or_else(|error| panic!("{error}"));
    let mut found: Vec<String> = found.iter().map(told).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
}

const EVERYDAY: [&str; 19] = [
    ".",
    "dir",
    "dir/file",
    "dir/sub",
    "dir/sub/moved from dir/file",
    "gone below",
    "made",
    "made/a\\nb \\xff",
    "made/link",
    "made/pipe",
    "stay",
    "stay/attribute",
    "stay/database [8192..12288, 86016..90112]",
    "stay/linked",
    "stay/mode",
    "stay/replaced",
    "stay/second",
    "stay/shorter [20000..18446744073709551615]",
    "stay/third",
];

#[test]
fn everyday_changes_are_told_as_they_were_made() {
    let first = include_bytes!("streams/everyday.stream");
    let second = include_bytes!("streams/everyday-2.stream");
    let versions =
        [first.as_slice(), second].map(|bytes| Stream::new(bytes).expect("a stream").version());
    assert_eq!(versions, [1, 2]);
    check(first, &EVERYDAY);
    check(second, &EVERYDAY);
}

#[test]
fn swaps_chains_and_directories_that_change_places_are_told_as_moves() {
    let expected = [
        ".",
        "a below from b",
        "b below from a",
        "c below",
        "chain1 below",
        "chain2 below from chain1",
        "chain3 below from chain2",
        "in below from chain3",
        "new",
        "new/out below from out",
        "new/out/deep",
        "new/out/deep/file",
        "other from plain",
        "out below",
        "out/deep",
        "plain below from other",
        "two below from c/one/two",
        "two/c below from c",
        "two/c/one",
        "two/c/one/two below",
    ];
    check(include_bytes!("streams/renames.stream"), &expected);
}

#[test]
fn a_recorded_stream_that_is_cut_or_changed_anywhere_is_an_error() {
    let whole = include_bytes!("streams/renames.stream");
    for length in 0..whole.len() {
        assert!(changes(&whole[..length]).is_err(), "{length} bytes");
    }
    for at in 0..whole.len() {
        let mut broken = whole.to_vec();
        broken[at] ^= 0x10;
        assert!(changes(&broken[..]).is_err(), "byte {at}");
    }
}
