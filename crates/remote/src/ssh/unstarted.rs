//! Words for a program that did not start on another host, and said so by its exit code and on
//! standard error. The remedy stands behind causes that it can remove only.

use crate::ssh::complaint::SSH_FAILED;

/// Remedy for a host that lacks the program, or has another version.
const REMEDY: &str = "install it, or add --agent-path or --deploy";
/// Begin of a message of driftless itself.
const OWN: &str = "driftless: ";
/// Begin of a message of ssh itself.
const SSH: &str = "ssh: ";

/// Returns the cause for which driftless did not start on another host, and the remedy.
///
/// `code` is the exit code of the command that connects, `stderr` the last line on standard error,
/// and `output` describes the output in the place of a greeting. Both texts can be empty.
pub fn unstarted(code: Option<i32>, stderr: &str, output: &str) -> String {
    let output = match output {
        "" => String::new(),
        words => format!(" ({words})"),
    };
    let words = match (stderr, code) {
        ("", Some(code)) => format!("exit code {code} without a message"),
        ("", None) => "it ended without a message".to_owned(),
        (words, _) => words.to_owned(),
    };
    if code == Some(SSH_FAILED) {
        let words = words.strip_prefix(SSH).unwrap_or(&words);
        return format!("{SSH}{words}{output}");
    }
    match words.strip_prefix(OWN) {
        Some(words) => format!("driftless there: {words}{output}"),
        None => {
            let words = without_line_number(&words);
            format!("cannot start driftless there: {words}{output}; {REMEDY}")
        }
    }
}

/// Returns a message of bash without the number of its line: a command line has one.
fn without_line_number(words: &str) -> String {
    let parts: Vec<&str> = words.split(": ").collect();
    let is_kept = |part: &&&str| {
        let number = part.strip_prefix("line ");
        number.is_none_or(|number| number.parse::<u32>().is_err())
    };
    let kept: Vec<&str> = parts.iter().filter(is_kept).copied().collect();
    kept.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_follows_a_missing_program_only() {
        for (code, stderr, output, expected) in [
            (
                Some(127),
                "bash: line 1: driftless: command not found",
                "",
                "cannot start driftless there: bash: driftless: command not found; install it, or add --agent-path or --deploy",
            ),
            (
                Some(0),
                "",
                "what came was \"Hello\"",
                "cannot start driftless there: exit code 0 without a message (what came was \"Hello\"); install it, or add --agent-path or --deploy",
            ),
            (
                Some(1),
                "driftless: [::]:7400: cannot listen: the port is in use",
                "",
                "driftless there: [::]:7400: cannot listen: the port is in use",
            ),
            (
                Some(255),
                "ssh: connect to host n4 port 22: No route to host",
                "",
                "ssh: connect to host n4 port 22: No route to host",
            ),
            (
                Some(255),
                "me@n4: Permission denied (publickey).",
                "",
                "ssh: me@n4: Permission denied (publickey).",
            ),
        ] {
            assert_eq!(unstarted(code, stderr, output), expected);
        }
    }
}
