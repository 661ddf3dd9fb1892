//! Start of movers by ssh, or by srun(1) on the nodes of a Slurm allocation.
//!
//! Messages are bytes of any value: srun(1) passes them on unchanged and at once with `--unbuffered`
//! only. The variables of the job and its steps would change the step of a mover, so that srun gets
//! none but those that find the job.

use driftless_remote::{Reach, spawn_there, unstarted};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Command by which movers are started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoverLauncher {
    /// ssh, as the user configured it.
    Ssh,
    /// srun(1) in the allocation of this job. `program` starts driftless on a node.
    Srun {
        /// Command with its arguments.
        program: Vec<String>,
    },
}

/// Options of a step that shares the node with all other steps of the job, without limits of its
/// own, and passes on bytes unchanged.
const STEP: [&str; 12] = [
    "srun",
    "--overlap",
    "--nodes=1",
    "--ntasks=1",
    "--mem=0",
    "--cpu-bind=none",
    "--mpi=none",
    "--unbuffered",
    "--input=all",
    "--output=all",
    "--error=all",
    "--quiet",
];
/// Variables of Slurm that srun(1) needs.
const KEPT: [&str; 5] = [
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "SLURM_CLUSTERS",
    "SLURM_JOB_ID",
    "SLURM_JWT",
];
/// Beginnings of lines that Slurm itself prints on standard error.
const SLURM_LINES: [&str; 2] = ["srun: ", "slurmstepd"];
/// Part of the line in which srun(1) repeats an exit code.
const EXIT_LINE: &str = ": Exited with exit code ";

impl MoverLauncher {
    /// Starts a program with its arguments on a host.
    ///
    /// # Errors
    /// Returns why the command that connects cannot be started.
    pub fn spawn(&self, host: &str, reach: &Reach, words: &[String]) -> Result<Child, String> {
        match self {
            MoverLauncher::Ssh => spawn_there(host, reach, &shell_words::join(words))
                .map_err(|error| error.to_string()),
            MoverLauncher::Srun { .. } => spawn_step(host, words).map_err(|cause| {
                let cause = driftless_model::cause(&cause);
                format!(
                    "\"{}\": cannot start: {cause}; install the commands of Slurm on this host, or correct the PATH",
                    STEP[0]
                )
            }),
        }
    }

    /// Returns the cause for which driftless did not start on a host, and the remedy.
    pub fn unstarted(&self, code: Option<i32>, stderr: &str, output: &str) -> String {
        match self {
            MoverLauncher::Ssh => unstarted(code, stderr, output),
            MoverLauncher::Srun { program } => not_run(program, code, stderr, output),
        }
    }
}

/// Starts a step on a node, in a process group of its own: what a terminal sends to the run does not
/// reach srun, which would end the step (srun(1), "SIGNALS AND ESCAPE SEQUENCES").
fn spawn_step(node: &str, words: &[String]) -> io::Result<Child> {
    let mut command = Command::new(STEP[0]);
    command.args(&STEP[1..]).arg(format!("--nodelist={node}"));
    command.args(words).process_group(0);
    for name in variables_of_job() {
        command.env_remove(name);
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Returns the variables of the environment that would change the step of a mover.
fn variables_of_job() -> Vec<OsString> {
    let is_of_slurm = |name: &str| name.starts_with("SLURM_") || name.starts_with("SRUN_");
    std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| {
            name.to_str()
                .is_some_and(|name| is_of_slurm(name) && !KEPT.contains(&name))
        })
        .collect()
}

/// Returns the words for a step of srun(1) that did not greet.
fn not_run(program: &[String], code: Option<i32>, stderr: &str, output: &str) -> String {
    let words = match (stderr, code) {
        ("", Some(code)) => format!("srun ended with exit code {code} without a message"),
        ("", None) => "srun ended without a message".to_owned(),
        (words, _) => words.to_owned(),
    };
    let output = match output {
        "" => String::new(),
        words => format!(" ({words})"),
    };
    let program = program.last().map_or("", String::as_str);
    // slurmstepd(8) says so of a program that it cannot execute.
    let remedy = if words.contains("execve") {
        format!("; install {program} on the node, or add --agent-path")
    } else {
        String::new()
    };
    format!("{words}{output}{remedy}")
}

/// Returns whether a line on standard error explains more than the line before it. Lines of Slurm
/// come before and after the message of a mover.
pub fn explains_more(line: &str, before: &str) -> bool {
    let is_of_slurm = |line: &str| SLURM_LINES.iter().any(|begin| line.starts_with(begin));
    before.is_empty() || !is_of_slurm(line) || is_of_slurm(before) && !line.contains(EXIT_LINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_has_a_remedy() {
        let launcher = MoverLauncher::Srun {
            program: vec!["/opt/driftless".into()],
        };
        for (code, stderr, output, expected) in [
            (
                Some(2),
                "slurmstepd: error: execve(): /opt/driftless: No such file or directory",
                "",
                "slurmstepd: error: execve(): /opt/driftless: No such file or directory; install /opt/driftless on the node, or add --agent-path",
            ),
            (
                Some(1),
                "srun: error: Unable to confirm allocation for job 3: Invalid job id specified",
                "",
                "srun: error: Unable to confirm allocation for job 3: Invalid job id specified",
            ),
            (
                Some(1),
                "",
                "what came was \"Hello\"",
                "srun ended with exit code 1 without a message (what came was \"Hello\")",
            ),
        ] {
            assert_eq!(launcher.unstarted(code, stderr, output), expected);
        }
    }

    #[test]
    fn message_of_the_mover_is_kept() {
        let limits = "srun: cluster configuration lacks support for cpu binding";
        let execve = "slurmstepd-n2: error: execve(): /nonexist: No such file or directory";
        let own = "driftless: cannot open it";
        let code = "srun: error: n2: task 0: Exited with exit code 12";
        for (before, line, expected) in [
            ("", code, true),
            (limits, execve, true),
            (execve, code, false),
            (limits, own, true),
            (own, code, false),
            (own, "driftless: another message", true),
        ] {
            assert_eq!(explains_more(line, before), expected, "{before} {line}");
        }
    }
}
