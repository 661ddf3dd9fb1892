//! Output of `driftless node`: copies, their removal and their verification.

use crate::output::json;
use crate::output::mirror::{complaint, line};
use crate::output::table::aligned;
use crate::units::{show_bytes, show_counted};
use driftless_cast::{CheckSummary, EndedJob, HeldCopyInfo, NodeInfo, PurgeSummary};
use driftless_model::{escape, escape_text, moment};

/// Digits of a hash that a table shows.
const HASH_DIGITS: usize = 12;
/// Column of the table that has numbers.
const SIZE_COLUMN: usize = 2;
/// Names of one copy that a table shows.
const NAMES_MAX: usize = 4;
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
    match info.copies.is_empty() {
        true => line("no copies"),
        false => lines(&copies(&info.copies)),
    }
}

fn lines(text: &str) {
    text.lines().for_each(line);
}

/// Returns the table of copies, in the order of their numbers.
fn copies(copies: &[HeldCopyInfo]) -> String {
    let header = ["COPY", "STATE", "SIZE", "SET", "KEPT BY", "PLACE"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let mut copies: Vec<&HeldCopyInfo> = copies.iter().collect();
    copies.sort_by_key(|copy| copy.copy);
    rows.extend(copies.into_iter().map(|copy| {
        vec![
            copy.copy.to_string(),
            copy.state.clone(),
            show_bytes(copy.bytes),
            copy.set.chars().take(HASH_DIGITS).collect(),
            keepers(copy),
            place(copy),
        ]
    }));
    aligned(&rows, |at| at == SIZE_COLUMN)
}

/// Returns the names of a copy, and where they are. The cache has a directory for each data set.
fn place(copy: &HeldCopyInfo) -> String {
    let more = match copy.names.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names = copy.names.get(..NAMES_MAX).unwrap_or(&copy.names);
    let names = format!("{}{more}", names.join(", "));
    let path = match copy.is_cached {
        true => "cache".to_owned(),
        false => escape(copy.place.as_os_str().as_encoded_bytes()),
    };
    match (copy.names.len(), copy.is_cached) {
        (0, _) => path,
        (1, false) => format!("{}/{names}", path.trim_end_matches('/')),
        _ => format!("{path}: {names}"),
    }
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
    match (words.is_empty(), copy.is_cached, copy.expires) {
        (false, _, _) => words.join(", "),
        (true, false, _) => "place".into(),
        (true, true, None) => "cache".into(),
        (true, true, Some(time)) => {
            format!("until {}", moment(i64::try_from(time).unwrap_or(i64::MAX)))
        }
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
        complaint(&format!("\"{}\": stays: {}", entry.path, entry.reason));
    }
    let more = summary.kept.len().saturating_sub(ENTRIES_MAX);
    if more > 0 {
        complaint(&format!("{more} more entries stay"));
    }
    for copy in &summary.staying {
        complaint(&format!("copy {}: {}", copy.copy, copy.reason));
    }
}

/// Prints the end of a job at nodes.
pub fn ended(nodes: &[EndedJob], is_json: bool) {
    if is_json {
        return nodes.iter().for_each(|node| line(&json::line(node)));
    }
    for node in nodes {
        let name = escape_text(&node.node);
        if let Some(fault) = &node.fault {
            complaint(&format!("{name}: {fault}"));
        }
        for copy in &node.staying {
            complaint(&format!("{name}: copy {}: {}", copy.copy, copy.reason));
        }
        if node.entries_kept > 0 {
            let entries = show_counted(node.entries_kept, "entry stays", "entries stay");
            complaint(&format!("{name}: {entries} that driftless did not place"));
        }
        for copy in &node.kept {
            line(&format!(
                "{name}: copy {} stays: {}",
                copy.copy, copy.reason
            ));
        }
    }
    let done = nodes.iter().filter(|node| node.is_ended()).count();
    let sum = |of: fn(&EndedJob) -> u64| nodes.iter().map(of).fold(0, u64::saturating_add);
    let copies = show_counted(sum(|node| node.copies), "copy", "copies");
    let bytes = show_bytes(sum(|node| node.bytes));
    let all = show_counted(nodes.len() as u64, "node", "nodes");
    line(&format!(
        "job ended on {done} of {all}; {copies} removed: {bytes}"
    ));
}

/// Prints what to do about damaged copies.
pub fn remedy(checks: &[CheckSummary]) {
    let is_damaged = |check: &&CheckSummary| !check.is_sound && check.fault.is_none();
    let count = checks.iter().filter(is_damaged).count() as u64;
    if count > 0 {
        let copies = show_counted(count, "damaged copy", "damaged copies");
        complaint(&format!(
            "{copies}: repeat the cast, which fetches what differs"
        ));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(number: u64, is_cached: bool, names: &[&str]) -> HeldCopyInfo {
        HeldCopyInfo {
            copy: number,
            set: "d103d44ed53e".repeat(5),
            place: "/mnt".into(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            bytes: 12 << 20,
            state: "complete".into(),
            is_cached,
            jobs: Vec::new(),
            is_pinned: false,
            expires: is_cached.then_some(86_400),
            used: 0,
        }
    }

    #[test]
    fn copies_stand_in_order_with_their_names() {
        let table = copies(&[copy(10, true, &["app", "perl"]), copy(3, false, &["app"])]);
        let lines = [
            "COPY  STATE          SIZE  SET           KEPT BY                        PLACE",
            "3     complete  12.00 MiB  d103d44ed53e  place                          /mnt/app",
            "10    complete  12.00 MiB  d103d44ed53e  until 1970-01-02 00:00:00 UTC  cache: app, perl",
        ];
        assert_eq!(table, lines.join("\n"));
    }

    #[test]
    fn long_list_of_names_is_cut() {
        let names = ["a", "b", "c", "d", "e", "f"];
        assert_eq!(
            place(&copy(1, false, &names)),
            "/mnt: a, b, c, d and 2 more"
        );
        assert_eq!(place(&copy(1, true, &[])), "cache");
    }
}
