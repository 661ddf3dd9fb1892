//! Shells and programs as users run them: what is announced is what they have changed.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Agent, compiled, set};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The shell, what it is told, and what is announced of it, with stars for any part of a name.
const ROWS: &[(&str, &str, &[&str])] = &[
    ("bash", "echo x >n", &["w n"]),
    ("bash", "echo x >>f; : >>n", &["w f", "w n"]),
    ("bash", "cat >n <<E\nx\nE", &["w n"]),
    ("bash", "cat <<<x >n", &["w n"]),
    ("bash", "(echo a; (echo b) >m) >n", &["w m", "w n"]),
    ("bash", "{ echo a; cat f; } >n 2>m", &["w n", "w m"]),
    ("bash", "exec >n; echo x", &["w n"]),
    ("bash", "exec {fd}>n; echo x >&$fd; exec {fd}>&-", &["w n"]),
    ("bash", "exec 3<>f; echo x >&3", &["w f"]),
    ("bash", "set -C; echo x >n; echo y >|f", &["w n", "w f"]),
    (
        "bash",
        "for i in 1 2; do echo $i; done | tee n m >o",
        &["w n", "w m", "w o"],
    ),
    ("bash", "cat f >n & wait", &["w n"]),
    (
        "bash",
        "coproc cat >n; echo x >&${COPROC[1]}; exec {COPROC[1]}>&-; wait",
        &["w n"],
    ),
    (
        "bash",
        "cat f; cat d/g <f; test -e l; read x <f; ls -lR",
        &[],
    ),
    ("dash", "echo x >n; echo y >>f", &["w n", "w f"]),
    ("dash", "cat >n <<E\nx\nE", &["w n"]),
    ("dash", "(echo x; exec cat f) >n", &["w n"]),
    ("dash", "exec 3>n; echo x >&3; exec 3>&-", &["w n"]),
    ("dash", "exec cat f >n", &["w n"]),
    (
        "ksh",
        "echo x >n; print y >>f; (print z) >m",
        &["w n", "w f", "w m"],
    ),
    ("ksh", "cat >n <<E\nx\nE", &["w n"]),
    ("ksh", "exec 3>n; print -u3 x; exec 3>&-", &["w n"]),
    ("ksh", "exec cat f >n", &["w n"]),
    (
        "tcsh",
        "echo x >n; echo y >>f; (echo z) >&m",
        &["w n", "w f", "w m"],
    ),
    ("tcsh", "cat f >! n", &["w n"]),
    ("tcsh", "exec cat f >n", &["w n"]),
    ("tcsh", "cat >n <<E\nx\nE\n", &["w n"]),
    ("tcsh", "(cat f; exec cat d/g) >>n", &["w n"]),
    (
        "ksh",
        "(exec cat f) >>n; (exec >m; print x)",
        &["w n", "w m"],
    ),
    (
        "dash",
        "(exec >n; echo x; (exec >>m; echo y))",
        &["w n", "w m"],
    ),
    ("dash", "cp f n", &["w n"]),
    ("dash", "cp -p f n", &["w n", "m n"]),
    ("dash", "cp -r d n", &["c n", "w n/g"]),
    (
        "dash",
        "cp -l f n; cp -s f m 2>/dev/null || :",
        &["c n", "c m"],
    ),
    (
        "dash",
        "mv f n; mv d e/; mv -n n e",
        &["r f n", "r d e/d", "r n e/n"],
    ),
    ("dash", "ln f n; ln -s f m", &["c n", "c m"]),
    ("dash", "ln -sf d l; ln -sfn f l", &["c Cu*", "r Cu* l"]),
    (
        "dash",
        "ln -sf e m; ln -sf f l; ln -sf f l",
        &["c m", "c Cu*", "r Cu* l"],
    ),
    (
        "dash",
        "tar cf t f d; mkdir o; tar xf t -C o",
        &[
            "w t", "c o", "w o/f", "m o/f", "c o/d", "m o/d", "w o/d/g", "m o/d/g",
        ],
    ),
    (
        "dash",
        "rsync -a f d/g n/",
        &[
            "c n",
            "w n/.f.*",
            "m n/.f.*",
            "r n/.f.* n/f",
            "w n/.g.*",
            "m n/.g.*",
            "r n/.g.* n/g",
        ],
    ),
    (
        "dash",
        "rsync -aO --inplace d/ e; rsync -aO --delete e/ d --exclude=g --delete-excluded",
        &["w e/g", "m e/g", "d d/g"],
    ),
    (
        "dash",
        "ln -sf e l; ln -sf g l",
        &["c Cu*", "r Cu* l", "c e/g"],
    ),
    (
        "dash",
        "rm -r f d; rmdir e",
        &["d f", "d d/g", "d d", "d e"],
    ),
    (
        "dash",
        "mkdir -p a/b/c; touch n f",
        &["c a", "c a/b", "c a/b/c", "w n", "m n", "w f", "m f"],
    ),
    (
        "dash",
        "chmod 600 f; chmod -R go-w d; touch -h l",
        &["m f", "m d", "m d/g", "m l"],
    ),
    (
        "dash",
        "chown 0 f; chown -h 0 l; chgrp -R 0 d",
        &["m f", "m l", "m d", "m d/g"],
    ),
    (
        "dash",
        "truncate -s 9 f n; fallocate -l 99 m",
        &["w f", "w n", "w m"],
    ),
    ("dash", "dd if=f of=n bs=1 status=none", &["w n"]),
    (
        "dash",
        "install -m 600 f n; install -d a",
        &["w n", "m n", "c a"],
    ),
    ("dash", "sed -i s/c/x/ f", &["w sed*", "m sed*", "r sed* f"]),
    (
        "dash",
        "setfattr -n trusted.x -v 1 f; setfattr -x trusted.x f",
        &["m f"],
    ),
    ("dash", "mkfifo n; mknod m p", &["c n", "c m"]),
    ("dash", "split -n 2 f n", &["w naa", "w nab"]),
    (
        "dash",
        "sort f -o f; sort d/g >n; gzip f; gunzip f.gz",
        &["w f", "w n", "w f.gz", "m f.gz", "d f", "m f", "d f.gz"],
    ),
    (
        "dash",
        "sqlite3 n 'create table t(a); insert into t values (1)'",
        &["w n", "w n-journal", "m n-journal", "d n-journal"],
    ),
    (
        "python3",
        "open('n','w').write('x'); open('f').read()",
        &["w n"],
    ),
    (
        "python3",
        "import os; f=os.open('n',os.O_WRONLY|os.O_CREAT); os.write(f,b'x'); os.rename('n','m')",
        &["r n m", "w m"],
    ),
    (
        "python3",
        "import shutil as s; s.copy('f','n'); s.copytree('d','o'); s.rmtree('d'); s.move('f','e')",
        &[
            "w n", "m n", "c o", "w o/g", "m o", "m o/g", "d d/g", "d d", "r f e/f",
        ],
    ),
    (
        "python3",
        "import pathlib as p; p.Path('n').write_text('x'); p.Path('n').replace('m'); p.Path('m').chmod(0o600)",
        &["w n", "r n m", "m m"],
    ),
    (
        "python3",
        "import subprocess as s; s.run(['echo','x'],stdout=open('n','w')); s.run('echo x >m',shell=True,close_fds=True)",
        &["w n", "w m"],
    ),
    (
        "python3",
        "import tempfile as t\nwith t.NamedTemporaryFile(dir='.',prefix='tmp_') as f: f.write(b'x')\nt.mkdtemp(dir='.',prefix='tmp_')",
        &["w tmp_*", "d tmp_*", "c tmp_*"],
    ),
    (
        "python3",
        "import mmap; f=open('f','r+b'); m=mmap.mmap(f.fileno(),0); f.close(); m[0:1]=b'x'; m.close()",
        &["w f"],
    ),
    (
        "python3",
        "import multiprocessing as m\ndef w(n): open(f'n{n}','w').write('x')\nm.set_start_method('fork')\nm.Pool(3).map(w,range(6))",
        &["w n*"],
    ),
    (
        "perl",
        "open F,'>n'; print F 'x'; close F; rename 'n','m'; unlink 'f'; mkdir 'a'; rmdir 'e'; utime 1,1,'m'; chmod 0600,'m'",
        &["w n", "r n m", "d f", "c a", "d e", "m m"],
    ),
];

