//! Which values a job takes. What it would refuse is told, and asked for in the job, so that a job
//! that was written can be run.

use crate::base::BaseUrl;
use driftless_model::RelPath;
use percent_encoding::percent_decode_str;
use std::net::Ipv6Addr;

/// Longest name of an exchange or a queue, user and virtual host: they travel as short strings
/// (AMQP 0.9.1, 4.2.5.3).
const NAME_BYTES_MAX: usize = 255;
/// Longest time of a job, in milliseconds: ten years.
const MILLIS_MAX: u64 = 10 * 365 * 24 * 3_600_000;

/// Why a value is not in the job.
type Why = &'static str;

/// The path of a tree of this host. Slashes and dots that mean nothing are gone. What `..` leads to
/// depends on the symbolic links before it, which are not looked at here.
pub(super) fn path(text: &str) -> Result<String, Why> {
    if text.starts_with('~') {
        return Err("the folder of a user is not known here: write its path into the job");
    }
    let Some(below) = text.strip_prefix('/') else {
        return Err("no absolute path: write the whole path into the job");
    };
    if below.split('/').any(|name| name == "..") {
        return Err(
            "it goes up with \"..\", and where that leads depends on symbolic links: write the \
             path that is meant into the job",
        );
    }
    let below = RelPath::parse(below.trim_start_matches('/').as_bytes());
    let below = below.map_err(|_| "no path that there can be: write it into the job")?;
    let below = std::str::from_utf8(below.as_bytes()).unwrap_or_default();
    Ok(format!("/{below}"))
}

/// The name of an exchange or a queue, or a topic.
pub(super) fn name(text: &str) -> Result<(), Why> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control) {
        return Err("a broker's names have 1 to 255 bytes and no control characters");
    }
    match text.starts_with("amq.") {
        true => Err("names that begin with amq. are the broker's own"),
        false => Ok(()),
    }
}

/// What messages call a tree.
pub(super) fn base_url(text: &str) -> Result<(), Why> {
    let is_url = BaseUrl::parse(text).is_ok() && !text.contains('\0');
    is_url.then_some(()).ok_or(
        "no URL of a tree that messages can have, such as \"file:/projects\" (it may not go up \
         with \"..\"): write base_url into the job",
    )
}

/// The user of a broker.
pub(super) fn is_user(text: &str) -> bool {
    is_part(text) && !text.contains(['/', '?', '#', '\\'])
}

/// The virtual host of a broker, as it stands in a URL. Slashes at its ends mean nothing to `sr3`.
pub(super) fn vhost(text: &str) -> Option<String> {
    let vhost = text.trim_matches('/');
    is_part(vhost).then(|| vhost.replace('/', "%2f"))
}

/// Whether a user or a virtual host can be decoded and travel.
fn is_part(text: &str) -> bool {
    let is_plain = !text.contains(|c: char| c.is_whitespace() || c.is_control());
    let decoded = percent_decode_str(text).decode_utf8();
    is_plain && decoded.is_ok_and(|text| text.len() <= NAME_BYTES_MAX)
}

/// A host, perhaps with a port.
pub(super) fn is_host(text: &str) -> bool {
    let (is_name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => (address.parse::<Ipv6Addr>().is_ok(), port),
        None => {
            let end = text.find(':').unwrap_or(text.len());
            let is_letter = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let is_name = end > 0 && text[..end].chars().all(is_letter);
            (is_name, &text[end..])
        }
    };
    is_name && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

fn is_port(text: &str) -> bool {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.is_empty() || (is_number && text.parse::<u16>().is_ok())
}

/// A time in milliseconds that a job can have.
pub(super) fn is_time(millis: u64) -> bool {
    millis <= MILLIS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_one_form_and_those_that_cannot_be_known_have_none() {
        for (text, expected) in [
            ("/a/b", Some("/a/b")),
            ("//a/./b//", Some("/a/b")),
            ("/", Some("/")),
            ("/a/..b/.c", Some("/a/..b/.c")),
            ("/a b/\u{fc}:x", Some("/a b/\u{fc}:x")),
            ("/a/../b", None),
            ("/..", None),
            ("a/b", None),
            ("./a", None),
            ("far:/a", None),
            ("~/a", None),
            ("", None),
            ("/a\0", None),
        ] {
            assert_eq!(path(text).ok().as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn hosts_have_names_or_addresses_and_ports_that_there_are() {
        for (text, expected) in [
            ("host", true),
            ("h-1.x_y:5672", true),
            ("host:", true),
            ("[::1]:99", true),
            ("[::1]", true),
            ("host:65536", false),
            ("host:+1", false),
            ("[x]", false),
            ("[::1]x", false),
            ("a:b:c", false),
            ("a<b", false),
            (":1", false),
            ("", false),
        ] {
            assert_eq!(is_host(text), expected, "{text}");
        }
    }
}
