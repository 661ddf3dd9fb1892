//! Replicas whose file system takes names that differ in case for one, and those that do not.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{Far, Way};
use common::movers::sync_on_hosts;
use common::{
    check_accounts, check_equal, check_settled, names_below, on_trees, only_local, put, sync,
    sync_ok, verify,
};
use driftless_testkit::{FsKind, Fuse, Mood, Outcome, Scratch, snapshot_hash};
use std::fs;
use std::path::{Path, PathBuf};

const NONE: [&str; 0] = [];

struct Stage {
    _source: Scratch,
    _replica: Fuse,
    src: PathBuf,
    dst: PathBuf,
}

fn stage() -> Stage {
    let source = Scratch::new(FsKind::Tmpfs, 16);
    let replica = Fuse::mount(Mood {
        folds: true,
        ..Mood::healthy()
    });
    let (src, dst) = (source.dir("src"), replica.path().join("dst"));
    Stage {
        src,
        dst,
        _source: source,
        _replica: replica,
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn problems(outcome: &Outcome) -> Vec<String> {
    let mut told: Vec<String> = outcome
        .events_named("problem")
        .iter()
        .map(|p| p["path"].as_str().expect("a path").to_owned())
        .collect();
    told.sort();
    told
}

#[test]
fn a_name_that_changed_its_case_is_respelt_and_never_deleted() {
    let Stage { src, dst, .. } = &stage();
    put(&src.join("readme"), "the only copy");
    put(&src.join("docs/page"), "page");
    put(&src.join("gone"), "gone");
    put(&src.join("same"), "same");
    let _ = sync_ok(src, dst, NONE);
    fs::rename(src.join("readme"), src.join("README")).expect("rename");
    fs::rename(src.join("docs"), src.join("Docs")).expect("rename");
    fs::remove_file(src.join("gone")).expect("remove");

    let plan = on_trees("sync", src, dst)
        .args(["--dry-run", "--delete"])
        .run()
        .expect(0)
        .stdout_text();
    assert!(
        plan.contains("meta     file     README  (name)")
            && !plan.contains("delete   file     readme"),
        "{plan}"
    );
    let found = on_trees("verify", src, dst).run().expect(4).stdout_text();
    assert!(
        found.contains("README  name: README, replica readme")
            && !found.contains("extra    file     readme"),
        "{found}"
    );

    let outcome = sync_ok(src, dst, ["--delete"]);
    assert_eq!(
        [outcome.count("respelt"), outcome.count("deleted")],
        [2, 1],
        "{}",
        outcome.describe()
    );
    assert_eq!(names_below(dst), ["Docs", "Docs/page", "README", "same"]);
    assert_eq!(read(&dst.join("README")), "the only copy");
    check_equal(src, dst, "after the names were respelt");
    check_settled(src, dst, ["--delete"]);
    let _ = on_trees("verify", src, dst).run().expect(0);
}

/// Runs it with a signal at a rename of one name of a directory in place, by number.
fn killed_at_rename(src: &Path, dst: &Path, number: usize) -> Outcome {
    let inject = format!("inject=renameat:error=EINTR:signal=KILL:when={number}");
    let words = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=renameat",
        "-e",
        &inject,
        "--",
    ];
    sync(src, dst)
        .args(["--delete", "--exclude=*.keep", "--jobs=1"])
        .through(words)
        .run()
}

#[test]
fn what_a_killed_run_left_between_two_spellings_is_respelt_by_the_next_with_all_that_the_filters_protect()
 {
    only_local!("makes calls of one process fail");
    let mut met = 0;
    for number in 1..5 {
        let Stage { src, dst, .. } = &stage();
        put(&src.join("data/f"), "1");
        put(&src.join("same"), "same");
        let _ = sync_ok(src, dst, NONE);
        put(&dst.join("data/x.keep"), "precious");
        fs::rename(src.join("data"), src.join("DATA")).expect("rename");
        let killed = killed_at_rename(src, dst, number);
        met += usize::from(names_below(dst).iter().any(|name| name.starts_with('.')));
        let _ = sync_ok(src, dst, ["--delete", "--exclude=*.keep"]);
        assert_eq!(
            names_below(dst),
            ["DATA", "DATA/f", "DATA/x.keep", "same"],
            "{number}: {}",
            killed.describe()
        );
        assert_eq!(read(&dst.join("DATA/x.keep")), "precious", "{number}");
        check_settled(src, dst, ["--delete", "--exclude=*.keep"]);
    }
    assert_ne!(met, 0, "no run was killed between the two renames");
}

fn check_collisions(src: &Path, dst: &Path) {
    let outcome = sync(src, dst).arg("--delete").run().expect(3);
    check_accounts(&outcome);
    assert_eq!(
        problems(&outcome),
        ["dir", "file", "new/b"],
        "{}",
        outcome.describe()
    );
    assert!(
        outcome
            .stderr_text()
            .contains("\"file\": cannot tell it from another name on the replica: \"FILE\" is the same name to its file system"),
        "{}",
        outcome.stderr_text()
    );
    assert_eq!(
        [
            read(&dst.join("FILE")),
            read(&dst.join("DIR/x")),
            read(&dst.join("new/B"))
        ],
        ["upper", "upper", "upper"]
    );
}

#[test]
fn the_second_of_two_names_that_are_one_to_the_replica_is_a_problem_and_never_copied_over_the_first()
 {
    let Stage { src, dst, .. } = &stage();
    put(&src.join("other"), "other");
    let _ = sync_ok(src, dst, NONE);
    for (upper, lower) in [("FILE", "file"), ("DIR/x", "dir/y"), ("new/B", "new/b")] {
        put(&src.join(upper), "upper");
        put(&src.join(lower), "lower");
    }
    check_collisions(src, dst);
    let before = snapshot_hash(dst, true);
    check_collisions(src, dst);
    assert_eq!(
        snapshot_hash(dst, true),
        before,
        "they take each other's place"
    );
    let verified = verify(src, dst).run().expect(3);
    assert_eq!(problems(&verified), ["dir", "file", "new/b"]);
    let _ = sync_ok(
        src,
        dst,
        ["--exclude=file", "--exclude=/dir", "--exclude=b"],
    );
}

#[test]
fn names_that_differ_in_case_stay_apart_where_the_replica_knows_the_difference() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("FILE"), "upper");
    put(&src.join("file"), "lower");
    put(&src.join("dir/LINK"), "linked");
    fs::hard_link(src.join("dir/LINK"), src.join("dir/link")).expect("link");
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "names that differ in case");
    put(&src.join("MORE"), "upper");
    put(&src.join("more"), "lower");
    fs::remove_file(src.join("dir/link")).expect("remove");
    fs::remove_file(src.join("file")).expect("remove");
    let outcome = sync_ok(&src, &dst, ["--delete"]);
    check_equal(&src, &dst, "one of two names is gone");
    assert_eq!(
        [outcome.count("deleted"), outcome.count("respelt")],
        [2, 0],
        "{}",
        outcome.describe()
    );
    check_settled(&src, &dst, ["--delete"]);
}

