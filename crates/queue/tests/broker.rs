//! What the queue promises, against a real broker that is restarted, starved and lied to.
//!
//! All tests share one broker. Those that disturb it have it for themselves.
#![allow(clippy::disallowed_methods)]

use driftless_queue::{
    Broker, Consumer, Control, Credentials, Delivery, Error, Job, Publisher, Seat, Url,
};
use driftless_testkit::rabbit::{alone, calm};
use driftless_testkit::{Rabbit, Relay};
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The longest that anything may take that is expected to happen; a broker restarts in half a
/// minute on a busy machine.
const LIMIT: Duration = Duration::from_secs(400);
/// How long a test waits for what must not happen.
const NOTHING: Duration = Duration::from_millis(300);

fn broker(rabbit: &Rabbit) -> Broker {
    connect_to(&rabbit.url(), Rabbit::PASSWORD).with_patience(LIMIT)
}

fn connect_to(url: &str, password: &str) -> Broker {
    Broker::new(
        url.parse().expect("a URL"),
        Credentials::from_value(password),
    )
    .expect("a thread")
}

/// The broker, by a way that can be cut.
fn through_relay(rabbit: &Rabbit) -> (Relay, Broker) {
    let address = rabbit
        .url()
        .rsplit(['@', '/'])
        .nth(1)
        .expect("an authority")
        .parse()
        .expect("an address");
    let relay = Relay::start(address);
    let broker = connect_to(
        &rabbit
            .url()
            .replace(&address.to_string(), &relay.address().to_string()),
        Rabbit::PASSWORD,
    );
    (relay, broker.with_patience(LIMIT))
}

/// A job of this test's own, with one class of work, `small`.
fn job(name: &str) -> Job {
    Job::new(name, &["small"]).expect("a job")
}

fn small(job: &Job) -> String {
    job.work("small").expect("a class")
}

fn next(consumer: &mut Consumer) -> Delivery {
    consumer
        .next(LIMIT)
        .expect("a connection")
        .expect("a message")
}

fn consume(broker: &Broker, job: &Job) -> Consumer {
    Consumer::open(broker, job, &small(job), 16).expect("a consumer")
}

fn publish(broker: &Broker, job: &Job, bodies: &[&[u8]]) -> Publisher {
    let publisher = Publisher::open(broker, job).expect("a publisher");
    for body in bodies {
        publisher
            .publish(&small(job), body, LIMIT)
            .expect("accepted");
    }
    publisher.flush(LIMIT).expect("confirmed");
    publisher
}

/// Waits until the queue `small` has as many messages that wait.
fn wait_for_ready(control: &mut Control, ready: u32) {
    let end = Instant::now() + LIMIT;
    loop {
        let counts = control.counts().expect("counts");
        let found = counts
            .iter()
            .find(|count| count.queue.ends_with(".small"))
            .expect("the queue")
            .ready;
        if found == ready {
            return;
        }
        assert!(Instant::now() < end, "{found} messages wait, not {ready}");
    }
}

#[test]
fn a_message_that_is_acknowledged_is_gone() {
    let (rabbit, job) = (calm(), job("gone"));
    let broker = broker(&rabbit);
    let long = vec![7; 1 << 20];
    let publisher = publish(&broker, &job, &[b"one", b"", &long]);
    assert_eq!((publisher.confirmed(), publisher.outstanding()), (3, 0));
    let mut consumer = consume(&broker, &job);
    for body in [b"one" as &[u8], b"", &long] {
        let delivery = next(&mut consumer);
        assert_eq!((delivery.body(), delivery.attempts()), (body, 0));
        delivery.ack().expect("acknowledged");
    }
    assert!(consumer.next(NOTHING).expect("a connection").is_none());
    drop(consumer);
    wait_for_ready(&mut Control::open(&broker, &job).expect("control"), 0);
}

