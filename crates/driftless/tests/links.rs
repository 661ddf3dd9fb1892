//! Hard-link groups that do not fit, more names than the replica's file system takes for one file;
//! and whose names change while a run goes on.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{check_accounts, check_settled, only_local, put, sync, sync_ok, verify, wait_until};
use driftless_testkit::fuse::Op;
use driftless_testkit::{Driftless, FsKind, Fuse, Mood, Outcome, Rule, Scratch, attrs};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `EXT4_LINK_MAX` of the kernel's fs/ext4/ext4.h.
const EXT4_NAMES_MAX: usize = 65_000;
const FURTHER: usize = 3;

/// How many names each inode has, the fewest first; all have the content and the mode.
fn inodes(dir: &Path, content: &str, mode: u32) -> Vec<usize> {
    let mut names = BTreeMap::<u64, usize>::new();
    for entry in fs::read_dir(dir).expect("list") {
        let path = entry.expect("entry").path();
        let meta = fs::symlink_metadata(&path).expect("stat");
        if names
            .insert(
                meta.ino(),
                names.get(&meta.ino()).map_or(1, |count| count + 1),
            )
            .is_none()
        {
            assert_eq!(
                (
                    fs::read_to_string(&path).expect("read").as_str(),
                    meta.mode() & 0o7777
                ),
                (content, mode),
                "{}",
                path.display()
            );
        }
    }
    let mut counts: Vec<usize> = names.into_values().collect();
    counts.sort_unstable();
    counts
}

/// A source with a file of so many names, and a path for a replica that takes fewer.
fn with_names(source: &Scratch, replica: &Scratch, names: usize) -> (PathBuf, PathBuf) {
    let (src, dst) = (source.dir("src"), replica.path().join("dst"));
    put(&src.join("first"), "content");
    (1..names).for_each(|number| {
        fs::hard_link(src.join("first"), src.join(format!("n{number}"))).expect("link")
    });
    attrs::set_mode(&src.join("first"), 0o644).expect("chmod");
    (src, dst)
}

/// A run that ends well and says once, in a note, that a file has several inodes.
fn check_noted(run: Driftless) -> Outcome {
    let outcome = run.run().expect(0);
    check_accounts(&outcome);
    let text = outcome.stderr_text();
    assert_eq!(text.matches("has more names").count(), 1, "{text}");
    outcome
}

#[test]
fn names_beyond_the_limit_share_further_files() {
    let (source, replica) = (
        Scratch::new(FsKind::Tmpfs, 200),
        Scratch::new(FsKind::Ext4, 64),
    );
    let (src, dst) = with_names(&source, &replica, EXT4_NAMES_MAX + FURTHER);
    let expected = [FURTHER, EXT4_NAMES_MAX];
    let first = check_noted(sync(&src, &dst));
    assert_eq!(first.count("bytes_copied"), 7 * 2, "{}", first.describe());
    assert_eq!(inodes(&dst, "content", 0o644), expected);
    for options in [&["--delete"][..], &["--checksum", "--dry-run"]] {
        let again = check_noted(sync(&src, &dst).args(options.iter().copied()));
        let counts = ["changed", "bytes_copied"].map(|count| again.count(count));
        assert_eq!(counts, [0, 0], "{options:?} {}", again.describe());
    }
    let _ = check_noted(verify(&src, &dst));
    fs::remove_file(dst.join("n7")).expect("remove");
    let _ = check_noted(sync(&src, &dst));
    assert_eq!(inodes(&dst, "content", 0o644), expected, "filled up again");
    attrs::set_mode(&src.join("first"), 0o600).expect("chmod");
    let _ = check_noted(sync(&src, &dst));
    // Threads that set the mode of different inodes at the same time may part the further names.
    let with_mode = inodes(&dst, "content", 0o600);
    let all: usize = with_mode.iter().sum();
    let most = with_mode.last().copied();
    assert_eq!(
        (all, most),
        (EXT4_NAMES_MAX + FURTHER, Some(EXT4_NAMES_MAX))
    );
}