#[test]
fn names_that_differ_in_unicode_form_are_copied_to_a_replica_that_folds_case_alone() {
    let Stage { src, dst, .. } = &stage();
    let [composed, decomposed, capital] = ["caf\u{e9}", "cafe\u{301}", "CAF\u{c9}"];
    put(&src.join(composed), "composed");
    put(&src.join(decomposed), "decomposed");
    put(&src.join("dir").join(composed), "composed");
    put(&src.join("dir").join(decomposed), "decomposed");
    let _ = sync_ok(src, dst, ["--delete"]);
    assert_eq!(
        [read(&dst.join(composed)), read(&dst.join(decomposed))],
        ["composed", "decomposed"]
    );
    check_equal(src, dst, "names that differ in form");
    check_settled(src, dst, ["--delete"]);
    // The first of three is one with the second, and not with the third.
    put(&src.join(capital), "capital");
    let outcome = sync(src, dst).run().expect(3);
    check_accounts(&outcome);
    assert_eq!(
        outcome.events_named("problem").len(),
        1,
        "{}",
        outcome.describe()
    );
    assert_eq!(read(&dst.join(decomposed)), "decomposed");
}

#[test]
fn a_name_that_changed_its_case_is_respelt_and_never_deleted_on_another_host() {
    only_local!("goes over ssh anyway");
    let (far, Stage { src, dst, .. }) = (Far::root(), &stage());
    put(&src.join("readme"), "the only copy");
    put(&src.join("docs/page"), "page");
    put(&src.join("same"), "same");
    let _ = far.sync(Way::Push, src, dst).run().expect(0);
    fs::rename(src.join("readme"), src.join("README")).expect("rename");
    fs::rename(src.join("docs"), src.join("Docs")).expect("rename");
    let outcome = far
        .sync(Way::Push, src, dst)
        .arg("--delete")
        .run()
        .expect(0);
    check_accounts(&outcome);
    assert_eq!(
        [outcome.count("respelt"), outcome.count("deleted")],
        [2, 0],
        "{}",
        outcome.describe()
    );
    assert_eq!(names_below(dst), ["Docs", "Docs/page", "README", "same"]);
    assert_eq!(read(&dst.join("README")), "the only copy");
}

