//! Drives a stand-in for OpenPBS, which runs real jobs, through the interface of a batch system.
#![allow(clippy::disallowed_methods)]

use driftless_batch::{
    BatchError, BatchSystem, CommandSettings, DataSlot, HeldRequest, JobId, JobInput, JobMark,
    LiveJob, Pbs, Readiness,
};
use driftless_testkit::{Pbs as Cluster, wait_slowly_until, write_program};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::process::Command;
use std::sync::Arc;

/// A job that writes its node, task and word to a file of its own, and ends if no file `stay` exists.
const JOB: &str = "#!/bin/sh\n#PBS -v FROM_SCRIPT=1\ncd \"$PBS_O_WORKDIR\"\n\
    echo \"$(hostname) $PBS_ARRAY_INDEX $WORD $FROM_SCRIPT\" >\"ran.$PBS_JOBID\"\n\
    while [ -e stay ]; do sleep 0.1; done\n";
const MARK: u64 = 0xd1f7;

struct Bench {
    cluster: Cluster,
    system: Pbs,
}

impl Bench {
    fn new(nodes: usize) -> Bench {
        let cluster = Cluster::start(nodes);
        fs::write(cluster.shared().join("job.sh"), JOB).unwrap();
        let system = Pbs::new(CommandSettings {
            folder: Some(cluster.commands()),
            ..CommandSettings::default()
        });
        Bench { cluster, system }
    }

