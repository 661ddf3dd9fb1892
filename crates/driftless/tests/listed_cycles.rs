//! Replicas that follow snapshots of GPFS and CephFS, which tell which directories have changed and
//! not how: after each cycle the replica is the snapshot.
//!
//! Neither file system is here. For GPFS there are programs of the names of its own, which make
//! snapshots with btrfs and list what differs by the numbers and times of the entries; for CephFS
//! there is a file system with its `.snap` and its sums. `DRIFTLESS_SEED` sets the seed.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mirror::Mirror;
use driftless_testkit::fuse::{Fuse, Mood, Op};
use driftless_testkit::{
    EVENT_MAX, FsKind, Options, Profile, Scratch, assert_equal, build_tree, mutate, rsync_oracle,
    write_program,
};
use fastrand::Rng;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SIZE_MIB: u64 = 600;
const ROUNDS: u64 = 8;
const LIMIT: Duration = EVENT_MAX;

fn number(name: &str, otherwise: u64) -> u64 {
    let asked = std::env::var(name).ok();
    asked.map_or(otherwise, |text| text.parse().expect("a number"))
}

fn subvolume(scratch: &Scratch, name: &str) -> PathBuf {
    let path = scratch.path().join(name);
    let mut command = Command::new("btrfs");
    command.args(["subvolume", "create"]).arg(&path);
    let status = command.stdout(Stdio::null()).status().expect("btrfs");
    assert!(status.success());
    path
}

