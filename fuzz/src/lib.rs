//! What the fuzz targets batch: a bound on memory, what is said again, and seeds.
#![allow(clippy::disallowed_methods, reason = "seeds are files of our own")]

use cap::Cap;
use driftless_model::{Kind, Meta, Stamp, Unkept};
use driftless_remote::wire::Frame;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::alloc::System;
use std::path::PathBuf;

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// Bytes of memory that reading may take for each byte that is read. A list grows by doubling, and
/// an extended attribute, whose two lengths take two bytes on the line, is two slices of 16 bytes.
const BYTES_FOR_EACH: usize = 64;
/// And besides: what lists and lines reserve before their elements come, 1 MiB each, at a few
/// levels.
const BYTES_BESIDES: usize = 8 << 20;

/// Reads input of so many bytes; asking for more memory than that may take ends the process, which
/// is a finding.
pub fn bounded<T>(input_bytes: usize, read: impl FnOnce() -> T) -> T {
    let most = MEMORY.allocated() + BYTES_BESIDES + input_bytes * BYTES_FOR_EACH;
    MEMORY.set_limit(most).expect("less is allocated");
    let found = read();
    MEMORY.set_limit(usize::MAX).expect("it is more");
    found
}

/// What was understood is understood again as the same. Messages cannot be compared, but their only
/// encoding can.
pub fn said_again<T: Serialize + DeserializeOwned>(message: &T) {
    let once = Frame::new(1, message, Vec::new());
    let understood: T = once.message().expect("what is said is understood");
    assert_eq!(Frame::new(1, &understood, Vec::new()).head, once.head);
}

/// Begins a target: what is said of a finding may take any memory. Where `FUZZ_SEEDS` names a
/// folder, writes inputs to begin with there and ends the process.
pub fn begin(seeds: impl IntoIterator<Item = Vec<u8>>) {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        MEMORY.set_limit(usize::MAX).expect("it is more");
        report(panic);
    }));
    let Some(folder) = std::env::var_os("FUZZ_SEEDS").map(PathBuf::from) else {
        return;
    };
    for (number, seed) in seeds.into_iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{number}")), seed).expect("a seed is written");
    }
    std::process::exit(0);
}

/// An entry of a seed.
pub fn meta(kind: Kind, size: u64) -> Meta {
    let stamp = Stamp {
        sec: 1_700_000_000,
        nsec: 5,
    };
    Meta {
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        size,
        blocks: 8,
        mtime: stamp,
        atime: stamp,
        ctime: stamp,
        nlink: 1,
        dev: 1,
        ino: 2,
        rdev: 0,
        unkept: Unkept::NONE,
    }
}
