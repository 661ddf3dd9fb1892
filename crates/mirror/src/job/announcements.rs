//! The table `[announcements]`: the broker whose announcements a mirror hears.
//!
//! What the broker and the messages allow for names is checked here as far as a key can be told
//! that would have to change.

use super::values::Announcements;
use driftless_settings::{Document, forms};
use std::path::PathBuf;
use toml::de::DeValue;

/// The prefix of topics of version 03 (sr3_post(7)).
const TOPIC_PREFIX: &str = "v03";
/// All topics below the prefix.
const ALL_TOPICS: &str = "#";
/// Longest name: it travels as a short string (AMQP 0.9.1, 4.2.5.3).
const NAME_BYTES_MAX: usize = 255;
/// Most bindings of a queue.
const SUBTOPICS_MAX: usize = 100;
/// By which trees are named in messages (sr3_post(7)).
const SCHEMES: [&str; 7] = ["file", "sftp", "scp", "ftp", "ftps", "http", "https"];

/// The table, if it is there and has what it must have.
pub(super) fn read(from: &mut Document) -> Option<Announcements> {
    let broker = from.take("announcements.broker", forms::broker_url);
    let credentials = from.take("announcements.credentials", forms::text);
    let ca = from.take("announcements.ca", forms::text);
    let exchange = from.take("announcements.exchange", name);
    let topic_prefix = from.take("announcements.topic_prefix", name);
    let subtopics = subtopics(from);
    let queue = from.take("announcements.queue", name);
    let base_url = from.take("announcements.base_url", base_url);
    Some(Announcements {
        broker: broker?,
        credentials: credentials.map(PathBuf::from),
        ca: ca.map(PathBuf::from),
        exchange: exchange?,
        topic_prefix: topic_prefix.unwrap_or_else(|| TOPIC_PREFIX.to_owned()),
        subtopics,
        queue: queue?,
        base_url,
    })
}

fn subtopics(from: &mut Document) -> Vec<String> {
    const KEY: &str = "announcements.subtopics";
    let Some(subtopics) = from.take_list(KEY, name) else {
        return vec![ALL_TOPICS.to_owned()];
    };
    if from.is_right_about(KEY) && !(1..=SUBTOPICS_MAX).contains(&subtopics.len()) {
        from.wrong(KEY, format!("1 to {SUBTOPICS_MAX} are expected"));
    }
    subtopics
}

/// The name of an exchange or a queue, or a topic.
fn name(value: &DeValue) -> Result<String, String> {
    let text = forms::text(value)?;
    if text.len() > NAME_BYTES_MAX {
        return Err(format!("a broker takes at most {NAME_BYTES_MAX} bytes"));
    }
    if text.chars().any(char::is_control) {
        return Err("it has a control character in it".into());
    }
    match text.starts_with("amq.") {
        true => Err("names that begin with amq. are the broker's own".into()),
        false => Ok(text),
    }
}

fn base_url(value: &DeValue) -> Result<String, String> {
    let text = forms::text(value)?;
    let scheme = text.split_once(':').map(|(scheme, _)| scheme);
    let scheme = scheme.map(str::to_ascii_lowercase);
    match scheme.is_some_and(|scheme| SCHEMES.contains(&scheme.as_str())) {
        true => Ok(text),
        false => Err(format!(
            "a URL is expected, such as \"file:/projects\"; its scheme is one of {}",
            SCHEMES.join(", ")
        )),
    }
}
