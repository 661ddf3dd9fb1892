//! Tests of submissions whose command fails, hangs up or prints no number. Scripts stand in for the
//! commands of Slurm, and a thread for the gateway.
#![allow(
    clippy::disallowed_methods,
    reason = "scripts of the test, no part of a tree"
)]

use super::*;
use crate::message::{PreparedJob, REQUEST_BYTES_MAX};
use driftless_batch::CommandSettings;
use driftless_testkit::write_program;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::JoinHandle;

const MARK: &str = "0123456789abcdef";
/// Prints the titles, and then the job that `sbatch` left in a file.
const SQUEUE: &str = r#"for word; do case $word in *%F*) format=$word;; esac; done
printf '%s\n' "$format" | tr -d %
[ ! -e "$0.job" ] || printf '%s\03742\037N/A\037PENDING\037JobHeldUser\0370\037all\037\037\037(null)\0371\037\037(null)\037alice\037%s\n' "${format%%?%F*}" "$(cat "$0.job")"
"#;
/// Leaves a job with the comment of the command line.
const SUBMIT: &str = r#"for word; do case $word in --comment=*) echo "${word#*=}" >"${0%sbatch}squeue.job";; esac; done
"#;
const LOST: &str = "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1\n";
const DENIED: &str =
    "echo 'sbatch: error: Batch job submission failed: Invalid partition name' >&2; exit 1\n";
/// `sbatch` ends with 255 for a wrong option.
const WRONG_OPTION: &str = "echo \"sbatch: unrecognized option '--tset-only'\" >&2; exit 255\n";

/// A user with commands of Slurm that scripts stand in for.
struct StubUser {
    folder: tempfile::TempDir,
}

impl StubUser {
    fn new(sbatch: &str) -> StubUser {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, script) in [("sbatch", sbatch), ("squeue", SQUEUE)] {
            if script.is_empty() {
                continue;
            }
            write_program(&folder.path().join(name), &format!("#!/bin/sh\n{script}"));
        }
        StubUser { folder }
    }

    /// Submits a job; returns the outcome and the requests to the gateway behind the first one.
    fn submit(&self) -> (Result<Submitted, Error>, Vec<ClientRequest>) {
        let socket = self.folder.path().join("socket");
        let gateway = stub_gateway(socket.clone());
        let outcome = submit(&socket, JobRequest::default(), self);
        // The connection without a request ends the gateway.
        drop(UnixStream::connect(&socket).expect("the gateway"));
        (outcome, gateway.join().expect("requests"))
    }
}

impl UserSubmission for StubUser {
    fn command(&self, _kind: BatchKind) -> Result<Vec<OsString>, String> {
        Ok(["sbatch", "--wrap=true"].map(OsString::from).into())
    }

    fn system(&self, kind: BatchKind) -> Box<dyn BatchSystem> {
        let settings = CommandSettings {
            folder: Some(self.folder.path().to_owned()),
            ..CommandSettings::default()
        };
        driftless_batch::system(kind, settings)
    }
}

fn stub_gateway(socket: PathBuf) -> JoinHandle<Vec<ClientRequest>> {
    let listener = UnixListener::bind(socket).expect("a socket");
    std::thread::spawn(move || {
        let mut requests = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().expect("a client");
            let Ok(request) = read(&mut stream, REQUEST_BYTES_MAX) else {
                return requests;
            };
            let reply = match request {
                ClientRequest::Prepare(_) => GatewayReply::Prepared(PreparedJob {
                    mark: MARK.into(),
                    system: BatchKind::Slurm.word().into(),
                    variables: Vec::new(),
                }),
                other => {
                    requests.push(other);
                    GatewayReply::Done
                }
            };
            write(&mut stream, &reply).expect("a reply");
        }
    })
}

#[test]
fn job_of_a_lost_answer_is_found() {
    for end in [
        LOST,
        "kill -KILL $$\n",
        "exit 137\n",
        "exit 1\n",
        "echo text\n",
        "exit 0\n",
    ] {
        let (outcome, requests) = StubUser::new(&format!("{SUBMIT}{end}")).submit();
        let submitted = outcome.expect(end);
        assert_eq!((submitted.job.as_str(), submitted.warning), ("42", None));
        let confirm = ClientRequest::Confirm {
            mark: MARK.into(),
            number: "42".into(),
        };
        assert_eq!(requests, [confirm], "{end}");
    }
}

#[test]
fn gateway_looks_on_for_an_unseen_job() {
    for (end, is_text) in [
        (LOST, false),
        ("kill -KILL $$\n", false),
        ("echo text\n", true),
    ] {
        let (outcome, requests) = StubUser::new(end).submit();
        let error = outcome.expect_err(end);
        assert!(error.may_have_submitted(), "{error}");
        assert_eq!(matches!(error, Error::NoNumber { .. }), is_text, "{error}");
        assert!(error.to_string().contains(MARK), "{error}");
        assert!(requests.is_empty(), "{end}: {requests:?}");
    }
}

#[test]
fn refused_job_is_abandoned() {
    for sbatch in [DENIED, WRONG_OPTION, ""] {
        let (outcome, requests) = StubUser::new(sbatch).submit();
        let error = outcome.expect_err(sbatch);
        assert!(!error.may_have_submitted(), "{error}");
        let mark = MARK.into();
        assert_eq!(requests, [ClientRequest::Abandon { mark }], "{sbatch}");
    }
}

#[test]
fn scripts_are_passed_on_whole() {
    let script = vec![b'x'; 1 << 20];
    let submission = Submission {
        program: "cat".into(),
        input: Some(script.clone()),
        ..Submission::default()
    };
    let ended = end_of(start(submission).expect("cat"));
    assert!(ended.status.success());
    assert_eq!(ended.stdout.as_bytes(), script);
}