    /// Submits held as the ordinary user.
    fn submit(&self, mark: u64, options: &[&str]) -> JobId {
        let script = self.cluster.shared().join("job.sh");
        let words = [&["qsub"], options, &[script.to_str().unwrap()]].concat();
        let command: Vec<OsString> = words.iter().map(OsString::from).collect();
        let submission = self
            .system
            .submission(&HeldRequest {
                command: &command,
                mark: &JobMark::of(mark),
                variables: &[("WORD".to_owned(), "a b".to_owned())],
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
        let number = job.as_str().split(['[', '.']).next().unwrap();
        let entries = fs::read_dir(self.cluster.shared()).unwrap().flatten();
        let is_ours = |name: &str| {
            let rest = name
                .strip_prefix("ran.")
                .and_then(|rest| rest.strip_prefix(number));
            rest.is_some_and(|rest| rest.starts_with(['[', '.']))
        };
        let ours = entries.filter(|entry| is_ours(&entry.file_name().to_string_lossy()));
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

/// The nodes of a data set.
struct Nodes {
    slot: DataSlot,
    ready: BTreeSet<String>,
    all: BTreeSet<String>,
}

impl Nodes {
    fn new(slot: u32, ready: &[&str]) -> Nodes {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Nodes {
            slot: DataSlot::numbered(slot),
            ready: names(ready),
            all: names(&["pbs1", "pbs2", "pbs3"]),
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
    assert_eq!(system.alive().unwrap().len(), 0);
    let job = bench.submit(MARK, &["-J", "1-6", "-l", "walltime=100"]);
    assert_eq!(job.as_str(), "1[].pbshead");
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
    assert_eq!(candidates(system, &job).unwrap(), ["pbs1", "pbs2", "pbs3"]);

    bench.stay();
    let some = Nodes::new(1, &["pbs2"]);
    system.declare(&some.slot, &[]).unwrap();
    system.declare(&some.slot, &[]).unwrap();
    system.require(&job, &some.readiness()).unwrap();
    system.require(&job, &some.readiness()).unwrap();
    system.release(&job).unwrap();
    wait_slowly_until("the scheduler gives a reason", || {
        bench.live(&job).is_some_and(|live| live.reason.is_some())
    });
    system
        .tell_ready(&some.readiness(), std::slice::from_ref(&job))
        .unwrap();
    system.release(&job).unwrap();
    wait_slowly_until("two tasks run", || {
        bench.live(&job).is_some_and(|live| live.running.len() == 2)
    });
    let live = bench.live(&job).unwrap();
    assert!(!live.is_held && live.pending <= 4, "{live:?}");
    assert!(
        live.running.iter().all(|task| task.nodes == ["pbs2"]),
        "{live:?}"
    );
    bench.leave();
    bench.wait_for_end(&job);
    let expected = (1..=6).map(|task| format!("pbs2 {task} a b 1")).collect();
    assert_eq!(bench.ran(&job), expected);
    assert_eq!(system.marked().unwrap(), []);

    let next = bench.submit(MARK + 1, &["-J", "1-6", "-v", "OTHER=1"]);
    let every = Nodes::new(1, &["pbs1", "pbs2", "pbs3"]);
    system.require(&next, &every.readiness()).unwrap();
    system
        .tell_ready(&every.readiness(), std::slice::from_ref(&next))
        .unwrap();
    system.release(&next).unwrap();
    bench.wait_for_end(&next);
    let hosts = bench
        .ran(&next)
        .iter()
        .map(|line| line[..4].to_owned())
        .collect::<BTreeSet<_>>();
    assert_eq!(hosts, every.all);
}

#[test]
fn undeclared_slot_leaves_other_resources() {
    let bench = Bench::new(2);
    let system = &bench.system;
    let (one, other) = (
        Nodes::new(1, &["pbs1", "gone"]),
        Nodes::new(2, &["pbs1", "pbs2"]),
    );
    for nodes in [&one, &other] {
        system.declare(&nodes.slot, &[]).unwrap();
        system.tell_ready(&nodes.readiness(), &[]).unwrap();
    }
    let shown = || bench.run("pbsnodes", &["-a", "-F", "json"]);
    assert_eq!(shown().matches("\"driftless_1\":\t\"True\"").count(), 1);
    system
        .tell_ready(&Nodes::new(1, &["pbs2"]).readiness(), &[])
        .unwrap();
    assert_eq!(shown().matches("\"driftless_1\":\t\"True\"").count(), 1);
    system.undeclare(&one.slot).unwrap();
    system.undeclare(&one.slot).unwrap();
    assert_eq!(shown().matches("driftless_1").count(), 0);
    assert_eq!(shown().matches("\"driftless_2\":\t\"True\"").count(), 2);
}

#[test]
fn holds_of_others_stay() {
    let bench = Bench::new(1);
    let system = &bench.system;
    let [ours, of_operator, of_user] =
        [&[][..], &[], &["-h"]].map(|options| bench.submit(MARK, options));
    bench.run("qhold", &["-h", "o", of_operator.as_str()]);
    for job in [&ours, &of_operator, &of_user] {
        system.release(job).unwrap();
    }
    bench.wait_for_end(&ours);
    let live = bench.live(&of_operator).unwrap();
    assert_eq!((live.is_held, live.pending), (false, 1));
    assert!(bench.live(&of_user).unwrap().is_held);
    let gone = JobId::new("999.pbshead").unwrap();
    assert!(system.release(&gone).unwrap_err().is_no_job());
    assert!(candidates(system, &gone).unwrap_err().is_no_job());
}

#[test]
fn candidates_follow_wishes_and_states() {
    let bench = Bench::new(3);
    let any = bench.submit(MARK, &[]);
    let one = bench.submit(MARK, &["-l", "select=1:ncpus=1:host=pbs2+1:host=pbs3"]);
    assert_eq!(
        candidates(&bench.system, &any).unwrap(),
        ["pbs1", "pbs2", "pbs3"]
    );
    assert_eq!(candidates(&bench.system, &one).unwrap(), ["pbs2", "pbs3"]);
    let gone = JobId::new("999.pbshead").unwrap();
    let all = [any.clone(), gone.clone(), one.clone()];
    let mut together = bench.system.candidates(&all).unwrap();
    let mut found = |job| together.remove(job).unwrap();
    assert_eq!(found(&any).unwrap(), ["pbs1", "pbs2", "pbs3"]);
    assert_eq!(found(&one).unwrap(), ["pbs2", "pbs3"]);
    assert!(found(&gone).unwrap_err().is_no_job());
    bench.run("qmgr", &["-c", "set node pbs1,pbs3 state=offline"]);
    assert_eq!(candidates(&bench.system, &any).unwrap(), ["pbs2"]);
}

#[test]
fn several_nodes_of_a_job_are_told() {
    let bench = Bench::new(2);
    let job = bench.submit(MARK, &["-l", "select=2:ncpus=1"]);
    bench.stay();
    bench.system.release(&job).unwrap();
    wait_slowly_until("the job runs", || {
        bench
            .live(&job)
            .is_some_and(|live| !live.running.is_empty())
    });
    let live = bench.live(&job).unwrap();
    assert_eq!((live.pending, live.running[0].index), (0, None));
    assert_eq!(live.running[0].nodes, ["pbs1", "pbs2"]);
    let nodes = Nodes::new(1, &[]);
    let error = bench.system.require(&job, &nodes.readiness()).unwrap_err();
    assert!(matches!(error, BatchError::Refused { .. }), "{error}");
}

#[test]
fn silent_server_may_answer_later() {
    let mut bench = Bench::new(1);
    let job = bench.submit(MARK, &[]);
    let nodes = Nodes::new(1, &[]);
    bench.cluster.stop_server();
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
    bench.cluster.start_server();
    assert!(bench.live(&job).is_some());
}

#[test]
fn values_that_are_json_are_read() {
    let bench = Bench::new(1);
    let values = "A=0007,B=1e999,C=[1],D=null,E=\"x,y\",DRIFTLESS_MARK=7";
    let mut qsub = bench.cluster.command_as_user("qsub");
    qsub.args(["-h", "-N", "7", "-v", values, "job.sh"]);
    output(qsub.current_dir(bench.cluster.shared()));
    let job = bench.submit(0x0000_1234_5678_9012, &[]);
    let marked = bench.system.marked().unwrap();
    assert_eq!(marked.len(), 1);
    assert_eq!(marked[0].job, job);
    assert_eq!(bench.system.alive().unwrap().len(), 2);
}

#[test]
fn user_without_rights_is_told_the_remedy() {
    let bench = Bench::new(1);
    let folder = bench.cluster.shared().join("commands-of-user");
    fs::create_dir(&folder).unwrap();
    for name in ["qmgr", "pbsnodes"] {
        let command = bench.cluster.commands().join(name);
        let text = format!(
            "#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups {} \"$@\"\n",
            command.display()
        );
        write_program(&folder.join(name), &text);
    }
    let system = Pbs::new(CommandSettings {
        folder: Some(folder),
        ..CommandSettings::default()
    });
    let nodes = Nodes::new(1, &["pbs1"]);
    let declared = system.declare(&nodes.slot, &[]);
    bench.system.declare(&nodes.slot, &[]).unwrap();
    for refused in [declared, system.tell_ready(&nodes.readiness(), &[])] {
        let error = refused.unwrap_err();
        assert!(matches!(error, BatchError::Rights { .. }), "{error}");
        assert!(error.to_string().contains("managers +="), "{error}");
    }
}
