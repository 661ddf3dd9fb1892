//! The objects that the commands of PBS print.
//!
//! `qstat` prints a variable of a job as a list or an object if its value is one in JSON. So a user chooses
//! how deep the output is, and the parser refuses what is too deep. Deep values are left out here:
//! no member that is read stands so deep.

use super::unreadable;
use crate::BatchResult;
use crate::command::CommandOutput;
use serde_json::{Map, Value};

/// Depth of values that are kept. The variables of a job have the depth 4.
const DEPTH_MAX: usize = 16;

/// Returns an object of the output. All answers of PBS name the server.
pub(super) fn members(
    output: &CommandOutput,
    name: &str,
) -> BatchResult<Option<Map<String, Value>>> {
    let parsed = serde_json::from_str(&shallow(&output.stdout));
    let mut answer: Map<String, Value> = parsed.map_err(|cause| {
        let line = output.stdout.lines().next().unwrap_or_default();
        unreadable(output, &format!("{line} ({cause})"))
    })?;
    if !answer.contains_key("pbs_server") {
        return Err(unreadable(output, "no member pbs_server"));
    }
    match answer.remove(name) {
        None => Ok(None),
        Some(Value::Object(members)) => Ok(Some(members)),
        Some(other) => Err(unreadable(output, &format!("\"{name}\": {other}"))),
    }
}

/// Returns JSON with `null` for each list or object that is too deep.
fn shallow(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let (mut depth, mut is_quoted, mut is_escaped) = (0_usize, false, false);
    for letter in text.chars() {
        let is_too_deep = depth > DEPTH_MAX;
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '[' | '{' if !is_quoted => {
                depth += 1;
                if depth == DEPTH_MAX + 1 {
                    kept.push_str("null");
                }
            }
            ']' | '}' if !is_quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if !is_too_deep && depth <= DEPTH_MAX {
            kept.push(letter);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_variables_are_left_out() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let text = |value: &str| format!(r#"{{"a":{{"b":["[[[\"{{",{value},1]}},"c":2}}"#);
        for depth in [1, 13, 14, 200, 100_000] {
            let value: Value = serde_json::from_str(&shallow(&text(&nested(depth)))).unwrap();
            assert_eq!((&value["c"], &value["a"]["b"][2]), (&2.into(), &1.into()));
            assert_eq!(value["a"]["b"][0], "[[[\"{");
        }
        for depth in [1, 13] {
            let whole = text(&nested(depth));
            assert_eq!(shallow(&whole), whole);
        }
        for cut in ["", "{\"a\":[", "{\"a"] {
            assert_eq!(shallow(cut), cut);
        }
    }
}
