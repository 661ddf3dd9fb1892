//! Hard-link groups that do not fit: more names than the replica's file system takes for one file.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{check_accounts, put, sync};
use driftless_testkit::{FsKind, Scratch, attrs};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `EXT4_LINK_MAX` of the kernel's fs/ext4/ext4.h.
const EXT4_NAMES_MAX: usize = 65_000;
const FURTHER: usize = 3;

/// How many names each inode has, the fewest first; all have the content and the mode.
fn inodes(dir: &Path, content: &str, mode: u32) -> Vec<usize> {
    let mut names = BTreeMap::<u64, usize>::new();
    for entry in fs::read_dir(dir).expect("list") {
        let path = entry.expect("entry").path();
        let meta = fs::symlink_metadata(&path).expect("stat");
        if names.insert(meta.ino(), names.get(&meta.ino()).map_or(1, |count| count + 1)).is_none() {
            assert_eq!((fs::read_to_string(&path).expect("read").as_str(), meta.mode() & 0o7777), (content, mode), "{}", path.display());
        }
    }
    let mut counts: Vec<usize> = names.into_values().collect();
    counts.sort_unstable();
    counts
}

#[test]
fn names_beyond_what_one_file_can_have_are_told_and_copied_once() {
    let (source, replica) = (Scratch::new(FsKind::Tmpfs, 200), Scratch::new(FsKind::Ext4, 64));
    let (src, dst) = (source.dir("src"), replica.path().join("dst"));
    put(&src.join("first"), "content");
    (1..EXT4_NAMES_MAX + FURTHER).for_each(|number| fs::hard_link(src.join("first"), src.join(format!("n{number}"))).expect("link"));
    attrs::set_mode(&src.join("first"), 0o644).expect("chmod");
    let run = || {
        let outcome = sync(&src, &dst).run().expect(3);
        check_accounts(&outcome);
        assert_eq!(outcome.events_named("problem").len(), FURTHER, "{:?}", outcome.code());
        outcome
    };
    let first = run();
    let expected = [vec![1; FURTHER], vec![EXT4_NAMES_MAX]].concat();
    assert_eq!((inodes(&dst, "content", 0o644), first.count("bytes_copied")), (expected.clone(), 7 * (1 + FURTHER as u64)));
    let again = run();
    assert_eq!([again.count("changed"), again.count("bytes_copied")], [0, 0], "a run that can do nothing");
    attrs::set_mode(&src.join("first"), 0o600).expect("chmod");
    let _ = run();
    assert_eq!(inodes(&dst, "content", 0o600), expected, "its mode has changed");
}
