//! Proves that no failed command of a batch system is taken for an answer: commands that hang, refuse,
//! are killed, or print nothing, a part, or what another version prints. Counts the commands that ask
//! about many jobs. Scripts stand in for all commands.
#![allow(clippy::disallowed_methods)]

use driftless_batch::{
    BatchError, BatchKind, BatchResult, BatchSystem, CommandSettings, DataSlot, JobId, Readiness,
    system,
};
use driftless_testkit::write_program;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

const KINDS: [BatchKind; 3] = [BatchKind::Slurm, BatchKind::GridEngine, BatchKind::Pbs];
const COMMANDS: [&str; 12] = [
    "pbsnodes", "qalter", "qconf", "qhost", "qmgr", "qrls", "qselect", "qstat", "qsub", "scontrol",
    "sinfo", "squeue",
];
/// Prints what the commands print while no job is there.
const NO_JOBS: [(BatchKind, &str); 3] = [
    (
        BatchKind::Slurm,
        "for word; do case $word in *%F*) printf '%s\\n' \"$word\" | tr -d %;; esac; done",
    ),
    (
        BatchKind::GridEngine,
        "echo '<job_info><queue_info></queue_info><job_info></job_info></job_info>'",
    ),
    (BatchKind::Pbs, "echo '{\"pbs_server\":\"s\"}'"),
];

/// A batch system whose commands all run one script.
struct Stub {
    folder: tempfile::TempDir,
    system: Box<dyn BatchSystem>,
}

impl Stub {
    fn new(kind: BatchKind, script: &str, time_max: Duration) -> Stub {
        let folder = tempfile::tempdir().unwrap();
        write_program(
            &folder.path().join("all"),
            &format!("#!/bin/sh\n{script}\n"),
        );
        for name in COMMANDS {
            symlink("all", folder.path().join(name)).unwrap();
        }
        let settings = CommandSettings {
            folder: Some(folder.path().to_owned()),
            time_max,
            ..CommandSettings::default()
        };
        Stub {
            folder,
            system: system(kind, settings),
        }
    }

    fn quick(kind: BatchKind, script: &str) -> Stub {
        Stub::new(kind, script, Duration::from_secs(60))
    }

    /// Returns the errors of all calls that run a command. Each must fail.
    fn errors(&self) -> Vec<BatchError> {
        let all = self.failures().into_iter();
        all.map(|error| error.expect("an error")).collect()
    }

    /// Returns the outcomes of all calls that run a command.
    fn failures(&self) -> [Option<BatchError>; 9] {
        let all = BTreeSet::from(["n1".to_owned()]);
        let slot = DataSlot::numbered(1);
        let readiness = Readiness {
            slot: Some(&slot),
            ready: &all,
            all: &all,
        };
        let job = JobId::new("1.server").unwrap();
        let results: [BatchResult<()>; 9] = [
            self.system.alive().map(drop),
            self.system.marked().map(drop),
            self.system.find(&job).map(drop),
            self.system.candidates(std::slice::from_ref(&job)).map(drop),
            self.system.declare(&slot, &[]),
            self.system.require(&job, &readiness),
            self.system.tell_ready(&readiness, &[]),
            self.system.release(&job),
            self.system.undeclare(&slot),
        ];
        results.map(Result::err)
    }
}

