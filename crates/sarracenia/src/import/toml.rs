//! TOML as it is written: keys, texts, lists.

use std::fmt::Write;

/// A text in quotes (toml.io, basic strings).
pub(crate) fn text(value: &str) -> String {
    let mut out = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                write!(out, "\\u{:04X}", u32::from(c)).expect("a string takes all");
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A list of texts.
pub(crate) fn list<'t>(values: impl IntoIterator<Item = &'t str>) -> String {
    let texts: Vec<String> = values.into_iter().map(text).collect();
    format!("[{}]", texts.join(", "))
}

/// Keys below a table's name, or at the top.
#[derive(Debug, Default)]
pub(crate) struct Table {
    lines: Vec<String>,
}

impl Table {
    /// A key whose value is written already.
    pub(crate) fn set(&mut self, key: &str, value: impl AsRef<str>) {
        self.lines.push(format!("{key} = {}", value.as_ref()));
    }

    /// A key with a text, if there is one.
    pub(crate) fn set_text(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.set(key, text(value));
        }
    }

    /// A key with a text, or a comment that says that it is to be written.
    pub(crate) fn set_or_ask(&mut self, key: &str, value: Option<&str>, what: &str) {
        match value {
            Some(value) => self.set(key, text(value)),
            None => self.lines.push(format!("# {key} = \"...\"  # {what}")),
        }
    }

    /// A comment on a line of its own; it has no line end in it.
    pub(crate) fn say(&mut self, comment: &str) {
        self.lines.push(format!("# {comment}"));
    }

    /// Appends the table, if there is anything in it.
    pub(crate) fn append(self, name: &str, out: &mut String) {
        if self.lines.is_empty() {
            return;
        }
        if !name.is_empty() {
            out.push_str(&format!("\n[{name}]\n"));
        }
        for line in self.lines {
            out.push_str(&line);
            out.push('\n');
        }
    }
}
