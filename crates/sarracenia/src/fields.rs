//! The keys of a message's object, taken one by one: what can be read is taken out, and what cannot
//! stays for those to whom the message is forwarded.

use crate::refused::Refused;
use crate::time;
use driftless_model::Stamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Permission bits with setuid, setgid and sticky (inode(7)).
const MODE_BITS: u32 = 0o7777;

/// What is left of an object.
pub(crate) struct Fields(pub(crate) Map<String, Value>);

impl Fields {
    /// Takes a key if `read` can make something of its value.
    pub(crate) fn take<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        let value = read(self.0.get(key)?)?;
        self.0.remove(key);
        Some(value)
    }

    /// Takes a key whose value is text.
    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        self.take(key, |value| value.as_str().map(str::to_owned))
    }

    /// Takes text that every message has.
    pub(crate) fn needed(&mut self, key: &'static str) -> Result<String, Refused> {
        self.text(key).ok_or(Refused::Missing(key))
    }

    /// Takes a moment.
    pub(crate) fn moment(&mut self, key: &str) -> Option<Stamp> {
        self.take(key, |value| time::read(value.as_str()?))
    }

    /// Takes permission bits: octal digits, whatever stands before the last four of them.
    pub(crate) fn mode(&mut self, key: &str) -> Option<u32> {
        self.take(key, |value| {
            let digits = value.as_str()?.trim();
            let digits = digits.strip_prefix("0o").unwrap_or(digits);
            let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
            let bits = u32::from_str_radix(digits, 8).ok();
            bits.filter(|_| is_plain).map(|bits| bits & MODE_BITS)
        })
    }

    /// Takes a number that is not negative, also one in quotes.
    pub(crate) fn number(&mut self, key: &str) -> Option<u64> {
        self.take(key, number)
    }

    /// Takes a value of any other form.
    pub(crate) fn formed<T: DeserializeOwned>(&mut self, key: &str) -> Option<T> {
        self.take(key, |value| serde_json::from_value(value.clone()).ok())
    }
}

/// A number that is not negative, also one in quotes.
pub(crate) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_u64(),
    }
}
