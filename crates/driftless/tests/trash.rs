//! What a mirror deletes is kept: listed, brought back, and removed when it is old or too much. On
//! real file systems, through the real program.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::Far;
use common::is_temp;
use common::mirror::Mirror;
use common::mounted::Mounted;
use driftless_testkit::{
    EVENT_MAX, FsKind, Options, Outcome, Profile, Scratch, assert_equal, build_tree, rsync_oracle,
    wait_slowly_until,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const SIZE_MIB: u64 = 300;
const KEYS: &str = "detect = [\"fanotify\", \"walk\"]\ndelete = true\ntrash = \"30d\"\n";
/// A name that no terminal and no text takes.
const ODD: &[u8] = b"odd\n\xff \x1b[31m\\n";

fn odd() -> &'static OsStr {
    OsStr::from_bytes(ODD)
}

fn trash(mirror: &Mirror) -> PathBuf {
    mirror.replica.join(".driftless-trash")
}

/// A folder for a source. An empty one would be taken for one that is not mounted.
fn source_in(scratch: &Scratch) -> PathBuf {
    let source = scratch.dir("src");
    fs::write(source.join("stays"), "here").expect("written");
    source
}

/// A command about the trash.
fn ask<A: AsRef<OsStr>>(mirror: &Mirror, words: impl IntoIterator<Item = A>) -> Outcome {
    let mut command = mirror.command("trash");
    for word in words {
        command = command.arg(word.as_ref());
    }
    command.run()
}

/// What is there, as `list --json` tells it.
fn listed(mirror: &Mirror) -> Vec<Value> {
    let told = ask(mirror, ["list", "--json"]).expect(0).stdout_text();
    let lines = told.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn paths(mirror: &Mirror) -> Vec<String> {
    let mut paths: Vec<String> = listed(mirror)
        .iter()
        .map(|gone| gone["path"].as_str().expect("text").to_owned())
        .collect();
    paths.sort();
    paths
}

fn check_equal(mirror: &Mirror, context: &str) {
    mirror.barrier();
    let _done = mirror.command("pause").run().expect(0);
    let compared = Options::default();
    assert_equal(&mirror.source, &mirror.replica, &compared, context);
    assert_eq!(
        rsync_oracle(&mirror.source, &mirror.replica),
        "",
        "{context}"
    );
    let verified = common::driftless()
        .arg("verify")
        .arg(&mirror.source)
        .arg(&mirror.replica)
        .run();
    assert_eq!(verified.code(), 0, "{context}: {}", verified.describe());
    let _done = mirror.command("resume").run().expect(0);
}

/// Where holes are is another file system's business.
fn unholed() -> Options {
    Options {
        holes: false,
        ..Options::default()
    }
}

/// A copy with everything, to compare with later.
fn saved(scratch: &Scratch, from: &Path) -> PathBuf {
    let to = scratch.path().join("saved");
    let done = Command::new("cp").arg("-a").arg(from).arg(&to).status();
    assert!(done.expect("cp runs").success());
    to
}

/// Everything that lies below a directory, by its path there.
fn below(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("listed") {
            let entry = entry.expect("listed");
            if entry.file_type().expect("its kind").is_dir() {
                dirs.push(entry.path());
            }
            all.push(entry.path());
        }
    }
    all
}

#[test]
fn a_deleted_tree_is_listed_and_comes_back_as_it_was() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = source_in(&scratch);
    let gone = source.join("above").join(odd());
    fs::create_dir_all(&gone).expect("directories");
    build_tree(&gone, 41, &Profile::small());
    let saved = saved(&scratch, &gone);
    let mirror = Mirror::of(&source, KEYS);
    check_equal(&mirror, "the first copy");
    // At once: while names go one by one, the replica's directory gets the times that these leave.
    fs::rename(&gone, scratch.path().join("moved out")).expect("renamed");
    check_equal(&mirror, "without the tree");
    let mode = fs::metadata(trash(&mirror)).expect("the trash").mode();
    assert_eq!(mode & 0o7777, 0o1700, "it is closed to others");
    let told = ask(&mirror, ["list"]).expect(0).stdout_text();
    assert!(
        !told.contains('\x1b') && told.lines().count() == 1,
        "{told}"
    );
    let entries = below(&saved).len() as u64 + 1;
    let one = listed(&mirror).pop().expect("one");
    assert_eq!(
        (&one["kind"], &one["entries"]),
        (&"dir".into(), &entries.into())
    );
    assert!(one["path_base64"].is_string(), "{one}");

    let path = Path::new("above").join(odd());
    let restored = ask(&mirror, [OsStr::new("restore"), path.as_os_str()]);
    assert_eq!(restored.code(), 0, "{}", restored.describe());
    assert_equal(&saved, &gone, &unholed(), "what came back");
    assert!(
        !source.join(".driftless-trash").exists(),
        "nothing is left in the source"
    );
    check_equal(&mirror, "with what came back");
    assert_eq!(mirror.status()["problems"], 0);

    let again = ask(&mirror, [OsStr::new("restore"), path.as_os_str()]).expect(1);
    assert!(
        again.stderr_text().contains("is there, and stays"),
        "{}",
        again.describe()
    );
    let elsewhere = scratch.dir("elsewhere");
    let words = [
        OsStr::new("restore"),
        path.as_os_str(),
        OsStr::new("--to"),
        elsewhere.as_os_str(),
    ];
    let _done = ask(&mirror, words).expect(0);
    assert_equal(&saved, &elsewhere.join(odd()), &unholed(), "elsewhere");
    let missing = ask(&mirror, ["restore", "stays"]).expect(1);
    assert!(
        missing.stderr_text().contains("is not in the trash"),
        "{}",
        missing.describe()
    );
}

