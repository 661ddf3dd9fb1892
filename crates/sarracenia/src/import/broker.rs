//! Brokers, exchanges and queues, with the names that `sr3` gives them (sr3_options(7)).

use super::given::Given;
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
    let (url, user) = broker.map(|broker| (broker.url, broker.user)).unzip();
    table.set_or_ask("broker", url.as_deref(), "amqp://USER@HOST/VHOST");
    let exchange = match (given.value("exchange"), given.value("exchangesuffix")) {
        (None, Some(suffix)) => user.as_deref().map(|user| private(user, &suffix)),
        (exchange, _) => Some(exchange.unwrap_or_else(|| PUBLIC.to_owned())),
    };
    table.set_or_ask("exchange", exchange.as_deref(), "xs_USER_SUFFIX");
    let prefix = given.value("topicprefix");
    let prefix = prefix.filter(|prefix| prefix != PREFIX);
    table.set_text("topic_prefix", prefix.as_deref());
    let subtopics = given.all("subtopic");
    let subtopics = subtopics.iter().map(|said| said.value.as_str());
    let subtopics: Vec<&str> = subtopics.filter(|subtopic| !subtopic.is_empty()).collect();
    if !subtopics.is_empty() && subtopics != ["#"] {
        table.set("subtopics", list(subtopics));
    }
    let queue = queue(given, user.as_deref());
    table.set_or_ask("queue", queue.as_deref(), "q_USER and a name");
    table.set_or_ask("base_url", base_url, "what messages call the source");
    table
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
    let Some(said) = given.one("queuename") else {
        return own;
    };
    match given.variables.put_in(&said.value) {
        Ok(name) if !name.is_empty() => Some(super::secret::without(&name)),
        _ => {
            let why = "it names a variable that is not known here: the queue is a new one";
            given.leave(&said, why);
            own
        }
    }
}

/// Where what became equal is announced.
pub(super) fn publish(given: &mut Given, base_url: Option<&str>) -> Table {
    let mut table = Table::default();
    let options = ["postexchange", "postexchangesuffix", "posttopicprefix"];
    let Some(broker) = take(given, "postbroker") else {
        for said in given.in_order(&options) {
            given.leave(&said, "nothing is published without post_broker");
        }
        return table;
    };
    let [exchange, suffix, prefix] = options.map(|option| given.value(option));
    let exchange = exchange.unwrap_or_else(|| match suffix {
        Some(suffix) => private(&broker.user, &suffix),
        None => format!("xs_{}", broker.user),
    });
    let prefix = prefix.filter(|prefix| prefix != PREFIX);
    table.set_text("broker", Some(&broker.url));
    table.set_text("exchange", Some(&exchange));
    table.set_text("topic_prefix", prefix.as_deref());
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
