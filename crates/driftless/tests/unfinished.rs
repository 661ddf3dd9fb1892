//! What an unfinished run has left is known to every run that comes there, whichever root it begins
//! at.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{self, Far, Way};
use common::lease::Lease;
use common::marks::{is_unsettled, killed, lose, many_files, mark, must_run, says_so};
use common::{MARK_FILE, USER, check_equal, check_settled, only_local, put, sync, sync_ok};
use driftless_testkit::fuse::{Fuse, Mood};
use driftless_testkit::{Driftless, FsKind, Outcome, Scratch, attrs};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const NONE: [&str; 0] = [];
/// Where nothing can be kept in attributes.
const BARE: [&str; 2] = ["--no-xattrs", "--no-acls"];
const MARK: &[u8] = b"trusted.driftless.mark";

fn stage(kind: FsKind) -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(kind, 300);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    (scratch, src, dst)
}

/// Has a run into a replica killed, and returns the name of a file there that has lost its content.
fn unfinished(src: &Path, dst: &Path, args: &[&str]) -> String {
    many_files(src);
    killed(src, dst, args);
    assert!(is_unsettled(dst));
    let name = (0..12)
        .map(|seed| format!("f{seed}"))
        .find(|name| dst.join(name).exists())
        .expect("one is copied");
    lose(&dst.join(&name));
    name
}

/// A directory on both sides whose file `x` has lost its content on the replica.
fn lost_below(src: &Path, dst: &Path) {
    put(&src.join("x"), "content");
    must_run(&["cp", "-a"], &[src, dst]);
    lose(&dst.join("x"));
}

fn same(a: &Path, b: &Path) -> bool {
    fs::read(a).expect("read") == fs::read(b).expect("read")
}

type Run<'a> = &'a dyn Fn(&Path, &Path) -> Driftless;

