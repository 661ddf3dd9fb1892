//! Verification finds what differs, all of it and nothing else, names it to the byte range, and
//! repairs it.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{check_equal, on_trees, only_local, put, sync, sync_ok, wait_until};
use driftless_testkit::{
    Driftless, FsKind, Options, Outcome, Profile, Scratch, attrs, build_tree, compare,
    snapshot_hash,
};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

const NONE: [&str; 0] = [];
/// Differences are told in blocks of this many bytes.
const BLOCK: u64 = 4096;

/// `driftless verify --json SRC DST`, its state kept beside the replica.
fn verify(src: &Path, dst: &Path) -> Driftless {
    let state = dst.with_file_name("state");
    common::verify(src, dst).env("XDG_STATE_HOME", state)
}

/// `missing`, `extra` or `differs`, what differs, and where.
type Found = (String, Vec<String>, Vec<(u64, u64)>);

/// What was found, by path.
fn found(outcome: &Outcome) -> BTreeMap<String, Found> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let number = |value: &Value| value.as_u64().expect("a number");
    let row = |event: &Value| {
        let what = event["what"]
            .as_array()
            .expect("a list")
            .iter()
            .map(text)
            .collect();
        let ranges = event["ranges"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|range| (number(&range[0]), number(&range[1])))
            .collect();
        (text(&event["path"]), (text(&event["found"]), what, ranges))
    };
    outcome.events_named("difference").iter().map(row).collect()
}

/// Content that no two blocks share, so that a block on a medium can be found again.
fn content(file: u64, blocks: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(file);
    (0..blocks * BLOCK).map(|_| rng.u8(..)).collect()
}

/// Inverts a byte in place and leaves the modification time as it was: what a failing disk does.
fn flip(path: &Path, offset: u64) {
    let file = driftless_testkit::content::open_to_write(path).expect("open");
    let time = file
        .metadata()
        .and_then(|meta| meta.modified())
        .expect("time");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[!byte[0]], offset).expect("write");
    file.set_modified(time).expect("time");
}

fn block_of(offset: u64) -> (u64, u64) {
    (offset / BLOCK * BLOCK, (offset / BLOCK + 1) * BLOCK)
}

#[test]
fn a_hostile_tree_and_its_copy_are_equal_at_every_level() {
    let scratch = Scratch::new(FsKind::Ext4, 300);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    build_tree(&src, 31, &Profile::root());
    let _ = sync_ok(&src, &dst, NONE);
    let before = snapshot_hash(&dst, true);
    for level in ["meta", "content", "media"] {
        let outcome = verify(&src, &dst).args(["--level", level]).run().expect(0);
        assert_eq!(found(&outcome), BTreeMap::new(), "{level}");
        assert_eq!(
            outcome.count("seen"),
            outcome.count("same"),
            "{level}: every entry was looked at"
        );
        assert_eq!(
            outcome.count("bytes_compared") > 0,
            level != "meta",
            "{level}"
        );
    }
    assert_eq!(
        snapshot_hash(&dst, true),
        before,
        "verification touched the replica"
    );
}