/// Lets the source have `B` beside the `b` that the replica knows, and a further name of it.
fn add_a_linked_namesake(src: &Path) {
    put(&src.join("B"), "one");
    fs::hard_link(src.join("B"), src.join("z")).expect("link");
}

fn check_linked_namesakes(dst: &Path, run: impl Fn() -> Outcome) {
    for round in 0..3 {
        let outcome = run();
        check_accounts(&outcome);
        assert_eq!(problems(&outcome), ["b"], "{round}: {}", outcome.describe());
        assert_eq!(names_below(dst), ["B", "z"], "{round}");
        assert_eq!(
            [read(&dst.join("B")), read(&dst.join("z"))],
            ["one", "one"],
            "{round}"
        );
    }
}

#[test]
fn a_file_with_several_names_does_not_make_names_seem_to_be_told_apart() {
    let Stage { src, dst, .. } = &stage();
    put(&src.join("b"), "two");
    let _ = sync_ok(src, dst, NONE);
    add_a_linked_namesake(src);
    check_linked_namesakes(dst, || sync(src, dst).arg("--delete").run().expect(3));
}

#[test]
fn a_file_with_several_names_does_not_make_names_seem_to_be_told_apart_on_another_host() {
    only_local!("goes over ssh anyway");
    let (far, Stage { src, dst, .. }) = (Far::root(), &stage());
    put(&src.join("b"), "two");
    let _ = far.sync(Way::Push, src, dst).run().expect(0);
    add_a_linked_namesake(src);
    check_linked_namesakes(dst, || {
        far.sync(Way::Push, src, dst)
            .arg("--delete")
            .run()
            .expect(3)
    });
}

/// What stands on a replica under a spelling that `--exclude KEEP` means, and what the source has
/// under one that it does not mean.
fn protect(src: &Path, dst: &Path) {
    put(&dst.join("dir/KEEP/p"), "precious");
    put(&src.join("dir/keep"), "file");
    put(&dst.join("file/KEEP"), "precious");
    put(&src.join("file/keep"), "file");
    put(&dst.join("both/KEEP/p"), "precious");
    put(&src.join("both/keep/p"), "file");
    put(&dst.join("to/KEEP"), "precious");
    put(&src.join("to/keep/p"), "file");
}

const PROTECTED: [&str; 4] = ["both/keep", "dir/keep", "file/keep", "to/keep"];
const KEPT: [&str; 4] = ["both/KEEP/p", "dir/KEEP/p", "file/KEEP", "to/KEEP"];

fn check_protected(dst: &Path, outcome: &Outcome, context: &str) {
    check_accounts(outcome);
    assert_eq!(
        problems(outcome),
        PROTECTED,
        "{context}: {}",
        outcome.describe()
    );
    let told = outcome.stderr_text();
    assert!(
        told.contains("\"file/keep\": cannot ")
            && told.contains("the filters protect what stands there as \"KEEP\""),
        "{told}"
    );
    for kept in KEPT {
        assert_eq!(read(&dst.join(kept)), "precious", "{context}: {kept}");
        let parent = dst.join(kept).parent().expect("a parent").to_owned();
        assert!(
            names_below(&parent).iter().any(|name| kept.ends_with(name)),
            "{context}: {kept} is respelt"
        );
    }
}

