//! What is not kept here is told once a kind, with a number; and what the root of the replica is
//! about to become.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{Far, Way, Who};
use common::flags::chattr;
use common::{
    USER, check_accounts, check_equal, count_entries, leftovers, on_trees, on_trees_by_user,
    only_local, problems, put, sync, sync_by_user, sync_ok, verify,
};
use driftless_testkit::fuse::Op;
use driftless_testkit::{FsKind, Fuse, Mood, Outcome, Rule, Scratch, attrs, snapshot_hash};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const NONE: [&str; 0] = [];

/// Entries of root and of user 1234, a program with set-id bits, a file of USER; and a replica that
/// belongs to USER.
fn stage(scratch: &Scratch) -> (PathBuf, PathBuf) {
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    for name in ["a", "dir/b", "dir/program", "own"] {
        put(&src.join(name), name);
    }
    attrs::set_owner(&src.join("dir"), 1234, 1234).expect("chown");
    attrs::set_owner(&src.join("own"), USER, USER).expect("chown");
    attrs::set_mode(&src.join("dir/program"), 0o6755).expect("chmod");
    attrs::set_owner(&dst, USER, USER).expect("chown");
    (src, dst)
}

fn as_user(src: &Path, dst: &Path, arguments: &[&str], code: i32) -> Outcome {
    let outcome = sync_by_user(src, dst).args(arguments).run().expect(code);
    check_accounts(&outcome);
    outcome
}

#[test]
fn an_ordinary_user_is_told_once_that_owners_are_not_kept() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = stage(&scratch);
    let foreign = count_entries(&src) - 1;
    let first = as_user(&src, &dst, &[], 0);
    assert_eq!(
        first.count("unkept_owners"),
        foreign,
        "{}",
        first.describe()
    );
    assert_eq!(
        first.events_named("problem").len(),
        0,
        "{}",
        first.describe()
    );
    assert_eq!(
        std::fs::metadata(dst.join("dir/program"))
            .expect("stat")
            .mode()
            & 0o7777,
        0o755
    );

    let before = snapshot_hash(&dst, true);
    let second = as_user(&src, &dst, &["--delete"], 0);
    assert_eq!(
        [second.count("unkept_owners"), second.count("changed")],
        [foreign, 0],
        "{}",
        second.describe()
    );
    let words = on_trees_by_user("sync", &src, &dst)
        .run()
        .expect(0)
        .stderr_text();
    assert!(
        words.contains(&format!(
            "not kept here: the owners of {foreign} entries, which only root can give"
        )),
        "{words}"
    );
    let _ = on_trees_by_user("verify", &src, &dst).run().expect(0);
    let _ = on_trees_by_user("audit", &src, &dst)
        .args(["--samples=100", "--grace=0"])
        .run()
        .expect(0);
    assert_eq!(
        snapshot_hash(&dst, true),
        before,
        "a second run touched the replica"
    );
}

#[test]
fn the_time_of_somebody_elses_root_that_a_lock_has_touched_is_a_problem() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    put(&src.join("own/f"), "f");
    put(&dst.join("own/g"), "g");
    attrs::set_owner(&dst, 1234, USER).expect("chown");
    attrs::set_owner(&dst.join("own"), USER, USER).expect("chown");
    for root in [&src, &dst] {
        attrs::set_mode(root, 0o777).expect("chmod");
        attrs::set_mtime(root, 1_000_000_000, 0).expect("utimensat");
    }
    let outcome = as_user(&src, &dst, &["--no-owner", "--no-group"], 3);
    let told = outcome.events_named("problem");
    assert_eq!(told.len(), 1, "{}", outcome.describe());
    assert_eq!(
        [&told[0]["path"], &told[0]["class"]],
        [".", "partly"],
        "{}",
        outcome.describe()
    );
}

#[test]
fn owners_that_are_demanded_are_problems_and_strict_ends_with_their_exit_code() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = stage(&scratch);
    let strict = as_user(&src, &dst, &["--strict"], 3);
    assert_eq!(
        [
            strict.events_named("problem").len() as u64,
            strict.count("unkept_owners")
        ],
        [0, 5]
    );
    let demanded = as_user(&src, &dst, &["--owner"], 3);
    assert_eq!(
        [
            demanded.events_named("problem").len() as u64,
            demanded.count("unkept_owners")
        ],
        [5, 0],
        "{}",
        demanded.describe()
    );
    let _ = as_user(&src, &dst, &["--strict", "--no-owner", "--no-group"], 0);
}

#[test]
fn an_ordinary_users_changes_are_found_though_owners_are_not_kept() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = stage(&scratch);
    let _ = as_user(&src, &dst, &[], 0);
    put(&src.join("a"), "longer than before");
    attrs::set_mode(&src.join("dir/b"), 0o640).expect("chmod");
    let outcome = as_user(&src, &dst, &[], 0);
    assert_eq!(outcome.count("unkept_owners"), 5, "{}", outcome.describe());
    assert_eq!(
        std::fs::read_to_string(dst.join("a")).expect("read"),
        "longer than before"
    );
    assert_eq!(
        std::fs::metadata(dst.join("dir/b")).expect("stat").mode() & 0o7777,
        0o600,
        "the group is another one, and gets no more than others"
    );
}