#[test]
fn a_call_without_time_neither_waits_nor_harms_the_connection() {
    let (rabbit, job) = (calm(), job("hurry"));
    let broker = broker(&rabbit);
    let publisher = Publisher::open(&broker, &job).expect("a publisher");
    let end = Instant::now() + LIMIT;
    publisher
        .publish(&small(&job), b"work", Duration::ZERO)
        .expect("there is room");
    while publisher.flush(Duration::ZERO).is_err() {
        assert!(Instant::now() < end, "it is never confirmed");
    }
    let mut consumer = consume(&broker, &job);
    next(&mut consumer).ack().expect("acknowledged");
    assert!(
        consumer
            .next(Duration::ZERO)
            .expect("a connection")
            .is_none()
    );
}

#[test]
fn a_message_longer_than_a_mebibyte_is_refused() {
    let (rabbit, job) = (calm(), job("long"));
    let publisher = Publisher::open(&broker(&rabbit), &job).expect("a publisher");
    let refused = publisher.publish(&small(&job), &vec![0; (1 << 20) + 1], LIMIT);
    assert!(
        matches!(refused, Err(Error::TooLarge { bytes: 1_048_577 })),
        "{refused:?}"
    );
}

#[test]
fn what_a_dead_consumer_had_comes_again() {
    let (rabbit, job) = (calm(), job("dead"));
    let broker = broker(&rabbit);
    let _publisher = publish(&broker, &job, &[b"work"]);
    let mut dies = consume(&broker, &job);
    let held = next(&mut dies);
    let mut lives = consume(&broker, &job);
    assert!(
        lives.next(NOTHING).expect("a connection").is_none(),
        "it is held by the other"
    );
    drop(dies);
    let again = next(&mut lives);
    assert_eq!((again.body(), again.attempts()), (b"work" as &[u8], 1));
    assert!(
        matches!(held.ack(), Err(Error::Stale)),
        "it is not the dead one's any more"
    );
    again.ack().expect("acknowledged");
}

#[test]
fn what_is_given_back_or_dropped_comes_again() {
    let (rabbit, job) = (calm(), job("back"));
    let broker = broker(&rabbit);
    let _publisher = publish(&broker, &job, &[b"work"]);
    let mut consumer = consume(&broker, &job);
    next(&mut consumer).give_back().expect("given back");
    drop(next(&mut consumer));
    let last = next(&mut consumer);
    assert_eq!(last.body(), b"work");
    last.ack().expect("acknowledged");
}

#[test]
fn no_more_is_handed_out_than_the_prefetch() {
    let (rabbit, job) = (calm(), job("prefetch"));
    let broker = broker(&rabbit);
    let _publisher = publish(&broker, &job, &[b"1", b"2", b"3"]);
    let mut consumer = Consumer::open(&broker, &job, &small(&job), 2).expect("a consumer");
    let (first, _second) = (next(&mut consumer), next(&mut consumer));
    assert!(consumer.next(NOTHING).expect("a connection").is_none());
    first.ack().expect("acknowledged");
    assert_eq!(next(&mut consumer).body(), b"3");
}

#[test]
fn a_message_that_is_tried_again_counts_its_attempts() {
    let (rabbit, job) = (calm(), job("attempts"));
    let broker = broker(&rabbit);
    let publisher = publish(&broker, &job, &[b"work"]);
    let mut consumer = consume(&broker, &job);
    for attempts in 0..3 {
        let delivery = next(&mut consumer);
        assert_eq!(
            (delivery.body(), delivery.attempts()),
            (b"work" as &[u8], attempts)
        );
        delivery
            .try_again(&publisher, LIMIT)
            .expect("published again");
    }
}

#[test]
fn a_message_that_is_handed_on_counts_no_attempt() {
    let (rabbit, job) = (calm(), job("hand-on"));
    let broker = broker(&rabbit);
    let publisher = publish(&broker, &job, &[b"one"]);
    let mut first = consume(&broker, &job);
    let delivery = next(&mut first);
    // Else it comes to the same consumer, whose end counts.
    first.end(LIMIT).expect("it ends");
    delivery.hand_on(&publisher, LIMIT).expect("accepted");
    drop(first);
    let again = next(&mut consume(&broker, &job));
    assert_eq!((again.body(), again.attempts()), (&b"one"[..], 0));
}