#[test]
fn directory_deleted_file_by_file_comes_back() {
    const FILES: usize = 20;
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = source_in(&scratch);
    let plans = source.join("plans");
    let june = plans.join("june");
    fs::create_dir_all(&june).expect("directories");
    let paths_in = |dir: &Path| -> Vec<PathBuf> {
        (0..FILES)
            .map(|number| dir.join(number.to_string()))
            .collect()
    };
    let files: Vec<PathBuf> = [paths_in(&plans), paths_in(&june)].concat();
    for file in &files {
        fs::write(file, file.as_os_str().as_bytes()).expect("written");
    }
    fs::set_permissions(&june, fs::Permissions::from_mode(0o750)).expect("set");
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    // As `rm -r` does where the mirror is quicker.
    for some in files.chunks(FILES / 2) {
        some.iter()
            .for_each(|file| fs::remove_file(file).expect("removed"));
        mirror.barrier();
    }
    fs::remove_dir(&june).expect("removed");
    mirror.barrier();
    let time = fs::metadata(&plans)
        .expect("there")
        .modified()
        .expect("a time");
    fs::remove_dir(&plans).expect("removed");
    mirror.barrier();
    assert_eq!(paths(&mirror).len(), files.len() + 2);
    let told = ask(&mirror, ["restore", "plans"]).expect(0).stdout_text();
    assert!(told.starts_with("42 entries copied to \"plans\""), "{told}");
    assert!(told.contains("from 42 pieces of "), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    for file in &files {
        assert_eq!(
            fs::read(file).expect("restored"),
            file.as_os_str().as_bytes()
        );
    }
    let mode = fs::metadata(&june).expect("restored").mode();
    assert_eq!(mode & 0o7777, 0o750);
    let restored = fs::metadata(&plans).expect("restored").modified();
    assert_eq!(restored.expect("a time"), time);
    let again = ask(&mirror, ["restore", "plans"]).expect(1).stderr_text();
    assert!(again.contains("is there, and stays"), "{again}");

    // Into a directory that exists goes the newest of each path.
    fs::write(&files[0], "newer").expect("written");
    mirror.barrier();
    fs::remove_file(&files[0]).expect("removed");
    mirror.barrier();
    let told = ask(&mirror, ["restore", "plans", "--json"]).expect(0);
    let told: Value = serde_json::from_str(&told.stdout_text()).expect("JSON");
    let counts =
        ["entries", "pieces", "dates", "stays", "older", "problems"].map(|name| &told[name]);
    assert_eq!(
        counts,
        [1, 1, 1, 39, 1, 0].map(Value::from).each_ref(),
        "{told}"
    );
    assert_eq!(fs::read(&files[0]).expect("restored"), b"newer");
    let date = told["first_date"].as_str().expect("a date");
    let elsewhere = scratch.dir("elsewhere");
    let to = elsewhere.to_str().expect("text");
    let since = ["restore", "plans", "--since", date, "--to", to];
    let _done = ask(&mirror, since).expect(0);
    let newer = elsewhere.join("plans/0");
    assert_eq!(fs::read(newer).expect("restored"), b"newer");
    assert_eq!(fs::read_dir(&elsewhere).expect("listed").count(), 1);
    check_equal(&mirror, "with what came back");
}

#[test]
fn a_name_that_goes_often_is_kept_each_time_and_comes_back_by_its_date() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = source_in(&scratch);
    fs::create_dir(source.join("a")).expect("a directory");
    let mirror = Mirror::of(&source, KEYS);
    let file = source.join("a/b");
    for round in 0..4 {
        fs::write(&file, format!("round {round}")).expect("written");
        mirror.barrier();
        fs::remove_file(&file).expect("removed");
        mirror.barrier();
    }
    // The directory goes as well, which stands there as one that leads to the file.
    fs::remove_dir(source.join("a")).expect("removed");
    mirror.barrier();
    assert_eq!(paths(&mirror), ["a", "a/b", "a/b", "a/b", "a/b"]);
    let dates = listed(&mirror)
        .into_iter()
        .filter(|gone| gone["path"] == "a/b");
    let dates: BTreeSet<String> = dates.map(|gone| gone["date"].to_string()).collect();
    assert_eq!(dates.len(), 4, "{dates:?}");
    let to = scratch.dir("to");
    let mut found = BTreeSet::new();
    for date in &dates {
        let date = date.trim_matches('"');
        let words = [
            "restore",
            "a/b",
            "--from",
            date,
            "--to",
            to.to_str().expect("text"),
        ];
        let _done = ask(&mirror, words).expect(0);
        found.insert(fs::read_to_string(to.join("b")).expect("read"));
        fs::remove_file(to.join("b")).expect("removed");
    }
    let rounds: BTreeSet<String> = (0..4).map(|round| format!("round {round}")).collect();
    assert_eq!(found, rounds);
    let below = ask(&mirror, ["restore", "a/b", "--from", "2000-01-01T000000Z"]).expect(1);
    assert!(
        below.stderr_text().contains("is not in the trash"),
        "{}",
        below.describe()
    );
    let parent = ask(&mirror, ["restore", "a/b"]).expect(1);
    assert!(
        parent.stderr_text().contains("restore that first"),
        "{}",
        parent.describe()
    );
}

