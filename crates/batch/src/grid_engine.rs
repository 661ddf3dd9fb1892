//! Grid Engine, by the commands of Grid Engine 8.1.9.
//!
//! A slot is a boolean complex. A host has the complex value `TRUE` once the data set is there. The
//! commands `qconf -aattr` and `-dattr` add and remove one value of a host, so other values of hosts
//! stay, and no lost update is possible. Only `qconf -Mc` replaces a list: that of all complexes.
//!
//! A job carries its mark in its context (`qsub -ac`).

mod arguments;
mod xml;

pub(crate) use arguments::{script_fault, script_words};

use crate::command::CommandOutput;
use crate::{
    BatchError, BatchKind, BatchResult, BatchSystem, CommandSettings, DataSlot, FoundJob,
    HeldRequest, JobCandidates, JobId, JobMark, LiveJob, MarkedJob, Readiness, Submission,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::sync::Arc;
use xml::{HostValues, JobDetails};

/// Variable of the job's context with its mark.
const MARK: &str = "driftless";
/// Variable of the job's context that tells that the user asked for a hold.
const HOLD_OF_USER: &str = "driftless_hold";
/// Its value.
const KEPT: &str = "user";
/// Start time that never comes, in any time zone: the second hold of a job.
const START_NEVER: &str = "203701010000";
/// Start time of a job without one, in UTC.
const START_NONE: &str = "197001010000";
/// Hosts of one command. 200 names of 64 bytes are far from the limit of a command line.
const HOSTS_MAX: usize = 200;
/// Complexes of Grid Engine that change with the load of a host (complex(5)). A host that is busy now is
/// a candidate.
const LOADS: &[&str] = &[
    "cpu",
    "load_avg",
    "load_long",
    "load_medium",
    "load_short",
    "mem_free",
    "mem_used",
    "np_load_avg",
    "np_load_long",
    "np_load_medium",
    "np_load_short",
    "slots",
    "swap_free",
    "swap_rate",
    "swap_rsvd",
    "swap_used",
    "virtual_free",
    "virtual_used",
    "m_topology_inuse",
];
/// Texts of a qsub that reached no qmaster.
const NO_CONNECTION: [&str; 2] = ["(Connection refused)", "can't resolve host name"];
/// Texts of a qsub that submitted no job.
const REFUSALS: [&str; 5] = [
    "Unable to run job",
    "Unable to read script file",
    "Unable to initialize environment",
    "Unknown option",
    "qsub: ",
];
/// Texts of a qsub whose request may have reached the qmaster.
const LOST: [&str; 4] = [
    "commlib error",
    "unable to send message",
    "unable to contact qmaster",
    "timeout",
];
const REMEDY: &str =
    "a manager of Grid Engine must run `qconf -am USER` for the user of the gateway";

/// Grid Engine.
#[derive(Debug, Clone, Default)]
pub struct GridEngine {
    settings: CommandSettings,
}

impl GridEngine {
    /// Returns the Grid Engine that the commands of these settings reach.
    pub fn new(mut settings: CommandSettings) -> Self {
        // Start times are local times of the command.
        settings.env.push(("TZ".into(), "UTC0".into()));
        GridEngine { settings }
    }

    /// Runs a command that must succeed. `qstat` prints texts of users. The lists of `qconf` are written
    /// back, so that nothing in them may be replaced.
    fn run(&self, name: &str, args: &[&str]) -> BatchResult<CommandOutput> {
        let output = match name {
            "qconf" => self.settings.run(name, args)?,
            _ => self.settings.run_lossy(name, args)?,
        };
        match output.status.success() {
            true => Ok(output),
            false => Err(failure(&output)),
        }
    }

    /// Returns the jobs that a user or a start time holds. Operators and dependencies hold others.
    fn held(&self) -> BatchResult<BTreeSet<JobId>> {
        let held = |why| xml::job_ids(&self.run("qstat", &["-u", "*", "-s", why, "-xml"])?);
        let mut held_by_user = held("hu")?;
        held_by_user.append(&mut held("ha")?);
        Ok(held_by_user)
    }

    fn details(&self, job: &JobId) -> BatchResult<JobDetails> {
        let output = self.run("qstat", &["-j", job.as_str(), "-xml"])?;
        let found = xml::details(&output)?.into_iter();
        let mut found = found.filter(|details| details.job == job.as_str());
        found.next().ok_or_else(|| unknown_job(job))
    }

    /// Returns the hosts of open queues for a job that makes these wishes.
    fn open_hosts(&self, wish: &[String]) -> BatchResult<Vec<String>> {
        let mut args = vec!["-f", "-xml"];
        args.extend(wish.iter().map(String::as_str));
        let output = self.run("qstat", &args)?;
        Ok(xml::open_hosts(&output)?.into_iter().collect())
    }

    fn complexes(&self) -> BatchResult<Vec<Complex>> {
        let output = self.run("qconf", &["-sc"])?;
        output
            .stdout
            .lines()
            .filter_map(|line| complex(&output, line))
            .collect()
    }

    fn host_values(&self, slot: &DataSlot) -> BatchResult<HostValues> {
        let output = self.run("qhost", &["-F", slot.as_str(), "-xml"])?;
        xml::host_values(&output, slot.as_str())
    }

    /// Adds or removes the value of a slot on hosts.
    fn change(&self, how: &str, value: &str, hosts: &[String]) -> BatchResult<()> {
        for some in hosts.chunks(HOSTS_MAX) {
            let mut args = vec![how, "exechost", "complex_values", value];
            args.extend(some.iter().map(String::as_str));
            self.run("qconf", &args)?;
        }
        Ok(())
    }

    /// Makes exactly these hosts offer the slot. Names that are no execution hosts are skipped.
    fn set_hosts(&self, slot: &DataSlot, ready: &BTreeSet<String>) -> BatchResult<()> {
        let (added, removed) = changes(self.host_values(slot)?, ready);
        if added.is_empty() && removed.is_empty() {
            return Ok(());
        }
        self.change("-aattr", &format!("{slot}=TRUE"), &added)?;
        self.change("-dattr", slot.as_str(), &removed)?;
        // qconf exits with 0 for some values that it does not change.
        let (added, removed) = changes(self.host_values(slot)?, ready);
        match added.first().or(removed.first()) {
            None => Ok(()),
            Some(host) => Err(BatchError::Refused {
                command: format!("qconf -aattr exechost complex_values {slot}=TRUE"),
                text: format!("the value of host {host} did not change"),
            }),
        }
    }

    /// Writes the list of complexes with one more line, and has qconf read it.
    fn add_complex(&self, slot: &DataSlot) -> BatchResult<()> {
        let list = self.run("qconf", &["-sc"])?;
        if !is_whole_list(&list.stdout) {
            let line = list.stdout.lines().last().unwrap_or_default().to_owned();
            let command = list.command;
            return Err(BatchError::Output { command, line });
        }
        let line = format!("{slot} {slot} BOOL == YES NO 0 0\n");
        let file =
            own_file(&format!("{}{line}", list.stdout)).map_err(|cause| BatchError::Program {
                command: "qconf -Mc FILE".to_owned(),
                cause,
            })?;
        let path = file.path().to_string_lossy().into_owned();
        self.run("qconf", &["-Mc", &path]).map(drop)
    }
}

impl BatchSystem for GridEngine {
    fn kind(&self) -> BatchKind {
        BatchKind::GridEngine
    }

    fn submission(&self, request: &HeldRequest<'_>) -> BatchResult<Submission> {
        arguments::submission(request)
    }

    fn submitted(&self, output: &str) -> BatchResult<JobId> {
        // `qsub -terse` prints 12, or 12.1-8:1 for an array. Scripts of a site may print before it.
        let line = output.lines().map(str::trim).rfind(|line| !line.is_empty());
        let number = line.and_then(|line| line.split('.').next());
        let digits = number.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        digits
            .and_then(JobId::new)
            .ok_or_else(|| BatchError::Output {
                command: "qsub -terse".to_owned(),
                line: line.unwrap_or_default().to_owned(),
            })
    }

    fn states_refusal(&self, stderr: &str) -> bool {
        let says = |parts: &[&str]| parts.iter().any(|part| stderr.contains(part));
        says(&NO_CONNECTION) || says(&REFUSALS) && !says(&LOST)
    }

    fn marked(&self) -> BatchResult<Vec<MarkedJob>> {
        let held = self.held()?;
        let output = self.run("qstat", &["-j", "*", "-xml"])?;
        let marked = |details: JobDetails| {
            let job = JobId::new(&details.job)?;
            Some(MarkedJob {
                mark: JobMark::new(details.context.get(MARK)?)?,
                is_held: held.contains(&job),
                owner: details.owner,
                job,
            })
        };
        Ok(xml::details(&output)?
            .into_iter()
            .filter_map(marked)
            .collect())
    }

    fn alive(&self) -> BatchResult<HashMap<JobId, LiveJob>> {
        let held = self.held()?;
        // Options of the command line replace those of a file sge_qstat(5), but for -l, -q, -pe and -U.
        let args = ["-u", "*", "-s", "prs", "-g", "t", "-xml"];
        let output = self.run("qstat", &args)?;
        xml::live_jobs(&output, &held)
    }

    fn find(&self, job: &JobId) -> BatchResult<Option<FoundJob>> {
        let output = match self.run("qstat", &["-j", job.as_str(), "-xml"]) {
            Err(error) if error.is_no_job() => return Ok(None),
            answer => answer?,
        };
        let mut found = xml::details(&output)?.into_iter();
        match found.find(|details| details.job == job.as_str()) {
            // qstat -j shows no job that ended.
            Some(details) => Ok(Some(FoundJob {
                mark: details
                    .context
                    .get(MARK)
                    .and_then(|text| JobMark::new(text)),
                owner: details.owner,
                is_alive: true,
            })),
            None if xml::is_unknown(&output)? => Ok(None),
            None => Err(BatchError::Output {
                command: output.command,
                line: format!("no record of job {job}"),
            }),
        }
    }

    fn candidates(&self, jobs: &[JobId]) -> BatchResult<JobCandidates> {
        let details = match jobs {
            [job] => match self.details(job) {
                Err(error) if error.is_no_job() => Vec::new(),
                found => vec![found?],
            },
            _ => xml::details(&self.run("qstat", &["-j", "*", "-xml"])?)?,
        };
        let of_job: HashMap<&str, &JobDetails> =
            details.iter().map(|job| (job.job.as_str(), job)).collect();
        let complexes = self.complexes()?;
        let mut found = JobCandidates::new();
        // Many jobs have the same wishes: one command asks for all of these.
        let mut of_wish: BTreeMap<Vec<String>, Vec<&JobId>> = BTreeMap::new();
        for job in jobs {
            match of_job.get(job.as_str()) {
                Some(details) => {
                    let wish = place_wish(details, &complexes);
                    of_wish.entry(wish).or_default().push(job);
                }
                None => {
                    found.insert(job.clone(), Err(Arc::new(unknown_job(job))));
                }
            }
        }
        for (wish, jobs) in of_wish {
            let hosts = match self.open_hosts(&wish) {
                Err(error) if error.may_pass() => return Err(error),
                answer => answer.map_err(Arc::new),
            };
            found.extend(jobs.into_iter().map(|job| (job.clone(), hosts.clone())));
        }
        Ok(found)
    }

    fn declare(&self, slot: &DataSlot, _nodes: &[String]) -> BatchResult<()> {
        let is_known = || -> BatchResult<bool> {
            Ok(self
                .complexes()?
                .iter()
                .any(|complex| complex.has_name(slot.as_str())))
        };
        if is_known()? {
            return Ok(());
        }
        self.add_complex(slot)?;
        match is_known()? {
            true => Ok(()),
            false => Err(BatchError::Refused {
                command: "qconf -Mc FILE".to_owned(),
                text: format!("the complex {slot} was not added"),
            }),
        }
    }

    fn require(&self, job: &JobId, readiness: &Readiness<'_>) -> BatchResult<()> {
        let slot = needed(readiness)?;
        let details = self.details(job)?;
        if details.hard.iter().any(|(name, _)| name == slot.as_str()) {
            return Ok(());
        }
        // qalter -l replaces both lists.
        let list = |requests: &[(String, String)]| -> Vec<String> {
            requests
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect()
        };
        let mut hard = list(&details.hard);
        hard.push(format!("{slot}=TRUE"));
        let (hard, soft) = (hard.join(","), list(&details.soft).join(","));
        let mut args = vec!["-hard", "-l", &hard];
        if !soft.is_empty() {
            args.extend(["-soft", "-l", &soft]);
        }
        args.push(job.as_str());
        self.run("qalter", &args).map(drop)
    }

    fn tell_ready(&self, readiness: &Readiness<'_>, _jobs: &[JobId]) -> BatchResult<()> {
        self.set_hosts(needed(readiness)?, readiness.ready)
    }

    fn release(&self, job: &JobId) -> BatchResult<()> {
        let details = self.details(job)?;
        let mut args = Vec::new();
        if details
            .context
            .get(HOLD_OF_USER)
            .is_none_or(|who| who != KEPT)
        {
            // U ends the hold of a user, and leaves that of an operator (qalter(1)).
            args.extend(["-h", "U"]);
        }
        if details.has_start_time && details.context.contains_key(MARK) {
            args.extend(["-a", START_NONE]);
        }
        if args.is_empty() {
            return Ok(());
        }
        args.push(job.as_str());
        self.run("qalter", &args).map(drop)
    }

    fn undeclare(&self, slot: &DataSlot) -> BatchResult<()> {
        self.set_hosts(slot, &BTreeSet::new())
    }
}

fn unknown_job(job: &JobId) -> BatchError {
    BatchError::NoJob {
        command: format!("qstat -j {job}"),
        text: format!("qstat does not know job {job}"),
    }
}

/// Returns the arguments by which qstat(1) shows the queues that a job wishes. Amounts that change with
/// the load of a host are left out.
fn place_wish(job: &JobDetails, complexes: &[Complex]) -> Vec<String> {
    let fixed = |name: &str| {
        let changes = |complex: &Complex| complex.is_consumable && complex.has_name(name);
        !name.starts_with(DataSlot::PREFIX)
            && !LOADS.contains(&name)
            && !complexes.iter().any(changes)
    };
    let requests = job.hard.iter().filter(|(name, _)| fixed(name));
    let requests = requests.map(|(name, value)| format!("{name}={value}"));
    let environment = job.environment.clone().unwrap_or_default();
    let mut wish = vec!["-U".to_owned(), job.owner.clone()];
    for (option, value) in [
        ("-l", requests.collect::<Vec<_>>().join(",")),
        ("-q", job.queues.join(",")),
        ("-pe", environment),
    ] {
        if !value.is_empty() {
            wish.extend([option.to_owned(), value]);
        }
    }
    wish
}

/// Returns whether a list of complexes is complete: comments stand before and behind it (complex(5)).
/// `qconf -Mc` removes each complex that its file lacks.
fn is_whole_list(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let is_comment = |line: Option<&str>| line.is_some_and(|line| line.starts_with('#'));
    is_comment(lines.next()) && lines.clone().count() > 1 && is_comment(lines.next_back())
}

/// A row of `qconf -sc`.
#[derive(Debug)]
struct Complex {
    name: String,
    shortcut: String,
    is_consumable: bool,
}

impl Complex {
    fn has_name(&self, name: &str) -> bool {
        self.name == name || self.shortcut == name
    }
}

/// Reads a row: name, shortcut, type, relation, requestable, consumable, default, urgency
/// (complex(5)).
fn complex(output: &CommandOutput, line: &str) -> Option<BatchResult<Complex>> {
    if line.starts_with('#') || line.trim().is_empty() {
        return None;
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, shortcut, _, _, _, consumable, _, _] = words.as_slice() else {
        return Some(Err(BatchError::Output {
            command: output.command.clone(),
            line: line.to_owned(),
        }));
    };
    Some(Ok(Complex {
        name: (*name).to_owned(),
        shortcut: (*shortcut).to_owned(),
        is_consumable: !consumable.eq_ignore_ascii_case("NO"),
    }))
}

fn needed<'a>(readiness: &Readiness<'a>) -> BatchResult<&'a DataSlot> {
    readiness.slot.ok_or_else(|| BatchError::Rights {
        command: "qconf".to_owned(),
        text: "jobs of Grid Engine can wait for nodes only by a complex".to_owned(),
        remedy: REMEDY,
    })
}

