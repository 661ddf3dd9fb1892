//! What a value of an entry may be, checked when it is decoded: the kernel gives a meaning of its
//! own to some that are none.
//!
//! Nanoseconds can mean "now" and "leave it" (utimensat(2)), an owner of -1 means "leave it"
//! (chown(2)), sizes are signed. A peer that sends such a value does not keep to the protocol; were
//! it passed on, an act would succeed and do something else.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// Nanoseconds in a second.
const NSEC_END: u32 = 1_000_000_000;
/// What chown(2) takes for "leave it".
const NOBODYS: u32 = u32::MAX;
/// Bytes of a block as stat(2) counts them.
const BLOCK_BYTES: u64 = 512;

/// Reads a value that passes a check.
fn checked<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
    fits: impl Fn(&T) -> bool,
) -> Result<T, D::Error> {
    let value = T::deserialize(from)?;
    if fits(&value) {
        Ok(value)
    } else {
        Err(D::Error::custom("a value is out of its bounds"))
    }
}

/// Reads nanoseconds.
///
/// # Errors
/// There are more than a second has.
pub fn nsec<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    checked(from, |nsec| *nsec < NSEC_END)
}

/// Reads a user's or a group's number.
///
/// # Errors
/// It is that of nobody.
pub fn owner<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    checked(from, |id| *id != NOBODYS)
}

/// Reads a user's or a group's number, if there is one.
///
/// # Errors
/// It is that of nobody.
pub fn maybe_owner<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    checked(from, |id| *id != Some(NOBODYS))
}

/// Reads permission bits.
///
/// # Errors
/// There are others among them.
pub fn mode<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    checked(from, |mode| *mode <= 0o7777)
}

/// Reads permission bits, if there are any.
///
/// # Errors
/// There are others among them.
pub fn maybe_mode<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    checked(from, |mode: &Option<u32>| {
        mode.is_none_or(|mode| mode <= 0o7777)
    })
}

/// Reads the size of a file.
///
/// # Errors
/// No file can be so large.
pub fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    checked(from, |size| i64::try_from(*size).is_ok())
}

/// Reads a number of blocks.
///
/// # Errors
/// No file can have so many.
pub fn blocks<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    checked(from, |blocks: &u64| {
        blocks.checked_mul(BLOCK_BYTES).is_some()
    })
}

/// Reads a list of at most `MAX` elements: one that takes a byte or two of a head may take hundreds
/// of memory.
///
/// # Errors
/// There are more.
pub fn at_most<'de, const MAX: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct Elements<T, const MAX: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Elements<T, MAX> {
        type Value = Vec<T>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(out, "at most {MAX} elements")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
            let mut found = Vec::new();
            while let Some(element) = elements.next_element()? {
                if found.len() == MAX {
                    return Err(A::Error::custom("a list is longer than any may be"));
                }
                found.push(element);
            }
            Ok(found)
        }
    }

    deserializer.deserialize_seq(Elements::<T, MAX>(PhantomData))
}