/// Both ways to reach a replica.
fn over_both(check: impl Fn(Run<'_>)) {
    check(&|src, dst| sync(src, dst));
    let far = Far::root();
    check(&|src, dst| far.sync(Way::Push, src, dst));
}

#[test]
fn a_single_file_of_an_unfinished_replica_is_compared() {
    over_both(|run| {
        let (_scratch, src, dst) = stage(FsKind::Tmpfs);
        let name = unfinished(&src, &dst, &[]);
        lost_below(&src.join("deep"), &dst.join("deep"));
        for path in [Path::new(&name), Path::new("deep/x")] {
            let outcome = run(&src.join(path), &dst.join(path)).run().expect(0);
            assert!(
                says_so(&outcome) && same(&src.join(path), &dst.join(path)),
                "{}",
                outcome.describe()
            );
        }
        assert!(is_unsettled(&dst), "a file is not all of it");
    });
}

#[test]
fn a_part_of_an_unfinished_replica_is_compared_and_settles_no_more_than_itself() {
    over_both(|run| {
        let (_scratch, src, dst) = stage(FsKind::Tmpfs);
        unfinished(&src, &dst, &[]);
        let inner = |root: &Path| root.join("deep/er");
        fs::create_dir(dst.join("deep")).expect("dir");
        lost_below(&inner(&src), &inner(&dst));
        let outcome = run(&inner(&src), &inner(&dst)).run().expect(0);
        assert!(
            says_so(&outcome) && is_unsettled(&dst),
            "{}",
            outcome.describe()
        );
        assert!(same(&inner(&src).join("x"), &inner(&dst).join("x")));
        let _ = run(&src, &dst).run().expect(0);
        let outcome = run(&inner(&src), &inner(&dst)).run().expect(0);
        assert!(
            !says_so(&outcome) && !is_unsettled(&dst),
            "{}",
            outcome.describe()
        );
    });
}

#[test]
fn what_lies_above_is_known_where_the_mark_is_a_file_too() {
    over_both(|run| {
        let (fuse, source) = (Fuse::mount(Mood::bare()), Scratch::new(FsKind::Tmpfs, 300));
        let (src, dst) = (source.dir("src"), fuse.path().join("dst"));
        unfinished(&src, &dst, &BARE);
        put(&src.join("deep/x"), "content");
        let _ = run(&src.join("deep"), &dst.join("deep"))
            .args(BARE)
            .run()
            .expect(0);
        lose(&dst.join("deep/x"));
        let outcome = run(&src.join("deep"), &dst.join("deep"))
            .args(BARE)
            .run()
            .expect(0);
        assert!(
            says_so(&outcome) && same(&src.join("deep/x"), &dst.join("deep/x")),
            "{}",
            outcome.describe()
        );
    });
}

/// What runs do on a replica, and on one in it that another has left unfinished.
fn check_within(run: Run<'_>, (src, dst): (&Path, &Path), args: &[&str]) {
    let (inner_src, inner_dst) = (src.join("sub"), dst.join("sub"));
    fs::create_dir_all(dst).expect("dir");
    let name = unfinished(&inner_src, &inner_dst, args);
    let list = src.with_file_name("list");
    fs::write(&list, format!("sub/{name}\n")).expect("list");
    let files_from = format!("--files-from={}", list.display());
    let is_equal = || same(&inner_src.join(&name), &inner_dst.join(&name));
    for part in ["--exclude=/other", &files_from, "--dry-run"] {
        let outcome = run(src, dst).args(args).arg(part).run().expect(0);
        assert!(
            says_so(&outcome) && is_unsettled(&inner_dst),
            "{part}\n{}",
            outcome.describe()
        );
        assert!(
            is_equal() || part == "--dry-run",
            "{part}\n{}",
            outcome.describe()
        );
        lose(&inner_dst.join(&name));
    }
    let outcome = run(src, dst).args(args).run().expect(0);
    assert!(
        says_so(&outcome) && is_equal() && !is_unsettled(&inner_dst),
        "{}",
        outcome.describe()
    );
    let outcome = run(src, dst).args(args).run().expect(0);
    assert!(
        !says_so(&outcome) && outcome.count("bytes_compared") == 0,
        "{}",
        outcome.describe()
    );
}

#[test]
fn an_unfinished_replica_within_another_is_compared_once_and_settled() {
    over_both(|run| {
        for args in [&[][..], &BARE] {
            let (_scratch, src, dst) = stage(FsKind::Ext4);
            check_within(run, (&src, &dst), args);
        }
    });
}

#[test]
fn an_unfinished_replica_within_another_is_known_by_a_mark_that_is_a_file() {
    over_both(|run| {
        let (fuse, source) = (Fuse::mount(Mood::bare()), Scratch::new(FsKind::Tmpfs, 300));
        check_within(run, (&source.dir("src"), &fuse.path().join("dst")), &BARE);
    });
}

#[test]
fn movers_compare_what_is_in_an_unfinished_replica_within_another() {
    only_local!("goes over ssh anyway");
    let far = Far::root();
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    fs::create_dir_all(&dst).expect("dir");
    let name = unfinished(&src.join("sub"), &dst.join("sub"), &[]);
    let outcome = common::movers::sync_on_hosts("far,far", &far.words(), &src, &dst)
        .run()
        .expect(0);
    assert!(
        same(&src.join("sub").join(&name), &dst.join("sub").join(&name)),
        "{}",
        outcome.describe()
    );
    let name = unfinished(&src.join("other"), &dst.join("other"), &[]);
    let _ = common::movers::sync_on_hosts(
        "far,far",
        &far.words(),
        &src.join("other").join(&name),
        &dst.join("other").join(&name),
    )
    .run()
    .expect(0);
    assert!(
        same(
            &src.join("other").join(&name),
            &dst.join("other").join(&name)
        ),
        "a single file"
    );
}

fn tells_basis(outcome: &Outcome) -> bool {
    outcome
        .stderr_text()
        .contains("what was changed there since then is copied and not linked")
}

#[test]
fn files_of_an_unfinished_earlier_copy_are_not_linked() {
    over_both(|run| {
        let (scratch, src, first) = stage(FsKind::Tmpfs);
        unfinished(&src, &first, &[]);
        lost_below(&src.join("deep"), &first.join("deep"));
        // The copy itself, a part of it, and one that has an unfinished one in it.
        let outer = scratch.dir("outer");
        let name = unfinished(&src.join("sub"), &outer.join("sub"), &[]);
        for (at, basis, lost) in [
            (&src, &first, "deep/x"),
            (&src.join("deep"), &first.join("deep"), "x"),
            (&src, &outer, &format!("sub/{name}")),
        ] {
            let second = scratch.path().join("second");
            let outcome = run(at, &second)
                .arg("--link-dest")
                .arg(basis)
                .run()
                .expect(0);
            assert!(
                tells_basis(&outcome) && same(&at.join(lost), &second.join(lost)),
                "{lost}\n{}",
                outcome.describe()
            );
            fs::remove_dir_all(&second).expect("remove");
        }
        let _ = sync_ok(&src, &first, NONE);
        let outcome = run(&src, &scratch.path().join("second"))
            .arg("--link-dest")
            .arg(&first)
            .run()
            .expect(0);
        assert!(
            !tells_basis(&outcome) && outcome.count("bytes_copied") == 0,
            "{}",
            outcome.describe()
        );
    });
}

#[test]
fn a_source_that_is_an_unfinished_copy_is_copied_as_it_is_and_told() {
    let told = |outcome: &Outcome, path: &Path| {
        let [typed, _] = far::ends(path, path);
        let says = format!(
            "the source is itself an unfinished copy: \"{}\"",
            typed.display()
        );
        outcome.stderr_text().matches(&says).count() == 1
            && outcome.stderr_text().contains(" UTC was not made durable")
    };
    let (scratch, src, dst) = stage(FsKind::Tmpfs);
    let name = unfinished(&src, &dst, &[]);
    lost_below(&src.join("deep"), &dst.join("deep"));
    let third = scratch.path().join("third");
    let outcome = sync_ok(&dst, &third, NONE);
    assert!(
        told(&outcome, &dst) && !says_so(&outcome),
        "{}",
        outcome.describe()
    );
    assert!(same(&dst.join(&name), &third.join(&name)));
    let outcome = sync_ok(&dst.join("deep"), &third.join("deep"), NONE);
    assert!(told(&outcome, &dst), "{}", outcome.describe());
    let outcome = sync_ok(&dst.join(&name), &third.join(&name), NONE);
    assert!(told(&outcome, &dst), "{}", outcome.describe());
    let outcome = Far::root().sync(Way::Pull, &dst, &third).run().expect(0);
    assert!(
        outcome.stderr_text().contains("unfinished copy: \"far:"),
        "{}",
        outcome.describe()
    );
    let _ = sync_ok(&src, &dst, NONE);
    let outcome = sync_ok(&dst, &third, NONE);
    assert!(
        !outcome.stderr_text().contains("unfinished"),
        "{}",
        outcome.describe()
    );
}

/// Has a mark say that what several sources have written since the beginning of time is not
/// durable.
fn unsettle(dst: &Path) {
    let text = mark(dst).expect("a mark");
    let (run, number) = ("0".repeat(32), "0".repeat(16));
    attrs::set_xattr(
        dst,
        MARK,
        format!("{text}since 0 0 {run} {number} {number} {number}\n").as_bytes(),
    )
    .expect("set");
}

#[test]
fn whoever_compares_all_there_is_settles_what_any_source_has_left() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("file"), "content");
    let _ = sync_ok(&src, &dst, NONE);
    put(&dst.join("more"), "of another source");
    unsettle(&dst);
    for (args, settles) in [
        (&[][..], false),
        (&["--delete", "--exclude=x"], false),
        (&["--delete"], true),
    ] {
        let outcome = sync_ok(&src, &dst, args);
        assert!(
            says_so(&outcome) && is_unsettled(&dst) != settles,
            "{args:?}\n{}",
            outcome.describe()
        );
        put(&dst.join("more"), "of another source");
    }
    fs::remove_file(dst.join("more")).expect("remove");
    unsettle(&dst);
    let outcome = sync_ok(&src, &dst, NONE);
    assert!(
        says_so(&outcome) && !is_unsettled(&dst),
        "{}",
        outcome.describe()
    );
}

