//! An agent that is brought along: copied into the user's cache on a host that has none, found
//! there again, and never taken from where somebody else could have put it.
//!
//! What is copied is the program under test, linked statically; cargo builds that beside the other,
//! from the same libraries.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{Far, Way};
use common::{USER, check_equal, put};
use driftless_testkit::{Driftless, FsKind, Outcome, Scratch, write_program};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program under test, linked statically.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args([
            "rustc",
            "-q",
            "--offline",
            "-p",
            "driftless",
            "--bin",
            "driftless-static",
            "--features",
            "static-program",
        ]);
        let built = cargo
            .args(["--", "-C", "target-feature=+crt-static"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(built.expect("cargo starts").success(), "no static program");
        let program = Path::new(env!("CARGO_BIN_EXE_driftless")).with_file_name("driftless-static");
        assert!(
            program.exists(),
            "{} was not built: are the tests built with another profile?",
            program.display()
        );
        program
    })
}

/// A far host whose user's home is a folder of the test, and where no driftless is found.
struct Stage {
    far: Far,
    scratch: Scratch,
    src: PathBuf,
    dst: PathBuf,
    home: PathBuf,
}

impl Stage {
    fn new() -> Stage {
        let (far, scratch) = (Far::root(), Scratch::new(FsKind::Tmpfs, 400));
        let (src, dst, home) = (
            scratch.dir("src"),
            scratch.path().join("dst"),
            scratch.dir("home"),
        );
        put(&src.join("dir/file"), "content");
        Stage {
            far,
            scratch,
            src,
            dst,
            home,
        }
    }

    /// A command that connects, with another home there, and notes what it is asked to run.
    fn ssh(&self) -> PathBuf {
        let (path, log) = (self.scratch.path().join("connect"), self.log());
        let (home, words) = (self.home.display(), self.far.words());
        let text = format!(
            "#!/bin/sh\n[ \"$1\" = -- ] || exit 2\nprintf '%s\\n' \"$3\" >> {log}\n\
             exec {words} -- \"$2\" \"unset XDG_CACHE_HOME; HOME='{home}'; export HOME; $3\"\n",
            log = log.display()
        );
        write_program(&path, &text);
        path
    }

    fn log(&self) -> PathBuf {
        self.scratch.path().join("log")
    }

    /// How often a program was sent.
    fn sent(&self) -> usize {
        fs::read_to_string(self.log())
            .unwrap_or_default()
            .lines()
            .filter(|line| line.contains("cat >"))
            .count()
    }

    fn run_of(&self, program: &Path, way: Way, arguments: &[&str]) -> Driftless {
        let run = Driftless::new(program)
            .args(["sync", "--json", "--ssh"])
            .arg(self.ssh());
        run.args(arguments)
            .args(self.far.ends(way, &self.src, &self.dst))
    }

    /// Runs the static program with `--deploy`, which must succeed.
    fn deploy(&self) -> Outcome {
        let outcome = self
            .run_of(program(), Way::Push, &["--deploy"])
            .run()
            .expect(0);
        check_equal(&self.src, &self.dst, &outcome.describe());
        outcome
    }

    /// Runs it where it must fail, with these words.
    fn fail(&self, program: &Path, arguments: &[&str], words: &[&str]) {
        let outcome = self.run_of(program, Way::Push, arguments).run().expect(1);
        let text = outcome.stderr_text();
        for word in words {
            assert!(
                text.contains(word),
                "no word of \"{word}\"\n{}",
                outcome.describe()
            );
        }
        assert!(!self.dst.exists(), "{}", outcome.describe());
    }

    /// The folders of the versions that are there.
    fn versions(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.home.join(".cache/driftless")).expect("list");
        all.map(|entry| entry.expect("entry").path()).collect()
    }

    fn cached(&self) -> PathBuf {
        let versions = self.versions();
        assert_eq!(versions.len(), 1, "{versions:?}");
        versions[0].join("driftless")
    }
}

