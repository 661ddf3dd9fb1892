//! The exchange over the pipe of ssh: keys and addresses, one line each way.
//!
//! A shell can print anything before the line of the node, so the coordinator looks for its first
//! words. Lines have no secret: the pipe only has to be authentic, which ssh sees to.

use crate::message::{ADDRESSES_MAX, PROTOCOL};
use crate::{Error, PeerKey};
use driftless_remote::{Heard, find};
use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};

/// First words of the line of a node.
const NODE: &str = "driftless-cast-node ";
/// First words of the line of a coordinator.
const COORDINATOR: &str = "driftless-cast-coordinator ";
/// Bytes of a line at most.
const LINE_BYTES_MAX: u64 = 4096;
/// Variable in which sshd tells both ends of its connection (ssh(1)).
const CONNECTION: &str = "SSH_CONNECTION";

/// Line of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeGreeting {
    pub protocol: u32,
    pub version: String,
    pub key: PeerKey,
    pub port: u16,
    /// Addresses at which the node listens, as far as it knows them.
    pub addresses: Vec<IpAddr>,
}

impl NodeGreeting {
    /// Returns the greeting of this process.
    pub fn here(key: PeerKey, listening: SocketAddr) -> Self {
        let own = Some(listening.ip()).filter(|address| !address.is_unspecified());
        NodeGreeting {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            key,
            port: listening.port(),
            addresses: own.or_else(ssh_address).into_iter().collect(),
        }
    }

    fn parse(rest: &str) -> Option<Self> {
        let mut words = rest.split_whitespace();
        let protocol = words.next()?.parse().ok()?;
        let version: String = words.next()?.chars().take(40).collect();
        let key = words.next()?.parse().ok()?;
        let port = words.next()?.parse().ok()?;
        let addresses: Option<Vec<IpAddr>> = words.map(|word| word.parse().ok()).collect();
        let addresses = addresses.filter(|all| all.len() <= ADDRESSES_MAX)?;
        Some(NodeGreeting {
            protocol,
            version,
            key,
            port,
            addresses,
        })
    }
}

/// Returns the address of this host that the client of ssh reached.
fn ssh_address() -> Option<IpAddr> {
    let connection = std::env::var(CONNECTION).ok()?;
    connection.split_whitespace().nth(2)?.parse().ok()
}

/// Writes the line of a node.
pub(crate) fn write_greeting(
    output: &mut impl Write,
    greeting: &NodeGreeting,
) -> Result<(), Error> {
    let addresses: Vec<String> = greeting.addresses.iter().map(IpAddr::to_string).collect();
    let line = format!(
        "{NODE}{} {} {} {} {}\n",
        greeting.protocol,
        greeting.version,
        greeting.key,
        greeting.port,
        addresses.join(" ")
    );
    let written = output.write_all(line.as_bytes());
    written.and_then(|()| output.flush()).map_err(broken)
}

/// Finds the line of a node behind whatever a shell printed.
///
/// # Errors
/// The pipe ends, or too much else comes.
pub(crate) fn read_greeting(
    input: &mut impl BufRead,
    heard: &Heard,
) -> std::io::Result<NodeGreeting> {
    find(input, NODE, heard, NodeGreeting::parse)
}

/// Writes the line of a coordinator.
pub(crate) fn write_coordinator(output: &mut impl Write, key: PeerKey) -> std::io::Result<()> {
    writeln!(output, "{COORDINATOR}{PROTOCOL} {key}")?;
    output.flush()
}

/// Reads the line of a coordinator.
pub(crate) fn read_coordinator(input: &mut impl BufRead) -> Result<PeerKey, Error> {
    let mut line = String::new();
    let mut bounded = input.take(LINE_BYTES_MAX);
    bounded.read_line(&mut line).map_err(broken)?;
    if line.is_empty() {
        return Err(broken(ErrorKind::UnexpectedEof.into()));
    }
    let rest = line.strip_prefix(COORDINATOR).map(str::trim);
    let key = rest.and_then(|rest| rest.strip_prefix(&format!("{PROTOCOL} ")));
    let key = key.and_then(|key| key.parse().ok());
    key.ok_or_else(|| Error::Protocol {
        peer: "coordinator".into(),
        cause: "its first line has no key".into(),
    })
}

fn broken(error: std::io::Error) -> Error {
    Error::Pipe(driftless_model::cause(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_is_found_behind_noise() {
        let greeting = NodeGreeting {
            protocol: PROTOCOL,
            version: "0.1.0".into(),
            key: PeerKey::from([7; 32]),
            port: 4000,
            addresses: vec!["10.0.0.1".parse().unwrap(), "fe80::1".parse().unwrap()],
        };
        let mut line = b"Welcome!\n".to_vec();
        write_greeting(&mut line, &greeting).unwrap();
        let found = read_greeting(&mut line.as_slice(), &Heard::default()).unwrap();
        assert_eq!(found, greeting);
    }

    #[test]
    fn line_of_the_coordinator_has_a_key() {
        let mut line = Vec::new();
        write_coordinator(&mut line, PeerKey::from([9; 32])).unwrap();
        let key = read_coordinator(&mut line.as_slice()).unwrap();
        assert_eq!(key, PeerKey::from([9; 32]));
        for wrong in ["", "\n", "driftless-cast-coordinator 9 00\n", "x\n"] {
            assert!(read_coordinator(&mut wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
