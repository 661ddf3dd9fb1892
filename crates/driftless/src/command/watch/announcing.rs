//! The broker at which an agent announces what it hears.

use super::{Failure, failure};
use crate::command::broker;
use crate::exit::Exit;
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
    let publisher = broker::publisher(to, first)
        .map_err(|error| broker::failure((&config.name, "publish"), &error))?;
    Ok(Some(Announcing {
        publisher,
        bases,
        broker: to.broker.clone(),
        exchange: to.exchange.clone(),
    }))
}

/// What messages call a tree.
fn base(config: &Config, to: &Publish, tree: &Path) -> Result<BaseUrl, Failure> {
    let refuse = |why: String| {
        (
            Exit::Usage,
            format!("{}: publish.base_url: {why}", config.name),
        )
    };
    let url = match &to.base_url {
        Some(url) => url.clone(),
        None => broker::url_of(tree, "tree").map_err(refuse)?,
    };
    BaseUrl::parse(&url).map_err(|why| refuse(why.to_string()))
}
