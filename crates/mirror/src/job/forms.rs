//! The forms of values that jobs alone have.

use crate::snapshots::KEPT;
use driftless_model::{DeleteLimit, RelPath, Rule, escape, units};
use driftless_settings::forms::{check_name, number, plain_name, text_of, time};
use std::time::Duration;
use toml::de::DeValue;

/// Whole seconds of a day at most: a file whose time cannot be trusted gets one that is further
/// back than that, and every file system has to keep it.
pub(super) fn window(value: &DeValue) -> Result<u32, String> {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let time = time(value)?;
    if time > DAY || time.subsec_nanos() > 0 {
        return Err(
            "whole seconds are expected, of a day at most; times = false takes no heed of times"
                .into(),
        );
    }
    u32::try_from(time.as_secs()).map_err(|error| error.to_string())
}

/// `N` or `"N"` entries, or `"P%"` of them.
pub(super) fn delete_limit(value: &DeValue) -> Result<DeleteLimit, String> {
    if value.is_integer() {
        return number(value, (0, u64::MAX)).map(DeleteLimit::Count);
    }
    let text = text_of(value, "a number of entries, or a share such as \"10%\",")?;
    units::delete_limit(text).map_err(|why| format!("\"{}\": {why}", escape(text.as_bytes())))
}

/// A rule as a line of a filter file.
pub(super) fn rule(value: &DeValue) -> Result<Rule, String> {
    let text = text_of(value, "a rule, such as \"- *.tmp\",")?;
    match Rule::from_line(text) {
        Ok(Some(rule)) => Ok(rule),
        Ok(None) => {
            Err("a rule is \"+ PATTERN\" or \"- PATTERN\"; comments stand behind the quotes".into())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// A path below the roots of the trees.
pub(super) fn path_below(value: &DeValue) -> Result<RelPath, String> {
    let text = text_of(value, "a path below the source, in quotes,")?;
    RelPath::parse(text.as_bytes()).map_err(|error| error.to_string())
}

/// The name of a group of users, as group(5) has it.
pub(super) fn group_name(value: &DeValue) -> Result<String, String> {
    let name = text_of(value, "the name of a group, such as \"operators\",")?;
    match name.starts_with('-') || name.contains([':', '\n']) {
        true => Err(format!(
            "\"{}\" is no name of a group",
            escape(name.as_bytes())
        )),
        false => Ok(name.to_owned()),
    }
}

/// The name of a job. What ends so is what a failback of another one keeps.
pub(super) fn job_name(value: &DeValue) -> Result<String, String> {
    let name = plain_name(value)?;
    check_job_name(&name)?;
    Ok(name)
}

/// Whether a text can be the name of a job.
pub(super) fn check_job_name(name: &str) -> Result<(), String> {
    check_name(name)?;
    match name.ends_with(KEPT) {
        true => Err(format!(
            "\"{name}\" is no name of a job: what ends in {KEPT} is what failover and failback keep of another one"
        )),
        false => Ok(()),
    }
}
