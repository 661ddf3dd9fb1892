//! `driftless sum` through the real binary: the same hashes and lists as the programs that people
//! use, ranges, lists that are checked, hash trees that find a changed byte, manifests that agree
//! where trees do.
#![allow(clippy::disallowed_methods)]

use driftless_testkit::{Profile, build_tree};
use fastrand::Rng;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_driftless");

/// The algorithms whose programs write the very same lines, and those programs.
const TWINS: [(&str, &str); 3] = [
    ("sha256", "sha256sum"),
    ("sha512", "sha512sum"),
    ("md5", "md5sum"),
];

/// A folder in which commands run, with the binary first on the search path.
struct Stage(tempfile::TempDir);

/// What a command printed, and its exit code.
struct Ran {
    script: String,
    code: i32,
    out: Vec<u8>,
    err: String,
}

impl Stage {
    fn new() -> Stage {
        Stage(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: impl AsRef<OsStr>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name.as_ref());
        fs::create_dir_all(path.parent().expect("a parent")).expect("parents");
        fs::write(&path, content).expect("write");
        path
    }

    /// A folder `tree` with everything that can be in one.
    fn hostile(&self) -> PathBuf {
        let tree = self.path("tree");
        fs::create_dir(&tree).expect("tree");
        build_tree(
            &tree,
            11,
            &Profile {
                large: false,
                ..Profile::root()
            },
        );
        let sparse = fs::File::create(tree.join("sparse")).expect("create");
        sparse.set_len(20 << 20).expect("length");
        sparse.write_all_at(b"data", 7 << 20).expect("write");
        fs::write(tree.join("several\r\npieces\\"), random(9_000_001, 3)).expect("write");
        tree
    }

    fn run(&self, script: &str) -> Ran {
        let own = Path::new(BINARY)
            .parent()
            .expect("a folder")
            .as_os_str()
            .to_owned();
        let path = [own, std::env::var_os("PATH").unwrap_or_default()].join(&OsString::from(":"));
        let mut command = Command::new("bash");
        command
            .args(["-c", script])
            .current_dir(self.0.path())
            .env("PATH", path)
            .env("LC_ALL", "C");
        let output = command.output().expect("bash starts");
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        Ran {
            script: script.into(),
            code: output.status.code().unwrap_or(-1),
            out: output.stdout,
            err,
        }
    }

    fn ok(&self, script: &str) -> Ran {
        self.run(script).expect(0)
    }
}

