//! How values stand in the columns of our tables. SQLite's integers have 64 bits and a sign; what
//! cannot be a value of ours is damage, and no value is guessed.

use crate::StoreError;
use driftless_model::RelPath;
use rusqlite::Row;
use rusqlite::types::{Type, ValueRef};
use std::time::Duration;

/// A value of a row that none of ours is.
pub(crate) fn bad(
    at: usize,
    kind: Type,
    why: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    StoreError::FromSqlConversionFailure(at, kind, why.into())
}

/// A number that uses all 64 bits.
pub(crate) fn number(row: &Row<'_>, at: usize) -> Result<u64, StoreError> {
    row.get::<_, i64>(at).map(i64::cast_unsigned)
}

/// Numbers of 128 bits, which SQLite does not know.
pub(crate) fn hex(number: u128) -> String {
    format!("{number:032x}")
}

pub(crate) fn from_hex(at: usize, text: &str) -> Result<u128, StoreError> {
    u128::from_str_radix(text, 16).map_err(|error| bad(at, Type::Text, error))
}

pub(crate) fn path(row: &Row<'_>, at: usize) -> Result<RelPath, StoreError> {
    let ValueRef::Blob(bytes) = row.get_ref(at)? else {
        return Err(bad(at, Type::Blob, "no path"));
    };
    RelPath::parse(bytes).map_err(|error| bad(at, Type::Blob, error))
}

/// A count, as it is kept: one that SQLite cannot hold becomes the largest that it can.
pub(crate) fn capped(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(crate) fn count(row: &Row<'_>, at: usize) -> Result<u64, StoreError> {
    let count: i64 = row.get(at)?;
    u64::try_from(count).map_err(|error| bad(at, Type::Integer, error))
}

/// A time in whole milliseconds, as it is kept; what is shorter is cut off.
pub(crate) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

pub(crate) fn time(row: &Row<'_>, at: usize) -> Result<Duration, StoreError> {
    count(row, at).map(Duration::from_millis)
}

/// A time; nothing where there is `NULL`.
pub(crate) fn opt_time(row: &Row<'_>, at: usize) -> Result<Option<Duration>, StoreError> {
    match row.get_ref(at)? {
        ValueRef::Null => Ok(None),
        _ => time(row, at).map(Some),
    }
}
