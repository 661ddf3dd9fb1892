//! The keys that the file of a job may have. What is not here is refused, and what is here is read
//! (a bug otherwise).

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

/// The table of a key (empty at the top of the file) and its name there.
pub(super) fn split(key: &'static str) -> (&'static str, &'static str) {
    key.split_once('.').unwrap_or(("", key))
}

/// The key `name` of a table (empty at the top of the file).
pub(super) fn key_of(table: &str, name: &str) -> Option<&'static str> {
    KEYS.into_iter().find(|key| split(key) == (table, name))
}

/// The table of this name.
pub(super) fn table(name: &str) -> Option<&'static str> {
    tables().find(|table| *table == name)
}

/// The tables, some more than once.
pub(super) fn tables() -> impl Iterator<Item = &'static str> {
    let tables = KEYS.into_iter().map(|key| split(key).0);
    tables.filter(|table| !table.is_empty())
}
