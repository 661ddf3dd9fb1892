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
    /// The syntax is that of another program.
    #[error("\"{typed}\": {equivalent}; write ./ before a local path with a colon")]
    Foreign {
        /// The text, without control characters.
        typed: String,
        /// The name of the syntax, and what to write for it.
        equivalent: String,
    },
    /// The home directory of another user.
    #[error(
        "\"{0}\": cannot find a home directory: no shell reads the path there; write the whole path, or ./ before a name that begins with a tilde"
    )]
    OtherHome(String),
}

impl Target {
    /// Reads what was typed. A colon before the first slash ends a host's name, as with scp and
    /// rsync; brackets hold an IPv6 address.
    pub fn parse(typed: &OsStr) -> Result<Target, TargetError> {
        let bytes = typed.as_bytes();
        check_syntax(typed)?;
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
        let path = below_home(path)
            .ok_or_else(|| TargetError::OtherHome(driftless_model::escape(bytes)))?;
        let path = if path.is_empty() { b"." } else { path };
        Ok(Target {
            host: Some(host),
            path: PathBuf::from(OsString::from_vec(path.to_vec())),
        })
    }
}

/// Refuses the syntax that other programs have for a tree elsewhere: an address with a scheme, a
/// module of an rsync daemon, a backend of rclone.
///
/// # Errors
/// [`TargetError::Foreign`] names the equivalent.
pub fn check_syntax(typed: &OsStr) -> Result<(), TargetError> {
    let text = typed.to_string_lossy();
    let equivalent = of_address(&text)
        .or_else(|| of_module(&text))
        .or_else(|| of_backend(&text));
    equivalent.map_or(Ok(()), |equivalent| {
        Err(TargetError::Foreign {
            typed: driftless_model::escape(typed.as_bytes()),
            equivalent,
        })
    })
}

/// Says what to write for `SCHEME://[USER@]HOST[:PORT]/PATH` (RFC 3986).
fn of_address(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    if !is_scheme {
        return None;
    }
    let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
        _ => (place, ""),
    };
    let (host, path) = (
        driftless_model::escape_text(host),
        driftless_model::escape_text(path),
    );
    Some(match scheme.to_ascii_lowercase().as_str() {
        "file" => format!("no address names a local path: write \"/{path}\""),
        "rsync" => format!(
            "driftless starts its agent through ssh and asks no rsync daemon: write \"{host}:PATH\", with the path of the module's directory"
        ),
        "ssh" | "scp" | "sftp" | "fish" if port.is_empty() => {
            format!("a tree on another host has no scheme: write \"{host}:/{path}\"")
        }
        "ssh" | "scp" | "sftp" | "fish" => format!(
            "a tree on another host has no scheme: write \"{host}:/{path}\", with --ssh \"ssh -p {port}\""
        ),
        scheme => format!(
            "driftless reads no \"{scheme}\" addresses: mount it and name the path, or write \"HOST:/PATH\""
        ),
    })
}

/// Says what to write for `[USER@]HOST::MODULE/PATH` (rsync(1)).
fn of_module(text: &str) -> Option<String> {
    let after_brackets = match (text.find('['), text.find(']')) {
        (Some(open), Some(close)) if open < close && !text[..open].contains(['/', ':']) => close,
        _ => 0,
    };
    let at = after_brackets + text[after_brackets..].find(':')?;
    let host = driftless_model::escape_text(&text[..at]);
    let is_module = at > 0 && !host.contains('/') && text[at..].starts_with("::");
    is_module.then(|| {
        format!(
            "driftless starts its agent through ssh and asks no rsync daemon: write \"{host}:PATH\", with the path of the module's directory"
        )
    })
}

/// Says what to write for `:BACKEND:PATH`, `:BACKEND,OPTIONS:PATH` and `REMOTE,OPTIONS:PATH` of rclone.
fn of_backend(text: &str) -> Option<String> {
    let before = |text: &str| text.split_once(':').map(|(name, _)| name.to_owned());
    let is_word = |name: &str| {
        let mut chars = name.chars();
        chars.next().is_some_and(|c| c.is_ascii_alphanumeric())
            && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    let name = match text.strip_prefix(':') {
        Some(rest) => before(rest)?,
        None => before(text).filter(|name| name.contains(','))?,
    };
    let word = name.split(',').next().unwrap_or_default();
    // Behind a slash a colon belongs to a local path.
    (is_word(word) && !name.contains('/')).then(|| {
        "driftless reads no remotes of rclone: mount it and name the path, or write \"HOST:/PATH\"".into()
    })
}

/// Returns what of a path lies below the home directory, where relative paths begin anyway: a tilde is
/// that directory, since no shell reads the path there. `None` for that of another user.
fn below_home(path: &[u8]) -> Option<&[u8]> {
    match path.strip_prefix(b"~") {
        None => Some(path),
        Some([]) => Some(b""),
        Some(below @ [b'/', ..]) => {
            Some(&below[below.iter().take_while(|byte| **byte == b'/').count()..])
        }
        Some(_) => None,
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
            ("host:./~x", Some("host"), "./~x"),
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
    fn home_of_another_user_is_refused() {
        for typed in ["host:~x", "me@host:~x/y"] {
            let error = Target::parse(OsStr::new(typed)).expect_err(typed);
            assert_eq!(error, TargetError::OtherHome(typed.into()));
        }
    }

    #[test]
    fn syntax_of_other_programs_is_refused_with_the_equivalent() {
        for (typed, equivalent) in [
            ("far::module", "write \"far:PATH\""),
            ("me@far::", "write \"me@far:PATH\""),
            ("[::1]::module", "write \"[::1]:PATH\""),
            ("rsync://me@far:873/module/x", "write \"me@far:PATH\""),
            ("ssh://me@far/x/y", "write \"me@far:/x/y\""),
            (
                "sftp://far:2222/x",
                "write \"far:/x\", with --ssh \"ssh -p 2222\"",
            ),
            ("file:///x/y", "write \"/x/y\""),
            ("s3://bucket/x", "\"s3\" addresses: mount it"),
            (":s3:bucket", "remotes of rclone"),
            (":sftp,host=far:x", "remotes of rclone"),
            ("far,shell=no:x", "remotes of rclone"),
        ] {
            let error = Target::parse(OsStr::new(typed))
                .expect_err(typed)
                .to_string();
            assert!(error.contains(equivalent), "{typed}: {error}");
        }
        for typed in [
            "./a::b",
            "/a::b",
            "a/b::c",
            "./file://x",
            "::b",
            "far:a::b",
            "./:a:b",
            "a,b/c:d",
            ":a/b:c",
        ] {
            assert!(Target::parse(OsStr::new(typed)).is_ok(), "{typed}");
        }
    }

    #[test]
    fn what_ssh_would_take_for_an_option_is_no_host() {
        for typed in ["-oProxyCommand=x:b", "a b:c", "me@-x:b", "a;b:c"] {
            assert!(Target::parse(OsStr::new(typed)).is_err(), "{typed}");
        }
    }
}
