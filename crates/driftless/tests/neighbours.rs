//! A user in his own directories beside a run of root's: whatever he puts in the place of what is
//! being made, and whatever he opens before it is finished, nothing of others becomes his, and no
//! content of his gets rights.
//!
//! `strace` holds the doors open: between the making of an entry and what is done to it there is
//! time enough for anything. Each attack must succeed against a copier that is careless on purpose,
//! or it proves nothing.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{Far, Way, agent};
use common::{USER, check_equal, is_temp, put, sync};
use driftless_testkit::{FsKind, Outcome, Scratch, attrs};
use rustix::fs::FileType;
use rustix::process::Uid;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How long a door is held open.
const OPEN: Duration = Duration::from_millis(30);
const PLANTS: usize = 40;
/// Runs of a careless copier, one of which must lose.
const CARELESS_TRIES: usize = 8;
const GOOD: &[u8] = b"GOOD-PROGRAM";
const EVIL: &[u8] = b"EVIL-PROGRAM";

/// Both trees, in which `alice` is the attacker's.
struct Street {
    scratch: Scratch,
    src: PathBuf,
    dst: PathBuf,
}

impl Street {
    fn new() -> Street {
        let scratch = Scratch::new(FsKind::Ext4, 400);
        let [src, dst] = ["src", "dst"].map(|name| scratch.path().join(name));
        for root in [&src, &dst] {
            fs::create_dir_all(root.join("alice")).expect("dirs");
            attrs::set_owner(&root.join("alice"), USER, USER).expect("chown");
        }
        Street { scratch, src, dst }
    }

    fn theirs(&self) -> PathBuf {
        self.dst.join("alice")
    }

    /// The program with the doors behind `calls` held open, for a host on which others start it.
    fn slow_program(&self, calls: &str) -> PathBuf {
        let path = self.scratch.path().join("slow");
        put(
            &path,
            format!(
                "#!/bin/sh\nexec {} {} \"$@\"\n",
                doors(calls).join(" "),
                agent()
            ),
        );
        attrs::set_mode(&path, 0o755).expect("chmod");
        path
    }

    /// Runs with the doors behind `calls` held open, while `attack` goes on in the attacker's
    /// directory.
    fn run(&self, calls: &str, attack: impl Fn(&Path) + Sync) -> Outcome {
        under_attack(&self.theirs(), attack, || {
            sync(&self.src, &self.dst).through(doors(calls)).run()
        })
    }
}

/// The command that holds the doors behind `calls` open.
fn doors(calls: &str) -> Vec<String> {
    let (trace, delay) = (
        format!("trace={calls}"),
        format!("inject={calls}:delay_exit={}", OPEN.as_micros()),
    );
    let words = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        &trace,
        "-e",
        &delay,
        "--",
    ];
    words.map(str::to_owned).to_vec()
}

/// Does `work` while another thread, as the ordinary user, attacks without rest.
fn under_attack<R>(theirs: &Path, attack: impl Fn(&Path) + Sync, work: impl FnOnce() -> R) -> R {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let user = Uid::from_raw(USER);
            rustix::thread::set_thread_res_uid(user, user, user)
                .expect("another user, in this thread alone");
            while !over.load(Relaxed) {
                attack(theirs);
            }
        });
        let _stop = StopOnDrop(&over);
        work()
    })
}

/// Ends the attacker even when the test panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Unfinished entries that the attacker sees.
fn unfinished(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| is_temp(path))
        .collect()
}

/// Root's own files and directories in the attacker's directory, held open so that they can be
/// looked at wherever they go.
fn plant(theirs: &Path) -> Vec<File> {
    let mut held = Vec::new();
    for index in 0..PLANTS {
        let (secret, vault) = (
            theirs.join(format!("secret{index}")),
            theirs.join(format!("vault{index}")),
        );
        put(&secret, "root's");
        attrs::set_mode(&secret, 0o600).expect("chmod");
        fs::create_dir(&vault).expect("mkdir");
        attrs::set_mode(&vault, 0o700).expect("chmod");
        if index % 2 == 0 {
            put(&vault.join("inside"), "root's");
        }
        held.extend([&secret, &vault].map(|path| File::open(path).expect("open")));
    }
    held
}

fn handed_over(held: &[File]) -> usize {
    held.iter()
        .filter(|file| file.metadata().expect("stat").uid() != 0)
        .count()
}

/// Puts something of root's in the place of everything that is unfinished, and of new directories.
fn swap(theirs: &Path) {
    let is_new = |name: &str| {
        theirs
            .join(name)
            .symlink_metadata()
            .is_ok_and(|meta| meta.uid() == 0)
    };
    let new = ["dir0", "dir1", "dir2"]
        .iter()
        .filter(|name| is_new(name))
        .map(|name| theirs.join(name));
    for victim in unfinished(theirs).into_iter().chain(new) {
        let Ok(meta) = victim.symlink_metadata() else {
            continue;
        };
        let plants = (0..PLANTS).map(|index| {
            theirs.join(format!(
                "{}{index}",
                if meta.is_dir() { "vault" } else { "secret" }
            ))
        });
        let Some(own) = plants.into_iter().find(|path| path.exists()) else {
            continue;
        };
        if meta.is_dir() {
            let _ = fs::rename(&victim, theirs.join(format!("away{}", meta.ino())));
        }
        let _ = fs::rename(own, &victim);
    }
}

