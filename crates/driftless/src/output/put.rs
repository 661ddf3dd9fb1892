//! Output of `driftless put`. Standard output has the path alone, so that a shell can pass it on.

use crate::command::put::wire::{DepositRow, PlacedDeposit};
use crate::output::json;
use crate::output::mirror::{line, raw_line};
use crate::output::table::aligned;
use crate::units::show_bytes;
use driftless_model::event::PathText;
use driftless_model::{escape, moment};
use serde::Serialize;

/// Column of the sizes.
const SIZE: usize = 1;

/// A deposit as a line of JSON.
#[derive(Serialize)]
struct PlacedLine {
    name: String,
    #[serde(flatten)]
    path: PathText,
}

/// A deposit of a list as a line of JSON.
#[derive(Serialize)]
struct DepositLine {
    name: String,
    #[serde(flatten)]
    path: PathText,
    complete: bool,
    entries: u64,
    bytes: u64,
    made: u64,
}

/// Prints the path of a deposit, byte by byte.
pub fn placed(deposit: &PlacedDeposit, name: &[u8], is_json: bool) {
    if !is_json {
        return raw_line(&deposit.path);
    }
    line(&json::line(&PlacedLine {
        name: escape(name),
        path: json::bytes_text(&deposit.path),
    }));
}

/// Prints deposits.
pub fn deposits(rows: &[DepositRow], is_json: bool) {
    if is_json {
        return rows.iter().for_each(|row| {
            line(&json::line(&DepositLine {
                name: escape(&row.name),
                path: json::bytes_text(&row.path),
                complete: row.is_complete,
                entries: row.entries,
                bytes: row.bytes,
                made: row.made,
            }));
        });
    }
    if rows.is_empty() {
        return line("no deposits");
    }
    let mut table = vec![["NAME", "SIZE", "TIME"].map(str::to_owned).to_vec()];
    table.extend(rows.iter().map(|row| {
        let time = match row.is_complete {
            true => moment(i64::try_from(row.made).unwrap_or(i64::MAX)),
            false => "unfinished".to_owned(),
        };
        vec![escape(&row.name), show_bytes(row.bytes), time]
    }));
    aligned(&table, |at| at == SIZE).lines().for_each(line);
}
