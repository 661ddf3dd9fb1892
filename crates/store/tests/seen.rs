//! Sources that have not changed since an earlier catalogue are opened and not read.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Bench, names, write};
use driftless_model::Keep;
use driftless_store::{BuildOptions, CastSources, CopyRights, SetHash};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

/// Age after which a file counts as unchanged if its metadata are the same.
const SETTLED_SECONDS: u64 = 60;
const DAY_SECONDS: u64 = 24 * 60 * 60;
const BYTES: u64 = 30_000;

/// Returns the source with a small and a large file, and a clock that is `seconds` ahead.
fn bench(seconds: u64) -> Bench {
    let bench = Bench::new();
    write(&bench.path("src/small"), &[1; 10_000]);
    write(&bench.path("src/dir/other"), &[2; 20_000]);
    set_clock(&bench, seconds);
    bench
}

fn set_clock(bench: &Bench, seconds: u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    bench.seconds.store(now.as_secs() + seconds, Relaxed);
}

/// Makes the catalogue for a user; returns the set and the bytes that were read.
fn build(bench: &Bench, user: u32) -> (SetHash, u64) {
    let mut read = 0;
    let mut options = BuildOptions {
        keep: Keep::default(),
        rights: CopyRights::OfSource,
        user,
        pace: &mut |bytes| {
            read += bytes;
            true
        },
    };
    let sources = CastSources::from(vec![bench.path("src")]);
    let built = bench.origin().build(&sources, &mut options).unwrap();
    (built.catalogue.hash(), read)
}

#[test]
fn unchanged_sources_are_not_read_again() {
    let bench = bench(2 * SETTLED_SECONDS);
    let (set, read) = build(&bench, 7);
    assert_eq!(read, BYTES);
    assert_eq!(build(&bench, 7), (set, 0));
}

#[test]
fn set_of_unchanged_sources_has_its_content() {
    let bench = bench(2 * SETTLED_SECONDS);
    let first = bench.build();
    let again = bench.build();
    assert_eq!(first.catalogue.hash(), again.catalogue.hash());
    let node = bench.node();
    let mut receiver = common::open(&node, &again, &bench.to());
    common::put_all(&mut receiver, &mut again.source.reader(), 1);
    receiver.finish().unwrap();
    let found = fs::read(bench.path("to/src/dir/other")).unwrap();
    assert_eq!(found, [2; 20_000]);
}

#[test]
fn content_that_changed_in_place_is_read() {
    let bench = bench(2 * SETTLED_SECONDS);
    let (set, _) = build(&bench, 7);
    let path = bench.path("src/small");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, [3; 10_000]).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(modified).unwrap();
    let (now, read) = build(&bench, 7);
    assert!(now != set && read == BYTES, "{read}");
}

#[test]
fn fresh_files_are_read_again() {
    let bench = bench(SETTLED_SECONDS / 2);
    assert_eq!(build(&bench, 7).1, BYTES);
    assert_eq!(build(&bench, 7).1, BYTES);
    set_clock(&bench, 2 * SETTLED_SECONDS);
    assert_eq!(build(&bench, 7).1, BYTES);
    assert_eq!(build(&bench, 7).1, 0);
}

#[test]
fn no_user_gets_what_another_user_read() {
    let bench = bench(2 * SETTLED_SECONDS);
    assert_eq!(build(&bench, 7).1, BYTES);
    assert_eq!(build(&bench, 8).1, BYTES);
    assert_eq!(build(&bench, 8).1, 0);
}

#[test]
fn lost_and_damaged_catalogues_are_made_again() {
    let bench = bench(2 * SETTLED_SECONDS);
    let (set, _) = build(&bench, 7);
    let folder = bench.path("origin/catalogues");
    fs::remove_file(folder.join(set.to_string())).unwrap();
    assert_eq!(build(&bench, 7), (set, BYTES));
    fs::write(folder.join(set.to_string()), "x").unwrap();
    assert_eq!(build(&bench, 7), (set, BYTES));
    let mut found = names(&folder);
    found.retain(|name| name.starts_with("seen-"));
    let link = folder.join(&found[0]);
    fs::remove_file(&link).unwrap();
    symlink("no hash", &link).unwrap();
    assert_eq!(build(&bench, 7), (set, BYTES));
    assert_eq!(build(&bench, 7), (set, 0));
}

#[test]
fn content_is_read_once_a_day() {
    let bench = bench(2 * SETTLED_SECONDS);
    let (set, _) = build(&bench, 7);
    assert_eq!(build(&bench, 7).1, 0);
    set_clock(&bench, 2 * DAY_SECONDS);
    assert_eq!(build(&bench, 7), (set, BYTES));
    assert_eq!(names(&bench.path("origin/catalogues")).len(), 2);
}

#[test]
fn copy_is_hashed_once_a_day() {
    let bench = bench(2 * SETTLED_SECONDS);
    let node = bench.node();
    let set = bench.build();
    let mut receiver = common::open(&node, &set, &bench.to());
    common::put_all(&mut receiver, &mut set.source.reader(), 1);
    let copy = receiver.finish().unwrap().copy;
    let hashed = |daily: bool| {
        let mut bytes = 0;
        let mut pace = |more: u64| {
            bytes += more;
            true
        };
        let report = match daily {
            true => node.verify_daily(copy, &mut pace),
            false => node.verify(copy, &mut pace),
        };
        (bytes, report.unwrap().is_sound())
    };
    assert_eq!(hashed(true), (BYTES, true));
    assert_eq!(hashed(true), (0, true));
    assert_eq!(hashed(false), (BYTES, true), "who asks gets all");
    set_clock(&bench, 2 * DAY_SECONDS);
    assert_eq!(hashed(true), (BYTES, true));
    assert_eq!(hashed(true), (0, true));
    // A change shows in the ctime, whatever time the user sets.
    let path = bench.path("to/src/small");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, [3; 10_000]).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(modified).unwrap();
    assert_eq!(hashed(true), (BYTES, false));
}
