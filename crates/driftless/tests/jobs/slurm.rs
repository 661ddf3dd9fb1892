//! Jobs of a real Slurm that start where their data has arrived: gateway, node daemons and tasks of
//! an ordinary user.

use crate::seed::run_seed;
use crate::site::USER;
use driftless_testkit::{Slurm, wait_slowly_until};
use std::collections::BTreeSet;
use std::fs;

/// Writes what a task finds: its node, and the content of the data set.
const TASK: &str = r#"#!/bin/sh
cat "$SPOOL_DIRECTORY/nr/part" >/dev/null || exit 1
echo "$SLURMD_NODENAME $(cat "$SPOOL_DIRECTORY"/nr/name)" >"$1/$SLURM_ARRAY_TASK_ID"
sleep 0.5
"#;

type Site = crate::site::Site<Slurm>;

/// Returns the state of a job in Slurm, empty if it ended.
fn state_of(site: &Site, job: &str) -> String {
    let mut queue = site.cluster.command("squeue");
    let output = queue.args(["-h", "-j", job, "-o", "%T"]).output();
    let output = output.expect("squeue");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns the lines that tasks wrote.
fn written(site: &Site, folder: &str) -> Vec<String> {
    let folder = site.shared().join(folder);
    let mut lines: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
        .filter(|text| text.ends_with('\n'))
        .collect();
    lines.sort();
    lines
}

#[test]
fn array_runs_where_its_data_is() {
    let site = Site::start(8);
    site.make_data("nr", 3 << 20);
    let out = site.make_out("out");
    let script = site.script("task.sh", TASK);
    let job = site.submit(USER, &["nr"], &[], |sbatch| {
        sbatch.arg("--array=1-16").arg(&script).arg(&out);
    });
    wait_slowly_until("all tasks have run", || written(&site, "out").len() == 16);
    let nodes: BTreeSet<String> = written(&site, "out")
        .iter()
        .map(|line| {
            let (node, name) = line.trim().split_once(' ').expect("two words");
            assert_eq!(name, "nr", "the task read the data set");
            node.to_owned()
        })
        .collect();
    assert!(nodes.len() > 1, "{nodes:?}");
    site.wait_until_closed(&job);
    site.check_nothing_is_left();
}

#[test]
fn many_jobs_load_at_the_same_time() {
    let site = Site::start(4);
    let out = site.make_out("out");
    let script = site.script("task.sh", TASK);
    let jobs: Vec<String> = (1..=6)
        .map(|number| {
            // Three data sets, each for two jobs.
            let data = format!("data{}/nr", number % 3);
            if number <= 3 {
                site.make_data(&data, 1 << 20);
            }
            site.submit(USER, &[&data], &[], |sbatch| {
                let tasks = format!("--array={number}0-{number}3");
                sbatch.arg(tasks).arg(&script).arg(&out);
            })
        })
        .collect();
    wait_slowly_until("all tasks have run", || written(&site, "out").len() == 24);
    for job in &jobs {
        site.wait_until_closed(job);
    }
    site.check_nothing_is_left();
}

#[test]
fn task_file_of_the_seed_runs_unchanged() {
    run_seed::<Slurm>("SLURM_ARRAY_TASK_ID");
}

#[test]
fn cancelled_job_leaves_nothing() {
    let site = Site::start(2);
    site.make_data("nr", 64 << 20);
    let script = site.script("task.sh", TASK);
    let job = site.submit(USER, &["nr"], &["--release", "all"], |sbatch| {
        sbatch.arg("--array=1-4").arg(&script).arg("/nowhere");
    });
    site.cluster.run("scancel", &[&job]);
    site.wait_until_closed(&job);
    site.check_nothing_is_left();
}

#[test]
fn copies_are_closed_to_other_users() {
    let site = Site::start(1);
    site.make_data("nr", 1 << 20);
    let wait = site.script(
        "wait.sh",
        "#!/bin/sh\nwhile [ ! -e \"$1\" ]; do sleep 0.1; done\n",
    );
    let go = site.shared().join("go");
    let job = site.submit(USER, &["nr"], &[], |sbatch| {
        sbatch.arg(&wait).arg(&go);
    });
    wait_slowly_until("the job runs", || state_of(&site, &job) == "RUNNING");
    let spool = site.spool_of(&job);
    let list = |uid: u32| {
        let mut list = site.command_in_node_as("n1", uid, "cat");
        let listed = list.arg(spool.join("nr/name")).output().expect("cat");
        listed.status.success()
    };
    assert!(list(USER), "the user of the job");
    assert!(!list(1), "another user");
    fs::write(&go, "").expect("a file");
    site.wait_until_closed(&job);
    site.check_nothing_is_left();
}

#[test]
fn unreadable_data_is_not_cast() {
    let site = Site::start(1);
    let secret = site.shared().join("data/secret");
    fs::create_dir_all(&secret).expect("a folder");
    fs::write(secret.join("key"), "secret").expect("a file");
    site.close_to_others(&secret);
    let script = site.script("task.sh", TASK);
    let refused = site.try_submit(USER, &["data/secret"], &[], |sbatch| {
        sbatch.arg(&script);
    });
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("no job was submitted"), "{text}");
    let job = site.submit(USER, &["data"], &[], |sbatch| {
        sbatch.arg(&script).arg("/nowhere");
    });
    wait_slowly_until("the job has a fault", || site.fault_of(&job).is_some());
    let fault = site.fault_of(&job).expect("a fault");
    assert!(fault.contains("ermission denied"), "{fault}");
    assert_eq!(state_of(&site, &job), "PENDING");
    site.cluster.run("scancel", &[&job]);
    site.wait_until_closed(&job);
}

