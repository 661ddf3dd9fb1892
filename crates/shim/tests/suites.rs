//! Test suites of others: each of their tests ends with the library as it does without, and what
//! they print and write is the same.
#![allow(clippy::disallowed_methods)]

mod common;

use common::Agent;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

/// Debian's, whose suite `make test-packages` installs.
const PYTHON: &str = "/usr/bin/python3";
/// Its modules, and into how many parts each is divided, which run at once: most of their time they
/// wait.
const MODULES: [(&str, usize); 5] = [
    ("test_os", 1),
    ("test_subprocess", 4),
    ("test_shutil", 1),
    ("test_tempfile", 1),
    ("test_mmap", 1),
];
/// Tests that end one way or another by themselves: a child has to start within a second or two.
const LEFT_OUT: [&str; 2] = ["_timeout", "test_leaking_fds_on_error"];

/// Where GLib's tests are.
const GLIB: &str = "/usr/libexec/installed-tests/glib";
/// Those of them that work with files and processes and succeed for root.
const GLIB_PROGRAMS: [&str; 20] = [
    "bookmarkfile",
    "buffered-output-stream",
    "converter-stream",
    "dir",
    "environment",
    "file-thumbnail",
    "g-file",
    "g-file-info",
    "gsubprocess",
    "io-channel",
    "io-stream",
    "keyfile",
    "live-g-file",
    "mappedfile",
    "readwrite",
    "spawn-multithreaded",
    "spawn-path-search",
    "spawn-singlethread",
    "spawn-test",
    "unix-streams",
];

/// A command of a suite, which has a folder for its files in the tree, with the library or without.
fn command(agent: &Agent, program: impl AsRef<std::ffi::OsStr>, is_preloaded: bool) -> Command {
    let mut command = agent.command(program);
    if !is_preloaded {
        command.env_remove("LD_PRELOAD");
    }
    let folder = agent.tree().join("temporary");
    fs::create_dir_all(&folder).expect("a folder");
    command.env("TMPDIR", folder).stdin(Stdio::null());
    command
}

/// A part of a module of CPython's tests that runs.
struct Part {
    agent: Agent,
    child: Child,
}

impl Part {
    fn begin(module: &str, number: usize, of: usize, is_preloaded: bool) -> Part {
        let agent = Agent::new();
        let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/suite.py");
        let mut command = command(&agent, PYTHON, is_preloaded);
        command.arg(runner).arg(agent.at("results"));
        command.arg(format!("test.{module}"));
        command.args([number.to_string(), of.to_string()]);
        let said = fs::File::create(agent.at("said")).expect("a file");
        command.stderr(said.try_clone().expect("a copy"));
        let child = command.args(LEFT_OUT).stdout(said).spawn();
        Part {
            agent,
            child: child.expect("it starts"),
        }
    }

    fn said(&self) -> String {
        fs::read_to_string(self.agent.at("said")).unwrap_or_default()
    }

    /// How each of its tests has ended.
    fn endings(&mut self) -> BTreeMap<String, String> {
        let end = self.child.wait().expect("its end");
        assert!(end.success(), "{}", self.said());
        let results = fs::read_to_string(self.agent.at("results")).expect("results");
        let pairs = results.lines().flat_map(|line| line.split_once(' '));
        let pairs = pairs.map(|(test, ending)| (test.to_owned(), ending.to_owned()));
        pairs.collect()
    }
}

#[test]
fn the_tests_of_cpython_end_the_same() {
    let parts = MODULES.into_iter().flat_map(|(module, of)| {
        (0..of).map(move |number| [true, false].map(|is| Part::begin(module, number, of, is)))
    });
    let mut passed = 0;
    for [mut with, mut without] in parts.collect::<Vec<_>>() {
        let (here, there) = (with.endings(), without.endings());
        passed += there.values().filter(|ending| *ending == "passed").count();
        let differs = |test: &&String| here.get(*test) != there.get(*test);
        let tests = here.keys().chain(there.keys());
        let different: Vec<&String> = tests.filter(differs).collect();
        assert!(different.is_empty(), "{different:?}\n{}", with.said());
        assert!(!with.agent.announced().all.is_empty());
        assert_eq!(without.agent.announced().all, [""; 0]);
    }
    assert!(passed > 700, "the test has lost its grip: {passed} passed");
}

/// The results that a program prints in the form of the Test Anything Protocol.
fn results(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_result = |line: &&str| line.starts_with("ok ") || line.starts_with("not ok ");
    text.lines().filter(is_result).map(str::to_owned).collect()
}

/// How a program of GLib's ends, and its results.
fn of_glib(program: &str, is_preloaded: bool) -> (ExitStatus, Vec<String>) {
    let agent = Agent::new();
    let mut command = command(&agent, Path::new(GLIB).join(program), is_preloaded);
    command.args(["--tap", "-k"]).env("HOME", agent.tree());
    command
        .env("G_TEST_SRCDIR", GLIB)
        .env("G_TEST_BUILDDIR", GLIB);
    let output = command.output().expect("GLib's tests: make test-packages");
    (output.status, results(&output))
}

#[test]
fn the_tests_of_glib_end_the_same() {
    let seen: Vec<usize> = std::thread::scope(|scope| {
        let run = |program, is| scope.spawn(move || of_glib(program, is));
        let pairs = GLIB_PROGRAMS.map(|program| (program, run(program, true), run(program, false)));
        let compared = pairs.map(|(program, with, without)| {
            let (with, without) = (
                with.join().expect("an end"),
                without.join().expect("an end"),
            );
            assert_eq!(with, without, "{program}");
            with.1.len()
        });
        compared.to_vec()
    });
    let seen: usize = seen.iter().sum();
    assert!(seen > 250, "the test has lost its grip: {seen} results");
}

/// A program of zlib's, as `make test` of its sources builds them.
fn of_zlib(folder: &Path, name: &str) -> PathBuf {
    let source = format!("/usr/share/doc/zlib1g-dev/examples/{name}.c");
    let program = folder.join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-w", "-o"]).arg(&program).arg(source);
    let output = compiler.arg("-lz").output().expect("a C compiler");
    assert!(output.status.success(), "{output:?}");
    program
}

#[test]
fn the_tests_of_zlib_end_the_same() {
    let programs = tempfile::tempdir().expect("a folder");
    for name in ["example", "minigzip"] {
        of_zlib(programs.path(), name);
    }
    let script = "set -e; echo hello world | $P/minigzip | $P/minigzip -d; $P/example tmp
        seq 100000 >n; cp n m; $P/minigzip n; $P/minigzip -d n.gz; cmp n m
        $P/minigzip -9 m; cksum n m.gz tmp; ls -A";
    let run = |is_preloaded| {
        let mut agent = Agent::new();
        let mut command = command(&agent, "sh", is_preloaded);
        command.env("P", programs.path()).args(["-c", script]);
        (command.output().expect("it starts"), agent.announced().all)
    };
    let ((with, announced), (without, _)) = (run(true), run(false));
    assert!(with.status.success(), "{with:?}");
    assert_eq!(with, without);
    for word in ["w tmp", "w n.gz", "d n", "w m.gz", "d m"] {
        assert!(
            announced.iter().any(|one| one == word),
            "{word}: {announced:?}"
        );
    }
}
