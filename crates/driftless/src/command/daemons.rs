//! The file of `--daemons`: a line for each node that has a daemon.

use crate::command::reach::Unreached;
use crate::command::site::{read_text, unreadable, usage};
use driftless_cast::{ExpectedPeer, NodeAccess, PeerKey, parse_hostlist};
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
    if !is_host_name(name) {
        let name = name.escape_default();
        return Err(format!(
            "\"{name}\": not the name of a host; write one name as in --nodes, without a byte order mark"
        ));
    }
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

/// Whether a text is one name of `--nodes`.
fn is_host_name(text: &str) -> bool {
    let no_file = &mut |_: &str| Err(String::new());
    parse_hostlist(text, no_file).is_ok_and(|names| names == [text])
}

/// Returns a warning if no line has the name of a node, or one differs from it in case alone. Other
/// lines may be of nodes that this command does not use.
pub fn warn_of_unused(
    file: &Path,
    daemons: &BTreeMap<String, NodeAccess>,
    nodes: &[String],
) -> Option<String> {
    let file = quote(file);
    let lacking = || nodes.iter().filter(|node| !daemons.contains_key(*node));
    let in_case = |node: &&String| daemons.keys().find(|name| name.eq_ignore_ascii_case(node));
    let differing = lacking().find_map(|node| Some((node, in_case(&node)?)));
    if let Some((node, name)) = differing {
        return Some(format!(
            "--daemons {file}: it lists {name}, and the node is {node}; write the name as in --nodes"
        ));
    }
    let is_unused = lacking().count() == nodes.len();
    is_unused
        .then(|| format!("--daemons {file}: it has no line for any of the nodes; ssh starts them"))
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
    }
    #[test]
    fn daemons_have_names_of_hosts() {
        for bad in ["n[1-3]", "\u{feff}n1", "@file", "n1,n2", "-n", "n\u{1b}"] {
            let refused = daemon(&[bad, "host:7400"], true).expect_err(bad);
            assert!(refused.contains("not the name of a host"), "{refused}");
            assert!(refused.is_ascii(), "{refused}");
        }
    }

    #[test]
    fn unused_daemons_are_warned_of() {
        let (_, access) = daemon(&["n1", "host:1"], true).expect("a daemon");
        let daemons = BTreeMap::from([("n1".to_owned(), access)]);
        let warning = |nodes: &[&str]| {
            let nodes: Vec<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
            warn_of_unused(Path::new("file"), &daemons, &nodes)
        };
        assert_eq!(warning(&["n1", "n2"]), None);
        assert!(warning(&["N1"]).is_some_and(|text| text.contains("the node is N1")));
        assert!(warning(&["n2"]).is_some_and(|text| text.contains("no line for any")));
    }
}