impl Ran {
    #[track_caller]
    fn expect(self, code: i32) -> Ran {
        assert_eq!(
            self.code,
            code,
            "exit code of {}\n{}\n{}",
            self.script,
            self.text(),
            self.err
        );
        self
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    fn events(&self, name: &str) -> Vec<Value> {
        let all = self.text();
        let parse =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        all.lines()
            .map(parse)
            .filter(|event: &Value| event["event"] == name)
            .collect()
    }

    fn lines(&self) -> BTreeSet<Vec<u8>> {
        self.out
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(<[u8]>::to_vec)
            .collect()
    }
}

fn random(length: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    (0..length).map(|_| rng.u8(..)).collect()
}

#[track_caller]
fn check_same(ours: &BTreeSet<Vec<u8>>, theirs: &BTreeSet<Vec<u8>>, what: &str) {
    let shown = |lines: Vec<&Vec<u8>>| {
        lines
            .iter()
            .map(|line| line.escape_ascii().to_string())
            .collect::<Vec<_>>()
            .join("\n")
    };
    let (more, less) = (
        ours.difference(theirs).collect::<Vec<_>>(),
        theirs.difference(ours).collect::<Vec<_>>(),
    );
    assert!(
        more.is_empty() && less.is_empty(),
        "{what}: only ours\n{}\nonly theirs\n{}",
        shown(more),
        shown(less)
    );
    assert!(ours.len() > 300, "{what}: only {} lines", ours.len());
}

#[test]
fn lists_are_those_of_sha256sum_sha512sum_and_md5sum() {
    let stage = Stage::new();
    stage.hostile();
    for (algorithm, program) in TWINS {
        let ours = stage.ok(&format!("driftless sum -a {algorithm} tree | tee ours"));
        let theirs = stage.ok(&format!(
            "find tree -type f -print0 | xargs -0 {program} | tee theirs"
        ));
        check_same(&ours.lines(), &theirs.lines(), program);
        stage.ok(&format!("{program} -c --strict --quiet ours"));
        stage.ok(&format!(
            "driftless sum -a {algorithm} --check theirs --quiet"
        ));
        let tagged = stage.ok(&format!("find tree -type f -print0 | xargs -0 {program} --tag > tagged; driftless sum --check tagged"));
        assert!(
            tagged.text().lines().all(|line| line.ends_with(": OK")),
            "{}",
            tagged.text()
        );
    }
}

/// b3sum 1.2 replaces bytes that are no text, so lines with them cannot be compared, nor checked by
/// it.
#[test]
fn lists_are_those_of_b3sum() {
    let stage = Stage::new();
    stage.hostile();
    let is_text =
        |line: &Vec<u8>| std::str::from_utf8(line).is_ok_and(|line| !line.contains('\u{fffd}'));
    let ours = stage.ok("driftless sum tree | tee ours").lines();
    let theirs = stage
        .ok("find tree -type f -print0 | xargs -0 b3sum")
        .lines();
    let hashes = |lines: &BTreeSet<Vec<u8>>| -> BTreeSet<Vec<u8>> {
        lines
            .iter()
            .map(|line| line.strip_prefix(b"\\").unwrap_or(line)[..64].to_vec())
            .collect()
    };
    assert_eq!(hashes(&ours), hashes(&theirs));
    let text = |lines: BTreeSet<Vec<u8>>| -> BTreeSet<Vec<u8>> {
        lines.into_iter().filter(is_text).collect()
    };
    let (ours, theirs) = (text(ours), text(theirs));
    check_same(&ours, &theirs, "b3sum");
    let joined: Vec<u8> = ours
        .iter()
        .flat_map(|line| [line.as_slice(), b"\n"].concat())
        .collect();
    stage.put("text", joined);
    stage.ok("b3sum -c --quiet text");
    stage.ok("driftless sum --check ours --quiet");
}

/// xxhsum 0.8.1 cannot read a name with a newline.
#[test]
fn lists_are_those_of_xxhsum() {
    let stage = Stage::new();
    stage.hostile();
    let one_line = "find tree -type f ! -path $'*\\n*' -print0";
    let ours = stage.ok(&format!(
        "{one_line} | driftless sum -a xxh3 --from-stdin --from0 | tee ours"
    ));
    let theirs = stage.ok(&format!("{one_line} | xargs -0 xxh128sum | tee theirs"));
    check_same(&ours.lines(), &theirs.lines(), "xxh128sum");
    stage.ok("xxh128sum -c ours");
    stage.ok("driftless sum -a xxh3 --quiet --check theirs");
    stage.ok("driftless sum -a xxh3 tree > all && driftless sum -a xxh3 --quiet --check all");
}

#[test]
fn the_order_is_that_of_the_names_however_many_threads() {
    let stage = Stage::new();
    stage.hostile();
    for directory in ["b", "b/c", "a"] {
        (0..300).for_each(|n| _ = stage.put(format!("wide/{directory}/{n}"), n.to_string()));
    }
    let one = stage.ok("driftless sum -j 1 wide/b tree wide/a").out;
    for jobs in ["2", "7", "32", "auto"] {
        assert!(
            stage
                .ok(&format!("driftless sum -j {jobs} wide/b tree wide/a"))
                .out
                == one,
            "another order with {jobs} jobs"
        );
    }
    let expected = stage.ok("find wide -type f | sort").text();
    let names: String = stage
        .ok("driftless sum wide")
        .text()
        .lines()
        .map(|line| format!("{}\n", &line[66..]))
        .collect();
    assert_eq!(names, expected);
}

/// What is done waits for a slow file at the very beginning; when too much waits, threads do.
#[test]
fn a_slow_file_at_the_beginning_holds_up_many_small_ones() {
    let stage = Stage::new();
    fs::create_dir(stage.path("many")).expect("many");
    (0..40_000).for_each(|n| fs::write(stage.path(&format!("many/{n:05}")), "").expect("write"));
    fs::File::create(stage.path("many/0"))
        .and_then(|file| file.set_len(200 << 20))
        .expect("a slow file");
    let ran = stage.ok("driftless sum -a md5 -j 8 many");
    let names: Vec<String> = ran
        .text()
        .lines()
        .map(|line| line[39..].to_owned())
        .collect();
    assert_eq!(names.len(), 40_001);
    assert!(names.is_sorted() && names[0] == "0", "{:?}", &names[..3]);
}

#[test]
fn ranges_are_hashed_alone() {
    let stage = Stage::new();
    stage.put("f", random(9_000_001, 1));
    for (range, start, length) in [
        ("0-9000001", 0, 9_000_001),
        ("5-5", 5, 0),
        ("1-8M", 1, (8 << 20) - 1),
        ("4097-", 4097, 8_995_904),
    ] {
        for (algorithm, program) in [("blake3", "b3sum"), ("sha256", "sha256sum")] {
            let ours = stage.ok(&format!(
                "driftless sum -a {algorithm} --range {range} f | tee list"
            ));
            let theirs = stage.ok(&format!(
                "tail -c +{} f | head -c {length} | {program}",
                start + 1
            ));
            let expected = format!(
                "{}@{start}-{}  f\n",
                theirs.text().split(' ').next().expect("a hash"),
                start + length
            );
            assert_eq!(ours.text(), expected);
            stage.ok(&format!("driftless sum -a {algorithm} --check list"));
        }
    }
    let short = stage.run("driftless sum --range 0-9000002 f").expect(3);
    assert!(
        short
            .err
            .contains("\"f\": the range goes up to byte 9000002, and the file has 9000001 bytes"),
        "{}",
        short.err
    );
    let json = stage.ok("driftless sum --json --range 1-3 f").events("sum");
    assert_eq!(
        (json[0]["start"].as_u64(), json[0]["end"].as_u64()),
        (Some(1), Some(3))
    );
}

#[test]
fn a_batch_of_paths_and_ranges_comes_from_standard_input() {
    let stage = Stage::new();
    stage.put("a b", "hello");
    stage.put("line\nbreak", "x");
    stage.put("0-5", "named like a range");
    let ran = stage.ok("printf 'a b\\n1-3\\ta b\\n\\n0-5\\n' | driftless sum --from-stdin");
    let first = blake3_of(&stage, "printf hello");
    let expected = [
        format!("{first}  a b"),
        format!("{}@1-3  a b", blake3_of(&stage, "printf el")),
    ];
    assert_eq!(ran.text().lines().take(2).collect::<Vec<_>>(), expected);
    assert_eq!(ran.text().lines().count(), 3);
    let ran =
        stage.ok("printf 'line\\nbreak\\0002-\\ta b\\0' | driftless sum --from-stdin --from0");
    assert!(
        ran.text().contains("line\\nbreak\n") && ran.text().contains("@2-5  a b"),
        "{}",
        ran.text()
    );
    let many = stage.ok(
        "for n in $(seq 1000); do echo $n > $n; echo $n; done | driftless sum -a sha256 --from-stdin > list; seq 1000 | xargs sha256sum",
    );
    assert_eq!(fs::read(stage.path("list")).expect("list"), many.out);
}

fn blake3_of(stage: &Stage, command: &str) -> String {
    stage.ok(&format!("{command} | b3sum")).text()[..64].to_owned()
}

#[test]
fn a_list_that_is_checked_shows_a_flipped_bit_and_a_missing_file() {
    let stage = Stage::new();
    for n in 0..200 {
        stage.put(format!("d/{n}"), random(n * 91, n as u64));
    }
    stage.ok("driftless sum d > list");
    let whole = stage.ok("driftless sum --check list");
    assert_eq!(
        whole
            .text()
            .lines()
            .filter(|line| line.ends_with(": OK"))
            .count(),
        200
    );
    flip(&stage.path("d/77"), 1234);
    fs::remove_file(stage.path("d/12")).expect("remove");
    let ran = stage.run("driftless sum --quiet --check list").expect(4);
    assert_eq!(ran.text(), "d/12: missing\nd/77: differs\n");
    assert!(
        ran.err.contains("of 200 files: 1 different, 1 missing"),
        "{}",
        ran.err
    );
    let json = stage
        .run("driftless sum --json --quiet --check - < list")
        .expect(4);
    let checked = json.events("checked");
    assert_eq!(
        (
            checked.len(),
            checked[0]["result"].as_str(),
            checked[1]["path"].as_str()
        ),
        (2, Some("missing"), Some("d/77"))
    );
    assert_eq!(json.events("summary")[0]["exit_code"], 4);
    stage.ok("sed -i '/d\\/12$/d; /d\\/77$/d' list && driftless sum --quiet --check list");
}

fn flip(path: &Path, at: u64) {
    let file = driftless_testkit::content::open_to_write(path).expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 1 << (at % 8)], at)
        .expect("write");
}

