//! `${NAME}` in values: what the configuration itself and its own name say is put in; what only the
//! environment of `sr3` knows, or the moment, is not.

use super::Component;
use super::lines::Line;
use std::collections::BTreeMap;
use std::fmt;

/// How often values may name variables that name others.
const DEPTH_MAX: usize = 4;
/// Bytes of the name of a variable at most.
const NAME_BYTES_MAX: usize = 40;
/// Bytes of a value at most: names that double themselves do not grow further.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// A value names a variable that is not known here, or one that names itself: which, if it has the
/// form of a name and not that of a forgotten bracket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unknown(Option<String>);

impl Unknown {
    fn of(name: &str) -> Unknown {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_%-".contains(c);
        let is_name = name.len() <= NAME_BYTES_MAX && name.chars().all(is_plain);
        Unknown(is_name.then(|| name.to_owned()))
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(name) => write!(out, "it names the variable {name}, which is not known here"),
            None => out.write_str("it names a variable that is not known here"),
        }
    }
}

/// The variables that are known.
#[derive(Debug, Default)]
pub(crate) struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Those that say what the configuration is.
    pub(crate) fn of(component: Component, name: &str) -> Variables {
        let mut known = Variables::default();
        known.set("COMPONENT", component.name());
        known.set("PROGRAM", component.name());
        known.set("CONFIG", name);
        known
    }

    /// Makes a variable known.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// Takes the variable of a line `declare env NAME=VALUE`; `None` for other declarations.
    pub(crate) fn declare(&mut self, line: &Line) -> Option<()> {
        let mut words = line.value.split_whitespace();
        let what = words.next()?;
        if !["env", "envvar", "var", "value"].contains(&what) {
            return None;
        }
        let (name, value) = words.next()?.split_once('=')?;
        self.set(name, value);
        Some(())
    }

    /// The value with what is known put in.
    ///
    /// # Errors
    /// It names a variable that is not known, or one that names itself.
    pub(crate) fn put_in(&self, value: &str) -> Result<String, Unknown> {
        let mut text = value.to_owned();
        for _ in 0..DEPTH_MAX {
            if !text.contains("${") {
                return Ok(text);
            }
            text = self.put_in_once(&text)?;
        }
        if text.contains("${") {
            return Err(Unknown(None));
        }
        Ok(text)
    }

    fn put_in_once(&self, text: &str) -> Result<String, Unknown> {
        let mut parts = text.split("${");
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = part.split_once('}').ok_or(Unknown(None))?;
            let value = self.0.get(name).ok_or_else(|| Unknown::of(name))?;
            out.push_str(value);
            out.push_str(rest);
            if out.len() > VALUE_BYTES_MAX {
                return Err(Unknown::of(name));
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_put_in() {
        let mut known = Variables::of(Component::Watch, "hubs");
        known.set("A", "${B}/${B}");
        known.set("B", "x");
        for (text, expected) in [
            ("a${A}b", Ok("ax/xb")),
            ("${COMPONENT}.${CONFIG}", Ok("watch.hubs")),
            ("$A {B}", Ok("$A {B}")),
            (
                "${C}",
                Err("it names the variable C, which is not known here"),
            ),
            ("${", Err("it names a variable that is not known here")),
            (
                "${pass:word}",
                Err("it names a variable that is not known here"),
            ),
        ] {
            let found = known.put_in(text).map_err(|unknown| unknown.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{text}");
        }
    }

    #[test]
    fn variables_that_name_themselves_or_double_each_other_come_to_an_end() {
        let mut known = Variables::default();
        known.set("X", "${X}");
        known.set("A", &"x".repeat(1000));
        known.set("B", &"${A}".repeat(1000));
        for text in ["${X}", "${B}"] {
            assert!(known.put_in(text).is_err(), "{text}");
        }
    }
}
