//! Pattern of the path to which a task's results are collected.

use std::fmt;

/// Path with placeholders: `%j` job, `%t` task, `%h` node, `%%` percent sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultPattern {
    parts: Vec<PatternPart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternPart {
    Text(Vec<u8>),
    Job,
    Task,
    Node,
}

/// Error of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError {
    /// Index of the byte `%` in the pattern.
    pub index: usize,
    /// Character behind `%`. `None` if the pattern ends there.
    pub placeholder: Option<char>,
}

impl PatternError {
    /// Describes the cause.
    pub(crate) fn wrong(&self) -> String {
        match self.placeholder {
            Some(found) => format!("unknown placeholder \"%{}\"", found.escape_debug()),
            None => "\"%\" at the end".to_owned(),
        }
    }

    /// Describes the remedy.
    pub(crate) fn instead(&self) -> &'static str {
        "write %j for the job, %t for the task, %h for the node, or %% for a percent sign"
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let position = self.index + 1;
        write!(out, "byte {position}: {}: {}", self.wrong(), self.instead())
    }
}

impl std::error::Error for PatternError {}

impl ResultPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// Fails at the first `%` without `j`, `t`, `h` or `%` behind it.
    pub fn parse(pattern: &[u8]) -> Result<ResultPattern, PatternError> {
        let (mut parts, mut index) = (Vec::new(), 0);
        while let Some(length) = pattern[index..].iter().position(|byte| *byte == b'%') {
            push_text(&mut parts, &pattern[index..index + length]);
            index += length;
            match pattern.get(index + 1) {
                Some(b'j') => parts.push(PatternPart::Job),
                Some(b't') => parts.push(PatternPart::Task),
                Some(b'h') => parts.push(PatternPart::Node),
                Some(b'%') => push_text(&mut parts, b"%"),
                _ => {
                    let placeholder = first_char(&pattern[index + 1..]);
                    return Err(PatternError { index, placeholder });
                }
            }
            index += 2;
        }
        push_text(&mut parts, &pattern[index..]);
        Ok(ResultPattern { parts })
    }

    /// Returns the pattern as it was written. `%%` is a percent sign there.
    pub fn text(&self) -> Vec<u8> {
        let bytes = |part: &PatternPart| match part {
            PatternPart::Text(text) => escaped(text),
            PatternPart::Job => b"%j".to_vec(),
            PatternPart::Task => b"%t".to_vec(),
            PatternPart::Node => b"%h".to_vec(),
        };
        self.parts.iter().flat_map(bytes).collect()
    }

    /// Returns the path of one task's results. The caller checks that the names have no slash.
    pub fn expand(&self, job: &str, task: &str, node: &str) -> Vec<u8> {
        let bytes = |part: &PatternPart| match part {
            PatternPart::Text(text) => text.clone(),
            PatternPart::Job => job.into(),
            PatternPart::Task => task.into(),
            PatternPart::Node => node.into(),
        };
        self.parts.iter().flat_map(bytes).collect()
    }
}

/// Returns text with doubled percent signs.
fn escaped(text: &[u8]) -> Vec<u8> {
    let double = |byte: &u8| std::iter::repeat_n(*byte, 1 + usize::from(*byte == b'%'));
    text.iter().flat_map(double).collect()
}

/// Adds text to the last part, so that equal patterns have equal parts.
fn push_text(parts: &mut Vec<PatternPart>, text: &[u8]) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(PatternPart::Text(last)) => last.extend_from_slice(text),
        _ => parts.push(PatternPart::Text(text.to_vec())),
    }
}

/// Returns the first character. Invalid UTF-8 is the replacement character.
fn first_char(text: &[u8]) -> Option<char> {
    String::from_utf8_lossy(&text[..text.len().min(4)])
        .chars()
        .next()
}
