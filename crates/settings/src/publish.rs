//! The table `[publish]`: the broker at which changes are announced. It means the same in every file
//! that has it, and so do the forms of its keys where other tables name a broker.
//!
//! What a broker allows for names is checked here as far as a key can be told that would have to
//! change.

use crate::document::Document;
use crate::forms;
use std::path::PathBuf;
use toml::de::DeValue;

/// The prefix of topics of version 03 (sr3_post(7)).
pub const TOPIC_PREFIX: &str = "v03";
/// Longest name: it travels as a short string (AMQP 0.9.1, 4.2.5.3).
const NAME_BYTES_MAX: usize = 255;
/// By which trees are named in messages (sr3_post(7)).
const SCHEMES: [&str; 7] = ["file", "sftp", "scp", "ftp", "ftps", "http", "https"];

/// Where changes are announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    /// The broker, `amqp://USER@HOST[:PORT]/VHOST` or `amqps://...`, without a password.
    pub broker: String,
    /// The file with the password.
    pub credentials: Option<PathBuf>,
    /// A file of further certificates that are trusted.
    pub ca: Option<PathBuf>,
    /// The exchange.
    pub exchange: String,
    /// What topics begin with.
    pub topic_prefix: String,
    /// What messages call the one tree that they are about; without it, `file:` and its path.
    pub base_url: Option<String>,
}

/// The table, if it is there and has what it must have. `path` is the form of its paths; `several`
/// says which trees there are if one URL cannot name them.
pub fn read(
    from: &mut Document,
    path: fn(&DeValue) -> Result<PathBuf, String>,
    several: Option<&str>,
) -> Option<Publish> {
    let broker = from.take("publish.broker", forms::broker_url);
    let credentials = from.take("publish.credentials", path);
    let ca = from.take("publish.ca", path);
    let exchange = from.take("publish.exchange", broker_name);
    let topic_prefix = from.take("publish.topic_prefix", broker_name);
    let base_url = from.take("publish.base_url", base_url);
    refuse_missing(from);
    if let Some(several) = several.filter(|_| from.has("publish.base_url")) {
        let what = format!(
            "there are several {several}, and one URL cannot name them all: without it, messages call each by its path"
        );
        from.wrong("publish.base_url", what);
    }
    Some(Publish {
        broker: broker?,
        credentials,
        ca,
        exchange: exchange?,
        topic_prefix: topic_prefix.unwrap_or_else(|| TOPIC_PREFIX.to_owned()),
        base_url,
    })
}

fn refuse_missing(from: &mut Document) {
    const NEEDED: [(&str, &str); 2] = [
        ("publish.broker", "\"amqps://USER@HOST/VHOST\""),
        ("publish.exchange", "\"xs_USER\""),
    ];
    for (key, example) in NEEDED {
        if from.has_table("publish") && !from.has(key) {
            from.wrong(key, format!("it is missing, such as {example}"));
        }
    }
}

/// The name of an exchange or a queue, or a topic.
pub fn broker_name(value: &DeValue) -> Result<String, String> {
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

/// What messages call a tree. A password in it would be in each message.
pub fn base_url(value: &DeValue) -> Result<String, String> {
    let text = forms::text(value)?;
    let (scheme, rest) = text.split_once(':').unwrap_or_default();
    if !SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()) {
        return Err(format!(
            "a URL is expected, such as \"file:/projects\"; its scheme is one of {}",
            SCHEMES.join(", ")
        ));
    }
    match rest.strip_prefix("//").is_some_and(has_password) {
        true => Err("it has a password in it, which each message would tell: only a user may stand before the host".into()),
        false => Ok(text),
    }
}

/// Whether a password stands before a host, be there a slash in it.
fn has_password(behind: &str) -> bool {
    let authority = behind.split('/').next().unwrap_or_default();
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    match authority.rsplit_once('@') {
        Some((user, _)) => user.contains(':'),
        None if authority.starts_with('[') || !behind.contains('@') => false,
        None => authority
            .split_once(':')
            .is_some_and(|(_, port)| !is_port(port)),
    }
}
