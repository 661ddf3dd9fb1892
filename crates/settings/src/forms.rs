//! The forms of values: a text, a number, a time, a size, a word of a set, a command. Each says
//! what it expects where it meets something else: that is its error, for a person.

use crate::suggest::nearest;
use driftless_model::{escape, units};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::de::DeValue;

/// Ten years: no time of a job is longer, and no clock overflows.
const TIME_SECONDS_MAX: u64 = 10 * 365 * 24 * 3600;

/// What a value is, for an error.
pub(crate) fn kind(value: &DeValue) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn unexpected(expected: &str, value: &DeValue) -> String {
    format!("{expected} is expected, not {}", kind(value))
}

/// Text that is not empty, or what is expected instead.
pub fn text_of<'v>(value: &'v DeValue, expected: &str) -> Result<&'v str, String> {
    match value {
        DeValue::String(text) if text.is_empty() => {
            Err(format!("it is empty: {expected} is expected"))
        }
        DeValue::String(text) if text.contains('\0') => Err("it has a NUL in it".into()),
        DeValue::String(text) => Ok(text),
        other => Err(unexpected(expected, other)),
    }
}

/// Text that is not empty.
pub fn text(value: &DeValue) -> Result<String, String> {
    text_of(value, "text in quotes").map(str::to_owned)
}

/// The address of a broker. What is wrong with it is told without the address, which may hold a
/// password.
pub fn broker_url(value: &DeValue) -> Result<String, String> {
    let url = text(value)?;
    let rest = url
        .strip_prefix("amqp://")
        .or_else(|| url.strip_prefix("amqps://"))
        .ok_or("amqp://USER@HOST[:PORT]/VHOST or amqps://... is expected")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    if user.contains(':') {
        return Err("it has a password in it: name the file that holds it in credentials".into());
    }
    Ok(url)
}

/// True or false.
pub fn flag(value: &DeValue) -> Result<bool, String> {
    value
        .as_bool()
        .ok_or_else(|| unexpected("true or false", value))
}

/// A whole number within bounds.
pub fn number(value: &DeValue, (min, max): (u64, u64)) -> Result<u64, String> {
    let DeValue::Integer(integer) = value else {
        return Err(unexpected("a whole number without quotes", value));
    };
    u64::from_str_radix(integer.as_str(), integer.radix())
        .ok()
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| match max {
            u64::MAX => format!("a number from {min} on is expected"),
            max => format!("a number from {min} to {max} is expected"),
        })
}

/// `"auto"`, or a number from 1 on.
pub fn auto_or_number(value: &DeValue, max: u64) -> Result<Option<usize>, String> {
    match value {
        DeValue::String(text) if text == "auto" => Ok(None),
        DeValue::Integer(_) => number(value, (1, max)).map(|number| usize::try_from(number).ok()),
        _ => Err(format!("\"auto\" or a number from 1 to {max} is expected")),
    }
}

/// A time, perhaps none at all.
pub fn time(value: &DeValue) -> Result<Duration, String> {
    let text = text_of(
        value,
        "a time in quotes, such as \"90s\", \"5m\", \"24h\" or \"30d\",",
    )?;
    let shown = || escape(text.as_bytes());
    match units::time(text) {
        Ok(time) if time.as_secs() > TIME_SECONDS_MAX => {
            Err(format!("\"{}\" is more than ten years", shown()))
        }
        Ok(time) => Ok(time),
        Err(why) => Err(format!("\"{}\": {why}", shown())),
    }
}

/// A time that is not zero.
pub fn some_time(value: &DeValue) -> Result<Duration, String> {
    match time(value)? {
        Duration::ZERO => Err("a time above zero is expected".into()),
        time => Ok(time),
    }
}

/// A time that is not zero, or a word that stands for none.
pub fn time_or(value: &DeValue, word: &str) -> Result<Option<Duration>, String> {
    match value {
        DeValue::String(text) if text == word => Ok(None),
        _ => some_time(value)
            .map(Some)
            .map_err(|why| format!("{why}; or \"{word}\"")),
    }
}

/// A size in bytes: a number, or text with a unit.
pub fn size(value: &DeValue) -> Result<u64, String> {
    /// What a file can have at most.
    const SIZE_MAX: u64 = i64::MAX as u64;
    if value.is_integer() {
        return number(value, (0, SIZE_MAX));
    }
    let text = text_of(
        value,
        "a size in quotes, such as \"10M\", or a number of bytes",
    )?;
    let bytes =
        units::bytes(text).map_err(|why| format!("\"{}\": {why}", escape(text.as_bytes())))?;
    if bytes > SIZE_MAX {
        return Err(format!(
            "\"{}\": no file is so large",
            escape(text.as_bytes())
        ));
    }
    Ok(bytes)
}

/// A size that is not zero.
pub fn some_size(value: &DeValue) -> Result<u64, String> {
    match size(value)? {
        0 => Err("a size above zero is expected".into()),
        size => Ok(size),
    }
}

/// A word of a set.
pub fn choice<T: Copy>(value: &DeValue, all: &[(&str, T)]) -> Result<T, String> {
    let words: Vec<&str> = all.iter().map(|(word, _)| *word).collect();
    let text = text_of(value, &format!("one of {},", words.join(", ")))?;
    if let Some((_, chosen)) = all.iter().find(|(word, _)| *word == text) {
        return Ok(*chosen);
    }
    let meant = nearest(text, words.iter().copied())
        .map(|word| format!("; did you mean \"{word}\"?"))
        .unwrap_or_default();
    let shown: String = text.chars().take(40).collect();
    Err(format!(
        "\"{}\" is none of {}{meant}",
        escape(shown.as_bytes()),
        words.join(", ")
    ))
}

/// A command with its arguments, cut into words as a shell does.
pub fn command(value: &DeValue) -> Result<Vec<String>, String> {
    let text = text_of(value, "a command in quotes")?;
    match shell_words::split(text) {
        Ok(words) if words.iter().all(String::is_empty) => Err("it names no command".into()),
        Ok(words) => Ok(words),
        Err(error) => Err(error.to_string()),
    }
}

/// A name of letters, digits and `-_.` that no shell and no file system takes for something else.
pub fn plain_name(value: &DeValue) -> Result<String, String> {
    let name = text_of(value, "a name in quotes")?;
    check_name(name)?;
    Ok(name.to_owned())
}

/// Whether a text is a plain name: 1 to 64 bytes.
pub fn check_name(name: &str) -> Result<(), String> {
    const NAME_BYTES_MAX: usize = 64;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty()
        || name.len() > NAME_BYTES_MAX
        || !name.chars().all(is_plain)
        || name.starts_with(['.', '-'])
    {
        let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
        return Err(format!(
            "\"{}\" is no name: 1 to {NAME_BYTES_MAX} letters (a to z), digits and -_. are, with no dot or hyphen at first",
            escape(shown.as_bytes())
        ));
    }
    Ok(())
}

/// An absolute path, without a slash at its end.
pub fn absolute_path(value: &DeValue) -> Result<PathBuf, String> {
    let text = text_of(value, "an absolute path in quotes")?;
    let path = Path::new(text);
    match path.is_absolute() {
        true => Ok(path.components().collect()),
        false => Err("an absolute path is expected".into()),
    }
}
