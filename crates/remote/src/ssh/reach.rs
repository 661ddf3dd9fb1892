//! How a host is reached, and why it cannot be.

use crate::wire::PROTOCOL;
use driftless_model::Keep;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Which program is brought to a host that has no agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deploy {
    /// The program that runs.
    Own,
    /// The program in this file.
    File(PathBuf),
}

/// How a host is reached.
#[derive(Debug, Clone)]
pub struct Reach {
    /// The command that connects, with its arguments.
    pub ssh: Vec<String>,
    /// The agent's program there: a command with its arguments, never empty; the last word is the
    /// program itself.
    pub agent: Vec<String>,
    /// Which attributes are kept.
    pub keep: Keep,
    /// How many connections carry data; found out if `None`.
    pub streams: Option<usize>,
    /// At which level of zstd content is compressed on its way, if at all.
    pub compress: Option<i32>,
    /// What is copied there if there is no agent, or one of another version.
    pub deploy: Option<Deploy>,
    /// Longest silence of a host before its agent has greeted, and then before its first answer.
    pub connecting: Duration,
    /// Set when the run is to end: nobody waits for a host any more then, neither for a connection
    /// nor, beyond some seconds, for an answer.
    pub stop: Arc<AtomicBool>,
}

impl Reach {
    /// Whether the run is to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// Why a host cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// The command that connects cannot be started.
    #[error("\"{command}\": cannot start: {}", driftless_model::cause(cause))]
    NoSsh {
        /// The command.
        command: String,
        /// Why.
        cause: io::Error,
    },
    /// There is no agent there.
    #[error(
        "{host}: there is no \"{agent}\" there: install driftless on it, name its place with --agent-path, or have it copied there with --deploy{complaint}"
    )]
    NoAgent {
        /// The host.
        host: String,
        /// The program that was looked for.
        agent: String,
        /// What was said about it.
        complaint: String,
    },
    /// The login shell starts no agent.
    #[error(
        "{host}: the login shell there is restricted and starts no agent: give this login another shell, or a key whose command is \"driftless agent\"{complaint}"
    )]
    Restricted {
        /// The host.
        host: String,
        /// What was said about it.
        complaint: String,
    },
    /// The agent speaks another protocol.
    #[error("{host}: the agent there is driftless {version}, which speaks protocol {protocol}; this is {own}, which speaks {PROTOCOL}: install the same version on both, or use --deploy", own = env!("CARGO_PKG_VERSION"))]
    OtherVersion {
        /// The host.
        host: String,
        /// Its version.
        version: String,
        /// Its protocol.
        protocol: String,
    },
    /// The connection ended before the agent spoke.
    #[error("{host}: no connection{complaint}")]
    NoConnection {
        /// The host.
        host: String,
        /// What was said about it.
        complaint: String,
        /// It would end so again.
        for_good: bool,
    },
    /// Something else spoke there, and the agent did not.
    #[error("{host}: no greeting of an agent; {heard}")]
    NoGreeting {
        /// The host.
        host: String,
        /// What was said in its place, and what may be behind that.
        heard: String,
    },
    /// The host said nothing, or nothing that is a greeting, for too long.
    #[error("{host}: cannot connect: {why}")]
    Silent {
        /// The host.
        host: String,
        /// What was waited for and what came in its place.
        why: String,
    },
    /// The agent could not be brought there.
    #[error("{host}: cannot deploy the agent: {why}")]
    NotDeployed {
        /// The host.
        host: String,
        /// Why.
        why: String,
    },
    /// Another machine answers to the name.
    #[error(
        "{host}: the name now leads to \"{now}\", and the run began on \"{first}\"; run again with the name of one of these hosts"
    )]
    OtherHost {
        /// What was connected to.
        host: String,
        /// What it called itself at first.
        first: String,
        /// What it calls itself now.
        now: String,
    },
    /// It took longer than the caller wanted to wait.
    #[error("{0}: no answer")]
    NoAnswer(String),
}

impl ReachError {
    /// Whether the host may be reached later: what is wrong is the network or the host, not what
    /// was asked for.
    pub fn may_pass(&self) -> bool {
        match self {
            ReachError::NoAnswer(_)
            | ReachError::NoGreeting { .. }
            | ReachError::Silent { .. }
            | ReachError::OtherHost { .. } => true,
            ReachError::NoConnection { for_good, .. } => !for_good,
            _ => false,
        }
    }
}

/// The command that starts a program which was brought there, in place of the one that is missing:
/// what starts it stays.
pub fn in_place_of(agent: &[String], brought: String) -> Vec<String> {
    let starting = agent.split_last().map_or(&[][..], |(_, starting)| starting);
    starting.iter().cloned().chain([brought]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_starts_the_agent_starts_one_that_was_brought() {
        let words = |text: &str| shell_words::split(text).expect("words");
        assert_eq!(
            in_place_of(&words("sudo -n driftless"), "/cache/it".into()),
            words("sudo -n /cache/it")
        );
        assert_eq!(
            in_place_of(&words("driftless"), "/cache/it".into()),
            words("/cache/it")
        );
    }
}