#[test]
fn what_another_kind_takes_the_place_of_is_kept() {
    let scratch = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let source = source_in(&scratch);
    for name in ["dir", "dir/in", "link-dir"] {
        fs::create_dir(source.join(name)).expect("a directory");
    }
    fs::write(source.join("dir/in/file"), "deep").expect("written");
    fs::write(source.join("link-dir/file"), "other").expect("written");
    fs::write(source.join("file"), "a file").expect("written");
    fs::write(source.join("first"), "names").expect("written");
    symlink("nowhere", source.join("link")).expect("a link");
    // A walk alone: nothing is told of renames.
    let mirror = Mirror::of(
        &source,
        "delete = true\nmax_delete = \"90%\"\ntrash = \"1d\"\n",
    );
    mirror.barrier();
    for name in ["dir", "link-dir"] {
        fs::remove_dir_all(source.join(name)).expect("removed");
    }
    for name in ["file", "link"] {
        fs::remove_file(source.join(name)).expect("removed");
    }
    fs::write(source.join("dir"), "now a file").expect("written");
    fs::hard_link(source.join("first"), source.join("link-dir")).expect("a link");
    fs::create_dir(source.join("file")).expect("a directory");
    fs::write(source.join("link"), "now a file").expect("written");
    fs::write(source.join("first"), "other names").expect("written");
    let _done = mirror.command("sync-now").arg("--wait").run().expect(0);
    check_equal(&mirror, "of other kinds");
    assert_eq!(
        paths(&mirror),
        ["dir", "file", "link", "link-dir"],
        "content is not kept"
    );
    let to = scratch.dir("to");
    for name in ["dir", "file", "link", "link-dir"] {
        let _done = ask(
            &mirror,
            ["restore", name, "--to", to.to_str().expect("text")],
        )
        .expect(0);
    }
    assert_eq!(fs::read(to.join("dir/in/file")).expect("read"), b"deep");
    assert_eq!(fs::read(to.join("link-dir/file")).expect("read"), b"other");
    assert_eq!(fs::read(to.join("file")).expect("read"), b"a file");
    assert_eq!(
        fs::read_link(to.join("link")).expect("read"),
        Path::new("nowhere")
    );
}

#[test]
fn what_may_not_go_stays_and_what_is_around_it_is_kept() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, replica) = (source_in(&scratch), scratch.dir("replica"));
    for name in ["dir/deep/er", "dir/plain", "mounted/on"] {
        fs::create_dir_all(source.join(name)).expect("directories");
    }
    for name in ["dir/deep/er/goes", "dir/plain/goes", "dir/deep/frozen"] {
        fs::write(source.join(name), name).expect("written");
    }
    let keys = "delete = true\ntrash = \"1d\"\nfilters = [\"- *.mine\"]\n";
    let mirror = Mirror::between(&source, &replica, keys);
    mirror.barrier();
    fs::write(replica.join("dir/deep/er/my.mine"), "protected").expect("written");
    let frozen = replica.join("dir/deep/frozen");
    let flags = |flags: &str| {
        let done = Command::new("chattr").arg(flags).arg(&frozen).status();
        assert!(done.expect("chattr runs").success());
    };
    flags("+i");
    let mounted = Mounted::tmpfs(&replica.join("mounted/on"));
    fs::write(replica.join("mounted/on/other"), "elsewhere").expect("written");
    fs::remove_dir_all(source.join("dir")).expect("removed");
    fs::remove_dir_all(source.join("mounted")).expect("removed");
    let _done = mirror.command("sync-now").run().expect(0);
    let began = Instant::now();
    let told = || mirror.command("problems").run().stdout_text();
    while !(told().contains("dir/deep/frozen") && told().contains("mounted/on")) {
        assert!(began.elapsed() < EVENT_MAX, "{}", told());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(
        fs::read(replica.join("dir/deep/er/my.mine")).expect("stays"),
        b"protected"
    );
    assert_eq!(fs::read(&frozen).expect("stays"), b"dir/deep/frozen");
    assert_eq!(
        fs::read(replica.join("mounted/on/other")).expect("stays"),
        b"elsewhere"
    );
    assert!(!replica.join("dir/plain").exists());
    assert_eq!(paths(&mirror), ["dir/deep/er/goes", "dir/plain"]);
    flags("-i");
    drop(mounted);
}

