//! Where a job wants it announced what its mirror has changed.

use super::{Failure, detectors};
use crate::command::broker;
use crate::exit::Exit;
use crate::own::real_place;
use driftless_announce::Publisher;
use driftless_mirror::clock::by_clock;
use driftless_mirror::herald::{Herald, Untold};
use driftless_mirror::job::{Job, Publish};
use driftless_model::{Stamp, escape};
use driftless_queue::Error;
use driftless_sarracenia::{Announced, BaseUrl};
use std::time::Duration;

/// Whether it can be announced; nothing is sent.
pub fn check(job: &Job) -> Result<(), Failure> {
    for one in job.apart() {
        let _not_connected = herald(&one)?;
    }
    Ok(())
}

/// Who announces what is changed on the one replica of a job, where it wants that. Connects later.
pub fn herald(job: &Job) -> Result<Option<Box<dyn Herald>>, Failure> {
    let Some(to) = &job.publish else {
        return Ok(None);
    };
    let base = base(job, to)?;
    let place = format!("{} {} {}", to.exchange, to.topic_prefix, base.as_str());
    let publisher = broker::publisher(to, base)
        .map_err(|error| broker::failure((&job.name, "publish"), &error))?;
    Ok(Some(Box::new(ByBroker { publisher, place })))
}

/// What messages call the replica.
fn base(job: &Job, to: &Publish) -> Result<BaseUrl, Failure> {
    let refuse = |why: String| (Exit::Usage, format!("{}: publish.{why}", job.name));
    let url = match (&to.base_url, detectors::own_path(job, &job.replicas[0])?) {
        (Some(url), _) => url.clone(),
        (None, Some(replica)) => broker::url_of(&real_place(&replica), "replica")
            .map_err(|why| refuse(format!("base_url: {why}")))?,
        (None, None) => {
            let replica = escape(job.replicas[0].as_bytes());
            let is_alone = job.own_name() == job.name;
            let hint = match is_alone {
                true => "",
                false => ", and one of several cannot have one: give it a job of its own",
            };
            return Err(refuse(format!(
                "base_url: it is missing: the replica {replica} is on another host, and messages need a name for it{hint}"
            )));
        }
    };
    BaseUrl::parse(&url).map_err(|why| refuse(format!("base_url: {why}")))
}

/// Tells through a broker.
struct ByBroker {
    publisher: Publisher,
    place: String,
}

impl Herald for ByBroker {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn connect(&mut self, limit: Duration) -> Result<(), String> {
        self.publisher
            .connect(limit)
            .map_err(|error| error.to_string())
    }

    fn tell(&mut self, announced: &Announced, limit: Duration) -> Result<(), Untold> {
        let told = self.publisher.announce(announced, stamp(by_clock()), limit);
        told.map(drop).map_err(|error| match error {
            Error::TooLarge { .. } | Error::Name { .. } => Untold::Never(error.to_string()),
            error => Untold::Away(error.to_string()),
        })
    }

    fn settle(&mut self, limit: Duration) -> Result<(), String> {
        self.publisher
            .flush(limit)
            .map_err(|error| error.to_string())
    }

    fn confirmed(&self) -> u64 {
        self.publisher.confirmed()
    }

    fn unheard(&self) -> u64 {
        self.publisher.unheard()
    }
}

fn stamp(since: Duration) -> Stamp {
    Stamp {
        sec: since.as_secs().cast_signed(),
        nsec: since.subsec_nanos(),
    }
}
