//! New directories where modes are not kept: closed to others until they are done, and open then,
//! whatever became of the run.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{Far, Way};
use common::movers::sync_on_hosts;
use common::{check_accounts, is_user, names_below, only_local, put, sync, wait_until};
use driftless_testkit::{Driftless, FsKind, Scratch, attrs};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const MIB: usize = 1 << 20;
/// The attributes of what is not finished.
const MARKS: [&str; 2] = ["trusted.driftless.unfinished", "user.driftless.unfinished"];

/// A tree that takes a while at a megabyte a second, and where a replica may be made.
fn stage() -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Ext4, 400);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    for name in ["a/b/slow", "a/c/d/slow", "slow"] {
        put(&src.join(name), vec![1u8; 20 * MIB]);
    }
    fs::create_dir(src.join("a/done")).expect("dir");
    (scratch, src, dst)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("look").permissions().mode() & 0o7777
}

/// All directories of a replica.
fn dirs(root: &Path) -> Vec<String> {
    let below = names_below(root)
        .into_iter()
        .filter(|name| root.join(name).is_dir());
    below.chain([String::new()]).collect()
}

/// Ends a run with a signal while a directory is being filled.
fn interrupt(run: Driftless, dst: &Path, signal: Signal) {
    let running = run.args(["--bwlimit=1M", "--jobs=8"]).spawn();
    let is_being_filled = |dir: &str| dst.join(dir).is_dir() && mode(&dst.join(dir)) == 0o700;
    wait_until("it is in the middle", || {
        dst.join("a/c/d/slow").exists() && is_being_filled("a/c/d")
    });
    running.signal(signal);
    assert_ne!(running.wait().code(), 0);
    assert!(
        ["a", "a/c", "a/c/d"].iter().all(|dir| is_being_filled(dir)),
        "the test needs what is closed"
    );
}

fn check_no_mark_is_left(dst: &Path) {
    for (name, attribute) in dirs(dst)
        .iter()
        .flat_map(|name| MARKS.map(|mark| (name, mark)))
    {
        assert_eq!(
            attrs::get_xattr(&dst.join(name), attribute.as_bytes()).expect("read"),
            None,
            "{name}"
        );
    }
}

/// Trees on this host, and, where there is a server, with the replica on another.
fn places() -> Vec<Option<Far>> {
    let far = (!is_user()).then(Far::root);
    std::iter::once(None).chain(far.map(Some)).collect()
}

fn sync_to(far: Option<&Far>, src: &Path, dst: &Path) -> Driftless {
    far.map_or_else(|| sync(src, dst), |far| far.sync(Way::Push, src, dst))
}

#[test]
fn a_directory_that_an_interrupted_run_left_closed_is_opened_by_the_next() {
    for far in places() {
        for (signal, more) in [(Signal::INT, "--no-acls"), (Signal::KILL, "--no-xattrs")] {
            let (_scratch, src, dst) = stage();
            let run = || sync_to(far.as_ref(), &src, &dst).args(["--no-mode", more]);
            // The user has closed one of a replica that was there before, and closes a new one that
            // is done, as its time says.
            let closed = if signal == Signal::KILL {
                vec!["mine", "a/done"]
            } else {
                vec!["a/done"]
            };
            fs::create_dir_all(src.join("mine/below")).expect("dir");
            if closed.contains(&"mine") {
                fs::create_dir_all(dst.join("mine/below")).expect("dir");
                attrs::set_mode(&dst, 0o755)
                    .and_then(|()| attrs::set_mode(&dst.join("mine/below"), 0o755))
                    .expect("chmod");
                attrs::set_mode(&dst.join("mine"), 0o700).expect("chmod");
            }
            interrupt(run(), &dst, signal);
            fs::create_dir_all(dst.join("a/done")).expect("dir");
            let time = fs::metadata(src.join("a/done"))
                .and_then(|meta| meta.modified())
                .expect("look");
            let done = fs::File::open(dst.join("a/done")).expect("open");
            done.set_times(fs::FileTimes::new().set_modified(time))
                .expect("set its time");
            attrs::set_mode(&dst.join("a/done"), 0o700).expect("chmod");
            check_accounts(&run().run().expect(0));
            for name in dirs(&dst) {
                let wanted = if closed.contains(&&*name) {
                    0o700
                } else {
                    0o755
                };
                assert_eq!(
                    mode(&dst.join(&name)),
                    wanted,
                    "{name} after {signal:?}, on another host: {}",
                    far.is_some()
                );
            }
            check_no_mark_is_left(&dst);
            let again = run().run().expect(0);
            assert_eq!(again.count("changed"), 0, "{}", again.describe());
        }
    }
}

#[test]
fn a_run_that_keeps_modes_takes_the_mark_from_what_it_finishes() {
    for far in places() {
        let (_scratch, src, dst) = stage();
        attrs::set_mode(&src.join("a"), 0o700).expect("chmod");
        interrupt(
            sync_to(far.as_ref(), &src, &dst).arg("--no-mode"),
            &dst,
            Signal::KILL,
        );
        check_accounts(&sync_to(far.as_ref(), &src, &dst).run().expect(0));
        check_no_mark_is_left(&dst);
        let _ = sync_to(far.as_ref(), &src, &dst)
            .arg("--no-mode")
            .run()
            .expect(0);
        assert_eq!(mode(&dst.join("a")), 0o700);
    }
}

#[test]
fn what_one_mover_makes_and_another_finishes_is_open_in_the_end() {
    only_local!("goes over ssh anyway");
    if is_user() {
        return;
    }
    let (_scratch, src, dst) = stage();
    for number in 0..40 {
        put(
            &src.join(format!("many/{number}/below/file")),
            vec![1u8; 256 << 10],
        );
    }
    put(&src.join("large/below/file"), vec![1u8; 100 * MIB]);
    check_accounts(
        &sync_on_hosts("far,far,far", &Far::root().words(), &src, &dst)
            .arg("--no-mode")
            .run()
            .expect(0),
    );
    let closed: Vec<_> = dirs(&dst)
        .into_iter()
        .filter(|name| mode(&dst.join(name)) != 0o755)
        .collect();
    assert!(closed.is_empty(), "{closed:?}");
    check_no_mark_is_left(&dst);
}
