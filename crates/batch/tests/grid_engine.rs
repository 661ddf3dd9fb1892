//! Drives a real Grid Engine of three hosts through the interface of a batch system.
#![allow(clippy::disallowed_methods)]

use driftless_batch::{
    BatchError, BatchSystem, CommandSettings, DataSlot, GridEngine, HeldRequest, JobId, JobInput,
    JobMark, LiveJob, Readiness,
};
use driftless_testkit::{GridEngine as Cluster, wait_slowly_until, write_program};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// A job that writes its host, task and word to a file of its own, and ends if no file `stay` exists.
const JOB: &str = "#!/bin/sh\necho \"$(hostname) ${SGE_TASK_ID} $WORD\" >\"ran.$JOB_ID.$SGE_TASK_ID\"\n\
    while [ -e stay ]; do sleep 0.1; done\n";
const MARK: u64 = 0xd1f7;

struct Bench {
    cluster: Cluster,
    system: GridEngine,
}

impl Bench {
    fn new(hosts: usize) -> Bench {
        let cluster = Cluster::start(hosts);
        let script = cluster.shared().join("job.sh");
        write_program(&script, JOB);
        let system = GridEngine::new(CommandSettings {
            folder: Some(cluster.commands()),
            ..CommandSettings::default()
        });
        Bench { cluster, system }
    }

    /// Submits held as the ordinary user.
    fn submit(&self, mark: u64, options: &[&str]) -> JobId {
        let script = self.cluster.shared().join("job.sh");
        let words = [&["qsub", "-cwd"], options, &[script.to_str().unwrap()]].concat();
        let command: Vec<OsString> = words.iter().map(OsString::from).collect();
        let submission = self
            .system
            .submission(&HeldRequest {
                command: &command,
                mark: &JobMark::of(mark),
                variables: &[("WORD".to_owned(), "a,b c".to_owned())],
                input: JobInput::Bytes(b""),
            })
            .unwrap();
        let mut qsub = self.cluster.command_as_user(&submission.program);
        qsub.args(&submission.args)
            .envs(submission.env)
            .current_dir(self.cluster.shared());
        self.system.submitted(&output(&mut qsub)).unwrap()
    }

    fn live(&self, job: &JobId) -> Option<LiveJob> {
        self.system.alive().unwrap().remove(job)
    }

    fn run(&self, program: &str, args: &[&str]) -> String {
        output(self.cluster.command(program).args(args))
    }

    /// Lines that the tasks of a job wrote.
    fn ran(&self, job: &JobId) -> BTreeSet<String> {
        let prefix = format!("ran.{job}.");
        let entries = fs::read_dir(self.cluster.shared()).unwrap().flatten();
        let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
        let text = |path| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .trim_end()
                .to_owned()
        };
        ours.map(|entry| text(entry.path()))
            .filter(|line| !line.is_empty())
            .collect()
    }

    /// Makes tasks stay until [`leave`](Bench::leave).
    fn stay(&self) {
        fs::write(self.cluster.shared().join("stay"), "").unwrap();
    }

    fn leave(&self) {
        fs::remove_file(self.cluster.shared().join("stay")).unwrap();
    }

    fn wait_for_end(&self, job: &JobId) {
        wait_slowly_until("the job has ended", || self.live(job).is_none());
    }
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The nodes of a data set that has arrived on the first of them.
struct Nodes {
    slot: DataSlot,
    ready: BTreeSet<String>,
    all: BTreeSet<String>,
}

impl Nodes {
    fn new(slot: u32, ready: &[&str]) -> Nodes {
        Nodes {
            slot: DataSlot::numbered(slot),
            ready: names(ready),
            all: names(&["ge1", "ge2", "ge3"]),
        }
    }

    fn readiness(&self) -> Readiness<'_> {
        Readiness {
            slot: Some(&self.slot),
            ready: &self.ready,
            all: &self.all,
        }
    }
}