#[test]
fn an_entry_of_another_file_system_stays_and_is_told() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (source, replica) = (source_in(&scratch), scratch.dir("replica"));
    fs::create_dir(source.join("other")).expect("a directory");
    fs::create_dir(replica.join("other")).expect("a directory");
    let _mounted = Mounted::tmpfs(&replica.join("other"));
    fs::write(source.join("other/file"), "there").expect("written");
    let mirror = Mirror::between(&source, &replica, KEYS);
    mirror.barrier();
    fs::remove_file(source.join("other/file")).expect("removed");
    mirror.wait_for("problems", |problems| problems > 0);
    let told = mirror.command("problems").run().expect(3).stdout_text();
    assert!(
        told.contains("it is on another file system than the root"),
        "{told}"
    );
    assert_eq!(
        fs::read(replica.join("other/file")).expect("stays"),
        b"there"
    );
}

#[test]
fn nothing_that_a_source_does_reaches_what_the_replica_keeps() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = source_in(&scratch);
    fs::write(source.join("lost"), "kept").expect("written");
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    fs::remove_file(source.join("lost")).expect("removed");
    mirror.barrier();
    let before = below(&trash(&mirror));
    let own = source.join(".driftless-trash");
    fs::create_dir(&own).expect("a directory");
    mirror.barrier();
    fs::write(own.join("mine"), "not copied").expect("written");
    mirror.barrier();
    fs::rename(&own, source.join("renamed")).expect("renamed");
    mirror.barrier();
    fs::rename(source.join("renamed"), &own).expect("renamed");
    mirror.barrier();
    fs::remove_dir_all(&own).expect("removed");
    mirror.barrier();
    fs::write(&own, "a file").expect("written");
    mirror.barrier();
    let _done = mirror.command("sync-now").arg("--wait").run().expect(0);
    fs::remove_file(&own).expect("removed");
    symlink("/etc", &own).expect("a link");
    let _done = mirror.command("sync-now").arg("--wait").run().expect(0);
    fs::remove_file(&own).expect("removed");
    check_equal(&mirror, "after all of it");
    let after = below(&trash(&mirror));
    assert!(before.iter().all(|path| after.contains(path)), "{after:?}");
    let lost = after
        .iter()
        .find(|path| path.ends_with("lost"))
        .expect("it is kept");
    assert_eq!(fs::read(lost).expect("read"), b"kept");
}

#[test]
fn a_trash_of_somebody_else_is_not_used_and_nothing_goes() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (source, replica) = (source_in(&scratch), scratch.dir("replica"));
    fs::write(source.join("file"), "here").expect("written");
    let mirror = Mirror::between(&source, &replica, KEYS);
    mirror.barrier();
    fs::create_dir(trash(&mirror)).expect("a directory");
    chown(trash(&mirror), Some(common::USER), None).expect("given");
    fs::remove_file(source.join("file")).expect("removed");
    mirror.wait_for("problems", |problems| problems > 0);
    let told = mirror.command("problems").run().expect(3).stdout_text();
    assert!(told.contains("it belongs to another user"), "{told}");
    fs::remove_dir(trash(&mirror)).expect("removed");
    let elsewhere = scratch.dir("elsewhere");
    symlink(&elsewhere, trash(&mirror)).expect("a link");
    let _done = mirror.command("retry").run().expect(0);
    mirror.wait_for("left", |left| left > 0);
    assert_eq!(fs::read(replica.join("file")).expect("stays"), b"here");
    assert_eq!(fs::read_dir(&elsewhere).expect("listed").count(), 0);
    fs::remove_file(trash(&mirror)).expect("removed");
    let _done = mirror.command("retry").run().expect(0);
    mirror.wait_for("problems", |problems| problems == 0);
    assert_eq!(paths(&mirror), ["file"]);
}

