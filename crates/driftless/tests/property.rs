//! Random trees, random changes: whatever happened to source and replica, one sync makes them equal
//! and a second does nothing.
//!
//! A failure prints the seed and the command that replays it; `DRIFTLESS_SEED` runs that seed
//! alone, on all file systems, and `DRIFTLESS_SEEDS` sets how many seeds each file system gets. The
//! seed also picks the options that must not matter.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::over;
use common::{check_settled, leftovers, sync_ok};
use driftless_testkit::{
    FsKind, Options, Profile, Scratch, assert_equal, build_tree, mutate, rsync_oracle,
};
use std::path::{Path, PathBuf};

const SEEDS_EACH: u64 = 5;
const ROUNDS: u64 = 3;
const MUTATIONS: usize = 60;
const ORACLE_EACH: u64 = 4;
const SIZE_MIB: u64 = 400;

fn seeds(first: u64) -> Vec<u64> {
    match std::env::var("DRIFTLESS_SEED") {
        Ok(seed) => vec![seed.parse().expect("DRIFTLESS_SEED is a number")],
        Err(_) => (first..first + seeds_each()).collect(),
    }
}

fn seeds_each() -> u64 {
    let asked = std::env::var("DRIFTLESS_SEEDS").ok();
    asked.map_or(SEEDS_EACH, |count| {
        count.parse().expect("DRIFTLESS_SEEDS is a number")
    })
}

/// Options that change how the work is done and never what comes of it.
fn arguments(seed: u64) -> [&'static str; 3] {
    let jobs = ["--jobs=1", "--jobs=3", "--jobs=32", "--jobs=auto"][(seed % 4) as usize];
    let way = [
        "--cache=keep",
        "--cache=direct",
        "--cache=drop",
        "--checksum",
        "--durability=file",
    ][(seed % 5) as usize];
    ["--delete", jobs, way]
}

fn check(kind: FsKind, first: u64) {
    for seed in seeds(first) {
        let replay = format!(
            "seed {seed} on {kind:?}; replay: DRIFTLESS_SEED={seed} cargo test -p driftless --test property"
        );
        println!("{replay}");
        let scratch = Scratch::new(kind, SIZE_MIB);
        let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
        let catalogue = seed.is_multiple_of(7);
        build_tree(
            &src,
            seed,
            &Profile {
                catalogue,
                ..Profile::small()
            },
        );
        converge(&src, &dst, seed, &replay);
        for round in 1..=ROUNDS {
            mutate(&src, seed * 100 + round, MUTATIONS);
            if round == 2 {
                mutate(&dst, seed * 100 + 50, MUTATIONS / 3);
            }
            converge(&src, &dst, seed, &format!("round {round} of {replay}"));
        }
    }
}

fn converge(src: &Path, dst: &Path, seed: u64, context: &str) {
    let _ = sync_ok(src, dst, arguments(seed));
    // Of a file that is there already only what differs crosses a line: zeros that the source holds
    // may be a hole of the replica.
    assert_equal(
        src,
        dst,
        &Options {
            holes: over().is_none(),
            ..Options::default()
        },
        context,
    );
    if seed.is_multiple_of(ORACLE_EACH) {
        assert_eq!(rsync_oracle(src, dst), "", "{context}");
    }
    assert_eq!(leftovers(dst), Vec::<PathBuf>::new(), "{context}");
    check_settled(src, dst, arguments(seed));
}

#[test]
fn random_trees_converge_on_tmpfs() {
    check(FsKind::Tmpfs, 1);
}

#[test]
fn random_trees_converge_on_ext4() {
    check(FsKind::Ext4, 101);
}

#[test]
fn random_trees_converge_on_xfs() {
    check(FsKind::Xfs, 201);
}

#[test]
fn random_trees_converge_on_btrfs() {
    check(FsKind::Btrfs, 301);
}
