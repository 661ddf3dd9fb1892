//! What the coordinator of a run and its movers say to each other.
//!
//! A message is the number of this protocol (2 bytes, little-endian) and a value in postcard
//! (postcard.jamesmunns.com/wire-format).

use crate::shared::batch::{Batch, Outcome};
use crate::shared::brief::Brief;
use crate::shared::encoding::{decoded, encoded};
use crate::shared::exchange::{Alive, PartOfOutcome};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Changes with every change of what is said, and of the names that runs keep in a replica.
pub const VERSION: u16 = 6;
/// Bytes of a part of an outcome, far below the longest message.
const PART_BYTES_MAX: usize = 512 << 10;

/// To a mover.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    /// Carry this out.
    Batch {
        /// What it is a batch of.
        brief: Box<Brief>,
        /// The number of the run.
        run: u64,
        /// The number of the batch.
        id: u64,
        /// What is to be done.
        batch: Batch,
    },
    /// Come to an end with what is in hand, and leave the rest: others have nothing to do.
    Yield,
    /// The coordinator is there: the answer to each sign of life of a mover, in their order.
    Heard,
}

/// From a mover.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "one is held at a time")]
pub enum Report {
    /// It is at work.
    Alive(Alive),
    /// A part of what came of a batch.
    Part(PartOfOutcome),
    /// A batch could not be carried out here, and why.
    Failed {
        /// The number of the batch.
        id: u64,
        /// Who.
        mover: String,
        /// Why.
        reason: String,
        /// Whether this mover would fail all batches of the run.
        is_misfit: bool,
    },
}

/// Why a message cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unclear {
    /// It is of another version of driftless.
    Version(u16),
    /// It is none of ours.
    Malformed,
}

impl std::fmt::Display for Unclear {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unclear::Version(theirs) => {
                write!(
                    out,
                    "a message of another version of driftless (protocol {theirs}, here {VERSION}): install the same on all hosts"
                )
            }
            Unclear::Malformed => out.write_str("a message that is none of driftless's"),
        }
    }
}

/// A value as a message.
pub fn encode(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = VERSION.to_le_bytes().to_vec();
    bytes.extend(encoded(value));
    bytes
}

/// A message as a value.
///
/// # Errors
/// It is of another version, or none of ours.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unclear> {
    let (version, body) = bytes.split_first_chunk().ok_or(Unclear::Malformed)?;
    match u16::from_le_bytes(*version) {
        VERSION => decoded(body).ok_or(Unclear::Malformed),
        other => Err(Unclear::Version(other)),
    }
}

/// What came of a batch of a run on a mover, as reports in order. Those of one try have the same
/// number for it, and no others.
pub fn reports((run, id): (u64, u64), attempt: u64, mover: &str, outcome: Outcome) -> Vec<Report> {
    let parts = outcome.split(PART_BYTES_MAX);
    let count = parts.len();
    let report = |(number, part): (usize, Outcome)| {
        let (number, last) = (number as u32, number + 1 == count);
        Report::Part(PartOfOutcome {
            run,
            id,
            attempt,
            number,
            last,
            mover: mover.to_owned(),
            outcome: encoded(&part),
        })
    };
    parts.into_iter().enumerate().map(report).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_told_from_what_is_of_another_version() {
        let message = encode(&Order::Yield);
        assert!(matches!(decode::<Order>(&message), Ok(Order::Yield)));
        assert_eq!(
            decode::<Order>(&[&[9, 0][..], &message[2..]].concat()).unwrap_err(),
            Unclear::Version(9)
        );
        assert_eq!(
            decode::<Order>(&message[..2]).unwrap_err(),
            Unclear::Malformed
        );
        assert_eq!(decode::<Order>(b"x").unwrap_err(), Unclear::Malformed);
    }
}