#[test]
fn every_flipped_byte_is_found_to_the_block_and_mended() {
    let scratch = Scratch::new(FsKind::Tmpfs, 600);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    (0..200).for_each(|file| {
        put(
            &src.join(format!("d{}/f{file}", file % 7)),
            content(file, 1 + file % 40),
        )
    });
    put(&src.join("large"), content(1000, 20_000));
    let _ = sync_ok(&src, &dst, NONE);
    let mut rng = fastrand::Rng::with_seed(7);
    let mut wanted: BTreeMap<String, BTreeSet<(u64, u64)>> = BTreeMap::new();
    for file in (0..200)
        .map(|file| format!("d{}/f{file}", file % 7))
        .chain(std::iter::repeat_n("large".to_owned(), 120))
    {
        let offset = rng.u64(..fs::metadata(dst.join(&file)).expect("it is there").len());
        if wanted
            .entry(file.clone())
            .or_default()
            .insert(block_of(offset))
        {
            flip(&dst.join(&file), offset);
        }
    }
    let unseen = verify(&src, &dst).args(["--level", "meta"]).run().expect(0);
    assert_eq!(
        found(&unseen),
        BTreeMap::new(),
        "metadata shows nothing of it"
    );
    let outcome = verify(&src, &dst).run().expect(4);
    let got = found(&outcome);
    assert_eq!(
        got.keys().collect::<Vec<_>>(),
        wanted.keys().collect::<Vec<_>>()
    );
    for (path, blocks) in &wanted {
        let (kind, what, ranges) = &got[path];
        assert_eq!(
            (kind.as_str(), what.as_slice()),
            ("differs", &["content".to_owned()][..]),
            "{path}"
        );
        let told: BTreeSet<(u64, u64)> = ranges
            .iter()
            .flat_map(|(start, end)| (*start..*end).step_by(BLOCK as usize).map(block_of))
            .collect();
        assert_eq!(&told, blocks, "{path}");
    }
    let repair = verify(&src, &dst).arg("--repair").run().expect(0);
    let of_large = wanted["large"].len() as u64 * BLOCK;
    let of_small: u64 = (0..200).map(|file| (1 + file % 40) * BLOCK).sum();
    assert_eq!(
        repair.count("bytes_copied"),
        of_large + of_small,
        "of the large file only what differs is read"
    );
    check_equal(&src, &dst, "repaired");
    let _ = verify(&src, &dst).run().expect(0);
}

