//! Connections between two ends that trust each other: order, ends, silence, limits.

mod common;

use common::{Ends, LONG, Relay, linked, patient, wait_until};
use driftless_dataplane::{DataEndpoint, DataLink, LinkMessage};
use driftless_dataplane::{
    Error, ExpectedPeer, LinkEvent, LinkFault, LinkSender, LinkSettings, PeerTrust, TlsIdentity,
};
use driftless_pool::Pace;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

fn fault(error: Error) -> LinkFault {
    match error {
        Error::Link { fault, .. } => fault,
        error => panic!("not of a connection: {error}"),
    }
}

fn next(link: &mut DataLink) -> LinkMessage {
    link.recv().expect("a message").expect("no end")
}

#[test]
fn messages_arrive_in_order_both_ways() {
    let (mut one, mut two) = linked(patient());
    for link in [&one, &two] {
        for number in 0..100_u8 {
            link.send(number, &[b"head", &[], &vec![number; 3000]])
                .unwrap();
        }
    }
    for link in [&mut one, &mut two] {
        for number in 0..100_u8 {
            let message = next(link);
            assert_eq!(message.kind, number);
            assert_eq!(
                message.bytes,
                [b"head".to_vec(), vec![number; 3000]].concat()
            );
        }
    }
    assert_eq!(one.handle().counters(), two.handle().counters());
    assert_eq!(one.handle().counters().sent_bytes, 100 * 3004);
}

#[test]
fn many_parts_are_one_message() {
    let (one, mut two) = linked(patient());
    let parts: Vec<Vec<u8>> = (0..50).map(|byte| vec![byte; 10]).collect();
    let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    one.send(1, &slices).unwrap();
    assert_eq!(next(&mut two).bytes, parts.concat());
}

#[test]
fn both_ends_send_at_once_without_deadlock() {
    const UNITS: usize = 1024;
    let (one, two) = linked(patient());
    thread::scope(|scope| {
        for link in [one, two] {
            let (sender, mut receiver) = link.split();
            scope.spawn(move || {
                let unit = vec![5; 64 << 10];
                (0..UNITS).for_each(|_| sender.send(1, &[&unit]).unwrap());
                sender.finish().unwrap();
            });
            scope.spawn(move || {
                let mut count = 0;
                while let Some(message) = receiver.recv().unwrap() {
                    assert_eq!(message.bytes.len(), 64 << 10);
                    count += 1;
                }
                assert_eq!(count, UNITS);
            });
        }
    });
}

#[test]
fn several_threads_send_whole_messages() {
    let (one, two) = linked(patient());
    let (sender, _quiet) = one.split();
    let (_idle, mut receiver) = two.split();
    thread::scope(|scope| {
        for kind in 0..4 {
            let sender: &LinkSender = &sender;
            let bytes = vec![kind; 100_000];
            scope.spawn(move || (0..50).for_each(|_| sender.send(kind, &[&bytes]).unwrap()));
        }
        for _ in 0..200 {
            let message = receiver.recv().unwrap().unwrap();
            assert!(message.bytes.iter().all(|byte| *byte == message.kind));
        }
    });
}

#[test]
fn finished_link_ends_after_its_messages() {
    let (one, mut two) = linked(patient());
    one.send(1, &[b"last"]).unwrap();
    let closing = thread::spawn(move || one.close(LONG));
    assert_eq!(next(&mut two).bytes, b"last");
    assert_eq!(two.recv().unwrap(), None);
    assert_eq!(two.recv().unwrap(), None);
    // The other direction is still open.
    two.send(2, &[b"answer"]).unwrap();
    two.close(LONG).unwrap();
    closing.join().unwrap().unwrap();
}

#[test]
fn peer_that_never_closes_is_left() {
    let (one, two) = linked(patient());
    let error = one.close(Duration::from_millis(200)).unwrap_err();
    assert!(matches!(fault(error), LinkFault::Aborted(_)));
    drop(two);
}

#[test]
fn cut_connection_is_no_end() {
    let ends = Ends::new(patient(), patient());
    let relay = Relay::to(ends.listener.address());
    let (one, mut two) = ends.link_at(relay.address);
    one.send(1, &[b"first"]).unwrap();
    assert_eq!(next(&mut two).bytes, b"first");
    relay.cut();
    assert_eq!(fault(two.recv().unwrap_err()), LinkFault::Truncated);
    // The cause stays the same.
    assert_eq!(fault(two.recv().unwrap_err()), LinkFault::Truncated);
    assert_eq!(
        fault(two.send(1, &[b"x"]).unwrap_err()),
        LinkFault::Truncated
    );
}

#[test]
fn dropped_half_is_no_end() {
    for drops_sender in [true, false] {
        let (one, mut two) = linked(patient());
        let (sender, receiver) = one.split();
        if drops_sender {
            drop(sender);
        } else {
            drop(receiver);
        }
        assert_eq!(fault(two.recv().unwrap_err()), LinkFault::Truncated);
    }
}

