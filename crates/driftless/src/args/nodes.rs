//! Nodes of a cluster, and the ways to them.

use super::SshArgs;
use clap::Args;
use driftless_cast::PortRange;
use std::net::IpAddr;
use std::path::PathBuf;

/// Nodes of a cluster.
#[derive(Debug, Args)]
#[command(next_help_heading = "Nodes")]
pub struct NodesArgs {
    /// Nodes, such as rack1n[01-20],b7; @FILE has one node a line
    ///
    /// A name that occurs twice counts once. Without --daemons, ssh connects to these names.
    #[arg(long, value_name = "LIST", required = true, allow_hyphen_values = true)]
    pub nodes: String,
    #[command(flatten)]
    pub ways: WaysArgs,
}

/// Ways to the nodes of a cluster.
#[derive(Debug, Args)]
#[command(next_help_heading = "Nodes")]
pub struct WaysArgs {
    /// Use the daemons of the nodes that FILE lists
    ///
    /// A line has the form NAME HOST:PORT [KEY]. "driftless node status" prints the key. Without a
    /// key, the daemon must have a certificate for NAME, and --ca is needed. ssh starts the nodes
    /// that the file does not list.
    #[arg(long, value_name = "FILE", requires = "nodes")]
    pub daemons: Option<PathBuf>,
    #[command(flatten)]
    pub site: SiteArgs,
    /// TCP ports on which nodes listen: PORT, FROM-TO, or any
    ///
    /// The option is for nodes that ssh starts. A daemon has its own --ports.
    #[arg(long, value_name = "RANGE", default_value = "any", value_parser = ports)]
    pub ports: PortRange,
    /// Directory of the store on the nodes
    ///
    /// The option is for nodes that ssh starts. The default is that of "driftless node --dir". A
    /// gateway needs the directory of the daemons, too: $SPOOL_DIRECTORY is below it.
    #[arg(long, value_name = "DIR", requires = "nodes")]
    pub node_dir: Option<PathBuf>,
    #[command(flatten)]
    pub ssh: SshArgs,
}

/// Certificates of a site.
#[derive(Debug, Clone, Args)]
pub struct SiteArgs {
    /// Certificates of the site's authority, in PEM
    ///
    /// Both ends then prove their names with certificates of this authority.
    #[arg(long, value_name = "FILE", requires = "cert", requires = "key")]
    pub ca: Option<PathBuf>,
    /// Certificate of this host, in PEM; needs --ca and --key
    #[arg(long, value_name = "FILE", requires = "ca")]
    pub cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "ca")]
    pub key: Option<PathBuf>,
}

/// Returns a range of ports: `any`, `PORT` or `FROM-TO`.
pub fn ports(text: &str) -> Result<PortRange, String> {
    match text {
        "any" => Ok(PortRange::ANY),
        // The data plane takes 0 as any port.
        range => range
            .parse()
            .ok()
            .filter(|ports| *ports != PortRange::ANY)
            .ok_or_else(|| "\"any\", a port, or a range is expected, such as 7400-7449".to_owned()),
    }
}

/// Returns the number of connections between two nodes.
pub fn connections(text: &str) -> Result<u8, String> {
    /// Upper bound of the data plane.
    const CONNECTIONS_MAX: u8 = 16;
    match text.parse() {
        Ok(number @ 1..=CONNECTIONS_MAX) => Ok(number),
        _ => Err(format!("a number from 1 to {CONNECTIONS_MAX} is expected")),
    }
}

/// Returns a name that a certificate can have: a DNS name (RFC 1035 section 2.3.4) or an IP address.
pub fn certificate_name(text: &str) -> Result<String, String> {
    const NAME_BYTES_MAX: usize = 253;
    let is_address = text.parse::<IpAddr>().is_ok();
    let is_name = text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label);
    match is_address || is_name {
        true => Ok(text.to_owned()),
        false => Err("a DNS name without wildcards, or an IP address, is expected".to_owned()),
    }
}

fn is_label(text: &str) -> bool {
    const LABEL_BYTES_MAX: usize = 63;
    let is_of_label = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=LABEL_BYTES_MAX).contains(&text.len())
        && text.bytes().all(is_of_label)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::{certificate_name, ports};

    #[test]
    fn port_zero_is_no_port() {
        for text in ["0", " 0", "0-0", "0-5", "-1", ""] {
            assert!(ports(text).is_err(), "{text}");
        }
        assert!(ports("any").is_ok() && ports("7400-7449").is_ok());
    }

    #[test]
    fn unmatchable_names_of_coordinators_are_refused() {
        for text in [
            "*.example.org",
            "",
            "a\nb",
            "a..b",
            "a.",
            "-a",
            "a b",
            "CN=a",
        ] {
            assert!(certificate_name(text).is_err(), "{text:?}");
        }
        for text in ["login1", "login_1.example.org", "192.0.2.1", "2001:db8::1"] {
            assert!(certificate_name(text).is_ok(), "{text}");
        }
    }
}
