//! Which machine answers, and in which of its boots.
//!
//! A name may stand for several machines, and a machine may be started anew while a run goes on.
//! Both show when a connection is made again.

use driftless_tree::this_machine;
use rustix::system::uname;
use serde::{Deserialize, Serialize};

/// What a machine says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Number of its boot; empty if it does not tell.
    pub machine: Vec<u8>,
    /// Its name.
    pub host: Vec<u8>,
}

/// What a machine is to one that was met before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// The same machine, in the same boot.
    Same,
    /// The same machine, started anew.
    Restarted,
    /// Another.
    Other,
}

impl Identity {
    /// This machine's.
    pub fn own() -> Identity {
        Identity {
            machine: this_machine(),
            host: uname().nodename().to_bytes().to_vec(),
        }
    }

    /// What the one is that answers now.
    pub fn meets(&self, now: &Identity) -> Met {
        match (self.machine == now.machine, self.host == now.host) {
            // Within one boot a machine may be given another name.
            (true, _) => Met::Same,
            (false, true) => Met::Restarted,
            (false, false) => Met::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_known_by_its_boot_and_then_by_its_name() {
        let identity = |machine: &str, host: &str| Identity {
            machine: machine.into(),
            host: host.into(),
        };
        let first = identity("boot", "node1");
        let cases = [
            ("boot", "node1", Met::Same),
            ("boot", "renamed", Met::Same),
            ("other", "node1", Met::Restarted),
            ("other", "node2", Met::Other),
        ];
        for (machine, host, met) in cases {
            assert_eq!(
                first.meets(&identity(machine, host)),
                met,
                "{machine} {host}"
            );
        }
    }
}
