//! Messages between the coordinator and the nodes of a cast: what is decoded is decoded again as the
//! same, and memory stays bounded.
#![no_main]

use driftless_cast::decode_any;
use driftless_fuzz::{begin, bounded};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: begin(seeds()), |bytes: &[u8]| {
    if let Some((kind, message)) = bytes.split_first() {
        bounded(bytes.len(), || decode_any(*kind, message));
    }
});

/// A kind, and a message of postcard: the number of a variant, and its fields.
fn seeds() -> Vec<Vec<u8>> {
    let opening = [&[1, 1, 1][..], &[7; 16], &[9]].concat();
    let begin = [
        &[2, 0][..],
        &[7; 16],
        &[8; 32],
        &[0, 2, b'/', b'a', 0, 0, 0, 0, 0, 0, 1],
    ]
    .concat();
    let peers = [&[2, 1, 1, 2][..], &[5; 32], &[1, 0, 127, 0, 0, 1, 9]].concat();
    let expect = vec![2, 2, 0, 3, 1, 1, 0, 16];
    let seal = vec![2, 12, 1, b'j', 1, 1, b'a', 3, b'n', b'/', b'a'];
    let relayed = vec![4, 21, 1, 14, 0];
    let ready = vec![4, 2, 1, 4, 9, 77];
    let failed = vec![4, 5, 2, b'n', b'o'];
    let want = vec![5, 0, 2, 0, 4, 6, 9];
    vec![
        opening, begin, peers, expect, seal, relayed, ready, failed, want,
    ]
}