#[test]
fn problems_of_one_kind_are_listed_once_with_their_number() {
    let source = Scratch::new(FsKind::Tmpfs, 16);
    let replica = Fuse::mount(Mood::bare());
    let (src, dst) = (source.dir("src"), replica.path().join("dst"));
    for number in 0..5 {
        put(&src.join(format!("f{number}")), "x");
        attrs::set_xattr(&src.join(format!("f{number}")), b"user.note", b"y").expect("setxattr");
    }
    let run = || {
        on_trees("sync", &src, &dst)
            .arg("--jobs=1")
            .run()
            .expect(3)
            .stderr_text()
    };
    let first = run();
    assert!(first.contains("driftless: 5 problems:\n"), "{first}");
    assert_eq!(
        first
            .lines()
            .filter(|line| line.contains("set an extended attribute of it"))
            .count(),
        1,
        "{first}"
    );
    assert!(first.contains("; the same for 4 more"), "{first}");
    let changed = || {
        std::fs::metadata(dst.join("f0"))
            .map(|meta| (meta.ctime(), meta.ctime_nsec()))
            .expect("stat")
    };
    let before = changed();
    assert!(run().contains("; the same for 4 more"));
    assert_eq!(
        changed(),
        before,
        "a run that can do nothing touched a file"
    );
}

#[test]
fn what_the_root_of_the_replica_becomes_is_said_where_it_is_more_than_a_directory_of_the_tree() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let src = scratch.dir("src");
    put(&src.join("f"), "x");
    attrs::set_mode(&src, 0o700).expect("chmod");
    let sticky = scratch.dir("sticky");
    attrs::set_mode(&sticky, 0o1777).expect("chmod");
    let mounted = Scratch::new(FsKind::Tmpfs, 16);
    let plain = scratch.dir("plain");
    let told = |dst: &Path, arguments: &[&str]| {
        let outcome = sync(&src, dst).args(arguments).run().expect(0);
        outcome
            .events_named("note")
            .iter()
            .map(|note| note["message"].as_str().expect("text").to_owned())
            .collect::<Vec<_>>()
    };
    let of_sticky = "the root of the replica, in which everybody may make files, takes over from the source: mode 0700 (is 1777)";
    assert_eq!(told(&sticky, &["--dry-run"]), [of_sticky]);
    assert_eq!(told(&sticky, &["--no-mode"]), NONE);
    assert_eq!(told(&sticky, &[]), [of_sticky]);
    assert_eq!(told(&sticky, &[]), NONE);
    let of_mount = "the root of the replica, on which a file system is mounted, takes over from the source: mode 0700 (is 0755)";
    assert_eq!(told(mounted.path(), &[]), [of_mount]);
    assert_eq!(told(&plain, &[]), NONE);
    let _ = sync_ok(&src, &plain, NONE);
}

#[test]
fn hard_links_of_somebody_else_stay_links_for_an_ordinary_user() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    attrs::set_owner(&dst, USER, USER).expect("chown");
    put(&src.join("a"), "of root");
    std::fs::hard_link(src.join("a"), src.join("a2")).expect("link");
    let _ = as_user(&src, &dst, &[], 0);
    let _ = as_user(&src, &dst, &[], 0);
    std::fs::hard_link(src.join("a"), src.join("a3")).expect("link");
    let _ = as_user(&src, &dst, &[], 0);
    assert_eq!(std::fs::metadata(dst.join("a3")).expect("look").nlink(), 3);
    let _ = on_trees_by_user("verify", &src, &dst).run().expect(0);
}

#[test]
fn what_belongs_to_somebody_else_is_made_anew_where_it_should_be_the_users_own() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    for path in [&src, &dst] {
        attrs::set_owner(path, USER, USER).expect("chown");
    }
    put(&src.join("a"), "content");
    attrs::set_owner(&src.join("a"), USER, USER).expect("chown");
    let _ = as_user(&src, &dst, &[], 0);
    attrs::set_owner(&dst.join("a"), 5, 5).expect("chown");
    let outcome = as_user(&src, &dst, &[], 0);
    assert_eq!(
        std::fs::metadata(dst.join("a")).expect("look").uid(),
        USER,
        "{}",
        outcome.describe()
    );
    assert_eq!(as_user(&src, &dst, &[], 0).count("changed"), 0);
}