#[test]
fn names_that_take_no_link_become_files() {
    let (source, replica) = (
        Scratch::new(FsKind::Tmpfs, 200),
        Fuse::mount(Mood::healthy()),
    );
    let (src, dst) = with_names(&source, &source, 5);
    let dst = replica.path().join(dst.file_name().expect("a name"));
    replica.order(Rule::fail(Op::Link, Errno::MLINK));
    let first = check_noted(sync(&src, &dst));
    assert_eq!(first.count("bytes_copied"), 7 * 5, "{}", first.describe());
    assert_eq!(check_noted(sync(&src, &dst)).count("changed"), 0);
    replica.forgive();
    let _ = sync_ok(&src, &dst, NONE);
    assert_eq!(inodes(&dst, "content", 0o644), [5], "links are taken now");
}

const NONE: [&str; 0] = [];

/// The file among these that the process has open.
fn open_in(process: u32, files: &[PathBuf]) -> Option<PathBuf> {
    let open: Vec<PathBuf> = fs::read_dir(format!("/proc/{process}/fd"))
        .ok()?
        .flatten()
        .filter_map(|fd| fs::read_link(fd.path()).ok())
        .collect();
    files.iter().find(|file| open.contains(file)).cloned()
}

fn copy_time(from: &Path, to: &Path) {
    let meta = fs::metadata(from).expect("stat");
    attrs::set_mtime(to, meta.mtime(), meta.mtime_nsec() as u32).expect("mtime");
}

/// Sets a time which comes only in a while, so that a run waits for it; that of a copy too, if
/// there is one.
fn make_young(file: &Path, copy: &Path) {
    let soon = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        + Duration::from_millis(950);
    attrs::set_mtime(file, soon.as_secs().cast_signed(), soon.subsec_nanos()).expect("mtime");
    if copy.exists() {
        copy_time(file, copy);
    }
}

/// How often a test tries to be quick enough.
const TRIES: u32 = 40;

/// A run that has one of these files open and waits, while something else gets its place: how it
/// ended, and which. `None` if it waited for none.
fn replaced_while_waited_for(
    files: &[PathBuf],
    run: Driftless,
    replace: impl FnOnce(&Path),
) -> Option<(Outcome, PathBuf)> {
    let running = run.spawn();
    let mut waited_for = None;
    wait_until("a file is waited for", || {
        waited_for = open_in(running.pid(), files);
        waited_for.is_some() || running.ends_within(Duration::ZERO)
    });
    waited_for
        .inspect(|file| replace(file))
        .map(|file| (running.wait(), file))
}

fn group(src: &Path) -> Vec<PathBuf> {
    let files: Vec<PathBuf> = ["d1/a", "d2/b", "d2/c"]
        .into_iter()
        .map(|name| src.join(name))
        .collect();
    put(&files[0], "OLDOLD");
    fs::create_dir(src.join("d2")).expect("mkdir");
    files[1..]
        .iter()
        .for_each(|name| fs::hard_link(&files[0], name).expect("link"));
    files
}

fn check_contents(src: &Path, dst: &Path, files: &[PathBuf], told: &Outcome) {
    for file in files {
        let copy = dst.join(file.strip_prefix(src).expect("below"));
        assert_eq!(
            fs::read(copy).ok(),
            fs::read(file).ok(),
            "{}\n{}",
            file.display(),
            told.describe()
        );
    }
}

/// The name that a run copies first of a group is replaced while it waits; no other name gets what
/// is there now, nor is that a failure.
fn check_replaced_leader(arguments: &[&str], before: fn(&Path, &Path), replace: fn(&Path, &Path)) {
    let attempt = |_| {
        let scratch = Scratch::new(FsKind::Tmpfs, 16);
        let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
        let (files, new) = (group(&src), src.join("d3/new"));
        put(&new, "NEWNEW");
        before(&src, &dst);
        make_young(&files[0], &dst.join("d1/a"));
        let run = sync(&src, &dst).args(arguments.iter().copied());
        let (told, replaced) = replaced_while_waited_for(&files, run, |file| {
            copy_time(file, &new);
            replace(&new, file);
        })?;
        assert!([0, 5].contains(&told.code()), "{}", told.describe());
        let others: Vec<PathBuf> = files.into_iter().filter(|file| *file != replaced).collect();
        check_contents(&src, &dst, &others, &told);
        let again = sync_ok(&src, &dst, NONE);
        check_contents(&src, &dst, &[&others[..], &[replaced]].concat(), &again);
        check_settled(&src, &dst, NONE);
        Some(())
    };
    (0..TRIES).find_map(attempt).expect("quick enough once");
}

