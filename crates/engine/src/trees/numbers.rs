//! The numbers by which marks know a source and the boot of a machine.

use crate::options::Options;
use driftless_model::RelPath;
use driftless_state::Ledger;
use driftless_tree::Endpoint;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The source, or a directory in it, as a number: what a run has that the user starts on it.
pub fn source_number(options: &Options, below: &RelPath) -> u64 {
    let source = &options.source;
    let host = source
        .host
        .as_ref()
        .map(|host| host.name().as_bytes().to_vec())
        .unwrap_or_default();
    let path = below.names().fold(source.plain_path(), |path, name| {
        path.join(OsStr::from_bytes(name))
    });
    number(&[&host, &b":"[..], path.as_os_str().as_bytes()].concat())
}

/// The boot of the machine that a tree is on, as a number.
pub fn boot_of(root: &Endpoint) -> u64 {
    number(&root.machine())
}

/// A number for some bytes.
pub fn number(bytes: &[u8]) -> u64 {
    Ledger::key(bytes)
        .iter()
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
