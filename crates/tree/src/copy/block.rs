//! Moving one block between two open files.

use crate::local::look::fault;
use driftless_model::{Act, Fault, Side};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{IoSlice, IoSliceMut};

/// A fault of moving content: of reading on the source's side, of writing on the replica's.
pub fn io_fault(side: Side, errno: Errno) -> Fault {
    fault(
        side,
        if side == Side::Source {
            Act::Read
        } else {
            Act::Write
        },
        errno,
    )
}

/// Moves one block between descriptors; a read or write that ends short is continued. Returns the
/// number of bytes moved, fewer than the block has where the source ends.
pub fn move_with(
    from: &OwnedFd,
    to: &OwnedFd,
    block: &mut [u8],
    at: u64,
    flags: ReadWriteFlags,
) -> Result<usize, (Side, Errno)> {
    let mut got = 0;
    while got < block.len() {
        match rustix::io::preadv2(
            from,
            &mut [IoSliceMut::new(&mut block[got..])],
            at + got as u64,
            flags,
        ) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err((Side::Source, e)),
        }
    }
    let mut put = 0;
    while put < got {
        match rustix::io::pwritev2(
            to,
            &[IoSlice::new(&block[put..got])],
            at + put as u64,
            flags,
        ) {
            Ok(0) => return Err((Side::Replica, Errno::IO)),
            Ok(n) => put += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err((Side::Replica, e)),
        }
    }
    Ok(got)
}
