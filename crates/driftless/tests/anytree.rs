//! Trees at the edge of what a kernel allows, and trees that do not hold still.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{
    USER, check_accounts, check_equal, check_settled, names_below, on_trees, only_local, put, sync,
    sync_by_user, sync_ok, verify, while_disturbed,
};
use driftless_testkit::{EVENT_MAX, FsKind, Options, Scratch, attrs, compare, deep_path};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const NONE: [&str; 0] = [];
const LONG: Duration = EVENT_MAX;

fn stage(kind: FsKind, size_mib: u64) -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(kind, size_mib);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    (scratch, src, dst)
}

#[test]
fn paths_far_longer_than_a_path_may_be_are_copied_and_deleted() {
    for kind in [FsKind::Tmpfs, FsKind::Ext4] {
        let (_scratch, src, dst) = stage(kind, 200);
        deep_path(&src, 80, 255).expect("deep");
        let outcome = sync_ok(&src, &dst, NONE);
        assert!(outcome.count("seen") > 80);
        check_equal(&src, &dst, "80 levels of 255 bytes");
        driftless_testkit::remove_deep(&src.join("b".repeat(255))).expect("remove");
        put(&src.join("one"), "so that the source is not empty");
        let _ = sync_ok(&src, &dst, ["--delete", "--delete-unlike"]);
        check_equal(&src, &dst, "deleted again");
    }
}

#[test]
fn three_thousand_levels_are_copied_with_64_open_files() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs, 200);
    deep_path(&src, 3000, 12).expect("deep");
    let few = ["prlimit", "--nofile=64:64", "--"];
    let _ = sync(&src, &dst).through(few).limit(LONG).run().expect(0);
    check_equal(&src, &dst, "3000 levels");
    let _ = sync(&src, &dst).through(few).limit(LONG).run().expect(0);
    driftless_testkit::remove_deep(&src.join("b".repeat(12))).expect("remove");
    put(&src.join("one"), "so that the source is not empty");
    let _ = sync(&src, &dst)
        .args(["--delete", "--delete-unlike"])
        .through(few)
        .limit(LONG)
        .run()
        .expect(0);
    check_equal(&src, &dst, "deleted with 64 open files");
}

#[test]
fn twenty_thousand_levels_overflow_no_stack() {
    only_local!("goes down so many levels that an agent needs minutes");
    let (_scratch, src, dst) = stage(FsKind::Tmpfs, 400);
    deep_path(&src, 20_000, 1).expect("deep");
    let run = || on_trees("sync", &src, &dst).limit(LONG).run().expect(0);
    let (first, second) = (run(), run());
    assert!(
        first
            .stdout_text()
            .contains("22,001 entries: 0 same, 22,001 changed"),
        "{}",
        first.describe()
    );
    assert!(
        second.stdout_text().contains(" same, 0 changed"),
        "{}",
        second.describe()
    );
}

#[test]
fn many_wide_directories_are_copied_with_64_open_files() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs, 200);
    for index in 0..4000 {
        put(
            &src.join(format!("d{}/e{}/f{index}", index % 40, index % 400)),
            "x",
        );
    }
    let _ = sync(&src, &dst)
        .args(["--jobs=32"])
        .through(["prlimit", "--nofile=64:64", "--"])
        .run()
        .expect(0);
    check_equal(&src, &dst, "4000 files with 64 open files");
}

#[test]
fn a_directory_of_200_000_entries_is_copied() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs, 2000);
    fs::create_dir(src.join("wide")).expect("dir");
    for index in 0..200_000 {
        fs::File::create(src.join(format!("wide/{index}"))).expect("create");
    }
    let outcome = sync(&src, &dst).limit(LONG).run().expect(0);
    assert_eq!(outcome.count("seen"), 200_002);
    check_equal(&src, &dst, "200000 entries");
    fs::remove_file(src.join("wide/77777")).expect("remove");
    let outcome = sync(&src, &dst).arg("--delete").limit(LONG).run().expect(0);
    assert_eq!(
        (outcome.count("deleted"), outcome.count("bytes_copied")),
        (1, 0)
    );
    check_equal(&src, &dst, "one less");
}

#[test]
fn a_file_with_100_000_names_stays_one_file() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs, 2000);
    put(&src.join("d0/name0"), "content");
    for index in 1..100_000 {
        let folder = src.join(format!("d{}", index % 10));
        if index < 10 {
            fs::create_dir(&folder).expect("dir");
        }
        fs::hard_link(src.join("d0/name0"), folder.join(format!("name{index}"))).expect("link");
    }
    let outcome = sync(&src, &dst).limit(LONG).run().expect(0);
    assert_eq!(outcome.count("bytes_copied"), 7);
    assert_eq!(
        fs::metadata(dst.join("d0/name0")).expect("stat").nlink(),
        100_000
    );
    check_equal(&src, &dst, "100000 names");
    check_settled(&src, &dst, ["--delete"]);
}