#[test]
fn what_cannot_be_hashed_is_a_problem_and_the_rest_is_done() {
    let stage = Stage::new();
    stage.put("good", "x");
    let ran = stage
        .run("mkfifo fifo; ln -s nowhere link; driftless sum good fifo link none/at/all good/below")
        .expect(3);
    assert_eq!(ran.text().lines().count(), 1);
    for line in [
        "\"fifo\": it is a named pipe",
        "\"link\": no such file or directory",
        "\"none/at/all\": no such file or directory",
        "\"good/below\": no such file or directory",
    ] {
        assert!(ran.err.contains(line), "{line} in {}", ran.err);
    }
    stage
        .run("mkdir d; echo x > d/f; chmod 0 d/f; chmod 755 . d")
        .expect(0);
    let script = format!("setpriv --reuid 65534 --regid 65534 --clear-groups {BINARY} sum d good");
    let reachable = stage.run(&format!(
        "setpriv --reuid 65534 --regid 65534 --clear-groups test -x {BINARY}"
    ));
    if reachable.code == 0 {
        let ran = stage.run(&script).expect(3);
        assert!(
            ran.err
                .contains("\"d/f\": cannot open it: permission denied"),
            "{}",
            ran.err
        );
    }
    stage.run("driftless sum good > /dev/full").expect(1);
}

