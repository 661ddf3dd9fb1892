//! What is printed of the agent of a node.

use super::mirror::{at, line};
use crate::units::{show_bytes, show_count, show_counted};
use driftless_model::escape;
use driftless_spool::Depth;
use driftless_watch::status::{
    Counts, GapStatus, MirrorStatus, PublisherStatus, Status, TreeStatus,
};
use serde_json::json;
use std::time::Duration;

/// Programs that are named, those with the most files.
const PROGRAMS_MAX: usize = 20;

/// Prints how an agent stands. `depth` is what waits in the spool, if it could be looked at.
pub fn status(status: &Status, depth: Option<Depth>, json: bool) {
    if json {
        let text = serde_json::to_string(&json_of(status, depth));
        return line(&text.expect("plain values"));
    }
    line(&first(status));
    for tree in &status.trees {
        line(&format!("  tree    {}", of_tree(tree)));
    }
    for mirror in &status.mirrors {
        line(&format!("  mirror  {}", of_mirror(mirror)));
    }
    if let Some(publisher) = &status.publisher {
        line(&format!("  publish {}", of_publisher(publisher)));
    }
    line(&format!("  spool   {}", of_spool(depth)));
    if status.is_running {
        of_counts(&status.counts).iter().for_each(|text| line(text));
    }
}

fn json_of(status: &Status, depth: Option<Depth>) -> serde_json::Value {
    let Counts {
        messages,
        unread,
        dropped,
        events,
        posts,
        covered,
        uncovered,
        deaf,
        unsaved,
    } = &status.counts;
    json!({
        "agent": status.name,
        "is_running": status.is_running,
        "process": status.process,
        "detect": status.detect,
        "messages": messages,
        "unread": unread,
        "dropped": dropped,
        "events": events,
        "posts": posts,
        "covered": covered,
        "uncovered": uncovered,
        "deaf": deaf,
        "unsaved": unsaved,
        "trees": status.trees,
        "mirrors": status.mirrors,
        "publisher": status.publisher,
        "spool_files": depth.map(|depth| depth.files),
        "spool_bytes": depth.map(|depth| depth.bytes),
    })
}

fn first(status: &Status) -> String {
    match status.process {
        Some(process) => format!(
            "{}: running (process {process}), receives changes from {}",
            status.name,
            status.detect.join(" and ")
        ),
        None => format!("{}: not running", status.name),
    }
}

fn of_tree(tree: &TreeStatus) -> String {
    let path = escape(tree.path.as_bytes());
    let waiting = show_counted(tree.waiting, "path waits", "paths wait");
    let (oldest, gaps) = (oldest(tree.oldest_ms), of_gaps(&tree.gaps));
    format!("\"{path}\": {waiting}{oldest}, {gaps}")
}

/// Since when something waits, if anything does.
fn oldest(moment_of: Option<u64>) -> String {
    let since = moment_of.map(|oldest| format!(" since {}", moment(oldest)));
    since.unwrap_or_default()
}

fn of_gaps(gaps: &GapStatus) -> String {
    let count = show_counted(gaps.count, "event loss", "event losses");
    let held = match gaps.is_held {
        true => ", held back for up to a minute",
        false => "",
    };
    match (gaps.first_ms, gaps.last_ms) {
        (Some(first), Some(last)) if first != last => {
            format!(
                "{count} since {}, the last one at {}{held}",
                moment(first),
                moment(last)
            )
        }
        (Some(first), _) => format!("{count} at {}{held}", moment(first)),
        _ => "no event losses".into(),
    }
}

fn moment(millis: u64) -> String {
    at(Duration::from_millis(millis))
}

fn of_mirror(mirror: &MirrorStatus) -> String {
    let job = escape(mirror.job.as_bytes());
    let away = mirror.away.as_ref().map(|why| format!(", away: {why}"));
    let waiting = show_counted(mirror.waiting, "path waits", "paths wait");
    format!("{job}: {waiting}{}", away.unwrap_or_default())
}

fn of_publisher(publisher: &PublisherStatus) -> String {
    let exchange = escape(publisher.exchange.as_bytes());
    let broker = escape(publisher.broker.as_bytes());
    let waiting = show_counted(publisher.waiting, "path waits", "paths wait");
    let sent = show_counted(publisher.sent, "message", "messages");
    let unheard = match publisher.unheard {
        0 => String::new(),
        unheard => format!("; {} unroutable", show_count(unheard)),
    };
    let away = publisher.away.as_ref().map(|why| format!(", away: {why}"));
    let away = away.unwrap_or_default();
    let oldest = oldest(publisher.oldest_ms);
    format!("{exchange} at {broker}: {waiting}{oldest}, {sent} sent{unheard}{away}")
}

fn of_spool(depth: Option<Depth>) -> String {
    match depth {
        Some(Depth { files: 0, .. }) => "empty".into(),
        Some(Depth { files, bytes }) => {
            let files = show_counted(files, "file", "files");
            format!("{files}, {}", show_bytes(bytes))
        }
        None => "cannot be read".into(),
    }
}

fn of_counts(counts: &Counts) -> Vec<String> {
    let mut lines = vec![format!(
        "  input   {}, {} malformed, {} over the limit; {} of the kernel; {}",
        show_counted(counts.messages, "message", "messages"),
        show_count(counts.unread),
        show_count(counts.dropped),
        show_counted(counts.events, "event", "events"),
        show_counted(counts.posts, "post", "posts"),
    )];
    let mut programs: Vec<(&String, &u64)> = counts.uncovered.iter().collect();
    programs.sort_by_key(|(name, files)| (std::cmp::Reverse(**files), *name));
    if counts.covered > 0 || !programs.is_empty() {
        let files = show_counted(counts.covered, "file", "files");
        lines.push(format!(
            "  covered {files} that programs wrote were announced"
        ));
    }
    for (name, files) in programs.iter().take(PROGRAMS_MAX) {
        let files = show_counted(**files, "file", "files");
        lines.push(format!("  without {}: {files}", escape(name.as_bytes())));
    }
    if programs.len() > PROGRAMS_MAX {
        let more = programs.len() - PROGRAMS_MAX;
        lines.push(format!("  without {more} more programs"));
    }
    for (who, why) in &counts.deaf {
        lines.push(format!("  failed  {who}: {why}"));
    }
    if let Some(why) = &counts.unsaved {
        lines.push(format!("  unsaved {why}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_without_a_queue_are_told_apart() {
        let told = |unheard| {
            of_publisher(&PublisherStatus {
                broker: "broker".into(),
                exchange: "exchange".into(),
                sent: 2,
                unheard,
                ..PublisherStatus::default()
            })
        };
        let line = "exchange at broker: 0 paths wait, 2 messages sent";
        assert_eq!(told(0), line);
        assert_eq!(told(1), format!("{line}; 1 unroutable"));
    }
}