#[test]
fn set_id_bits_are_kept_with_the_user_or_group_that_they_stand_for() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    attrs::set_owner(&dst, USER, USER).expect("chown");
    let rows = [
        ("group", 0, USER, 0o2755),
        ("user", USER, 1234, 0o4755),
        ("neither", 0, 1234, 0o755),
        ("both", USER, USER, 0o6755),
    ];
    for (name, uid, gid, _) in rows {
        put(&src.join(name), name);
        std::fs::create_dir(src.join(name.to_owned() + "-dir")).expect("make");
        for path in [src.join(name), src.join(name.to_owned() + "-dir")] {
            attrs::set_owner(&path, uid, gid).expect("chown");
            attrs::set_mode(&path, 0o6755).expect("chmod");
        }
    }
    let check = |when: &str| {
        for (name, _, _, wanted) in rows {
            for name in [name.to_owned(), name.to_owned() + "-dir"] {
                let made = std::fs::metadata(dst.join(&name)).expect("look");
                assert_eq!(
                    (
                        made.uid(),
                        made.gid(),
                        format!("{:o}", made.mode() & 0o7777)
                    ),
                    (USER, USER, format!("{wanted:o}")),
                    "{when}: {name}"
                );
            }
        }
    };
    let _ = as_user(&src, &dst, &[], 0);
    check("made");
    let before = snapshot_hash(&dst, true);
    assert_eq!(as_user(&src, &dst, &["--checksum"], 0).count("changed"), 0);
    assert_eq!(as_user(&src, &dst, &[], 0).count("changed"), 0);
    assert_eq!(
        snapshot_hash(&dst, true),
        before,
        "a second run touched the replica"
    );
    for (name, ..) in rows {
        attrs::set_mode(&dst.join(name), 0o755).expect("chmod");
        attrs::set_mode(&dst.join(name.to_owned() + "-dir"), 0o755).expect("chmod");
    }
    let _ = as_user(&src, &dst, &[], 0);
    check("mended");
}

/// A replica of USER's in which a directory belongs to user 5, who lets all write to it.
fn with_a_foreign_directory(scratch: &Scratch) -> (PathBuf, PathBuf) {
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    put(&src.join("dir/file"), "content");
    attrs::set_mode(&src.join("dir"), 0o777).expect("chmod");
    for path in [&src, &src.join("dir"), &src.join("dir/file"), &dst] {
        attrs::set_owner(path, USER, USER).expect("chown");
    }
    let _ = as_user(&src, &dst, &[], 0);
    attrs::set_owner(&dst.join("dir"), 5, 5).expect("chown");
    (src, dst)
}

#[test]
fn a_directory_that_is_somebody_elses_stays_so_and_is_told_as_not_kept() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = with_a_foreign_directory(&scratch);
    for _ in 0..2 {
        let outcome = as_user(&src, &dst, &[], 0);
        assert_eq!(
            [outcome.count("unkept_owners"), outcome.count("changed")],
            [1, 0],
            "{}",
            outcome.describe()
        );
    }
    let _ = as_user(&src, &dst, &["--strict"], 3);
    let demanded = as_user(&src, &dst, &["--owner"], 3);
    assert_eq!(
        demanded.events_named("problem").len(),
        1,
        "{}",
        demanded.describe()
    );
    let _ = on_trees_by_user("verify", &src, &dst).run().expect(0);
}

#[test]
fn what_cannot_be_set_on_somebody_elses_directory_is_a_problem_in_every_run() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = with_a_foreign_directory(&scratch);
    attrs::set_mode(&src.join("dir"), 0o755).expect("chmod");
    for _ in 0..2 {
        let outcome = as_user(&src, &dst, &[], 3);
        let problems = outcome.events_named("problem");
        assert_eq!(problems.len(), 1, "{}", outcome.describe());
        assert_eq!(
            (problems[0]["path"].as_str(), problems[0]["act"].as_str()),
            (Some("dir"), Some("set its mode")),
            "{}",
            outcome.describe()
        );
    }
}

#[test]
fn a_file_that_belongs_to_whom_its_directory_belongs_to_is_not_made_anew_in_every_run() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = with_a_foreign_directory(&scratch);
    attrs::set_owner(&dst.join("dir/file"), 5, 5).expect("chown");
    for _ in 0..2 {
        let outcome = as_user(&src, &dst, &[], 0);
        assert_eq!(
            [outcome.count("unkept_owners"), outcome.count("changed")],
            [2, 0],
            "{}",
            outcome.describe()
        );
    }
}

/// What is told as not kept, and the line for a person.
fn told_unkept(src: &Path, dst: &Path, arguments: &[&str]) -> (Vec<(String, String)>, String) {
    let outcome = sync(src, dst).args(arguments).run().expect(0);
    check_accounts(&outcome);
    let told = outcome
        .events_named("unkept")
        .into_iter()
        .map(|event| (event["what"].to_string(), event["path"].to_string()));
    let told = told.collect();
    let words = on_trees("sync", src, dst)
        .args(arguments)
        .run()
        .expect(0)
        .stderr_text();
    (
        told,
        words
            .lines()
            .filter(|line| line.contains("not kept here"))
            .collect::<Vec<_>>()
            .join("\n"),
    )
}