#[test]
fn what_the_filters_protect_stays_where_the_source_spells_it_otherwise() {
    let Stage { src, dst, .. } = &stage();
    put(&src.join("same"), "same");
    put(&dst.join("same"), "same");
    protect(src, dst);
    for extra in [&[][..], &["--delete"], &["--delete", "--dry-run"]] {
        let outcome = sync(src, dst)
            .arg("--exclude=KEEP")
            .args(extra)
            .run()
            .expect(3);
        check_protected(dst, &outcome, &format!("{extra:?}"));
    }
    let list = src.parent().expect("a parent").join("list");
    put(&list, PROTECTED.join("\n"));
    let outcome = sync(src, dst)
        .args(["--exclude=KEEP", "--files-from"])
        .arg(&list)
        .run()
        .expect(3);
    check_protected(dst, &outcome, "--files-from");
    let _ = sync_ok(
        src,
        dst,
        ["--exclude=KEEP", "--delete", "--delete-excluded"],
    );
    assert_eq!(
        [read(&dst.join("dir/keep")), read(&dst.join("both/keep/p"))],
        ["file", "file"]
    );
}

#[test]
fn what_the_filters_protect_stays_where_the_source_spells_it_otherwise_on_another_host() {
    only_local!("goes over ssh anyway");
    let (far, Stage { src, dst, .. }) = (Far::root(), &stage());
    put(&src.join("same"), "same");
    put(&dst.join("same"), "same");
    protect(src, dst);
    let outcome = far
        .sync(Way::Push, src, dst)
        .args(["--delete", "--exclude=KEEP"])
        .run()
        .expect(3);
    check_protected(dst, &outcome, "over ssh");
}

#[test]
fn a_directory_in_which_the_filters_protect_something_stays_where_the_source_has_a_file_and_spells_it_otherwise()
 {
    let Stage { src, dst, .. } = &stage();
    put(&src.join("same"), "same");
    put(&dst.join("same"), "same");
    put(&dst.join("KEEP/p"), "precious");
    put(&src.join("keep"), "file");
    let outcome = sync(src, dst)
        .args(["--delete", "--exclude=/KEEP/p"])
        .run()
        .expect(3);
    check_accounts(&outcome);
    assert_eq!(problems(&outcome), ["keep"], "{}", outcome.describe());
    assert_eq!(read(&dst.join("KEEP/p")), "precious");
    let _ = sync_ok(src, dst, ["--delete"]);
    assert_eq!(
        [read(&dst.join("keep")), read(&dst.join("same"))],
        ["file", "same"]
    );
}

#[test]
fn what_the_filters_protect_stays_in_a_directory_with_more_names_than_are_held_at_a_time() {
    let Stage { src, dst, .. } = &stage();
    // The order of a long listing is the file system's: each of the names may be in any window of
    // it.
    for number in 0..17_000 {
        fs::File::create(src.join(format!("name-{number}"))).expect("create");
    }
    for number in 0..20 {
        put(&dst.join(format!("KEEP-{number}")), "precious");
        put(&src.join(format!("keep-{number}")), "file");
    }
    let outcome = sync(src, dst)
        .args([
            "--delete",
            "--delete-unlike",
            "--exclude=KEEP-*",
            "--exclude=name-*",
        ])
        .run()
        .expect(3);
    check_accounts(&outcome);
    assert_eq!(problems(&outcome).len(), 20, "{}", outcome.describe());
    assert!((0..20).all(|number| read(&dst.join(format!("KEEP-{number}"))) == "precious"));
}

#[test]
fn a_link_that_the_filters_leave_out_protects_no_other_name_of_its_file() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("LINK"), "linked");
    fs::hard_link(src.join("LINK"), src.join("link")).expect("link");
    let _ = sync_ok(&src, &dst, NONE);
    put(&src.join("LINK"), "more");
    let _ = sync_ok(&src, &dst, ["--exclude=link"]);
    assert_eq!(
        [read(&dst.join("LINK")), read(&dst.join("link"))],
        ["more", "linked"]
    );
}

