//! Memory over a line: bounded on both sides, whatever the other says, and however many names a
//! directory has.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::agent;
use common::liar::{CRASHES, Liar, Lie, Said};
use common::{check_accounts, driftless};
use driftless_remote::wire::Reply;
use driftless_testkit::{FsKind, Outcome, Scratch, write_program};
use driftless_tree::WHOLE_BYTES_MAX;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// What either side may take (docs/remote.md).
const RESIDENT_KIB_MAX: u64 = 256 << 10;
const NAMES: usize = 120_000;
/// What either side may take for so many names, most of it not for them.
const NAMES_KIB_MAX: u64 = 90 << 10;

fn stage(files: usize) -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Tmpfs, 600);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    for number in 0..files {
        fs::write(src.join(format!("a-name-of-some-length-{number:08}")), "").expect("write");
    }
    (scratch, src, dst)
}

/// The largest resident memory that `time` told last.
fn resident_kib(text: &str) -> u64 {
    let told = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("resident ")?.trim().parse().ok());
    told.expect("how much memory it took")
}

/// Pulls many small files from an agent that sends `bytes` for each, slowly taken.
fn pull_from_liar(bytes: u64, arguments: &[&str]) -> Outcome {
    let (_scratch, src, dst) = stage(1200);
    let lie: Lie = Box::new(move |mut said: Said<'_>| {
        if let Reply::Whole(Some((entry, extents))) = &mut said.reply {
            entry.meta.size = bytes;
            *extents = std::iter::once(0..bytes).collect();
            said.data = vec![7; bytes as usize];
        }
        said.unchanged()
    });
    let mut far = OsString::from("liar:");
    far.push(&src);
    let outcome = Liar::new(lie).run(
        "sync",
        [far, dst.into()],
        &[&["--jobs=1", "--bwlimit=20M"], arguments].concat(),
    );
    assert!(!CRASHES.contains(&outcome.code()), "{}", outcome.describe());
    assert!(
        resident_kib(&outcome.stderr_text()) < RESIDENT_KIB_MAX,
        "{}",
        outcome.describe()
    );
    outcome
}

#[test]
fn files_larger_than_any_may_be_are_not_taken() {
    for bytes in [WHOLE_BYTES_MAX + 1, 4 << 20] {
        let outcome = pull_from_liar(bytes, &[]);
        assert_ne!(outcome.code(), 0, "{}", outcome.describe());
        assert!(
            outcome
                .stderr_text()
                .contains("does not keep to the protocol"),
            "{}",
            outcome.describe()
        );
    }
}

#[test]
fn files_as_large_as_they_may_be_wait_in_a_bounded_amount_of_memory() {
    let _ = pull_from_liar(WHOLE_BYTES_MAX, &[]);
}

/// What takes the place of ssh, and tells what the agent took.
fn measuring(scratch: &Scratch) -> (PathBuf, PathBuf) {
    let (ssh, told) = (scratch.path().join("connect"), scratch.path().join("told"));
    let text = format!(
        "#!/bin/sh\nshift 2\nexec /usr/bin/time -q -o {} -f 'resident %M' sh -c \"$1\"\n",
        told.display()
    );
    write_program(&ssh, &text);
    (ssh, told)
}

#[test]
fn a_directory_of_very_many_names_takes_a_bounded_amount_of_memory_on_both_sides() {
    let (scratch, src, _) = stage(NAMES);
    let (ssh, told) = measuring(&scratch);
    let far = |path: &Path| {
        let mut typed = OsString::from("far:");
        typed.push(path);
        typed
    };
    let (pulled, pushed) = (scratch.path().join("pulled"), scratch.path().join("pushed"));
    let ways = [
        [far(&src), pulled.clone().into()],
        [far(&src), pulled.into()],
        [src.clone().into(), far(&pushed)],
        [src.into(), far(&pushed)],
    ];
    for ends in ways {
        let run = driftless()
            .args([
                "sync",
                "--json",
                "--streams=1",
                "--quiet",
                "--agent-path",
                agent(),
                "--ssh",
            ])
            .arg(&ssh)
            .args(&ends);
        let outcome = run
            .through(["/usr/bin/time", "-q", "-f", "resident %M"])
            .run()
            .expect(0);
        check_accounts(&outcome);
        let there = resident_kib(&fs::read_to_string(&told).expect("what the agent took"));
        let here = resident_kib(&outcome.stderr_text());
        assert!(
            here < NAMES_KIB_MAX && there < NAMES_KIB_MAX,
            "{ends:?}: {here} KiB here, {there} KiB there"
        );
    }
}
