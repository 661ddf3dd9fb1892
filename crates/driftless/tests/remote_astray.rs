//! Connections that reach another agent, another boot, another machine or another tree than the run
//! began with.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{self, Far, Way, Who, cut_after, hand_over};
use common::mounted::Mounted;
use common::programs::bash;
use common::relayed::Stage;
use common::{check_accounts, check_equal, files_below, names_below, put, stage, wait_until};
use driftless_testkit::{Driftless, EVENT_MAX, Outcome};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// What a run may take on a busy machine, its losses included.
const RUN_MAX: Duration = EVENT_MAX;

impl Stage {
    /// An agent that a shell starts; `AGENT` is the real one, and `FLAG` a file that is not there
    /// at first.
    fn agent(&self, text: &str) -> PathBuf {
        let flag = self.scratch.path().join("flag");
        let text = text
            .replace("AGENT", far::agent())
            .replace("FLAG", &flag.display().to_string());
        bash(&self.scratch, "agent", &text)
    }

    fn push_by(&self, agent: &Path) -> Driftless {
        let run = self.near.command_with(
            "sync",
            agent,
            self.near.ends(Way::Push, &self.src, &self.dst),
        );
        run.args(["--json", "--durability=none"]).limit(RUN_MAX)
    }
}

fn notes(outcome: &Outcome) -> Vec<String> {
    outcome
        .events_named("note")
        .iter()
        .map(|note| note["message"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn a_further_connection_that_goes_astray_is_dropped_and_said_once() {
    let programs = [
        // Another node: there is no such socket in its network.
        "case \"$*\" in *--join*) exec unshare -n AGENT \"$@\";; *) exec AGENT \"$@\";; esac",
        // A key that has one command, whatever is asked for.
        "exec AGENT agent",
        "case \"$*\" in *--join*) echo sorry >&2; exit 1;; *) exec AGENT \"$@\";; esac",
    ];
    for program in programs {
        let stage = Stage::with_rate(40 * MIB);
        put(&stage.src.join("large"), vec![7; 80 * MIB as usize]);
        for index in 0..100 {
            put(
                &stage.src.join(format!("file-{index}")),
                vec![index; 50_000],
            );
        }
        let outcome = stage
            .push_by(&stage.agent(program))
            .arg("--streams=4")
            .run()
            .expect(0);
        check_accounts(&outcome);
        check_equal(&stage.src, &stage.dst, &outcome.describe());
        assert_eq!(
            outcome.count("connections_lost"),
            0,
            "{program}\n{}",
            outcome.describe()
        );
        let said = notes(&outcome);
        assert_eq!(said.len(), 1, "{program}: {said:?}");
        assert!(said[0].contains("one connection"), "{program}: {said:?}");
    }
}

#[test]
fn further_connections_that_reach_the_agent_are_used() {
    let stage = Stage::with_rate(40 * MIB);
    put(&stage.src.join("large"), vec![7; 80 * MIB as usize]);
    let outcome = stage
        .push_by(Path::new(far::agent()))
        .arg("--streams=4")
        .run()
        .expect(0);
    check_equal(&stage.src, &stage.dst, &outcome.describe());
    assert_eq!(
        (stage.relay.accepted(), notes(&outcome)),
        (4, Vec::new()),
        "{}",
        outcome.describe()
    );
}

/// From the second time on the agent is started in a namespace in which the machine's boot has
/// another number, and does this besides.
fn restarted(besides: &str) -> String {
    let boot = "/proc/sys/kernel/random/boot_id";
    let other = "00000000-1111-2222-3333-444444444444";
    let inner = format!(
        "echo {other} > FLAG.boot; mount --bind FLAG.boot {boot}; {besides} exec AGENT \"$@\""
    );
    format!(
        "if [ -e FLAG ]; then exec unshare -m -u bash -c '{inner}' agent \"$@\"; fi\n: > FLAG\nexec AGENT \"$@\""
    )
}

/// A stage with files that take some seconds.
fn filled() -> Stage {
    let stage = Stage::with_rate(6 * MIB);
    for index in 0..200u64 {
        put(
            &stage.src.join(format!("dir-{}/file-{index}", index % 10)),
            vec![index as u8 + 1; 30_000],
        );
    }
    put(&stage.src.join("large"), vec![7; 24 * MIB as usize]);
    stage
}

/// What a file has become that was not on the disk yet when the power went.
fn lose_content(file: &Path) {
    let meta = fs::metadata(file).expect("stat");
    fs::write(file, vec![0; meta.len() as usize]).expect("write");
    fs::File::options()
        .write(true)
        .open(file)
        .and_then(|open| open.set_modified(meta.modified()?))
        .expect("time");
}

#[test]
fn what_was_written_before_the_far_host_restarted_is_compared_by_content() {
    let stage = filled();
    let agent = stage.agent(&restarted(""));
    let running = stage.push_by(&agent).arg("--streams=1").spawn();
    let victims = || -> Vec<PathBuf> {
        let all = driftless_testkit::mutate::list_all(&stage.dst).unwrap_or_default();
        let is_whole = |path: &PathBuf| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("file-"))
        };
        all.into_iter()
            .filter(|path| {
                is_whole(path) && fs::metadata(path).is_ok_and(|meta| meta.len() == 30_000)
            })
            .collect()
    };
    common::wait_until("some are there", || victims().len() > 60);
    stage.relay.stall();
    stage.relay.cut();
    victims()
        .iter()
        .take(20)
        .for_each(|file| lose_content(file));
    stage.relay.resume();
    let outcome = running.wait().expect(0);
    assert_eq!(
        outcome.count("connections_lost"),
        1,
        "{}",
        outcome.describe()
    );
    check_equal(&stage.src, &stage.dst, &outcome.describe());
    assert!(
        notes(&outcome)
            .iter()
            .any(|note| note.contains("started anew")),
        "{:?}",
        notes(&outcome)
    );
}

#[test]
fn another_machine_of_the_same_name_is_not_taken_for_the_first() {
    let stage = Stage::with_rate(6 * MIB);
    put(&stage.src.join("large"), vec![7; 24 * MIB as usize]);
    let agent = stage.agent(&restarted("hostname elsewhere;"));
    let running = stage
        .push_by(&agent)
        .args(["--streams=1", "--reconnect=3"])
        .spawn();
    let outcome = cut_after(&stage.relay, running, &[8 * MIB]).expect(1);
    let text = outcome.stderr_text();
    assert!(
        text.contains("leads to \"elsewhere\"") && text.contains("run again"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn the_first_machine_is_gone_on_with_when_it_answers_again() {
    let stage = Stage::with_rate(6 * MIB);
    put(&stage.src.join("large"), vec![7; 24 * MIB as usize]);
    // The second time it is another, the third time the first.
    let agent = stage.agent(&format!(
        "if [ -e FLAG.other ]; then rm -f FLAG FLAG.other; fi\n[ -e FLAG ] && : > FLAG.other\n{}",
        restarted("hostname elsewhere;")
    ));
    let running = stage.push_by(&agent).arg("--streams=1").spawn();
    let outcome = cut_after(&stage.relay, running, &[8 * MIB]).expect(0);
    assert_eq!(
        (
            outcome.count("connections_lost"),
            outcome.events_named("connected_again").len()
        ),
        (1, 1),
        "{}",
        outcome.describe()
    );
    check_equal(&stage.src, &stage.dst, &outcome.describe());
}

/// Another directory at the path of a tree.
enum Exchanged {
    /// The tree was renamed, and a new directory has its name.
    Renamed { tree: PathBuf, aside: PathBuf },
    /// A file system is mounted on the tree.
    Mounted(Mounted),
}

impl Exchanged {
    fn new(tree: &Path, is_mounted: bool) -> Exchanged {
        if is_mounted {
            return Exchanged::Mounted(Mounted::tmpfs(tree));
        }
        let (tree, aside) = (tree.to_owned(), tree.with_extension("aside"));
        fs::rename(&tree, &aside).expect("renamed");
        fs::create_dir(&tree).expect("a directory");
        Exchanged::Renamed { tree, aside }
    }

    fn undo(self) {
        match self {
            Exchanged::Renamed { tree, aside } => {
                fs::remove_dir_all(&tree).expect("removed");
                fs::rename(aside, tree).expect("renamed");
            }
            Exchanged::Mounted(mounted) => drop(mounted),
        }
    }
}

fn finished_files(tree: &Path) -> Vec<String> {
    let mut names = names_below(tree);
    names.retain(|name| name.contains("file-") && !name.contains(".driftless"));
    names
}

/// Exchanges the tree of the other host while the line is cut.
fn exchange_during_a_cut(way: Way, is_mounted: bool) {
    let stage = filled();
    put(&stage.dst.join("extra/file-here"), "only here");
    let arguments = ["--delete", "--durability=none", "--streams=1"];
    let run = stage.near.sync(way, &stage.src, &stage.dst).args(arguments);
    let running = run.arg("--delete-unlike").limit(RUN_MAX).spawn();
    wait_until("the replica fills", || files_below(&stage.dst) > 60);
    stage.relay.stall();
    stage.relay.cut();
    let finished = finished_files(&stage.dst);
    let is_pull = way == Way::Pull;
    let tree = if is_pull { &stage.src } else { &stage.dst };
    let exchanged = Exchanged::new(tree, is_mounted);
    if is_pull {
        put(&tree.join("dir-0/file-0"), "another tree");
    }
    stage.relay.resume();
    let outcome = running.wait().expect(1);
    let (text, typed) = (outcome.stderr_text(), stage.near.path(tree));
    let named = format!("\"{}\": cannot go on", typed.display());
    for words in [&*named, "is not what the run began with", "put back"] {
        assert!(text.contains(words), "{words}\n{}", outcome.describe());
    }
    assert_eq!(outcome.summary()["end"], "cut_off");
    if is_pull {
        let kept = finished_files(&stage.dst);
        assert!(finished.iter().all(|name| kept.contains(name)), "{text}");
        assert_eq!(outcome.count("deleted"), 0, "{}", outcome.describe());
    } else {
        assert_eq!(names_below(tree), Vec::<String>::new(), "{text}");
    }
    exchanged.undo();
    // The agent of the lost line may hold the lock a moment longer.
    wait_until("the replica is free", || {
        let again = stage.far.sync(way, &stage.src, &stage.dst).args(arguments);
        again.run().code() == 0
    });
    check_equal(&stage.src, &stage.dst, "put back");
}

#[test]
fn replica_exchanged_during_a_cut_gets_nothing() {
    for is_mounted in [false, true] {
        exchange_during_a_cut(Way::Push, is_mounted);
    }
}

#[test]
fn source_exchanged_during_a_cut_deletes_nothing() {
    for is_mounted in [false, true] {
        exchange_during_a_cut(Way::Pull, is_mounted);
    }
}

#[test]
fn mount_that_goes_during_a_cut_deletes_nothing() {
    for way in [Way::Push, Way::Pull] {
        let stage = filled();
        let disk = stage.src.join("dir-0/disk");
        let mounted = Mounted::tmpfs(&disk);
        put(&disk.join("file"), "on the disk");
        let run = stage.near.sync(way, &stage.src, &stage.dst);
        let run = run.args(["--delete", "--durability=none", "--streams=1", "--jobs=1"]);
        let running = run.limit(RUN_MAX).spawn();
        let copied = stage.dst.join("dir-0/disk/file");
        wait_until("the disk is copied", || copied.exists());
        stage.relay.stall();
        stage.relay.cut();
        drop(mounted);
        stage.relay.resume();
        let outcome = running.wait().expect(3);
        assert_eq!(outcome.count("deleted"), 0, "{}", outcome.describe());
        assert!(copied.exists(), "{}", outcome.describe());
    }
}

#[test]
fn a_relative_path_does_not_begin_in_the_top_directory_when_the_home_is_missing() {
    let far = Far::of(Who::User);
    let (scratch, src, dst) = stage();
    put(&src.join("file"), "content");
    hand_over(scratch.path());
    let relative = src.strip_prefix("/").expect("an absolute path");
    let there = scratch.path().display().to_string();
    for (home, why) in [
        ("/missing/home", "no such file or directory"),
        (&*there, "not started there but in /"),
    ] {
        let agent = bash(
            &scratch,
            "agent",
            &format!("cd /; HOME={home} exec {} \"$@\"", far::agent()),
        );
        for typed in [relative.to_owned(), Path::new("~").join(relative)] {
            let sync = |from: &Path| {
                far.command_with("sync", &agent, [far.path(from), dst.clone().into()])
                    .run()
            };
            let outcome = sync(&typed);
            let text = outcome.stderr_text();
            assert_ne!(outcome.code(), 0, "{}", outcome.describe());
            assert!(
                text.contains("cannot begin in the home directory: ") && text.contains(why),
                "{}",
                outcome.describe()
            );
            assert!(
                text.contains("give a path that begins with a slash") && !dst.exists(),
                "{}",
                outcome.describe()
            );
        }
    }
    let agent = bash(
        &scratch,
        "agent",
        &format!("cd /; HOME=/ exec {} \"$@\"", far::agent()),
    );
    let _ = far
        .command_with("sync", &agent, [far.path(relative), dst.clone().into()])
        .run()
        .expect(0);
    check_equal(&src, &dst, "the home may be the top");
}
