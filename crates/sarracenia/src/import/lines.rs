//! The lines of a configuration: an option and its value, with what is said where.

use super::secret;

/// Characters that are shown of an option.
const SHOWN_CHARS_MAX: usize = 60;

/// A line that says something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// From 1.
    pub(crate) number: usize,
    /// The option, as it may be shown.
    pub(crate) shown: String,
    /// The option, however it is spelt.
    pub(crate) option: String,
    /// All behind it.
    pub(crate) value: String,
}

/// The lines that are no comments.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = Line> {
    let numbered = text.lines().enumerate();
    numbered.filter_map(|(index, line)| {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let (option, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        Some(Line {
            number: index + 1,
            shown: shown(option),
            option: spelt(option),
            value: value.trim().to_owned(),
        })
    })
}

/// `post_base_url`, `post_baseUrl` and `-post-baseurl` are one option.
fn spelt(option: &str) -> String {
    let letters = option.chars().filter(|c| !matches!(c, '_' | '-'));
    letters.flat_map(char::to_lowercase).collect()
}

fn shown(option: &str) -> String {
    let plain = secret::without(option);
    let escaped = driftless_model::escape(plain.as_bytes());
    escaped.chars().take(SHOWN_CHARS_MAX).collect()
}
