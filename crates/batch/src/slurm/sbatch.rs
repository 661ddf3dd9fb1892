//! Command lines of `sbatch`: options, the job script, and what driftless adds.
//!
//! `sbatch` takes options from its arguments, its environment and `#SBATCH` lines of the script, in
//! this order of precedence. An option that driftless adds would hide the user's own, so the two
//! are joined, wherever the user's stands. All other words pass through unchanged.

use super::script::{Script, directives};
use crate::{BatchError, HeldRequest, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Begin of the word in a comment that carries the mark of a job.
pub(super) const MARK_WORD: &str = "driftless:";

/// Short options with a value (sbatch(1)).
const SHORT_WITH_VALUE: &[u8] = b"aAbBcCdDeFGiJLmMnNopqStwx";
/// Short options whose value, if any, stands in the same word.
const SHORT_WITH_REST: &[u8] = b"k";

/// Long options with a value (sbatch(1) of 22.05 to 24.11).
const LONG_WITH_VALUE: [&str; 89] = [
    "account",
    "acctg-freq",
    "array",
    "batch",
    "bb",
    "bbf",
    "begin",
    "chdir",
    "cluster-constraint",
    "clusters",
    "comment",
    "constraint",
    "container",
    "container-id",
    "core-spec",
    "cores-per-socket",
    "cpu-freq",
    "cpus-per-gpu",
    "cpus-per-task",
    "deadline",
    "delay-boot",
    "dependency",
    "distribution",
    "error",
    "exclude",
    "export",
    "export-file",
    "extra",
    "extra-node-info",
    "gid",
    "gpu-bind",
    "gpu-freq",
    "gpus",
    "gpus-per-node",
    "gpus-per-socket",
    "gpus-per-task",
    "gres",
    "gres-flags",
    "hint",
    "input",
    "job-name",
    "kill-on-invalid-dep",
    "licenses",
    "mail-type",
    "mail-user",
    "mcs-label",
    "mem",
    "mem-bind",
    "mem-per-cpu",
    "mem-per-gpu",
    "mincpus",
    "network",
    "nodefile",
    "nodelist",
    "nodes",
    "ntasks",
    "ntasks-per-core",
    "ntasks-per-gpu",
    "ntasks-per-node",
    "ntasks-per-socket",
    "ntasks-per-tres",
    "oom-kill-step",
    "open-mode",
    "output",
    "partition",
    "power",
    "prefer",
    "priority",
    "profile",
    "qos",
    "reservation",
    "segment",
    "signal",
    "sockets-per-node",
    "switches",
    "thread-spec",
    "threads-per-core",
    "time",
    "time-min",
    "tmp",
    "tres-bind",
    "tres-per-job",
    "tres-per-node",
    "tres-per-socket",
    "tres-per-task",
    "uid",
    "wait-all-nodes",
    "wckey",
    "wrap",
];
/// Long options without a value, or with one behind `=` only.
const LONG_ALONE: [&str; 26] = [
    "consolidate-segments",
    "contiguous",
    "exclusive",
    "get-user-env",
    "help",
    "hold",
    "ignore-pbs",
    "nice",
    "no-kill",
    "no-requeue",
    "overcommit",
    "oversubscribe",
    "parsable",
    "propagate",
    "quiet",
    "reboot",
    "requeue",
    "resv-ports",
    "spread-job",
    "spread-segments",
    "stepmgr",
    "test-only",
    "usage",
    "use-min-nodes",
    "verbose",
    "wait",
];

/// Options that cannot be used with a job that waits for its data.
const REFUSED: [(&str, &str); 5] = [
    (
        "wait",
        "it waits for the end of the job, which waits for its data",
    ),
    ("test-only", "it submits no job"),
    ("clusters", "the job may start in another cluster"),
    ("help", "it submits no job"),
    ("usage", "it submits no job"),
];
/// Variables of the environment that stand for refused options.
const REFUSED_VARIABLES: [(&str, &str); 3] = [
    ("SBATCH_WAIT", "wait"),
    ("SBATCH_CLUSTERS", "clusters"),
    ("SLURM_CLUSTERS", "clusters"),
];

/// Option of `sbatch`, of which only few matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SbatchOption {
    /// Long name. Empty for short options that do not matter here.
    pub name: String,
    pub value: Option<OsString>,
    /// Words of the command line.
    words: Vec<OsString>,
}