#[test]
fn parked_messages_keep_body_reason_and_attempts_however_often_they_are_listed() {
    let (rabbit, job) = (calm(), job("parked"));
    let broker = broker(&rabbit);
    let publisher = publish(&broker, &job, &[b"poison\xff"]);
    let mut consumer = consume(&broker, &job);
    next(&mut consumer)
        .try_again(&publisher, LIMIT)
        .expect("published again");
    next(&mut consumer)
        .park("no such file: a/b", &publisher, LIMIT)
        .expect("parked");
    let mut control = Control::open(&broker, &job).expect("control");
    for _ in 0..30 {
        let parked = control.parked(10).expect("a list");
        assert_eq!(parked.len(), 1);
        assert_eq!(
            (parked[0].body.as_slice(), parked[0].attempts),
            (b"poison\xff" as &[u8], 2)
        );
        assert_eq!(
            (parked[0].reason.as_str(), parked[0].queue.as_deref()),
            ("no such file: a/b", Some("driftless.parked.small"))
        );
    }
    assert!(consumer.next(NOTHING).expect("a connection").is_none());
}

#[test]
fn a_message_that_is_given_back_for_ever_is_parked_by_the_broker() {
    let (rabbit, job) = (calm(), job("poison"));
    let broker = broker(&rabbit);
    let _publisher = publish(&broker, &job, &[b"poison"]);
    let (mut consumer, mut control) = (
        consume(&broker, &job),
        Control::open(&broker, &job).expect("control"),
    );
    let mut given = 0;
    while let Some(delivery) = consumer.next(Duration::from_secs(2)).expect("a connection") {
        delivery.give_back().expect("given back");
        given += 1;
        assert!(given < 1000, "the broker knows no limit");
    }
    let end = Instant::now() + LIMIT;
    let parked = loop {
        let parked = control.parked(10).expect("a list");
        if !parked.is_empty() || Instant::now() > end {
            break parked;
        }
    };
    assert_eq!(
        parked.first().map(|one| one.body.as_slice()),
        Some(b"poison" as &[u8]),
        "after {given} times"
    );
    assert!(parked[0].reason.contains("delivery_limit"), "{parked:?}");
}

#[test]
fn an_unroutable_message_is_an_error_and_is_kept() {
    let (rabbit, job) = (calm(), job("unroutable"));
    let broker = broker(&rabbit);
    let publisher = publish(&broker, &job, &[b"before"]);
    let mut control = Control::open(&broker, &job).expect("control");
    control.delete().expect("deleted");
    publisher
        .publish(&small(&job), b"after", LIMIT)
        .expect("accepted");
    for _ in 0..3 {
        let refused = publisher.flush(LIMIT);
        assert!(
            matches!(&refused, Err(Error::Unroutable { queue }) if *queue == small(&job)),
            "{refused:?}"
        );
        assert_eq!((publisher.confirmed(), publisher.outstanding()), (1, 1));
    }
    control.declare().expect("declared");
    publisher.flush(LIMIT).expect("confirmed");
    assert_eq!(next(&mut consume(&broker, &job)).body(), b"after");
}

#[test]
fn the_right_one_of_many_messages_is_known_to_be_unroutable() {
    let (rabbit, good, bad) = (calm(), job("routable"), job("unroutable-one"));
    let broker = broker(&rabbit);
    for round in 0..20_u64 {
        let publisher = Publisher::open(&broker, &good).expect("a publisher");
        for number in 0..50 {
            let queue = if number == round * 2 {
                small(&bad)
            } else {
                small(&good)
            };
            let _ = publisher.publish(&queue, b"x", LIMIT);
        }
        let end = Instant::now() + LIMIT;
        loop {
            let refused = publisher.flush(LIMIT);
            assert!(
                matches!(&refused, Err(Error::Unroutable { queue }) if *queue == small(&bad)),
                "{round}: {refused:?}"
            );
            if publisher.confirmed() == round * 2 && publisher.outstanding() > 0 {
                break;
            }
            assert!(
                publisher.confirmed() < round * 2 && Instant::now() < end,
                "the mark stops before it, and gets there"
            );
        }
    }
}