#[test]
fn the_first_of_names_that_are_one_gives_the_replica_its_spelling() {
    let Stage { src, dst, .. } = &stage();
    put(&src.join("b"), "lower");
    put(&src.join("dir/y"), "lower");
    let _ = sync_ok(src, dst, NONE);
    put(&src.join("B"), "upper");
    put(&src.join("Dir/x"), "upper");
    let plan = sync(src, dst).arg("--dry-run").run().expect(3);
    assert_eq!(plan.count("respelt"), 2, "{}", plan.describe());
    let outcome = sync(src, dst).arg("--delete").run().expect(3);
    check_accounts(&outcome);
    assert_eq!(problems(&outcome), ["b", "dir"], "{}", outcome.describe());
    assert_eq!(names_below(dst), ["B", "Dir", "Dir/x"]);
    assert_eq!(read(&dst.join("B")), "upper");
    let again = sync(src, dst).arg("--delete").run().expect(3);
    assert_eq!(
        [again.count("respelt"), again.count("changed")],
        [0, 0],
        "{}",
        again.describe()
    );
}

/// A replica whose names all differ from the source's in case alone.
fn spell_otherwise(src: &Path, dst: &Path) {
    for (name, content) in [
        ("readme", "text"),
        ("docs/page", "page"),
        ("docs/more", "more"),
    ] {
        put(&src.join(name), content);
    }
    let _ = sync_ok(src, dst, NONE);
    fs::rename(src.join("readme"), src.join("README")).expect("rename");
    fs::rename(src.join("docs"), src.join("Docs")).expect("rename");
    // The root differs, too, however coarse the clock of the file system is.
    fs::File::open(src)
        .and_then(|root| root.set_modified(std::time::UNIX_EPOCH))
        .expect("set the time");
}

#[test]
fn a_replica_on_which_all_names_are_spelt_otherwise_is_no_other_tree() {
    let Stage { src, dst, .. } = &stage();
    spell_otherwise(src, dst);
    let outcome = sync_ok(src, dst, ["--delete"]);
    assert_eq!(
        [outcome.count("respelt"), outcome.count("deleted")],
        [2, 0],
        "{}",
        outcome.describe()
    );
    assert_eq!(
        names_below(dst),
        ["Docs", "Docs/more", "Docs/page", "README"]
    );
}

#[test]
fn verify_says_that_a_spelling_counts_as_a_difference() {
    let Stage { src, dst, .. } = &stage();
    spell_otherwise(src, dst);
    let told = on_trees("verify", src, dst).run().expect(4);
    let summary = "5 entries: 4 equal, 1 different; 2 differ in the spelling of their names";
    assert!(
        told.stdout_text().contains(summary) || told.stderr_text().contains(summary),
        "{}",
        told.describe()
    );
}

#[test]
fn an_audit_takes_a_name_that_is_spelt_otherwise_for_the_same_entry() {
    let Stage { src, dst, .. } = &stage();
    spell_otherwise(src, dst);
    put(&dst.join("extra/README"), "only here");
    let audit = on_trees("audit", src, dst)
        .args(["--json", "--samples", "100", "--grace", "0"])
        .run()
        .expect(4);
    let found: Vec<String> = audit
        .events_named("difference")
        .iter()
        .map(|event| event["path"].as_str().expect("a path").to_owned())
        .collect();
    assert_eq!(
        found,
        [".", "extra", "extra/README"],
        "{}",
        audit.describe()
    );
}

#[test]
fn a_dry_run_knows_of_names_that_a_new_directory_of_the_replica_will_take_for_one() {
    let Stage { src, dst, .. } = &stage();
    put(&dst.parent().expect("a parent").join("Neighbour"), "");
    put(&src.join("dir/B"), "upper");
    put(&src.join("dir/b"), "lower");
    // In a new replica, in a new directory, and in one that is there.
    for next in [Some("other"), Some("dir/other"), None] {
        let plan = sync(src, dst)
            .args(["--dry-run", "--copy-into"])
            .run()
            .expect(3);
        check_accounts(&plan);
        assert_eq!(problems(&plan), ["dir/b"], "{}", plan.describe());
        next.into_iter().for_each(|next| put(&dst.join(next), ""));
    }
}

