//! Replicas that follow a Lustre changelog. `lfs` is a stand-in that acts on a real tree: the test
//! changes the tree and writes the records; the stand-in prints them, finds numbers (those of inodes),
//! and when it is told to clear records it looks whether the replica has what they tell of.
//!
//! `DRIFTLESS_SEED` sets the seed.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mirror::Mirror;
use driftless_testkit::scratch::scratch_folder;
use driftless_testkit::{EVENT_MAX, write_program};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Run in the folder that has `src`, `replica`, `log`, `paths` and `lock`. `paths` has the number of
/// each record and the path that it tells of.
const LFS: &str = r#"#!/bin/sh
cd "$STAND_IN" || exit 9
exec 9<lock
flock 9
case "$1" in
changelog)
    awk -v first="${3:-0}" -v cleared="$(cat cleared)" '$1 >= first && $1 > cleared' log ;;
changelog_clear)
    [ "$3" = cl7 ] || exit 22
    awk -v end="$4" '{ last[$2] = $1 } END { for (p in last) if (last[p] <= end) print p }' paths |
    while read -r path; do
        if [ -f "src/$path" ]; then
            cmp -s "src/$path" "replica/$path"
        elif [ -d "src/$path" ]; then
            [ -d "replica/$path" ]
        else
            [ ! -e "replica/$path" ]
        fi || echo "$path: cleared up to $4" >>early
    done
    echo "$4" >cleared ;;
fid2path)
    number=$(printf '%s' "$3" | sed 's/^\[0x1:\(0x[0-9a-f]*\):0x0\]$/\1/')
    found=$(find "$STAND_IN/src" -inum "$((number))")
    [ -n "$found" ] || { echo "fid2path: $3: No such file or directory" >&2; exit 2; }
    printf '%s\n' "$found" ;;
*) exit 1 ;;
esac
"#;

/// A tree with a changelog.
struct Lustre {
    folder: TempDir,
    last: u64,
}

impl Lustre {
    fn new() -> Lustre {
        let folder = scratch_folder();
        let at = |name: &str| folder.path().join(name);
        for dir in ["src", "bin", "replica"] {
            fs::create_dir(at(dir)).expect("a directory");
        }
        for file in ["log", "paths", "lock"] {
            File::create(at(file)).expect("a file");
        }
        fs::write(at("cleared"), "0\n").expect("a file");
        let here = format!("\nSTAND_IN='{}'\n", folder.path().display());
        write_program(&at("bin/lfs"), &LFS.replacen('\n', &here, 1));
        Lustre { folder, last: 0 }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn source(&self, path: &str) -> PathBuf {
        self.at("src").join(path)
    }

    fn mirror(&self) -> Mirror {
        let keys =
            "detect = [\"lustre\"]\ndelete = true\n[lustre]\nmdt = \"t-MDT0000\"\nuser = \"cl7\"\n";
        Mirror::with_programs(
            &self.at("src"),
            &self.at("replica"),
            keys,
            Some(&self.at("bin")),
        )
    }

    fn fid(&self, path: &str) -> String {
        let inode = fs::symlink_metadata(self.source(path)).map_or(0, |meta| meta.ino());
        format!("[{:#x}:{inode:#x}:0x0]", u8::from(inode > 0))
    }

    /// The directory of a path, and its name there.
    fn place(&self, path: &str) -> String {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        format!("{} {name}", self.fid(dir))
    }

    fn record(&mut self, kind: &str, words: &str, paths: &[&str]) {
        self.last += 1;
        let last = self.last;
        let append = |name: &str, text: String| {
            let mut file = File::options()
                .append(true)
                .open(self.at(name))
                .expect("there");
            file.write_all(text.as_bytes()).expect("written");
        };
        for path in paths {
            append("paths", format!("{last} {path}\n"));
        }
        let time = "10:11:12.123456789 2026.01.31";
        append("log", format!("{last} {kind} {time} 0x0 {words}\n"));
    }

    /// Nobody reads or clears the log while the tree changes and its record is not written.
    fn change(&mut self, change: impl FnOnce(&mut Lustre)) {
        let lock = File::open(self.at("lock")).expect("there");
        flock(&lock, FlockOperation::LockExclusive).expect("locked");
        change(self);
    }

    fn write(&mut self, path: &str, content: &str) {
        self.change(|lustre| {
            let file = lustre.source(path);
            let is_new = !file.exists();
            fs::write(&file, content).expect("written");
            let (fid, place) = (lustre.fid(path), lustre.place(path));
            if is_new {
                lustre.record("01CREAT", &format!("t={fid} ef=0xf p={place}"), &[path]);
            }
            lustre.record("11CLOSE", &format!("t={fid} j=cp.0"), &[path]);
        });
    }

    fn make_dir(&mut self, path: &str) {
        self.change(|lustre| {
            fs::create_dir(lustre.source(path)).expect("a directory");
            let (fid, place) = (lustre.fid(path), lustre.place(path));
            lustre.record("02MKDIR", &format!("t={fid} p={place}"), &[path]);
        });
    }

    fn remove(&mut self, path: &str) {
        self.change(|lustre| {
            let (fid, place) = (lustre.fid(path), lustre.place(path));
            fs::remove_file(lustre.source(path)).expect("removed");
            lustre.record("06UNLNK", &format!("t={fid} p={place}"), &[path]);
        });
    }

    fn rename(&mut self, from: &str, to: &str) {
        self.change(|lustre| {
            let (fid, old, over) = (lustre.fid(from), lustre.place(from), lustre.fid(to));
            fs::rename(lustre.source(from), lustre.source(to)).expect("renamed");
            let words = format!("t={over} p={} s={fid} sp={old}", lustre.place(to));
            let below = lustre.names_in(to);
            let all = [from, to].into_iter().flat_map(|dir| {
                let below = below.iter().map(move |name| format!("{dir}/{name}"));
                below.chain([dir.to_owned()])
            });
            let all: Vec<String> = all.collect();
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            lustre.record("08RENME", &words, &all);
        });
    }

    fn names_in(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.source(path)) else {
            return Vec::new();
        };
        let names = entries.map(|entry| entry.expect("a name").file_name());
        names
            .map(|name| name.into_string().expect("text"))
            .collect()
    }

