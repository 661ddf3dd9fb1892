//! Files and folders of our own: closed to others whatever the umask, and in no place that others
//! can change.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mounted::Mounted;
use common::{USER, put, wait_until};
use driftless_testkit::{Driftless, FsKind, Scratch, attrs};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The binary in a shell with the usual umask.
fn driftless() -> Driftless {
    let binary = env!("CARGO_BIN_EXE_driftless");
    Driftless::new("sh")
        .args(["-c", "umask 022; exec \"$0\" \"$@\"", binary])
        .env("LC_ALL", "C")
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        .mode()
        & 0o7777
}

/// Two trees of a file, slowly compared, that are stopped when the notes are begun. Returns what
/// was said.
fn interrupted_verification(home: &Path) -> driftless_testkit::Outcome {
    for tree in ["src", "dst"] {
        (0..60).for_each(|file| {
            put(
                &home.join(tree).join(format!("f{file}")),
                vec![b'x'; 200_000],
            )
        });
        (0..60).for_each(|file| {
            attrs::set_mtime(&home.join(tree).join(format!("f{file}")), 1, 0).expect("times")
        });
        attrs::set_mtime(&home.join(tree), 1, 0).expect("times");
    }
    let verify = driftless()
        .env("HOME", home)
        .env("XDG_STATE_HOME", "")
        .args(["verify", "--bwlimit", "2M", "--json"]);
    let running = verify.arg(home.join("src")).arg(home.join("dst")).spawn();
    let state = home.join(".local/state/driftless");
    let begun = || fs::read_dir(&state).is_ok_and(|mut entries| entries.next().is_some());
    let over = std::cell::Cell::new(false);
    wait_until("notes are begun, or it is over", || {
        over.set(running.ends_within(Duration::from_millis(10)));
        begun() || over.get()
    });
    if !over.get() {
        running.signal(Signal::INT);
    }
    running.wait()
}

#[test]
fn folders_and_files_of_ours_are_closed_to_others() {
    let home = Scratch::new(FsKind::Tmpfs, 64);
    let _ = interrupted_verification(home.path()).expect(130);
    for folder in [".local", ".local/state", ".local/state/driftless"] {
        assert_eq!(mode(&home.path().join(folder)), 0o700, "{folder}");
    }
}

#[test]
fn a_home_that_is_not_there_is_not_made() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    ["src", "dst"]
        .iter()
        .for_each(|tree| put(&scratch.path().join(tree).join("f"), "content"));
    let home = scratch.path().join("nonexistent");
    let verify = driftless()
        .env("HOME", &home)
        .env("XDG_STATE_HOME", "")
        .arg("verify");
    let _ = verify
        .arg(scratch.path().join("src"))
        .arg(scratch.path().join("dst"))
        .arg("--no-times")
        .run()
        .expect(0);
    assert!(!home.exists());
}

#[test]
fn a_folder_of_ours_that_was_left_open_is_closed() {
    let home = Scratch::new(FsKind::Tmpfs, 64);
    let state = home.path().join(".local/state/driftless");
    fs::create_dir_all(&state).expect("folder");
    attrs::set_mode(&state, 0o777).expect("chmod");
    let _ = interrupted_verification(home.path()).expect(130);
    assert_eq!(mode(&state), 0o700);
}

#[test]
fn root_does_not_trust_the_state_of_somebody_else() {
    let home = Scratch::new(FsKind::Tmpfs, 64);
    attrs::set_owner(home.path(), USER, USER).expect("chown");
    let outcome = interrupted_verification(home.path()).expect(0);
    assert!(
        outcome.stderr_text().contains("root cannot trust it"),
        "{}",
        outcome.describe()
    );
    assert!(
        fs::read_dir(home.path().join(".local/state/driftless"))
            .expect("list")
            .next()
            .is_none()
    );
}