#[test]
fn the_old_goes_and_then_the_oldest_of_what_is_too_much() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = source_in(&scratch);
    let keys = |trash: &str| {
        format!("delete = true\n[trash]\nage = \"7d\"\n{trash}[walk]\nevery = \"never\"\n")
    };
    let mut mirror = Mirror::of(&source, &keys("").replace("7d", "99d"));
    let names = ["ancient", "old", "newer", "newest"];
    for name in names {
        fs::create_dir(source.join(name)).expect("a directory");
        fs::write(source.join(name).join("file"), vec![7; 900 << 10]).expect("written");
        let _done = mirror.command("sync-now").arg("--wait").run().expect(0);
        fs::remove_dir_all(source.join(name)).expect("removed");
        let _done = mirror.command("sync-now").arg("--wait").run().expect(0);
        let dates: Vec<_> = fs::read_dir(trash(&mirror))
            .expect("listed")
            .map(|date| date.expect("listed").path())
            .filter(|date| date.join(name).exists())
            .collect();
        let days = match name {
            "ancient" => 8,
            "old" => 6,
            "newer" => 5,
            _ => 4,
        };
        let moment = format!("{days} days ago");
        let date = Command::new("date")
            .args(["-u", "-d", &moment, "+%Y-%m-%dT%H%M00Z"])
            .output()
            .expect("date runs");
        let date = String::from_utf8(date.stdout).expect("text");
        let older = trash(&mirror).join(date.trim());
        fs::create_dir(&older).expect("a directory");
        fs::rename(dates[0].join(name), older.join(name)).expect("renamed");
    }
    // A folder that is none of ours stays.
    fs::create_dir(trash(&mirror).join("2020")).expect("a directory");
    let victim = scratch.dir("victim");
    fs::write(victim.join("file"), "untouched").expect("written");
    let older = listed(&mirror)[1]["date"]
        .as_str()
        .expect("text")
        .to_owned();
    symlink(&victim, trash(&mirror).join(&older).join("old/link")).expect("a link");
    mirror.kill();
    mirror.change(&keys("bytes = \"2M\"\n"));
    mirror.start();
    let began = Instant::now();
    while paths(&mirror) != ["newer", "newest"] {
        assert!(began.elapsed() < EVENT_MAX, "{:?}", paths(&mirror));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(fs::read(victim.join("file")).expect("stays"), b"untouched");
    let began = Instant::now();
    while mirror.status()["trash"]["entries"] != 4 {
        assert!(began.elapsed() < EVENT_MAX, "{}", mirror.status());
        std::thread::sleep(Duration::from_millis(50));
    }
    let _done = ask(&mirror, ["purge", "--older", "4d12h"]).expect(2);
    let told = ask(&mirror, ["purge", "--older", "108h"])
        .expect(0)
        .stdout_text();
    assert!(told.starts_with("2 entries removed"), "{told}");
    assert_eq!(paths(&mirror), ["newest"]);
    let _done = ask(&mirror, ["purge"]).expect(0);
    assert_eq!(paths(&mirror), ["newest"]);
    assert!(trash(&mirror).join("2020").exists());
}

#[test]
fn killed_at_any_moment_each_deleted_file_is_at_its_place_or_in_the_trash() {
    const FILES: usize = 400;
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = source_in(&scratch);
    let mut mirror = Mirror::of(&source, KEYS);
    for round in 0..4_u64 {
        let dir = source.join(format!("round{round}"));
        for number in 0..FILES {
            let sub = dir.join(format!("{}", number % 7));
            fs::create_dir_all(&sub).expect("directories");
            let name = format!("{round}-{number}");
            fs::write(sub.join(&name), &name).expect("written");
        }
        mirror.barrier();
        for number in 0..FILES {
            let path = dir.join(format!("{}/{round}-{number}", number % 7));
            fs::remove_file(path).expect("removed");
            if number as u64 == 90 * round + 60 {
                mirror.kill();
            }
        }
        check_all_there(&mirror, round, FILES);
        fs::remove_dir_all(&dir).expect("removed");
        mirror.start();
        check_equal(&mirror, &format!("after kill {round}"));
        check_all_there(&mirror, round, FILES);
    }
}

/// Each file of a round is somewhere on the replica, whole.
fn check_all_there(mirror: &Mirror, round: u64, files: usize) {
    let found: BTreeSet<String> = below(&mirror.replica)
        .into_iter()
        .filter(|path| path.is_file())
        .filter(|path| !is_temp(path) && !path.ends_with("stays"))
        .map(|path| {
            let name = path.file_name().expect("a name").to_str().expect("text");
            assert_eq!(fs::read_to_string(&path).expect("read"), name, "whole");
            name.to_owned()
        })
        .collect();
    for number in 0..files {
        let name = format!("{round}-{number}");
        assert!(found.contains(&name), "{name} is lost");
    }
}

