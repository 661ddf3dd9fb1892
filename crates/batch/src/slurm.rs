//! Slurm.
//!
//! A slot is a feature of nodes. Jobs demand it, and a node offers it while it has the data. Without
//! the right to change nodes, each job excludes the nodes that are not ready. Jobs whose constraint
//! counts nodes exclude nodes as well, because no constraint can say both.

mod answer;
mod features;
mod hostlist;
mod nodes;
mod options;
mod places;
mod queue;
mod sbatch;
mod script;

use crate::{
    BatchError, BatchKind, BatchResult, BatchSystem, CommandSettings, DataSlot, FoundJob,
    HeldRequest, JobCandidates, JobId, LiveJob, MarkedJob, Readiness, Submission,
};
use features::Constraint;
use nodes::{SinfoNode, SlotState};
use queue::{JobHold, JobPhase, SqueueJob};
use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Begin of the word in a comment that keeps the user's own list of excluded nodes, while driftless
/// adds its own. A single `-` stands for no nodes.
const EXCLUDED_WORD: &str = "driftless-excluded:";

/// Slurm, by its commands.
#[derive(Debug)]
pub struct Slurm {
    settings: CommandSettings,
}

impl Slurm {
    /// Makes the interface. Runs no command.
    pub fn new(mut settings: CommandSettings) -> Self {
        // Otherwise squeue(1) shortens long lists of tasks.
        settings.env.push(("SLURM_BITSTR_LEN".into(), "0".into()));
        Slurm { settings }
    }

    /// Returns the records of a job that has tasks which wait or run.
    fn living(&self, job: &JobId) -> BatchResult<Vec<SqueueJob>> {
        let mut records = self.records(Some(job))?;
        records.retain(|record| record.job == *job && record.phase != JobPhase::Ended);
        match records.is_empty() {
            true => Err(has_ended(job)),
            false => Ok(records),
        }
    }

    /// Returns whether Slurm knows a job, by another command than `squeue`.
    fn knows(&self, job: &JobId) -> BatchResult<bool> {
        let args = ["--oneliner", "show", "job", job.as_str()];
        match answer::stdout(self.settings.run_lossy("scontrol", &args)?) {
            Err(error) if error.is_no_job() => Ok(false),
            answer => answer.map(|_| true),
        }
    }

    /// Changes the tasks of a job that wait. Returns `false` if none waits any more.
    fn update(&self, job: &JobId, changes: &[String]) -> BatchResult<bool> {
        let mut args = vec!["update".to_owned(), format!("JobId={job}")];
        args.extend_from_slice(changes);
        answer::changed(self.settings.run("scontrol", &args)?)
    }

    /// Makes a job demand a constraint with a slot. Returns `false` if no task waits.
    fn demand(
        &self,
        job: &JobId,
        slot: &DataSlot,
        constraint: &str,
        readiness: &Readiness<'_>,
    ) -> BatchResult<bool> {
        let demand = || self.update(job, &[format!("Features={constraint}")]);
        match demand() {
            // Slurm refuses a feature that no node has, and forgets those of an earlier time.
            Err(BatchError::Refused { .. }) => {
                self.set_slot(slot, &|node| {
                    let is_known = readiness.all.contains(&node.name);
                    is_known.then_some(SlotState::Known)
                })?;
                demand()
            }
            done => done,
        }
    }

    /// Makes a job exclude all nodes of its partitions that are not ready, beside those that its user
    /// excludes. Returns `false` if no task waits.
    fn exclude(
        &self,
        record: &SqueueJob,
        readiness: &Readiness<'_>,
        nodes: &[SinfoNode],
    ) -> BatchResult<bool> {
        let kept = record.word(EXCLUDED_WORD);
        let own: BTreeSet<String> = own_exclusions(record)?.into_iter().collect();
        let is_place = |node: &SinfoNode| node.is_in(&record.partitions);
        if !nodes.iter().any(is_place) {
            // An empty list would let the job run everywhere.
            return Err(BatchError::Refused {
                command: "sinfo".to_owned(),
                text: format!("this user sees no node of partition {}", record.partitions),
            });
        }
        let names = nodes.iter().filter(|node| is_place(node));
        let names = names.map(|node| &node.name);
        let unready = names.filter(|name| !readiness.ready.contains(*name));
        let wanted: BTreeSet<String> = unready.chain(&own).cloned().collect();
        let present: BTreeSet<String> = record.excluded.iter().cloned().collect();
        if kept.is_some() && wanted == present {
            return Ok(true);
        }
        let mut changes = vec![format!("ExcNodeList={}", hostlist::collapse(&wanted))];
        if kept.is_none() {
            let list = match own.is_empty() {
                true => "-".to_owned(),
                false => hostlist::collapse(&own),
            };
            changes.push(format!("Comment={} {EXCLUDED_WORD}{list}", record.comment));
        }
        self.update(&record.job, &changes)
    }