#[test]
fn a_connection_that_the_broker_closes_makes_its_deliveries_stale() {
    let (rabbit, job) = (alone(), job("stale"));
    let broker = broker(&rabbit);
    let publisher = publish(&broker, &job, &[b"work"]);
    let mut consumer = consume(&broker, &job);
    let held = next(&mut consumer);
    rabbit.close_connections();
    let again = next(&mut consumer);
    assert_eq!(
        (held.body(), again.body()),
        (b"work" as &[u8], b"work" as &[u8])
    );
    assert!(matches!(held.ack(), Err(Error::Stale)));
    publisher
        .publish(&small(&job), b"more", LIMIT)
        .expect("accepted");
    publisher
        .flush(LIMIT)
        .expect("confirmed on another connection");
    again.ack().expect("acknowledged");
    assert_eq!(next(&mut consumer).body(), b"more");
}

/// Messages that are sent while the broker goes down and up.
const NUMBERS: u32 = 3000;
/// How far the publisher may be ahead of the consumer, so that a disturbance meets both at work.
const AHEAD: u32 = 200;

/// Publishes numbers in pace with the consumer, which sends a word for each that has arrived.
fn publish_numbers(publisher: &Publisher, job: &Job, arrived: &Receiver<()>) {
    for number in 0..NUMBERS {
        if number >= AHEAD {
            wait_for_arrival(publisher, arrived);
        }
        publisher
            .publish(&small(job), &number.to_be_bytes(), LIMIT)
            .expect("accepted");
    }
    publisher.flush(LIMIT).expect("confirmed");
}

/// What was lost with a connection is sent again by a call that waits for it, and by no other.
fn wait_for_arrival(publisher: &Publisher, arrived: &Receiver<()>) {
    let end = Instant::now() + LIMIT;
    while let Err(none) = arrived.recv_timeout(NOTHING) {
        assert!(
            none == RecvTimeoutError::Timeout && Instant::now() < end,
            "the consumer goes on"
        );
        let _it_waits_again = publisher.flush(NOTHING);
    }
}

/// Takes numbers until all have arrived, sends a word for each new one to `pace`, and after each
/// third to `disturb`.
fn take_numbers(consumer: &mut Consumer, pace: &Sender<()>, disturb: &Sender<()>) -> BTreeSet<u32> {
    let mut seen = BTreeSet::new();
    while seen.len() < NUMBERS as usize {
        let Some(delivery) = consumer.next(LIMIT).expect("a connection") else {
            break;
        };
        if seen.insert(u32::from_be_bytes(
            delivery.body().try_into().expect("four bytes"),
        )) {
            let _ = pace.send(());
            if seen.len() % (NUMBERS as usize / 3) == 0 && seen.len() < NUMBERS as usize {
                disturb.send(()).expect("it is disturbed");
            }
        }
        // Stale is allowed: it comes again.
        let _ = delivery.ack();
    }
    seen
}

/// The numbers that never arrive when the broker is disturbed twice on the way.
fn lost_while(rabbit: &mut Rabbit, job: &Job, disturb: fn(&mut Rabbit)) -> Vec<u32> {
    let broker = broker(rabbit);
    let (publisher, mut consumer) = (
        Publisher::open(&broker, job).expect("a publisher"),
        consume(&broker, job),
    );
    rabbit.settle_declarations();
    let ((pace, arrived), (alarm, alarms)) = (channel(), channel());
    let seen = std::thread::scope(|scope| {
        scope.spawn(move || publish_numbers(&publisher, job, &arrived));
        scope.spawn(move || alarms.iter().for_each(|()| disturb(rabbit)));
        let seen = take_numbers(&mut consumer, &pace, &alarm);
        drop(alarm);
        seen
    });
    (0..NUMBERS)
        .filter(|number| !seen.contains(number))
        .collect()
}