#[test]
fn every_difference_in_metadata_is_named_with_both_values() {
    let scratch = Scratch::new(FsKind::Ext4, 300);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    for name in [
        "mode", "owner", "group", "mtime", "xattr", "acl", "size", "gone", "kind", "linked",
        "alone", "empty",
    ] {
        put(&src.join("dir").join(name), "content");
    }
    put(&src.join("dir/first"), "linked");
    put(&src.join("pair/one"), "linked");
    for (first, further) in [("dir/first", "dir/second"), ("pair/one", "pair/two")] {
        fs::hard_link(src.join(first), src.join(further)).expect("link");
    }
    attrs::set_xattr(&src.join("dir/kind"), b"user.kind", b"x").expect("attribute");
    attrs::make_node(
        &src.join("device"),
        rustix::fs::FileType::CharacterDevice,
        1,
        3,
    )
    .expect("mknod");
    std::os::unix::fs::symlink("here", src.join("target")).expect("link");
    let _ = sync_ok(&src, &dst, NONE);
    let at = |name: &str| dst.join("dir").join(name);
    let run = |program: &str, arguments: &[&str], name: &str| {
        assert!(
            std::process::Command::new(program)
                .args(arguments)
                .arg(at(name))
                .status()
                .expect("it runs")
                .success(),
            "{program}"
        );
    };
    attrs::set_xattr(&src.join("dir/empty"), b"user.empty", b"").expect("attribute");
    fs::remove_file(dst.join("device")).expect("remove");
    attrs::make_node(
        &dst.join("device"),
        rustix::fs::FileType::CharacterDevice,
        1,
        5,
    )
    .expect("mknod");
    run("chmod", &["4711"], "mode");
    run("chown", &["1234"], "owner");
    run("chgrp", &["4321"], "group");
    run("touch", &["-d", "2001-02-03 04:05:06.7"], "mtime");
    run("setfattr", &["-n", "user.note", "-v", "value"], "xattr");
    run("setfacl", &["-m", "u:1234:r"], "acl");
    put(&at("size"), "longer content");
    for path in ["dir/gone", "dir/second", "pair/one", "pair/two"] {
        fs::remove_file(dst.join(path)).expect("remove");
    }
    fs::remove_file(at("kind"))
        .and_then(|()| fs::create_dir(at("kind")))
        .expect("directory");
    fs::remove_file(at("alone"))
        .and_then(|()| fs::hard_link(at("linked"), at("alone")))
        .expect("link");
    fs::remove_file(dst.join("target"))
        .and_then(|()| std::os::unix::fs::symlink("there", dst.join("target")))
        .expect("link");
    put(&dst.join("extra/below"), "x");
    let outcome = verify(&src, &dst).args(["--level", "meta"]).run().expect(4);
    let got = found(&outcome);
    let has = |path: &str, kind: &str, what: &str| {
        let (found_kind, found_what, _) = got
            .get(path)
            .unwrap_or_else(|| panic!("{path} was not found: {got:#?}"));
        assert_eq!(found_kind, kind, "{path}");
        assert!(
            what.is_empty() || found_what.iter().any(|word| word == what),
            "{path}: {found_what:?}"
        );
    };
    for (name, what) in [
        ("mode", "mode"),
        ("owner", "owner"),
        ("group", "group"),
        ("mtime", "mtime"),
        ("xattr", "xattrs"),
        ("acl", "xattrs"),
    ] {
        has(&format!("dir/{name}"), "differs", what);
    }
    has("dir/size", "differs", "size");
    has("dir/kind", "differs", "kind");
    has("dir/gone", "missing", "");
    // A further name of a group, and all names of another.
    for path in ["dir/second", "pair/one", "pair/two"] {
        has(path, "missing", "");
    }
    has("extra", "extra", "");
    has("target", "differs", "target");
    assert!(
        got.values()
            .any(|(_, what, _)| what.iter().any(|word| word == "links")),
        "the wrong link group: {got:#?}"
    );
    let shown = |path: &str, property: &str| {
        let event = outcome
            .events_named("difference")
            .into_iter()
            .find(|event| event["path"] == path)
            .expect("it was found");
        let values = event["values"].as_array().expect("a list").clone();
        let value = values
            .into_iter()
            .find(|value| value["property"] == property)
            .expect("it is named");
        ["source", "replica"].map(|side| value[side].as_str().expect("text").to_owned())
    };
    assert_eq!(shown("target", "target"), ["here", "there"]);
    assert_eq!(shown("dir/mode", "mode"), ["0644", "4711"]);
    assert_eq!(shown("dir/size", "size"), ["7", "14"]);
    assert_eq!(shown("dir/owner", "owner")[1], "1234");
    assert_eq!(
        shown("dir/xattr", "xattrs"),
        ["no user.note", "user.note=\"value\""]
    );
    assert_eq!(
        shown("dir/empty", "xattrs"),
        ["user.empty=\"\"", "no user.empty"]
    );
    assert_eq!(shown("dir/acl", "xattrs")[0], "no system.posix_acl_access");
    let acl = "system.posix_acl_access=user::rw-,user:1234:r--,group::r--,mask::r--,other::r--";
    assert_eq!(shown("dir/acl", "xattrs")[1], acl);
    let text = on_trees("verify", &src, &dst)
        .arg("--level=meta")
        .run()
        .expect(4);
    let text = text.stdout_text();
    for line in [
        "mode: 0644, replica 4711",
        "device: 1:3, replica 1:5",
        "target: here, replica there",
        "kind: file, replica dir",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let lacks_a_value = |line: &&str| {
        line.ends_with("replica ")
            || [": ,", " ;", "replica ;"]
                .iter()
                .any(|hole| line.contains(hole))
    };
    assert_eq!(text.lines().find(lacks_a_value), None, "{text}");
    let _ = verify(&src, &dst)
        .args(["--repair", "--delete"])
        .run()
        .expect(0);
    check_equal(&src, &dst, "repaired");
}

/// Where each block of the files lies in the image beneath the file system, by the first bytes of
/// the block.
fn blocks_of_image(image: &Path) -> HashMap<[u8; 16], u64> {
    let file = File::open(image).expect("open");
    let len = file.metadata().expect("size").len();
    let mut piece = vec![0; 1 << 20];
    let mut found = HashMap::new();
    for at in (0..len).step_by(1 << 20) {
        let got = file.read_at(&mut piece, at).expect("read");
        for (number, block) in piece[..got]
            .chunks(BLOCK as usize)
            .enumerate()
            .filter(|(_, block)| block[..16] != [0; 16])
        {
            found.insert(
                block[..16].try_into().expect("16 bytes"),
                at + number as u64 * BLOCK,
            );
        }
    }
    found
}

/// Inverts a byte of the image beneath a mounted file system.
fn flip_beneath(image: &Path, offset: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(image)
        .expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[!byte[0]], offset).expect("write");
}

