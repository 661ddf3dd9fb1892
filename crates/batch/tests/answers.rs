//! Proves that no failed command of Grid Engine or PBS is taken for an answer: commands that hang,
//! refuse, or print what another version prints. Scripts stand in for all commands.
#![allow(clippy::disallowed_methods)]

use driftless_batch::{
    BatchError, BatchKind, BatchResult, BatchSystem, CommandSettings, DataSlot, JobId, Readiness,
    system,
};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

const KINDS: [BatchKind; 2] = [BatchKind::GridEngine, BatchKind::Pbs];
const COMMANDS: [&str; 9] = [
    "pbsnodes", "qalter", "qconf", "qhost", "qmgr", "qrls", "qselect", "qstat", "qsub",
];

/// A batch system whose commands all run one script.
struct Stub {
    folder: tempfile::TempDir,
    system: Box<dyn BatchSystem>,
}

impl Stub {
    fn new(kind: BatchKind, script: &str, time_max: Duration) -> Stub {
        let folder = tempfile::tempdir().unwrap();
        for name in COMMANDS {
            let path = folder.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
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

    /// Returns the errors of all calls that run a command.
    fn errors(&self) -> Vec<BatchError> {
        let all = BTreeSet::from(["n1".to_owned()]);
        let slot = DataSlot::numbered(1);
        let readiness = Readiness {
            slot: Some(&slot),
            ready: &all,
            all: &all,
        };
        let job = JobId::new("1.server").unwrap();
        let results: [BatchResult<()>; 8] = [
            self.system.alive().map(drop),
            self.system.marked().map(drop),
            self.system.candidates(&job).map(drop),
            self.system.declare(&slot, &[]),
            self.system.require(&job, &readiness),
            self.system.tell_ready(&readiness, &[]),
            self.system.release(&job),
            self.system.undeclare(&slot),
        ];
        results.map(|result| result.unwrap_err()).into()
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
        (BatchKind::GridEngine, "denied: job \"1\" does not exist"),
        (BatchKind::GridEngine, "Following jobs do not exist: \n1"),
        (BatchKind::Pbs, "qrls: Unknown Job Id 1.server"),
        (
            BatchKind::Pbs,
            "qstat: 1.server Job has finished, use -x or -H to obtain historical job information",
        ),
    ] {
        let stub = Stub::quick(kind, &format!("echo '{text}' >&2; exit 1"));
        let error = stub
            .system
            .release(&JobId::new("1.server").unwrap())
            .unwrap_err();
        assert!(error.is_no_job(), "{kind}: {error}");
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
fn numbers_of_submissions_are_read() {
    for (kind, output, expected) in [
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