#[test]
fn a_restart_of_the_broker_loses_nothing() {
    let lost = lost_while(&mut alone(), &job("restart"), Rabbit::restart);
    assert_eq!(lost, Vec::<u32>::new());
}

#[test]
fn a_crash_of_the_broker_loses_nothing() {
    let lost = lost_while(&mut alone(), &job("crash"), Rabbit::crash);
    assert_eq!(lost, Vec::<u32>::new());
}

#[test]
fn a_broker_short_of_memory_blocks_the_publisher_which_says_so_and_nobody_else() {
    let (rabbit, job) = (alone(), job("alarm"));
    let broker = broker(&rabbit);
    let publisher = publish(&broker, &job, &[b"before"]);
    let mut consumer = consume(&broker, &job);
    assert_eq!(publisher.blocked(), None);
    rabbit.memory_alarm(true);
    publisher
        .publish(&small(&job), b"during", LIMIT)
        .expect("accepted");
    let begin = Instant::now();
    let refused = publisher.flush(Duration::from_secs(2));
    assert!(
        matches!(&refused, Err(Error::Blocked { why, .. }) if why.contains("memory")),
        "{refused:?}"
    );
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "the limit is kept"
    );
    assert!(
        publisher
            .blocked()
            .is_some_and(|blocked| blocked.since >= begin - Duration::from_secs(10))
    );
    let delivery = next(&mut consumer);
    assert_eq!(delivery.body(), b"before", "consumers go on");
    delivery.ack().expect("acknowledged");
    rabbit.memory_alarm(false);
    publisher.flush(LIMIT).expect("confirmed");
    assert_eq!(next(&mut consumer).body(), b"during");
    assert_eq!(publisher.blocked(), None);
}

#[test]
fn queues_are_counted_emptied_and_deleted() {
    let (rabbit, job) = (calm(), job("control"));
    let broker = broker(&rabbit);
    let mut control = Control::open(&broker, &job).expect("control");
    assert!(
        matches!(control.counts(), Err(Error::Queue { .. })),
        "there is nothing yet"
    );
    let _publisher = publish(&broker, &job, &[b"1", b"2"]);
    wait_for_ready(&mut control, 2);
    let consumer = Consumer::open(&broker, &job, &job.results(), 1).expect("a consumer");
    let consumers: Vec<u32> = control
        .counts()
        .expect("counts")
        .iter()
        .map(|count| count.consumers)
        .collect();
    assert_eq!(consumers, [0, 1, 0, 0, 0]);
    drop(consumer);
    let purged = control.purge_queue(&small(&job)).expect("purged");
    assert_eq!(purged, 2);
    wait_for_ready(&mut control, 0);
    control.delete().expect("deleted");
    control.delete().expect("deleting what is gone is no error");
    assert!(matches!(control.counts(), Err(Error::Queue { .. })));
}

#[test]
fn a_connection_that_is_lost_while_a_queue_is_emptied_is_no_fault_of_the_queue() {
    let (rabbit, job) = (calm(), job("lost-call"));
    let (relay, broker) = through_relay(&rabbit);
    let mut control = Control::open(&broker, &job).expect("it lets us in");
    control.declare().expect("declared");
    relay.stall();
    let emptied = std::thread::scope(|scope| {
        let emptying = scope.spawn(|| control.purge_queue(&small(&job)));
        // If it takes longer to begin, there is another connection by then.
        std::thread::sleep(NOTHING);
        relay.cut();
        relay.resume();
        emptying.join().expect("it ends")
    });
    assert!(
        matches!(emptied, Ok(0) | Err(Error::Lost { .. })),
        "{emptied:?}"
    );
    assert_eq!(control.purge_queue(&small(&job)).expect("it is there"), 0);
    assert!(matches!(
        control.purge_queue("driftless.lost-call.none"),
        Err(Error::Queue { .. })
    ));
}