/// A command line.
#[derive(Debug)]
pub(super) struct SbatchLine {
    pub options: Vec<SbatchOption>,
    /// The script and its arguments.
    pub rest: Vec<OsString>,
}

impl SbatchLine {
    /// Divides the words behind `sbatch`. `is_script` tells whether a word behind an option of an
    /// unknown plugin is the script; else it is the option's value.
    pub fn parse(words: &[OsString], is_script: &dyn Fn(&OsStr) -> bool) -> SbatchLine {
        let mut line = SbatchLine {
            options: Vec::new(),
            rest: Vec::new(),
        };
        let mut left = words.iter();
        while let Some(word) = left.next() {
            let next = left.as_slice().first();
            if word == "--" || !word.as_bytes().starts_with(b"-") || word == "-" {
                // The script follows, with its own arguments.
                line.rest.push(word.clone());
                line.rest.extend(left.cloned());
                break;
            }
            let (mut option, takes_next) = match word.as_bytes().strip_prefix(b"--") {
                Some(text) => long_option(text, next, is_script),
                None => short_options(&word.as_bytes()[1..]),
            };
            option.words.push(word.clone());
            if takes_next && let Some(value) = left.next() {
                option.words.push(value.clone());
                option.value = Some(value.clone());
            }
            line.options.push(option);
        }
        line
    }

    /// Returns the last value of an option, which is the one that counts.
    pub fn value(&self, name: &str) -> Option<&OsStr> {
        let mut found = self.options.iter().rev();
        found.find(|one| one.name == name)?.value.as_deref()
    }

    fn script(&self) -> Option<&OsStr> {
        let skipped = usize::from(self.rest.first().is_some_and(|word| word == "--"));
        self.rest.get(skipped).map(OsString::as_os_str)
    }
}

/// Returns a long option, and whether the next word is its value.
fn long_option(
    text: &[u8],
    next: Option<&OsString>,
    is_script: &dyn Fn(&OsStr) -> bool,
) -> (SbatchOption, bool) {
    let mut parts = text.splitn(2, |byte| *byte == b'=');
    let written = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let value = parts.next().map(|value| OsString::from_vec(value.to_vec()));
    let name = full_name(&written).map_or(written, str::to_owned);
    let takes_next = value.is_none()
        && if LONG_WITH_VALUE.contains(&name.as_str()) {
            true
        } else {
            // An option of a plugin (spank(7)): it may have a value or none.
            let is_known = LONG_ALONE.contains(&name.as_str());
            let is_value = |next: &OsString| !next.as_bytes().starts_with(b"-") && !is_script(next);
            !is_known && next.is_some_and(is_value)
        };
    let option = SbatchOption {
        name,
        value,
        words: Vec::new(),
    };
    (option, takes_next)
}

/// Returns the option that a name or its unique abbreviation stands for (getopt_long(3)).
fn full_name(written: &str) -> Option<&'static str> {
    let all = || LONG_WITH_VALUE.iter().chain(LONG_ALONE.iter()).copied();
    let exact = all().find(|name| *name == written);
    exact.or_else(|| {
        let mut found = all().filter(|name| name.starts_with(written));
        let first = found.next()?;
        found.next().is_none().then_some(first)
    })
}

/// Returns the option of a word of short options, and whether the next word is its value.
fn short_options(letters: &[u8]) -> (SbatchOption, bool) {
    let mut name = "";
    let mut takes_next = false;
    for (at, letter) in letters.iter().enumerate() {
        match letter {
            b'W' => name = "wait",
            b'M' => name = "clusters",
            b'h' => name = "help",
            _ => {}
        }
        if SHORT_WITH_VALUE.contains(letter) {
            takes_next = at + 1 == letters.len();
            break;
        }
        if SHORT_WITH_REST.contains(letter) {
            break;
        }
    }
    let option = SbatchOption {
        name: name.to_owned(),
        value: None,
        words: Vec::new(),
    };
    (option, takes_next)
}

/// Place where the user's settings come from.
pub(super) struct UserSettings<'a> {
    /// Returns a variable of the user's environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Returns the beginning of a script, or of standard input without a name.
    pub script: &'a dyn Fn(Script<'_>) -> Option<Vec<u8>>,
}