#[test]
fn slow_commands_may_answer_later() {
    for kind in KINDS {
        let stub = Stub::new(kind, "sleep 600", Duration::from_millis(100));
        let began = Instant::now();
        for error in stub.errors() {
            assert!(error.may_pass(), "{kind}: {error}");
        }
        assert!(began.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn refusals_tell_what_is_missing() {
    let rights = [
        (
            BatchKind::Slurm,
            "slurm_update error: Invalid user id",
            "adminlevel=admin",
        ),
        (
            BatchKind::GridEngine,
            "denied: \"ann\" must be manager for this operation",
            "qconf -am",
        ),
        (
            BatchKind::GridEngine,
            "denied: host \"n1\" is not an admin host",
            "qconf -am",
        ),
        (
            BatchKind::Pbs,
            "qmgr obj=driftless_1 svr=default: Unauthorized Request \nqmgr: Error (15007) returned from server",
            "managers +=",
        ),
        (
            BatchKind::Pbs,
            "No Permission.\nqstat: cannot connect to server s (errno=15007)",
            "managers +=",
        ),
    ];
    for (kind, text, remedy) in rights {
        let stub = Stub::quick(kind, &format!("printf '%s' '{text}' >&2; exit 1"));
        for error in stub.errors() {
            assert!(
                matches!(error, BatchError::Rights { .. }),
                "{kind}: {error}"
            );
            assert!(error.to_string().contains(remedy), "{kind}: {error}");
        }
    }
    let passing = [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "error: unable to contact qmaster using port 6444 on host \"head\"",
        "Connection refused\nqstat: cannot connect to server s (errno=111)",
    ];
    for (kind, text) in KINDS.into_iter().zip(passing) {
        for error in Stub::quick(kind, &format!("printf '%s' '{text}' >&2; exit 1")).errors() {
            assert!(error.may_pass(), "{kind}: {error}");
        }
    }
    for kind in KINDS {
        for error in Stub::quick(kind, "echo no way >&2; exit 1").errors() {
            assert!(
                matches!(error, BatchError::Refused { .. }),
                "{kind}: {error}"
            );
            assert!(error.to_string().contains("no way"), "{kind}: {error}");
        }
    }
}

#[test]
fn unknown_jobs_are_told_apart() {
    for (kind, text) in [
        (
            BatchKind::Slurm,
            "slurm_load_jobs error: Invalid job id specified",
        ),
        (BatchKind::GridEngine, "denied: job \"1\" does not exist"),
        (BatchKind::GridEngine, "Following jobs do not exist: \n1"),
        (BatchKind::Pbs, "qrls: Unknown Job Id 1.server"),
        (
            BatchKind::Pbs,
            "qstat: 1.server Job has finished, use -x or -H to obtain historical job information",
        ),
    ] {
        let stub = Stub::quick(kind, &format!("echo '{text}' >&2; exit 1"));
        let job = JobId::new("1.server").unwrap();
        let error = stub.system.release(&job).unwrap_err();
        assert!(error.is_no_job(), "{kind}: {error}");
        assert_eq!(stub.system.find(&job).unwrap(), None, "{kind}");
    }
}

#[test]
fn answer_without_a_job_ends_it_not() {
    let job = JobId::new("1.server").unwrap();
    for (kind, answer) in NO_JOBS {
        let error = Stub::quick(kind, answer).system.find(&job).unwrap_err();
        assert!(
            matches!(error, BatchError::Output { .. }),
            "{kind}: {error}"
        );
    }
}

#[test]
fn output_of_other_versions_is_an_error() {
    let job = r#"{"Job_Owner":"a@b","queue":"q","Hold_Types":"n","job_state":"?"}"#;
    let unknown_state = format!(r#"{{"pbs_server":"s","Jobs":{{"1.s":{job}}}}}"#);
    let outputs = [
        "",
        "job-ID prior name",
        "<job_info>",
        "<jobs version=\"9\"/>",
        "<job_info><job_list><state>r</state></job_list></job_info>",
        "<job_info><job_list><JB_job_number>1</JB_job_number><state>r</state></job_list></job_info>",
        "[]",
        "{}",
        r#"{"pbs_server":"s","Jobs":[],"nodes":[]}"#,
        r#"{"pbs_server":"s","Jobs":{"1.s":{"job_state":"R"}},"nodes":{"n":{}}}"#,
        &unknown_state,
    ];
    for (kind, output) in KINDS
        .into_iter()
        .flat_map(|kind| outputs.map(|output| (kind, output)))
    {
        let stub = Stub::quick(kind, &format!("cat <<'END'\n{output}\nEND"));
        let error = stub.system.alive().unwrap_err();
        assert!(
            matches!(error, BatchError::Output { .. }),
            "{kind}: {output}: {error}"
        );
    }
}

#[test]
fn killed_commands_may_answer_later() {
    for (kind, answer) in NO_JOBS {
        let script = format!("{answer}\nkill -KILL $$");
        for error in Stub::quick(kind, &script).errors() {
            assert!(error.may_pass(), "{kind}: {error}");
            assert!(error.to_string().contains("signal 9"), "{kind}: {error}");
        }
    }
}

#[test]
fn silent_commands_state_nothing() {
    for kind in KINDS {
        for error in Stub::quick(kind, "exit 3").errors() {
            let text = error.to_string();
            assert!(text.contains("exit status: 3"), "{kind}: {text}");
        }
        for script in ["exit 0", "printf '\\n'"] {
            let stub = Stub::quick(kind, script);
            for error in stub.failures().into_iter().flatten() {
                assert!(
                    matches!(error, BatchError::Output { .. }),
                    "{kind}: {error}"
                );
            }
            // PBS lists no resource, which is no list of jobs or nodes.
            let failed = stub.failures().iter().flatten().count();
            let expected = if kind == BatchKind::Pbs { 8 } else { 9 };
            assert_eq!(failed, expected, "{kind}");
        }
    }
}

#[test]
fn warnings_are_no_part_of_answers() {
    for (kind, answer) in NO_JOBS {
        let script = format!("echo 'warning: the clock is slow' >&2\n{answer}");
        let stub = Stub::quick(kind, &script);
        assert!(stub.system.alive().unwrap().is_empty(), "{kind}");
    }
}

#[test]
fn commands_run_in_the_c_locale() {
    for (kind, answer) in NO_JOBS {
        let script = format!("[ \"$LC_ALL\" = C ] || exit 1\n{answer}");
        let stub = Stub::quick(kind, &script);
        assert!(stub.system.alive().unwrap().is_empty(), "{kind}");
    }
}

#[test]
fn part_of_an_answer_is_an_error() {
    for (kind, answer) in NO_JOBS {
        let full = format!("answer() {{ {answer}; }}\nanswer \"$@\"");
        let whole = Stub::quick(kind, &format!("{full} | wc -c >\"$0.bytes\"\nexit 1"));
        let _no_answer = whole.system.alive();
        let count = |name: &str| fs::read_to_string(whole.folder.path().join(name));
        let bytes = count("squeue.bytes").or_else(|_| count("qstat.bytes"));
        let bytes: usize = bytes.unwrap().trim().parse().unwrap();
        // The end of the last line of JSON or XML states nothing.
        let needed = if kind == BatchKind::Slurm {
            bytes
        } else {
            bytes - 1
        };
        for cut in [0, 1, 7, bytes / 2, needed - 1] {
            let stub = Stub::quick(kind, &format!("{full} | head -c {cut}"));
            let error = stub.system.alive().unwrap_err();
            assert!(
                matches!(error, BatchError::Output { .. }),
                "{kind}: {cut} bytes: {error}"
            );
        }
    }
}

#[test]
fn cut_list_of_complexes_replaces_none() {
    let head = "#name shortcut type relop requestable consumable default urgency";
    let row = "arch a RESTRING == YES NO NONE 0";
    for list in ["", head, &format!("{head}\n{row}"), &format!("{head}\n#")] {
        let script = format!(
            "case $1 in -sc) cat <<'END'\n{list}\nEND\n;; *) echo \"$@\" >>\"$0.calls\";; esac"
        );
        let stub = Stub::quick(BatchKind::GridEngine, &script);
        let error = stub
            .system
            .declare(&DataSlot::numbered(1), &[])
            .unwrap_err();
        assert!(
            matches!(error, BatchError::Output { .. }),
            "{list}: {error}"
        );
        assert!(!stub.folder.path().join("qconf.calls").exists(), "{list}");
    }
}

#[test]
fn numbers_of_submissions_are_read() {
    for (kind, output, expected) in [
        (BatchKind::Slurm, "12\n", Some("12")),
        (BatchKind::Slurm, "", None),
        (BatchKind::GridEngine, "12\n", Some("12")),
        (BatchKind::GridEngine, "hello\n12.1-9:2\n\n", Some("12")),
        (
            BatchKind::GridEngine,
            "Your job 12 (\"a\") has been submitted\n",
            None,
        ),
        (BatchKind::GridEngine, "", None),
        (BatchKind::Pbs, "12.server\n", Some("12.server")),
        (
            BatchKind::Pbs,
            "12[].server.example.org\n",
            Some("12[].server.example.org"),
        ),
        (BatchKind::Pbs, "12\n", None),
        (BatchKind::Pbs, "qsub: waiting\n", None),
    ] {
        let read = system(kind, CommandSettings::default()).submitted(output);
        assert_eq!(
            read.ok().as_ref().map(JobId::as_str),
            expected,
            "{kind}: {output}"
        );
    }
}

#[test]
fn missing_commands_are_named() {
    for kind in KINDS {
        let stub = Stub::quick(kind, "");
        for name in COMMANDS {
            fs::remove_file(stub.folder.path().join(name)).unwrap();
        }
        for error in stub.errors() {
            assert!(
                matches!(error, BatchError::Program { .. }),
                "{kind}: {error}"
            );
        }
    }
}

/// Prints a thousand jobs of one kind, and one node.
const THOUSAND: &str = r#"
name=${0##*/}
echo "$name" >>"${0%/*}/calls"
numbers() { seq 1 1000; }
case "$name $1" in
squeue*) us=$(printf '\037')
    for word; do case $word in *"$us"*) printf '%s\n' "$word" | tr -d %; begin=${word%%"$us"*} ;; esac; done
    numbers | sed "s/.*/$begin|&|N\/A|PENDING|JobHeldUser|0|all|||(null)|1||(null)|ann|(null)/" | tr '|' "$us" ;;
sinfo*) printf 'n1|all|idle|(null)|(null)\n' | tr '|' '\037' ;;
'qstat -j') echo '<detailed_job_info><djob_info>'
    numbers | sed 's:.*:<element><JB_job_number>&</JB_job_number><JB_owner>ann</JB_owner></element>:'
    echo '</djob_info></detailed_job_info>' ;;
'qstat -f') [ "$2" = -F ] || { echo '<job_info><Queue-List><name>all.q@n1</name></Queue-List></job_info>'; exit; }
    printf '{"pbs_server":"s","Jobs":{"0.s":'
    job='{"Job_Owner":"a@b","queue":"q","Hold_Types":"u","job_state":"H"}'
    echo "$job"; numbers | sed "s/.*/,\"&.s\":$job/"; echo '}}' ;;
pbsnodes*) echo '{"pbs_server":"s","nodes":{"n1":{"state":"free"}}}' ;;
esac
"#;

#[test]
fn thousand_jobs_are_asked_about_at_once() {
    for (kind, suffix, expected) in [
        (BatchKind::Slurm, "", "squeue\nsinfo\n"),
        (BatchKind::GridEngine, "", "qstat\nqconf\nqstat\n"),
        (BatchKind::Pbs, ".s", "qstat\npbsnodes\n"),
    ] {
        let stub = Stub::quick(kind, THOUSAND);
        let number = |number: u32| JobId::new(&format!("{number}{suffix}")).unwrap();
        let jobs: Vec<JobId> = (1..=1000).map(number).collect();
        let found = stub.system.candidates(&jobs).unwrap();
        assert_eq!(found.len(), 1000, "{kind}");
        for (job, nodes) in found {
            assert_eq!(nodes.unwrap(), ["n1"], "{kind}: {job}");
        }
        let calls = fs::read_to_string(stub.folder.path().join("calls")).unwrap();
        assert_eq!(calls, expected, "{kind}");
    }
}
