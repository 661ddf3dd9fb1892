//! The node of one cast.

use crate::{Error, NodeSettings};
use std::io::{BufRead, Write};
use std::sync::atomic::AtomicBool;

/// Serves the cast whose coordinator is at the other end of `input` and `output`, until the cast
/// ends, the coordinator is gone, or `stop` is set.
///
/// Writes the greeting with the key and addresses of this node to `output`, and reads the key of the
/// coordinator from `input`. Everything else goes over connections of the data plane. A later end of
/// `input` ends the node.
///
/// # Errors
/// Fails if the store cannot be opened, no port is free, or the pipe breaks before the exchange. An
/// error of the cast itself goes to the coordinator.
pub fn serve_one_cast(
    _settings: &NodeSettings,
    _input: impl BufRead + Send + 'static,
    _output: impl Write,
    _stop: &AtomicBool,
) -> Result<(), Error> {
    Err(Error::Stopped)
}