/// Makes things as they must not be made where others may rename: each step by its name.
fn careless_make(theirs: &Path) {
    for index in 0..3 {
        let temp = theirs.join(format!(".driftless-tmp-{index}"));
        attrs::make_node(&temp, FileType::Fifo, 0, 0).expect("fifo");
        std::thread::sleep(OPEN);
        let _ = attrs::set_owner(&temp, USER, USER);
        let dir = theirs.join(format!("dir{index}"));
        let _ = fs::create_dir(&dir);
        std::thread::sleep(OPEN);
        let _ = attrs::set_owner(&dir, USER, USER);
    }
}

#[test]
fn nothing_of_root_s_is_handed_over_in_the_place_of_what_is_made() {
    // On a busy machine the attacker comes too late now and then.
    let loses = |_| {
        let street = Street::new();
        let held = plant(&street.theirs());
        under_attack(&street.theirs(), swap, || careless_make(&street.theirs()));
        handed_over(&held) > 0
    };
    assert!(
        (0..CARELESS_TRIES).any(loses),
        "a careless copier loses, or this test proves nothing"
    );
    let street = Street::new();
    let own = street.src.join("alice");
    for index in 0..3 {
        attrs::make_node(&own.join(format!("fifo{index}")), FileType::Fifo, 0, 0).expect("fifo");
        symlink("target", own.join(format!("link{index}"))).expect("symlink");
        put(&own.join(format!("dir{index}/file")), "content");
        let made = ["fifo", "link", "dir"].map(|kind| own.join(format!("{kind}{index}")));
        made.iter()
            .for_each(|path| attrs::set_owner(path, USER, USER).expect("chown"));
    }
    let held = plant(&street.theirs());
    let outcome = street.run("mknodat,symlinkat,mkdirat", swap);
    assert!([0, 3].contains(&outcome.code()), "{}", outcome.describe());
    assert_eq!(handed_over(&held), 0, "{}", outcome.describe());
}

/// Writes to everything unfinished that may be opened, also one level below.
fn write_evil(theirs: &Path) {
    let nested = unfinished(theirs)
        .into_iter()
        .flat_map(|path| unfinished(&path).into_iter().chain([path]));
    for victim in nested.filter(|path| path.symlink_metadata().is_ok_and(|meta| meta.is_file())) {
        if let Ok(mut file) = OpenOptions::new().write(true).open(&victim) {
            let _ = file.write_all(EVIL);
        }
    }
}

/// Gives a program its owner before its rights, where he can find it.
fn careless_copy(theirs: &Path) -> PathBuf {
    let (temp, tool) = (theirs.join(".driftless-tmp-0"), theirs.join("tool"));
    fs::write(&temp, GOOD).expect("write");
    attrs::set_owner(&temp, USER, USER).expect("chown");
    std::thread::sleep(OPEN);
    attrs::set_xattr(
        &temp,
        attrs::CAPABILITY.as_bytes(),
        &attrs::capability_blob(4),
    )
    .expect("cap");
    fs::rename(&temp, &tool).expect("rename");
    tool
}

#[test]
fn nobody_writes_to_a_file_before_it_gets_its_rights() {
    let loses = |_| {
        let street = Street::new();
        let copy = || careless_copy(&street.theirs());
        let tool = under_attack(&street.theirs(), write_evil, copy);
        fs::read(tool).expect("read") == EVIL
    };
    assert!(
        (0..CARELESS_TRIES).any(loses),
        "a careless copier loses, or this test proves nothing"
    );
    let large = [GOOD, &vec![b'x'; 65 << 20]].concat();
    for (name, content) in [("small", GOOD), ("large", &large[..])] {
        let street = Street::new();
        let tool = street.src.join("alice").join(name);
        put(&tool, content);
        attrs::set_owner(&tool, USER, 0).expect("chown");
        attrs::set_mode(&tool, 0o2755).expect("chmod");
        attrs::set_xattr(
            &tool,
            attrs::CAPABILITY.as_bytes(),
            &attrs::capability_blob(4),
        )
        .expect("cap");
        let outcome = street.run("fchown", write_evil).expect(0);
        check_equal(
            &street.src,
            &street.dst,
            &format!("{name}\n{}", outcome.describe()),
        );
    }
}