#[test]
fn broken_lists_are_reported_by_line() {
    let stage = Stage::new();
    stage.put("f", "x");
    let ran = stage.run("(echo '# by hand'; echo rubbish; sha256sum f; echo 'abcd  f'; printf '\\\\%064d  f\\\\x\\n' 0) > list; driftless sum -a sha256 --check list");
    let ran = ran.expect(3);
    assert_eq!(ran.text(), "f: OK\n");
    for line in [
        "\"list\" line 2: no hash and name",
        "\"list\" line 4: a hash of the wrong length",
        "\"list\" line 5: an unknown escape",
    ] {
        assert!(ran.err.contains(line), "{line} in {}", ran.err);
    }
    stage.run("driftless sum --check /dev/null").expect(1);
    stage.run("driftless sum --check none").expect(1);
    stage.run("driftless sum --check .").expect(1);
    stage
        .run("md5sum f | driftless sum -a sha256 --check -")
        .expect(3);
    stage.ok("md5sum f | driftless sum --check -");
    let endless = stage
        .run("head -c 20000000 /dev/zero | driftless sum --check -")
        .expect(1);
    assert!(
        endless.err.contains("line 1: cannot read on"),
        "{}",
        endless.err
    );
    for wrong in [
        "",
        "--manifest f f",
        "--tree t -a md5 f",
        "--leaf-size 1000 --tree t f",
        "--range 5-4 f",
        "--check list f",
    ] {
        stage.run(&format!("driftless sum {wrong}")).expect(2);
    }
}

/// The leaf that holds a byte.
fn leaf_of(at: u64, leaf_bytes: u64, size: u64) -> Value {
    let start = at / leaf_bytes * leaf_bytes;
    serde_json::json!([[start, (start + leaf_bytes).min(size)]])
}

#[test]
fn hash_trees_pinpoint_every_flipped_bit() {
    const LEAF: u64 = 16 * 1024;
    let stage = Stage::new();
    let sizes = [1, 16_384, 16_385, 100_000, 6_000_007];
    let files: Vec<PathBuf> = sizes
        .iter()
        .map(|size| stage.put(format!("d/{size}\n\\"), random(*size, 5)))
        .collect();
    let listed = stage.ok("driftless sum --tree trees --leaf-size 16k d").out;
    assert!(
        listed == stage.ok("driftless sum d").out,
        "the list is the same with trees"
    );
    stage.ok("driftless sum --check-tree trees");
    let mut rng = Rng::with_seed(4);
    for round in 0..120 {
        let which = if round < 100 { 4 } else { round % 5 };
        let size = sizes[which] as u64;
        let at = rng.u64(0..size);
        flip(&files[which], at);
        let ran = stage
            .run("driftless sum --json --quiet --check-tree trees")
            .expect(4);
        let found = ran.events("checked");
        assert_eq!(found.len(), 1, "{}", ran.text());
        assert_eq!(
            found[0]["ranges"],
            leaf_of(at, LEAF, size),
            "byte {at} of {size}"
        );
        flip(&files[which], at);
    }
    stage.ok("driftless sum --quiet --check-tree trees");
}