#[test]
fn inode_flags_are_named_once_with_their_number_and_an_example() {
    let (source, replica) = (
        Scratch::new(FsKind::Ext4, 16),
        Scratch::new(FsKind::Tmpfs, 16),
    );
    let src = source.dir("src");
    for name in ["frozen", "dir/log", "plain", "large"] {
        put(&src.join(name), name);
    }
    std::fs::File::options()
        .write(true)
        .open(src.join("large"))
        .and_then(|file| file.set_len(40 << 20))
        .expect("set length");
    std::fs::create_dir(src.join("cache")).expect("make");
    for (flag, name) in [
        ("+i", "frozen"),
        ("+a", "dir/log"),
        ("+d", "cache"),
        ("+d", "large"),
    ] {
        chattr(flag, &src.join(name));
    }
    let dst = replica.path().join("dst");
    let first = sync(&src, &dst).arg("--jobs=1").run().expect(0);
    let second = sync(&src, &dst).run().expect(0);
    for outcome in [&first, &second] {
        check_accounts(outcome);
        assert_eq!(outcome.count("unkept_flags"), 4, "{}", outcome.describe());
        let words: String = outcome
            .events_named("unkept")
            .iter()
            .map(|event| event["what"].to_string())
            .collect();
        assert!(
            ["immutable", "append-only", "no dump"]
                .iter()
                .all(|word| words.contains(word)),
            "{words}"
        );
        assert!(
            outcome.events_named("unkept").len() <= 3,
            "each kind is told once\n{}",
            outcome.describe()
        );
    }
    assert_eq!(second.count("changed"), 0);
    let (_, line) = told_unkept(&src, &dst, &[]);
    assert!(
        line.contains(
            "not kept here: inode flags (immutable, append-only, no dump) of 4 entries, such as \""
        ),
        "{line}"
    );
    let strict = sync(&src, &dst).arg("--strict").run().expect(3);
    assert_eq!(
        strict.events_named("problem").len(),
        0,
        "{}",
        strict.describe()
    );
    let verified = on_trees("verify", &src, &dst).run().expect(0).stderr_text();
    assert!(
        verified.contains("not kept here: inode flags"),
        "{verified}"
    );

    let far = Far::root();
    for way in Way::ALL {
        let dst = replica.path().join(format!("{way:?}"));
        let outcome = far.sync_ok(way, &src, &dst, NONE);
        assert_eq!(
            outcome.count("unkept_flags"),
            4,
            "{way:?}: {}",
            outcome.describe()
        );
        let outcome = far.sync_ok(way, &src, &dst, NONE);
        assert_eq!(
            outcome.count("unkept_flags"),
            4,
            "{way:?} again: {}",
            outcome.describe()
        );
    }
    for (flag, name) in [("-i", "frozen"), ("-a", "dir/log")] {
        chattr(flag, &src.join(name));
    }
}

#[test]
fn a_flag_that_the_replica_has_too_is_not_missing() {
    let scratch = Scratch::new(FsKind::Ext4, 16);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    for dir in [&src, &dst] {
        chattr("+d", dir);
    }
    put(&src.join("dir/file"), "content");
    for _ in 0..2 {
        let outcome = sync_ok(&src, &dst, NONE);
        assert_eq!(outcome.count("unkept_flags"), 0, "{}", outcome.describe());
    }
}

#[test]
fn acls_of_other_kinds_are_named_once_a_kind() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    for name in ["dir/a", "dir/b", "c"] {
        put(&src.join(name), name);
    }
    for name in ["dir/a", "dir/b", "dir"] {
        attrs::set_xattr(&src.join(name), b"security.NTACL", b"rights").expect("setxattr");
    }
    for arguments in [&["--jobs=1"][..], &[]] {
        let (told, line) = told_unkept(&src, &dst, arguments);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            line.contains("not kept here: Samba's NT ACLs of 3 entries, such as \"dir"),
            "{line}"
        );
    }
    assert_eq!(
        told_unkept(&src, &dst, &["--no-acls"]),
        (vec![], String::new())
    );
    let _ = sync(&src, &dst).arg("--strict").run().expect(3);
}

#[test]
fn what_is_immutable_on_the_replica_is_told_to_be_so() {
    let scratch = Scratch::new(FsKind::Ext4, 16);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    for name in ["frozen", "log", "dir/file"] {
        put(&src.join(name), name);
    }
    let _ = sync_ok(&src, &dst, NONE);
    for name in ["frozen", "log", "dir/file"] {
        put(&src.join(name), "longer than before");
    }
    let flags = [("i", "frozen"), ("a", "log"), ("i", "dir")];
    flags
        .iter()
        .for_each(|(flag, name)| chattr(&format!("+{flag}"), &dst.join(name)));
    let outcome = sync(&src, &dst).run().expect(3);
    check_accounts(&outcome);
    for (path, cause) in [
        ("frozen", "it is immutable"),
        ("log", "it is append-only"),
        ("dir/file", "its directory is immutable"),
    ] {
        let problems = outcome
            .events_named("problem")
            .into_iter()
            .filter(|problem| problem["path"] == path);
        let causes: Vec<String> = problems
            .map(|problem| problem["cause"].to_string())
            .collect();
        assert!(
            causes.len() == 1 && causes[0].contains(cause),
            "{path}: {causes:?}"
        );
    }
    flags
        .iter()
        .for_each(|(flag, name)| chattr(&format!("-{flag}"), &dst.join(name)));
    let _ = sync_ok(&src, &dst, NONE);
}