#[test]
fn what_is_put_in_the_place_of_a_large_copy_is_not_published() {
    let street = Street::new();
    let big = street.src.join("alice/big");
    put(&big, vec![b'x'; 65 << 20]);
    attrs::set_owner(&big, 1000, 1000).expect("chown");
    let swapped = AtomicBool::new(false);
    let outcome = street.run("fchown", |theirs| {
        for victim in unfinished(theirs)
            .into_iter()
            .filter(|path| path.metadata().is_ok_and(|meta| meta.uid() == 1000))
        {
            let own = theirs.join("own");
            if !swapped.load(Relaxed)
                && fs::write(&own, EVIL)
                    .and_then(|()| fs::rename(&own, victim))
                    .is_ok()
            {
                swapped.store(true, Relaxed);
            }
        }
    });
    assert!(
        swapped.load(Relaxed),
        "the attack came too late to prove anything\n{}",
        outcome.describe()
    );
    assert_eq!(outcome.code(), 3, "{}", outcome.describe());
    assert!(
        !street.theirs().join("big").exists(),
        "{}",
        outcome.describe()
    );
}

/// What has no handle, and a program with rights: each appears under its name, finished, and
/// nowhere else before.
fn without_handles(own: &Path) {
    for index in 0..2 {
        attrs::make_node(&own.join(format!("fifo{index}")), FileType::Fifo, 0, 0).expect("fifo");
        attrs::make_node(
            &own.join(format!("device{index}")),
            FileType::CharacterDevice,
            1,
            3,
        )
        .expect("device");
        symlink("target", own.join(format!("link{index}"))).expect("symlink");
        put(&own.join(format!("tool{index}")), GOOD);
        for kind in ["fifo", "device", "link", "tool"] {
            attrs::set_owner(&own.join(format!("{kind}{index}")), USER, USER).expect("chown");
        }
        attrs::set_mode(&own.join(format!("fifo{index}")), 0o664).expect("chmod");
        attrs::set_mode(&own.join(format!("device{index}")), 0o660).expect("chmod");
        attrs::set_mode(&own.join(format!("tool{index}")), 0o4755).expect("chmod");
    }
    attrs::set_mode(own, 0o777).expect("chmod");
}

/// What somebody saw who looked on.
#[derive(Default)]
struct Sights {
    unfinished: Mutex<BTreeSet<String>>,
    private: AtomicBool,
}

impl Sights {
    /// Looks at everything in the directory; `own` says how it is when it is finished.
    fn look(&self, theirs: &Path, own: &Path) {
        for entry in fs::read_dir(theirs).into_iter().flatten().flatten() {
            let (name, Ok(meta)) = (entry.file_name(), entry.path().symlink_metadata()) else {
                continue;
            };
            let is_temp = is_temp(Path::new(&name));
            if meta.is_dir() {
                self.private
                    .fetch_or(is_temp && meta.mode() & 0o7777 == 0o700, Relaxed);
                continue;
            }
            let wanted = own.join(&name).symlink_metadata().ok();
            let finished = wanted
                .is_some_and(|wanted| (wanted.mode(), wanted.uid()) == (meta.mode(), meta.uid()));
            let has_handle = meta.is_file() && meta.mode() & 0o6000 == 0;
            if !(finished || is_temp && has_handle) {
                self.unfinished.lock().expect("no panic").insert(format!(
                    "{name:?} mode {:o} owner {}",
                    meta.mode(),
                    meta.uid()
                ));
            }
        }
    }
}

#[test]
fn what_has_no_handle_is_seen_finished_or_not_at_all_however_it_gets_there() {
    const CALLS: &str = "mknodat,symlinkat,fchown,fchownat,fchmod,fchmodat";
    let is_seen = |_| {
        let careless = Street::new();
        without_handles(&careless.src.join("alice"));
        let sights = Sights::default();
        under_attack(
            &careless.theirs(),
            |theirs| sights.look(theirs, &careless.src.join("alice")),
            || careless_make(&careless.theirs()),
        );
        let unfinished = sights.unfinished.lock().expect("no panic");
        !unfinished.is_empty()
    };
    assert!(
        (0..CARELESS_TRIES).any(is_seen),
        "a careless copier is seen, or this test proves nothing"
    );
    let far = Far::root();
    for way in ["here", "push", "movers"] {
        let street = Street::new();
        let own = street.src.join("alice");
        without_handles(&own);
        let (sights, program) = (Sights::default(), street.slow_program(CALLS));
        let ends = far.ends(Way::Push, &street.src, &street.dst);
        let run = match way {
            "here" => sync(&street.src, &street.dst).through(doors(CALLS)),
            "push" => far.command_with("sync", &program, ends).arg("--json"),
            _ => sync(&street.src, &street.dst)
                .args(["--hosts", "far,far", "--ssh", &far.words(), "--agent-path"])
                .arg(&program),
        };
        let outcome = under_attack(
            &street.theirs(),
            |theirs| sights.look(theirs, &own),
            || run.run().expect(0),
        );
        let unfinished = sights.unfinished.into_inner().expect("no panic");
        assert!(
            unfinished.is_empty(),
            "{way}: {unfinished:?}\n{}",
            outcome.describe()
        );
        assert!(
            sights.private.into_inner(),
            "{way}: nobody came by while something was made\n{}",
            outcome.describe()
        );
        check_equal(&street.src, &street.dst, way);
    }
}