#[test]
fn a_log_has_the_mode_that_the_users_umask_gives() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    put(&scratch.path().join("src/f"), "x");
    let log = scratch.path().join("run.log");
    let sync = driftless()
        .args(["sync", "--log"])
        .arg(&log)
        .arg(scratch.path().join("src"))
        .arg(scratch.path().join("dst"));
    let _ = sync.run().expect(0);
    assert_eq!(mode(&log), 0o644);
    let report = scratch.path().join("report.html");
    let audit = driftless()
        .args(["audit", "--samples", "9", "--log"])
        .arg(scratch.path().join("audit.log"))
        .arg("--report")
        .arg(&report);
    let _ = audit
        .arg(scratch.path().join("src"))
        .arg(scratch.path().join("dst"))
        .run()
        .expect(0);
    assert_eq!(
        (mode(&report), mode(&scratch.path().join("audit.log"))),
        (0o644, 0o644)
    );
}

#[test]
fn no_file_that_a_run_writes_for_its_user_lies_in_its_trees() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let [src, dst, link] = ["src", "dst", "link"].map(|name| scratch.path().join(name));
    put(&src.join("d/f"), "x");
    put(&dst.join("d/f"), "x");
    std::os::unix::fs::symlink(&dst, &link).expect("symlink");
    let run =
        |words: &[&str], out: &Path| driftless().args(words).arg(out).args([&src, &dst]).run();
    let commands: [&[&str]; 5] = [
        &["sync", "--log"],
        &[
            "sync",
            "--dry-run",
            "--delete",
            "--exclude=/new",
            "--delete-excluded",
            "--log",
        ],
        &["verify", "--log"],
        &["audit", "--samples=9", "--log"],
        &["audit", "--samples=9", "--report"],
    ];
    for words in commands {
        for (out, side) in [
            (dst.join("new"), &dst),
            (src.join("d/new"), &src),
            (link.join("d/new"), &dst),
        ] {
            let outcome = run(words, &out).expect(2);
            let said = outcome.stderr_text();
            assert!(
                [&out, side]
                    .iter()
                    .all(|path| said.contains(&format!("\"{}\"", path.display()))),
                "{}",
                outcome.describe()
            );
            assert!(!out.exists(), "{}", outcome.describe());
        }
    }
    // The rule that is advised spares it, and a list that has other paths.
    let said = run(&["sync", "--log"], &dst.join("new")).stderr_text();
    assert!(said.contains("--exclude '/new'"), "{said}");
    let _ = run(
        &["sync", "--delete", "--exclude", "/new", "--log"],
        &dst.join("new"),
    )
    .expect(0);
    assert!(dst.join("new").exists());
    // Nor is it a tree itself, when that is a file.
    let [file, copy] = [src.join("d/f"), scratch.path().join("copy")];
    for (log, to) in [(&file, &copy), (&copy, &copy)] {
        let outcome = driftless()
            .args(["sync", "--log"])
            .args([log, &file, to])
            .run()
            .expect(2);
        assert!(
            outcome.stderr_text().contains("name another file"),
            "{}",
            outcome.describe()
        );
    }
    assert!(!copy.exists());
}

#[test]
fn dangling_link_into_a_tree_is_refused() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let path = |name: &str| scratch.path().join(name);
    let [src, dst] = ["src", "dst"].map(path);
    put(&src.join("d/f"), "x");
    put(&dst.join("d/f"), "x");
    let link = |name: &str, target: &Path| {
        std::os::unix::fs::symlink(target, path(name)).expect("symlink");
        path(name)
    };
    let outs = [
        (link("into-source", &src.join("log")), src.join("log")),
        (link("chain", Path::new("into-replica")), dst.join("d/log")),
        (link("relative", Path::new("src/d/log")), src.join("d/log")),
    ];
    let _its_second_link = link("into-replica", &dst.join("d/log"));
    let commands: [&[&str]; 4] = [
        &["sync", "--log"],
        &["verify", "--log"],
        &["audit", "--samples=9", "--log"],
        &["audit", "--samples=9", "--report"],
    ];
    for words in commands {
        for (out, target) in &outs {
            let run = driftless().args(words).arg(out).args([&src, &dst]);
            let outcome = run.run().expect(2);
            assert!(!target.exists(), "{}", outcome.describe());
            assert!(out.is_symlink(), "{}", outcome.describe());
        }
    }
    // A report would take the place of a link that lies in a tree.
    let inside = link("dst/report", &path("elsewhere"));
    let run = driftless().args(["audit", "--samples=9", "--report"]);
    let _ = run.arg(&inside).args([&src, &dst]).run().expect(2);
    let elsewhere = link("outside", &path("elsewhere"));
    let run = driftless().args(["sync", "--delete", "--log"]);
    let _ = run.arg(&elsewhere).args([&src, &dst]).run().expect(0);
    assert!(path("elsewhere").exists());
    let round = link("round", &path("round"));
    let run = driftless().args(["sync", "--log"]).arg(&round);
    let _ = run.args([&src, &dst]).run().expect(1);
}