    /// Brings a waiting job up to date: its excluded nodes, and a hold by Slurm itself, which found no
    /// ready node that meets the job's constraint.
    fn refresh(
        &self,
        record: &SqueueJob,
        readiness: &Readiness<'_>,
        nodes: &[SinfoNode],
    ) -> BatchResult<()> {
        let excludes = record.word(EXCLUDED_WORD).is_some();
        if excludes {
            self.exclude(record, readiness, nodes)?;
        }
        let constraint = Constraint::new(&record.constraint);
        let is_ours = excludes || readiness.slot.is_some_and(|slot| constraint.demands(slot));
        if !is_ours || readiness.ready.is_empty() {
            return Ok(());
        }
        let records = std::slice::from_ref(record);
        match self.release_held(&record.job, records, JobHold::Slurm) {
            // Slurm lets an owner release the job only when a node meets its constraint.
            Err(BatchError::Rights { .. }) if excludes => Ok(()),
            other => other,
        }
    }
}

fn has_ended(job: &JobId) -> BatchError {
    BatchError::NoJob {
        command: format!("squeue --jobs {job}"),
        text: "all of its tasks have ended".to_owned(),
    }
}

/// Returns the nodes that the user of a job excludes.
fn own_exclusions(record: &SqueueJob) -> BatchResult<Vec<String>> {
    let own = match record.word(EXCLUDED_WORD) {
        Some("-") => Some(Vec::new()),
        Some(list) => hostlist::names(list),
        None => Some(record.excluded.clone()),
    };
    own.ok_or_else(|| answer::unknown("squeue", &record.comment))
}

impl BatchSystem for Slurm {
    fn kind(&self) -> BatchKind {
        BatchKind::Slurm
    }

    fn submission(&self, request: &HeldRequest<'_>) -> BatchResult<Submission> {
        let program = submit_program(request, &self.settings)?;
        check_variables(request.variables)?;
        let variable = |name: &str| {
            let ours = self.settings.env.iter().find(|(known, _)| known == name);
            ours.map(|(_, value)| value.clone())
                .or_else(|| std::env::var_os(name))
        };
        let user = sbatch::UserSettings {
            variable: &variable,
            script: &script::read_script,
        };
        let pair = |(name, value): &(String, String)| (name.into(), value.into());
        let (args, input) = sbatch::held_arguments(request, &user)?;
        Ok(Submission {
            program,
            args,
            env: request.variables.iter().map(pair).collect(),
            input,
        })
    }

    fn submitted(&self, output: &str) -> BatchResult<JobId> {
        let mut lines = output.lines().filter(|line| !line.trim().is_empty());
        let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let job = lines.next().filter(digits).and_then(JobId::new);
        match (job, lines.next()) {
            (Some(job), None) => Ok(job),
            _ => Err(answer::unknown("sbatch --parsable", output)),
        }
    }

    fn states_refusal(&self, stderr: &str) -> bool {
        answer::states_refusal(stderr)
    }

    fn marked(&self) -> BatchResult<Vec<MarkedJob>> {
        let mut found: Vec<MarkedJob> = Vec::new();
        for record in self.records(None)? {
            let Some(mark) = record.mark().filter(|_| record.phase != JobPhase::Ended) else {
                continue;
            };
            let is_held = record.seems_held();
            match found.iter_mut().find(|known| known.job == record.job) {
                Some(known) => known.is_held |= is_held,
                None => found.push(MarkedJob {
                    job: record.job,
                    mark,
                    owner: record.owner,
                    is_held,
                }),
            }
        }
        Ok(found)
    }

