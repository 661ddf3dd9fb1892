//! What a user types for a tree: a path, or `[USER@]HOST:PATH`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Where a tree is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// What ssh takes: a host or `user@host`; `None` for this machine.
    pub host: Option<String>,
    /// The path there; a relative one begins in the home directory.
    pub path: PathBuf,
}

/// Why what was typed names no tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The host's name cannot be one.
    #[error(
        "\"{0}\": a host's name is letters, digits, dots, hyphens and underscores; write ./ before a local path with a colon"
    )]
    BadHost(String),
}

impl Target {
    /// Reads what was typed. A colon before the first slash ends a host's name, as with scp and
    /// rsync; brackets hold an IPv6 address.
    pub fn parse(typed: &OsStr) -> Result<Target, TargetError> {
        let bytes = typed.as_bytes();
        let local = || Target {
            host: None,
            path: typed.into(),
        };
        let in_brackets = bytes
            .iter()
            .position(|byte| *byte == b'[')
            .is_some_and(|at| at == 0 || bytes[at - 1] == b'@');
        let from = if in_brackets {
            bytes.iter().position(|byte| *byte == b']').unwrap_or(0)
        } else {
            0
        };
        let colon = bytes[from..]
            .iter()
            .position(|byte| *byte == b':')
            .map(|at| from + at);
        let slash = bytes
            .iter()
            .position(|byte| *byte == b'/')
            .unwrap_or(bytes.len());
        let Some(colon) = colon.filter(|colon| *colon < slash && *colon > 0) else {
            return Ok(local());
        };
        let host = check_host(&bytes[..colon])?;
        let path = &bytes[colon + 1..];
        let path = below_home(path);
        let path = if path.is_empty() { b"." } else { path };
        Ok(Target {
            host: Some(host),
            path: PathBuf::from(OsString::from_vec(path.to_vec())),
        })
    }
}

/// A tilde is the home directory, where relative paths begin anyway: no shell reads the path there.
fn below_home(path: &[u8]) -> &[u8] {
    match path.strip_prefix(b"~") {
        Some([]) => b"",
        Some(below @ [b'/', ..]) => {
            &below[below.iter().take_while(|byte| **byte == b'/').count()..]
        }
        _ => path,
    }
}

fn check_host(bytes: &[u8]) -> Result<String, TargetError> {
    let bad = || TargetError::BadHost(driftless_model::escape(bytes));
    let text = std::str::from_utf8(bytes).map_err(|_| bad())?;
    let (user, host) = text
        .rsplit_once('@')
        .map_or((None, text), |(user, host)| (Some(user), host));
    let address = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let plain = |text: &str, more: &[char]| {
        !text.is_empty()
            && !text.starts_with('-')
            && text
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_') || more.contains(&c))
    };
    let good = user.is_none_or(|user| plain(user, &['@', '\\', '+']))
        && plain(
            address.unwrap_or(host),
            if address.is_some() { &[':', '%'] } else { &[] },
        );
    if !good {
        return Err(bad());
    }
    Ok(user.map(|user| format!("{user}@")).unwrap_or_default() + address.unwrap_or(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_before_the_first_slash_ends_a_host() {
        let cases: [(&str, Option<&str>, &str); 14] = [
            ("a/b", None, "a/b"),
            ("./a:b", None, "./a:b"),
            ("/a:b", None, "/a:b"),
            (":b", None, ":b"),
            ("host:b", Some("host"), "b"),
            ("host:/b:c", Some("host"), "/b:c"),
            ("me@host:", Some("me@host"), "."),
            ("me@[fe80::1%eth0]:/x", Some("me@fe80::1%eth0"), "/x"),
            ("[::1]:x", Some("::1"), "x"),
            ("host:~", Some("host"), "."),
            ("host:~//x", Some("host"), "x"),
            ("host:./~/x", Some("host"), "./~/x"),
            ("host:~x", Some("host"), "~x"),
            ("~/a:b", None, "~/a:b"),
        ];
        for (typed, host, path) in cases {
            let target = Target::parse(OsStr::new(typed)).expect("it names a tree");
            assert_eq!(
                (target.host.as_deref(), target.path.to_str()),
                (host, Some(path)),
                "{typed}"
            );
        }
    }

    #[test]
    fn what_ssh_would_take_for_an_option_is_no_host() {
        for typed in ["-oProxyCommand=x:b", "a b:c", "me@-x:b", "a;b:c"] {
            assert!(Target::parse(OsStr::new(typed)).is_err(), "{typed}");
        }
    }
}
