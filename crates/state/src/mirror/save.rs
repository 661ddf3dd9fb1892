//! What a mirror saves together, and how it is written.

use super::rows::{BacklogRow, Cursor, DirtyRow, HourRow, ProblemRow};
use super::rows::{CommonRow, SELECT_HOURS, hour, millis_after, millis_before, scope_word};
use crate::StoreError;
use crate::columns::{capped, millis};
use driftless_model::{Gap, Lag, RelPath};
use rusqlite::{OptionalExtension, Params, Transaction, params};
use std::time::Duration;

/// Problems that are kept. When there are more, those go that were met last and are not in
/// quarantine: their paths stay dirty, so they are met again.
pub const PROBLEMS_KEPT_MAX: u64 = 10_000;
/// Hours that are kept, with their lag: 400 days.
pub const HOURS_KEPT_MAX: u64 = 400 * 24;
/// Stretches of which it is kept what was left to do: 400 days.
pub const BACKLOG_KEPT_MAX: u64 = HOURS_KEPT_MAX * 12;

/// Changes of the state that are made together: all or none. What is taken away goes first, so what
/// is taken away and put is there.
#[derive(Debug, Clone, Default)]
pub struct Saved {
    /// Paths that may differ, in the place of what was saved of them.
    pub dirty: Vec<DirtyRow>,
    /// Paths that are equal now.
    pub clean: Vec<RelPath>,
    /// Problems, in the place of what was saved of the same path, tree and act.
    pub problems: Vec<ProblemRow>,
    /// Paths that have no problem any more.
    pub solved: Vec<RelPath>,
    /// Positions of detectors, in the place of those before.
    pub cursors: Vec<Cursor>,
    /// New gaps, with their detectors.
    pub gaps: Vec<(String, Gap)>,
    /// Numbers of gaps that were walked.
    pub walked: Vec<u64>,
    /// How long changes took to the replica, by the hour (since 1970); added to what was saved.
    pub lag: Vec<(u64, Lag)>,
    /// What was done, by the hour; added to what was saved.
    pub hours: Vec<HourRow>,
    /// What was left to do, by stretches; the most of it and of what was saved counts.
    pub backlog: Vec<BacklogRow>,
    /// Snapshots that source and replica have in common, in the place of those of the same name.
    pub common: Vec<CommonRow>,
    /// Names of snapshots that they do not have in common any more.
    pub uncommon: Vec<String>,
    /// Up to when every change is on the replica.
    pub equal_until: EqualUntil,
}

/// What is saved of the moment up to which every change is on the replica.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EqualUntil {
    /// What was saved before.
    #[default]
    AsBefore,
    /// No such moment is known.
    Unknown,
    /// This one.
    At(Duration),
}

/// What is done.
type Done<T = ()> = Result<T, StoreError>;

/// Writes all of it; returns the numbers of the new gaps.
pub(super) fn write(into: &Transaction<'_>, saved: &Saved) -> Done<Vec<u64>> {
    write_dirty(into, saved)?;
    write_problems(into, saved)?;
    for Cursor {
        detector,
        position,
        at,
    } in &saved.cursors
    {
        const PUT: &str = "INSERT OR REPLACE INTO cursors VALUES (?, ?, ?)";
        put(into, PUT, params![detector, position, millis(*at)])?;
    }
    write_hours(into, saved)?;
    write_backlog(into, saved)?;
    write_common(into, saved)?;
    match saved.equal_until {
        EqualUntil::AsBefore => {}
        EqualUntil::Unknown => put(into, "UPDATE job SET equal_until_ms = NULL", [])?,
        EqualUntil::At(moment) => {
            let moment = [millis(moment)];
            put(into, "UPDATE job SET equal_until_ms = ?", moment)?;
        }
    }
    write_gaps(into, saved)
}

fn put(into: &Transaction<'_>, statement: &str, values: impl Params) -> Done {
    into.prepare_cached(statement)?.execute(values).map(drop)
}

fn write_dirty(into: &Transaction<'_>, saved: &Saved) -> Done {
    for path in &saved.clean {
        put(into, "DELETE FROM dirty WHERE path = ?", [path.as_bytes()])?;
    }
    for row in &saved.dirty {
        const PUT: &str = "INSERT OR REPLACE INTO dirty VALUES (?, ?, ?, ?, ?, ?, ?)";
        let values = params![
            row.path.as_bytes(),
            scope_word(row.scope),
            millis(row.since),
            millis(row.due),
            row.attempts,
            row.is_long,
            row.is_doubtful
        ];
        put(into, PUT, values)?;
    }
    Ok(())
}

fn write_problems(into: &Transaction<'_>, saved: &Saved) -> Done {
    for path in &saved.solved {
        const GONE: &str = "DELETE FROM problems WHERE path = ?";
        put(into, GONE, [path.as_bytes()])?;
    }
    for row in &saved.problems {
        const PUT: &str = "INSERT OR REPLACE INTO problems VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let values = params![
            row.problem.path.as_bytes(),
            row.problem.side.word(),
            row.problem.act.words(),
            row.problem.cause,
            row.problem.class.word(),
            millis(row.first),
            millis(row.last),
            row.attempts,
            row.is_quarantined
        ];
        put(into, PUT, values)?;
    }
    if saved.problems.is_empty() {
        return Ok(());
    }
    const TOO_MANY: &str = "DELETE FROM problems WHERE (path, side, act) IN
        (SELECT path, side, act FROM problems ORDER BY quarantined, first_ms DESC, path DESC
        LIMIT max(0, (SELECT count(*) FROM problems) - ?))";
    put(into, TOO_MANY, [capped(PROBLEMS_KEPT_MAX)])
}

