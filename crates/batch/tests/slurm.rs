//! The interface of Slurm on a real cluster of eight nodes.
#![allow(clippy::disallowed_methods)]

use driftless_batch::{
    BatchError, BatchSystem, CommandSettings, DataSlot, HeldRequest, JobId, JobInput, JobMark,
    LiveJob, Readiness, Slurm,
};
use driftless_testkit::accounts::ORDINARY_ID;
use driftless_testkit::{Slurm as Cluster, wait_slowly_until};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const NODES: usize = 8;
/// Value of the variable that each job gets.
const FOLDER: &str = "/data set, with a comma";

/// A cluster, and the interface as two users have it.
struct Rig {
    cluster: Cluster,
    root: Slurm,
    user: Slurm,
    marks: AtomicU64,
}

/// A job that was submitted held.
struct Submitted {
    job: JobId,
    mark: JobMark,
}

impl Rig {
    fn start() -> Rig {
        let cluster = Cluster::start(NODES);
        let interface = |folder| {
            Slurm::new(CommandSettings {
                folder: Some(folder),
                ..CommandSettings::default()
            })
        };
        Rig {
            root: interface(cluster.programs()),
            user: interface(cluster.programs_as(ORDINARY_ID, ORDINARY_ID)),
            cluster,
            marks: AtomicU64::new(1),
        }
    }

    /// Returns the command that submits a job held, as the ordinary user.
    fn submission(&self, mark: &JobMark, words: &[&str], script: &str) -> Command {
        let mut command: Vec<OsString> = vec!["sbatch".into()];
        command.extend(words.iter().map(OsString::from));
        let made = self.user.submission(&HeldRequest {
            command: &command,
            mark,
            variables: &[("SPOOL_DIRECTORY".to_owned(), FOLDER.to_owned())],
            input: JobInput::Bytes(script.as_bytes()),
        });
        let made = made.expect("a submission");
        let mut command = Command::new(made.program);
        command.args(made.args).envs(made.env).env("OTHER", "other");
        command
            .current_dir(self.cluster.shared_dir())
            .stdin(Stdio::null());
        if let Some(input) = made.input {
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(&input).expect("a script");
            file.rewind().expect("its begin");
            command.stdin(file);
        }
        command
    }

    /// Submits a job held, with a script on the standard input if the words name none.
    fn submit_piped(&self, words: &[&str], script: &str) -> Submitted {
        let mark = JobMark::of(self.marks.fetch_add(1, Ordering::Relaxed));
        let mut command = self.submission(&mark, words, script);
        let output = command.output().expect("sbatch");
        assert!(output.status.success(), "{words:?}: {output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        let job = self.user.submitted(&text).expect("a number");
        Submitted { job, mark }
    }

    fn submit(&self, words: &[&str]) -> Submitted {
        self.submit_piped(words, "")
    }

    /// Submits tasks that write down their nodes.
    fn submit_tasks(&self, tasks: usize, words: &[&str]) -> JobId {
        let script = self.write(
            "task.sh",
            "#!/bin/sh\necho \"$SLURMD_NODENAME\" >>@DIR@/nodes.$SLURM_ARRAY_JOB_ID\nsleep 1\n",
        );
        let array = format!("--array=1-{tasks}");
        self.submit(&[&[array.as_str()], words, &[&script]].concat())
            .job
    }

    /// Writes a file to the shared folder, with the folder's path for `@DIR@`.
    fn write(&self, name: &str, text: &str) -> String {
        let folder = self.cluster.shared_dir();
        let path = folder.join(name);
        fs::write(&path, text.replace("@DIR@", &folder.display().to_string())).expect("a file");
        path.display().to_string()
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.cluster.shared_dir().join(name)).ok()
    }

