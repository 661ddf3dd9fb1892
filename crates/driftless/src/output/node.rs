//! Output of `driftless node`: copies, their removal and their verification.

use crate::output::json;
use crate::output::mirror::{complaint, line};
use crate::output::table::table;
use crate::units::{show_bytes, show_counted};
use driftless_cast::{CheckSummary, HeldCopyInfo, NodeInfo, PurgeSummary};
use driftless_model::{escape_text, quote};

/// Digits of a hash that a table shows.
const HASH_DIGITS: usize = 12;
/// Entries of one copy that a person gets.
const ENTRIES_MAX: usize = 20;

/// Prints the state of a node.
pub fn status(info: &NodeInfo, is_json: bool) {
    if is_json {
        return line(&json::line(info));
    }
    line(match info.has_daemon {
        true => "daemon: runs",
        false => "daemon: does not run",
    });
    if let Some(address) = &info.address {
        line(&format!("address: {address}"));
    }
    if let Some(key) = &info.key {
        line(&format!("key: {key}"));
    }
    if info.casts > 0 {
        line(&format!("casts at work: {}", info.casts));
    }
    let limit = info.cache_bytes_max.map(show_bytes);
    let limit = limit.map_or_else(|| "no limit".into(), |limit| format!("limit {limit}"));
    line(&format!(
        "cache: {} ({limit})",
        show_bytes(info.cached_bytes)
    ));
    if !info.copies.is_empty() {
        lines(&copies(&info.copies));
    }
}

fn lines(text: &str) {
    text.lines().for_each(line);
}

/// Returns the table of copies.
fn copies(copies: &[HeldCopyInfo]) -> String {
    let header = ["COPY", "STATE", "SIZE", "SET", "KEPT BY", "PLACE"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(copies.iter().map(|copy| {
        vec![
            copy.copy.to_string(),
            copy.state.clone(),
            show_bytes(copy.bytes),
            copy.set.chars().take(HASH_DIGITS).collect(),
            keepers(copy),
            quote(&copy.place).to_string(),
        ]
    }));
    table(&rows)
}

/// Returns the cause why a copy stays.
fn keepers(copy: &HeldCopyInfo) -> String {
    let mut words: Vec<String> = copy
        .jobs
        .iter()
        .map(|job| format!("job {}", escape_text(job)))
        .collect();
    if copy.is_pinned {
        words.push("pin".into());
    }
    match (words.is_empty(), copy.is_cached) {
        (false, _) => words.join(", "),
        (true, true) => "cache".into(),
        (true, false) => "place".into(),
    }
}

/// Prints the result of a removal.
pub fn purged(summary: &PurgeSummary, is_json: bool) {
    if is_json {
        return line(&json::line(summary));
    }
    let copies = show_counted(summary.copies, "copy", "copies");
    line(&format!("{copies} removed: {}", show_bytes(summary.bytes)));
    for entry in summary.kept.iter().take(ENTRIES_MAX) {
        complaint(&format!("{entry}: stays"));
    }
    let more = summary.kept.len().saturating_sub(ENTRIES_MAX);
    if more > 0 {
        complaint(&format!("{more} more entries stay"));
    }
    for copy in &summary.staying {
        complaint(&format!("copy {}: {}", copy.copy, copy.reason));
    }
}

/// Prints the result of the verification of a copy.
pub fn check(check: &CheckSummary, is_json: bool) {
    if is_json {
        return line(&json::line(check));
    }
    let kinds = [
        ("changed", &check.changed),
        ("missing", &check.missing),
        ("extraneous", &check.extra),
    ];
    for (kind, entries) in kinds {
        for entry in entries.iter().take(ENTRIES_MAX) {
            line(&format!("copy {}: {kind}: {entry}", check.copy));
        }
        let more = entries.len().saturating_sub(ENTRIES_MAX);
        if more > 0 {
            line(&format!("copy {}: {kind}: {more} more", check.copy));
        }
    }
    if let Some(fault) = &check.fault {
        return line(&format!("not checked: {fault}"));
    }
    let state = if check.is_sound { "sound" } else { "damaged" };
    let bytes = show_bytes(check.bytes);
    line(&format!("copy {}: {state}, {bytes} hashed", check.copy));
}
