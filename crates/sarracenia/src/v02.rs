//! Messages of version 02: a line of text (when, which tree, which path) and all else in the
//! headers of AMQP. They are read, and never written.
//!
//! Each is made an object of version 03, and then read as such, so that both versions have the same
//! rules. What is said here of headers is in sr_post(7) of MetPX-Sarracenia 2.

use crate::message::{Message, check_length};
use crate::refused::Refused;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The headers of a message, those that are text.
pub type Headers = BTreeMap<String, String>;

/// Headers that say the same in fields of another name or form.
const REPLACED: [&str; 5] = ["sum", "link", "oldname", "topic", "fileOp"];

impl Message {
    /// Reads a message of version 02.
    ///
    /// # Errors
    /// It is too long, is not of three words, or would be dangerous.
    pub fn parse_v02(body: &[u8], headers: &Headers) -> Result<Message, Refused> {
        check_length(body)?;
        let text = std::str::from_utf8(body).map_err(|_| Refused::Text)?.trim();
        let mut words = text.splitn(3, ' ');
        let mut word = || words.next().filter(|word| !word.is_empty());
        let (Some(time), Some(base), Some(path)) = (word(), word(), word()) else {
            return Err(Refused::Text);
        };
        let plain = headers
            .iter()
            .filter(|(key, _)| !REPLACED.contains(&key.as_str()));
        let mut object: Map<String, Value> = plain
            .map(|(key, value)| (key.clone(), Value::from(value.as_str())))
            .collect();
        object.insert("pubTime".into(), time.into());
        object.insert("baseUrl".into(), decoded(base).into());
        object.insert("relPath".into(), decoded(path).into());
        object.extend(operation(headers).map(|value| ("fileOp".to_owned(), value)));
        object.extend(identity(headers).map(|value| ("identity".to_owned(), value)));
        Message::of(object, false)
    }
}

/// Words of the body have no spaces: they and `#` are escaped, and nothing else.
fn decoded(word: &str) -> String {
    word.replace("%20", " ").replace("%23", "#")
}

/// What the letter of the sum and other headers say was done.
fn operation(headers: &Headers) -> Option<Value> {
    let header = |key: &str| headers.get(key).map(String::as_str);
    let mut object = Map::new();
    let mut say = |key: &str, value: &str| object.insert(key.to_owned(), value.into());
    let sort = header("sum").and_then(|sum| sum.chars().next());
    // Of a rename, the message at the new name is that of a new entry, with the old name in it.
    if let Some(old) = header("oldname") {
        say("rename", &decoded(old));
    }
    match sort {
        Some('R') => _ = say("remove", ""),
        Some('r') => {
            say("remove", "");
            say("directory", "");
        }
        Some('m') => _ = say("directory", ""),
        _ => {}
    }
    if let (Some(target), false) = (header("link"), matches!(sort, Some('R' | 'r' | 'm'))) {
        say("link", target);
    }
    (!object.is_empty()).then_some(Value::Object(object))
}

/// The sum of the content, if the header has one: `METHOD,VALUE` with a letter for the method.
fn identity(headers: &Headers) -> Option<Value> {
    let (letter, value) = headers.get("sum")?.split_once(',')?;
    let made = |method: &str, value: String| Some(json!({"method": method, "value": value}));
    match letter {
        "d" => made("md5", base64_of_hex(value)?),
        "s" => made("sha512", base64_of_hex(value)?),
        "0" => made("random", value.into()),
        "a" => made("arbitrary", value.into()),
        "z" => made("cod", method_of(value)?.into()),
        _ => None,
    }
}

fn method_of(letter: &str) -> Option<&'static str> {
    match letter {
        "d" => Some("md5"),
        "s" => Some("sha512"),
        _ => None,
    }
}

fn base64_of_hex(hex: &str) -> Option<String> {
    let pairs = hex.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| {
        let text = std::str::from_utf8(pair).ok().filter(|_| pair.len() == 2)?;
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u8::from_str_radix(text, 16).ok())?
    });
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    Some(STANDARD.encode(bytes))
}