#[test]
fn over_ssh_it_is_kept_on_the_other_host_and_comes_back() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = source_in(&scratch);
    fs::create_dir(source.join("dir")).expect("a directory");
    build_tree(&source.join("dir"), 43, &Profile::small());
    fs::write(source.join("was"), "a file").expect("written");
    let saved = saved(&scratch, &source.join("dir"));
    let far = Far::own();
    let mirror = Mirror::far(&source, &far, KEYS);
    mirror.barrier();
    fs::rename(source.join("dir"), scratch.path().join("moved out")).expect("renamed");
    fs::remove_file(source.join("was")).expect("removed");
    fs::create_dir(source.join("was")).expect("a directory");
    check_equal(&mirror, "over ssh");
    assert_eq!(paths(&mirror), ["dir", "was"]);
    let _done = ask(&mirror, ["restore", "dir"]).expect(0);
    assert_equal(
        &saved,
        &source.join("dir"),
        &Options::default(),
        "what came back",
    );
    check_equal(&mirror, "with what came back");
}

fn btrfs<A: AsRef<OsStr>>(words: impl IntoIterator<Item = A>) -> String {
    let done = Command::new("btrfs").args(words).output();
    let done = done.expect("btrfs runs");
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).expect("text")
}

fn is_closed(tree: &Path) -> bool {
    let words = ["property", "get", "-ts"].map(OsStr::new);
    let told = btrfs(
        words
            .into_iter()
            .chain([tree.as_os_str(), OsStr::new("ro")]),
    );
    told.trim() == "ro=true"
}

fn close(tree: &Path, is_closed: bool) {
    let words = ["property", "set", "-ts"].map(OsStr::new);
    let value = ["ro", if is_closed { "true" } else { "false" }].map(OsStr::new);
    let _nothing_is_told = btrfs(words.into_iter().chain([tree.as_os_str()]).chain(value));
}

#[test]
fn after_a_cycle_the_trash_is_purged_and_then_the_replica_is_closed() {
    let scratch = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let (source, replica) = (scratch.path().join("src"), scratch.path().join("replica"));
    for tree in [&source, &replica] {
        let words = ["subvolume", "create"].map(OsStr::new);
        let _nothing_is_told = btrfs(words.into_iter().chain([tree.as_os_str()]));
    }
    fs::write(source.join("stays"), "here").expect("written");
    for name in ["goes", "goes too"] {
        fs::write(source.join(name), "not for ever").expect("written");
    }
    let keys =
        "detect = [\"btrfs\"]\ndelete = true\n[trash]\nage = \"7d\"\n[cycle]\nevery = \"1h\"\n";
    let mirror = Mirror::between(&source, &replica, keys);
    let cycle = || {
        let _done = mirror.command("sync-now").arg("--wait").run().expect(0);
        wait_slowly_until("it is closed", || is_closed(&replica));
    };
    cycle();
    fs::remove_file(source.join("goes")).expect("removed");
    cycle();
    assert_eq!(paths(&mirror), ["goes"]);
    let went_long_ago = || {
        close(&replica, false);
        let dates = fs::read_dir(trash(&mirror)).expect("listed");
        let dates: Vec<_> = dates.map(|date| date.expect("listed").path()).collect();
        fs::rename(&dates[0], trash(&mirror).join("2020-01-01T000000Z")).expect("renamed");
        close(&replica, true);
    };
    went_long_ago();
    assert_eq!(paths(&mirror), ["goes"]);
    cycle();
    wait_slowly_until("it is purged", || paths(&mirror).is_empty());
    wait_slowly_until("it is told", || mirror.status()["trash"]["entries"] == 0);
    wait_slowly_until("it is closed", || is_closed(&replica));
    // By hand, too.
    fs::remove_file(source.join("goes too")).expect("removed");
    cycle();
    went_long_ago();
    let _done = ask(&mirror, ["purge", "--older", "30d"]).expect(0);
    assert!(paths(&mirror).is_empty());
    assert!(is_closed(&replica));
}