/// A capability to open any port, as the kernel keeps it (linux/capability.h,
/// `VFS_CAP_REVISION_2`).
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn an_ordinary_users_file_with_a_capability_is_not_made_anew_in_every_run() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    put(&src.join("ping"), "content");
    for path in [&src, &src.join("ping"), &dst] {
        attrs::set_owner(path, USER, USER).expect("chown");
    }
    attrs::set_xattr(&src.join("ping"), b"security.capability", &CAPABILITY).expect("setxattr");
    let first = as_user(&src, &dst, &[], 0);
    assert_eq!(first.count("unkept_privileges"), 1, "{}", first.describe());
    let made = std::fs::metadata(dst.join("ping")).expect("look").ino();
    for arguments in [&[][..], &["--checksum"]] {
        let again = as_user(&src, &dst, arguments, 0);
        assert_eq!(
            [again.count("unkept_privileges"), again.count("changed")],
            [1, 0],
            "{}",
            again.describe()
        );
    }
    assert_eq!(
        std::fs::metadata(dst.join("ping")).expect("look").ino(),
        made,
        "it was made anew"
    );
    let _ = as_user(&src, &dst, &["--strict"], 3);
    let _ = on_trees_by_user("verify", &src, &dst).run().expect(0);
    let kept = sync_ok(&src, &scratch.path().join("kept"), NONE);
    assert_eq!(kept.count("unkept_privileges"), 0, "root gives it");
}

#[test]
fn a_capability_that_only_the_replica_has_is_a_difference_to_an_ordinary_user_too() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    put(&src.join("ping"), "content");
    for path in [&src, &src.join("ping"), &dst] {
        attrs::set_owner(path, USER, USER).expect("chown");
    }
    let _ = as_user(&src, &dst, &[], 0);
    attrs::set_xattr(&dst.join("ping"), b"security.capability", &CAPABILITY).expect("setxattr");
    let _ = on_trees_by_user("verify", &src, &dst).run().expect(4);
}

#[test]
fn what_one_cause_does_to_one_path_is_told_once() {
    let source = Scratch::new(FsKind::Tmpfs, 16);
    let replica = Fuse::mount(Mood::bare());
    let (src, dst) = (source.dir("src"), replica.path().join("dst"));
    std::fs::create_dir(src.join("dir")).expect("make");
    for name in [&b"user.one"[..], b"user.two"] {
        attrs::set_xattr(&src.join("dir"), name, b"value").expect("setxattr");
    }
    let outcome = sync(&src, &dst).run().expect(3);
    check_accounts(&outcome);
    assert_eq!(
        outcome.events_named("problem").len(),
        1,
        "{}",
        outcome.describe()
    );
}

/// A file of an ordinary user on both sides, of two names if it is `linked`, with these
/// capabilities (none if it is empty). The source's may be read by all.
fn with_capabilities(
    linked: bool,
    [of_source, of_replica]: [&[u8]; 2],
) -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    for (root, mode, value) in [(&src, 0o755, of_source), (&dst, 0o700, of_replica)] {
        let file = root.join("ping");
        put(&file, "content");
        attrs::set_owner(root, USER, USER).expect("chown");
        attrs::set_owner(&file, USER, USER).expect("chown");
        attrs::set_mode(&file, mode).expect("chmod");
        attrs::set_mtime(&file, 1_000_000_000, 0).expect("utimens");
        if linked {
            std::fs::hard_link(&file, root.join("ping2")).expect("link");
        }
        if !value.is_empty() {
            attrs::set_xattr(&file, b"security.capability", value).expect("setxattr");
        }
    }
    (scratch, src, dst)
}

