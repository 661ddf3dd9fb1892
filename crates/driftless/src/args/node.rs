//! Arguments of `driftless node`.

use super::nodes::{certificate_name, ports};
use super::{LogArgs, SiteArgs, WaysArgs};
use clap::{Args, Subcommand};
use driftless_cast::{PeerKey, PortRange};
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true)]
pub struct NodeArgs {
    #[command(subcommand)]
    pub command: Option<NodeCommand>,
    /// Directory of the store
    ///
    /// The default is /var/lib/driftless/node for root, and "node-HOST" below the state directory
    /// of any other user. Driftless creates it with mode 0711: other users can pass through it, and
    /// cannot list it.
    #[arg(long, value_name = "DIR", global = true)]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub serve: ServeArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Options of a running node.
#[derive(Debug, Args)]
#[command(next_help_heading = "Serving")]
pub struct ServeArgs {
    /// Serve one cast over standard input and output, as cast starts it
    #[arg(long, hide = true, conflicts_with_all = ["trust", "ca", "place"])]
    pub for_one_cast: bool,
    /// Address to listen on; :: takes IPv4 connections as well
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V6(Ipv6Addr::UNSPECIFIED))]
    pub listen: IpAddr,
    /// TCP ports to listen on: PORT, FROM-TO, or any
    ///
    /// The daemon takes the first port that is free.
    #[arg(long, value_name = "RANGE", default_value = "any", value_parser = ports)]
    pub ports: PortRange,
    /// Allow casts to place data sets in DIR and below
    ///
    /// May be given several times. Without this option, casts can use the cache only.
    #[arg(long, value_name = "DIR")]
    pub place: Vec<PathBuf>,
    /// Maximum size of the cache, such as 500G
    ///
    /// The node removes the copies that were unused for the longest time. Copies with a job or a
    /// pin stay.
    #[arg(long, value_name = "SIZE", value_parser = crate::units::bytes_with_unit)]
    pub cache_max: Option<u64>,
    /// Send at most RATE bytes a second
    #[arg(long, value_name = "RATE", value_parser = crate::units::rate)]
    pub bwlimit: Option<u64>,
    /// Serve casts of the host with this key
    ///
    /// May be given several times. "driftless node key" prints the key on that host.
    #[arg(long, value_name = "KEY", value_parser = peer_key, conflicts_with_all = ["ca", "coordinator"])]
    pub trust: Vec<PeerKey>,
    #[command(flatten)]
    pub site: SiteArgs,
    /// Name in the certificate of a host that casts
    ///
    /// May be given several times.
    #[arg(long, value_name = "NAME", value_parser = certificate_name, requires = "ca")]
    pub coordinator: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Show the copies of this node, and whether a daemon runs
    Status {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Remove copies from this node
    ///
    /// Entries that driftless did not place stay, and copies that are in use. The command exits with 3
    /// if something stays, or if the node has no such copy. It exits with 11 if it removed nothing
    /// because all copies are in use. With --nodes, it ends a job at many nodes. A node without copies
    /// of the job is no error then, and a pinned copy stays.
    Purge {
        #[command(flatten)]
        what: PurgeArgs,
        /// Print one JSON object, or one for each node of --nodes
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        remote: Box<RemotePurgeArgs>,
    },
    /// Hash the copies of this node again
    ///
    /// The node no longer serves a damaged copy. The command exits with 4 if a copy is damaged. It
    /// exits with 3 if a copy could not be checked, or if the node has no such copy.
    Verify {
        /// Number of the copy, as "status" prints it; all copies by default
        #[arg(value_name = "COPY")]
        copy: Option<u64>,
        /// Print one JSON object for each copy
        #[arg(long)]
        json: bool,
    },
    /// Print the key with which this host casts, for --trust on nodes
    ///
    /// The command creates the key if it is missing. "driftless node status" prints the key of the
    /// node itself.
    Key {
        /// Directory of the store, which has no effect here
        #[arg(long, value_name = "DIR", hide = true)]
        dir: Option<PathBuf>,
        /// Directory of the key, as in "driftless cast --dir"
        #[arg(long, value_name = "DIR")]
        cast_dir: Option<PathBuf>,
    },
}

/// Copies to remove.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct PurgeArgs {
    /// Number of the copy, as "status" prints it
    #[arg(value_name = "COPY")]
    pub copy: Option<u64>,
    /// Remove each copy of the data set with this hash
    ///
    /// The first 8 or more digits suffice if no other data set of the node begins with them.
    #[arg(long, value_name = "HASH")]
    pub set: Option<String>,
    /// Remove the copies of the job NAME
    ///
    /// Copies that another job needs stay.
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,
    /// Remove all copies
    #[arg(long)]
    pub all: bool,
}

/// Nodes on which a job ends.
#[derive(Debug, Args)]
#[command(next_help_heading = "Nodes")]
pub struct RemotePurgeArgs {
    /// End the job on these nodes, such as rack1n[01-20],b7
    ///
    /// Each node removes the copies of the job that no other job, no pin and no --ttl keeps. Without
    /// --daemons, ssh connects to these names.
    #[arg(
        long,
        value_name = "LIST",
        requires = "job",
        conflicts_with_all = ["copy", "set", "all", "dir"],
        allow_hyphen_values = true
    )]
    pub nodes: Option<String>,
    /// Directory of the key of this host, as in "driftless cast --dir"
    #[arg(long, value_name = "DIR", requires = "nodes")]
    pub cast_dir: Option<PathBuf>,
    #[command(flatten)]
    pub ways: WaysArgs,
}

/// Returns the key of a peer.
fn peer_key(text: &str) -> Result<PeerKey, String> {
    text.parse()
        .map_err(|_| "a key of 64 hexadecimal digits is expected".to_owned())
}
