//! The broker that arguments or a job name, and how we log in to it.

use crate::exit::Exit;
use driftless_announce::Publisher;
use driftless_mirror::job::Publish;
use driftless_model::quote;
use driftless_queue::{Broker, Credentials, Error, Exchange};
use driftless_sarracenia::BaseUrl;
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

/// Who publishes where the table `[publish]` says, of the tree that messages call `base`. Connects
/// later.
pub fn publisher(to: &Publish, base: BaseUrl) -> Result<Publisher, Error> {
    let broker = of(&to.broker, to.credentials.as_deref(), to.ca.as_deref())?;
    let exchange = Exchange::new(&to.exchange)?;
    Ok(Publisher::new(&broker, &exchange, &to.topic_prefix, base))
}

/// What messages call a tree of this host, where nothing else is said; why that cannot be, for the
/// key `base_url`.
pub fn url_of(tree: &Path, what: &str) -> Result<String, String> {
    let text = tree.to_str().map(|text| format!("file:{text}"));
    text.ok_or_else(|| {
        let shown = quote(tree);
        format!("it is missing: the path of the {what} is no text ({shown})")
    })
}

/// Why the broker that a table of a file names cannot be used, and the file `name` not be followed: a
/// password is given there otherwise than on the command line.
pub fn failure((name, table): (&str, &str), error: &Error) -> (Exit, String) {
    let why = match error {
        Error::NoPassword => format!(
            "{table}.credentials: it is missing, and so is DRIFTLESS_QUEUE_PASSWORD in the \
             environment: there is no password for the broker"
        ),
        error => error.to_string(),
    };
    (Exit::of_queue(error), format!("{name}: {why}"))
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
