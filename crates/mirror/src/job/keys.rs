//! The keys that the file of a job may have. What is not here is refused, and what is here is read
//! (a bug otherwise).

use driftless_settings::Keys;

/// All keys: those of a table with its name before a dot. `trash` is a key or a table.
pub const KEYS: [&str; 78] = [
    "name",
    "source",
    "replica",
    "replicas",
    "detect",
    "rpo",
    "quiet",
    "on_problem",
    "delete",
    "max_delete",
    "delete_excluded",
    "delete_unlike",
    "read_only",
    "trash",
    "required",
    "filters",
    "one_file_system",
    "min_size",
    "max_size",
    "level",
    "read_back",
    "cache",
    "durability",
    "walk.every",
    "cycle.every",
    "cycle.keep",
    "live.settle",
    "fanotify.unlimited",
    "gpfs.device",
    "gpfs.fileset",
    "command.create",
    "command.list",
    "command.delete",
    "command.diff",
    "list.path",
    "list.format",
    "lustre.mdt",
    "lustre.user",
    "announcements.broker",
    "announcements.credentials",
    "announcements.ca",
    "announcements.exchange",
    "announcements.topic_prefix",
    "announcements.subtopics",
    "announcements.queue",
    "announcements.base_url",
    "keep.mode",
    "keep.owner",
    "keep.group",
    "keep.demand_owners",
    "keep.times",
    "keep.modify_window",
    "keep.atimes",
    "keep.hard_links",
    "keep.holes",
    "keep.symlinks",
    "keep.specials",
    "keep.devices",
    "keep.xattrs",
    "keep.acls",
    "trash.age",
    "trash.bytes",
    "limits.bytes_per_second",
    "limits.requests_per_second",
    "limits.jobs",
    "movers.hosts",
    "movers.queue",
    "movers.credentials",
    "movers.ca",
    "movers.routes",
    "reach.ssh",
    "reach.agent_path",
    "reach.streams",
    "reach.compress",
    "reach.deploy",
    "reach.reconnect",
    "metrics.listen",
    "metrics.public",
];

/// The keys, with what else may be written for them.
pub(super) const JOB: Keys = Keys {
    all: &KEYS,
    elsewhere,
};

/// What `sync` or other programs call something, and how it is written in a job.
const ELSEWHERE: [(&str, &str); 24] = [
    ("include", "filters = [\"+ PATTERN\"]"),
    ("exclude", "filters = [\"- PATTERN\"]"),
    ("filter", "filters = [\"- PATTERN\"]"),
    ("filter_from", "filters = [\"- PATTERN\"]"),
    ("checksum", "level = \"content\""),
    ("verify", "read_back = \"content\""),
    ("require", "required = [\"PATH\"]"),
    ("bwlimit", "bytes_per_second in [limits]"),
    ("iops_limit", "requests_per_second in [limits]"),
    ("queue_credentials", "credentials in [movers]"),
    ("queue_ca", "ca in [movers]"),
    ("route", "routes in [movers]"),
    ("job", "name"),
    ("src", "source"),
    ("dst", "replica"),
    ("dest", "replica"),
    ("destination", "replica"),
    ("target", "replica"),
    ("detector", "detect"),
    ("detectors", "detect"),
    ("interval", "every in [walk] or [cycle]"),
    ("schedule", "every in [walk] or [cycle]"),
    ("settle_time", "settle in [live]"),
    ("prometheus", "listen in [metrics]"),
];

fn elsewhere(name: &str) -> Option<String> {
    let kept = name.strip_prefix("no_").map(|kept| JOB.of("keep", kept));
    if let Some(Some(kept)) = kept {
        let name = kept.strip_prefix("keep.").unwrap_or(kept);
        return Some(format!("{name} = false in [keep]"));
    }
    let (_, instead) = ELSEWHERE.iter().find(|(other, _)| *other == name)?;
    Some((*instead).to_owned())
}
