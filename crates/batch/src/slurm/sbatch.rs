//! Command lines of `sbatch`: options, the job script, and what driftless adds.
//!
//! `sbatch` takes options from its arguments, its environment and `#SBATCH` lines of the script, in
//! this order of precedence. An option that driftless adds would hide the user's own, so the two
//! are joined, wherever the user's stands. All other words pass through unchanged, but for `--quiet`:
//! `sbatch` would print no number.

use super::options::SbatchLine;
use super::script::{directives, pbs_variables};
use crate::script::read_input;
use crate::{BatchError, BatchResult, HeldRequest};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Begin of the word in a comment that carries the mark of a job.
pub(super) const MARK_WORD: &str = "driftless:";

/// Options that cannot be used with a job that waits for its data.
const REFUSED: [(&str, &str); 10] = [
    ("wait", "a held job cannot be waited for"),
    ("test-only", "it submits no job"),
    ("clusters", "the job may start in another cluster"),
    // Another name of --clusters (LONG_OPT_CLUSTER in slurm_opt.h).
    ("cluster", "the job may start in another cluster"),
    ("cluster-constraint", "the job may start in another cluster"),
    // Slurm tries these features before the constraint, which would demand the data.
    ("prefer", "tasks may start on nodes without the data"),
    ("export-file", "tasks would not get SPOOL_DIRECTORY"),
    ("help", "it submits no job"),
    ("usage", "it submits no job"),
    ("version", "it submits no job"),
];
/// Variables of the environment that stand for refused options.
const REFUSED_VARIABLES: [(&str, &str); 4] = [
    ("SBATCH_WAIT", "wait"),
    ("SBATCH_CLUSTERS", "clusters"),
    ("SLURM_CLUSTERS", "clusters"),
    ("SBATCH_CLUSTER_CONSTRAINT", "cluster-constraint"),
];

/// Bytes of the comment of a job (`MAX_COMMENT_LEN` in slurmctld/slurmctld.h).
const COMMENT_BYTES_MAX: usize = 1024;

/// Place where the user's settings come from.
pub(super) struct UserSettings<'a> {
    /// Returns a variable of the user's environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Returns the beginning of a script, for a job in a working directory.
    pub script: &'a dyn Fn(&OsStr, Option<&Path>) -> Option<Vec<u8>>,
}

/// Arguments of `sbatch`, and the script for its standard input.
pub(super) type HeldArguments = (Vec<OsString>, Option<Vec<u8>>);

/// Returns the arguments of `sbatch` that submit a user's job held.
///
/// # Errors
/// [`BatchError::Arguments`] for an option that no held job can have.
pub(super) fn held_arguments(
    request: &HeldRequest<'_>,
    user: &UserSettings<'_>,
) -> BatchResult<HeldArguments> {
    let words = request.command.get(1..).unwrap_or_default();
    let is_script = |word: &OsStr| (user.script)(word, None).is_some();
    let line = SbatchLine::parse(words, &is_script);
    check(&line, &[":"], user)?;
    let has_wrap = line.options.iter().any(|option| option.name == "wrap");
    let input = match has_wrap || line.script().is_some() {
        true => None,
        false => Some(read_input(request.input, "sbatch")?),
    };
    let folder = line.value("chdir").map(Path::new);
    let file = line.script().filter(|_| !has_wrap);
    let file = file.and_then(|name| (user.script)(name, folder));
    let script = input.as_deref().or(file.as_deref()).unwrap_or_default();
    let in_script = directives(script)?;
    check(&in_script, &["hetjob", "packjob"], user)?;
    let scripted = scripted_export(&in_script, script, &line, user)?;
    let args = joined_arguments(request, &line, (&in_script, scripted), user)?;
    Ok((args, input))
}

/// Returns the arguments with the mark and the variables of driftless in the options of the user.
fn joined_arguments(
    request: &HeldRequest<'_>,
    line: &SbatchLine,
    (in_script, scripted): (&SbatchLine, Option<OsString>),
    user: &UserSettings<'_>,
) -> BatchResult<Vec<OsString>> {
    let mark = format!("{MARK_WORD}{}", request.mark);
    let names = request.variables.iter().map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.collect();
    let own_comment = line.value("comment").or(in_script.value("comment"));
    let comment = commented(own_comment, &mark)?;
    let export = |old: &OsStr| exported(old, &names);

    let mut args: Vec<OsString> = vec!["--hold".into(), "--parsable".into()];
    let has_comment = line.value("comment").is_some();
    args.extend((!has_comment).then(|| comment.clone()));
    if line.value("export").is_none() {
        let variable = (user.variable)("SBATCH_EXPORT");
        args.extend(variable.or(scripted).as_deref().map(export));
    }
    for option in &line.options {
        match (option.name.as_str(), option.value.as_deref()) {
            ("comment", Some(_)) => args.push(comment.clone()),
            ("export", Some(old)) => args.push(export(old)),
            _ => args.extend(option.spoken_words()),
        }
    }
    args.extend(line.rest.iter().cloned());
    Ok(args)
}

/// Returns the list of variables that a script exports. `sbatch` adds those of the directives of PBS to
/// its own.
fn scripted_export(
    in_script: &SbatchLine,
    script: &[u8],
    line: &SbatchLine,
    user: &UserSettings<'_>,
) -> BatchResult<Option<OsString>> {
    let ignores = |line: &SbatchLine| line.options.iter().any(|one| one.name == "ignore-pbs");
    let is_ignored = ignores(line) || ignores(in_script);
    let of_pbs = match is_ignored || (user.variable)("SBATCH_IGNORE_PBS").is_some() {
        true => Vec::new(),
        false => pbs_variables(script)?,
    };
    let own = in_script.value("export").map(OsStr::to_owned);
    let lists: Vec<OsString> = own.into_iter().chain(of_pbs).collect();
    Ok((!lists.is_empty()).then(|| lists.join(OsStr::new(","))))
}

/// Returns the option for a comment with a mark behind it.
fn commented(own: Option<&OsStr>, mark: &str) -> BatchResult<OsString> {
    let bytes_max = COMMENT_BYTES_MAX - 1 - mark.len();
    match own.map_or(0, OsStr::len) {
        length if length > bytes_max => Err(BatchError::Arguments(format!(
            "sbatch: --comment: {length} bytes and the mark of the gateway are more than Slurm takes; \
             shorten the comment to {bytes_max} bytes"
        ))),
        _ => Ok(joined("--comment=", own, " ", mark)),
    }
}

/// Refuses options of a command line or script that no held job can have. `separators` are the words
/// that begin another component there.
fn check(line: &SbatchLine, separators: &[&str], user: &UserSettings<'_>) -> BatchResult<()> {
    let refuse = |shown: &str, name: &str| {
        let reason = REFUSED.iter().find(|(refused, _)| *refused == name);
        let text = |(_, reason): &(&str, &str)| {
            BatchError::Arguments(format!("sbatch: {shown}: {reason}; remove it"))
        };
        reason.map_or(Ok(()), |reason| Err(text(reason)))
    };
    for option in &line.options {
        refuse(&format!("--{}", option.name), &option.name)?;
    }
    for (variable, name) in REFUSED_VARIABLES {
        if (user.variable)(variable).is_some() {
            refuse(variable, name)?;
        }
    }
    let first = line.rest.first();
    if first.is_some_and(|word| separators.iter().any(|one| word == one)) {
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
