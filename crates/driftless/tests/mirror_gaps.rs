//! What a mirror compares where it may have missed changes: after an end, and when the kernel's
//! queue was full. Real file systems whose times are old enough to say something; after each gap
//! both judges find nothing, and where times say nothing, all is compared.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mirror::Mirror;
use driftless_testkit::{EVENT_MAX, FsKind, Options, Scratch, assert_equal, rsync_oracle};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

const SIZE_MIB: u64 = 600;
const DIRS: u64 = 200;
const FILES: u64 = 20;
/// A gap begins ten seconds earlier than is known.
const OLD: Duration = Duration::from_secs(12);
/// An unfinished entry's name.
const UNFINISHED: &str = ".driftless-tmp-0123456789abcdef0123456789abcdef";
const LIMIT: Duration = EVENT_MAX;
const KEPT: &str = "SELECT CAST(position AS TEXT) FROM cursors WHERE detector = 'fanotify'";
const KEYS: &str = "detect = [\"fanotify\", \"walk\"]\ndelete = true\n";

/// Names that are bytes. None is of a file with several: such names are not known after a start.
const ODD: [&[u8]; 4] = [b"a\xff\xfe", b"line\nbreak", b"-- *", b"\\x41"];

fn odd(source: &Path, name: &[u8]) -> PathBuf {
    source.join("top0/d0").join(OsStr::from_bytes(name))
}

/// A tree that has been equal for long enough.
struct Calm {
    // It ends before its source goes.
    mirror: Mirror,
    scratch: Scratch,
}

impl Calm {
    fn on(kind: FsKind, keys: &str) -> Calm {
        let scratch = Scratch::new(kind, SIZE_MIB);
        let source = scratch.dir("src");
        for dir in 0..DIRS {
            let dir = source.join(format!("top{}/d{dir}", dir % 4));
            fs::create_dir_all(&dir).expect("a directory");
            for file in 0..FILES {
                fs::write(dir.join(format!("f{file}")), b"content").expect("a file");
            }
        }
        for name in ODD {
            fs::write(odd(&source, name), b"content").expect("a file");
        }
        let mirror = Mirror::of(&source, keys);
        mirror.barrier();
        let calm = Calm { scratch, mirror };
        calm.grow_old();
        calm
    }

    /// What has changed so far is old, and that it was heard of is kept.
    fn grow_old(&self) {
        std::thread::sleep(OLD);
        self.wait_until_kept();
    }