/// Hours of which some lag is known have a row, too: they are kept as long.
fn write_hours(into: &Transaction<'_>, saved: &Saved) -> Done {
    for row in &saved.hours {
        add_hour(into, row)?;
    }
    for (hour, lag) in &saved.lag {
        let longest = HourRow {
            hour: *hour,
            max: lag.max(),
            ..HourRow::default()
        };
        add_hour(into, &longest)?;
        for (bucket, count) in lag.buckets() {
            // A sum that is too large would become a number that is not whole.
            const ADD: &str = "INSERT INTO lag VALUES (?, ?, ?) ON CONFLICT (hour, bucket)
                DO UPDATE SET count = count + min(excluded.count, 9223372036854775807 - count)";
            let values = params![capped(*hour), capped(bucket as u64), capped(count)];
            put(into, ADD, values)?;
        }
    }
    if saved.hours.is_empty() && saved.lag.is_empty() {
        return Ok(());
    }
    // Their number counts, not their age: a clock that was wrong once takes nothing away.
    const TOO_OLD: &str = "DELETE FROM hours WHERE hour <=
        (SELECT hour FROM hours ORDER BY hour DESC LIMIT 1 OFFSET ?)";
    put(into, TOO_OLD, [capped(HOURS_KEPT_MAX)])
}

fn add_hour(into: &Transaction<'_>, more: &HourRow) -> Done {
    let number = capped(more.hour);
    let mut find = into.prepare_cached(SELECT_HOURS)?;
    let found = find.query_row([number, number.saturating_add(1)], hour);
    let mut sum = found.optional()?.unwrap_or_default();
    sum.add(more);
    // An upsert: a row that is replaced would take its lag away with it.
    const PUT: &str = "INSERT INTO hours VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (hour)
        DO UPDATE SET files = excluded.files, bytes = excluded.bytes, max_ms = excluded.max_ms,
        over_300 = excluded.over_300, over_600 = excluded.over_600, changed = excluded.changed,
        deleted = excluded.deleted, problems = excluded.problems";
    let values = params![
        number,
        capped(sum.files),
        capped(sum.bytes),
        millis(sum.max),
        capped(sum.over_300),
        capped(sum.over_600),
        capped(sum.changed),
        capped(sum.deleted),
        capped(sum.problems)
    ];
    put(into, PUT, values)
}

fn write_backlog(into: &Transaction<'_>, saved: &Saved) -> Done {
    for row in &saved.backlog {
        const PUT: &str = "INSERT INTO backlog VALUES (?, ?, ?, ?) ON CONFLICT (stretch) DO UPDATE
            SET left_max = max(left_max, excluded.left_max),
            quarantined_max = max(quarantined_max, excluded.quarantined_max),
            behind_max_ms = max(behind_max_ms, excluded.behind_max_ms)";
        let values = params![
            capped(row.stretch),
            capped(row.left),
            capped(row.quarantined),
            millis(row.behind)
        ];
        put(into, PUT, values)?;
    }
    if saved.backlog.is_empty() {
        return Ok(());
    }
    const TOO_OLD: &str = "DELETE FROM backlog WHERE stretch <=
        (SELECT stretch FROM backlog ORDER BY stretch DESC LIMIT 1 OFFSET ?)";
    put(into, TOO_OLD, [capped(BACKLOG_KEPT_MAX)])
}

fn write_common(into: &Transaction<'_>, saved: &Saved) -> Done {
    for name in &saved.uncommon {
        put(into, "DELETE FROM common WHERE name = ?", [name])?;
    }
    for row in &saved.common {
        if row.is_newest {
            put(
                into,
                "UPDATE common SET is_newest = 0 WHERE is_newest = 1",
                [],
            )?;
        }
        const PUT: &str = "INSERT OR REPLACE INTO common VALUES (?, ?, ?, ?, ?)";
        let values = params![
            row.name,
            row.source,
            row.replica,
            millis(row.made),
            row.is_newest
        ];
        put(into, PUT, values)?;
    }
    Ok(())
}

fn write_gaps(into: &Transaction<'_>, saved: &Saved) -> Done<Vec<u64>> {
    for id in &saved.walked {
        put(into, "DELETE FROM gaps WHERE id = ?", [capped(*id)])?;
    }
    let mut numbers = Vec::new();
    for (detector, gap) in &saved.gaps {
        const PUT: &str =
            "INSERT INTO gaps (detector, path, since_ms, until_ms) VALUES (?, ?, ?, ?)";
        let values = params![
            detector,
            gap.path.as_bytes(),
            gap.since.map(millis_before),
            millis_after(gap.until)
        ];
        put(into, PUT, values)?;
        numbers.push(into.last_insert_rowid().cast_unsigned());
    }
    Ok(numbers)
}
