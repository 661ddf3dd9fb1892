//! Whose memory this is: a child of vfork(2) uses that of its parent until it runs another program,
//! and must leave no trace in it.

use crate::sys;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The process whose memory this is; 0 before it has begun.
#[unsafe(link_section = ".data")]
static OWN: AtomicI32 = AtomicI32::new(0);

/// Whether this is a child that uses the memory of its parent. Where no system call is made any more
/// that cannot be told, and it is taken for none.
pub fn is_borrowed() -> bool {
    !sys::is_confined() && OWN.load(Relaxed) != sys::own_process()
}

/// The memory is this process's own: it begins, or is a child with a copy.
pub fn owns() {
    OWN.store(sys::own_process(), Relaxed);
}