#[test]
fn who_waits_for_work_is_counted_while_he_waits() {
    let (rabbit, job) = (calm(), job("idle"));
    let (broker, idle) = (broker(&rabbit), job.idle("small").expect("a class"));
    let (mut waits, mut asks) = (
        Control::open(&broker, &job).expect("control"),
        Control::open(&broker, &job).expect("control"),
    );
    waits.declare().expect("declared");
    let mut count = || asks.count(&idle).expect("a count").consumers;
    assert_eq!(count(), 0);
    waits.enlist(&idle).expect("enlisted");
    waits.enlist(&idle).expect("enlisting twice is no error");
    assert_eq!(count(), 1);
    waits.withdraw().expect("withdrawn");
    // A quorum queue hears a little later of a channel that was closed.
    let end = Instant::now() + LIMIT;
    while count() > 0 {
        assert!(Instant::now() < end, "who has withdrawn no longer waits");
    }
    waits.enlist(&idle).expect("enlisted again");
    drop(waits);
    while count() > 0 {
        assert!(Instant::now() < end, "who has gone no longer waits");
    }
    assert!(matches!(
        asks.count("driftless.idle.nothing"),
        Err(Error::Queue { .. })
    ));
    assert_eq!(
        asks.count(&idle)
            .expect("a count on the next connection")
            .consumers,
        0
    );
}

#[test]
fn a_question_with_a_limit_does_not_wait_for_a_broker_that_is_away() {
    let (mut rabbit, job) = (alone(), job("limited"));
    let mut control = Control::open(&broker(&rabbit), &job)
        .expect("control")
        .with_limit(Duration::from_secs(1));
    control.declare().expect("declared");
    rabbit.settle_declarations();
    rabbit.stop();
    // Without the limit it would wait for as long as the broker may be away, and say that it cannot
    // be reached.
    let error = control.counts().expect_err("nobody answers");
    assert!(
        matches!(error, Error::Lost { .. } | Error::Queue { .. }),
        "{error}"
    );
    let error = control.counts().expect_err("nobody answers");
    assert!(
        matches!(&error, Error::Lost { why, .. } if why.contains("within 1 s")),
        "{error}"
    );
    rabbit.restart();
    let end = Instant::now() + LIMIT;
    while control.counts().is_err() {
        assert!(Instant::now() < end, "it is there again");
    }
}

#[test]
fn a_queue_that_is_declared_otherwise_is_an_error_at_once() {
    let rabbit = calm();
    let broker = broker(&rabbit);
    let job = job("otherwise");
    let eval = format!(
        "rabbit_amqqueue:declare(rabbit_misc:r(<<\"{}\">>, queue, <<\"{}\">>), true, false, [], none, <<\"test\">>).",
        Rabbit::VHOST,
        job.results()
    );
    rabbit.control(&["eval", &eval]);
    let refused = Publisher::open(&broker, &job).err().expect("an error");
    assert!(
        matches!(&refused, Error::Queue { queue, .. } if *queue == job.results()),
        "{refused}"
    );
}

