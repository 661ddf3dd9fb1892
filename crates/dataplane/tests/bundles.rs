//! Bundles: every block arrives once over several connections, and the bundle fails as a whole.

mod common;

use common::{Ends, patient, wait_until};
use driftless_dataplane::{BundleEvent, Error, LinkBundle, LinkFault, LinkSettings};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Sends blocks and control messages, and checks that each arrives once.
fn check_transfer((connected, arrived): (LinkBundle, LinkBundle)) {
    const BLOCKS: u64 = 500;
    let (sender, mut back) = connected.split().unwrap();
    let (quiet, mut receiver) = arrived.split().unwrap();
    let sending = thread::spawn(move || {
        for number in 0..BLOCKS {
            let bytes = vec![number as u8; 1000 + number as usize];
            sender.send_block(7, number, Arc::new(bytes)).unwrap();
            if number % 50 == 0 {
                sender.send_control(1, &[&number.to_le_bytes()]).unwrap();
            }
        }
        sender.finish()
    });
    let (mut numbers, mut controls) = (BTreeSet::new(), Vec::new());
    while let Some(event) = receiver.recv().unwrap() {
        match event {
            BundleEvent::Block {
                stream,
                number,
                bytes,
            } => {
                assert_eq!((stream, bytes.len() as u64), (7, 1000 + number));
                assert!(bytes.iter().all(|byte| *byte == number as u8));
                assert!(numbers.insert(number), "{number} arrived twice");
            }
            BundleEvent::Control(message) => controls.push(message.bytes),
        }
    }
    sending.join().unwrap().unwrap();
    assert_eq!(numbers.len() as u64, BLOCKS);
    let sent: Vec<_> = (0..10_u64)
        .map(|one| (one * 50).to_le_bytes().to_vec())
        .collect();
    assert_eq!(controls, sent);
    quiet.finish().unwrap();
    assert_eq!(back.recv(), Ok(None));
}

#[test]
fn blocks_arrive_once_over_several_links() {
    check_transfer(Ends::new(patient(), patient()).bundle(4));
}

#[test]
fn two_bundles_of_a_peer_stay_apart() {
    let ends = Ends::new(patient(), patient());
    let (one, two) = (ends.bundle(2), ends.bundle(3));
    assert_eq!((one.1.handles().len(), two.1.handles().len()), (2, 3));
    check_transfer(one);
    check_transfer(two);
}

#[test]
fn single_link_serves_as_a_bundle() {
    let ends = Ends::new(patient(), patient());
    let (connected, arrived) = ends.bundle(1);
    assert_eq!(connected.handles().len(), 1);
    check_transfer((connected, arrived));
}

#[test]
fn failed_link_ends_the_bundle() {
    let (connected, arrived) = Ends::new(patient(), patient()).bundle(3);
    let handles = connected.handles();
    let (sender, mut back) = connected.split().unwrap();
    let (_quiet, mut receiver) = arrived.split().unwrap();
    handles[2].abort("cut");
    assert!(back.recv().is_err());
    // The peer names the connection that was cut, and not those that ended for it.
    let Err(Error::Link { fault, .. }) = receiver.recv() else {
        panic!("the bundle goes on")
    };
    assert_eq!(fault, LinkFault::Truncated);
    wait_until("sending fails", || {
        sender.send_block(1, 1, Arc::new(vec![1; 9])).is_err()
    });
    assert!(handles.iter().all(|handle| handle.has_failed()));
    assert!(sender.finish().is_err());
}

#[test]
fn dropped_bundle_half_is_no_end() {
    for count in [1, 3] {
        let (connected, arrived) = Ends::new(patient(), patient()).bundle(count);
        let (sender, _back) = connected.split().unwrap();
        let (_quiet, mut receiver) = arrived.split().unwrap();
        sender.send_block(1, 1, Arc::new(vec![1; 9])).unwrap();
        drop(sender);
        let error = loop {
            match receiver.recv() {
                Ok(event) => assert!(event.is_some(), "a clean end"),
                Err(error) => break error,
            }
        };
        let is_cut =
            |fault: &LinkFault| matches!(fault, LinkFault::Truncated | LinkFault::Aborted(_));
        assert!(matches!(&error, Error::Link { fault, .. } if is_cut(fault)));
    }
}

#[test]
fn slow_receiver_holds_a_bundle_back() {
    const BLOCKS: u64 = 2048;
    let settings = LinkSettings {
        socket_buffer_bytes: Some(256 << 10),
        ..patient()
    };
    let (connected, arrived) = Ends::new(settings.clone(), settings).bundle(2);
    let handles = connected.handles();
    let (sender, mut back) = connected.split().unwrap();
    let (quiet, mut receiver) = arrived.split().unwrap();
    let sending = thread::spawn(move || {
        let bytes = Arc::new(vec![1; 64 << 10]);
        (0..BLOCKS).for_each(|number| sender.send_block(1, number, Arc::clone(&bytes)).unwrap());
        sender.finish()
    });
    wait_until("all senders wait", || {
        let stalled = |time: Duration| time > Duration::from_secs(1);
        handles
            .iter()
            .all(|handle| handle.stalled().is_some_and(stalled))
    });
    let sent: u64 = handles
        .iter()
        .map(|handle| handle.counters().sent_bytes)
        .sum();
    assert!(
        sent < 16 << 20,
        "{sent} bytes are somewhere between both ends"
    );
    let mut count = 0;
    while receiver.recv().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, BLOCKS);
    sending.join().unwrap().unwrap();
    quiet.finish().unwrap();
    assert_eq!(back.recv(), Ok(None));
}

#[test]
fn block_above_the_limit_is_refused() {
    let settings = LinkSettings {
        message_bytes_max: 1000,
        ..patient()
    };
    let (connected, _arrived) = Ends::new(settings.clone(), settings).bundle(1);
    let (sender, _back) = connected.split().unwrap();
    let (bytes, bytes_max) = (1001, 1000);
    let refused = Error::Oversized { bytes, bytes_max };
    assert_eq!(
        sender.send_block(1, 1, Arc::new(vec![0; 989])),
        Err(refused)
    );
    sender.send_block(1, 1, Arc::new(vec![0; 988])).unwrap();
}