/// Returns the candidates for one job.
fn candidates(system: &dyn BatchSystem, job: &JobId) -> Result<Vec<String>, Arc<BatchError>> {
    let mut found = system.candidates(std::slice::from_ref(job))?;
    found.remove(job).expect("an answer for the job")
}

#[test]
fn tasks_run_where_data_is_ready() {
    let bench = Bench::new(3);
    let system = &bench.system;
    let job = bench.submit(MARK, &["-t", "1-6", "-l", "h_rt=100"]);
    let marked = system.marked().unwrap();
    assert_eq!(marked.len(), 1);
    assert_eq!(
        (&marked[0].job, &marked[0].mark),
        (&job, &JobMark::of(MARK))
    );
    assert_eq!(
        (marked[0].owner.as_str(), marked[0].is_held),
        ("nobody", true)
    );
    let live = bench.live(&job).unwrap();
    assert_eq!(
        (live.is_held, live.pending, live.running.len()),
        (true, 6, 0)
    );
    assert_eq!(candidates(system, &job).unwrap(), ["ge1", "ge2", "ge3"]);

    bench.stay();
    let some = Nodes::new(1, &["ge2"]);
    system.declare(&some.slot, &[]).unwrap();
    system.require(&job, &some.readiness()).unwrap();
    system.require(&job, &some.readiness()).unwrap();
    assert!(
        bench
            .run("qstat", &["-j", job.as_str()])
            .contains("h_rt=100,driftless_1=TRUE")
    );
    system
        .tell_ready(&some.readiness(), std::slice::from_ref(&job))
        .unwrap();
    system.release(&job).unwrap();
    system.release(&job).unwrap();
    wait_slowly_until("tasks run", || !bench.ran(&job).is_empty());
    assert!(!bench.live(&job).unwrap().is_held);
    bench.leave();
    bench.wait_for_end(&job);
    let expected = (1..=6).map(|task| format!("ge2 {task} a,b c")).collect();
    assert_eq!(bench.ran(&job), expected);
    assert_eq!(system.marked().unwrap(), []);

    let next = bench.submit(MARK + 1, &["-t", "1-6"]);
    let every = Nodes::new(1, &["ge1", "ge2", "ge3"]);
    system.require(&next, &every.readiness()).unwrap();
    system
        .tell_ready(&every.readiness(), std::slice::from_ref(&next))
        .unwrap();
    system.release(&next).unwrap();
    bench.wait_for_end(&next);
    let hosts = bench
        .ran(&next)
        .iter()
        .map(|line| line[..3].to_owned())
        .collect::<BTreeSet<_>>();
    assert_eq!(hosts, every.all);
}

#[test]
fn undeclared_slot_leaves_other_values() {
    let bench = Bench::new(2);
    let nodes = Nodes::new(1, &["ge1", "ge2", "gone"]);
    let system = &bench.system;
    system.declare(&nodes.slot, &[]).unwrap();
    system.declare(&nodes.slot, &[]).unwrap();
    bench.run(
        "qconf",
        &[
            "-aattr",
            "exechost",
            "complex_values",
            "mem_total=1G",
            "ge1",
        ],
    );
    let values = |host: &str| {
        let shown = bench.run("qconf", &["-se", host]);
        let line = shown
            .lines()
            .find(|line| line.starts_with("complex_values"));
        line.unwrap().split_whitespace().nth(1).unwrap().to_owned()
    };
    system.tell_ready(&nodes.readiness(), &[]).unwrap();
    system.tell_ready(&nodes.readiness(), &[]).unwrap();
    assert_eq!(
        (values("ge1").as_str(), values("ge2").as_str()),
        ("mem_total=1G,driftless_1=TRUE", "driftless_1=TRUE")
    );
    let fewer = Nodes::new(1, &["ge2"]);
    system.tell_ready(&fewer.readiness(), &[]).unwrap();
    assert_eq!(
        (values("ge1").as_str(), values("ge2").as_str()),
        ("mem_total=1G", "driftless_1=TRUE")
    );
    system.undeclare(&nodes.slot).unwrap();
    system.undeclare(&nodes.slot).unwrap();
    assert_eq!(
        (values("ge1").as_str(), values("ge2").as_str()),
        ("mem_total=1G", "NONE")
    );
}