#[test]
fn full_target_is_no_success() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = source_in(&scratch);
    fs::create_dir_all(source.join("plans/june")).expect("directories");
    let files = ["plans/one", "plans/june/two", "plans/june/three"];
    for file in files {
        fs::write(source.join(file), vec![7; 2 << 20]).expect("written");
    }
    let mut mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    fs::remove_dir_all(source.join("plans")).expect("removed");
    mirror.barrier();
    mirror.stop();
    let kept = paths(&mirror);
    let to = scratch.path().join("full");
    let _full = Mounted::with(["-t", "tmpfs", "-o", "size=3m", "driftless-full"], &to);
    for json in [false, true] {
        let words = ["restore", "plans", "--to", to.to_str().expect("text")];
        let words = words.into_iter().chain(json.then_some("--json"));
        let failed = ask(&mirror, words).expect(3);
        assert_eq!(failed.stdout_text(), "", "it is no success");
        let told = failed.stderr_text();
        let named = files.iter().filter(|file| told.contains(**file)).count();
        assert!(named >= 2 && told.contains("no space"), "{told}");
        let full = format!("on \"{}\": no space", to.display());
        assert!(told.contains(&full) && !told.contains("replica"), "{told}");
        assert_eq!(fs::read_dir(&to).expect("listed").count(), 0);
    }
    assert_eq!(paths(&mirror), kept, "the trash keeps all");
    let _restored = ask(&mirror, ["restore", "plans"]).expect(0);
    for file in files {
        assert_eq!(
            fs::metadata(source.join(file)).expect("there").len(),
            2 << 20
        );
    }
}

#[test]
fn restore_refuses_other_file_systems_at_once() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, elsewhere) = (source_in(&scratch), scratch.dir("elsewhere"));
    fs::create_dir_all(source.join("plans/june")).expect("directories");
    for file in ["plans/one", "plans/june/two"] {
        fs::write(source.join(file), file).expect("written");
    }
    let mut mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    for file in ["plans/one", "plans/june/two"] {
        fs::remove_file(source.join(file)).expect("removed");
    }
    mirror.barrier();
    mirror.stop();
    let june = source.join("plans/june");
    for is_bound in [false, true] {
        let mounted = match is_bound {
            true => Mounted::bind(&elsewhere, &june),
            false => Mounted::tmpfs(&june),
        };
        for path in ["plans", "plans/june", "plans/june/two"] {
            let refused = ask(&mirror, ["restore", path]).expect(13).stderr_text();
            assert!(
                refused.contains("another file system") && refused.contains("--to"),
                "{path}: {refused}"
            );
            assert!(!source.join("plans/one").exists(), "{path}");
            assert_eq!(fs::read_dir(&june).expect("listed").count(), 0);
        }
        assert!(!source.join(".driftless-trash").exists());
        drop(mounted);
    }
    let _restored = ask(&mirror, ["restore", "plans"]).expect(0);
    assert_eq!(
        fs::read(june.join("two")).expect("restored"),
        b"plans/june/two"
    );
}

/// A mirror that has ended, with `plans/one` in its trash.
fn with_deleted_plans(scratch: &Scratch) -> Mirror {
    let source = source_in(scratch);
    fs::create_dir(source.join("plans")).expect("a directory");
    fs::write(source.join("plans/one"), "one").expect("written");
    let mut mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    fs::remove_dir_all(source.join("plans")).expect("removed");
    mirror.barrier();
    mirror.stop();
    mirror
}

#[test]
fn missing_target_is_not_called_the_replica() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mirror = with_deleted_plans(&scratch);
    let file = scratch.path().join("file");
    fs::write(&file, "file").expect("written");
    for (to, why) in [
        (scratch.path().join("nodir"), "no such directory"),
        (scratch.path().join("nodir/below"), "no such directory"),
        (file, "not a directory"),
    ] {
        let words = ["restore", "plans", "--to", to.to_str().expect("text")];
        let told = ask(&mirror, words).expect(1).stderr_text();
        assert!(told.contains(why) && !told.contains("replica"), "{told}");
        assert!(told.contains(&*to.to_string_lossy()), "{told}");
    }
    fs::remove_dir_all(&mirror.source).expect("removed");
    let told = ask(&mirror, ["restore", "plans"]).expect(1).stderr_text();
    assert!(told.contains("no such directory"), "{told}");
    assert!(!told.contains("replica's path"), "{told}");
}

#[test]
fn each_tree_without_the_path_is_told() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mirror = with_deleted_plans(&scratch);
    let told = ask(&mirror, ["restore", "no/such"]).expect(1).stderr_text();
    assert_eq!(told.matches("is not in the trash").count(), 2, "{told}");
    assert!(told.contains("trash; ") && !told.contains("\\n"), "{told}");
}