#[test]
fn damaged_record_is_refused() {
    let ends = Ends::new(patient(), patient());
    let relay = Relay::to(ends.listener.address());
    let (one, mut two) = ends.link_at(relay.address);
    relay.damage();
    one.send(1, &[b"message"]).unwrap();
    assert!(matches!(fault(two.recv().unwrap_err()), LinkFault::Tls(_)));
}

#[test]
fn idle_link_stays_open() {
    let settings = LinkSettings {
        silence_max: Duration::from_secs(3),
        heartbeat: Duration::from_millis(200),
        ..patient()
    };
    let (mut one, two) = linked(settings);
    let (_idle, mut receiver) = two.split();
    let other = thread::spawn(move || (receiver.recv_within(Duration::from_secs(7)), receiver));
    assert_eq!(
        one.recv_within(Duration::from_secs(7)),
        Ok(LinkEvent::Timeout)
    );
    assert_eq!(other.join().unwrap().0, Ok(LinkEvent::Timeout));
}

#[test]
fn silence_ends_both_halves() {
    let settings = LinkSettings {
        silence_max: Duration::from_secs(2),
        ..patient()
    };
    let ends = Ends::new(settings.clone(), settings);
    let relay = Relay::to(ends.listener.address());
    let (one, _two) = ends.link_at(relay.address);
    let (sender, mut receiver) = one.split();
    relay.hold();
    let sending = thread::spawn(move || {
        let unit = vec![1; 64 << 10];
        // The socket is full after a while, and the thread waits.
        loop {
            if let Err(error) = sender.send(1, &[&unit]) {
                return error;
            }
        }
    });
    let silent = LinkFault::Silent(Duration::from_secs(2));
    assert_eq!(fault(receiver.recv().unwrap_err()), silent);
    assert_eq!(fault(sending.join().unwrap()), silent);
}

/// Variables of the environment that make this program the peer of a test.
const PEER_KEY: &str = "DATAPLANE_TEST_KEY";
const PEER_TARGET: &str = "DATAPLANE_TEST_TARGET";

#[test]
#[ignore = "the other end of tests that stop and kill a peer"]
fn peer_process() {
    let (Ok(pem), Ok(target)) = (std::env::var(PEER_KEY), std::env::var(PEER_TARGET)) else {
        return;
    };
    let (key, address) = target.split_once('@').unwrap();
    let identity = TlsIdentity::from_pem(pem.as_bytes()).unwrap();
    let key = key.parse().unwrap();
    let endpoint = DataEndpoint::new(identity, PeerTrust::keys([key]), patient()).unwrap();
    let peer = ExpectedPeer::Key(key);
    let mut link = endpoint
        .connect(&[address.parse().unwrap()], &peer)
        .unwrap();
    while link.recv().is_ok_and(|message| message.is_some()) {}
}

/// Starts a process that connects, and returns it with the connection.
fn with_peer_process(silence_max: Duration) -> (Child, DataLink) {
    let identity = TlsIdentity::generate().unwrap();
    let settings = LinkSettings {
        silence_max,
        ..patient()
    };
    let ends = Ends::new(settings, patient());
    ends.listening.trust().trust(identity.key());
    let target = format!("{}@{}", ends.listening.key(), ends.listener.address());
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "peer_process", "--ignored"])
        .env(PEER_KEY, identity.to_pem())
        .env(PEER_TARGET, target)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let link = common::arrived(&ends.listener);
    (child, link)
}

#[test]
fn killed_peer_is_noticed() {
    let (mut child, mut link) = with_peer_process(LONG);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fault(link.recv().unwrap_err()), LinkFault::Truncated);
}

#[test]
fn stopped_peer_is_noticed_by_its_silence() {
    let silence_max = Duration::from_secs(2);
    let (mut child, mut link) = with_peer_process(silence_max);
    let alive = link.recv_within(Duration::from_secs(3));
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).unwrap();
    let begin = Instant::now();
    let error = link.recv().unwrap_err();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(alive, Ok(LinkEvent::Timeout));
    assert_eq!(fault(error), LinkFault::Silent(silence_max));
    assert!(begin.elapsed() < LONG);
}

#[test]
fn slow_receiver_holds_the_sender_back() {
    // Longer than the peer reads nothing, so that only true silence could end the connection.
    let settings = LinkSettings {
        silence_max: Duration::from_secs(2),
        ..patient()
    };
    const UNITS: u64 = 2048;
    let (one, two) = linked(settings);
    let (sender, mut back) = one.split();
    let handle = sender.handle();
    let (quiet, mut receiver) = two.split();
    let sending = thread::spawn(move || {
        let unit = vec![3; 64 << 10];
        (0..UNITS).for_each(|_| sender.send(1, &[&unit]).unwrap());
        sender.finish()
    });
    let answering = thread::spawn(move || back.recv());
    wait_until("the sender waits", || {
        handle
            .stalled()
            .is_some_and(|stalled| stalled > Duration::from_secs(4))
    });
    let sent = handle.counters().sent_bytes;
    assert!(
        sent < 32 << 20,
        "{sent} bytes are somewhere between both ends"
    );
    let mut received = 0;
    while receiver.recv().unwrap().is_some() {
        received += 1;
    }
    assert_eq!(received, UNITS);
    sending.join().unwrap().unwrap();
    assert_eq!(handle.stalled(), None);
    quiet.finish().unwrap();
    assert_eq!(answering.join().unwrap(), Ok(None));
}

