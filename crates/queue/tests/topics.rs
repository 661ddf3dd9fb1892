//! What exchanges and the queues bound to them promise, against a real broker that is restarted and
//! whose users may do little.
//!
//! All tests share one broker. Those that disturb it have it for themselves.
#![allow(clippy::disallowed_methods)]

use driftless_queue::{
    Broker, Credentials, Error, Exchange, Subscription, TopicConsumer, TopicDelivery, TopicMessage,
    TopicPublisher, Url,
};
use driftless_testkit::rabbit::{alone, calm};
use driftless_testkit::{Rabbit, Relay};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The longest that anything may take that is expected to happen.
const LIMIT: Duration = Duration::from_secs(400);
/// How long a test waits for what must not happen.
const NOTHING: Duration = Duration::from_millis(300);
/// Messages that may be on their way, and handed out.
const WINDOW: u16 = 1000;

fn broker_as(url: &str, password: &str) -> Broker {
    let url: Url = url.parse().expect("a URL");
    let credentials = Credentials::from_value(password);
    let broker = Broker::new(url, credentials).expect("a thread");
    broker.with_patience(LIMIT)
}

fn broker(rabbit: &Rabbit) -> Broker {
    broker_as(&rabbit.url(), Rabbit::PASSWORD)
}

fn exchange(name: &str) -> Exchange {
    Exchange::new(name).expect("a name")
}

/// The queue `q_NAME` for all of an exchange.
fn all_of(name: &str) -> Subscription {
    let bindings = ["v03.#".to_owned()];
    Subscription::new(&format!("q_{name}"), exchange(name), &bindings).expect("a subscription")
}

/// A publisher whose exchange is there.
fn publisher(broker: &Broker, name: &str) -> TopicPublisher {
    let publisher = TopicPublisher::new(broker, &exchange(name), WINDOW.into());
    publisher.connect(LIMIT).expect("connected");
    publisher
}

/// A consumer whose queue is there and bound.
fn consumer(broker: &Broker, name: &str) -> TopicConsumer {
    let mut consumer = TopicConsumer::new(broker, &all_of(name), WINDOW);
    let end = Instant::now() + LIMIT;
    while !consumer.is_connected() {
        assert!(Instant::now() < end, "it never connects");
        let heard = consumer.next(Duration::from_millis(10)).expect("let in");
        assert!(heard.is_none(), "the queue is empty");
    }
    consumer
}

fn message<'a>(key: &'a str, body: &'a str) -> TopicMessage<'a> {
    TopicMessage {
        key,
        content_type: "application/json",
        content_encoding: "utf-8",
        body: body.as_bytes(),
    }
}

fn publish(publisher: &TopicPublisher, key: &str, body: &str) -> u64 {
    publisher
        .publish(&message(key, body), LIMIT)
        .expect("accepted")
}

fn next(consumer: &mut TopicConsumer) -> TopicDelivery {
    let heard = consumer.next(LIMIT).expect("a connection");
    heard.expect("a message")
}

fn text(delivery: &TopicDelivery) -> String {
    String::from_utf8(delivery.body.clone()).expect("text")
}

#[test]
fn a_message_arrives_with_all_that_was_said_of_it() {
    let rabbit = calm();
    let broker = broker(&rabbit);
    let publisher = publisher(&broker, "xs_whole");
    let mut consumer = consumer(&broker, "xs_whole");
    assert_eq!(publish(&publisher, "v03.a b.ä", "{}"), 0);
    let heard = next(&mut consumer);
    let expected = TopicDelivery {
        number: 0,
        body: b"{}".to_vec(),
        content_type: "application/json".into(),
        headers: Vec::new(),
        exchange: "xs_whole".into(),
        key: "v03.a b.ä".into(),
        is_redelivered: false,
    };
    assert_eq!(heard, expected);
    publisher.flush(LIMIT).expect("confirmed");
    assert_eq!((publisher.confirmed(), publisher.outstanding()), (1, 0));
    assert_eq!(publisher.unheard(), 0);
}