#[test]
fn the_largest_file_there_can_be_is_copied_through_its_holes() {
    let (_scratch, src, dst) = stage(FsKind::Xfs, 400);
    let file = fs::File::create(src.join("endless")).expect("create");
    let last = i64::MAX as u64;
    file.set_len(last).expect("8 EiB - 1");
    for at in [0, 1 << 40, 1 << 60, last - 70_000] {
        file.write_all_at(&[9; 5000], at).expect("island");
    }
    drop(file);
    let _ = sync(&src, &dst).limit(LONG).run().expect(0);
    check_equal(&src, &dst, "8 EiB - 1");
    check_settled(&src, &dst, NONE);
}

#[test]
fn what_cannot_be_read_is_told_and_nothing_of_it_is_deleted() {
    let (scratch, src, _) = stage(FsKind::Ext4, 64);
    let dst = scratch.dir("dst");
    for name in ["open/file", "locked/inside", "no-list/inside", "unreadable"] {
        put(&src.join(name), "content");
        put(&dst.join(name), "an older copy");
    }
    put(&dst.join("open/extra"), "to be deleted");
    put(&dst.join("locked/extra"), "not to be deleted");
    for path in common_paths(&src).chain(common_paths(&dst)) {
        attrs::set_owner(&path, USER, USER).expect("chown");
    }
    for (name, mode) in [("locked", 0), ("no-list", 0o300), ("unreadable", 0)] {
        attrs::set_mode(&src.join(name), mode).expect("chmod");
    }
    let outcome = sync_by_user(&src, &dst).arg("--delete").run().expect(3);
    check_accounts(&outcome);
    let told: Vec<String> = outcome
        .events_named("problem")
        .iter()
        .map(|p| p["path"].as_str().unwrap_or_default().to_owned())
        .collect();
    for name in ["locked", "no-list", "unreadable"] {
        assert!(
            told.iter().any(|path| path == name),
            "{name} is told: {told:?}"
        );
    }
    assert_eq!(fs::read(dst.join("open/file")).expect("copied"), b"content");
    assert!(!dst.join("open/extra").exists());
    for name in [
        "locked/inside",
        "locked/extra",
        "no-list/inside",
        "unreadable",
    ] {
        assert!(
            fs::symlink_metadata(dst.join(name)).is_ok(),
            "{name} is gone: {}",
            outcome.describe()
        );
    }
}

fn common_paths(root: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    driftless_testkit::mutate::list_all(root)
        .expect("list")
        .into_iter()
        .chain([root.to_owned()])
}

#[test]
fn a_source_name_that_looks_like_an_unfinished_file_is_never_lost_in_silence() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs, 64);
    let name = format!(".driftless-tmp-{}", "0123456789abcdef".repeat(2));
    put(&src.join(&name), "a user's own file");
    put(&src.join("dir").join(&name), "another");
    for round in 0..2 {
        let outcome = sync(&src, &dst).arg("--delete").run();
        if outcome.code() == 0 {
            check_equal(&src, &dst, &format!("round {round} says equal"));
        } else {
            assert_eq!(outcome.code(), 3, "{}", outcome.describe());
            assert!(
                !outcome.events_named("problem").is_empty(),
                "{}",
                outcome.describe()
            );
        }
    }
}

const VERSION_BYTES: usize = 3 << 20;

/// Puts a whole new version in place of the old one; no reader of the name ever sees a mix.
fn replace_whole(path: &Path, version: u64) {
    let temp = path.with_extension("new");
    let size = VERSION_BYTES - (version % 5) as usize * 4096;
    fs::write(&temp, vec![(version % 251) as u8; size]).expect("write");
    fs::rename(&temp, path).expect("rename");
}

#[test]
fn a_file_that_is_replaced_while_it_is_copied_is_one_version_or_none() {
    let (scratch, src, dst) = stage(FsKind::Tmpfs, 400);
    let spare = scratch.path().join("version");
    let name = src.join("name");
    put(&name, "");
    let deadline = Instant::now() + Duration::from_secs(8);
    while_disturbed(
        |version| {
            replace_whole(&spare, version);
            fs::rename(&spare, &name).expect("into place");
        },
        || {
            while Instant::now() < deadline {
                let outcome = sync(&src, &dst).run();
                assert!([0, 5].contains(&outcome.code()), "{}", outcome.describe());
                if let Ok(content) = fs::read(dst.join("name")) {
                    assert!(
                        content.windows(2).all(|pair| pair[0] == pair[1]),
                        "a mix of versions was published"
                    );
                }
            }
        },
    );
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "at rest");
}

/// Writes in place, piece by piece without rest, and at times shrinks or grows: what a reader gets
/// is a mix.
fn scribble(file: &fs::File, step: u64) {
    const PIECE_BYTES: u64 = 64 * 1024;
    let size = VERSION_BYTES as u64;
    match step % 100 {
        98 => file.set_len(size / 2 + step % 1000).expect("shrink"),
        99 => file.set_len(size).expect("grow"),
        _ => {
            let at = step * PIECE_BYTES % size;
            file.write_all_at(&[(step % 251) as u8; PIECE_BYTES as usize], at)
                .expect("write");
        }
    }
}

