//! Proves that the rig of Grid Engine is a real one, and that nothing is left of it.
#![allow(clippy::disallowed_methods)]

use driftless_testkit::{GridEngine, wait_slowly_until, write_program};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

fn output(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Writes a job that appends a line to the file `lines` beside it.
fn write_job(engine: &GridEngine) -> PathBuf {
    let path = engine.shared().join("job.sh");
    let text = "#!/bin/sh\necho \"$(hostname) $SGE_TASK_ID $(id -u) $WORD\" >>lines\nsleep 1\n";
    write_program(&path, text);
    path
}

fn lines(engine: &GridEngine) -> Vec<Vec<String>> {
    let text = fs::read_to_string(engine.shared().join("lines")).unwrap_or_default();
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    text.lines().map(words).collect()
}

#[test]
fn array_of_ordinary_user_runs_on_hosts() {
    let began = Instant::now();
    let engine = GridEngine::start(2);
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
    let job = write_job(&engine);
    let mut submit = engine.command_as_user("qsub");
    submit
        .args(["-terse", "-cwd", "-t", "1-8", "-v", "WORD=data"])
        .arg(&job)
        .current_dir(engine.shared());
    assert_eq!(output(&mut submit).trim_end(), "1.1-8:1");
    wait_slowly_until("all tasks have run", || lines(&engine).len() == 8);
    let column = |number: usize| -> BTreeSet<String> {
        lines(&engine)
            .iter()
            .map(|line| line[number].clone())
            .collect()
    };
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    assert_eq!(column(0), engine.host_names().into_iter().collect());
    assert_eq!(column(1), (1..=8).map(|task| task.to_string()).collect());
    assert_eq!(column(2), texts(&["65534"]));
    assert_eq!(column(3), texts(&["data"]));
    wait_slowly_until("no job is left", || {
        output(engine.command("qstat").args(["-u", "*"])).is_empty()
    });
}

#[test]
fn stopped_host_is_down_until_started() {
    let mut engine = GridEngine::start(2);
    engine.stop_host(1);
    wait_slowly_until("the qmaster has noticed", || engine.down() == ["ge2"]);
    engine.start_host(1);
    assert_eq!(engine.down(), Vec::<String>::new());
}

#[test]
fn jobs_survive_a_restart_of_the_qmaster() {
    let mut engine = GridEngine::start(1);
    let submit = ["-h", "-b", "y", "-cwd", "true"];
    output(
        engine
            .command("qsub")
            .args(submit)
            .current_dir(engine.shared()),
    );
    engine.stop_master();
    let refused = engine.command("qstat").output().expect("qstat");
    assert!(!refused.status.success());
    engine.start_master();
    assert!(output(&mut engine.command("qstat")).contains("hqw"));
}

#[test]
fn commands_outside_reach_the_qmaster() {
    let engine = GridEngine::start(1);
    let qhost = engine.commands().join("qhost");
    assert!(output(&mut Command::new(qhost)).contains("ge1"));
}

#[test]
fn nothing_is_left_of_a_cluster() {
    let engine = GridEngine::start(1);
    let submit = ["-b", "y", "-cwd", "-S", "/bin/sh", "sleep", "601"];
    output(
        engine
            .command_as_user("qsub")
            .args(submit)
            .current_dir(engine.shared()),
    );
    wait_slowly_until("the job runs", || {
        running(&engine).iter().any(|name| name == "sleep")
    });
    let (folder, mark) = (engine.machines().folder().to_owned(), mark(&engine));
    drop(engine);
    assert_eq!(processes_with(&mark), Vec::<String>::new());
    assert!(!folder.exists());
    // Other tests mount at the same time.
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let own = folder.to_str().expect("text");
    assert!(!mounts.contains(own), "{mounts}");
    assert!(!Path::new("/var/lib/gridengine/cell").exists());
}

/// The variable that each process of the cluster has.
fn mark(engine: &GridEngine) -> String {
    format!("SGE_ROOT={}/root", engine.machines().folder().display())
}

fn running(engine: &GridEngine) -> Vec<String> {
    processes_with(&mark(engine))
}

/// Returns the programs of all processes with this variable.
fn processes_with(mark: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("list /proc").flatten();
    let has = |path: &Path| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|word| word == mark.as_bytes())
    };
    let paths = entries.map(|entry| entry.path()).filter(|path| has(path));
    let name = |path: PathBuf| fs::read_to_string(path.join("comm")).ok();
    paths
        .filter_map(name)
        .map(|name| name.trim_end().to_owned())
        .collect()
}