/// Whether a text is what a pattern with stars says.
fn is_like(text: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => text == pattern,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len())
                .filter(|at| rest.is_char_boundary(*at))
                .any(|at| is_like(&rest[at..], after))
        }),
    }
}

#[test]
fn programs_announce_what_they_change() {
    let mut wrong = Vec::new();
    for (program, script, expected) in ROWS {
        let mut agent = Agent::new();
        let word = if *program == "perl" { "-e" } else { "-c" };
        let output = agent.command(program).args([word, script]).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        let announced = agent.announced();
        let all: BTreeSet<String> = announced.all.into_iter().collect();
        let is_meant = |text: &String| expected.iter().any(|like| is_like(text, like));
        let is_there = |like: &&str| all.iter().any(|text| is_like(text, like));
        let is_right = all.iter().all(is_meant) && expected.iter().all(is_there);
        let is_quiet = output.status.success() && output.stderr.is_empty();
        if !is_right || !is_quiet || announced.gaps != 0 {
            let gaps = announced.gaps;
            wrong.push(format!("{program} {script}: {all:?} {gaps} {output:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Of each entry of a tree what shows that it was changed.
type Looks = BTreeMap<PathBuf, (u64, u32, i64, i64)>;

fn looks(tree: &Path) -> Looks {
    let mut found = Looks::new();
    let mut folders = vec![tree.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("list") {
            let path = entry.expect("an entry").path();
            let meta = fs::symlink_metadata(&path).expect("look");
            // What happens within a directory is that of its entries.
            let times = match meta.is_dir() {
                true => (0, 0),
                false => (meta.ctime(), meta.ctime_nsec()),
            };
            let below = path.strip_prefix(tree).expect("below").to_owned();
            found.insert(below, (meta.ino(), meta.mode(), times.0, times.1));
            if meta.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

/// Whether a path, or a directory above it, is among the names.
fn is_covered(path: &Path, names: &BTreeSet<PathBuf>, moved: &BTreeSet<PathBuf>) -> bool {
    names.contains(path) || path.ancestors().any(|above| moved.contains(above))
}

/// Runs a script and says what it has changed that was not announced, and what was announced that
/// is as it was.
fn missed(prepared: &str, script: &str) -> Vec<PathBuf> {
    let mut agent = Agent::new();
    let tree = agent.tree();
    let mut before = Command::new("bash");
    let output = before.args(["-ec", prepared]).current_dir(&tree).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{prepared}: {output:?}");
    let before = looks(&tree);
    let output = agent.command("bash").args(["-ec", script]).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{script}: {output:?}");
    let after = looks(&tree);
    let announced = agent.announced_set();
    let (mut names, mut moved) = (BTreeSet::new(), BTreeSet::new());
    for text in &announced {
        let words: Vec<PathBuf> = text.split(' ').skip(1).map(PathBuf::from).collect();
        if text.starts_with(['r', 'x']) {
            moved.extend(words.iter().cloned());
        }
        names.extend(words);
    }
    let all: BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
    let changed = all
        .into_iter()
        .filter(|path| before.get(*path) != after.get(*path));
    let changed: Vec<&PathBuf> = changed.collect();
    assert!(changed.len() > 1, "{script} changes little: {changed:?}");
    let is_as_before = |path: &&PathBuf| before.get(*path) == after.get(*path);
    let idle = names
        .iter()
        .filter(|path| before.contains_key(*path))
        .filter(is_as_before);
    let missed = changed
        .into_iter()
        .filter(|path| !is_covered(path, &names, &moved));
    missed.chain(idle).cloned().collect()
}

#[test]
fn nothing_that_larger_programs_change_is_missed() {
    let sources = "for n in 1 2 3 4 5 6; do echo \"int f$n(void) { return $n; }\" >c$n.c; done
        echo 'int main(void) { return 0; }' >main.c
        printf 'OF = $(patsubst %%.c,%%.o,$(wildcard *.c))\\nall: prog lib.a\\nprog: $(OF)\\n\\tcc -o $@ $(OF)\\nlib.a: $(OF)\\n\\tar rc $@ $(OF)\\n' >Makefile";
    let commits = "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; git init -q r; cd r
        git config user.email a@b; git config user.name a; git config gc.auto 0
        echo 1 >a; mkdir s; echo 2 >s/b; git add .; git commit -qm 1; git checkout -qb other
        echo 3 >a; git rm -q s/b; echo 4 >c; git add .; git commit -qm 2; git checkout -q -";
    let rows = [
        (":", "mkdir o; tar cf t.tar f d l; tar xf t.tar -C o; tar --delete -f t.tar f"),
        (":", "rsync -a f d l new/; rsync -a --delete --inplace d/ new/; touch f; rsync -a f new/"),
        (sources, "make -j4 -s"),
        (sources, "make -s prog; strip prog; ranlib lib.a 2>/dev/null || :; cc -c -g main.c"),
        (commits, "export HOME=$PWD; cd r; git checkout -q other; git merge -q - ; git gc -q"),
        (commits, "export HOME=$PWD; git clone -q --no-hardlinks r s; cd s; git checkout -q other"),
        (":", "sqlite3 n 'pragma journal_mode=wal; create table t(a); insert into t values (1)'
            for i in 1 2 3; do sqlite3 n \"insert into t values ($i)\"; done; sqlite3 n vacuum; sqlite3 n .dump >m"),
        (":", "python3 -m compileall -q . ; python3 -c 'import zipfile; zipfile.ZipFile(\"z\",\"w\").write(\"f\")'
            python3 -m zipfile -e z o; cp -a o p; find p -type f -delete; find p -depth -type d -delete"),
    ];
    for (prepared, script) in rows {
        let missed = missed(prepared, script);
        assert!(missed.is_empty(), "{script}: {missed:?}");
    }
}

#[test]
fn programs_of_other_languages_are_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("writes.rs");
    let text =
        "fn main() { std::fs::write(\"n\", \"x\").unwrap(); std::fs::rename(\"n\", \"m\").unwrap();
        std::fs::copy(\"f\", \"o\").unwrap(); std::fs::remove_dir_all(\"d\").unwrap(); }";
    fs::write(&source, text).expect("a source");
    let program = folder.path().join("writes");
    let output = Command::new("rustc")
        .arg("-o")
        .args([&program, &source])
        .output();
    assert!(output.expect("a compiler").status.success());
    let mut agent = Agent::new();
    assert!(agent.command(program).status().expect("starts").success());
    let expected = set(&["w n", "r n m", "w o", "m o", "d d/g", "d d"]);
    assert_eq!(agent.announced_set(), expected);
}

#[test]
fn programs_that_call_the_kernel_by_themselves_are_not_seen() {
    for words in [&["-DRAW"][..], &["-static"]] {
        let mut agent = Agent::new();
        let mut command = agent.command(compiled("writer", words));
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("its input");
        stdin.write_all(b"n 3\n").expect("say it");
        drop(stdin);
        assert!(child.wait().expect("its end").success());
        assert!(agent.tree().join("n.1").exists());
        assert_eq!(agent.announced_set(), set(&[]));
    }
}

#[test]
fn a_program_of_several_threads_is_seen() {
    let mut agent = Agent::new();
    let program = compiled("openmp", &["-fopenmp"]);
    assert!(agent.command(program).status().expect("starts").success());
    let mut expected: BTreeSet<String> = (0..16).map(|number| format!("w n{number}")).collect();
    expected.insert("w all".into());
    assert_eq!(agent.announced_set(), expected);
    assert_eq!(
        fs::read(agent.tree().join("all")).expect("a file"),
        [b'x'; 16]
    );
}

#[test]
fn a_program_of_several_processes_and_threads_is_seen() {
    let mut agent = Agent::new();
    let program = compiled("parallel", &["-fopenmp"]);
    let mut command = agent.command("mpirun");
    // Its own files are elsewhere.
    command
        .args(["--allow-run-as-root", "--oversubscribe", "-n", "2"])
        .arg(program);
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read(agent.tree().join("all")).expect("a file"), b"xx");
    let all = agent.announced_set();
    let expected = [
        "w n0.0", "w n0.1", "w n0.2", "w n1.0", "w n1.1", "w n1.2", "w all",
    ];
    assert!(all.is_superset(&set(&expected)), "{all:?}");
}
