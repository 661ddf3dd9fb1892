//! Brokers, exchanges and queues, with the names that `sr3` gives them (sr3_options(7)).

use super::given::Given;
use super::toml::{Table, list};
use super::trees::Trees;
use super::{fit, secret};

/// The user of a broker's URL that names none.
const USER: &str = "anonymous";
/// The exchange that subscribers listen to unless they say otherwise.
const PUBLIC: &str = "xpublic";
/// The prefix of topics of version 03.
const PREFIX: &str = "v03";

/// Subtopics of a job at most.
const SUBTOPICS_MAX: usize = 100;

const MANY_SUBTOPICS: &str = "a job has 100 of them at most";
const NO_FOLDER: &str = "the tree does not lie in the folder that it names: write base_url into the \
                         job";
const NO_BROKER: &str = "no URL of a broker of AMQP: amqp://USER@HOST/VHOST or amqps://";
const PASSWORD: &str = "its password is not in the job: a file of credentials has it";

/// A broker, without a password.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Broker {
    url: String,
    user: String,
    had_password: bool,
}

/// Reads a broker's URL. Nothing of one that cannot be read is told: it may be a password.
fn broker(value: &str) -> Option<Broker> {
    let (scheme, rest) = value.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let (login, place) = rest.rsplit_once('@').unwrap_or((USER, rest));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let place = place.split(['?', '#']).next().unwrap_or_default();
    let (host, vhost) = match place.split_once('/') {
        Some((host, vhost)) => (host, format!("/{}", fit::vhost(vhost)?)),
        None => (place, String::new()),
    };
    let is_known = ["amqp", "amqps"].contains(&scheme.as_str());
    if !is_known || !fit::is_user(user) || !fit::is_host(host) {
        return None;
    }
    let user = if user.is_empty() { USER } else { user };
    Some(Broker {
        url: format!("{scheme}://{user}@{host}{vhost}"),
        user: user.to_owned(),
        had_password: !password.is_empty(),
    })
}

/// Takes the broker of an option.
fn take(given: &mut Given, option: &'static str) -> Option<Broker> {
    let said = given.one(option)?;
    let found = broker(&said.value);
    match &found {
        None => given.leave(&said, NO_BROKER),
        Some(broker) if broker.had_password => given.leave(&said, PASSWORD),
        Some(_) => {}
    }
    found
}

/// What a mirror listens to, of the tree that messages call `base_url`.
pub(super) fn announcements(given: &mut Given, base_url: Option<&str>) -> Table {
    let mut table = Table::default();
    let broker = take(given, "broker");
    let (url, user) = broker.map(|broker| (broker.url, broker.user)).unzip();
    table.set_or_ask("broker", url.as_deref(), "amqp://USER@HOST/VHOST");
    let own = Some(PUBLIC.to_owned());
    let exchange = exchange(given, ["exchange", "exchangesuffix"], user.as_deref(), own);
    table.set_or_ask("exchange", exchange.as_deref(), "xs_USER_SUFFIX");
    let prefix = prefix(given, "topicprefix");
    table.set_text("topic_prefix", prefix.as_deref());
    let subtopics = subtopics(given);
    if !subtopics.is_empty() && subtopics != ["#"] {
        table.set("subtopics", list(subtopics.iter().map(String::as_str)));
    }
    let queue = queue(given, user.as_deref());
    table.set_or_ask("queue", queue.as_deref(), "q_USER and a name");
    table.set_or_ask("base_url", base_url, "what messages call the source");
    table
}

