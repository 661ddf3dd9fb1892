//! Movers: hosts that share a run, as the coordinator that gives them their work and as the
//! executor that carries it out.
//!
//! Work comes from RabbitMQ ([`serve_queue`]) or over a connection that the coordinator made
//! ([`serve_stdio`]). Nothing here prints and nothing reads arguments: a mover tells of itself
//! through `tracing`, a coordinator through the [`Witness`](driftless_session::Witness).
#![deny(missing_docs)]

mod executor;
mod hosts;
mod ids;
mod queue;
mod run;

pub use executor::{Executor, Ways};
pub use hosts::OWN;
pub use hosts::exchange::HostsExchange;
pub use hosts::handle::Starting;
pub use hosts::launch::MoverLauncher;
pub use hosts::stdio::{CoordinatorGone, serve as serve_stdio};
pub use ids::id_maps;
pub use queue::exchange::BrokerExchange;
pub use queue::serve::{MoverError, Seat, serve as serve_queue};
pub use queue::{PATIENCE, WORK};
pub use run::{Shared, run};

/// Why nobody tries a batch any more, after so many tries.
fn tried(reason: &str, attempts: u32) -> String {
    let times = if attempts == 1 { "time" } else { "times" };
    format!("{reason} (tried {attempts} {times})")
}