#[test]
fn refused_submission_leaves_no_job() {
    let site = Site::start(1);
    site.make_data("nr", 1000);
    let script = site.script("task.sh", TASK);
    let outcome = site.try_submit(USER, &["nr"], &[], |sbatch| {
        sbatch.arg("--partition=none").arg(&script);
    });
    assert!(!outcome.status.success(), "{outcome:?}");
    let text = String::from_utf8_lossy(&outcome.stderr);
    assert!(text.contains("no job was submitted"), "{text}");
    assert_eq!(site.jobs(), Vec::<serde_json::Value>::new());
}

#[test]
fn gateway_without_rights_excludes_nodes() {
    let site = Site::start_for_user(4);
    site.make_data("nr", 1 << 20);
    let out = site.make_out("out");
    let script = site.script("task.sh", TASK);
    let job = site.submit(USER, &["nr"], &[], |sbatch| {
        sbatch.arg("--array=1-8").arg(&script).arg(&out);
    });
    wait_slowly_until("all tasks have run", || written(&site, "out").len() == 8);
    site.wait_until_closed(&job);
    site.check_nothing_is_left();
}

#[test]
fn killed_gateway_goes_on_when_started_again() {
    let mut site = Site::start(4);
    site.make_data("nr", 16 << 20);
    let out = site.make_out("out");
    let script = site.script("task.sh", TASK);
    let job = site.submit(USER, &["nr"], &[], |sbatch| {
        sbatch.arg("--array=1-12").arg(&script).arg(&out);
    });
    for pause in [300, 700, 1500, 3000] {
        std::thread::sleep(std::time::Duration::from_millis(pause));
        site.kill_gateway();
        site.start_gateway();
    }
    wait_slowly_until("all tasks have run", || written(&site, "out").len() == 12);
    site.wait_until_closed(&job);
    site.check_nothing_is_left();
}

/// Leaves results of each kind, also when the time of the job is over.
const RESULTS_TASK: &str = r#"#!/bin/sh
sleep 1
out="$RESULTS_DIRECTORY/$SLURM_ARRAY_TASK_ID"
mkdir -p "$out/deep" || exit 1
for number in $(seq 1 20); do echo "$SLURM_ARRAY_TASK_ID $number" >"$out/deep/$number"; done
echo "$SLURMD_NODENAME" >"$out/node"
[ "$SLURM_ARRAY_TASK_ID" != 3 ] || kill -9 $$
"#;

#[test]
fn results_of_tasks_come_home() {
    let mut site = Site::start(4);
    site.make_data("nr", 1 << 20);
    let home = site.make_out("home");
    let script = site.script("task.sh", RESULTS_TASK);
    let pattern = home.join("%j/%t").display().to_string();
    let job = site.submit(USER, &["nr"], &["--results", &pattern], |sbatch| {
        sbatch.arg("--array=1-12").arg(&script);
    });
    for pause in [1500, 2500] {
        std::thread::sleep(std::time::Duration::from_millis(pause));
        site.kill_gateway();
        site.start_gateway();
    }
    site.wait_until_closed(&job);
    for task in 1..=12 {
        let folder = home.join(&job).join(task.to_string());
        for number in 1..=20 {
            let text = fs::read_to_string(folder.join(format!("deep/{number}"))).expect("a result");
            assert_eq!(text, format!("{task} {number}\n"));
        }
        let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(folder).expect("there"));
        assert_eq!(owner, USER, "task {task}");
    }
    site.check_nothing_is_left();
}

#[test]
fn results_outlive_a_dead_node_daemon() {
    let mut site = Site::start(1);
    site.make_data("nr", 1000);
    let home = site.make_out("home");
    let script = site.script("task.sh", RESULTS_TASK);
    let pattern = home.join("%j/%t").display().to_string();
    let job = site.submit(USER, &["nr"], &["--results", &pattern], |sbatch| {
        sbatch.arg("--array=1-4").arg(&script);
    });
    wait_slowly_until("a task runs", || state_of(&site, &job).contains("RUNNING"));
    site.kill_daemon("n1");
    wait_slowly_until("all tasks ended", || state_of(&site, &job).is_empty());
    site.start_daemon("n1");
    site.wait_until_closed(&job);
    for task in 1..=4 {
        let node = home.join(&job).join(task.to_string()).join("node");
        assert_eq!(fs::read_to_string(node).expect("a result"), "n1\n");
    }
    site.check_nothing_is_left();
}