#[test]
fn holds_of_others_stay() {
    let bench = Bench::new(1);
    let system = &bench.system;
    let [ours, of_operator, of_user] =
        [&[][..], &[], &["-h"]].map(|options| bench.submit(MARK, options));
    let script = bench.cluster.shared().join("job.sh");
    fs::write(script, JOB.replace("\necho", "\n#$ -h\necho")).unwrap();
    let of_script = bench.submit(MARK, &[]);
    bench.run("qhold", &["-h", "o", of_operator.as_str()]);
    for job in [&ours, &of_operator, &of_user, &of_script] {
        system.release(job).unwrap();
    }
    bench.wait_for_end(&ours);
    let live = bench.live(&of_operator).unwrap();
    assert_eq!(
        (live.is_held, live.pending, live.reason.as_deref()),
        (false, 1, Some("hqw"))
    );
    for job in [&of_user, &of_script] {
        let live = bench.live(job).unwrap();
        assert_eq!((live.is_held, live.reason.as_deref()), (true, Some("hqw")));
    }
    let gone = JobId::new("999").unwrap();
    assert!(system.release(&gone).unwrap_err().is_no_job());
    assert!(candidates(system, &gone).unwrap_err().is_no_job());
}

#[test]
fn second_hold_of_defaults_starts_nothing() {
    let bench = Bench::new(1);
    fs::write(bench.cluster.shared().join(".sge_request"), "-h\n").unwrap();
    let job = bench.submit(MARK, &[]);
    let live = bench.live(&job).unwrap();
    assert_eq!((live.is_held, live.reason.as_deref()), (true, Some("qw")));
    bench.system.release(&job).unwrap();
    assert!(bench.live(&job).is_none_or(|live| !live.is_held));
    bench.wait_for_end(&job);
    assert_eq!(bench.ran(&job).len(), 1);
}

#[test]
fn candidates_follow_wishes_and_states() {
    let mut bench = Bench::new(3);
    let wishes: [(&[&str], &[&str]); 5] = [
        (&[], &["ge1", "ge2", "ge3"]),
        (&["-q", "all.q@ge2"], &["ge2"]),
        (&["-l", "hostname=ge1|ge3"], &["ge1", "ge3"]),
        (&["-l", "mem_free=900T"], &["ge1", "ge2", "ge3"]),
        (&["-l", "driftless_1=TRUE"], &["ge1", "ge2", "ge3"]),
    ];
    bench.system.declare(&DataSlot::numbered(1), &[]).unwrap();
    let jobs = wishes.map(|(options, hosts)| (bench.submit(MARK, options), hosts));
    let gone = JobId::new("999").unwrap();
    let mut all: Vec<JobId> = jobs.iter().map(|(job, _)| job.clone()).collect();
    all.push(gone.clone());
    let mut together = bench.system.candidates(&all).unwrap();
    for (job, hosts) in &jobs {
        assert_eq!(candidates(&bench.system, job).unwrap(), *hosts);
        assert_eq!(together.remove(job).unwrap().unwrap(), *hosts);
    }
    let of_gone = together.remove(&gone).unwrap();
    assert!(of_gone.unwrap_err().is_no_job());
    bench.run("qmod", &["-d", "all.q@ge1"]);
    bench.cluster.stop_host(2);
    wait_slowly_until("a host is down", || bench.cluster.down() == ["ge3"]);
    assert_eq!(candidates(&bench.system, &jobs[0].0).unwrap(), ["ge2"]);
}

