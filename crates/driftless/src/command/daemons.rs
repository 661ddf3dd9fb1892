//! The file of `--daemons`: a line for each node that has a daemon.

use crate::command::reach::Unreached;
use crate::command::site::{read_text, unreadable, usage};
use driftless_cast::{ExpectedPeer, NodeAccess, PeerKey};
use driftless_model::quote;
use std::collections::BTreeMap;
use std::path::Path;

/// Returns the daemons that a file lists, by their names.
pub fn daemons(
    file: &Path,
    has_authority: bool,
) -> Result<BTreeMap<String, NodeAccess>, Unreached> {
    let text = read_text(file).map_err(|why| usage(&unreadable(file, &why)))?;
    let mut found = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let refuse = |why: &str| usage(&format!("{}: line {}: {why}", quote(file), at + 1));
        let (name, access) = daemon(&words, has_authority).map_err(|why| refuse(&why))?;
        if found.insert(name.clone(), access).is_some() {
            return Err(refuse(&format!("{name} is listed twice; list it once")));
        }
    }
    Ok(found)
}

/// Returns the daemon of a line: `NAME HOST:PORT [KEY]`.
fn daemon(words: &[&str], has_authority: bool) -> Result<(String, NodeAccess), String> {
    let (name, address, key) = match words {
        [name, address] => (*name, *address, None),
        [name, address, key] => (*name, *address, Some(*key)),
        _ => return Err("not understood; write NAME HOST:PORT, and a KEY or --ca".into()),
    };
    let (host, port) = address
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host, port.parse().ok().filter(|port| *port > 0)?)))
        .ok_or_else(|| format!("{address}: not HOST:PORT; write an IPv6 address as [::1]:PORT"))?;
    let peer = match key {
        Some(key) => ExpectedPeer::Key(key.parse::<PeerKey>().map_err(|error| error.to_string())?),
        None if has_authority => ExpectedPeer::Name(name.into()),
        None => {
            return Err(format!(
                "{name} has no key; add it, or name the authority with --ca"
            ));
        }
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let access = NodeAccess::Daemon {
        host: host.into(),
        port,
        peer,
    };
    Ok((name.into(), access))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_have_a_key_or_a_certificate() {
        let key = "ab".repeat(32);
        let by_key = daemon(&["n1", "[::1]:7400", &key], false).expect("a daemon");
        let expected = NodeAccess::Daemon {
            host: "::1".into(),
            port: 7400,
            peer: ExpectedPeer::Key(key.parse().expect("a key")),
        };
        assert_eq!(by_key, ("n1".into(), expected));
        let by_name = daemon(&["n1", "host:7400"], true).expect("a daemon").1;
        assert!(
            matches!(by_name, NodeAccess::Daemon { peer: ExpectedPeer::Name(name), .. } if name == "n1")
        );
        for bad in [
            &["n1"][..],
            &["n1", "host"],
            &["n1", "host:0"],
            &["n1", "host:1"],
            &["n1", "host:1", "key"],
        ] {
            assert!(daemon(bad, false).is_err(), "{bad:?}");
        }
    }}
