//! Replicas that follow what other programs tell: lists through a pipe and in a directory, and posts
//! of any user. What nobody has named is not looked at, so each test sees that it was the telling.
#![allow(clippy::disallowed_methods)]

mod common;

use common::driftless;
use common::mirror::Mirror;
use driftless_testkit::scratch::scratch_folder;
use driftless_testkit::{Driftless, wait_slowly_until};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Names that a line, a text or an argument could spoil.
const HOSTILE: [&[u8]; 5] = [b"two\nlines", b"\xff\xfe", b" ", b"-0", b"\"'\\ {}"];
const NOBODY: u32 = 65534;

/// A source, and a place for what tells of it.
fn place() -> (TempDir, PathBuf) {
    let folder = scratch_folder();
    let source = folder.path().join("src");
    fs::create_dir(&source).expect("a directory");
    (folder, source)
}

fn list_keys(path: &Path, format: &str) -> String {
    format!("detect = [\"list\"]\ndelete = true\n[list]\npath = {path:?}\nformat = \"{format}\"\n")
}

fn named(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

#[test]
fn what_is_written_into_the_pipe_is_followed() {
    let (folder, source) = place();
    let pipe = folder.path().join("pipe");
    let mirror = Mirror::of(&source, &list_keys(&pipe, "nul"));
    mirror.barrier();
    let mode = fs::metadata(&pipe).expect("it was made").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    fs::create_dir(source.join("dir")).expect("a directory");
    for name in HOSTILE {
        fs::write(source.join("dir").join(named(name)), name).expect("a file");
    }
    fs::write(source.join("not named"), b"1").expect("a file");
    // Each writer opens the pipe anew; the last word of the last one has no end.
    for (index, name) in HOSTILE.iter().enumerate() {
        let mut writer = File::options().write(true).open(&pipe).expect("it is read");
        let end: &[u8] = if index + 1 < HOSTILE.len() {
            b"\0"
        } else {
            b""
        };
        let lines = [b"../outside\0dir/", *name, end].concat();
        writer.write_all(&lines).expect("written");
    }
    mirror.barrier();
    for name in HOSTILE {
        let copy = mirror.replica.join("dir").join(named(name));
        assert_eq!(fs::read(&copy).expect("it is there"), name);
    }
    assert!(!mirror.replica.join("not named").exists());
    assert_eq!(mirror.status()["unread"], HOSTILE.len());
}

#[test]
fn a_burst_of_lines_and_a_line_without_end_are_taken() {
    let (folder, source) = place();
    let pipe = folder.path().join("pipe");
    let mirror = Mirror::of(&source, &list_keys(&pipe, "lines"));
    mirror.barrier();
    let mut lines = Vec::new();
    for number in 0..1000 {
        fs::write(source.join(format!("f{number}")), format!("{number}")).expect("a file");
    }
    for round in 0..100_000 {
        writeln!(lines, "f{}", round % 1000).expect("memory");
    }
    let mut writer = File::options().write(true).open(&pipe).expect("it is read");
    writer.write_all(&vec![b'x'; 300_000]).expect("written");
    writer.write_all(b"\n").expect("written");
    writer.write_all(&lines).expect("written");
    drop(writer);
    mirror.check_equal("a burst");
    assert_eq!(mirror.status()["unread"], 1);
}

/// Puts a list into a folder, as programs are told to.
fn put(folder: &Path, name: &str, text: &[u8]) {
    let half = folder.join(format!("{name}.tmp"));
    fs::write(&half, text).expect("a list");
    fs::rename(&half, folder.join(name)).expect("renamed");
}

#[test]
fn lists_in_a_folder_are_deleted_when_the_replica_has_it_all_and_not_before() {
    let (folder, source) = place();
    let lists = folder.path().join("lists");
    fs::create_dir(&lists).expect("a directory");
    let mut mirror = Mirror::of(&source, &list_keys(&lists, "json"));
    mirror.barrier();
    for half in ["half.tmp", ".half"] {
        fs::write(lists.join(half), b"{\"path\": \"not named\"}\n").expect("a list");
    }
    fs::write(source.join("not named"), b"1").expect("a file");
    let _done = mirror.command("pause").run().expect(0);
    fs::create_dir(source.join("a")).expect("a directory");
    fs::write(source.join("a").join(named(b"b\xff")), b"1").expect("a file");
    put(
        &lists,
        "one",
        b"{\"path_base64\": \"YS9i/w==\"}\nnonsense\n{\"path\": \"a\"}",
    );
    mirror.wait_for("unread", |unread| unread == 1);
    // It is paused, killed, and paused after that: nothing is on the replica yet.
    mirror.kill();
    mirror.start();
    mirror.wait_for("unread", |unread| unread == 1);
    mirror.wait_for("events", |events| events >= 2);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(lists.join("one").exists(), "it was deleted too early");
    let _done = mirror.command("resume").run().expect(0);
    mirror.barrier();
    assert!(mirror.replica.join("a").join(named(b"b\xff")).exists());
    wait_slowly_until("the list is deleted", || !lists.join("one").exists());
    let mut left: Vec<_> = fs::read_dir(&lists)
        .expect("it is there")
        .map(|entry| entry.expect("a name").file_name())
        .collect();
    left.sort();
    assert_eq!(left, [".half", "half.tmp"]);
}

#[test]
fn lists_that_come_while_others_are_deleted_are_all_read() {
    let (folder, source) = place();
    let lists = folder.path().join("lists");
    fs::create_dir(&lists).expect("a directory");
    let mirror = Mirror::of(&source, &list_keys(&lists, "lines"));
    mirror.barrier();
    // The same name again and again: what is deleted may be the next one already.
    let began = Instant::now();
    let mut number = 0;
    while number < 200 || began.elapsed() < Duration::from_secs(4) {
        let name = format!("f{number}");
        fs::write(source.join(&name), &name).expect("a file");
        wait_slowly_until("the name is free", || {
            !lists.join("list").exists() || number % 3 > 0
        });
        if !lists.join("list").exists() {
            put(&lists, "list", name.as_bytes());
        } else {
            put(&lists, &format!("list{number}"), name.as_bytes());
        }
        number += 1;
    }
    mirror.check_equal("lists of one name");
    let is_empty = || fs::read_dir(&lists).expect("it is there").next().is_none();
    wait_slowly_until("all lists are deleted", is_empty);
}

fn post(mirror: &Mirror) -> Driftless {
    driftless()
        .arg("post")
        .env("DRIFTLESS_RUNTIME_DIR", mirror.runtime_folder())
}

const POSTS: &str = "detect = [\"announcements\"]\ndelete = true\n";

/// Anybody who may post can post such names.
#[test]
fn names_that_cannot_be_are_no_problem() {
    let (_folder, source) = place();
    put(&source, "file", b"content");
    let mirror = Mirror::of(&source, POSTS);
    mirror.barrier();
    let long = source.join("x".repeat(300));
    let _done = post(&mirror).arg(&long).run().expect(0);
    mirror.check_equal("names that cannot be");
    assert_eq!(mirror.status()["problems"], 0, "{}", mirror.status());
}

/// Nothing but its path tells of it: what the replica has there is a directory with something in it.
#[test]
fn a_hard_link_in_the_place_of_a_directory_is_followed_by_its_path_alone() {
    for order in [&["a"][..], &["a", "o"], &["o", "a"]] {
        for is_apart in [false, true] {
            let (_folder, source) = place();
            fs::create_dir_all(source.join("a/deep")).expect("a directory");
            put(&source, "a/deep/file", b"content");
            put(&source, "o", b"of several names");
            let mirror = Mirror::of(&source, POSTS);
            mirror.barrier();
            fs::remove_dir_all(source.join("a")).expect("removed");
            fs::hard_link(source.join("o"), source.join("a")).expect("a further name");
            let said = format!("{order:?} apart: {is_apart}");
            let told = order.iter().map(|name| source.join(name));
            if is_apart {
                told.for_each(|path| drop(post(&mirror).arg(path).run().expect(0)));
            } else {
                let all = told.fold(post(&mirror), |post, path| post.arg(path));
                let _done = all.run().expect(0);
            }
            mirror.barrier();
            mirror.check_equal(&said);
            assert_eq!(
                mirror.status()["problems"],
                0,
                "{said}: {}",
                mirror.status()
            );
        }
    }
}

#[test]
fn posts_of_any_user_are_followed() {
    let (folder, source) = place();
    let mirror = Mirror::of(&source, POSTS);
    mirror.barrier();
    for dir in [
        folder.path(),
        mirror.runtime_folder().parent().expect("one"),
    ] {
        fs::set_permissions(dir, Permissions::from_mode(0o755)).expect("changed");
    }
    fs::create_dir_all(source.join("deep/er")).expect("a directory");
    for name in HOSTILE {
        fs::write(source.join("deep/er").join(named(name)), name).expect("a file");
        let file = source.join("deep/er").join(named(name));
        let _done = post(&mirror)
            .arg(&file)
            .as_user(NOBODY, NOBODY)
            .run()
            .expect(0);
    }
    fs::write(source.join("not named"), b"1").expect("a file");
    mirror.barrier();
    for name in HOSTILE {
        let copy = mirror.replica.join("deep/er").join(named(name));
        assert_eq!(fs::read(&copy).expect("it is there"), name);
    }
    assert!(!mirror.replica.join("not named").exists());
    // What is gone can be posted, too, and a whole directory.
    fs::remove_dir_all(source.join("deep/er")).expect("removed");
    fs::create_dir_all(source.join("new/dir")).expect("a directory");
    fs::write(source.join("new/dir/f"), b"1").expect("a file");
    let _done = post(&mirror)
        .arg(source.join("deep/er"))
        .arg("-r")
        .arg(source.join("new"))
        .run()
        .expect(0);
    let _done = post(&mirror).arg(source.join("not named")).run().expect(0);
    mirror.check_equal("posts");
}

#[test]
fn lists_of_paths_are_posted_and_those_of_no_source_are_told() {
    let (folder, source) = place();
    let mirror = Mirror::of(&source, POSTS);
    mirror.barrier();
    let (mut list, count) = (Vec::new(), 25_000);
    for number in 0..count {
        let file = source.join(format!("f\n{}", number % 500));
        if number < 500 {
            fs::write(&file, b"1").expect("a file");
        }
        list.extend_from_slice(file.as_os_str().as_bytes());
        list.push(0);
    }
    let from = folder.path().join("list");
    fs::write(&from, &list).expect("a list");
    let _done = post(&mirror)
        .arg("-0")
        .arg("--from")
        .arg(&from)
        .run()
        .expect(0);
    mirror.check_equal("a list of posts");
    assert!(mirror.status()["events"].as_u64() >= Some(count));
    let done = post(&mirror)
        .arg(folder.path().join("elsewhere"))
        .run()
        .expect(3);
    assert!(
        done.stderr_text().contains("in the source of no mirror"),
        "{}",
        done.describe()
    );
    let done = post(&mirror)
        .arg("--job=other")
        .arg(&source)
        .run()
        .expect(1);
    assert!(
        done.stderr_text().contains("no mirror listens"),
        "{}",
        done.describe()
    );
    let done = driftless()
        .arg("post")
        .arg(&source)
        .env("DRIFTLESS_RUNTIME_DIR", folder.path().join("nothing"))
        .run()
        .expect(1);
    assert!(
        done.stderr_text().contains("no mirror listens"),
        "{}",
        done.describe()
    );
}

#[test]
fn who_is_silent_or_talks_nonsense_holds_up_nobody() {
    let (_folder, source) = place();
    let mirror = Mirror::of(&source, POSTS);
    mirror.barrier();
    let socket = mirror.runtime_folder().join("test.post");
    let silent: Vec<UnixStream> = (0..20)
        .map(|_| UnixStream::connect(&socket).expect("it listens"))
        .collect();
    for nonsense in [&vec![b'a'; 1 << 20][..], b"e/../etc\0x\0\0", b"e"] {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        let _it_may_hang_up = stream.write_all(nonsense);
        let _it_may_hang_up = stream.shutdown(std::net::Shutdown::Write);
        let _it_ends = stream.read_to_end(&mut Vec::new());
    }
    fs::write(source.join("f"), b"1").expect("a file");
    let _done = post(&mirror).arg(source.join("f")).run().expect(0);
    mirror.check_equal("beside nonsense");
    assert_eq!(mirror.status()["deaf"], serde_json::Value::Null);
    drop(silent);
}