#[test]
fn the_mark_gives_way_to_attributes_that_need_the_room() {
    let small = Scratch::formatted(
        &[
            "mkfs.ext4",
            "-q",
            "-F",
            "-b",
            "1024",
            "-I",
            "256",
            "-O",
            "^ea_inode",
        ],
        300,
    );
    let source = Scratch::new(FsKind::Ext4, 300);
    let (src, dst) = (source.dir("src"), small.path().join("dst"));
    many_files(&src);
    attrs::set_xattr(&src, b"user.note", &[b'x'; 880]).expect("set");
    let _ = sync_ok(&src, &dst, NONE);
    assert!(
        dst.join(MARK_FILE).exists() && !is_unsettled(&dst),
        "{:?}",
        mark(&dst)
    );
    assert_eq!(attrs::get_xattr(&dst, MARK).expect("read"), None);
    check_equal(&src, &dst, "with all its attributes");
    check_settled(&src, &dst, ["--delete"]);
    (0..12).for_each(|seed| fs::remove_file(dst.join(format!("f{seed}"))).expect("remove"));
    let name = unfinished(&src, &dst, &[]);
    assert!(dst.join(MARK_FILE).exists(), "there is still no room");
    let outcome = sync_ok(&src, &dst, NONE);
    assert!(
        says_so(&outcome) && !is_unsettled(&dst) && same(&src.join(&name), &dst.join(&name)),
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_mark_that_is_longer_than_any_of_ours_is_no_reason_to_trust() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("file"), "content");
    let _ = sync_ok(&src, &dst, NONE);
    // It begins like a good one.
    let long = mark(&dst).expect("a mark") + &"later versions have more to say\n".repeat(200);
    let (attribute, file) = (
        || attrs::set_xattr(&dst, MARK, long.as_bytes()).expect("set"),
        || put(&dst.join(MARK_FILE), &long),
    );
    for write in [&attribute as &dyn Fn(), &file] {
        lose(&dst.join("file"));
        write();
        let outcome = sync_ok(&src, &dst, NONE);
        assert!(
            says_so(&outcome) && same(&src.join("file"), &dst.join("file")),
            "{}",
            outcome.describe()
        );
        let outcome = sync_ok(&src, &dst, NONE);
        assert!(!says_so(&outcome), "{}", outcome.describe());
    }
}

