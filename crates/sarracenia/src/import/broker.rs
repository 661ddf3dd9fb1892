//! Brokers, exchanges and queues, with the names that `sr3` gives them (sr3_options(7)).

use super::given::{Given, Said};
use super::toml::{Table, list};

/// The user of a broker's URL that names none.
const USER: &str = "anonymous";
/// The exchange that subscribers listen to unless they say otherwise.
const PUBLIC: &str = "xpublic";
/// The prefix of topics of version 03.
const PREFIX: &str = "v03";

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
    let host = place.split('/').next().unwrap_or_default();
    let is_plain = |text: &str| !text.contains(|c: char| c.is_whitespace() || c.is_control());
    let is_url = ["amqp", "amqps"].contains(&scheme.as_str()) && is_plain(place) && is_plain(user);
    if !is_url || !is_host(host) {
        return None;
    }
    let user = if user.is_empty() { USER } else { user };
    Some(Broker {
        url: format!("{scheme}://{user}@{place}"),
        user: user.to_owned(),
        had_password: !password.is_empty(),
    })
}

/// A host, perhaps with a port.
fn is_host(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(']') {
        Some((name, rest)) => (name, rest.strip_prefix(':').unwrap_or(rest)),
        None => host.split_once(':').unwrap_or((host, "")),
    };
    !name.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
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
    let user = broker
        .as_ref()
        .map_or(USER, |broker| &broker.user)
        .to_owned();
    let url = broker.as_ref().map(|broker| broker.url.as_str());
    table.set_or_ask("broker", url, "amqp://USER@HOST/VHOST");
    let suffix = given.value("exchangesuffix");
    let exchange = given
        .value("exchange")
        .or_else(|| private(&user, suffix.as_deref()));
    table.set_text("exchange", Some(exchange.as_deref().unwrap_or(PUBLIC)));
    let prefix = given.value("topicprefix");
    table.set_text(
        "topic_prefix",
        prefix.as_deref().filter(|prefix| *prefix != PREFIX),
    );
    let subtopics = given.all("subtopic");
    let subtopics = subtopics.iter().map(|said| said.value.as_str());
    let subtopics: Vec<&str> = subtopics.filter(|subtopic| !subtopic.is_empty()).collect();
    if !subtopics.is_empty() && subtopics != ["#"] {
        table.set("subtopics", list(subtopics));
    }
    let queue = queue(given, &user);
    table.set_text("queue", Some(&queue));
    table.set_or_ask("base_url", base_url, "what messages call the source");
    table
}

/// The queue: the one that is named, or one of the mirror's own. The one that `sr3` would make by
/// itself may still be read by `sr3`.
fn queue(given: &mut Given, user: &str) -> String {
    let share = given.value("queueshare");
    given.variables.set("BROKER_USER", user);
    if let Some(share) = share {
        given.variables.set("QUEUESHARE", &share);
    }
    let own = format!("q_{user}.driftless.{}", given.job_name());
    let Some(said) = given.one("queuename") else {
        return own;
    };
    match given.variables.put_in(&said.value) {
        Ok(name) if !name.is_empty() => super::secret::without(&name),
        _ => {
            given.leave(
                &said,
                "it names a variable that is not known here: the queue is a new one",
            );
            own
        }
    }
}

/// Where what became equal is announced.
pub(super) fn publish(given: &mut Given, base_url: Option<&str>) -> Table {
    let mut table = Table::default();
    let Some(broker) = take(given, "postbroker") else {
        return table;
    };
    table.set_text("broker", Some(&broker.url));
    let suffix = given.value("postexchangesuffix");
    let said: Option<Said> = given.one("postexchange");
    let own = private(&broker.user, suffix.as_deref());
    let exchange = said.map(|said| said.value).or(own);
    let exchange = exchange.unwrap_or_else(|| format!("xs_{}", broker.user));
    table.set_text("exchange", Some(&exchange));
    let prefix = given.value("posttopicprefix");
    table.set_text(
        "topic_prefix",
        prefix.as_deref().filter(|prefix| *prefix != PREFIX),
    );
    table.set_or_ask("base_url", base_url, "what messages are to call the tree");
    table
}

/// The exchange of a user with a suffix.
fn private(user: &str, suffix: Option<&str>) -> Option<String> {
    suffix.map(|suffix| format!("xs_{user}_{suffix}"))
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