/// How many pairs of names the tests with movers have: more than there are batches.
const PAIRS: usize = 20;

/// Names in two cases, one of which the replica cannot have: the first in the order of the bytes
/// counts.
fn put_pairs(dir: &Path) {
    for number in 0..PAIRS {
        put(&dir.join(format!("NAME{number}")), "upper");
        put(&dir.join(format!("name{number}")), "lower, and longer");
    }
}

/// Runs it on movers of two hosts, which share the entries of each directory.
fn on_movers(src: &Path, dst: &Path, arguments: &[&str], code: i32) -> Outcome {
    let outcome = sync_on_hosts("far,far", &Far::root().words(), src, dst)
        .args(arguments)
        .run()
        .expect(code);
    check_accounts(&outcome);
    outcome
}

#[test]
fn names_that_are_one_to_the_replica_never_take_each_others_place_when_movers_share_them() {
    only_local!("goes over ssh anyway");
    let Stage { src, dst, .. } = &stage();
    put_pairs(src);
    put_pairs(&src.join("below"));
    let list = src.parent().expect("a parent").join("list");
    let chosen: Vec<String> = (0..PAIRS)
        .flat_map(|number| [format!("NAME{number}\n"), format!("name{number}\n")])
        .collect();
    put(&list, chosen.concat());
    let list = list.to_str().expect("a plain path");
    for (arguments, pairs) in [
        (&["--files-from", list][..], PAIRS),
        (&[], 2 * PAIRS),
        (&["--delete"], 2 * PAIRS),
    ] {
        let outcome = on_movers(src, dst, arguments, 3);
        let told = problems(&outcome);
        assert_eq!(told.len(), pairs, "{}", outcome.describe());
        assert!(told.iter().all(|path| path.contains("name")), "{told:?}");
        assert!((0..PAIRS).all(|number| read(&dst.join(format!("NAME{number}"))) == "upper"));
    }
    let again = on_movers(src, dst, &["--delete"], 3);
    assert_eq!(
        [again.count("respelt"), again.count("changed")],
        [0, 0],
        "{}",
        again.describe()
    );
}

#[test]
fn names_that_changed_their_case_are_respelt_when_movers_share_their_directory() {
    only_local!("goes over ssh anyway");
    let Stage { src, dst, .. } = &stage();
    for number in 0..PAIRS {
        put(&src.join(format!("name{number}")), "the only copy");
        put(&src.join(format!("dir/name{number}")), "the only copy");
    }
    let _ = sync_ok(src, dst, NONE);
    for (number, dir) in
        (0..PAIRS).flat_map(|number| [(number, src.clone()), (number, src.join("dir"))])
    {
        fs::rename(
            dir.join(format!("name{number}")),
            dir.join(format!("NAME{number}")),
        )
        .expect("rename");
    }
    let outcome = on_movers(src, dst, &["--delete"], 0);
    assert_eq!(
        [outcome.count("respelt"), outcome.count("deleted")],
        [2 * PAIRS as u64, 0],
        "{}",
        outcome.describe()
    );
    assert_eq!(names_below(dst), names_below(src));
    assert_eq!(on_movers(src, dst, &["--delete"], 0).count("respelt"), 0);
}

#[test]
fn the_first_of_names_that_are_one_gives_the_replica_its_spelling_when_movers_share_them() {
    only_local!("goes over ssh anyway");
    let Stage { src, dst, .. } = &stage();
    (0..PAIRS).for_each(|number| put(&src.join(format!("name{number}")), "lower, and longer"));
    let _ = sync_ok(src, dst, NONE);
    put_pairs(src);
    let outcome = on_movers(src, dst, &["--delete"], 3);
    assert_eq!(
        [outcome.count("respelt"), outcome.count("deleted")],
        [PAIRS as u64, 0],
        "{}",
        outcome.describe()
    );
    assert!(
        names_below(dst).iter().all(|name| name.starts_with("NAME")),
        "{:?}",
        names_below(dst)
    );
    assert!((0..PAIRS).all(|number| read(&dst.join(format!("NAME{number}"))) == "upper"));
}
