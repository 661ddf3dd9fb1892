//! Settings of a server and its sessions. Both parse the same arguments, so each has all of them.

use crate::LoginLimits;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of a server and its sessions.
#[derive(Debug, Clone)]
pub struct FtpsSettings {
    /// Addresses of the control connections.
    pub listen: Vec<SocketAddr>,
    /// Ports of the data connections.
    pub passive_ports: RangeInclusive<u16>,
    /// Address that clients are told for data connections, for a server behind a NAT.
    pub passive_address: Option<Ipv4Addr>,
    /// Certificate chain of the server in PEM.
    pub certificate: PathBuf,
    /// Private key of the server in PEM.
    pub key: PathBuf,
    /// Directory with the homes of users.
    pub deposits: PathBuf,
    /// Lowest UID that may log in.
    pub uid_min: u32,
    /// Client certificates that may log in, if any may.
    pub client_keys: Option<ClientKeys>,
    /// Longest time without a command and without a byte of data.
    pub idle_max: Duration,
    /// Limits of logins and sessions.
    pub limits: LoginLimits,
    /// Program of driftless on this host, for the agents of users.
    pub program: String,
}

/// Client certificates that may log in.
#[derive(Debug, Clone)]
pub struct ClientKeys {
    /// Certificates in PEM of the authority that signs client certificates.
    pub authority: PathBuf,
    /// File with a fingerprint and a user name on each line.
    pub users: PathBuf,
}

/// Command that starts a session.
#[derive(Debug, Clone)]
pub struct ServerProcess {
    /// Program of a session.
    pub program: PathBuf,
    /// Arguments of a session.
    pub arguments: Vec<OsString>,
}