#[test]
fn hash_trees_notice_another_length() {
    let stage = Stage::new();
    stage.put("f", random(5_000_000, 1));
    stage.put("g", random(3_000_000, 2));
    stage.put("empty", "");
    stage.ok("driftless sum --tree trees f g empty");
    let ran = stage.run("truncate -s 2500000 f; echo more >> g; echo x > empty; driftless sum --check-tree trees").expect(4);
    let mib = 1 << 20;
    let expected = [
        format!(
            "f: differs in bytes {}-5000000 (had 5000000 bytes, has 2500000)",
            2 * mib
        ),
        format!(
            "g: differs in bytes {}-3000005 (had 3000000 bytes, has 3000005)",
            2 * mib
        ),
        "empty: differs in bytes 0-2 (had 0 bytes, has 2)".into(),
    ];
    assert_eq!(ran.text().lines().collect::<Vec<_>>(), expected);
    let ran = stage
        .run("rm f; driftless sum --check-tree trees")
        .expect(4);
    assert!(ran.text().starts_with("f: missing\n"), "{}", ran.text());
}

#[test]
fn hash_trees_work_at_any_leaf_size() {
    let stage = Stage::new();
    stage.put("d/large", random(9_000_001, 1));
    stage.put("d/small", random(10, 1));
    let plain = stage.ok("driftless sum d").out;
    for leaf in ["1k", "64k", "8M", "1G"] {
        assert!(
            stage
                .ok(&format!("driftless sum --tree trees --leaf-size {leaf} d"))
                .out
                == plain,
            "{leaf}"
        );
        stage.ok("driftless sum --check-tree trees --quiet");
    }
    let ran = stage
        .run("truncate -s 8T d/huge && driftless sum --tree trees --leaf-size 1k d")
        .expect(3);
    assert!(
        ran.err.contains("\"d/huge\": its tree would have"),
        "{}",
        ran.err
    );
    assert_eq!(ran.text().lines().count(), 2);
}

#[test]
fn a_broken_tree_file_is_refused_with_the_line() {
    let stage = Stage::new();
    stage.put("f", random(3_000_000, 1));
    stage.ok("driftless sum --tree trees f");
    let good = fs::read(stage.path("trees")).expect("trees");
    let text = String::from_utf8(good.clone()).expect("text");
    let table = [
        (
            text.replacen("tree 1", "tree 2", 1),
            "line 1: another version",
        ),
        (
            text.replacen("leaf 1048576", "leaf 3", 1),
            "line 2: a leaf size",
        ),
        (
            text.replacen(" 3000000 ", " 18446744073709551615 ", 1),
            "line 7: the hash of a leaf",
        ),
        (
            text.replacen(" 3000000 ", " 1000000 ", 1),
            "line 5: \"HASH SIZE NAME\"",
        ),
        (
            text.replacen("\nend 1", "\nend 7", 1),
            "line 7: the number of files",
        ),
        (
            text.replacen("\nend 1\n", "", 1),
            "line 7: the file is truncated",
        ),
        ("rubbish".into(), "line 1: this is not a tree file"),
        (String::new(), "line 1: the file is truncated"),
    ];
    for (broken, message) in table {
        stage.put("broken", &broken);
        let ran = stage.run("driftless sum --check-tree broken").expect(1);
        assert!(
            ran.err.contains(&format!("\"broken\" {message}")),
            "{message} in {}",
            ran.err
        );
    }
    let mut rng = Rng::with_seed(9);
    for _ in 0..60 {
        let mut bytes = good.clone();
        let at = rng.usize(..bytes.len());
        bytes[at] = rng.u8(..);
        stage.put("broken", &bytes);
        let ran = stage.run("driftless sum --check-tree broken");
        assert!(
            bytes == good
                || [1, 4].contains(&ran.code)
                || bytes[at].eq_ignore_ascii_case(&good[at]),
            "{at}: {} {}",
            ran.code,
            ran.err
        );
    }
}

#[test]
fn a_tree_file_appears_whole_or_not_at_all() {
    let stage = Stage::new();
    stage.put("d/f", "x");
    stage.put("trees", "driftless-tree older");
    stage.run("driftless sum --tree none/trees d").expect(1);
    stage
        .run("driftless sum --tree trees d > /dev/full")
        .expect(1);
    stage.run("driftless sum --tree trees d nope").expect(3);
    assert_eq!(stage.ok("cat trees").text(), "driftless-tree older");
    stage.ok("driftless sum --tree trees d");
    assert_eq!(
        stage
            .ok("head -1 trees; ls -A")
            .text()
            .lines()
            .collect::<Vec<_>>(),
        ["driftless-tree 1", "d", "trees"]
    );
}