#[test]
fn restore_into_trash_or_replica_is_refused() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mirror = with_deleted_plans(&scratch);
    let replica = mirror.replica.clone();
    fs::create_dir(replica.join("below")).expect("a directory");
    let link = scratch.path().join("link");
    symlink(&replica, &link).expect("a link");
    let date = listed(&mirror)[0]["date"]
        .as_str()
        .expect("text")
        .to_owned();
    let of_source = mirror.source.join(".driftless-trash/folder");
    fs::create_dir_all(&of_source).expect("directories");
    let before = below(&replica);
    for (to, tree) in [
        (replica.clone(), "in the replica"),
        (replica.join("below"), "in the replica"),
        (link, "in the replica"),
        (trash(&mirror), "in a trash"),
        (trash(&mirror).join(date), "in a trash"),
        (of_source.clone(), "in a trash"),
    ] {
        let words = ["restore", "plans", "--to", to.to_str().expect("text")];
        let told = ask(&mirror, words).expect(13).stderr_text();
        assert!(told.contains(tree), "{told}");
    }
    assert_eq!(below(&replica), before);
    assert!(below(&of_source).is_empty());
    let _restored = ask(&mirror, ["restore", "plans"]).expect(0);
    let _over = mirror.command("failover").arg("--yes").run().expect(0);
    let words = ["restore", "plans", "--to", replica.to_str().expect("text")];
    let _restored = ask(&mirror, words).expect(0);
    assert!(replica.join("plans/one").exists());
}

#[test]
fn joined_directory_gets_no_wider_acl_or_owner() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = source_in(&scratch);
    let mirror = Mirror::of(&source, KEYS);
    let delete = |dir: &Path, file: &str, prepare: &dyn Fn(&Path)| {
        fs::create_dir(dir).expect("a directory");
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("set");
        prepare(dir);
        fs::write(dir.join(file), file).expect("written");
        mirror.barrier();
        fs::rename(dir, scratch.path().join(file)).expect("moved out");
        mirror.barrier();
    };
    let (listed, given) = (source.join("listed"), source.join("given"));
    delete(&listed, "first", &|_| {});
    delete(&listed, "second", &|dir| {
        let acl = ["-m", "u:1234:rwx,d:u:1234:rwx"];
        let set = Command::new("setfacl").args(acl).arg(dir).status();
        assert!(set.expect("setfacl runs").success());
    });
    delete(&given, "third", &|_| {});
    delete(&given, "fourth", &|dir| {
        chown(dir, Some(1234), Some(1234)).expect("given")
    });
    for (dir, files) in [
        (&listed, ["first", "second"]),
        (&given, ["third", "fourth"]),
    ] {
        let name = dir.file_name().expect("a name");
        let _restored = ask(&mirror, [OsStr::new("restore"), name]).expect(0);
        let found = fs::metadata(dir).expect("restored");
        assert_eq!((found.uid(), found.mode() & 0o7777), (0, 0o700), "{dir:?}");
        let acl = Command::new("getfacl").args(["-cp"]).arg(dir).output();
        let acl = String::from_utf8(acl.expect("getfacl runs").stdout).expect("text");
        assert!(!acl.contains("1234"), "{acl}");
        assert!(files.iter().all(|file| dir.join(file).exists()));
    }
}

#[test]
fn relative_path_restores_as_the_absolute_one() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = source_in(&scratch);
    fs::write(source.join("gone"), "gone").expect("written");
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    fs::remove_file(source.join("gone")).expect("removed");
    mirror.barrier();
    let absolute = source.join("gone");
    let to = scratch.dir("to");
    for path in [Path::new("gone"), Path::new("./gone"), &absolute] {
        let words = [
            OsStr::new("restore"),
            path.as_os_str(),
            OsStr::new("--to"),
            to.as_os_str(),
        ];
        let _restored = ask(&mirror, words).expect(0);
        fs::remove_file(to.join("gone")).expect("restored");
    }
    for path in ["../gone", "/elsewhere/gone", "."] {
        let refused = ask(&mirror, ["restore", path]).expect(2).stderr_text();
        assert!(refused.contains("name an entry below it"), "{refused}");
    }
}

#[test]
fn nothing_is_restored_beneath_a_mount_point() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let [data, inner, elsewhere] = ["data", "inner", "elsewhere"].map(|name| scratch.dir(name));
    let source = scratch.dir("src");
    for file in ["stays", "gone"] {
        fs::write(data.join(file), file).expect("written");
        fs::write(inner.join(file), file).expect("written");
    }
    fs::create_dir_all(data.join("up/big")).expect("directories");
    let mounted = Mounted::bind(&data, &source);
    let disk = Mounted::bind(&inner, &source.join("up/big"));
    let mut mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    fs::remove_file(source.join("gone")).expect("removed");
    mirror.barrier();
    mirror.stop();
    drop(disk);
    for path in ["up/big/gone", "up"] {
        let refused = ask(&mirror, ["restore", path]).expect(13).stderr_text();
        assert!(
            refused.contains("the file system at up/big is not mounted"),
            "{refused}"
        );
    }
    drop(mounted);
    let refused = ask(&mirror, ["restore", "gone"]).expect(13).stderr_text();
    assert!(refused.contains("is its file system mounted"), "{refused}");
    assert!(!source.join("gone").exists());
    let to = elsewhere.to_str().expect("text");
    let _restored = ask(&mirror, ["restore", "gone", "--to", to]).expect(0);
    assert!(elsewhere.join("gone").exists());
}
