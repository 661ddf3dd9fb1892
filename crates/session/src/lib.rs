//! A run whose trees are on other hosts: it connects to them, and connects again and goes on when a
//! connection is lost.
//!
//! Nothing here prints and nothing reads arguments; who watches a run is a [`Witness`].
#![deny(missing_docs)]

mod connect;
mod earlier;
mod met_mounts;
mod patience;
mod reconnect;

pub use connect::{ConnectError, Connections, connect};
pub use earlier::Earlier;
pub use reconnect::{Before, Passed, Witness, lost_words, made_words, repeat, sync};