#[test]
fn only_bound_topics_are_heard_and_what_nobody_hears_is_counted_and_let_go() {
    let rabbit = calm();
    let broker = broker(&rabbit);
    let publisher = publisher(&broker, "xs_bound");
    let bindings = ["v03.hubs.#".to_owned(), "v03.one.*".to_owned()];
    let subscription =
        Subscription::new("q_bound", exchange("xs_bound"), &bindings).expect("a subscription");
    let mut consumer = TopicConsumer::new(&broker, &subscription, WINDOW);
    assert!(consumer.next(NOTHING).expect("a connection").is_none());
    while !consumer.is_connected() {
        consumer.next(NOTHING).expect("a connection");
    }
    for key in [
        "v03",
        "v03.hubs",
        "v03.hubsy",
        "v03.hubs.a.b",
        "v03.one.a.b",
        "v03.one.a",
    ] {
        publish(&publisher, key, key);
    }
    publisher.flush(LIMIT).expect("confirmed");
    assert_eq!((publisher.confirmed(), publisher.unheard()), (6, 3));
    for key in ["v03.hubs", "v03.hubs.a.b", "v03.one.a"] {
        assert_eq!(text(&next(&mut consumer)), key);
    }
    assert!(consumer.next(NOTHING).expect("a connection").is_none());
}

#[test]
fn what_was_acknowledged_up_to_a_number_is_gone_and_the_rest_comes_again() {
    let rabbit = calm();
    let broker = broker(&rabbit);
    let publisher = publisher(&broker, "xs_upto");
    let mut first = consumer(&broker, "xs_upto");
    (0..5).for_each(|index| _ = publish(&publisher, "v03", &index.to_string()));
    let heard: Vec<_> = (0..5).map(|_| next(&mut first)).collect();
    let acknowledger = first.acknowledger();
    acknowledger
        .acknowledge(heard[2].number)
        .expect("acknowledged");
    acknowledger
        .acknowledge(heard[1].number)
        .expect("nothing to do");
    assert_eq!(acknowledger.unacknowledged(), 2);
    drop(first);
    let mut second = TopicConsumer::new(&broker, &all_of("xs_upto"), WINDOW);
    for expected in ["3", "4"] {
        let again = next(&mut second);
        assert_eq!(
            (text(&again), again.is_redelivered),
            (expected.into(), true)
        );
    }
    assert!(!second.was_queue_made(), "it was there");
    assert!(matches!(
        acknowledger.acknowledge(9),
        Ok(()) | Err(Error::Stale)
    ));
}

#[test]
fn numbers_rise_over_connections_and_old_ones_acknowledge_nothing_of_the_new() {
    let mut rabbit = alone();
    let broker = broker(&rabbit);
    let publisher = publisher(&broker, "xs_rise");
    let mut consumer = consumer(&broker, "xs_rise");
    let acknowledger = consumer.acknowledger();
    for body in ["one", "two"] {
        publish(&publisher, "v03", body);
    }
    publisher.flush(LIMIT).expect("confirmed");
    let old = [next(&mut consumer), next(&mut consumer)];
    rabbit.settle_declarations();
    rabbit.stop();
    rabbit.restart();
    let new = [next(&mut consumer), next(&mut consumer)];
    assert_eq!(new.clone().map(|one| text(&one)), ["one", "two"]);
    assert!(new[0].number > old[1].number && new[1].number > new[0].number);
    acknowledger
        .acknowledge(old[1].number)
        .expect("nothing to do");
    assert_eq!(acknowledger.unacknowledged(), 2);
    acknowledger
        .acknowledge(new[1].number)
        .expect("acknowledged");
    drop(consumer);
    let mut later = TopicConsumer::new(&broker, &all_of("xs_rise"), WINDOW);
    assert!(
        later
            .next(Duration::from_secs(2))
            .expect("let in")
            .is_none()
    );
}