/// The snapshot that the mirror has read last, when it does nothing any more.
fn snapshot(mirror: &Mirror) -> String {
    let began = Instant::now();
    loop {
        let status = mirror.status();
        if status["cycle"]["stage"] == "idle" && status["left"] == 0 {
            let name = status["cycle"]["snapshot"].as_str();
            return name.expect("a name").to_owned();
        }
        assert!(began.elapsed() < LIMIT, "{status}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn directories(live: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![live.to_owned()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).expect("list") {
            let entry = entry.expect("entry");
            if entry.file_type().expect("kind").is_dir() {
                left.push(entry.path());
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// Moves a directory into another one or into a new one, into the place of another, or makes a new
/// one where it stood.
fn move_directory(live: &Path, rng: &mut Rng) {
    let all = directories(live);
    let (Some(one), Some(other)) = (rng.choice(&all), rng.choice(&all)) else {
        return;
    };
    let into = other.join(format!("moved-{}", rng.u16(..)));
    let is_apart = !one.starts_with(other) && !other.starts_with(one);
    match rng.u8(..4) {
        0 => drop(fs::rename(one, into)),
        1 if is_apart => {
            let aside = live.join("aside");
            fs::rename(one, &aside).expect("out of the way");
            fs::rename(other, one).expect("into its place");
            fs::rename(&aside, other).expect("into the other's");
        }
        2 if is_apart && fs::create_dir(&into).is_ok() => {
            fs::rename(one, into.join("deeper\nstill")).expect("into a new one");
        }
        _ => {
            if fs::rename(one, into).is_ok() && fs::create_dir(one).is_ok() {
                fs::write(one.join("new"), b"new").expect("in it");
            }
        }
    }
}

fn churn(live: &Path, rng: &mut Rng) {
    for _ in 0..3 {
        mutate(live, rng.u64(..), 15);
        for _ in 0..4 {
            move_directory(live, rng);
        }
    }
}

fn check_equal(source: &Path, replica: &Path, context: &str) {
    assert_equal(source, replica, &Options::default(), context);
    assert_eq!(rsync_oracle(source, replica), "", "{context}");
}

const GPFS: &str = "#!/bin/sh
set -eu
ids=ROOT.ids
head='mmlssnapshot::HEADER:version:reserved:reserved:filesystemName:directory:snapID:status:created:quotas:data:metadata:fileset:snapType:'
expect() { [ \"$1\" = \"$2\" ] || { echo \"${0##*/}: $1, not $2\" >&2; exit 9; }; }
name=${0##*/}
case $name in
mmlssnapshot)
    expect \"$*\" 'fs0 -Y -j prod'
    echo \"$head\"
    for one in ROOT/.snapshots/*; do
        [ ! -e \"$one\" ] || printf 'mmlssnapshot::0:1:::fs0:%s:%s:Valid:now::::prod::\\n' \"${one##*/}\" \"$(cat \"$ids/${one##*/}\")\"
    done ;;
mmcrsnapshot)
    expect \"$1 $3 $4\" 'fs0 -j prod'
    mkdir -p \"$ids\"
    echo $(($(ls \"$ids\" | wc -l) + 10)) >\"$ids/$2\"
    btrfs -q subvolume snapshot -r ROOT \"ROOT/.snapshots/$2\" >/dev/null ;;
mmdelsnapshot)
    expect \"$1 $3 $4\" 'fs0 -j prod'
    btrfs -q subvolume delete \"ROOT/.snapshots/$2\" >/dev/null ;;
mmapplypolicy)
    expect \"$2 $4 $6 $7 $8\" '-P -M -I defer -f'
    grep -q 'MODIFICATION_SNAPID >= older' \"$3\"
    grep -q \"ESCAPE '%/'\" \"$3\"
    older=$(grep -lx \"${5#older=}\" \"$ids\"/*)
    OLDER=\"ROOT/.snapshots/${older##*/}\" NEWER=\"$1\" OUT=\"$9.list.changed\" THIS --exact --ignored scan_for_a_stand_in >&2
    count=$(wc -l <\"$9.list.changed\")
    [ ! -e ROOT.broken ] || sed -i '$d' \"$9.list.changed\"
    echo '[I] Summary of Rule Applicability and File Choices:'
    echo ' Rule#      Hit_Cnt          KB_Hit          Chosen       KB_Chosen          KB_Ill     Rule'
    echo \"     0   $count  0  $count  0  0     RULE 'differs' LIST 'changed' DIRECTORIES_PLUS\"
    echo '[I] Filesystem objects with no applicable rules: 7.' ;;
esac
";

/// An entry as the policy engine lists it: its number, what tells whether it has changed, its path.
fn listed(root: &Path) -> Vec<(u64, String, PathBuf)> {
    let (mut found, mut left) = (Vec::new(), vec![root.to_owned()]);
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).expect("there");
        let times = (meta.ctime(), meta.ctime_nsec(), meta.mtime());
        let state = format!("{:?}", (times, meta.nlink(), meta.size(), meta.mode()));
        if meta.is_dir() {
            let entries = fs::read_dir(&path).expect("listed");
            left.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
        found.push((meta.ino(), state, path));
    }
    found
}

fn percent(path: &Path) -> String {
    let mut escaped = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                escaped.push(*byte as char)
            }
            _ => write!(escaped, "%{byte:02X}").expect("text"),
        }
    }
    escaped
}

#[test]
#[ignore = "a part of the stand-ins"]
fn scan_for_a_stand_in() {
    let value = |name: &str| std::env::var(name).expect(name);
    let older = listed(Path::new(&value("OLDER"))).into_iter();
    let older: HashMap<u64, String> = older.map(|(inode, state, _)| (inode, state)).collect();
    let mut text = String::new();
    for (inode, state, path) in listed(Path::new(&value("NEWER"))) {
        if older.get(&inode) != Some(&state) {
            let is_dir = fs::symlink_metadata(&path).expect("there").is_dir();
            let mode = if is_dir { "drwxr-xr-x" } else { "-rw-r--r--" };
            writeln!(text, "{inode} 7 1  {mode} -- {}", percent(&path)).expect("text");
        }
    }
    fs::write(value("OUT"), text).expect("a file");
}

/// A fileset with the programs that tell of it.
struct Gpfs {
    // Dropped in this order.
    bound: Bound,
    source: PathBuf,
    programs: PathBuf,
    scratch: Scratch,
}

impl Gpfs {
    fn new(seed: u64) -> Gpfs {
        let scratch = Scratch::new(FsKind::Btrfs, SIZE_MIB);
        let source = subvolume(&scratch, "source");
        // As on GPFS, the folder of the snapshots is not seen in them.
        let (snapshots, hidden) = (scratch.dir("snapshots"), source.join(".snapshots"));
        fs::create_dir(&hidden).expect("a directory");
        let data = source.join("data");
        fs::create_dir(&data).expect("a directory");
        build_tree(&data, seed, &Profile::small());
        let programs = scratch.dir("programs");
        let this = std::env::current_exe().expect("this test");
        let text = GPFS.replace("ROOT", source.to_str().expect("text"));
        let text = text.replace("THIS", this.to_str().expect("text"));
        for name in [
            "mmlssnapshot",
            "mmcrsnapshot",
            "mmdelsnapshot",
            "mmapplypolicy",
        ] {
            let path = programs.join(name);
            write_program(&path, &text);
        }
        mount_bind(&snapshots, &hidden).expect("bound");
        Gpfs {
            bound: Bound(hidden),
            source,
            programs,
            scratch,
        }
    }

    fn mirror(&self) -> Mirror {
        let keys = "detect = [\"gpfs\"]\ndelete = true\n[cycle]\nkeep = 2\n[gpfs]\ndevice = \"fs0\"\nfileset = \"prod\"\n";
        let replica = self.scratch.path().join("replica");
        Mirror::with_programs(&self.source, &replica, keys, Some(&self.programs))
    }

    fn check(&self, mirror: &Mirror, context: &str) {
        let newest = self.bound.0.join(snapshot(mirror));
        check_equal(&newest, &mirror.replica, context);
    }
}

/// What is mounted there goes with the value.
struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        let _at_the_end = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn after_each_cycle_the_replica_is_the_snapshot_of_gpfs() {
    let seed = number("DRIFTLESS_SEED", 71);
    let gpfs = Gpfs::new(seed);
    let mirror = gpfs.mirror();
    let mut rng = Rng::with_seed(seed);
    for round in 0..number("DRIFTLESS_SEEDS", ROUNDS) {
        let context = format!("round {round}, DRIFTLESS_SEED={seed}");
        mirror.barrier();
        gpfs.check(&mirror, &context);
        churn(&gpfs.source.join("data"), &mut rng);
    }
    let status = mirror.status();
    assert_eq!(status["walks"], 1, "only the first cycle: {status}");
    let kept = fs::read_dir(&gpfs.bound.0).expect("listed").count();
    assert_eq!(kept, 2);
    // Of a list that is too short nothing is believed.
    fs::write(gpfs.source.with_extension("broken"), "").expect("a file");
    mirror.barrier();
    gpfs.check(&mirror, "with a list that was cut off");
    assert_eq!(mirror.status()["walks"], 2, "{}", mirror.status());
}

#[test]
fn killed_at_any_moment_a_mirror_of_gpfs_goes_on_with_what_was_left() {
    let seed = number("DRIFTLESS_SEED", 81);
    let gpfs = Gpfs::new(seed);
    let mut mirror = gpfs.mirror();
    let mut rng = Rng::with_seed(seed);
    for round in 0..number("DRIFTLESS_SEEDS", 6) {
        churn(&gpfs.source.join("data"), &mut rng);
        let _begun = mirror.command("sync-now").run();
        std::thread::sleep(Duration::from_millis(rng.u64(..600)));
        mirror.kill();
        mirror.start();
        if round % 2 == 1 {
            mirror.barrier();
            gpfs.check(&mirror, &format!("round {round}, DRIFTLESS_SEED={seed}"));
        }
    }
}

#[test]
fn a_renamed_directory_of_gpfs_is_renamed() {
    let gpfs = Gpfs::new(3);
    let (source, mirror) = (&gpfs.source, gpfs.mirror());
    fs::create_dir_all(source.join("a/deep")).expect("directories");
    for number in 0..200 {
        fs::write(source.join(format!("a/deep/{number}")), "content").expect("a file");
    }
    mirror.barrier();
    let _first = snapshot(&mirror);
    let copied = mirror.status()["bytes_copied"].as_u64().expect("a number");
    fs::create_dir_all(source.join("new/place")).expect("directories");
    fs::rename(source.join("a/deep"), source.join("new/place/deeper")).expect("renamed");
    fs::rename(source.join("a"), source.join("b")).expect("renamed");
    fs::write(source.join("new/place/deeper/7"), "another").expect("a file");
    mirror.barrier();
    gpfs.check(&mirror, "renamed");
    let now = mirror.status()["bytes_copied"].as_u64().expect("a number");
    assert_eq!(now - copied, 7, "what was written alone");
}

#[test]
fn what_is_not_on_gpfs_or_cephfs_is_refused_with_what_to_do() {
    let memory = Scratch::new(FsKind::Tmpfs, 64);
    for (detect, why) in [("gpfs", "gpfs.device"), ("cephfs", "is not on CephFS")] {
        let keys = format!("detect = [\"{detect}\"]\n");
        let refused = Mirror::refused(memory.path(), &keys).stderr_text();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn after_each_cycle_the_replica_is_the_snapshot_of_cephfs() {
    let seed = number("DRIFTLESS_SEED", 91);
    let scratch = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let (backing, snapshots) = (subvolume(&scratch, "backing"), scratch.dir("snapshots"));
    build_tree(&backing, seed, &Profile::small());
    let mood = Mood {
        ceph: Some(snapshots.clone()),
        ..Mood::healthy()
    };
    let ceph = Fuse::over(&backing, mood);
    let replica = scratch.path().join("replica");
    let keys = "detect = [\"cephfs\"]\ndelete = true\n[cycle]\nkeep = 2\n";
    let mut mirror = Mirror::between(ceph.path(), &replica, keys);
    let mut rng = Rng::with_seed(seed);
    for round in 0..number("DRIFTLESS_SEEDS", ROUNDS) {
        let context = format!("round {round}, DRIFTLESS_SEED={seed}");
        mirror.barrier();
        check_equal(&snapshots.join(snapshot(&mirror)), &replica, &context);
        churn(&backing, &mut rng);
        if round == 3 {
            let _begun = mirror.command("sync-now").run();
            std::thread::sleep(Duration::from_millis(rng.u64(..600)));
            mirror.kill();
            mirror.start();
        }
    }
    assert!(fs::read_dir(&snapshots).expect("listed").count() <= 3);
    // The last changes, and then none: nothing below the root is listed.
    mirror.barrier();
    let _newest = snapshot(&mirror);
    let (lists, walks) = (ceph.calls(Op::Opendir), mirror.status()["walks"].clone());
    mirror.barrier();
    let _newest = snapshot(&mirror);
    assert!(directories(&backing).len() > 10);
    assert!(
        ceph.calls(Op::Opendir) - lists < 10,
        "it lists snapshots alone"
    );
    assert_eq!(mirror.status()["walks"], walks);
}