#[test]
fn large_message_is_not_sent() {
    let settings = LinkSettings {
        message_bytes_max: 1000,
        ..patient()
    };
    let (one, mut two) = linked(settings);
    let (bytes, bytes_max) = (1001, 1000);
    let refused = Error::Oversized { bytes, bytes_max };
    assert_eq!(one.send(1, &[&[0; 1000], &[0]]), Err(refused));
    let reserved = Error::ReservedKind { kind: 240 };
    assert_eq!(one.send(240, &[]), Err(reserved));
    one.send(239, &[&[0; 1000]]).unwrap();
    assert_eq!(next(&mut two).bytes.len(), 1000);
}

#[test]
fn frame_above_the_limit_ends_the_link() {
    let small = LinkSettings {
        message_bytes_max: 1000,
        ..patient()
    };
    let (one, mut two) = Ends::new(small, patient()).link();
    one.send(1, &[&[0; 2000]]).unwrap();
    let LinkFault::Protocol(cause) = fault(two.recv().unwrap_err()) else {
        panic!("another cause")
    };
    assert!(
        cause.contains("2000 bytes exceeds the limit of 1000"),
        "{cause}"
    );
}

#[test]
fn abort_wakes_both_halves() {
    let (one, _two) = linked(patient());
    let handle = one.handle();
    let (sender, mut receiver) = one.split();
    let receiving = thread::spawn(move || receiver.recv());
    let sending = thread::spawn(move || {
        let unit = vec![3; 64 << 10];
        loop {
            if let Err(error) = sender.send(1, &[&unit]) {
                return error;
            }
        }
    });
    wait_until("the sender waits", || handle.stalled().is_some());
    handle.abort("the node was removed");
    let aborted = LinkFault::Aborted("the node was removed".into());
    assert_eq!(fault(receiving.join().unwrap().unwrap_err()), aborted);
    assert_eq!(fault(sending.join().unwrap()), aborted);
    assert!(handle.has_failed());
}

#[test]
fn pace_slows_messages() {
    let pace = Pace::new(Some(1 << 20)).map(Arc::new);
    let paced = LinkSettings { pace, ..patient() };
    let (one, two) = Ends::new(patient(), paced).link();
    let begin = Instant::now();
    let (_idle, mut receiver) = two.split();
    let receiving = thread::spawn(move || (0..32).try_for_each(|_| receiver.recv().map(drop)));
    (0..32).for_each(|_| one.send(1, &[&[0; 64 << 10]]).unwrap());
    receiving.join().unwrap().unwrap();
    // 2 MiB at 1 MiB a second.
    assert!(begin.elapsed() > Duration::from_millis(1500));
}

#[test]
fn socket_buffers_are_set() {
    let settings = LinkSettings {
        socket_buffer_bytes: Some(64 << 10),
        ..patient()
    };
    let (one, mut two) = linked(settings);
    let sending = thread::spawn(move || one.send(1, &[&vec![1; 1 << 20]]).map(|()| one));
    assert_eq!(next(&mut two).bytes.len(), 1 << 20);
    sending.join().unwrap().unwrap();
}

#[test]
fn secret_is_not_readable_on_the_wire() {
    let listener = std::net::TcpListener::bind((common::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let ends = Ends::new(patient(), patient());
    let target = ends.listener.address();
    // A relay that keeps what passes from the connecting end.
    let tap = thread::spawn(move || {
        let (near, _) = listener.accept().unwrap();
        let far = std::net::TcpStream::connect(target).unwrap();
        let (mut back, mut answers) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut answers, &mut back));
        let mut kept = Vec::new();
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = (&near).read(&mut bytes) {
            kept.extend_from_slice(&bytes[..count]);
            std::io::Write::write_all(&mut &far, &bytes[..count]).unwrap();
        }
        far.shutdown(std::net::Shutdown::Write).unwrap();
        kept
    });
    let (one, two) = ends.link_at(address);
    one.send(1, &[&b"secret ".repeat(1000)]).unwrap();
    let closing = thread::spawn(move || two.close(LONG));
    one.close(LONG).unwrap();
    closing.join().unwrap().unwrap();
    let kept = tap.join().unwrap();
    assert!(kept.len() > 7000);
    assert!(!kept.windows(6).any(|window| window == b"secret"));
}