#[test]
fn what_was_accepted_while_the_broker_was_away_arrives() {
    let mut rabbit = alone();
    let broker = broker(&rabbit);
    let publisher = publisher(&broker, "xs_away");
    let mut consumer = consumer(&broker, "xs_away");
    (0..50).for_each(|index| _ = publish(&publisher, "v03", &index.to_string()));
    rabbit.settle_declarations();
    rabbit.stop();
    for index in 50..100 {
        let body = index.to_string();
        let accepted = publisher.publish(&message("v03", &body), NOTHING);
        assert_eq!(accepted.expect("there is room"), index);
    }
    assert!(publisher.confirmed() < 100);
    rabbit.restart();
    publisher.flush(LIMIT).expect("confirmed");
    assert_eq!(publisher.confirmed(), 100);
    let mut heard = BTreeSet::new();
    while heard.len() < 100 {
        heard.insert(text(&next(&mut consumer)));
    }
}

/// Has a queue take so many messages and refuse the rest.
fn limit_queue(rabbit: &Rabbit, queue: &str, messages_max: u64) {
    let limits = format!(r#"{{"max-length":{messages_max},"overflow":"reject-publish"}}"#);
    let name = format!("^{queue}$");
    let policy = ["set_policy", "-p", Rabbit::VHOST, "full", &name, &limits];
    rabbit.control(&[&policy[..], &["--apply-to", "queues"]].concat());
}

#[test]
fn what_one_queue_refuses_is_sent_again_after_pauses_and_the_others_get_little_of_it() {
    const COUNT: u64 = 50;
    let rabbit = calm();
    let broker = broker(&rabbit);
    let publisher = publisher(&broker, "xs_refused");
    let mut other = consumer(&broker, "xs_refused");
    let full = Subscription::new("q_full", exchange("xs_refused"), &["v03.#".to_owned()]);
    let full = full.expect("a subscription");
    let mut consumer = TopicConsumer::new(&broker, &full, WINDOW);
    while !consumer.is_connected() {
        let none = consumer.next(Duration::from_millis(10)).expect("let in");
        assert!(none.is_none(), "the queue is empty");
    }
    drop(consumer);
    limit_queue(&rabbit, "q_full", 1);
    for number in 0..COUNT {
        publish(&publisher, "v03", &number.to_string());
    }
    let mut told = 0;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        // As an agent does.
        let _unless_refused = publisher.connect(Duration::from_millis(10));
        told += u64::from(publisher.flush(Duration::from_millis(4)).is_err());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(told > 0 && publisher.confirmed() < COUNT);
    let mut heard = 0;
    while other
        .next(Duration::from_millis(500))
        .expect("let in")
        .is_some()
    {
        heard += 1;
    }
    assert!((COUNT..2 * COUNT).contains(&heard), "{heard}");
    // Once there is room, all arrive.
    limit_queue(&rabbit, "q_full", 1_000_000);
    let began = Instant::now();
    while publisher.flush(Duration::from_secs(1)).is_err() {
        assert!(began.elapsed() < LIMIT, "it is never taken");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(publisher.confirmed(), COUNT);
    let mut consumer = TopicConsumer::new(&broker, &full, WINDOW);
    let mut arrived = std::collections::BTreeSet::new();
    while arrived.len() as u64 != COUNT {
        arrived.insert(text(&next(&mut consumer)));
    }
    rabbit.control(&["clear_policy", "-p", Rabbit::VHOST, "full"]);
}

#[test]
fn a_queue_is_shared_and_its_messages_come_to_one_each() {
    let rabbit = calm();
    let broker = broker(&rabbit);
    let publisher = publisher(&broker, "xs_shared");
    let subscription = all_of("xs_shared");
    let mut pair = [(); 2].map(|()| {
        let mut one = TopicConsumer::new(&broker, &subscription, 10);
        while !one.is_connected() {
            assert!(one.next(NOTHING).expect("let in").is_none());
        }
        one
    });
    assert_eq!(pair[0].count(LIMIT).expect("an answer").consumers, 2);
    (0..200).for_each(|index| _ = publish(&publisher, "v03", &index.to_string()));
    let mut shares = [Vec::new(), Vec::new()];
    let end = Instant::now() + LIMIT;
    while shares.iter().map(Vec::len).sum::<usize>() < 200 {
        assert!(Instant::now() < end, "{} arrived", shares[0].len());
        for (consumer, share) in pair.iter_mut().zip(&mut shares) {
            if let Some(one) = consumer.next(Duration::from_millis(5)).expect("let in") {
                share.push(text(&one));
                let acknowledged = consumer.acknowledger().acknowledge(one.number);
                acknowledged.expect("acknowledged");
            }
        }
    }
    let all: BTreeSet<_> = shares.iter().flatten().collect();
    assert_eq!(all.len(), 200, "each came once");
    assert!(shares.iter().all(|share| share.len() > 20), "{shares:?}");
}

#[test]
fn no_more_is_handed_out_than_the_prefetch_until_some_is_acknowledged() {
    let rabbit = calm();
    let broker = broker(&rabbit);
    let publisher = publisher(&broker, "xs_few");
    let mut consumer = TopicConsumer::new(&broker, &all_of("xs_few"), 2);
    assert!(consumer.next(NOTHING).expect("let in").is_none());
    while !consumer.is_connected() {
        consumer.next(NOTHING).expect("let in");
    }
    for body in ["1", "2", "3"] {
        publish(&publisher, "v03", body);
    }
    let (_, second) = (next(&mut consumer), next(&mut consumer));
    assert!(consumer.next(NOTHING).expect("let in").is_none());
    let acknowledged = consumer.acknowledger().acknowledge(second.number);
    acknowledged.expect("acknowledged");
    assert_eq!(text(&next(&mut consumer)), "3");
}

#[test]
fn a_queue_that_was_made_anew_is_told_once() {
    let rabbit = alone();
    let broker = broker(&rabbit);
    let publisher = publisher(&broker, "xs_anew");
    let mut consumer = consumer(&broker, "xs_anew");
    assert!(consumer.was_queue_made() && !consumer.was_queue_made());
    rabbit.control(&["delete_queue", "-p", Rabbit::VHOST, "q_xs_anew"]);
    let end = Instant::now() + LIMIT;
    while !consumer.was_queue_made() {
        assert!(Instant::now() < end, "it is never made");
        assert!(consumer.next(NOTHING).expect("let in").is_none());
    }
    publish(&publisher, "v03", "after");
    assert_eq!(text(&next(&mut consumer)), "after");
}

#[test]
fn queue_and_exchange_that_are_there_are_used_as_they_are() {
    let rabbit = calm();
    let (broker, vhost) = (broker(&rabbit), Rabbit::VHOST);
    // Both with arguments that we would not give them.
    let eval = format!(
        "X = rabbit_misc:r(<<\"{vhost}\">>, exchange, <<\"xs_other\">>), \
         rabbit_exchange:declare(X, topic, true, false, false, \
             [{{<<\"alternate-exchange\">>, longstr, <<\"amq.fanout\">>}}], <<\"test\">>), \
         Q = rabbit_misc:r(<<\"{vhost}\">>, queue, <<\"q_xs_other\">>), \
         rabbit_amqqueue:declare(Q, true, false, \
             [{{<<\"x-expires\">>, signedint, 3600000}}], none, <<\"test\">>)."
    );
    rabbit.control(&["eval", &eval]);
    let publisher = publisher(&broker, "xs_other");
    let mut consumer = consumer(&broker, "xs_other");
    assert!(!consumer.was_queue_made(), "it was there");
    publish(&publisher, "v03", "through");
    assert_eq!(text(&next(&mut consumer)), "through");
}

#[test]
fn a_subscriber_needs_no_right_to_make_the_exchange() {
    let rabbit = calm();
    let publisher = publisher(&broker(&rabbit), "xs_rights");
    rabbit.control(&["add_user", "reader", "secret"]);
    let (own, read) = ("^q_reader.*", "^q_reader.*|^xs_.*");
    rabbit.control(&[
        "set_permissions",
        "-p",
        Rabbit::VHOST,
        "reader",
        own,
        own,
        read,
    ]);
    let url = rabbit.url().replace(Rabbit::USER, "reader");
    let reader = broker_as(&url, "secret");
    let bindings = ["v03.#".to_owned()];
    let subscription = |queue: &str, from: &str| {
        Subscription::new(queue, exchange(from), &bindings).expect("a subscription")
    };
    let mut consumer = TopicConsumer::new(&reader, &subscription("q_reader.x", "xs_rights"), 10);
    while !consumer.is_connected() {
        assert!(consumer.next(NOTHING).expect("let in").is_none());
    }
    publish(&publisher, "v03", "heard");
    assert_eq!(text(&next(&mut consumer)), "heard");
    // What it may not have is refused at once.
    let mut thief = TopicConsumer::new(&reader, &subscription("q_other", "xs_rights"), 10);
    let refused = thief.next(LIMIT).expect_err("it is not allowed");
    assert!(
        matches!(&refused, Error::Queue { queue, .. } if queue == "q_other"),
        "{refused}"
    );
    let forger = TopicPublisher::new(&reader, &exchange("xs_forged"), 10);
    let refused = forger.connect(LIMIT).expect_err("it is not allowed");
    assert!(
        matches!(&refused, Error::Queue { queue, .. } if queue == "xs_forged"),
        "{refused}"
    );
}

#[test]
fn a_subscriber_waits_for_an_exchange_that_is_not_there_yet() {
    let rabbit = calm();
    let broker = broker(&rabbit);
    let mut consumer = TopicConsumer::new(&broker, &all_of("xs_later"), 10);
    assert!(consumer.next(NOTHING).expect("it waits").is_none());
    let end = Instant::now() + LIMIT;
    while !consumer
        .last_failure()
        .contains("there is no such exchange")
    {
        assert!(Instant::now() < end, "{}", consumer.last_failure());
        assert!(consumer.next(NOTHING).expect("it waits").is_none());
    }
    let publisher = publisher(&broker, "xs_later");
    while !consumer.is_connected() {
        assert!(Instant::now() < end, "it never connects");
        assert!(consumer.next(NOTHING).expect("it waits").is_none());
    }
    publish(&publisher, "v03", "at last");
    assert_eq!(text(&next(&mut consumer)), "at last");
}

#[test]
fn consumers_are_called_after_host_and_process() {
    let rabbit = calm();
    let broker = broker(&rabbit);
    let _publisher = publisher(&broker, "xs_called");
    let _consumer = consumer(&broker, "xs_called");
    let listed = rabbit.control(&["list_consumers", "-p", Rabbit::VHOST]);
    let line = listed.lines().find(|line| line.starts_with("q_xs_called"));
    let line = line.expect("it is listed");
    let name = format!(".{}\t", std::process::id());
    assert!(
        line.contains("driftless.") && line.contains(&name),
        "{line}"
    );
}

#[test]
fn thousands_a_second_are_published_over_milliseconds() {
    let rabbit = alone();
    let url = rabbit.url();
    let address = url.rsplit(['@', '/']).nth(1).expect("an address");
    let relay = Relay::delayed(address.parse().expect("one"), Duration::from_millis(3));
    let url = url.replace(address, &relay.address().to_string());
    let broker = broker_as(&url, Rabbit::PASSWORD);
    let publisher = publisher(&broker, "xs_fast");
    let mut consumer = consumer(&broker, "xs_fast");
    let (count, begun) = (10_000, Instant::now());
    (0..count).for_each(|index| _ = publish(&publisher, "v03.a.b", &index.to_string()));
    publisher.flush(LIMIT).expect("confirmed");
    let acknowledger = consumer.acknowledger();
    for index in 0..count {
        let heard = next(&mut consumer);
        assert_eq!(text(&heard), index.to_string());
        if index % 100 == 99 {
            acknowledger
                .acknowledge(heard.number)
                .expect("acknowledged");
        }
    }
    // One at a time would take a minute and more.
    assert!(
        begun.elapsed() < Duration::from_secs(40),
        "{:?}",
        begun.elapsed()
    );
}