/// The last line of the manifest of a tree.
fn root_of(stage: &Stage, tree: &str) -> String {
    let ran = stage.ok(&format!("driftless sum --manifest {tree}"));
    let text = ran.text();
    text.lines()
        .last()
        .and_then(|line| line.strip_prefix("root "))
        .expect("a root")
        .to_owned()
}

#[test]
fn equal_trees_have_equal_manifests() {
    let stage = Stage::new();
    stage.hostile();
    stage.ok("driftless sync --quiet tree copy");
    let [ours, copy] =
        ["tree", "copy"].map(|tree| stage.ok(&format!("driftless sum --manifest {tree}")).out);
    assert!(
        ours == copy,
        "{}",
        stage
            .run("diff <(driftless sum --manifest tree) <(driftless sum --manifest copy)")
            .text()
    );
    let entries = stage.ok("find tree -printf x").out.len();
    assert_eq!(
        ours.iter().filter(|byte| **byte == b'\n').count(),
        entries + 2
    );
    let hash = stage
        .ok("driftless sum --manifest tree | head -n -1 | b3sum")
        .text();
    assert_eq!(root_of(&stage, "copy"), hash[..64]);
    let json = stage.ok("driftless sum --json --manifest tree");
    assert_eq!(
        (
            json.events("entry").len(),
            json.events("summary")[0]["root"].as_str()
        ),
        (entries, Some(&hash[..64]))
    );
}

#[test]
fn the_summary_of_a_manifest_tells_files_from_other_entries() {
    let stage = Stage::new();
    stage
        .ok("mkdir -p t/d/e && echo 1 > t/a && echo 22 > t/d/b && ln -s a t/link && mkfifo t/pipe");
    let summary = &stage
        .ok("driftless sum --json --manifest t")
        .events("summary")[0];
    let counts = ["files", "entries", "bytes"].map(|field| summary[field].as_u64());
    assert_eq!(counts, [Some(2), Some(7), Some(5)], "{summary}");
    let summary = &stage.ok("driftless sum --json t").events("summary")[0];
    assert_eq!(
        (summary["files"].as_u64(), summary.get("entries")),
        (Some(2), None),
        "{summary}"
    );
}

#[test]
fn the_order_of_creation_does_not_matter() {
    let stage = Stage::new();
    let make = |order: &str| {
        format!(
            "for n in {order}; do echo $n > $n; touch -d @$n $n; done; ln 3 link; touch -d @9 ."
        )
    };
    stage.ok(&format!(
        "mkdir a b && (cd a && {}) && (cd b && touch x y && {} && rm x y && touch -d @9 .)",
        make("1 2 3 4"),
        make("4 2 3 1")
    ));
    assert_eq!(root_of(&stage, "a"), root_of(&stage, "b"));
}

#[test]
fn every_change_of_a_tree_changes_its_root() {
    let stage = Stage::new();
    stage.ok(
        "mkdir t t/d && echo 1 > t/a && echo 2 > t/d/b && cp -p t/a t/c && ln -s a t/l && ln t/a t/hard && find t -exec touch -hd @7 {} +",
    );
    let before = root_of(&stage, "t");
    let still = "find t -exec touch -hd @7 {} +";
    for change in [
        "mv t/a t/e",
        "chmod 600 t/d/b",
        "chmod 700 t/d",
        "chown 5 t/a",
        "chgrp 5 t/l -h",
        "touch -d @7.000000001 t/d/b",
        "touch -hd @8 t/l",
        "setfattr -n user.x -v y t/d",
        "setfacl -m u:5:r t/a",
        "rm t/hard; cp -p t/a t/hard",
        "rm t/hard; ln t/c t/hard",
        "printf '3\\n' > t/d/b",
        "rm t/l; ln -s b t/l",
        "rm t/d/b; mkfifo t/d/b",
        "mkdir t/new",
    ] {
        let settle = if change.contains("touch") {
            "true"
        } else {
            still
        };
        stage.ok(&format!(
            "rm -rf save && cp -a t save && {change} && {settle}"
        ));
        assert_ne!(root_of(&stage, "t"), before, "{change}");
        stage.ok("rm -rf t && cp -a save t");
        assert_eq!(root_of(&stage, "t"), before, "{change} was taken back");
    }
    stage.ok("touch -ad @99 t/a; chmod 600 t/a; chmod 644 t/a");
    assert_eq!(
        root_of(&stage, "t"),
        before,
        "access and change times do not count"
    );
}