#[test]
fn an_ordinary_users_file_with_a_capability_that_is_not_the_sources_is_made_anew_without_it() {
    let wide = attrs::capability_blob(1 << 21 | 1 << 7);
    let far = Far::of(Who::User);
    for of_source in [&CAPABILITY[..], &[]] {
        for (linked, over_a_line) in [(false, false), (true, false), (false, true)] {
            let when = format!(
                "{} bytes, linked: {linked}, over a line: {over_a_line}",
                of_source.len()
            );
            let (_scratch, src, dst) = with_capabilities(linked, [of_source, &wide]);
            let _ = on_trees_by_user("verify", &src, &dst).run().expect(4);
            let before = std::fs::metadata(dst.join("ping")).expect("look").ino();
            let run = || {
                if over_a_line {
                    far.sync_ok(Way::Push, &src, &dst, NONE)
                } else {
                    as_user(&src, &dst, &[], 0)
                }
            };
            let lacking = u64::from(!of_source.is_empty());
            let first = run();
            let made = std::fs::metadata(dst.join("ping")).expect("look");
            assert_ne!(made.ino(), before, "{when}: {}", first.describe());
            assert_eq!(
                attrs::get_xattr(&dst.join("ping"), b"security.capability").expect("getxattr"),
                None,
                "{when}"
            );
            assert_eq!(
                (made.mode() & 0o7777, made.nlink()),
                (0o755, 1 + u64::from(linked)),
                "{when}"
            );
            assert_eq!(
                first.count("unkept_privileges"),
                lacking,
                "{when}: {}",
                first.describe()
            );
            assert_eq!(run().count("changed"), 0, "{when}");
            let _ = on_trees_by_user("verify", &src, &dst).run().expect(0);
        }
    }
}

#[test]
fn what_lies_in_set_gid_directories_of_others_is_kept_without_a_problem() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    put(&src.join("dir/file"), "content");
    std::fs::create_dir(dst.join("dir")).expect("make");
    for (root, owner) in [(&src, USER), (&dst, 5)] {
        for path in [root.clone(), root.join("dir")] {
            attrs::set_owner(&path, owner, USER).expect("chown");
            attrs::set_mode(&path, 0o2775).expect("chmod");
        }
    }
    attrs::set_owner(&src.join("dir/file"), USER, USER).expect("chown");
    let outcome = as_user(&src, &dst, &["--no-times"], 0);
    assert_eq!(outcome.count("unkept_owners"), 2, "{}", outcome.describe());
    assert_eq!(
        std::fs::metadata(dst.join("dir")).expect("look").mode() & 0o7777,
        0o2775
    );
    assert_eq!(as_user(&src, &dst, &["--no-times"], 0).count("changed"), 0);
}

#[test]
fn extended_attributes_are_removed_from_the_users_own_read_only_file() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    for (name, mode) in [("read-only", 0o444), ("writable", 0o644)] {
        for root in [&src, &dst] {
            let file = root.join(name);
            put(&file, "content");
            attrs::set_owner(root, USER, USER).expect("chown");
            attrs::set_owner(&file, USER, USER).expect("chown");
            attrs::set_mode(&file, if root == &dst { 0o444 } else { mode }).expect("chmod");
            attrs::set_mtime(&file, 1_000_000_000, 0).expect("utimens");
        }
        attrs::set_xattr(&dst.join(name), b"user.note", b"1").expect("setxattr");
    }
    let outcome = as_user(&src, &dst, &[], 0);
    for (name, mode) in [("read-only", 0o444), ("writable", 0o644)] {
        assert_eq!(
            attrs::get_xattr(&dst.join(name), b"user.note").expect("getxattr"),
            None,
            "{}",
            outcome.describe()
        );
        assert_eq!(
            std::fs::metadata(dst.join(name)).expect("look").mode() & 0o7777,
            mode,
            "{name}"
        );
    }
    assert_eq!(as_user(&src, &dst, &[], 0).count("changed"), 0);
}

/// Without owners and modes, a second run has nothing to do; with them, each mode that cannot be
/// set is a problem.
fn check_fixed_modes(rights: u32, user: Option<u32>) {
    let source = Scratch::new(FsKind::Tmpfs, 16);
    let replica = Fuse::mount(Mood {
        fixed_mode: Some(rights),
        attributes: false,
        acls: false,
        ..Mood::healthy()
    });
    let (src, place) = (source.dir("src"), replica.path().join("place"));
    ["a", "dir/b", "dir/deep/c", "gone/d"]
        .into_iter()
        .for_each(|name| put(&src.join(name), name));
    std::fs::create_dir(&place).expect("mkdir");
    let uid = user.unwrap_or(0);
    attrs::set_owner(&place, uid, uid).expect("chown");
    let dst = place.join("dst");
    let plain = |command: &str| {
        let run = if user.is_some() {
            on_trees_by_user(command, &src, &dst)
        } else {
            on_trees(command, &src, &dst)
        };
        run.args([
            "--no-mode",
            "--no-owner",
            "--no-group",
            "--no-xattrs",
            "--no-acls",
        ])
    };
    let _ = plain("sync").run().expect(0);
    std::fs::remove_dir_all(src.join("gone")).expect("remove");
    put(&src.join("dir/b"), "newer content");
    let changed = plain("sync").args(["--delete", "--json"]).run().expect(0);
    assert_eq!(changed.count("deleted"), 2, "{}", changed.describe());
    let settled = plain("sync").args(["--delete", "--json"]).run().expect(0);
    assert_eq!(
        [settled.count("changed"), settled.count("deleted")],
        [0, 0],
        "{}",
        settled.describe()
    );
    let _ = plain("verify").arg("--level=content").run().expect(0);
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());

    put(&src.join("new/file"), "content");
    let told = if user.is_some() {
        sync_by_user(&src, &dst)
    } else {
        sync(&src, &dst)
    }
    .run();
    // What the source's entries have is what some file systems show of all.
    assert_eq!(
        told.code(),
        if rights == 0o644 { 0 } else { 3 },
        "{}",
        told.describe()
    );
    assert!(
        told.events_named("problem")
            .iter()
            .all(|p| p["act"] == "set its mode"),
        "{}",
        told.describe()
    );
    assert_eq!(
        std::fs::read(dst.join("new/file")).expect("it is there"),
        b"content"
    );
}

