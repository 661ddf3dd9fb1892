//! Movers that the coordinator starts on other hosts itself, through ssh or srun, and that take
//! their work over the same connections.
//!
//! Where no mover can carry out a batch, the coordinator's own host does.
//!
//! A message goes over a connection as its length (4 bytes, little-endian) and its bytes. A mover
//! first prints a line that says so, because a shell may print something before.

mod alone;
pub mod exchange;
mod frames;
pub mod handle;
pub mod launch;
mod pipe;
pub mod stdio;
mod waiting;

use std::time::Duration;

/// What a mover prints before its first message, followed by the number of its protocol.
const GREETING: &str = "driftless mover ready, protocol ";
/// Name of the coordinator's own host in the place of a mover's.
pub const OWN: &str = "this host";
/// Between two looks at whether the run is over.
const TICK: Duration = Duration::from_millis(50);