    fn alive(&self) -> BatchResult<HashMap<JobId, LiveJob>> {
        let mut found: HashMap<JobId, LiveJob> = HashMap::new();
        let mut records = self.records(None)?;
        records.retain(|record| record.phase != JobPhase::Ended);
        for record in records {
            let live = found.entry(record.job.clone()).or_default();
            live.is_held |= record.seems_held();
            live.pending += record.pending();
            if let Some(tasks) = record.waiting() {
                live.add_waiting(tasks);
            }
            live.running.extend(record.running());
            if record.phase == JobPhase::Pending {
                live.reason = Some(record.reason);
            }
        }
        Ok(found)
    }

    fn find(&self, job: &JobId) -> BatchResult<Option<FoundJob>> {
        let mut records = match self.records(Some(job)) {
            Err(error) if error.is_no_job() => Vec::new(),
            answer => answer?,
        };
        records.retain(|record| record.job == *job);
        match records.first() {
            Some(first) => Ok(Some(FoundJob {
                mark: first.mark(),
                owner: first.owner.clone(),
                is_alive: records.iter().any(|one| one.phase != JobPhase::Ended),
            })),
            None if self.knows(job)? => Err(answer::unknown(
                "squeue",
                &format!("no record of job {job}, which scontrol knows"),
            )),
            None => Ok(None),
        }
    }

    fn candidates(&self, jobs: &[JobId]) -> BatchResult<JobCandidates> {
        let records = match jobs {
            // squeue refuses a number that Slurm does not know any more.
            [job] => match self.living(job) {
                Err(error) if error.is_no_job() => Vec::new(),
                other => other?,
            },
            _ => self.records(None)?,
        };
        Ok(places::candidates(jobs, &records, &self.nodes()?))
    }

    fn declare(&self, slot: &DataSlot, nodes: &[String]) -> BatchResult<()> {
        let names: BTreeSet<&String> = nodes.iter().collect();
        self.set_slot(slot, &|node| {
            names.contains(&node.name).then_some(SlotState::Known)
        })
    }

    fn offer(&self, _slot: &DataSlot, readiness: &Readiness<'_>) -> BatchResult<()> {
        // A change of features makes the slot known to each node of the job.
        self.tell_ready(readiness, &[])
    }

    fn require(&self, job: &JobId, readiness: &Readiness<'_>) -> BatchResult<()> {
        let records = self.living(job)?;
        let has_begun = || BatchError::Refused {
            command: format!("scontrol update JobId={job}"),
            text: "no task of the job waits".to_owned(),
        };
        let pending = records.iter().find(|one| one.phase == JobPhase::Pending);
        let record = pending.ok_or_else(has_begun)?;
        let constraint = Constraint::new(&record.constraint);
        let slot = readiness.slot;
        if slot.is_some_and(|slot| constraint.demands(slot)) {
            return Ok(());
        }
        let joined = slot.and_then(|slot| Some((slot, constraint.with(slot)?)));
        let waits = match joined {
            Some((slot, text)) => self.demand(job, slot, &text, readiness)?,
            None => self.exclude(record, readiness, &self.nodes()?)?,
        };
        if waits { Ok(()) } else { Err(has_begun()) }
    }

    fn tell_ready(&self, readiness: &Readiness<'_>, jobs: &[JobId]) -> BatchResult<()> {
        if let Some(slot) = readiness.slot {
            // Slurm forgets features when its controller starts or reads its configuration again,
            // so all nodes are compared each time.
            self.set_slot(slot, &|node| {
                Some(if readiness.ready.contains(&node.name) {
                    SlotState::Ready
                } else if readiness.all.contains(&node.name) {
                    SlotState::Unready
                } else {
                    SlotState::Silent
                })
            })?;
        }
        if jobs.is_empty() {
            return Ok(());
        }
        let mut records = self.records(None)?;
        records.retain(|one| one.phase == JobPhase::Pending && jobs.contains(&one.job));
        let excludes = |one: &SqueueJob| one.word(EXCLUDED_WORD).is_some();
        let nodes = match records.iter().any(excludes) {
            true => self.nodes()?,
            false => Vec::new(),
        };
        let mut first_error = Ok(());
        for record in &records {
            let result = self.refresh(record, readiness, &nodes);
            let has_ended = result.as_ref().is_err_and(BatchError::is_no_job);
            if !has_ended {
                first_error = first_error.and(result);
            }
        }
        first_error
    }