/// Returns the arguments of `sbatch` that submit a user's job held.
///
/// # Errors
/// [`BatchError::Arguments`] for an option that no held job can have.
pub(super) fn held_arguments(
    request: &HeldRequest<'_>,
    user: &UserSettings<'_>,
) -> Result<Vec<OsString>> {
    let words = request.command.get(1..).unwrap_or_default();
    let is_script = |word: &OsStr| (user.script)(Script::File(word)).is_some();
    let line = SbatchLine::parse(words, &is_script);
    let script = match line.script() {
        _ if line.options.iter().any(|option| option.name == "wrap") => None,
        Some(name) => (user.script)(Script::File(name)),
        None => (user.script)(Script::StandardInput),
    };
    let in_script = directives(&script.unwrap_or_default())?;
    check(&line, &in_script, user)?;
    let mark = format!("{MARK_WORD}{}", request.mark);
    let names: Vec<&str> = request
        .variables
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let comment = |old: Option<&OsStr>| joined("--comment=", old, " ", &mark);
    let export = |old: &OsStr| exported(old, &names);

    let mut args: Vec<OsString> = vec!["--hold".into(), "--parsable".into()];
    if line.value("comment").is_none() {
        args.push(comment(in_script.value("comment")));
    }
    if line.value("export").is_none() {
        let variable = (user.variable)("SBATCH_EXPORT");
        args.extend(
            variable
                .as_deref()
                .or(in_script.value("export"))
                .map(export),
        );
    }
    for option in &line.options {
        match (option.name.as_str(), option.value.as_deref()) {
            ("comment", Some(old)) => args.push(comment(Some(old))),
            ("export", Some(old)) => args.push(export(old)),
            _ => args.extend(option.words.iter().cloned()),
        }
    }
    args.extend(line.rest);
    Ok(args)
}

fn check(line: &SbatchLine, in_script: &SbatchLine, user: &UserSettings<'_>) -> Result<()> {
    let refuse = |shown: &str, name: &str| {
        let reason = REFUSED.iter().find(|(refused, _)| *refused == name);
        let text = |(_, reason): &(&str, &str)| {
            BatchError::Arguments(format!("sbatch: {shown}: {reason}; remove it"))
        };
        reason.map_or(Ok(()), |reason| Err(text(reason)))
    };
    for option in line.options.iter().chain(&in_script.options) {
        refuse(&format!("--{}", option.name), &option.name)?;
    }
    for (variable, name) in REFUSED_VARIABLES {
        if (user.variable)(variable).is_some() {
            refuse(variable, name)?;
        }
    }
    let first_is = |line: &SbatchLine, names: &[&str]| {
        let first = line.rest.first();
        first.is_some_and(|word| names.iter().any(|name| word == name))
    };
    if first_is(line, &[":"]) || first_is(in_script, &["hetjob", "packjob"]) {
        return Err(BatchError::Arguments(
            "sbatch: heterogeneous jobs cannot wait for data; submit their parts as jobs".into(),
        ));
    }
    Ok(())
}

/// Returns an option with the user's value, a separator and an addition.
fn joined(option: &str, old: Option<&OsStr>, separator: &str, addition: &str) -> OsString {
    let mut word = OsString::from(option);
    if let Some(old) = old.filter(|old| !old.is_empty()) {
        word.push(old);
        word.push(separator);
    }
    word.push(addition);
    word
}

/// Returns `--export` with variables beside the user's list.
///
/// The list gets names only: `sbatch` takes the values from its environment, so a comma in a value
/// does no harm. `ALL` has them already. `NONE` and `NIL` allow no names beside them, and a list of
/// names means the same.
fn exported(old: &OsStr, names: &[&str]) -> OsString {
    let is_none = ["NONE", "NIL"]
        .iter()
        .any(|word| old.eq_ignore_ascii_case(word));
    let is_all = old.eq_ignore_ascii_case("ALL") || names.is_empty();
    if is_all {
        return joined("--export=", Some(old), "", "");
    }
    let old = (!is_none).then_some(old);
    joined("--export=", old, ",", &names.join(","))
}

#[cfg(test)]
#[path = "sbatch_tests.rs"]
mod tests;
