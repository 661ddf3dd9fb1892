//! What a mirror hears of a real broker, and when it may believe that it has heard all.
#![allow(clippy::disallowed_methods)]

use driftless_announce::{Announcements, Publisher};
use driftless_detect::{Detector, Heard};
use driftless_model::{Change, RelPath, Scope, Stamp};
use driftless_queue::{Broker, Credentials, Exchange, Subscription, TopicMessage, TopicPublisher};
use driftless_sarracenia::{Announced, BaseUrl, Became};
use driftless_testkit::Rabbit;
use driftless_testkit::rabbit::{alone, calm};
use std::time::{Duration, Instant};

/// The longest that anything may take that is expected to happen.
const LIMIT: Duration = Duration::from_secs(300);

fn broker(rabbit: &Rabbit) -> Broker {
    let credentials = Credentials::from_value(Rabbit::PASSWORD);
    let broker = Broker::new(rabbit.url().parse().expect("a URL"), credentials);
    broker.expect("a thread").with_patience(LIMIT)
}

fn base() -> BaseUrl {
    BaseUrl::parse("file:/src").expect("a URL")
}

fn exchange(name: &str) -> Exchange {
    Exchange::new(name).expect("a name")
}

/// Both ends of an exchange of a test's own; the queue is there and nothing is left to be heard.
fn both(rabbit: &Rabbit, name: &str) -> (Publisher, Announcements) {
    let (broker, exchange) = (broker(rabbit), exchange(name));
    let maker = TopicPublisher::new(&broker, &exchange, 1);
    maker.connect(LIMIT).expect("the exchange is made");
    let bindings = ["v03.#".to_owned()];
    let subscription =
        Subscription::new(&format!("q_{name}"), exchange.clone(), &bindings).expect("names");
    let mut announcements =
        Announcements::new(&broker, &subscription, base()).expect("a descriptor");
    let first = hear(&mut announcements);
    assert!(first.missed.is_some() && !first.is_nothing(), "{first:?}");
    assert!(hear(&mut announcements).is_nothing());
    (
        Publisher::new(&broker, &exchange, "v03", base()),
        announcements,
    )
}

/// What it hears once it hears.
fn hear(announcements: &mut Announcements) -> Heard {
    let end = Instant::now() + LIMIT;
    loop {
        match announcements.hear() {
            Ok(heard) => return heard,
            Err(deaf) => assert!(Instant::now() < end, "{deaf}"),
        }
    }
}

fn removed(path: &str) -> Announced {
    Announced {
        path: RelPath::parse(path.as_bytes()).expect("a path"),
        became: Became::Gone {
            was_directory: false,
        },
    }
}

fn announce(publisher: &Publisher, path: &str) {
    let sent = publisher.announce(&removed(path), Stamp::default(), LIMIT);
    sent.expect("accepted");
    publisher.flush(LIMIT).expect("confirmed");
}

#[test]
fn what_was_confirmed_is_heard_before_there_is_nothing() {
    let rabbit = calm();
    let (publisher, mut announcements) = both(&rabbit, "xs_all");
    let mut position = 0;
    for round in 0..50 {
        announce(&publisher, &format!("dir/{round}"));
        // The broker has it: so has the next that is heard.
        let heard = hear(&mut announcements);
        let path = heard.seen.first().map(|seen| seen.change.path.to_string());
        assert_eq!(path, Some(format!("dir/{round}")), "{heard:?}");
        assert_eq!(heard.seen[0].change.scope, Scope::Subtree);
        assert!(heard.position > Some(position), "{heard:?}");
        position = heard.position.expect("a position");
        assert!(hear(&mut announcements).is_nothing());
    }
    announcements.acknowledge(position).expect("acknowledged");
    assert_eq!((publisher.confirmed(), publisher.unheard()), (50, 0));
}

#[test]
fn waiting_ends_with_a_message_and_when_somebody_wakes_it() {
    let rabbit = calm();
    let (publisher, mut announcements) = both(&rabbit, "xs_wait");
    let waker = announcements.waker();
    std::thread::scope(|scope| {
        scope.spawn(|| announce(&publisher, "one"));
        announcements.wait().expect("it waits");
    });
    assert_eq!(hear(&mut announcements).events, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| waker.wake());
        announcements.wait().expect("it waits");
    });
    assert!(hear(&mut announcements).is_nothing());
}

#[test]
fn what_cannot_be_used_is_counted_and_what_follows_is_heard() {
    let rabbit = calm();
    let (publisher, mut announcements) = both(&rabbit, "xs_nonsense");
    let raw = TopicPublisher::new(&broker(&rabbit), &exchange("xs_nonsense"), 10);
    for body in [
        "nonsense",
        "{}",
        "{\"pubTime\":\"20260131T101112\",\"baseUrl\":\"file:/src\",\"relPath\":\"../x\"}",
    ] {
        let message = TopicMessage {
            key: "v03",
            content_type: "application/json",
            content_encoding: "utf-8",
            body: body.as_bytes(),
        };
        raw.publish(&message, LIMIT).expect("accepted");
    }
    raw.flush(LIMIT).expect("confirmed");
    announce(&publisher, "good");
    let (mut unread, mut seen) = (0, Vec::new());
    loop {
        let heard = hear(&mut announcements);
        if heard.is_nothing() {
            break;
        }
        unread += heard.unread;
        seen.extend(heard.seen.into_iter().map(|seen| seen.change));
    }
    assert_eq!(unread, 3);
    let good = Change::subtree(RelPath::parse(b"good").expect("a path"));
    assert_eq!(seen, [good, Change::entry(RelPath::root())]);
}

#[test]
fn a_broker_that_is_away_is_told_and_what_was_not_acknowledged_comes_again() {
    let mut rabbit = alone();
    let (publisher, mut announcements) = both(&rabbit, "xs_away");
    announce(&publisher, "one");
    let first = hear(&mut announcements);
    assert_eq!((first.events, first.position), (1, Some(1)));
    rabbit.settle_declarations();
    rabbit.stop();
    let end = Instant::now() + LIMIT;
    while announcements.hear().is_ok() {
        assert!(Instant::now() < end, "it never notices");
    }
    rabbit.restart();
    let again = hear(&mut announcements);
    assert_eq!((again.events, again.missed), (1, None), "{again:?}");
    assert!(again.position > first.position);
    assert_eq!(again.seen, first.seen);
    announcements.acknowledge(1).expect("nothing of the new");
    announcements.acknowledge(2).expect("acknowledged");
    assert!(hear(&mut announcements).is_nothing());
}

#[test]
fn a_queue_that_is_made_anew_may_have_missed_something() {
    let rabbit = alone();
    let (_publisher, mut announcements) = both(&rabbit, "xs_anew");
    rabbit.control(&["delete_queue", "-p", Rabbit::VHOST, "q_xs_anew"]);
    let end = Instant::now() + LIMIT;
    while hear(&mut announcements).missed.is_none() {
        assert!(Instant::now() < end, "it is never told");
    }
    assert!(hear(&mut announcements).is_nothing());
}
