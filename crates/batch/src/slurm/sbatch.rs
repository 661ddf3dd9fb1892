//! Command lines of `sbatch`: options, the job script, and what driftless adds.
//!
//! `sbatch` takes options from its arguments, its environment and `#SBATCH` lines of the script, in
//! this order of precedence. An option that driftless adds would hide the user's own, so the two
//! are joined, wherever the user's stands. All other words pass through unchanged.

use super::options::SbatchLine;
use super::script::{Script, directives};
use crate::{BatchError, BatchResult, HeldRequest};
use std::ffi::{OsStr, OsString};

/// Begin of the word in a comment that carries the mark of a job.
pub(super) const MARK_WORD: &str = "driftless:";

/// Options that cannot be used with a job that waits for its data.
const REFUSED: [(&str, &str); 6] = [
    ("wait", "a held job cannot be waited for"),
    ("test-only", "it submits no job"),
    ("clusters", "the job may start in another cluster"),
    ("help", "it submits no job"),
    ("usage", "it submits no job"),
    ("version", "it submits no job"),
];
/// Variables of the environment that stand for refused options.
const REFUSED_VARIABLES: [(&str, &str); 3] = [
    ("SBATCH_WAIT", "wait"),
    ("SBATCH_CLUSTERS", "clusters"),
    ("SLURM_CLUSTERS", "clusters"),
];

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
) -> BatchResult<Vec<OsString>> {
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

fn check(line: &SbatchLine, in_script: &SbatchLine, user: &UserSettings<'_>) -> BatchResult<()> {
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
