//! The broker at which an agent announces what it hears.

use super::{Failure, failure};
use crate::command::broker;
use crate::exit::Exit;
use driftless_announce::Publisher;
use driftless_model::quote;
use driftless_queue::{Error, Exchange};
use driftless_sarracenia::BaseUrl;
use driftless_watch::Announcing;
use driftless_watch::config::{Config, Publish};
use std::path::Path;

/// What announces, if that is asked for. The trees are without symbolic links. Connects later.
pub fn of(config: &Config) -> Result<Option<Announcing>, Failure> {
    let Some(to) = &config.publish else {
        return Ok(None);
    };
    let trees = config.trees.iter();
    let bases: Vec<BaseUrl> = trees
        .map(|tree| base(config, to, tree))
        .collect::<Result<_, _>>()?;
    let first = bases.first().cloned();
    let first = first.ok_or_else(|| failure(config, "it has no trees"))?;
    let publisher = publisher(to, first).map_err(|error| queue_failure(config, &error))?;
    Ok(Some(Announcing {
        publisher,
        bases,
        broker: to.broker.clone(),
        exchange: to.exchange.clone(),
    }))
}

fn publisher(to: &Publish, base: BaseUrl) -> Result<Publisher, Error> {
    let broker = broker::of(&to.broker, to.credentials.as_deref(), to.ca.as_deref())?;
    let exchange = Exchange::new(&to.exchange)?;
    Ok(Publisher::new(&broker, &exchange, &to.topic_prefix, base))
}

/// What messages call a tree.
fn base(config: &Config, to: &Publish, tree: &Path) -> Result<BaseUrl, Failure> {
    let refuse = |why: String| {
        (
            Exit::Usage,
            format!("{}: publish.base_url: {why}", config.name),
        )
    };
    let url = match (&to.base_url, tree.to_str()) {
        (Some(url), _) => url.clone(),
        (None, Some(path)) => format!("file:{path}"),
        (None, None) => {
            let why = format!(
                "it is missing: the path of the tree is no text ({})",
                quote(tree)
            );
            return Err(refuse(why));
        }
    };
    BaseUrl::parse(&url).map_err(|why| refuse(why.to_string()))
}

/// In a configuration, a password is given otherwise than on the command line.
fn queue_failure(config: &Config, error: &Error) -> Failure {
    let why = match error {
        Error::NoPassword => "publish.credentials: it is missing, and so is \
                              DRIFTLESS_QUEUE_PASSWORD in the environment: there is no password \
                              for the broker"
            .to_owned(),
        error => error.to_string(),
    };
    (Exit::of_queue(error), format!("{}: {why}", config.name))
}