/// Held by an ordinary user, on a file of his, who does not give it up.
fn users_lease_on(path: &Path) -> Lease {
    let mut command = Command::new("setpriv");
    command.args([
        format!("--reuid={USER}"),
        format!("--regid={USER}"),
        "--clear-groups".into(),
        "perl".into(),
    ]);
    Lease::on(path, r#""IGNORE""#, command)
}

#[test]
fn nobody_holds_a_run_up_with_a_lease_on_what_looks_like_a_mark() {
    let (_scratch, src, dst) = stage(FsKind::Ext4);
    put(&src.join("file"), "content");
    let _ = sync_ok(&src, &dst, NONE);
    attrs::set_mode(&dst, 0o777).expect("chmod");
    let planted = dst.join(MARK_FILE);
    put(&planted, "driftless mark 99\n");
    attrs::set_owner(&planted, USER, USER).expect("chown");
    let _lease = users_lease_on(&planted);
    put(&src.join("more"), "content");
    let outcome = sync_ok(&src, &dst, ["--no-mode"]);
    assert!(!says_so(&outcome), "{}", outcome.describe());
    // Whoever makes a part of it the root of a run meets it on the way up.
    let _ = sync_ok(&src.join("more"), &dst.join("more"), NONE);
}

#[test]
fn what_the_source_lacks_for_a_while_is_compared_when_it_is_back() {
    over_both(|run| {
        let (scratch, src, dst) = stage(FsKind::Tmpfs);
        let name = unfinished(&src, &dst, &[]);
        fs::create_dir(dst.join("deep")).expect("dir");
        lost_below(&src.join("deep/er"), &dst.join("deep/er"));
        for lacked in [Path::new(&name), Path::new("deep")] {
            let away = scratch.path().join("away");
            fs::rename(src.join(lacked), &away).expect("rename");
            let outcome = run(&src, &dst).run().expect(0);
            assert!(
                says_so(&outcome) && is_unsettled(&dst),
                "{lacked:?}: {}",
                outcome.describe()
            );
            fs::rename(&away, src.join(lacked)).expect("rename");
        }
        let outcome = run(&src, &dst).run().expect(0);
        assert!(
            says_so(&outcome) && !is_unsettled(&dst),
            "{}",
            outcome.describe()
        );
        check_equal(&src, &dst, "mended when all of it is there");
    });
}

#[test]
fn what_is_kept_on_the_replica_and_older_than_a_run_that_was_killed_is_not_in_doubt() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    many_files(&src);
    killed(&src, &dst, &[]);
    put(&dst.join("kept/below/file"), "the replica's own");
    // A mark says a little more than it must. This one is of half a minute later, which clocks may
    // differ by.
    const LATER_SEC: i64 = 30;
    let text = mark(&dst).expect("a mark");
    let said = text
        .lines()
        .find_map(|line| line.strip_prefix("since ")?.split(' ').next())
        .expect("a line");
    let since: i64 = said.parse().expect("seconds");
    let later = text.replace(
        &format!("since {said} "),
        &format!("since {} ", since + LATER_SEC),
    );
    attrs::set_xattr(&dst, MARK, later.as_bytes()).expect("set");
    let outcome = sync_ok(&src, &dst, NONE);
    assert!(
        says_so(&outcome) && !is_unsettled(&dst),
        "{}",
        outcome.describe()
    );
    assert_eq!(
        outcome.count("only_on_replica"),
        1,
        "{}",
        outcome.describe()
    );
}

#[test]
fn what_is_no_mark_says_nothing_of_a_source() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("file"), "content");
    put(&src.join(MARK_FILE), "a text of the user's\n");
    let outcome = sync(&src, &dst).run();
    assert!(
        !outcome.stderr_text().contains("unfinished copy"),
        "{}",
        outcome.describe()
    );
    assert!(
        same(&src.join("file"), &dst.join("file")),
        "{}",
        outcome.describe()
    );
}