fn link_over(new: &Path, file: &Path) {
    let temp = file.with_extension("temp");
    fs::hard_link(new, &temp).expect("link");
    fs::rename(temp, file).expect("rename");
}

fn move_over(new: &Path, file: &Path) {
    fs::rename(new, file).expect("rename");
}

#[test]
fn what_takes_the_place_of_a_first_name_while_it_is_waited_for_is_not_copied_for_its_group() {
    only_local!("looks into the process that runs");
    check_replaced_leader(&[], |_, _| (), link_over);
    check_replaced_leader(&[], |_, _| (), move_over);
}

#[test]
fn what_takes_the_place_of_a_first_name_before_it_is_compared_is_not_compared_for_its_group() {
    only_local!("looks into the process that runs");
    let equal: fn(&Path, &Path) = |src, dst| drop(sync_ok(src, dst, NONE));
    // What the new file is like stands at the old names already.
    let alike: fn(&Path, &Path) = |src, dst| {
        let _ = sync_ok(src, dst, NONE);
        fs::write(dst.join("d1/a"), "NEWNEW").expect("write");
    };
    check_replaced_leader(&["--checksum"], equal, link_over);
    check_replaced_leader(&["--checksum"], alike, link_over);
    check_replaced_leader(&["--checksum"], alike, move_over);
}

fn check_no_file_any_more(arguments: &[&str], make: fn(&Path)) {
    let attempt = |_| {
        let scratch = Scratch::new(FsKind::Tmpfs, 16);
        let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
        let file = src.join("d/file");
        put(&file, "a file");
        let _ = sync_ok(&src, &dst, NONE);
        if arguments.is_empty() {
            fs::write(&file, "another").expect("write");
        }
        make_young(&file, &dst.join("d/file"));
        let run = sync(&src, &dst).args(arguments.iter().copied());
        let (told, _) = replaced_while_waited_for(std::slice::from_ref(&file), run, |file| {
            fs::remove_file(file).expect("remove");
            make(file);
        })?;
        check_accounts(&told.expect(0));
        check_settled(&src, &dst, NONE);
        Some(())
    };
    (0..TRIES).find_map(attempt).expect("quick enough once");
}

#[test]
fn what_is_no_file_any_more_after_it_was_waited_for_is_copied_as_what_it_is() {
    only_local!("looks into the process that runs");
    let link: fn(&Path) = |file| std::os::unix::fs::symlink("elsewhere", file).expect("symlink");
    let dir: fn(&Path) = |file| put(&file.join("below"), "below");
    for arguments in [&[][..], &["--checksum"]] {
        check_no_file_any_more(arguments, link);
        check_no_file_any_more(arguments, dir);
    }
}

#[test]
fn the_other_names_of_a_group_are_copied_where_the_one_that_was_to_be_first_cannot_be_looked_at() {
    let (source, replica) = (
        Fuse::mount(Mood::healthy()),
        Scratch::new(FsKind::Tmpfs, 16),
    );
    let (src, dst) = (source.dir("src"), replica.path().join("dst"));
    put(&src.join("d/kept"), "kept");
    let _ = sync_ok(&src, &dst, NONE);
    put(&source.dir("outside").join("name"), "content");
    ["n1", "n2"].into_iter().for_each(|name| {
        fs::hard_link(source.path().join("outside/name"), src.join("d").join(name)).expect("link")
    });
    let mut failed = 0;
    // Among these is the look at the one that was chosen when it was known that the one outside
    // does not come.
    for well in 0..8 {
        source.order(
            Rule::fail(Op::Getattr, Errno::IO)
                .named("n*")
                .after(well)
                .times(1),
        );
        let told = sync(&src, &dst).arg("--jobs=1").run();
        source.forgive();
        assert!([0, 3].contains(&told.code()), "{well}: {}", told.describe());
        check_accounts(&told);
        let there = ["n1", "n2"]
            .into_iter()
            .filter(|name| dst.join("d").join(name).exists())
            .count();
        let lost = usize::from(told.code() == 3);
        assert_eq!(there, 2 - lost, "{well}: {}", told.describe());
        failed += lost;
        let _ = sync_ok(&src, &dst, NONE);
        check_settled(&src, &dst, NONE);
        ["n1", "n2"]
            .into_iter()
            .for_each(|name| fs::remove_file(dst.join("d").join(name)).expect("remove"));
    }
    assert!(failed >= 3, "both first looks, and one more: {failed}");
}
