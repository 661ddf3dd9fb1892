//! Answers of the commands of Slurm, and what their errors mean.

use crate::command::CommandOutput;
use crate::{BatchError, BatchResult};

/// Command by which an administrator gives the rights of an operator.
const REMEDY: &str = "let root run the gateway, or run \
     \"sacctmgr modify user NAME set adminlevel=admin\"";

/// Texts of errors of a controller that does not answer now (slurm_errno.c).
const PASSING: [&str; 14] = [
    "Unable to contact slurm controller",
    "Unable to establish controller machine",
    "Communication connection failure",
    "Connection refused",
    "Connection reset",
    "Connection timed out",
    "No route to host",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Unexpected missing socket",
    "temporarily unable to accept job",
    "controller in standby mode",
    "Job update not available right now",
    "Munge encode failed",
];
/// Texts of errors after which a request may have reached the controller (slurm_errno.c).
const LOST: [&str; 17] = [
    "(receive failure)",
    "(send failure)",
    "(shutdown failure)",
    "Communication connection failure",
    "Communication shutdown failure",
    "Connection reset",
    "Connection timed out",
    "Broken pipe",
    "Header lengths are longer than data received",
    "Insane message length",
    "Message receive failure",
    "Message send failure",
    "Socket timed out",
    "Unexpected message",
    "Unexpected missing socket",
    "Unspecified error",
    "Zero Bytes were transmitted",
];
const NO_JOB: &str = "Invalid job id specified";
const NO_RIGHT: [&str; 2] = ["Access/permission denied", "Invalid user id"];
/// Texts of tasks that an update cannot change any more, or did change.
const PAST: [&str; 5] = [
    "No error",
    "Job has already finished",
    "Job is no longer pending execution",
    "Job/step already completing or completed",
    "Job/step already completed",
];

/// Returns the standard output of a command that succeeded.
pub(super) fn stdout(output: CommandOutput) -> BatchResult<String> {
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(error(output))
}

fn error(output: CommandOutput) -> BatchError {
    let command = output.command;
    let texts = [output.stderr, output.stdout];
    let mut told = texts.into_iter().filter(|text| !text.trim().is_empty());
    let text = told.next().unwrap_or_else(|| output.status.to_string());
    let has = |part: &&str| text.contains(*part);
    if PASSING.iter().any(has) {
        BatchError::Unavailable { command, text }
    } else if text.contains(NO_JOB) {
        BatchError::NoJob { command, text }
    } else if NO_RIGHT.iter().any(has) {
        BatchError::Rights {
            command,
            text,
            remedy: REMEDY,
        }
    } else {
        BatchError::Refused { command, text }
    }
}

/// Returns whether `sbatch` states that no job was submitted. All of its messages begin with its name.
pub(super) fn states_refusal(stderr: &str) -> bool {
    stderr.contains("sbatch: ") && !LOST.iter().any(|text| stderr.contains(text))
}

/// Returns whether a command changed a job that waits. Tasks that run or ended are no error:
/// `scontrol` names them one by one and fails, although it changed the others.
pub(super) fn changed(output: CommandOutput) -> BatchResult<bool> {
    if output.status.success() {
        return Ok(true);
    }
    let (mut any, mut has_changed) = (false, false);
    for line in output.stderr.lines().filter(|line| !line.trim().is_empty()) {
        // A line "slurm_update error: ..." repeats the error of the last task.
        let text = line.split_once(": ").map_or(line, |(_, text)| text);
        let is_past = |past: &str| text.starts_with(past) || line.starts_with(past);
        if !PAST.iter().any(|past| is_past(past)) {
            return Err(error(output));
        }
        any = true;
        has_changed |= text == PAST[0];
    }
    if any {
        Ok(has_changed)
    } else {
        Err(error(output))
    }
}

/// Returns the error for output of an unknown form.
pub(super) fn unknown(command: &str, line: &str) -> BatchError {
    BatchError::Output {
        command: command.to_owned(),
        line: line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn failed(stderr: &str) -> CommandOutput {
        CommandOutput {
            command: "scontrol".into(),
            status: ExitStatus::from_raw(1 << 8),
            stdout: String::new(),
            stderr: stderr.into(),
        }
    }

    #[test]
    fn errors_tell_their_kind() {
        let kind = |stderr: &str| stdout(failed(stderr)).unwrap_err();
        for text in [
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
            "scontrol: error: Munge encode failed: Failed to access \"/run/munge\"\n",
            "slurm_update error: Socket timed out on send/recv operation\n",
        ] {
            assert!(kind(text).may_pass(), "{text}");
        }
        assert!(kind("slurm_load_jobs error: Invalid job id specified\n").is_no_job());
        for text in [
            "slurm_update error: Invalid user id\n",
            "Access/permission denied for job 105\nslurm_suspend error: Access/permission denied\n",
        ] {
            assert!(matches!(kind(text), BatchError::Rights { .. }), "{text}");
        }
        let refused = kind("slurm_update error: Invalid node name specified\n");
        assert!(matches!(refused, BatchError::Refused { .. }));
    }

    #[test]
    fn lost_answers_are_no_refusals() {
        let failed = |cause: &str| format!("sbatch: error: Batch job submission failed: {cause}\n");
        for cause in [
            "Invalid partition name specified",
            "Unable to contact slurm controller (connect failure)",
            "Slurm temporarily unable to accept job, sleeping and retrying",
        ] {
            assert!(states_refusal(&failed(cause)), "{cause}");
        }
        assert!(states_refusal("sbatch: unrecognized option '--none'\n"));
        for cause in [
            "Socket timed out on send/recv operation",
            "Zero Bytes were transmitted or received",
            "Unable to contact slurm controller (receive failure)",
        ] {
            assert!(!states_refusal(&failed(cause)), "{cause}");
        }
        for foreign in ["", "wrapper: cannot write the log\n"] {
            assert!(!states_refusal(foreign), "{foreign}");
        }
    }

    #[test]
    fn tasks_of_the_past_are_no_error() {
        let mixed = "108_1-4: Job has already finished\n\
             108_5-6: Job is no longer pending execution\n108_7-200: No error\n";
        assert!(changed(failed(mixed)).unwrap());
        let past = "Job is no longer pending execution for job 125\n";
        assert!(!changed(failed(past)).unwrap());
        let denied = "108_1-4: Job has already finished\n108_5: Access/permission denied\n";
        assert!(matches!(
            changed(failed(denied)).unwrap_err(),
            BatchError::Rights { .. }
        ));
        changed(failed("")).unwrap_err();
    }
}