    fn release(&self, job: &JobId) -> BatchResult<()> {
        self.release_held(job, &self.living(job)?, JobHold::User)
    }

    fn undeclare(&self, slot: &DataSlot) -> BatchResult<()> {
        self.set_slot(slot, &|_| Some(SlotState::Gone))
    }
}

/// Returns the number of words from the script on.
pub(crate) fn script_words(args: &[OsString]) -> usize {
    let is_script = |word: &OsStr| script::read_script(word, None).is_some();
    options::SbatchLine::parse(args, &is_script).rest.len()
}

/// Returns the cause if the script that a command line names cannot be one.
pub(crate) fn script_fault(args: &[OsString]) -> Option<String> {
    let is_script = |word: &OsStr| script::read_script(word, None).is_some();
    let line = options::SbatchLine::parse(args, &is_script);
    let has_wrap = line.options.iter().any(|option| option.name == "wrap");
    let name = line.script().filter(|_| !has_wrap)?;
    match script::read_script(name, line.value("chdir").map(Path::new)) {
        None => Some(crate::script::unreadable("sbatch", name)),
        Some(bytes) if !bytes.starts_with(b"#!") => Some(format!(
            "sbatch: {}: the first line must begin with #!, such as #!/bin/sh",
            driftless_model::quote(Path::new(name))
        )),
        Some(_) => None,
    }
}

/// Returns the program of a submission.
fn submit_program(request: &HeldRequest<'_>, settings: &CommandSettings) -> BatchResult<OsString> {
    let first = request.command.first();
    let name = first.and_then(|word| Path::new(word).file_name());
    if name != Some(OsStr::new("sbatch")) {
        let shown = first.map_or("".into(), |word| word.to_string_lossy());
        return Err(BatchError::Arguments(format!(
            "\"{shown}\": not a command that submits a job to Slurm; write sbatch and its arguments"
        )));
    }
    match first {
        Some(path) if Path::new(path).components().count() > 1 => Ok(path.clone()),
        _ => Ok(settings.program("sbatch")),
    }
}

/// Refuses variables whose names `--export` cannot carry.
fn check_variables(variables: &[(String, String)]) -> BatchResult<()> {
    let is_name = |name: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let mut bytes = name.bytes();
        bytes.next().is_some_and(is_letter)
            && bytes.all(|byte| is_letter(byte) || byte.is_ascii_digit())
    };
    match variables.iter().find(|(name, _)| !is_name(name)) {
        Some((name, _)) => Err(BatchError::Arguments(format!(
            "\"{name}\": not a name of a variable; use letters, digits and underscores"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobInput, JobMark};

    #[test]
    fn number_of_a_job_stands_alone() {
        let slurm = Slurm::new(CommandSettings::default());
        assert_eq!(slurm.submitted("123\n").unwrap().as_str(), "123");
        for wrong in [
            "",
            "\n",
            "Submitted batch job 123\n",
            "1\n2\n",
            "1;other\n",
            "1.2\n",
        ] {
            assert!(slurm.submitted(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_sbatch_is_accepted() {
        let slurm = Slurm::new(CommandSettings {
            folder: Some("/stand-in".into()),
            ..CommandSettings::default()
        });
        let submit = |program: &str, variable: &str| {
            slurm.submission(&HeldRequest {
                command: &[program.into(), "--wrap=true".into()],
                mark: &JobMark::of(1),
                variables: &[(variable.into(), "b".into())],
                input: JobInput::Bytes(b""),
            })
        };
        let made = submit("sbatch", "A").unwrap();
        assert_eq!(made.program, "/stand-in/sbatch");
        assert_eq!(made.env, [("A".into(), "b".into())]);
        assert_eq!(
            submit("/opt/bin/sbatch", "A").unwrap().program,
            "/opt/bin/sbatch"
        );
        for (program, variable) in [
            ("srun", "A"),
            ("qsub", "A"),
            ("sbatch", "A,B"),
            ("sbatch", ""),
        ] {
            submit(program, variable).unwrap_err();
        }
    }
}