/// Returns the hosts that must get the value, and those that must lose it.
fn changes(values: HostValues, ready: &BTreeSet<String>) -> (Vec<String>, Vec<String>) {
    let changed = values
        .into_iter()
        .filter(|(host, has)| ready.contains(host) != *has);
    let (removed, added): (Vec<_>, Vec<_>) = changed.partition(|(_, has)| *has);
    let names = |hosts: Vec<(String, bool)>| hosts.into_iter().map(|(host, _)| host).collect();
    (names(added), names(removed))
}

fn own_file(text: &str) -> std::io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("driftless-").tempfile()?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

/// Returns the error of a command that failed, by the texts of Grid Engine 8.1.9.
fn failure(output: &CommandOutput) -> BatchError {
    let command = output.command.clone();
    // qconf prints its errors to the standard output, too.
    let text = match format!("{}{}", output.stderr, output.stdout) {
        text if text.trim().is_empty() => output.status.to_string(),
        text => text,
    };
    let says = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    if says(&[
        "commlib error",
        "unable to send message to qmaster",
        "unable to contact qmaster",
    ]) {
        return BatchError::Unavailable { command, text };
    }
    if says(&[
        "must be manager",
        "must be operator",
        "is not an admin host",
        "no admin host",
    ]) {
        return BatchError::Rights {
            command,
            text,
            remedy: REMEDY,
        };
    }
    let is_about_job = says(&["job \"", "jobs do not exist"]);
    if is_about_job && says(&["does not exist", "do not exist"]) {
        return BatchError::NoJob { command, text };
    }
    BatchError::Refused { command, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_answers_are_no_refusals() {
        let system = GridEngine::new(CommandSettings::default());
        let to = "unable to send message to qmaster using port 6444 on host \"q\"";
        for (text, is_refusal) in [
            (
                "Unable to run job: denied: queue \"none\" does not exist.\nExiting.\n".to_owned(),
                true,
            ),
            ("qsub: Unknown option --none\n".to_owned(), true),
            (
                format!(
                    "error: commlib error: got select error (Connection refused)\nUnable to run job: {to}: got send error.\n"
                ),
                true,
            ),
            (format!("Unable to run job: {to}: got read error.\n"), false),
            (
                "error: commlib error: got read error (closing)\n".to_owned(),
                false,
            ),
            (String::new(), false),
            ("wrapper: cannot write the log\n".to_owned(), false),
        ] {
            assert_eq!(system.states_refusal(&text), is_refusal, "{text}");
        }
    }
}