fn check_medium(kind: FsKind) {
    const FILES: u64 = 100;
    let (source, replica) = (Scratch::new(FsKind::Tmpfs, 300), Scratch::new(kind, 400));
    let (src, dst) = (source.dir("src"), replica.path().join("dst"));
    (0..FILES).for_each(|file| put(&src.join(format!("f{file}")), content(file, 2 + file % 30)));
    put(&src.join("large"), content(FILES, 17_000));
    let _ = sync_ok(&src, &dst, NONE);
    let mut rng = fastrand::Rng::with_seed(99);
    let mut wanted = BTreeMap::new();
    let beneath = blocks_of_image(&replica.image());
    for (file, name) in (0..FILES)
        .map(|file| (file, format!("f{file}")))
        .chain([(FILES, "large".to_owned())])
    {
        let bytes = fs::read(src.join(&name)).expect("read");
        let block = rng.u64(..bytes.len() as u64 / BLOCK);
        let start = bytes[(block * BLOCK) as usize..][..16]
            .try_into()
            .expect("16 bytes");
        let place: &u64 = beneath
            .get::<[u8; 16]>(&start)
            .unwrap_or_else(|| panic!("{kind:?}: file {file} is not in the image"));
        // The file system still holds the right bytes in its cache.
        fs::read(dst.join(&name)).expect("read");
        flip_beneath(&replica.image(), place + rng.u64(..BLOCK));
        wanted.insert(name, vec![(block * BLOCK, (block + 1) * BLOCK)]);
    }
    // A machine that is short of memory may have let go of a few pages.
    let cached = found(&verify(&src, &dst).run());
    assert!(
        cached.len() < wanted.len() / 2 && cached.keys().all(|path| wanted.contains_key(path)),
        "{kind:?}: the cache hides it: {cached:?}"
    );
    let got = found(
        &verify(&src, &dst)
            .args(["--level", "media"])
            .run()
            .expect(4),
    );
    let places: BTreeMap<String, Vec<(u64, u64)>> = got
        .into_iter()
        .map(|(path, (_, _, ranges))| (path, ranges))
        .collect();
    assert_eq!(places, wanted, "{kind:?}");
    let _ = verify(&src, &dst)
        .args(["--level", "media", "--repair"])
        .run()
        .expect(0);
    let _ = verify(&src, &dst)
        .args(["--level", "media"])
        .run()
        .expect(0);
    check_equal(&src, &dst, "repaired");
}

#[test]
fn what_a_medium_lost_is_found_and_mended_on_ext4() {
    check_medium(FsKind::Ext4);
}

#[test]
fn what_a_medium_lost_is_found_and_mended_on_xfs() {
    check_medium(FsKind::Xfs);
}

#[test]
fn what_a_medium_lost_is_found_and_mended_on_btrfs() {
    check_medium(FsKind::Btrfs);
}

#[test]
fn an_interrupted_verification_goes_on_and_says_the_same() {
    let scratch = Scratch::new(FsKind::Tmpfs, 300);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    (0..400).for_each(|file| {
        put(
            &src.join(format!("d{}/f{file}", file % 9)),
            content(file, 25),
        )
    });
    let _ = sync_ok(&src, &dst, NONE);
    for file in (0..400).step_by(17) {
        flip(&dst.join(format!("d{}/f{file}", file % 9)), file * 7);
    }
    let whole = found(
        &verify(&src, &dst)
            .env("XDG_STATE_HOME", scratch.path().join("other"))
            .run()
            .expect(4),
    );
    let slow = verify(&src, &dst).args(["--bwlimit", "20M"]).spawn();
    assert!(
        !slow.ends_within(Duration::from_millis(900)),
        "it was over too soon"
    );
    slow.signal(Signal::INT);
    let stopped = slow.wait();
    assert_eq!(stopped.code(), 130, "{}", stopped.describe());
    let rest = verify(&src, &dst).run().expect(4);
    assert!(rest.count("known_equal") > 5, "{}", rest.describe());
    assert!(
        rest.count("bytes_compared") < 400 * 25 * BLOCK,
        "{}",
        rest.describe()
    );
    assert_eq!(found(&rest), whole);
    let again = verify(&src, &dst).run().expect(4);
    assert_eq!(
        again.count("known_equal"),
        0,
        "a verification that came to its end leaves nothing\n{}",
        again.describe()
    );
}

