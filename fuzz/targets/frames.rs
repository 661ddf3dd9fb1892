//! Plaintext of an authenticated peer: however the stream is cut, the same messages arrive, none
//! exceeds the limit, and memory stays bounded.
#![no_main]

use driftless_dataplane::{FrameError, FrameReader, LinkMessage};
use driftless_fuzz::{begin, bounded};
use libfuzzer_sys::fuzz_target;

/// Limit of the reader in bytes.
const BYTES_MAX: usize = 2000;
const HEARTBEAT: u8 = 255;

fuzz_target!(init: begin(seeds()), |bytes: &[u8]| {
    let whole = bounded(bytes.len(), || read(bytes, usize::MAX));
    for piece in [1, 7, 1000] {
        let cut = bounded(bytes.len(), || read(bytes, piece));
        assert_eq!(cut.messages, whole.messages);
        assert_eq!(cut.error, whole.error);
    }
    assert!(whole.messages.iter().all(|message| message.bytes.len() <= BYTES_MAX));
    assert!(whole.messages.iter().all(|message| message.kind != HEARTBEAT));
    check_order(bytes, &whole);
});

/// Result of a stream.
struct Received {
    messages: Vec<LinkMessage>,
    error: Option<FrameError>,
}

fn read(bytes: &[u8], piece: usize) -> Received {
    let mut reader = FrameReader::new(BYTES_MAX);
    let (mut messages, mut error) = (Vec::new(), None);
    for part in bytes.chunks(piece.min(bytes.len().max(1))) {
        error = reader.push(part).err();
        messages.extend(std::iter::from_fn(|| reader.pop()));
        if error.is_some() {
            break;
        }
    }
    Received { messages, error }
}

/// The messages are the content of the stream, in order.
fn check_order(bytes: &[u8], received: &Received) {
    let (mut rest, mut messages) = (bytes, received.messages.iter());
    while let Some((head, after)) = rest.split_first_chunk::<5>() {
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let Some((content, next)) = after.split_at_checked(length) else {
            break;
        };
        if length > BYTES_MAX {
            break;
        }
        if head[4] != HEARTBEAT {
            let message = messages.next().expect("a whole frame is a message");
            assert_eq!((message.kind, message.bytes.as_slice()), (head[4], content));
        }
        rest = next;
    }
    assert!(messages.next().is_none(), "a message that was not sent");
}

fn seeds() -> Vec<Vec<u8>> {
    let frame = |kind: u8, length: u32, content: &[u8]| {
        [&length.to_le_bytes()[..], &[kind], content].concat()
    };
    let all = [
        frame(1, 3, b"one"),
        frame(HEARTBEAT, 0, b""),
        frame(
            252,
            14,
            b"ab\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00",
        ),
        frame(2, 2000, &[7; 2000]),
    ];
    let too_large = frame(3, 2001, &[7; 9]);
    let cut = frame(4, 9, b"half");
    vec![all.concat(), [all[0].clone(), too_large].concat(), cut]
}
