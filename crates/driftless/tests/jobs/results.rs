//! Results of tasks that are killed, of a full destination, and of nodes that fail meanwhile, with a
//! real Slurm. With `DRIFTLESS_SEEDS`, the time limit of the job kills its tasks.

use crate::cluster::must;
use crate::site::{OTHER, USER};
use driftless_gateway::GatewayClient;
use driftless_testkit::{Slurm, wait_slowly_until};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;

/// Leaves a result, says so, and runs until it is killed.
const ENDLESS: &str = r#"#!/bin/sh
out="$RESULTS_DIRECTORY/$SLURM_ARRAY_TASK_ID"
mkdir -p "$out" && echo "$SLURM_ARRAY_TASK_ID" >"$out/first" && echo ready >"$1/$SLURM_ARRAY_TASK_ID"
sleep 600
"#;
/// Leaves a result of 1 MiB.
const LARGE: &str = r#"#!/bin/sh
out="$RESULTS_DIRECTORY/$SLURM_ARRAY_TASK_ID"
mkdir -p "$out" && head -c 1048576 /dev/zero | tr '\0' "$SLURM_ARRAY_TASK_ID" >"$out/large"
"#;

type Site = crate::site::Site<Slurm>;

#[test]
fn killed_tasks_keep_their_results() {
    let site = Site::start(2);
    site.make_data("nr", 1000);
    let (home, out) = (site.make_out("home"), site.make_out("out"));
    let script = site.script("task.sh", ENDLESS);
    let pattern = home.join("%j/%t").display().to_string();
    let has_limit = std::env::var("DRIFTLESS_SEEDS").is_ok();
    let job = site.submit(USER, &["nr"], &["--results", &pattern], |sbatch| {
        if has_limit {
            sbatch.arg("--time=1");
        }
        sbatch.arg("--array=1-2").arg(&script).arg(&out);
    });
    let begun = || fs::read_dir(&out).expect("a folder").count() == 2;
    wait_slowly_until("both tasks run", begun);
    if !has_limit {
        let arguments = ["--signal=KILL", "--full", &job];
        site.cluster.run("scancel", &arguments);
    }
    assert_eq!(site.wait_for_results(&job), Some(0));
    for task in ["1", "2"] {
        let first = home.join(&job).join(task).join("first");
        let text = fs::read_to_string(first).expect("a result");
        assert_eq!(text, format!("{task}\n"));
    }
    site.check_nothing_is_left();
}

/// Leaves a result.
const SMALL: &str = r#"#!/bin/sh
out="$RESULTS_DIRECTORY/$SLURM_ARRAY_TASK_ID"
mkdir -p "$out" && cat "$SPOOL_DIRECTORY/nr/name" >"$out/hits" && chmod "$1" "$out/hits"
"#;

/// Returns the capabilities of the unit of the gateway, in the form of setpriv(1).
fn capabilities_of_unit() -> String {
    let unit = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../systemd/driftless-gateway.service"
    );
    let text = fs::read_to_string(unit).expect("the unit");
    let lines = text.lines();
    let mut sets = lines.filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let set = sets.next().expect("a set").split_whitespace();
    let names = set.map(|name| name.strip_prefix("CAP_").expect("a capability"));
    let names: Vec<String> = names
        .map(|name| format!("+{}", name.to_lowercase()))
        .collect();
    assert!(sets.next().is_none(), "one set");
    names.join(",")
}

/// Deposits a file as a user, and returns its path.
fn deposit_of(site: &Site, uid: u32) -> PathBuf {
    let client = GatewayClient::at(site.socket());
    let deposit = move || {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(uid));
        set_thread_groups(&[]).expect("no groups");
        set_thread_res_gid(gid, gid, gid).expect("the group");
        set_thread_res_uid(uid, uid, uid).expect("the user");
        let home = client.deposits().expect("a home");
        let file = home.path().join("file");
        fs::write(&file, "data").expect("a file");
        file
    };
    std::thread::spawn(deposit).join().expect("its end")
}

