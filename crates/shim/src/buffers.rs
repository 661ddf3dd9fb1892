//! Room for paths: buffers for the whole process, since neither the stack of a handler of signals
//! nor that of a small thread has any to spare.

use crate::sys::{self, PATH_MAX};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{
    AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// Bytes of one: a message with two paths.
pub const SIZE: usize = 2 * PATH_MAX + 32;
/// Buffers in 4 words of 64 bits; a thread uses 4 at a time at most. Those that nobody has used are
/// no memory yet.
const WORDS: usize = 4;
const COUNT: usize = WORDS * 64;

struct All(UnsafeCell<[[u8; SIZE]; COUNT]>);

// SAFETY: a buffer is used by the one holder of its bit in `TAKEN`.
unsafe impl Sync for All {}

static ALL: All = All(UnsafeCell::new([[0; SIZE]; COUNT]));
#[unsafe(link_section = ".data")]
static TAKEN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
/// The thread that has each ([`sys::own_thread`]).
#[unsafe(link_section = ".data")]
static OWNERS: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];

/// A buffer, until it goes.
pub struct Buffer(usize);

/// Takes one, if one is free.
pub fn take() -> Option<Buffer> {
    let taken = TAKEN.iter().enumerate().find_map(|(word, bits)| {
        let bit = take_bit(bits)?;
        Some(Buffer((word * 64 + bit) % COUNT))
    });
    if let Some(owner) = taken
        .as_ref()
        .and_then(|Buffer(number)| OWNERS.get(*number))
    {
        owner.store(sys::own_thread(), Relaxed);
    }
    taken
}

fn take_bit(bits: &AtomicU64) -> Option<usize> {
    let mut taken = bits.load(Relaxed);
    while taken != u64::MAX {
        let bit = taken.trailing_ones() % 64;
        match bits.compare_exchange_weak(taken, taken | 1 << bit, Acquire, Relaxed) {
            Ok(_) => return Some(bit as usize),
            Err(now) => taken = now,
        }
    }
    None
}

impl Buffer {
    /// Which it is. It stays taken until [`Buffer::of`] has given it back and that has gone.
    pub fn into_number(self) -> usize {
        let number = self.0;
        core::mem::forget(self);
        number
    }

    /// The one with a number of [`Buffer::into_number`].
    pub fn of(number: usize) -> Buffer {
        Buffer(number % COUNT)
    }
}

/// A child of fork(2) has none of the other threads that had taken some.
pub fn forked() {
    let own = sys::own_thread();
    for (number, owner) in OWNERS.iter().enumerate() {
        let owner = owner.load(Relaxed);
        if owner != 0 && owner != own {
            drop(Buffer::of(number));
        }
    }
}

impl Deref for Buffer {
    type Target = [u8; SIZE];

    fn deref(&self) -> &[u8; SIZE] {
        // SAFETY: the number is below their count, and its bit this one's.
        unsafe { &*ALL.0.get().cast::<[u8; SIZE]>().add(self.0) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8; SIZE] {
        // SAFETY: the number is below their count, and its bit this one's.
        unsafe { &mut *ALL.0.get().cast::<[u8; SIZE]>().add(self.0) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(owner) = OWNERS.get(self.0) {
            owner.store(0, Relaxed);
        }
        if let Some(bits) = TAKEN.get(self.0 / 64) {
            bits.fetch_and(!(1 << (self.0 % 64)), Release);
        }
    }
}