#[test]
fn movers_are_brought_along_and_bring_agents() {
    let stage = Stage::new();
    let on_hosts = ["--hosts", "far,far", "--agent-path", "nothing-of-this-name"];
    let outcome = stage
        .run_of(program(), Way::Pull, &on_hosts)
        .arg("--deploy")
        .run()
        .expect(0);
    check_equal(&stage.src, &stage.dst, &outcome.describe());
    // The coordinator, which reaches the source itself, has brought it before the movers are
    // started.
    assert_eq!(stage.sent(), 1, "{}", outcome.describe());
    assert_eq!(
        fs::read(stage.cached()).expect("read"),
        fs::read(program()).expect("read")
    );
    let other = stage.scratch.path().join("other");
    let near = |arguments: &[&str]| {
        let run = Driftless::new(program())
            .args(["sync", "--json", "--ssh"])
            .arg(stage.ssh())
            .args(on_hosts);
        run.args(arguments).arg(&stage.src).arg(&other)
    };
    let outcome = near(&[]).run().expect(0);
    for words in ["--deploy", "this host goes on alone"] {
        let text = outcome.stdout_text();
        assert!(text.contains(words), "{words}\n{}", outcome.describe());
    }
    fs::remove_dir_all(&other).expect("remove");
    fs::remove_dir_all(stage.home.join(".cache")).expect("remove");
    let outcome = near(&["--deploy"]).run().expect(0);
    check_equal(&stage.src, &other, &outcome.describe());
    assert!(
        (2..=3).contains(&stage.sent()),
        "once, or by both movers at once\n{}",
        outcome.describe()
    );
}

#[test]
fn an_agent_that_is_missing_is_brought_along_once() {
    for way in Way::ALL {
        let stage = Stage::new();
        let outcome = stage.run_of(program(), way, &["--deploy"]).run().expect(0);
        check_equal(&stage.src, &stage.dst, &outcome.describe());
        assert_eq!(stage.sent(), 1, "{way:?}");
        let cached = stage.cached();
        assert_eq!(
            fs::read(&cached).expect("read"),
            fs::read(program()).expect("read")
        );
        for (path, mode) in [
            (cached.as_path(), 0o700),
            (cached.parent().expect("a folder"), 0o700),
            (&stage.home.join(".cache/driftless"), 0o700),
        ] {
            assert_eq!(
                fs::metadata(path).expect("stat").mode() & 0o7777,
                mode,
                "{}",
                path.display()
            );
        }
        let before = fs::metadata(&cached).expect("stat").ino();
        put(&stage.src.join("more"), "content");
        let _ = stage.deploy();
        assert_eq!(
            (stage.sent(), fs::metadata(&cached).expect("stat").ino()),
            (1, before),
            "it was copied again"
        );
        assert_eq!(
            fs::read_dir(cached.parent().expect("a folder"))
                .expect("list")
                .count(),
            1
        );
    }
}

#[test]
fn without_deploy_nothing_is_copied_and_the_error_names_it() {
    let stage = Stage::new();
    stage.fail(
        program(),
        &[],
        &["there is no \"driftless\" there", "--deploy"],
    );
    assert!(!stage.home.join(".cache").exists() && stage.sent() == 0);
}

#[test]
fn a_damaged_copy_is_replaced() {
    type Damage = fn(&Path);
    let damages: [Damage; 6] = [
        |path| fs::write(path, "#!/bin/sh\necho bad; exit 1\n").expect("write"),
        |path| {
            fs::OpenOptions::new()
                .write(true)
                .open(path)
                .and_then(|file| file.set_len(100_000))
                .expect("cut")
        },
        |path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("chmod"),
        |path| chown(path, Some(USER), None).expect("chown"),
        |path| {
            fs::remove_file(path)
                .and_then(|()| symlink("/bin/sh", path))
                .expect("link")
        },
        |path| {
            fs::remove_file(path)
                .and_then(|()| fs::create_dir(path))
                .expect("folder")
        },
    ];
    let stage = Stage::new();
    let _ = stage.deploy();
    for (number, damage) in damages.into_iter().enumerate() {
        damage(&stage.cached());
        put(&stage.src.join(format!("more-{number}")), "content");
        let _ = stage.deploy();
        assert_eq!(stage.sent(), number + 2, "damage {number}");
        let meta = fs::symlink_metadata(stage.cached()).expect("stat");
        assert!(
            meta.is_file() && meta.mode() & 0o7777 == 0o700 && meta.uid() == 0,
            "damage {number}"
        );
        assert_eq!(
            fs::read(stage.cached()).expect("read"),
            fs::read(program()).expect("read"),
            "damage {number}"
        );
    }
    assert!(fs::symlink_metadata("/bin/sh").expect("stat").len() > 0);
}

#[test]
fn an_agent_of_another_version_is_left_alone_and_another_brought_along() {
    let stage = Stage::new();
    let other = stage.scratch.path().join("other");
    write_program(
        &other,
        "#!/bin/sh\necho driftless-agent 999 9.9.9; exec cat >/dev/null\n",
    );
    let agent = format!("--agent-path={}", other.display());
    stage.fail(program(), &[&agent], &["999", "--deploy"]);
    let older = stage
        .home
        .join(".cache/driftless/0.0.1-0123456789abcdef/driftless");
    put(&older, "an older one");
    let outcome = stage
        .run_of(program(), Way::Push, &[&agent, "--deploy"])
        .run()
        .expect(0);
    check_equal(&stage.src, &stage.dst, &outcome.describe());
    assert_eq!((stage.sent(), stage.versions().len()), (1, 2));
    assert_eq!(fs::read_to_string(older).expect("read"), "an older one");
}