#[test]
fn an_absent_broker_is_an_error_after_the_limit() {
    let _rabbit = calm();
    let free = std::net::TcpListener::bind(("127.0.0.1", 0))
        .expect("a port")
        .local_addr()
        .expect("an address")
        .port();
    let broker = connect_to(&format!("amqp://u@127.0.0.1:{free}"), "p")
        .with_patience(Duration::from_secs(1));
    let begin = Instant::now();
    let refused = Publisher::open(&broker, &job("absent"))
        .err()
        .expect("an error");
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused}");
    assert!(begin.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_seat_is_taken_by_one_and_free_when_that_one_leaves() {
    let (rabbit, job) = (calm(), job("seat"));
    let broker = broker(&rabbit);
    let first = Seat::take(&broker, &job, "the first").expect("nobody has it");
    let taken = Seat::take(&broker, &job, "the second")
        .err()
        .expect("it is taken");
    assert!(
        matches!(&taken, Error::Taken { who, .. } if who == "the first"),
        "{taken}"
    );
    drop(first);
    let mut second = Seat::take(&broker, &job, "the second").expect("nobody has it");
    second.keep().expect("it stands");
}

#[test]
fn a_seat_whose_connection_is_lost_is_taken_again() {
    let (rabbit, job) = (alone(), job("lost-seat"));
    let broker = broker(&rabbit);
    let mut seat = Seat::take(&broker, &job, "the first").expect("nobody has it");
    rabbit.close_connections();
    let deadline = Instant::now() + LIMIT;
    let is_taken = |error: &Error| matches!(error, Error::Taken { who, .. } if who == "the first");
    loop {
        seat.keep().expect("nobody else wants it");
        // What another one gets in between is given back at once.
        if Seat::take(&broker, &job, "another")
            .err()
            .as_ref()
            .is_some_and(is_taken)
        {
            break;
        }
        assert!(Instant::now() < deadline, "it is never taken again");
    }
}

#[test]
fn a_seat_whose_host_is_cut_off_is_free_after_three_short_intervals() {
    let (rabbit, job) = (calm(), job("cut-off-seat"));
    let (relay, cut_off) = through_relay(&rabbit);
    let seat = Seat::take(&cut_off, &job, "who is cut off").expect("nobody has it");
    // The broker looks once each interval, and gives up after two looks that found nothing new.
    let intervals = rabbit.control(&["list_connections", "user", "timeout"]);
    let interval = |line: &str| {
        line.split_whitespace()
            .nth(1)
            .and_then(|seconds| seconds.parse::<u32>().ok())
    };
    assert!(
        intervals
            .lines()
            .filter_map(interval)
            .all(|seconds| seconds == 5),
        "{intervals}"
    );
    relay.stall();
    let (broker, begin) = (broker(&rabbit), Instant::now());
    while let Err(error) = Seat::take(&broker, &job, "the next") {
        assert!(
            matches!(error, Error::Taken { .. }) && begin.elapsed() < LIMIT,
            "{error}"
        );
    }
    // Else leaving it waits for the broker.
    relay.cut();
    drop(seat);
}

#[test]
fn a_broker_that_accepts_and_says_nothing_is_an_error_after_the_limit() {
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let broker = connect_to(&format!("amqp://u@127.0.0.1:{port}"), "p")
        .with_patience(Duration::from_secs(1));
    let begin = Instant::now();
    let refused = Publisher::open(&broker, &job("silent"))
        .err()
        .expect("an error");
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused}");
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_wrong_vhost_user_or_password_is_refused_by_name() {
    let rabbit = calm();
    let wrong_vhost = rabbit.url().replace("/tests", "/elsewhere");
    let wrong_user = rabbit.url().replace("tester", "nobody");
    for (url, password) in [
        (&wrong_vhost, Rabbit::PASSWORD),
        (&wrong_user, Rabbit::PASSWORD),
        (&rabbit.url(), "hunter2"),
    ] {
        let broker = connect_to(url, password).with_patience(Duration::from_secs(5));
        let refused = Publisher::open(&broker, &job("refused"))
            .err()
            .expect("an error");
        assert!(matches!(refused, Error::Refused { .. }), "{refused}");
        let message = refused.to_string();
        assert!(message.contains(&broker.url().to_string()), "{message}");
        assert!(
            !message.contains(password) && !format!("{broker:?}").contains(password),
            "{message}"
        );
    }
}

#[test]
fn an_encrypted_connection_is_made_only_to_a_broker_that_proves_its_name() {
    let (rabbit, job) = (calm(), job("tls"));
    let short = Duration::from_secs(20);
    let proven = connect_to(&rabbit.url_encrypted("127.0.0.1"), Rabbit::PASSWORD)
        .with_certificates(rabbit.authority());
    let _publisher = publish(&proven.with_patience(LIMIT), &job, &[b"secret work"]);
    let unknown = connect_to(&rabbit.url_encrypted("127.0.0.1"), Rabbit::PASSWORD);
    let misnamed = connect_to(&rabbit.url_encrypted("localhost"), Rabbit::PASSWORD)
        .with_certificates(rabbit.authority());
    for broker in [unknown, misnamed] {
        let refused = Publisher::open(&broker.with_patience(short), &job)
            .err()
            .expect("an error");
        assert!(
            matches!(&refused, Error::Refused { why, .. } if why.contains("certificate")),
            "{refused}"
        );
    }
}

#[test]
fn a_password_comes_from_a_closed_file_only() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let (rabbit, folder) = (calm(), tempfile::tempdir().expect("a folder"));
    let (file, link) = (folder.path().join("password"), folder.path().join("link"));
    std::fs::write(&file, format!("{}\n", Rabbit::PASSWORD)).expect("write");
    symlink(&file, &link).expect("a link");
    let mode =
        |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("chmod");
    for open in [0o640, 0o604, 0o622] {
        mode(open);
        let message = Credentials::from_file(&file)
            .expect_err("open to others")
            .to_string();
        assert!(
            message.contains("chmod 600") && !message.contains(Rabbit::PASSWORD),
            "{message}"
        );
    }
    mode(0o600);
    assert!(Credentials::from_file(&link).is_err(), "a symbolic link");
    assert!(
        Credentials::from_file(folder.path()).is_err(),
        "a directory"
    );
    let url: Url = rabbit.url().parse().expect("a URL");
    let broker =
        Broker::new(url, Credentials::from_file(&file).expect("closed")).expect("a thread");
    Publisher::open(&broker, &job("file")).expect("logged in");
}