#[test]
fn a_file_system_with_fixed_modes_takes_content_and_names() {
    [0o666, 0o644, 0o600]
        .into_iter()
        .for_each(|rights| check_fixed_modes(rights, None));
    [0o666, 0o644]
        .into_iter()
        .for_each(|rights| check_fixed_modes(rights, Some(USER)));
}

/// Gives an entry more names of attributes than the kernel lists (`XATTR_LIST_MAX` of
/// linux/limits.h).
fn fill_with_names(path: &Path) {
    (0..300).for_each(|number| {
        let name = format!("user.{number:03}{}", "n".repeat(240));
        attrs::set_xattr(path, name.as_bytes(), b"v").expect("xattr");
    });
}

/// The paths of problems, of which each left the rest of an entry as it should be.
fn kept_but_for_attributes(outcome: &Outcome) -> Vec<String> {
    let events = outcome.events_named("problem");
    assert!(
        events.iter().all(|event| event["class"] == "partly"),
        "{}",
        outcome.describe()
    );
    let mut paths = problems(outcome);
    paths.sort_unstable();
    paths
}

#[test]
fn attributes_beyond_a_list_leave_content_and_rights() {
    let scratch = Scratch::new(FsKind::Xfs, 400);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    let (many, acl) = (src.join("many"), attrs::acl_blob((USER, 6), (1234, 4), 0));
    put(&many, "precious");
    put(&src.join("dir/file"), "content");
    attrs::set_xattr(&many, b"system.posix_acl_access", &acl).expect("acl");
    let _ = [&many, &src.join("dir")].map(|path| fill_with_names(path));
    for changed in [4, 0] {
        let outcome = sync(&src, &dst).run().expect(3);
        check_accounts(&outcome);
        assert_eq!(kept_but_for_attributes(&outcome), ["dir", "many"]);
        assert_eq!(outcome.count("changed"), changed, "{}", outcome.describe());
    }
    let copy = dst.join("many");
    assert_eq!(fs::read(&copy).expect("read"), b"precious");
    let kept = attrs::get_xattr(&copy, b"system.posix_acl_access").expect("acl");
    assert_eq!(kept, Some(acl));
    let outcome = verify(&src, &dst).run().expect(3);
    assert_eq!(kept_but_for_attributes(&outcome), ["dir", "many"]);
    let other = scratch.path().join("other");
    let _ = sync_ok(&src, &other, ["--no-xattrs"]);
    assert_eq!(fs::read(other.join("many")).expect("read"), b"precious");

    put(&many, "changed");
    attrs::set_mode(&src.join("dir"), 0o700).expect("chmod");
    let outcome = sync(&src, &dst).run().expect(3);
    assert_eq!(kept_but_for_attributes(&outcome), ["dir", "many"]);
    assert_eq!(fs::read(&copy).expect("read"), b"changed");
    let mode = fs::metadata(dst.join("dir")).expect("stat").mode();
    assert_eq!(mode & 0o7777, 0o700);
}

#[test]
fn replica_file_with_unlisted_attributes_is_replaced() {
    let scratch = Scratch::new(FsKind::Xfs, 400);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("many"), "content");
    attrs::set_xattr(&src.join("many"), b"user.a", b"b").expect("xattr");
    let _ = sync_ok(&src, &dst, NONE);
    fill_with_names(&dst.join("many"));
    let outcome = sync_ok(&src, &dst, NONE);
    assert_eq!(outcome.count("changed"), 1, "{}", outcome.describe());
    check_equal(&src, &dst, "made anew");
}