#[test]
fn a_manifest_with_a_gap_has_no_root() {
    let stage = Stage::new();
    stage.put("f", "x");
    let ran = stage.run("driftless sum --manifest f").expect(3);
    assert!(
        ran.err.contains("a manifest is made of a directory") && !ran.text().contains("root"),
        "{}",
        ran.err
    );
    stage.run("driftless sum --manifest none").expect(3);
}

#[test]
fn a_signal_ends_it_cleanly() {
    let stage = Stage::new();
    fs::File::create(stage.path("f"))
        .and_then(|file| file.set_len(1 << 43))
        .expect("a large file");
    let at_work = "until [ $(ls /proc/$!/task | wc -l) -gt 1 ]; do sleep 0.01; done";
    for algorithm in ["blake3", "sha256"] {
        let ran = stage
            .run(&format!(
                "driftless sum -a {algorithm} f & {at_work}; kill -TERM $!; wait $!"
            ))
            .expect(143);
        assert!(
            ran.out.is_empty() && ran.err.contains("not finished"),
            "{}",
            ran.err
        );
    }
}

#[test]
fn hash_trees_never_take_the_place_of_something_else() {
    let stage = Stage::new();
    stage.put("a.img", "data");
    stage.put("b.img", "more");
    let ran = stage.run("driftless sum --tree a.img b.img").expect(1);
    assert!(
        ran.err
            .contains("a.img\": it exists and does not hold the hash trees"),
        "{}",
        ran.err
    );
    stage
        .run("mkdir -p t u && driftless audit --samples 1 --report a.img t u")
        .expect(1);
    assert_eq!(stage.ok("cat a.img").text(), "data");
    stage.run("driftless sum --tree . b.img").expect(1);
    stage.ok("driftless sum --tree trees b.img");
    assert!(
        stage
            .run("driftless sum --tree trees b.img trees")
            .expect(1)
            .err
            .contains("one of the files to hash")
    );
}

#[test]
fn hash_trees_are_written_into_devices_and_pipes() {
    let stage = Stage::new();
    stage.put("b.img", "more");
    stage.ok("mknod null c 1 3 && driftless sum --tree null b.img && test -c null");
    let ran = stage.ok("mkfifo pipe && { head -1 pipe & } && driftless sum --tree pipe b.img > list && wait && test -p pipe");
    assert_eq!(ran.text(), "driftless-tree 1\n");
    stage.ok("echo 'driftless-tree 1' > real && ln -s real link && chmod 600 real && driftless sum --tree link b.img && test -L link");
    assert_eq!(
        stage.ok("head -c 12 real; stat -c ' %a' real").text(),
        "driftless-tr 600\n"
    );
}

#[test]
fn a_tree_file_among_what_is_hashed_is_not_hashed_itself() {
    let stage = Stage::new();
    stage.put("data/f", "x");
    for _ in 0..2 {
        assert_eq!(
            stage
                .ok("driftless sum --tree data/trees data | cut -c 67-")
                .text(),
            "data/f\n"
        );
        stage.ok("driftless sum --check-tree data/trees");
    }
}

#[test]
fn a_list_of_another_function_with_hashes_of_the_same_length_is_recognised() {
    let stage = Stage::new();
    for name in ["a", "b", "c"] {
        stage.put(name, name.repeat(1000));
    }
    for (program, word) in [("sha256sum", "sha256"), ("xxhsum -H2", "xxh3")] {
        let ran = stage.ok(&format!(
            "{program} a b c > list && driftless sum --check list"
        ));
        assert!(ran.err.contains(&format!("are {word}")), "{}", ran.err);
        let ran =
            stage.run("rm a; echo changed > b; driftless sum --check list; code=$?; printf a%.0s $(seq 1000) > a; exit $code").expect(4);
        assert_eq!(ran.text(), "a: missing\nb: differs\nc: OK\n");
        stage.put("b", "b".repeat(1000));
    }
    assert!(
        stage
            .ok("md5sum a b > list && driftless sum --check list")
            .err
            .is_empty()
    );
    stage
        .run("sha256sum a > list && driftless sum --check list --algorithm blake3")
        .expect(4);
}

#[test]
fn a_list_whose_lines_end_with_carriage_returns_is_read() {
    let stage = Stage::new();
    stage.put("a", "a");
    stage.put("b b", "b");
    stage.ok("sha256sum a 'b b' | sed 's/$/\\r/' > list && driftless sum --check list --algorithm sha256");
    stage.ok("sha256sum a 'b b' | sed 's/$/\\r/' > list && driftless sum --check list");
}

