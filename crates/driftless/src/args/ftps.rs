//! Arguments of `driftless ftps`. They are there in each build, so that the reference is the same.

use super::LogArgs;
use clap::Args;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
pub struct FtpsArgs {
    /// Certificate chain of this server in PEM
    #[arg(long, value_name = "FILE")]
    pub certificate: PathBuf,
    /// Private key of this server in PEM
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Directory with the homes of users
    ///
    /// Each user has the directory DIR/USER, which the first login creates. Use the directory of the
    /// gateway's deposits.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/lib/driftless/deposits"
    )]
    pub deposits: PathBuf,
    /// Address of control connections; may be repeated
    ///
    /// An address of IPv6 takes clients of IPv6 alone. For both, give two addresses, such as
    /// 0.0.0.0:21 and [::]:21.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "0.0.0.0:21",
        help_heading = "Network"
    )]
    pub listen: Vec<SocketAddr>,
    /// Ports of data connections
    #[arg(
        long,
        value_name = "FIRST-LAST",
        default_value = "50000-50100",
        value_parser = port_range,
        help_heading = "Network"
    )]
    pub passive_ports: RangeInclusive<u16>,
    /// Address that clients connect to for data, behind a NAT
    #[arg(long, value_name = "ADDRESS", help_heading = "Network")]
    pub passive_address: Option<Ipv4Addr>,
    /// Check passwords and accounts by this service of PAM
    ///
    /// SERVICE is a file in /etc/pam.d. Without the option, only client certificates log in.
    #[arg(
        long,
        value_name = "SERVICE",
        required_unless_present = "client_authority",
        help_heading = "Login"
    )]
    pub pam: Option<String>,
    /// Accept client certificates that this authority signed
    #[arg(
        long,
        value_name = "FILE",
        requires = "client_users",
        help_heading = "Login"
    )]
    pub client_authority: Option<PathBuf>,
    /// File with the fingerprint and the user of each certificate
    #[arg(
        long,
        value_name = "FILE",
        requires = "client_authority",
        help_heading = "Login"
    )]
    pub client_users: Option<PathBuf>,
    /// Lowest UID that may log in; never root
    #[arg(
        long,
        value_name = "UID",
        default_value = "1000",
        help_heading = "Login"
    )]
    pub uid_min: u32,
    /// End sessions that are idle for TIME
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = crate::units::span, help_heading = "Limits")]
    pub idle: Duration,
    /// Sessions at the same time
    #[arg(long, value_name = "N", default_value = "64", value_parser = crate::units::above_zero, help_heading = "Limits")]
    pub sessions: u64,
    /// Sessions of one user at the same time
    #[arg(long, value_name = "N", default_value = "8", value_parser = crate::units::above_zero, help_heading = "Limits")]
    pub user_sessions: u64,
    /// Serve the client at the standard input. The server starts its sessions so.
    #[arg(long, hide = true)]
    pub session: bool,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Parses a range of ports.
fn port_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let wrong = || format!("{text}: not a range of ports; write it as 50000-50100");
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first > 0 && first <= last => Ok(first..=last),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_ports_are_parsed() {
        assert_eq!(port_range("50000-50100"), Ok(50000..=50100));
        assert_eq!(port_range("7-7"), Ok(7..=7));
        for wrong in ["", "5", "9-8", "0-9", "1-70000", "a-b", "1-2-3"] {
            assert!(port_range(wrong).is_err(), "{wrong}");
        }
    }
}