    fn cleared(&self) -> u64 {
        let text = fs::read_to_string(self.at("cleared")).expect("there");
        text.trim().parse().unwrap_or(0)
    }

    fn check_cleared(&self) {
        let began = Instant::now();
        while self.cleared() < self.last {
            let limit = EVENT_MAX;
            assert!(
                began.elapsed() < limit,
                "{} of {}",
                self.cleared(),
                self.last
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        let early = fs::read_to_string(self.at("early")).unwrap_or_default();
        assert_eq!(early, "");
    }
}

/// One random change, in directories `d0` to `d3`, which change places.
fn change(lustre: &mut Lustre, rng: &mut fastrand::Rng) {
    let path = |rng: &mut fastrand::Rng| format!("d{}/f{}", rng.u8(..4), rng.u8(..6));
    let (one, other) = (path(rng), path(rng));
    let is_there = lustre.source(&one).exists();
    match rng.u8(..10) {
        0 if is_there => lustre.remove(&one),
        1 | 2 if is_there && one != other => lustre.rename(&one, &other),
        3 => {
            let (dir, aside) = (format!("d{}", rng.u8(..4)), format!("aside{}", lustre.last));
            lustre.rename(&dir, &aside);
            lustre.write(&format!("{aside}/f0"), "while it was aside");
            lustre.rename(&aside, &dir);
        }
        _ => lustre.write(&one, &format!("{} {one}", lustre.last)),
    }
}

#[test]
fn records_are_followed_and_cleared_when_the_replica_has_them_and_not_before() {
    let seed = std::env::var("DRIFTLESS_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let context = format!("replay: DRIFTLESS_SEED={seed} cargo test -p driftless --test lustre");
    println!("{context}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut lustre = Lustre::new();
    for dir in 0..4 {
        lustre.make_dir(&format!("d{dir}"));
    }
    let mut mirror = lustre.mirror();
    for round in 0..4 {
        for _ in 0..60 {
            change(&mut lustre, &mut rng);
            std::thread::sleep(Duration::from_millis(rng.u64(..20)));
        }
        if round < 3 {
            mirror.kill();
            change(&mut lustre, &mut rng);
            mirror.start();
        }
        if round % 2 == 1 {
            mirror.check_equal(&context);
        }
    }
    mirror.check_equal(&context);
    lustre.check_cleared();
    let status = mirror.status();
    assert_eq!(status["problems"], 0, "{status}");
    assert_eq!(status["overflows"], 0, "{status}");
}

#[test]
fn a_renamed_directory_is_renamed_and_purged_records_are_noticed() {
    let mut lustre = Lustre::new();
    lustre.make_dir("a");
    // Where no name at the top stays the same, it looks like another tree.
    lustre.write("top", "1");
    for number in 0..20 {
        lustre.write(&format!("a/f{number}"), "content");
    }
    let mirror = lustre.mirror();
    mirror.check_equal("at the start");
    let inode = |path: &Path| fs::metadata(path).expect("there").ino();
    let before = inode(&mirror.replica.join("a/f7"));
    lustre.rename("a", "b");
    mirror.check_equal("a rename");
    assert_eq!(
        inode(&mirror.replica.join("b/f7")),
        before,
        "it was copied anew"
    );
    assert_eq!(mirror.status()["overflows"], 0);
    // Records that are gone before anybody has read them.
    fs::write(lustre.source("b/unheard"), "1").expect("written");
    lustre.last += 10;
    lustre.write("b/one", "1");
    lustre.write("b/two", "2");
    mirror.check_equal("purged records");
    assert!(mirror.status()["overflows"].as_u64() > Some(0));
    lustre.check_cleared();
}

#[test]
fn a_program_that_fails_is_told_and_tried_again() {
    let mut lustre = Lustre::new();
    lustre.make_dir("a");
    let mirror = lustre.mirror();
    mirror.check_equal("at the start");
    let (program, aside) = (lustre.at("bin/lfs"), lustre.at("aside"));
    fs::rename(&program, &aside).expect("renamed");
    write_program(
        &program,
        "#!/bin/sh\necho 'the server is away' >&2\nexit 5\n",
    );
    lustre.write("a/f", "1");
    let began = Instant::now();
    while !mirror.status()["deaf"]
        .to_string()
        .contains("the server is away")
    {
        assert!(began.elapsed() < EVENT_MAX, "{}", mirror.status());
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::rename(&aside, &program).expect("renamed");
    mirror.check_equal("when it works again");
    assert_eq!(mirror.status()["deaf"], serde_json::Value::Null);
    lustre.check_cleared();
}