#[test]
fn notes_of_an_interrupted_verification_grow_old() {
    let scratch = Scratch::new(FsKind::Tmpfs, 300);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    (0..200).for_each(|file| put(&src.join(format!("f{file}")), content(file, 25)));
    let _ = sync_ok(&src, &dst, NONE);
    let interrupted = |within: &str| {
        let slow = verify(&src, &dst)
            .args(["--bwlimit", "10M", "--resume-within", within])
            .spawn();
        assert!(
            !slow.ends_within(Duration::from_millis(900)),
            "it was over too soon"
        );
        slow.signal(Signal::INT);
        slow.wait().expect(130)
    };
    let _ = interrupted("1d");
    let noted = Instant::now();
    wait_until("a clock of seconds goes on", || {
        noted.elapsed() > Duration::from_millis(2100)
    });
    assert_eq!(interrupted("1s").count("known_equal"), 0);
    let used = verify(&src, &dst).run().expect(0);
    let oldest = used.count("oldest_note_seconds");
    assert!(
        used.count("known_equal") > 0 && (1..1000).contains(&oldest),
        "{}",
        used.describe()
    );
}

#[test]
fn an_interrupted_verification_of_a_large_file_goes_on_within_it() {
    let scratch = Scratch::new(FsKind::Tmpfs, 600);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("large"), content(3, 40_000));
    let _ = sync_ok(&src, &dst, NONE);
    [5_000_000, 150_000_000]
        .into_iter()
        .for_each(|offset| flip(&dst.join("large"), offset));
    let slow = verify(&src, &dst).args(["--bwlimit", "60M"]).spawn();
    assert!(
        !slow.ends_within(Duration::from_millis(1200)),
        "it was over too soon"
    );
    slow.signal(Signal::INT);
    assert_eq!(slow.wait().code(), 130);
    let rest = verify(&src, &dst).run().expect(4);
    assert!(
        rest.count("bytes_compared") < 40_000 * BLOCK - (16 << 20),
        "{}",
        rest.describe()
    );
    assert_eq!(
        found(&rest)["large"].2,
        [block_of(5_000_000), block_of(150_000_000)]
    );
}

#[test]
fn what_changed_since_an_interrupted_verification_is_compared_again() {
    let scratch = Scratch::new(FsKind::Tmpfs, 300);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    (0..200).for_each(|file| put(&src.join(format!("f{file}")), content(file, 50)));
    let _ = sync_ok(&src, &dst, NONE);
    let killed = verify(&src, &dst).args(["--bwlimit", "8M"]).spawn();
    let ledger = dst.with_file_name("state").join("driftless");
    wait_until("something is noted", || {
        fs::read_dir(&ledger).is_ok_and(|mut entries| entries.next().is_some())
    });
    std::thread::sleep(Duration::from_millis(300));
    killed.signal(Signal::KILL);
    let _ = killed.wait();
    (0..200).for_each(|file| flip(&dst.join(format!("f{file}")), file));
    assert_eq!(found(&verify(&src, &dst).run().expect(4)).len(), 200);
}

/// `strace` that makes the n-th write of each thread a lie: it returns as if it had written.
fn lying(bytes: u64, when: &str) -> Vec<String> {
    let inject = format!("inject=pwrite64:retval={bytes}:when={when}");
    let words = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=pwrite64",
        "-e",
        &inject,
        "--",
    ];
    words.map(str::to_owned).to_vec()
}