#[test]
fn a_file_that_is_written_while_it_is_copied_never_looks_done_when_it_is_not() {
    let (_scratch, src, dst) = stage(FsKind::Ext4, 400);
    put(&src.join("name"), "");
    let file = fs::OpenOptions::new()
        .write(true)
        .open(src.join("name"))
        .expect("open");
    let (began, mut moving) = (Instant::now(), 0);
    // On a busy machine a run may fall into a pause of the writer.
    while began.elapsed() < Duration::from_secs(8)
        || moving == 0 && began.elapsed() < Duration::from_secs(60)
    {
        let outcome = while_disturbed(|step| scribble(&file, step), || sync(&src, &dst).run());
        assert!([0, 5].contains(&outcome.code()), "{}", outcome.describe());
        moving += u32::from(outcome.code() == 5);
        check_nothing_looks_done(&src, &dst);
    }
    assert!(moving > 0, "no run noticed that the file never stood still");
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "at rest");
}

/// Where size and mtime say that a file is the same, it is.
fn check_nothing_looks_done(src: &Path, dst: &Path) {
    let found = compare(
        src,
        dst,
        &Options {
            holes: false,
            ..Options::default()
        },
    );
    for difference in found
        .iter()
        .filter(|difference| difference.kind == "content")
    {
        let others = found.iter().filter(|other| other.path == difference.path);
        let visible = others
            .clone()
            .any(|other| other.kind == "size" || other.kind == "mtime");
        assert!(
            visible,
            "other content under the same size and mtime: {difference}"
        );
    }
}

#[test]
fn directories_that_come_and_go_while_they_are_copied_do_no_harm() {
    let (scratch, src, dst) = stage(FsKind::Tmpfs, 200);
    for index in 0..300 {
        put(
            &src.join(format!("dir{}/sub/file{index}", index % 10)),
            vec![1u8; 2000],
        );
    }
    let away = scratch.dir("away");
    let deadline = Instant::now() + Duration::from_secs(6);
    let step = |step: u64| {
        let name = format!("dir{}", step % 10);
        fs::rename(src.join(&name), away.join(&name)).expect("away");
        fs::rename(away.join(&name), src.join(format!("{name}-back"))).expect("back elsewhere");
        fs::rename(src.join(format!("{name}-back")), src.join(&name)).expect("back");
    };
    while_disturbed(step, || {
        while Instant::now() < deadline {
            let outcome = sync(&src, &dst).arg("--delete").run();
            assert!(
                [0, 3, 5].contains(&outcome.code()),
                "{}",
                outcome.describe()
            );
        }
    });
    let _ = sync_ok(&src, &dst, ["--delete"]);
    check_equal(&src, &dst, "at rest");
}

#[test]
fn a_source_that_vanishes_while_it_is_copied_never_empties_the_replica() {
    let (scratch, src, dst) = stage(FsKind::Tmpfs, 200);
    for index in 0..2000 {
        put(
            &src.join(format!("dir{}/file{index}", index % 20)),
            vec![1u8; 500],
        );
    }
    let _ = sync_ok(&src, &dst, NONE);
    let names = names_below(&dst);
    let away = scratch.path().join("moved-away");
    for _ in 0..10 {
        let running = sync(&src, &dst).args(["--delete", "--checksum"]).spawn();
        fs::rename(&src, &away).expect("away");
        let outcome = running.wait();
        assert!(
            [0, 1, 3, 5, 13].contains(&outcome.code()),
            "{}",
            outcome.describe()
        );
        assert_eq!(names_below(&dst), names, "{}", outcome.describe());
        fs::rename(&away, &src).expect("back");
    }
}

#[test]
fn a_replica_written_in_the_tick_of_its_source_is_told_by_verify_and_mended_by_checksum() {
    let scratch = Scratch::new(FsKind::Tmpfs, 300);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    for (name, size) in [("small", 100_000), ("large", 66 << 20)] {
        put(&src.join(name), "");
        fs::OpenOptions::new()
            .write(true)
            .open(src.join(name))
            .expect("open")
            .set_len(size)
            .expect("size");
    }
    let _ = sync_ok(&src, &dst, NONE);
    for name in ["small", "large"] {
        let [here, there] = [&src, &dst].map(|root| {
            fs::OpenOptions::new()
                .write(true)
                .open(root.join(name))
                .expect("open")
        });
        let time = |file: &fs::File| {
            file.metadata()
                .map(|meta| (meta.mtime(), meta.mtime_nsec()))
                .expect("stat")
        };
        common::wait_until("both are written in one tick", || {
            here.write_all_at(b"one", 50_000).expect("write");
            there.write_all_at(b"two", 70_000).expect("write");
            time(&here) == time(&there)
        });
    }
    let _ = sync_ok(&src, &dst, NONE);
    let outcome = verify(&src, &dst).run().expect(4);
    assert_eq!(outcome.count("changed"), 2, "{}", outcome.describe());
    let _ = sync_ok(&src, &dst, ["--checksum"]);
    check_equal(&src, &dst, "with --checksum");
}