#[test]
fn what_runs_note_in_a_tree_is_no_difference_of_it() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let [home, copy] = ["the [home]'s", "copy"].map(|name| scratch.path().join(name));
    put(&home.join("file"), "content");
    fs::create_dir(home.join("disk")).expect("folder");
    let _disk = Mounted::tmpfs(&home.join("disk"));
    put(&home.join("disk/file"), "content");
    let run = |words: &[&str], trees: [&Path; 2]| {
        driftless()
            .env("HOME", &home)
            .env("XDG_STATE_HOME", "")
            .args(words)
            .args(trees)
            .run()
    };
    let _ = run(&["sync"], [&home, &copy]).expect(0);
    // The folder was not there when the run began.
    assert!(!copy.join(".local/state/driftless").exists());
    let notes = || {
        fs::read_dir(home.join(".local/state/driftless"))
            .expect("list")
            .count()
    };
    assert_eq!(notes(), 1, "what is mounted");
    let _ = run(&["verify"], [&home, &copy]).expect(0);
    let again = run(&["sync", "--json", "--delete"], [&home, &copy]).expect(0);
    assert_eq!(
        (again.count("changed"), again.count("deleted")),
        (0, 0),
        "{}",
        again.describe()
    );
    assert!(copy.join(".local/state").exists() && !copy.join(".local/state/driftless").exists());
    // Nor do the notes go from a home that is made equal to its copy.
    put(&home.join("new"), "content");
    let back = run(&["sync", "--json", "--delete"], [&copy, &home]).expect(0);
    assert_eq!(
        (back.count("deleted"), notes()),
        (1, 1),
        "{}",
        back.describe()
    );
}

#[test]
fn a_run_of_root_keeps_nobody_from_the_mirrors_that_listen() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    let job = scratch.path().join("job.toml");
    let text =
        "name = \"test\"\nsource = \"SRC\"\nreplica = \"DST\"\ndetect = [\"announcements\"]\n";
    let tree = |path: &Path| path.to_str().expect("text").to_owned();
    let text = text.replace("SRC", &tree(&src)).replace("DST", &tree(&dst));
    put(&job, text);
    // With a /run as it is after the machine was started.
    let script = r#"
        unset DRIFTLESS_RUNTIME_DIR; umask 077; mount -t tmpfs -o mode=755 none /run
        "$0" sync --quiet "$1" "$2" || exit 1
        "$0" mirror run "$3" & mirror=$!
        for try in $(seq 6000); do [ -S /run/driftless/test.post ] && break; sleep 0.05; done
        stat -c '%a %n' /run/driftless /run/driftless/locks
        kill $mirror; wait $mirror
        exit 0
    "#;
    let told = Driftless::new("unshare")
        .args([
            "--mount",
            "bash",
            "-c",
            script,
            env!("CARGO_BIN_EXE_driftless"),
        ])
        .args([&src, &dst, &job])
        .env("XDG_STATE_HOME", scratch.path().join("state"))
        .run()
        .expect(0);
    let text = told.stdout_text();
    let modes: Vec<&str> = text.lines().collect();
    let expected = ["755 /run/driftless", "600 /run/driftless/locks"];
    assert_eq!(modes, expected, "{}", told.describe());
}