#[test]
fn a_cache_that_cannot_be_written_is_told() {
    let stage = Stage::new();
    put(&stage.home.join(".cache"), "a file");
    stage.fail(
        program(),
        &["--deploy"],
        &["cannot deploy the agent", ".cache"],
    );
    // An ordinary user there, and a home that is root's.
    fs::remove_file(stage.home.join(".cache")).expect("remove");
    fs::set_permissions(stage.scratch.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let typed = format!("far-user:{}", stage.dst.display());
    let run = Driftless::new(program())
        .args(["sync", "--deploy", "--ssh"])
        .arg(stage.ssh())
        .arg(&stage.src)
        .arg(typed);
    let outcome = run.run().expect(1);
    let text = outcome.stderr_text();
    assert!(
        text.contains("cannot deploy the agent") && text.contains("Permission denied"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_cache_that_somebody_else_has_laid_out_is_refused() {
    let trap = |stage: &Stage| {
        let trap = stage.scratch.dir("trap");
        chown(&trap, Some(USER), Some(USER)).expect("chown");
        trap
    };
    // A symbolic link in place of our folder.
    let stage = Stage::new();
    fs::create_dir(stage.home.join(".cache")).expect("folder");
    let there = trap(&stage);
    symlink(&there, stage.home.join(".cache/driftless")).expect("link");
    stage.fail(
        program(),
        &["--deploy"],
        &["not a directory of this user", ".cache/driftless"],
    );
    assert_eq!(
        fs::read_dir(&there).expect("list").count(),
        0,
        "something was put behind the link"
    );
    // A folder that is somebody else's.
    fs::remove_file(stage.home.join(".cache/driftless")).expect("remove");
    fs::rename(&there, stage.home.join(".cache/driftless")).expect("rename");
    stage.fail(
        program(),
        &["--deploy"],
        &["not a directory of this user", ".cache/driftless"],
    );
    // A link one level below, in a folder that was once open to others.
    fs::remove_dir(stage.home.join(".cache/driftless")).expect("remove");
    let _ = stage.deploy();
    let version = stage.versions().remove(0);
    fs::remove_dir_all(&version).expect("remove");
    fs::remove_dir_all(&stage.dst).expect("remove");
    let there = trap(&stage);
    symlink(&there, &version).expect("link");
    stage.fail(program(), &["--deploy"], &["not a directory of this user"]);
    assert_eq!(
        fs::read_dir(&there).expect("list").count(),
        0,
        "something was put behind the link"
    );
    // A cache in which everybody may do as he likes.
    fs::set_permissions(stage.home.join(".cache"), fs::Permissions::from_mode(0o777))
        .expect("chmod");
    stage.fail(
        program(),
        &["--deploy"],
        &["others may change the directory"],
    );
}

#[test]
fn nothing_is_started_from_a_cache_that_a_group_or_another_user_may_change() {
    let stage = Stage::new();
    let cache = stage.home.join(".cache");
    fs::create_dir(&cache).expect("make");
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod")
    };
    let refused = || {
        stage.fail(
            program(),
            &["--deploy"],
            &["others may change the directory", "chmod go-w"],
        )
    };
    mode(&cache, 0o775);
    refused();
    mode(&cache, 0o755);
    mode(&stage.home, 0o775);
    refused();
    mode(&stage.home, 0o755);
    chown(&cache, Some(USER), None).expect("chown");
    refused();
    assert_eq!(
        (stage.sent(), fs::read_dir(&cache).expect("list").count()),
        (0, 0),
        "something was put there"
    );
    chown(&cache, Some(0), None).expect("chown");
    mode(&cache, 0o1777);
    let _ = stage.deploy();
}

#[test]
fn a_dynamically_linked_program_is_refused_with_a_hint() {
    let stage = Stage::new();
    let dynamic = Path::new(env!("CARGO_BIN_EXE_driftless"));
    stage.fail(
        dynamic,
        &["--deploy"],
        &["dynamically linked", "make static", "--deploy=FILE"],
    );
    stage.fail(
        dynamic,
        &[&format!("--deploy={}", dynamic.display())],
        &["dynamically linked", "make static"],
    );
    stage.fail(
        dynamic,
        &["--deploy=/etc/passwd"],
        &["is not a Linux program"],
    );
    stage.fail(
        dynamic,
        &["--deploy=/nonexistent"],
        &["cannot read", "no such file"],
    );
    assert!(!stage.home.join(".cache").exists());
    let outcome = stage
        .run_of(
            dynamic,
            Way::Push,
            &[&format!("--deploy={}", program().display())],
        )
        .run()
        .expect(0);
    check_equal(&stage.src, &stage.dst, &outcome.describe());
}

#[test]
fn a_program_for_another_machine_is_refused() {
    let stage = Stage::new();
    let other = stage.scratch.path().join("other");
    let mut bytes = fs::read(program()).expect("read");
    // `e_machine` of elf(5); 183 is AArch64, 62 is x86-64.
    bytes[18] = if cfg!(target_arch = "x86_64") {
        183
    } else {
        62
    };
    fs::write(&other, bytes).expect("write");
    stage.fail(
        program(),
        &[&format!("--deploy={}", other.display())],
        &["Linux", "aarch64", "x86_64", "--deploy=FILE"],
    );
    assert_eq!(stage.sent(), 0);
}

#[test]
fn a_deployed_agent_serves_again_after_its_line_was_lost() {
    let stage = Stage::new();
    put(&stage.src.join("large"), vec![7; 40 << 20]);
    let far = Far::own();
    let stage = Stage { far, ..stage };
    let running = stage
        .run_of(
            program(),
            Way::Push,
            &["--deploy", "--bwlimit=10M", "--durability=none"],
        )
        .spawn();
    common::wait_until("the copy has begun", || stage.dst.join("large").exists());
    stage.far.server.kill_sessions();
    let outcome = running.wait().expect(0);
    assert_eq!(
        outcome.events_named("connected_again").len(),
        1,
        "{}",
        outcome.describe()
    );
    check_equal(&stage.src, &stage.dst, &outcome.describe());
    assert_eq!(stage.sent(), 1);
}

/// Returns a command that connects to a host with this login shell. The shell runs here, in the home
/// of the stage.
fn login(stage: &Stage, shell: &str) -> PathBuf {
    let path = stage.scratch.path().join("login");
    let home = stage.home.display();
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = -- ] || exit 2\nunset XDG_CACHE_HOME\nHOME='{home}'\nexport HOME\n\
         exec {shell} -c \"$3\"\n"
    );
    write_program(&path, &text);
    path
}

/// Returns a push to a host with this login shell, where no agent is.
fn push_to_shell(stage: &Stage, shell: &str, arguments: &[&str]) -> Driftless {
    Driftless::new(program())
        .args(["sync", "--ssh"])
        .arg(login(stage, shell))
        .args(["--agent-path", "/nonexistent/driftless"])
        .args(arguments)
        .arg(&stage.src)
        .arg(format!("far:{}", stage.dst.display()))
}

#[test]
fn agents_are_brought_along_whatever_the_login_shell() {
    for shell in ["dash", "tcsh", "tcsh -f", "fish", "rude"] {
        let stage = Stage::new();
        put(&stage.home.join(".tcshrc"), "echo welcome\n");
        // As some shells say it, with an exit code that says nothing.
        let rude = stage.scratch.path().join("rude");
        write_program(
            &rude,
            "#!/bin/sh\nsh -c \"$2\" 2> \"$0.err\"; code=$?\n\
             [ $code != 127 ] || { echo 'rc: cannot find `/nonexistent/driftless'\\' >&2; exit 1; }\n\
             cat \"$0.err\" >&2; exit $code\n",
        );
        let shell = if shell == "rude" {
            rude.to_str().expect("text")
        } else {
            shell
        };
        let outcome = push_to_shell(&stage, shell, &[]).run().expect(1);
        let words = "there is no \"/nonexistent/driftless\" there";
        assert!(
            outcome.stderr_text().contains(words),
            "{shell}\n{}",
            outcome.describe()
        );
        let outcome = push_to_shell(&stage, shell, &["--deploy"]).run().expect(0);
        check_equal(&stage.src, &stage.dst, &outcome.describe());
    }
}

#[test]
fn a_login_shell_that_starts_nothing_is_named() {
    let stage = Stage::new();
    let sftp = stage.scratch.path().join("sftp-only");
    write_program(
        &sftp,
        "#!/bin/sh\necho 'This service allows sftp connections only.'; exit 1\n",
    );
    let sftp = sftp.to_str().expect("text");
    for shell in ["rbash", "/usr/sbin/nologin", "git-shell", sftp] {
        for arguments in [&[][..], &["--deploy"]] {
            let outcome = push_to_shell(&stage, shell, arguments).run().expect(1);
            let told = outcome.stderr_text();
            let words = "the login shell there is restricted";
            assert!(told.contains(words), "{shell}\n{}", outcome.describe());
            assert!(!stage.dst.exists());
        }
    }
}