#[test]
fn attribute_without_a_value_leaves_the_content() {
    let (source, scratch) = (
        Fuse::mount(Mood::healthy()),
        Scratch::new(FsKind::Tmpfs, 16),
    );
    let (src, dst) = (source.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    attrs::set_xattr(&src.join("file"), b"user.a", b"b").expect("xattr");
    source.order(Rule::fail(Op::Getxattr, Errno::OPNOTSUPP));
    for _ in 0..2 {
        let outcome = sync(&src, &dst).run().expect(3);
        assert_eq!(kept_but_for_attributes(&outcome), ["file"]);
        assert_eq!(fs::read(dst.join("file")).expect("read"), b"content");
    }
    source.forgive();
    let _ = sync_ok(&src, &dst, NONE);
    let value = attrs::get_xattr(&dst.join("file"), b"user.a").expect("xattr");
    assert_eq!(value.as_deref(), Some(&b"b"[..]));
}

#[test]
fn owners_without_a_number_here_are_told() {
    only_local!("puts one process into a namespace");
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    attrs::set_owner(&src.join("file"), 1111, 2222).expect("chown");
    let _ = sync_ok(&src, &dst, NONE);
    let told = |run: driftless_testkit::Driftless| {
        let outcome = run.run().expect(0);
        outcome.stderr_text().contains("user_namespaces(7)")
    };
    assert!(!told(verify(&src, &dst)), "all are mapped here");
    attrs::set_owner(&dst.join("file"), 3333, 4444).expect("chown");
    let within = ["unshare", "--user", "--map-root-user"];
    assert!(told(verify(&src, &dst).through(within)));
    assert!(told(sync(&src, &dst).through(within)));
    assert!(!told(
        verify(&src, &dst)
            .args(["--no-owner", "--no-group"])
            .through(within)
    ));
}

#[test]
fn owners_behind_an_id_mapped_mount_are_told() {
    only_local!("puts one process into a namespace");
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    let list = scratch.path().join("mountinfo");
    // What the kernel lists for a mount with other owners.
    let line = format!("36 35 0:50 / {} rw,idmapped - tmpfs x rw\n", src.display());
    put(&list, line);
    let in_place = "mount --bind \"$0\" /proc/$$/mountinfo && exec \"$@\"";
    let words = ["unshare", "--mount", "sh", "-c", in_place];
    let told = || {
        let within = words
            .iter()
            .map(std::ffi::OsStr::new)
            .chain([list.as_os_str()]);
        let outcome = sync(&src, &dst).through(within).run().expect(0);
        outcome
            .stderr_text()
            .contains("an id-mapped mount does not map")
    };
    assert!(!told(), "all owners are numbers of their own");
    attrs::set_owner(&src.join("file"), 65534, 65534).expect("chown");
    assert!(told());
    fs::write(&list, "36 35 0:50 / / rw - tmpfs x rw\n").expect("write");
    assert!(!told(), "no mount has other owners");
}

#[test]
fn attributes_that_the_reader_cannot_see_stay() {
    only_local!("puts one process into a namespace");
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("dir/file"), "content");
    let entries = |root: &Path| [root.join("dir"), root.join("dir/file")];
    for path in entries(&src) {
        attrs::set_xattr(&path, b"trusted.mine", b"precious").expect("attribute");
    }
    let _ = sync_ok(&src, &dst, NONE);
    for path in entries(&src) {
        attrs::set_mode(&path, 0o750).expect("chmod");
    }
    let ssh = scratch.path().join("ssh");
    driftless_testkit::write_program(
        &ssh,
        "#!/bin/bash\nexec setpriv --bounding-set -sys_admin --inh-caps -sys_admin bash -c \"exec ${@: -1}\"\n",
    );
    let pulled = sync(Path::new(&format!("far:{}", src.display())), &dst)
        .arg("--ssh")
        .arg(&ssh)
        .args(["--agent-path", common::far::agent()])
        .run()
        .expect(0);
    assert!(
        pulled.stderr_text().contains("CAP_SYS_ADMIN"),
        "{}",
        pulled.describe()
    );
    for path in entries(&dst) {
        let kept = attrs::get_xattr(&path, b"trusted.mine").expect("look");
        assert_eq!(kept.as_deref(), Some(&b"precious"[..]), "{path:?}");
        let mode = fs::metadata(&path).expect("stat").mode() & 0o7777;
        assert_eq!(mode, 0o750, "{}", pulled.describe());
    }
}

#[test]
fn threads_wait_until_a_closed_directory_is_open() {
    only_local!("holds up calls of one process");
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    attrs::set_owner(&dst, USER, USER).expect("chown");
    let write = |content: &str| {
        for number in 0..8 {
            put(&src.join(format!("dir/{content}-{number}")), content);
            put(&src.join(format!("dir/both-{number}")), content);
        }
        let entries = fs::read_dir(src.join("dir")).expect("list");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        for path in paths.chain([src.clone(), src.join("dir")]) {
            attrs::set_owner(&path, USER, USER).expect("chown");
        }
        attrs::set_mode(&src.join("dir"), 0o555).expect("chmod");
    };
    write("first");
    as_user(&src, &dst, &[], 0);
    write("second, of another size");
    // On a network file system a mode takes a while.
    let slow = "strace -f -qq -o /dev/null -e trace=fchmod -e inject=fchmod:delay_enter=100000 --";
    let run = sync_by_user(&src, &dst).arg("--jobs=8");
    let outcome = run.through(slow.split(' ')).run().expect(0);
    check_accounts(&outcome);
    check_equal(&src, &dst, &outcome.describe());
}