#[test]
fn carriage_returns_are_of_the_names_where_files_of_such_names_are_there() {
    let stage = Stage::new();
    stage.put("a\r", "a");
    stage.put("b", "b");
    // BLAKE3 lists have them as they are.
    let list = stage.ok("driftless sum 'a\r' | tee list").out.clone();
    assert!(list.ends_with(b"a\r\n"), "{list:?}");
    stage.ok("driftless sum --check list");
    stage.ok("driftless sum b | sed 's/$/\\r/' > list && driftless sum --check list");
}

#[test]
fn lists_of_openssl_and_of_other_systems_are_checked() {
    let stage = Stage::new();
    stage.put("a (b)= c", "content");
    stage.put("d", "other");
    for digest in ["sha256", "sha512", "md5"] {
        stage.ok(&format!(
            "openssl dgst -{digest} 'a (b)= c' d > list; driftless sum --check list"
        ));
        stage.ok("sed 's/^SHA2-/SHA/' list > older; driftless sum --check older");
        stage.ok("(printf '\\357\\273\\277'; sed 's/$/\\r/' list) > marked; driftless sum --check marked");
        stage.ok(&format!(
            "openssl dgst -{digest} -r 'a (b)= c' d > list; driftless sum -a {digest} --check list"
        ));
    }
    stage.put("d", "changed");
    stage.run("driftless sum -a md5 --check list").expect(4);
    let ran = stage.run("md5sum -z d | driftless sum --check -").expect(1);
    assert!(ran.err.contains("without -z"), "{}", ran.err);
    stage.ok("printf 'd\\r\\n' | driftless sum --from-stdin");
    let ran = stage
        .run("printf 'd\\0' | driftless sum --from-stdin")
        .expect(1);
    assert!(ran.err.contains("add --from0"), "{}", ran.err);
}

#[test]
fn paths_longer_than_a_call_takes_are_checked() {
    let stage = Stage::new();
    stage.ok("python3 -c \"
import os
for i in range(45): os.mkdir('n' * 200); os.chdir('n' * 200)
open('leaf', 'w').write('x')\"");
    stage.ok("driftless sum --tree trees nnn* > list && driftless sum --check list && driftless sum --check-tree trees");
    stage
        .run("sed 's/leaf$/none/' list | driftless sum --check -")
        .expect(4);
    stage
        .run("printf '%04500d' 0 | driftless sum --from-stdin")
        .expect(3);
    stage.ok("find . -name leaf -execdir sh -c 'echo y > leaf' ';'");
    stage.run("driftless sum --check list").expect(4);
    stage.run("driftless sum --check-tree trees").expect(4);
}

#[test]
fn what_a_listed_file_cannot_be_differs() {
    let stage = Stage::new();
    stage.put("f", random(3000, 1));
    stage.ok("driftless sum --range 1000-2000 f > ranges; driftless sum --tree trees f > list");
    for change in [
        "truncate -s 1500 f",
        "truncate -s 0 f",
        "rm f; mkdir f",
        "rmdir f; mkfifo f",
    ] {
        stage.ok(change);
        for check in ["--check ranges", "--check list", "--check-tree trees"] {
            let ran = stage
                .run(&format!("driftless sum --json {check}"))
                .expect(4);
            let checked = ran.events("checked");
            let result = checked[0]["result"].as_str();
            assert_eq!(
                (checked.len(), result),
                (1, Some("differs")),
                "{change}, {check}"
            );
            assert!(ran.events("problem").is_empty(), "{change}, {check}");
        }
    }
    let ran = stage.run("driftless sum --check list").expect(4);
    assert_eq!(ran.text(), "f: differs (it is a named pipe)\n");
    assert!(
        ran.err.contains("of 1 file: 1 different, 0 missing"),
        "{}",
        ran.err
    );
    stage.run("driftless sum --range 1000-2000 f").expect(3);
}

#[test]
fn ranges_have_no_end_beyond_all_files() {
    let stage = Stage::new();
    stage.put("f", "content");
    let ran = stage
        .run("driftless sum --range 0-18446744073709551615 f")
        .expect(2);
    assert!(
        ran.err.contains("write 0- for up to the end"),
        "{}",
        ran.err
    );
    stage.ok("driftless sum --range 0- f");
}