    /// Waits for the end of a job, and returns the nodes of its tasks.
    fn nodes_of(&self, job: &JobId) -> BTreeSet<String> {
        wait_slowly_until("the job has ended", || self.live(job).is_none());
        let text = self.read(&format!("nodes.{job}")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn live(&self, job: &JobId) -> Option<LiveJob> {
        self.root.alive().expect("jobs").remove(job)
    }

    /// Returns a field of a job as `squeue` prints it.
    fn field(&self, job: &JobId, format: &str) -> String {
        let text = self
            .cluster
            .run("squeue", &["-h", "-j", job.as_str(), "-o", format]);
        text.trim_end().to_owned()
    }

    /// Returns names and feature lists of all nodes.
    fn features(&self) -> String {
        let arguments = ["-h", "-N", "-p", "all", "-o", "%N|%f|%b"];
        self.cluster.run("sinfo", &arguments).replace("(null)", "")
    }

    fn scontrol(&self, arguments: &[&str]) {
        self.cluster.run("scontrol", arguments);
    }
}

/// Names of nodes `n1`, `n2` and so on.
fn nodes(numbers: &[usize]) -> BTreeSet<String> {
    numbers.iter().map(|number| format!("n{number}")).collect()
}

fn all_nodes() -> BTreeSet<String> {
    nodes(&[1, 2, 3, 4, 5, 6, 7, 8])
}

/// Calls with the readiness of these nodes out of all.
fn with_ready<T>(
    slot: Option<&DataSlot>,
    ready: &[usize],
    call: impl FnOnce(&Readiness<'_>) -> T,
) -> T {
    call(&Readiness {
        slot,
        ready: &nodes(ready),
        all: &all_nodes(),
    })
}

/// Returns the candidates for one job.
fn candidates(system: &dyn BatchSystem, job: &JobId) -> Result<Vec<String>, Arc<BatchError>> {
    let mut found = system.candidates(std::slice::from_ref(job))?;
    found.remove(job).expect("an answer for the job")
}

#[test]
fn every_form_of_submission_reaches_its_tasks() {
    let rig = Rig::start();
    let write = "printf '%s|%s' \"$SPOOL_DIRECTORY\" \"$OTHER\" >@DIR@/out.$SLURM_JOB_ID\n";
    let plain = rig.write("plain.sh", &format!("#!/bin/sh\n{write}"));
    let options = "#SBATCH--export=NONE\n#SBATCH --comment='of the script'#no\n";
    let script = rig.write("options.sh", &format!("#!/bin/sh\n{options}{write}"));
    let deep = rig.cluster.shared_dir().join("deep");
    fs::create_dir(&deep).expect("a folder");
    // Slurm writes the output of the job there, as the user.
    fs::set_permissions(&deep, Permissions::from_mode(0o777)).expect("open to all");
    let deep = deep.display().to_string();
    rig.write("deep/deep.sh", &format!("#!/bin/sh\n{options}{write}"));
    let of_pbs = rig.write("pbs.sh", &format!("#!/bin/sh\n{write}#PBS -v A=1\n"));
    // A copied comment has the mark of another job.
    let copied = format!("--comment=a driftless:{}", JobMark::of(1));
    let wrap = write.replace("@DIR@", &rig.cluster.shared_dir().display().to_string());
    let (all, none) = (format!("{FOLDER}|other"), format!("{FOLDER}|"));
    let forms: [(&[&str], &str, &str); 12] = [
        (&[&plain], &all, ""),
        (&["-Q", "-HQ", &plain], &all, ""),
        (&["-D", &deep, "deep.sh"], &none, "of the script "),
        (&[&of_pbs], &none, ""),
        (&[&copied, &plain], &all, &copied["--comment=".len()..]),
        (&["--comment=my job", &plain], &all, "my job "),
        (&["--export=NONE", &plain], &none, ""),
        (&["--export=ALL,A=1", "-n1", &plain], &all, ""),
        (&["--export", "A=1,B", &plain], &none, ""),
        (&["--wrap", &wrap], &all, ""),
        (&[&script], &none, "of the script "),
        (&["--comment", "own", "--array=7%4", &script], &none, "own "),
    ];
    let mut jobs = Vec::new();
    for (words, expected, comment) in forms {
        jobs.push((rig.submit(words), expected, comment));
    }
    let piped = |script: &str| fs::read_to_string(script).expect("a script");
    jobs.push((rig.submit_piped(&["-J", "input"], &piped(&plain)), &all, ""));
    let from_input = rig.submit_piped(&["-Q"], &piped(&script));
    jobs.push((from_input, &none, "of the script "));
    let marked = rig.root.marked().expect("marks");
    assert_eq!(marked.len(), jobs.len());
    for (submitted, _, comment) in &jobs {
        let found = marked.iter().find(|one| one.mark == submitted.mark);
        let found = found.expect("a mark");
        assert_eq!((&found.job, found.is_held), (&submitted.job, true));
        assert_eq!(found.owner, "nobody");
        let mark = format!("driftless:{}", submitted.mark);
        let expected = format!("{} {mark}", comment.trim()).trim().to_owned();
        assert_eq!(rig.field(&submitted.job, "%k"), expected);
        let live = rig.live(&submitted.job).expect("a job");
        assert_eq!((live.is_held, live.pending), (true, 1));
        rig.user.release(&submitted.job).expect("released");
    }
    for (submitted, expected, _) in &jobs {
        let name = format!("out.{}", submitted.job);
        wait_slowly_until("the task has written", || {
            rig.read(&name).is_some_and(|text| text.contains('|'))
        });
        assert_eq!(rig.read(&name).as_deref(), Some(*expected), "{name}");
    }
}

#[test]
fn tasks_run_on_ready_nodes_alone() {
    let rig = Rig::start();
    let slot = DataSlot::numbered(1);
    let update = |nodes: &str, available: &str, active: &str| {
        let (node, available) = (
            format!("NodeName={nodes}"),
            format!("AvailableFeatures={available}"),
        );
        rig.scontrol(&[
            "update",
            &node,
            &available,
            &format!("ActiveFeatures={active}"),
        ]);
    };
    update("n[1-3]", "A,other", "A");
    update("n[4-5]", "B", "B");
    update("n8", "B,A", "B,A");
    let before = rig.features();
    let names: Vec<String> = all_nodes().into_iter().collect();
    for _ in 0..2 {
        rig.root.declare(&slot, &names).expect("declared");
    }
    let forms: [(&[&str], &[usize]); 7] = [
        (&[], &[2, 5, 7, 8]),
        (&["-C", "A"], &[2, 8]),
        (&["-C", "A|B"], &[2, 5, 8]),
        (&["-C", "A&B"], &[8]),
        (&["--constraint=[A|B]"], &[2, 5, 8]),
        (&["-C", "A*1"], &[2, 8]),
        (&["-C", "(A&B)|B", "-x", "n8"], &[5]),
    ];
    let jobs: Vec<JobId> = forms
        .iter()
        .map(|(words, _)| rig.submit_tasks(4, words))
        .collect();
    for job in [&jobs[..], &jobs[..]].concat() {
        with_ready(Some(&slot), &[], |none| rig.root.require(&job, none)).expect("required");
    }
    for _ in 0..2 {
        with_ready(Some(&slot), &[2, 5, 7, 8], |ready| {
            rig.root.tell_ready(ready, &jobs)
        })
        .expect("told");
    }
    update("n3", "A,other,driftless_1,late", "A,late");
    for job in &jobs {
        rig.root.release(job).expect("released");
    }
    for ((words, expected), job) in forms.iter().zip(&jobs) {
        let found = rig.nodes_of(job);
        assert!(
            !found.is_empty() && found.is_subset(&nodes(expected)),
            "{words:?}: {found:?}"
        );
    }
    let job = rig.submit_tasks(24, &[]);
    with_ready(Some(&slot), &[2], |one| rig.root.require(&job, one)).expect("required");
    with_ready(Some(&slot), &[1, 2, 3, 4, 5, 6, 7, 8], |all| {
        rig.root
            .tell_ready(all, std::slice::from_ref(&job))
            .expect("told");
    });
    rig.root.release(&job).expect("released");
    assert_eq!(rig.nodes_of(&job), all_nodes());
    for _ in 0..2 {
        rig.root.undeclare(&slot).expect("undeclared");
    }
    let expected = before.replace("n3|A,other|A\n", "n3|A,other,late|A,late\n");
    assert_ne!(before, expected);
    assert_eq!(rig.features(), expected);
}

#[test]
fn constraint_waits_for_a_ready_node() {
    let rig = Rig::start();
    let slot = DataSlot::numbered(2);
    rig.scontrol(&[
        "update",
        "NodeName=n4",
        "AvailableFeatures=A",
        "ActiveFeatures=A",
    ]);
    let names: Vec<String> = all_nodes().into_iter().collect();
    rig.root.declare(&slot, &names).expect("declared");
    let job = rig.submit_tasks(2, &["-C", "A"]);
    let jobs = [job.clone()];
    with_ready(Some(&slot), &[1], |ready| {
        rig.root.require(&job, ready).expect("required");
        rig.root.tell_ready(ready, &jobs).expect("told");
    });
    rig.root.release(&job).expect("released");
    wait_slowly_until("Slurm holds the job", || {
        rig.field(&job, "%r") == "BadConstraints"
    });
    with_ready(Some(&slot), &[1, 4], |ready| {
        rig.root.tell_ready(ready, &jobs)
    })
    .expect("told");
    assert_eq!(rig.nodes_of(&job), nodes(&[4]));
}

#[test]
fn user_without_rights_excludes_nodes() {
    let rig = Rig::start();
    let slot = DataSlot::numbered(1);
    let denied = rig.user.declare(&slot, &["n1".to_owned()]).unwrap_err();
    assert!(matches!(denied, BatchError::Rights { .. }), "{denied}");
    let few = rig.submit_tasks(6, &["--exclude=n[1,7]"]);
    let many = rig.submit_tasks(32, &["-x", "n1", "--comment=mine"]);
    let jobs = [few.clone(), many.clone()];
    for job in &jobs {
        with_ready(None, &[], |none| rig.user.require(job, none)).expect("required");
        assert_eq!(rig.field(job, "%x"), "n[1-8]");
    }
    for _ in 0..2 {
        with_ready(None, &[1, 2, 3], |ready| rig.user.tell_ready(ready, &jobs)).expect("told");
    }
    assert_eq!(candidates(&rig.user, &few).expect("nodes").len(), 6);
    rig.user.release(&few).expect("released");
    assert_eq!(rig.nodes_of(&few), nodes(&[2, 3]));
    assert!(rig.field(&many, "%k").starts_with("mine driftless:"));
    rig.user.release(&many).expect("released");
    wait_slowly_until("a task runs", || {
        rig.live(&many).is_some_and(|live| !live.running.is_empty())
    });
    with_ready(None, &[1, 2, 3, 4, 5, 6, 7, 8], |all| {
        rig.user.tell_ready(all, &jobs)
    })
    .expect("told");
    assert_eq!(rig.nodes_of(&many), nodes(&[2, 3, 4, 5, 6, 7, 8]));
}

#[test]
fn only_held_jobs_are_released() {
    let rig = Rig::start();
    let unknown = JobId::new("999999").expect("a number");
    assert!(rig.root.release(&unknown).unwrap_err().is_no_job());
    let held = rig.submit(&["--wrap=sleep 600"]).job;
    rig.scontrol(&["hold", held.as_str()]);
    rig.root.release(&held).expect("nothing to do");
    assert_eq!(rig.field(&held, "%r"), "JobHeldAdmin");
    let live = rig.live(&held).expect("a job");
    assert_eq!(
        (live.is_held, live.reason.as_deref()),
        (false, Some("JobHeldAdmin"))
    );

    let running = rig.submit(&["--wrap=sleep 600"]).job;
    for _ in 0..2 {
        rig.user.release(&running).expect("released");
        wait_slowly_until("the task runs", || rig.field(&running, "%t") == "R");
    }
    let live = rig.live(&running).expect("a job");
    assert_eq!(
        (live.pending, live.running.len(), live.running[0].index),
        (0, 1, None)
    );
    let begun = with_ready(None, &[1], |ready| rig.user.require(&running, ready)).unwrap_err();
    assert!(matches!(begun, BatchError::Refused { .. }), "{begun}");
    with_ready(None, &[1], |ready| {
        let jobs = [running.clone(), unknown.clone()];
        rig.user.tell_ready(ready, &jobs).expect("nothing to do");
    });
    let other = rig.cluster.run(
        "sbatch",
        &["--parsable", "--hold", "-o/dev/null", "--wrap=true"],
    );
    let other = rig.root.submitted(&other).expect("a number");
    let denied = rig.user.release(&other).unwrap_err();
    assert!(matches!(denied, BatchError::Rights { .. }), "{denied}");
    rig.root.release(&other).expect("released");
    wait_slowly_until("the job of root has ended", || rig.live(&other).is_none());
    rig.cluster.run("scancel", &[running.as_str()]);
    wait_slowly_until("the job has ended", || rig.live(&running).is_none());
    assert!(rig.root.release(&running).unwrap_err().is_no_job());
}

#[test]
fn task_held_by_an_administrator_stays_held() {
    let rig = Rig::start();
    let job = rig.submit_tasks(40, &[]);
    for task in (2..40).step_by(2) {
        rig.scontrol(&["hold", &format!("{job}_{task}")]);
    }
    assert_eq!(rig.live(&job).expect("a job").pending, 40);
    rig.root.release(&job).expect("released");
    wait_slowly_until("the other tasks have ended", || {
        let live = rig.live(&job).expect("a job");
        live.pending == 19 && live.running.is_empty()
    });
    let live = rig.live(&job).expect("a job");
    assert_eq!(
        (live.is_held, live.reason.as_deref()),
        (false, Some("JobHeldAdmin"))
    );
}

#[test]
fn restarted_controller_is_told_again() {
    let mut rig = Rig::start();
    let slot = DataSlot::numbered(3);
    let names: Vec<String> = all_nodes().into_iter().collect();
    rig.root.declare(&slot, &names).expect("declared");
    let job = rig.submit_tasks(4, &[]);
    let jobs = [job.clone()];
    let tell = |rig: &Rig| with_ready(Some(&slot), &[6], |ready| rig.root.tell_ready(ready, &jobs));
    with_ready(Some(&slot), &[6], |ready| rig.root.require(&job, ready)).expect("required");
    tell(&rig).expect("told");
    let told = rig.features();
    assert!(told.contains("n6|driftless_3|driftless_3\n"), "{told}");

    rig.cluster.stop();
    assert!(rig.root.alive().unwrap_err().may_pass());
    assert!(tell(&rig).unwrap_err().may_pass());
    rig.cluster.restart();
    for _ in 0..2 {
        assert_ne!(rig.features(), told);
        tell(&rig).expect("told");
        assert_eq!(rig.features(), told);
        rig.scontrol(&["reconfigure"]);
        wait_slowly_until("features are forgotten", || rig.features() != told);
    }
    tell(&rig).expect("told");
    rig.root.release(&job).expect("released");
    wait_slowly_until("a task runs", || rig.field(&job, "%t").contains('R'));
    rig.cluster.restart();
    wait_slowly_until("tasks wait for the node", || {
        rig.field(&job, "%t").lines().all(|state| state == "PD")
    });
    tell(&rig).expect("told");
    assert_eq!(rig.nodes_of(&job), nodes(&[6]));
    let lines = rig.read(&format!("nodes.{job}")).expect("nodes");
    assert_eq!(lines.lines().count(), 4);
}

#[test]
fn candidates_are_nodes_of_the_partition() {
    let rig = Rig::start();
    rig.scontrol(&[
        "update",
        "NodeName=n[1-2]",
        "AvailableFeatures=A",
        "ActiveFeatures=A",
    ]);
    rig.scontrol(&["update", "NodeName=n1", "State=DOWN", "Reason=test"]);
    rig.scontrol(&["update", "NodeName=n5", "State=DRAIN", "Reason=test"]);
    let forms: [(&[&str], &[usize]); 7] = [
        (&[], &[2, 3, 4, 6, 7, 8]),
        (&["-p", "half"], &[2, 3, 4]),
        (&["-p", "half,all"], &[2, 3, 4, 6, 7, 8]),
        (&["-x", "n[6-7]"], &[2, 3, 4, 8]),
        (&["-w", "n8"], &[8]),
        (&["-N2", "-w", "n8"], &[2, 3, 4, 6, 7, 8]),
        (&["-C", "A"], &[2]),
    ];
    let submitted = forms.map(|(words, expected)| {
        let job = rig.submit(&[words, &["--wrap=true"]].concat()).job;
        (job, words, expected)
    });
    let gone = JobId::new("999999").expect("a number");
    let mut jobs: Vec<JobId> = submitted.iter().map(|(job, _, _)| job.clone()).collect();
    jobs.push(gone.clone());
    let mut together = rig.root.candidates(&jobs).expect("an answer");
    for (job, words, expected) in submitted {
        let found = candidates(&rig.root, &job).expect("nodes");
        let at_once = together.remove(&job).expect("an answer for the job");
        assert_eq!(at_once.expect("nodes"), found, "{words:?}");
        assert_eq!(
            found.into_iter().collect::<BTreeSet<_>>(),
            nodes(expected),
            "{words:?}"
        );
    }
    let of_gone = together.remove(&gone).expect("an answer for the job");
    assert!(of_gone.unwrap_err().is_no_job());
    assert!(candidates(&rig.root, &gone).unwrap_err().is_no_job());
}

#[test]
fn pending_tasks_of_arrays_are_counted() {
    let rig = Rig::start();
    let pending = |job: &JobId| rig.live(job).map(|live| live.pending);
    let large = rig.submit(&["--array=1-200%4", "--wrap=sleep 600"]).job;
    let sparse = rig.submit(&["--array=0-900:3", "--wrap=true"]).job;
    assert_eq!((pending(&large), pending(&sparse)), (Some(200), Some(301)));
    let gaps: Vec<String> = (0..40)
        .map(|number| (30 + 3 * number).to_string())
        .collect();
    rig.cluster
        .run("scancel", &[&format!("{large}_[{}]", gaps.join(","))]);
    assert_eq!(pending(&large), Some(160));
    rig.root.release(&large).expect("released");
    wait_slowly_until("four tasks run", || {
        rig.live(&large).is_some_and(|live| live.running.len() == 4)
    });
    let live = rig.live(&large).expect("a job");
    assert_eq!((live.pending, live.is_held), (156, false));
    let mut indices: Vec<_> = live.running.iter().map(|task| task.index).collect();
    indices.sort();
    assert_eq!(indices, [1, 2, 3, 4].map(Some));
    let used: BTreeSet<_> = live
        .running
        .iter()
        .flat_map(|task| task.nodes.clone())
        .collect();
    assert!(used.is_subset(&all_nodes()) && used.len() == 4, "{used:?}");
}

#[test]
fn comment_of_a_user_forges_nothing() {
    let rig = Rig::start();
    // Jobs of other users, with texts that are no UTF-8.
    for word in [&b"\xff"[..], b"\x1f\xff|\x01\n2"] {
        let comment = [&b"--comment="[..], word].concat();
        let mut sbatch = Command::new(rig.cluster.programs().join("sbatch"));
        sbatch.args(["--hold", "--wrap=true", "--job-name"]);
        sbatch.arg(<OsString as std::os::unix::ffi::OsStringExt>::from_vec(
            word.to_vec(),
        ));
        sbatch.arg(<OsString as std::os::unix::ffi::OsStringExt>::from_vec(
            comment,
        ));
        let output = sbatch.output().expect("sbatch");
        assert!(output.status.success(), "{output:?}");
    }
    let comment = "--comment=x\n1\u{1f}N/A\u{1f}PENDING driftless:00000000000000aa\n";
    let job = rig.submit(&[comment, "--wrap=true"]).job;
    let alive = rig.root.alive().expect("jobs");
    assert_eq!(alive.len(), 3);
    assert!(alive.contains_key(&job));
    with_ready(None, &[1], |ready| rig.user.require(&job, ready)).expect("required");
    assert_eq!(rig.root.marked().expect("marks").len(), 1);
}
