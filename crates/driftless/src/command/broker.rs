//! The broker that arguments or a job name, and how we log in to it.

use driftless_queue::{Broker, Credentials, Error};
use std::path::Path;

/// Where a broker's password may stand.
const PASSWORD: &str = "DRIFTLESS_QUEUE_PASSWORD";

/// The broker at `url`, with the password from the file of credentials or else from the
/// environment, and with the further certificates of a file. Nothing is sent yet.
pub fn of(url: &str, credentials: Option<&Path>, ca: Option<&Path>) -> Result<Broker, Error> {
    let url = url.parse()?;
    let credentials = match (credentials, std::env::var(PASSWORD)) {
        (Some(path), _) => Credentials::from_file(path)?,
        (None, Ok(password)) => Credentials::from_value(password),
        (None, Err(_)) => return Err(Error::NoPassword),
    };
    let broker = Broker::new(url, credentials)?;
    Ok(match ca {
        Some(path) => broker.with_certificates(certificates(path)?),
        None => broker,
    })
}

/// The user's own file of certificates.
#[allow(
    clippy::disallowed_methods,
    reason = "our own file, no part of a replicated tree"
)]
fn certificates(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| Error::Credentials {
        path: path.to_owned(),
        why: driftless_model::cause(&error),
    })
}