#[test]
fn a_write_that_never_happened_is_noticed_and_made_good() {
    only_local!("has calls of one process lie");
    let scratch = Scratch::new(FsKind::Ext4, 600);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    (0..60).for_each(|file| put(&src.join(format!("d/f{file}")), content(file, 1)));
    let silent = sync(&src, &dst).through(lying(BLOCK, "5")).run().expect(0);
    assert!(
        !compare(&src, &dst, &Options::default()).is_empty(),
        "the control: without --verify it goes unnoticed\n{}",
        silent.describe()
    );
    for level in ["content", "media"] {
        driftless_testkit::remove_deep(&dst).expect("remove");
        let outcome = sync(&src, &dst)
            .arg(format!("--verify={level}"))
            .through(lying(BLOCK, "5"))
            .run()
            .expect(0);
        assert!(outcome.count("mismatched") > 0, "{}", outcome.describe());
        check_equal(&src, &dst, level);
    }
    driftless_testkit::remove_deep(&dst).expect("remove");
    let never = sync(&src, &dst)
        .arg("--verify")
        .through(lying(BLOCK, "1+"))
        .run()
        .expect(3);
    assert!(
        never.describe().contains("read back"),
        "{}",
        never.describe()
    );
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "a failed file never looks done");
}

#[test]
fn a_lost_block_of_a_large_file_is_noticed_and_made_good() {
    only_local!("has calls of one process lie");
    let scratch = Scratch::new(FsKind::Tmpfs, 600);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("large"), content(5, 20_000));
    let outcome = sync(&src, &dst)
        .args(["--verify", "--jobs=1"])
        .through(lying(256 * 1024, "3"))
        .run()
        .expect(0);
    assert!(outcome.count("mismatched") > 0, "{}", outcome.describe());
    check_equal(&src, &dst, "made good");
}

#[test]
fn a_verified_copy_of_a_hostile_tree_is_equal() {
    for kind in FsKind::ALL {
        let scratch = Scratch::new(kind, 300);
        let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
        build_tree(&src, 33, &Profile::small());
        let outcome = sync_ok(&src, &dst, ["--verify=media"]);
        assert_eq!(outcome.count("mismatched"), 0, "{kind:?}");
        check_equal(&src, &dst, "verified");
    }
}

#[test]
fn a_file_that_is_younger_on_the_replica_is_told_by_its_time_alone() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    let _ = sync_ok(&src, &dst, NONE);
    File::options()
        .write(true)
        .open(dst.join("file"))
        .and_then(|file| file.set_modified(SystemTime::UNIX_EPOCH))
        .expect("time");
    let got = found(&verify(&src, &dst).run().expect(4));
    assert_eq!(
        got["file"].1,
        ["mtime"],
        "the content was compared and is the same"
    );
}

#[test]
fn a_group_of_links_whose_content_differs_is_still_a_group() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("a"), content(1, 3));
    ["b", "c", "d"]
        .iter()
        .for_each(|name| fs::hard_link(src.join("a"), src.join(name)).expect("link"));
    let _ = sync_ok(&src, &dst, NONE);
    flip(&dst.join("b"), 5000);
    let got = found(&verify(&src, &dst).arg("--jobs=1").run().expect(4));
    assert_eq!(got.len(), 1, "one inode, one difference: {got:?}");
    assert!(
        got.values().all(|(_, what, _)| what == &["content"]),
        "{got:?}"
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    let missing = on_trees("verify", &src, &dst).run().expect(1);
    assert!(
        missing.stderr_text().contains("no such replica"),
        "{}",
        missing.describe()
    );
    assert!(!dst.exists());
    let _ = on_trees("verify", &src, &dst)
        .arg("--delete")
        .run()
        .expect(2);
    fs::create_dir(&dst).expect("directory");
    let empty = verify(&scratch.dir("nothing"), &dst).run();
    assert_eq!(empty.count("failed"), 0, "{}", empty.describe());
    put(&dst.join("only here"), "x");
    let got = found(
        &verify(&scratch.path().join("nothing"), &dst)
            .run()
            .expect(4),
    );
    assert_eq!(
        got.get("only here").map(|(kind, ..)| kind.as_str()),
        Some("extra"),
        "an empty source is no reason to refuse: {got:?}"
    );
    let file: PathBuf = src.join("file");
    put(&scratch.path().join("copy"), "Content");
    fs::File::options()
        .write(true)
        .open(scratch.path().join("copy"))
        .and_then(|copy| copy.set_modified(fs::metadata(&file)?.modified()?))
        .expect("time");
    let single = found(&verify(&file, &scratch.path().join("copy")).run().expect(4));
    assert_eq!(
        single.len(),
        1,
        "a single file is compared with a single file: {single:?}"
    );
}