    fn wait_until_kept(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.expect("after 1970").as_secs();
        let began = Instant::now();
        while self.kept_until().is_none_or(|until| until < now) {
            assert!(began.elapsed() < LIMIT, "{}", self.mirror.rows(KEPT));
            // It has what is heard of now told.
            self.mirror.barrier();
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn kept_until(&self) -> Option<u64> {
        let kept: Value = serde_json::from_str(&self.mirror.rows(KEPT)).ok()?;
        kept["heard"]["until"]["sec"].as_u64()
    }

    /// Ends it, has something happen, and begins it again.
    fn down(&mut self, meanwhile: impl FnOnce(&Path)) -> Value {
        self.mirror.kill();
        meanwhile(&self.mirror.source.clone());
        self.mirror.start();
        self.mirror.barrier();
        self.mirror.status()
    }

    /// A file of xfs shows its holes only when its blocks were assigned.
    fn check_equal(&self, kind: FsKind) {
        let compared = Options {
            holes: kind != FsKind::Xfs,
            ..Options::default()
        };
        let (source, replica) = (&self.mirror.source, &self.mirror.replica);
        self.mirror.barrier();
        let _done = self.mirror.command("pause").run().expect(0);
        assert_equal(source, replica, &compared, &format!("{kind:?}"));
        assert_eq!(rsync_oracle(source, replica), "", "{kind:?}");
        let _done = self.mirror.command("resume").run().expect(0);
    }

    fn sql(&self, statement: &str) {
        let done = Command::new("sqlite3")
            .arg(self.mirror.state_file())
            .arg(statement)
            .status();
        assert!(done.expect("sqlite3 runs").success());
    }
}

fn number(status: &Value, name: &str) -> u64 {
    status[name].as_u64().expect("a number")
}

fn check_narrowed(status: &Value, seen_max: u64) {
    assert_eq!(number(status, "walks"), 0, "{status}");
    assert_eq!(number(status, "narrowed"), 1, "{status}");
    assert!(number(status, "narrowed_seen") <= seen_max, "{status}");
}

/// Puts a file in the place of another one: it has the same size and modification time.
fn replace_unseen(path: &Path) {
    let made = fs::metadata(path).and_then(|meta| meta.modified());
    let before = fs::read(path).expect("a file");
    let beside = path.with_extension("beside");
    fs::write(&beside, before.to_ascii_uppercase()).expect("a file");
    let file = fs::File::options().write(true).open(&beside);
    let set = file.and_then(|file| file.set_modified(made.expect("a time")));
    set.expect("set");
    fs::rename(beside, path).expect("renamed");
    assert_ne!(fs::read(path).expect("a file"), before);
}

/// Everything that has a place in one directory of many, and a rename of another.
fn churn(source: &Path) {
    for name in &ODD[1..] {
        fs::write(odd(source, name), b"something else").expect("a file");
    }
    fs::rename(odd(source, ODD[0]), odd(source, b" \\new\x80")).expect("renamed");
    fs::write(source.join("top1/d1/f3"), b"changed").expect("a file");
    replace_unseen(&source.join("top1/d1/f6"));
    fs::remove_file(source.join("top1/d1/f4")).expect("removed");
    fs::create_dir_all(source.join("top1/d1/new/deep")).expect("a directory");
    fs::write(source.join("top1/d1/new/deep/f"), b"new").expect("a file");
    fs::rename(source.join("top2/d2"), source.join("top1/d1/d2")).expect("renamed");
    fs::rename(source.join("top3/d3/f1"), source.join("top3/d7/moved")).expect("renamed");
}

fn check_down(kind: FsKind) {
    let mut calm = Calm::on(kind, KEYS);
    // It was cut off while it copied a file, and nothing else has changed in the directory.
    let unfinished = calm.mirror.replica.join("top2/d6").join(UNFINISHED);
    let status = calm.down(|source| {
        churn(source);
        fs::write(source.join("top2/d6/f1"), b"changed").expect("a file");
        fs::write(&unfinished, b"half").expect("a file");
    });
    assert!(!unfinished.exists());
    // Four directories with their parents, and what was moved: not the other 190.
    let seen_max = if kind == FsKind::Xfs { u64::MAX } else { 1500 };
    check_narrowed(&status, seen_max);
    calm.check_equal(kind);
    // Nothing has changed, and nothing is looked at but the root.
    calm.grow_old();
    let status = calm.down(|_| {});
    check_narrowed(&status, 2);
    calm.check_equal(kind);
}

#[test]
fn what_changed_while_it_was_down_is_found_without_comparing_all_on_ext4() {
    check_down(FsKind::Ext4);
}

#[test]
fn what_changed_while_it_was_down_is_found_without_comparing_all_on_xfs() {
    check_down(FsKind::Xfs);
}

#[test]
fn what_changed_while_it_was_down_is_found_without_comparing_all_on_btrfs() {
    check_down(FsKind::Btrfs);
}

#[test]
fn what_changed_while_it_was_down_is_found_without_comparing_all_on_tmpfs() {
    check_down(FsKind::Tmpfs);
}

#[test]
fn all_is_compared_where_times_cannot_be_trusted() {
    let mut calm = Calm::on(FsKind::Ext4, KEYS);
    let is_whole = |status: &Value| {
        let counts = ["walks", "narrowed"].map(|name| number(status, name));
        assert_eq!(counts, [1, 0], "{status}");
    };
    for (number, statement) in [
        // Another boot, a clock that has been set back, and nothing at all.
        "UPDATE cursors SET position = CAST(replace(CAST(position AS TEXT), '\"boot\":\"', '\"boot\":\"x') AS BLOB)",
        "UPDATE cursors SET position = CAST(replace(CAST(position AS TEXT), '\"began\":', '\"began\":9') AS BLOB)",
        "DELETE FROM cursors",
    ]
    .into_iter()
    .enumerate()
    {
        calm.wait_until_kept();
        calm.mirror.kill();
        calm.sql(statement);
        let replaced = format!("top0/d4/f{number}");
        replace_unseen(&calm.mirror.source.join(&replaced));
        calm.mirror.start();
        calm.mirror.barrier();
        is_whole(&calm.mirror.status());
        let copy = fs::read(calm.mirror.replica.join(replaced));
        assert_eq!(copy.expect("it is there"), b"CONTENT");
    }
    calm.wait_until_kept();
    // The job takes other things than before.
    calm.mirror.kill();
    calm.mirror.change(&format!("{KEYS}filters = [\"- f1\"]\n"));
    calm.mirror.start();
    calm.mirror.barrier();
    is_whole(&calm.mirror.status());
    calm.mirror.change(KEYS);
    calm.wait_until_kept();
    // The replica is another one.
    let aside = calm.scratch.path().join("aside");
    let status = calm.down(|_| {});
    is_whole(&status);
    calm.wait_until_kept();
    let replica = calm.mirror.replica.clone();
    calm.mirror.kill();
    let copied = Command::new("cp")
        .arg("-a")
        .args([&replica, &aside])
        .status();
    assert!(copied.expect("cp runs").success());
    fs::remove_dir_all(&replica).expect("removed");
    let copied = Command::new("cp")
        .arg("-a")
        .args([&aside, &replica])
        .status();
    assert!(copied.expect("cp runs").success());
    fs::remove_dir_all(replica.join("top1/d1")).expect("removed");
    calm.mirror.start();
    is_whole(&{
        calm.mirror.barrier();
        calm.mirror.status()
    });
    calm.check_equal(FsKind::Ext4);
}

#[test]
fn what_the_kernel_dropped_is_looked_for_where_something_has_changed() {
    let keys = format!("{KEYS}[fanotify]\nunlimited = false\n");
    let calm = Calm::on(FsKind::Ext4, &keys);
    calm.mirror.freeze();
    for file in 0..20_000 {
        let path = calm.mirror.source.join(format!("top1/d1/many{file}"));
        fs::write(path, b"content").expect("a file");
    }
    churn(&calm.mirror.source);
    calm.mirror.thaw();
    calm.check_equal(FsKind::Ext4);
    let status = calm.mirror.status();
    assert!(number(&status, "overflows") > 0, "{status}");
    assert!(number(&status, "narrowed") > 0, "{status}");
    assert_eq!(number(&status, "walks"), 1, "{status}");
}