/// The gateway has the rights of its unit, and no others.
#[test]
fn rights_of_the_unit_suffice() {
    let mut site = Site::start(1);
    site.kill_gateway();
    site.capabilities = Some(capabilities_of_unit());
    site.start_gateway();
    let deposit = deposit_of(&site, USER);
    let meta = fs::metadata(&deposit).expect("a deposit");
    assert_eq!((meta.uid(), meta.len()), (USER, 4));
    site.make_data("nr", 1000);
    let home = site.make_out("home");
    let script = site.script("task.sh", SMALL);
    let pattern = home.join("%j/%t").display().to_string();
    let job = site.submit(USER, &["nr"], &["--results", &pattern], |sbatch| {
        sbatch.arg("--array=1-2").arg(&script).arg("600");
    });
    assert_eq!(site.wait_for_results(&job), Some(0));
    for task in ["1", "2"] {
        let hits = fs::read_to_string(home.join(&job).join(task).join("hits"));
        assert_eq!(hits.expect("a result"), "nr\n");
    }
    site.check_nothing_is_left();
}

#[test]
fn directory_of_another_user_gets_no_results() {
    let site = Site::start(1);
    site.make_data("nr", 1000);
    let home = site.make_out("home");
    let script = site.script("task.sh", SMALL);
    let pattern = home.join("%t").display().to_string();
    let trap = home.join("1");
    fs::create_dir(&trap).expect("a folder");
    chown(&trap, Some(OTHER), Some(OTHER)).expect("given");
    fs::set_permissions(&trap, Permissions::from_mode(0o777)).expect("open");
    let job = site.submit(USER, &["nr"], &["--results", &pattern], |sbatch| {
        sbatch.arg("--array=1-2").arg(&script).arg("600");
    });
    let has_fault = || site.result_fault(&job).is_some();
    wait_slowly_until("the gateway shows the fault", has_fault);
    let fault = site.result_fault(&job).expect("a fault");
    assert!(fault.contains("belongs to the user"), "{fault}");
    wait_slowly_until("the other result arrives", || home.join("2/hits").exists());
    assert_eq!(fs::read_dir(&trap).expect("a folder").count(), 0);
    fs::remove_dir(&trap).expect("removed");
    assert_eq!(site.wait_for_results(&job), Some(0));
    assert!(home.join("1/hits").exists());
}

#[test]
fn bad_result_holds_up_no_other() {
    let site = Site::start(1);
    site.make_data("nr", 1000);
    let home = site.make_out("home");
    let text = SMALL.replace("\"$1\"", "$((SLURM_ARRAY_TASK_ID % 2 * 400))");
    let script = site.script("task.sh", &text);
    let pattern = home.join("%j/%t").display().to_string();
    let job = site.submit(USER, &["nr"], &["--results", &pattern], |sbatch| {
        sbatch.arg("--array=1-4").arg(&script);
    });
    for task in ["1", "3"] {
        let hits = home.join(&job).join(task).join("hits");
        wait_slowly_until("good results arrive", || hits.exists());
    }
    let has_fault = || site.result_fault(&job).is_some();
    wait_slowly_until("the gateway shows the fault", has_fault);
    let fault = site.result_fault(&job).expect("a fault");
    assert!(
        fault.contains("permission denied") && fault.contains(".sealed"),
        "{fault}"
    );
}

#[test]
fn results_wait_for_a_full_destination() {
    let mut site = Site::start(1);
    site.make_data("nr", 1000);
    let home = site.make_out("home");
    let mut mount = site.cluster.command("mount");
    mount.args(["-t", "tmpfs", "-o", "size=256k,mode=1777", "driftless-test"]);
    must(mount.arg(&home));
    let script = site.script("task.sh", LARGE);
    let pattern = home.join("%j/%t").display().to_string();
    let job = site.submit(USER, &["nr"], &["--results", &pattern], |sbatch| {
        sbatch.arg("--array=1-2").arg(&script);
    });
    let has_fault = || site.result_fault(&job).is_some();
    wait_slowly_until("the gateway shows the fault", has_fault);
    let fault = site.result_fault(&job).expect("a fault");
    assert!(fault.contains("no space or no inode is left"), "{fault}");

    // The node crashes with results that are sealed and not collected.
    site.kill_daemon("n1");
    site.kill_gateway();
    let mut grow = site.cluster.command("mount");
    must(grow.args(["-o", "remount,size=16m"]).arg(&home));
    site.start_daemon("n1");
    site.start_gateway();
    assert_eq!(site.wait_for_results(&job), Some(0));
    for task in ["1", "2"] {
        let mut read = site.cluster.command("cat");
        let large = home.join(&job).join(task).join("large");
        let content = must(read.arg(large)).stdout;
        assert_eq!(content, task.repeat(1 << 20).into_bytes());
    }
    assert_eq!(site.result_fault(&job), None);
    site.check_nothing_is_left();
    must(site.cluster.command("umount").arg(&home));
}
