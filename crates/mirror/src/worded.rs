//! What engine and guard say, in the words of a job: where they advise an option of `sync`, a mirror
//! has a key.

use driftless_model::{RelPath, escape};

/// What is said, and what is said of a job.
const WORDS: [(&str, &str); 14] = [
    (
        "(--delete-unlike deletes nevertheless)",
        "(delete_unlike = true in the job deletes nevertheless)",
    ),
    (": no such replica", ": the replica does not exist"),
    (" (--require); ", " (required in the job); "),
    (" (--max-delete); ", " (max_delete in the job); "),
    (
        ", and --max-delete does not allow ",
        ", and max_delete in the job does not allow ",
    ),
    (
        " goes only with --delete",
        " goes only with delete = true in the job",
    ),
    (": leave --delete out", ": leave delete out of the job"),
    (
        " gone for good with --forget-mounts",
        " gone for good with driftless sync --forget-mounts SOURCE REPLICA while the mirror is paused",
    ),
    (
        "(--forget-mounts goes on without them)",
        "(driftless sync --forget-mounts SOURCE REPLICA begins without them; then start the mirror again)",
    ),
    (
        " or --one-file-system",
        " or one_file_system = true in the job",
    ),
    (
        "name its place with --agent-path",
        "name its place with agent_path in [reach]",
    ),
    (
        "copied there with --deploy",
        "copied there with deploy in [reach]",
    ),
    (" or use --deploy", " or use deploy in [reach]"),
    ("with --deploy=FILE", "with deploy in [reach]"),
];

/// Returns a path below the roots as it is shown: the root is a dot.
#[must_use]
pub fn shown(path: &RelPath) -> String {
    match path.is_root() {
        true => ".".into(),
        false => escape(path.as_bytes()),
    }
}

/// Returns a number of things, with their word in the singular or the plural.
#[must_use]
pub fn counted(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

/// The advice to leave a tree out, up to the rule, which ends with a quote.
const EXCLUDE: &str = "; leave it out with --exclude '";

/// The advice to leave it out that names no rule.
const ONE_FILE_SYSTEM: &str = "; leave it out with --one-file-system";

/// A sentence of the engine, in the words of a job.
#[must_use]
pub fn for_job(text: &str) -> String {
    let text = text.replace(
        ONE_FILE_SYSTEM,
        "; leave it out with one_file_system = true in the job",
    );
    let text = with_filters(&text).unwrap_or(text);
    WORDS
        .iter()
        .fold(text, |text, (said, worded)| text.replace(said, worded))
}

/// A rule of `--exclude` as one of `filters`; `None` if there is none.
fn with_filters(text: &str) -> Option<String> {
    let (before, rest) = text.split_once(EXCLUDE)?;
    let (rule, after) = rest.split_once('\'')?;
    let rule = format!("- {rule}");
    Some(format!(
        "{before}; leave it out with filters = [{rule:?}] in the job{after}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_within_the_other_is_left_out_by_keys() {
        for (said, worded) in [
            (
                "inside; leave it out with --exclude '/b/' or --one-file-system",
                "inside; leave it out with filters = [\"- /b/\"] in the job or one_file_system = true in the job",
            ),
            (
                "inside; leave it out with --one-file-system",
                "inside; leave it out with one_file_system = true in the job",
            ),
            ("no such host", "no such host"),
            (
                "\"r\": no such replica",
                "\"r\": the replica does not exist",
            ),
        ] {
            assert_eq!(for_job(said), worded);
        }
    }
}