/// The exchange that is named, or that of a user with a suffix, or else `own`.
fn exchange(
    given: &mut Given,
    [named, suffix]: [&'static str; 2],
    user: Option<&str>,
    own: Option<String>,
) -> Option<String> {
    let (named, suffix) = (given.one(named), given.one(suffix));
    let (said, exchange) = match (named, suffix) {
        (Some(said), _) => (said.clone(), said.value),
        (None, Some(said)) => (said.clone(), private(user?, &said.value)),
        (None, None) => return own.filter(|own| fit::name(own).is_ok()),
    };
    let why = fit::name(&exchange).err();
    why.into_iter().for_each(|why| given.leave(&said, why));
    why.is_none().then_some(exchange)
}

/// What topics begin with, where it is not what they begin with without being told. Its parts may
/// stand between slashes there.
fn prefix(given: &mut Given, option: &'static str) -> Option<String> {
    let said = given.one(option)?;
    let prefix = said.value.replace('/', ".");
    let why = match said.is_nothing() {
        true => Some("topics have to begin with something"),
        false => fit::name(&prefix).err(),
    };
    why.into_iter().for_each(|why| given.leave(&said, why));
    (why.is_none() && prefix != PREFIX).then_some(prefix)
}

/// The topics that are wanted.
fn subtopics(given: &mut Given) -> Vec<String> {
    let mut subtopics = Vec::new();
    for said in given.all("subtopic") {
        match fit::name(&said.value) {
            Err(why) => given.leave(&said, why),
            Ok(()) if subtopics.contains(&said.value) => {}
            Ok(()) if subtopics.len() == SUBTOPICS_MAX => given.leave(&said, MANY_SUBTOPICS),
            Ok(()) => subtopics.push(said.value),
        }
    }
    subtopics
}

/// The queue: the one that is named, or one of the mirror's own. The one that `sr3` would make by
/// itself may still be read by `sr3`.
fn queue(given: &mut Given, user: Option<&str>) -> Option<String> {
    if let Some(user) = user {
        given.variables.set("BROKER_USER", user);
    }
    if let Some(share) = given.value("queueshare") {
        given.variables.set("QUEUESHARE", &share);
    }
    let own = user.map(|user| format!("q_{user}.driftless.{}", given.job_name()));
    let own = own.filter(|own| fit::name(own).is_ok());
    let Some(said) = given.one("queuename") else {
        return own;
    };
    let named = given.variables.put_in(&said.value);
    let named = named.map_err(|_| "it names a variable that is not known here");
    let named = named.and_then(|name| fit::name(&name).map(|()| secret::without(&name)));
    match named {
        Ok(name) => Some(name),
        Err(why) => {
            given.leave(&said, &format!("{why}: the queue is a new one"));
            own
        }
    }
}

/// Where what became equal is announced.
pub(super) fn publish(given: &mut Given, trees: &Trees) -> Table {
    let mut table = Table::default();
    let Some(broker) = take(given, "postbroker") else {
        let options = ["postexchange", "postexchangesuffix", "posttopicprefix"];
        let said = given.in_order(&options).into_iter();
        for said in said.chain(trees.told_by.clone()) {
            given.leave(&said, "nothing is published without post_broker");
        }
        return table;
    };
    let user = broker.user.as_str();
    let own = Some(format!("xs_{user}"));
    let options = ["postexchange", "postexchangesuffix"];
    let exchange = exchange(given, options, Some(user), own);
    let prefix = prefix(given, "posttopicprefix");
    table.set_text("broker", Some(&broker.url));
    table.set_or_ask("exchange", exchange.as_deref(), "xs_USER");
    table.set_text("topic_prefix", prefix.as_deref());
    if let (Some(said), None) = (&trees.told_by, &trees.told_as) {
        let why = fit::base_url(&said.value).err();
        given.leave(said, why.unwrap_or(NO_FOLDER));
    }
    let base_url = trees.told_as.as_deref();
    table.set_or_ask("base_url", base_url, "what messages are to call the tree");
    table
}

/// The exchange of a user with a suffix.
fn private(user: &str, suffix: &str) -> String {
    format!("xs_{user}_{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_has_no_password_any_more() {
        for (text, expected) in [
            ("amqp://u:pw@host/", Some("amqp://u@host/")),
            ("amqps://u:p@w/x@host:5671/v", Some("amqps://u@host:5671/v")),
            ("amqps://host", Some("amqps://anonymous@host")),
            ("amqp://u@[::1]:5672", Some("amqp://u@[::1]:5672")),
            ("amqp://u@h//a/b/", Some("amqp://u@h/a%2fb")),
            ("amqp://u@h:99999", None),
            ("amqp://a/b@h", None),
            ("amqp://u%ff@h", None),
            ("AMQP://u@host?x=y", Some("amqp://u@host")),
            ("mqtt://u:pw@host", None),
            ("amqp://u:secret", None),
            ("amqp://u:pw@", None),
            ("amqp://a b@host", None),
            ("host", None),
        ] {
            let found = broker(text).map(|broker| broker.url);
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
