//! The announcements of a broker that a job asks for.

use super::Failure;
use crate::command::broker;
use crate::exit::Exit;
use driftless_announce::{Announcements, Talk};
use driftless_detect::{Detector, Sharing};
use driftless_mirror::job::{self, Job};
use driftless_queue::{Broker, Error, Exchange, Subscription};
use driftless_sarracenia::{BaseUrl, binding};
use std::path::Path;
use std::sync::Arc;

/// What hears them. `source` is the path of the source on this host, if it is here; `pool` as
/// [`Announcements::in_pool`] takes it, where the queue may be shared. Connects later.
pub fn detector(
    job: &Job,
    from: &job::Announcements,
    (source, pool): (Option<&Path>, Option<(Arc<Sharing>, bool)>),
) -> Result<Box<dyn Detector>, Failure> {
    let base = base(job, from, source)?;
    let of_queue = |error: Error| broker::failure((&job.name, "announcements"), &error);
    let broker = broker_of(from).map_err(of_queue)?;
    let subscription = subscription(from).map_err(of_queue)?;
    let heard = match pool {
        None => Announcements::new(&broker, &subscription, base),
        Some(pool) => Announcements::in_pool(&broker, &subscription, base, pool),
    };
    let heard = heard.map_err(|deaf| (Exit::CouldNotRun, format!("{}: {deaf}", job.name)))?;
    Ok(Box::new(heard))
}

/// The talk of those who share the queue of a job; `(leads, own)` as [`Talk::of`] takes them.
pub fn talk(job: &Job, who: (bool, u64)) -> Result<Talk, Failure> {
    let from = job.announcements.as_ref();
    let from = from.expect("only a job with announcements has a pool");
    let broker = broker_of(from).and_then(|broker| Talk::of(&broker, &from.queue, who));
    broker.map_err(|error| broker::failure((&job.name, "announcements"), &error))
}

/// Which announcements a job hears, and what they call the source: the exchange, the name, and the
/// bindings of the queue.
pub fn heard_as(
    job: &Job,
    from: &job::Announcements,
    source: Option<&Path>,
) -> Result<String, Failure> {
    let of_queue = |error: Error| broker::failure((&job.name, "announcements"), &error);
    let subscription = subscription(from).map_err(of_queue)?;
    let base = base(job, from, source)?;
    let (exchange, bindings) = (subscription.exchange().name(), subscription.bindings());
    Ok(format!(
        "{} at {exchange}, {}",
        base.as_str(),
        bindings.join(" ")
    ))
}

fn broker_of(from: &job::Announcements) -> Result<Broker, Error> {
    broker::of(
        &from.broker,
        from.credentials.as_deref(),
        from.ca.as_deref(),
    )
}

fn subscription(from: &job::Announcements) -> Result<Subscription, Error> {
    let exchange = Exchange::new(&from.exchange)?;
    let bind = |subtopic: &String| binding(&from.topic_prefix, subtopic);
    let bindings: Vec<String> = from.subtopics.iter().map(bind).collect();
    Subscription::new(&from.queue, exchange, &bindings)
}

/// What messages call the source.
fn base(job: &Job, from: &job::Announcements, source: Option<&Path>) -> Result<BaseUrl, Failure> {
    let refuse = |why: String| (Exit::Usage, format!("{}: announcements.{why}", job.name));
    let url = match (&from.base_url, source) {
        (Some(url), _) => url.clone(),
        (None, Some(source)) => {
            broker::url_of(source, "source").map_err(|why| refuse(format!("base_url: {why}")))?
        }
        (None, None) => {
            let why = "base_url: it is missing: the source is on another host, and messages have a name of their own for it";
            return Err(refuse(why.into()));
        }
    };
    BaseUrl::parse(&url).map_err(|why| refuse(format!("base_url: {why}")))
}