#[test]
fn running_tasks_are_counted_apart() {
    let bench = Bench::new(1);
    let job = bench.submit(MARK, &["-t", "1-9:2"]);
    assert_eq!(bench.live(&job).unwrap().pending, 5);
    bench.stay();
    bench.system.release(&job).unwrap();
    wait_slowly_until("two tasks run", || {
        bench.live(&job).is_some_and(|live| live.running.len() == 2)
    });
    let single = bench.submit(MARK, &[]);
    bench.system.release(&single).unwrap();
    bench.run("qdel", &[job.as_str()]);
    wait_slowly_until("the single job runs", || {
        bench
            .live(&single)
            .is_some_and(|live| live.running.len() == 1)
    });
    let task = &bench.live(&single).unwrap().running[0];
    assert_eq!(
        (task.index, task.nodes.as_slice()),
        (None, &["ge1".to_owned()][..])
    );
    bench.wait_for_end(&job);
}

#[test]
fn all_hosts_of_a_parallel_job_are_told() {
    let bench = Bench::new(2);
    bench.stay();
    let job = bench.submit(MARK, &["-pe", "spread", "3"]);
    assert_eq!(candidates(&bench.system, &job).unwrap(), ["ge1", "ge2"]);
    assert_eq!(bench.live(&job).unwrap().pending, 1);
    bench.system.release(&job).unwrap();
    let running = || {
        bench
            .live(&job)
            .map(|live| live.running)
            .unwrap_or_default()
    };
    wait_slowly_until("the job runs", || !running().is_empty());
    let tasks = running();
    assert_eq!((tasks.len(), tasks[0].index), (1, None));
    let nodes: BTreeSet<_> = tasks[0].nodes.iter().map(String::as_str).collect();
    assert_eq!(nodes, BTreeSet::from(["ge1", "ge2"]));
}

#[test]
fn silent_qmaster_may_answer_later() {
    let mut bench = Bench::new(1);
    let job = bench.submit(MARK, &[]);
    let nodes = Nodes::new(1, &[]);
    bench.cluster.stop_master();
    let system = &bench.system;
    let errors: [BatchError; 6] = [
        system.alive().unwrap_err(),
        system.marked().unwrap_err(),
        system
            .candidates(std::slice::from_ref(&job))
            .map(drop)
            .unwrap_err(),
        system.declare(&nodes.slot, &[]).unwrap_err(),
        system.tell_ready(&nodes.readiness(), &[]).unwrap_err(),
        system.release(&job).unwrap_err(),
    ];
    for error in errors {
        assert!(error.may_pass(), "{error}");
    }
    bench.cluster.start_master();
    assert!(bench.live(&job).is_some());
}

#[test]
fn hostile_texts_of_users_are_read() {
    let bench = Bench::new(1);
    let hostile = OsString::from("a\u{1}&<>\"\u{e9} </job_list>]]>");
    let mut qsub = bench.cluster.command_as_user("qsub");
    qsub.args(["-h", "-cwd", "-N", "x&<>y", "job.sh"])
        .arg(hostile)
        .arg("\u{1b}[m");
    output(qsub.current_dir(bench.cluster.shared()));
    let job = bench.submit(MARK, &[]);
    assert_eq!(bench.system.marked().unwrap().len(), 1);
    assert_eq!(bench.system.alive().unwrap().len(), 2);
    assert_eq!(candidates(&bench.system, &job).unwrap(), ["ge1"]);
}

#[test]
fn user_without_rights_is_told_the_remedy() {
    let bench = Bench::new(1);
    let folder = bench.cluster.shared().join("commands-of-user");
    fs::create_dir(&folder).unwrap();
    for entry in fs::read_dir(bench.cluster.commands()).unwrap().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap();
        let drop_rights = "setpriv --reuid=65534 --regid=65534 --clear-groups /usr/lib/gridengine/";
        let path = folder.join(entry.file_name());
        write_program(&path, &text.replace("/usr/lib/gridengine/", drop_rights));
    }
    let system = GridEngine::new(CommandSettings {
        folder: Some(folder),
        time_max: Duration::from_secs(60),
        ..CommandSettings::default()
    });
    let nodes = Nodes::new(1, &["ge1"]);
    bench.system.declare(&nodes.slot, &[]).unwrap();
    let error = system.tell_ready(&nodes.readiness(), &[]).unwrap_err();
    assert!(error.to_string().contains("qconf -am"), "{error}");
}
