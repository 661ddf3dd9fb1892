//! Mirrors and lists onto replicas whose file system takes several names for one: what another name
//! of the source stands for is neither deleted nor overwritten.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mirror::Mirror;
use common::{check_accounts, put, sync, sync_ok, wait_until};
use driftless_testkit::{FsKind, Fuse, Mood, Scratch};
use std::fs;
use std::path::{Path, PathBuf};

const WATCHED: &str = "detect = [\"fanotify\"]\ndelete = true\n";

struct Stage {
    source: Scratch,
    _replica: Fuse,
    src: PathBuf,
    dst: PathBuf,
}

fn stage(mood: Mood) -> Stage {
    let source = Scratch::new(FsKind::Tmpfs, 16);
    let replica = Fuse::mount(mood);
    let (src, dst) = (source.dir("src"), replica.path().join("dst"));
    Stage {
        source,
        _replica: replica,
        src,
        dst,
    }
}

/// Makes a replica that takes names that differ in case for one.
fn folding() -> Stage {
    stage(Mood {
        folds: true,
        ..Mood::healthy()
    })
}

/// Makes a replica that strips dots at the end of names.
fn stripping() -> Stage {
    stage(Mood {
        strips: Some(b'.'),
        ..Mood::healthy()
    })
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Waits until a name is a problem, and a file of the replica has a content.
fn check_problem_of(mirror: &Mirror, name: &str, (file, content): (&Path, &str)) {
    wait_until(name, || {
        let told = mirror.command("problems").run().stdout_text();
        told.contains(name) && told.contains("is the same name to its file system")
    });
    wait_until(content, || read(file) == content);
}

/// Checks that the trees are equal once what has failed is tried again.
fn check_solved(mirror: &Mirror, context: &str) {
    let _tried = mirror.command("retry").run().expect(0);
    mirror.check_equal(context);
}

#[test]
fn name_that_changed_its_case_is_respelt() {
    let Stage { src, dst, .. } = &folding();
    put(&src.join("Foo"), "the only copy");
    put(&src.join("Dir/a"), "below");
    let mirror = Mirror::between(src, dst, WATCHED);
    mirror.barrier();
    fs::rename(src.join("Foo"), src.join("foo")).expect("renamed");
    fs::rename(src.join("Dir"), src.join("dir")).expect("renamed");
    mirror.check_equal("both were respelt");
}

#[test]
fn name_that_came_and_went_takes_none_along() {
    let Stage { src, dst, .. } = &folding();
    put(&src.join("foo"), "the only copy");
    put(&src.join("dir/a"), "below");
    let mirror = Mirror::between(src, dst, WATCHED);
    mirror.barrier();
    put(&src.join("FOO"), "other");
    fs::create_dir(src.join("DIR")).expect("a directory");
    fs::remove_file(src.join("FOO")).expect("removed");
    fs::remove_dir(src.join("DIR")).expect("removed");
    mirror.check_equal("others came and went");
}

#[test]
fn mirror_keeps_the_first_of_two_names() {
    let Stage { src, dst, .. } = &folding();
    put(&src.join("foo"), "kept");
    let mirror = Mirror::between(src, dst, WATCHED);
    mirror.barrier();
    put(&src.join("FOO"), "other");
    let file = dst.join("foo");
    check_problem_of(&mirror, "FOO", (&file, "kept"));
    put(&src.join("foo"), "changed");
    check_problem_of(&mirror, "FOO", (&file, "changed"));
    fs::remove_file(src.join("FOO")).expect("removed");
    check_solved(&mirror, "one is gone");
}

#[test]
fn renamed_namesake_leaves_the_other_its_copy() {
    let Stage { src, dst, .. } = &folding();
    put(&src.join("DIR/a"), "kept");
    let mirror = Mirror::between(src, dst, WATCHED);
    mirror.barrier();
    put(&src.join("dir/b"), "other");
    check_problem_of(&mirror, "dir", (&dst.join("DIR/a"), "kept"));
    fs::rename(src.join("dir"), src.join("third")).expect("renamed");
    mirror.check_equal("it has a name of its own");
}

#[test]
fn list_keeps_the_other_of_two_names() {
    let Stage {
        source, src, dst, ..
    } = &folding();
    put(&src.join("FOO"), "upper");
    put(&src.join("foo"), "lower");
    put(&src.join("DIR/a"), "upper");
    put(&src.join("dir/a"), "lower");
    let list = source.path().join("list");
    let from_list = |names: &str| {
        put(&list, names);
        sync(src, dst).arg("--files-from").arg(&list)
    };
    check_accounts(&from_list("foo\ndir/a\n").run().expect(0));
    let outcome = from_list("FOO\nDIR\n").run().expect(3);
    check_accounts(&outcome);
    assert_eq!(
        outcome.events_named("problem").len(),
        2,
        "{}",
        outcome.describe()
    );
    assert_eq!(
        [read(&dst.join("foo")), read(&dst.join("dir/a"))],
        ["lower", "lower"]
    );
    check_accounts(&from_list("foo\ndir/a\n").run().expect(0));
}

#[test]
fn list_names_what_was_respelt() {
    let Stage {
        source, src, dst, ..
    } = &folding();
    put(&src.join("Foo"), "first");
    let _ = sync_ok(src, dst, [""; 0]);
    fs::rename(src.join("Foo"), src.join("foo")).expect("renamed");
    put(&src.join("foo"), "second, and longer");
    let list = source.path().join("list");
    put(&list, "foo\n");
    let outcome = sync(src, dst)
        .arg("--files-from")
        .arg(&list)
        .run()
        .expect(0);
    check_accounts(&outcome);
    assert_eq!(read(&dst.join("foo")), "second, and longer");
}

#[test]
fn mirror_keeps_what_is_stored_without_its_end() {
    let Stage { src, dst, .. } = &stripping();
    put(&src.join("report."), "the only copy");
    put(&src.join("both"), "kept");
    let mirror = Mirror::between(src, dst, WATCHED);
    mirror.barrier();
    fs::rename(src.join("report."), src.join("report")).expect("renamed");
    mirror.check_equal("the end is gone");
    put(&src.join("both."), "other");
    check_problem_of(&mirror, "both.", (&dst.join("both"), "kept"));
    fs::remove_file(src.join("both.")).expect("removed");
    check_solved(&mirror, "one is gone");
}