/// The words of a command in the documentation that begins with these.
fn documented(command: &str) -> Vec<String> {
    let line = include_str!("../../../docs/many-hosts.md")
        .lines()
        .find(|line| line.starts_with(command))
        .expect("it is documented");
    let words = line
        .split_whitespace()
        .skip(1)
        .take_while(|word| !word.starts_with('#'));
    words
        .map(|word| word.trim_matches('\'').to_owned())
        .collect()
}

/// Another user of the broker, with the password of all tests and the rights of the documentation,
/// in a vhost; the vhost as that user.
fn user_of(rabbit: &Rabbit, vhost: &str, user: &str) -> Broker {
    let mut permissions = documented("rabbitmqctl set_permissions");
    assert_eq!(
        permissions[..4],
        ["set_permissions", "-p", "driftless", "driftless"],
        "as it is documented"
    );
    (permissions[2], permissions[3]) = (vhost.to_owned(), user.to_owned());
    rabbit.control(&["add_vhost", vhost]);
    rabbit.control(&["add_user", user, Rabbit::PASSWORD]);
    rabbit.control(&permissions.iter().map(String::as_str).collect::<Vec<_>>());
    broker_as(rabbit, user, vhost).with_patience(LIMIT)
}

fn broker_as(rabbit: &Rabbit, user: &str, vhost: &str) -> Broker {
    let url = rabbit.url().replacen(Rabbit::USER, user, 1);
    connect_to(
        url.strip_suffix(Rabbit::VHOST)
            .map(|url| format!("{url}{vhost}"))
            .as_deref()
            .expect("the vhost is last"),
        Rabbit::PASSWORD,
    )
}

#[test]
fn a_user_with_the_documented_rights_does_a_jobs_work_and_reaches_no_other_vhost() {
    let rabbit = calm();
    let (one, job) = (user_of(&rabbit, "vhost-one", "one"), job("documented"));
    let _two = user_of(&rabbit, "vhost-two", "two");
    let _seat = Seat::take(&one, &job, "the coordinator").expect("nobody has it");
    let mut consumer = consume(&one, &job);
    let _publisher = publish(&one, &job, &[b"work"]);
    next(&mut consumer).ack().expect("acknowledged");
    for vhost in ["vhost-two", Rabbit::VHOST] {
        let refused = Publisher::open(
            &broker_as(&rabbit, "one", vhost).with_patience(Duration::from_secs(5)),
            &job,
        )
        .err();
        assert!(
            matches!(refused, Some(Error::Refused { .. })),
            "{vhost}: {refused:?}"
        );
    }
}
