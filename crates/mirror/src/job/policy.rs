//! The part of a job that is a [`Policy`]: the same as the options of `sync`, in other words.

use super::forms::{delete_limit, path_below, rule, window};
use driftless_model::{Cache, Durability, Filter, Keep, Level, Policy, PolicyError, PolicyNames};
use driftless_settings::{Document, forms};

/// What a policy's fields are called in a job.
const NAMES: PolicyNames = PolicyNames {
    min_size: "min_size",
    max_size: "max_size",
    max_delete: "max_delete",
    read_back: "read_back",
};

const LEVELS: [(&str, Level); 3] = [
    ("meta", Level::Meta),
    ("content", Level::Content),
    ("media", Level::Media),
];

const CACHES: [(&str, Cache); 3] = [
    ("keep", Cache::Keep),
    ("drop", Cache::Drop),
    ("direct", Cache::Direct),
];

const DURABILITIES: [(&str, Durability); 3] = [
    ("end", Durability::End),
    ("file", Durability::File),
    ("none", Durability::None),
];

/// Reads the policy.
pub(super) fn read(from: &mut Document) -> Policy {
    let mut is_set = |key| from.take(key, forms::flag).unwrap_or(false);
    let (delete, delete_excluded) = (is_set("delete"), is_set("delete_excluded"));
    let (delete_unlike, one_file_system) = (is_set("delete_unlike"), is_set("one_file_system"));
    Policy {
        keep: keep(from),
        level: from
            .take("level", |value| forms::choice(value, &LEVELS))
            .unwrap_or_default(),
        // Metadata is not read back, and is not offered.
        read_back: from.take("read_back", |value| forms::choice(value, &LEVELS[1..])),
        filter: Filter {
            rules: from.take_list("filters", rule).unwrap_or_default(),
            size_min: from.take("min_size", forms::size),
            size_max: from.take("max_size", forms::size),
        },
        one_file_system,
        delete,
        delete_excluded,
        delete_unlike,
        delete_limit: from.take("max_delete", delete_limit),
        // It has a table of its own, from which this follows.
        trash: false,
        required: from.take_list("required", path_below).unwrap_or_default(),
        cache: from
            .take("cache", |value| forms::choice(value, &CACHES))
            .unwrap_or_default(),
        durability: from
            .take("durability", |value| forms::choice(value, &DURABILITIES))
            .unwrap_or_default(),
    }
}

fn keep(from: &mut Document) -> Keep {
    let mut keep = Keep::default();
    let flags: [(&'static str, &mut bool); 13] = [
        ("keep.mode", &mut keep.mode),
        ("keep.owner", &mut keep.owner),
        ("keep.group", &mut keep.group),
        ("keep.demand_owners", &mut keep.demands_owners),
        ("keep.times", &mut keep.times),
        ("keep.atimes", &mut keep.atimes),
        ("keep.hard_links", &mut keep.hard_links),
        ("keep.holes", &mut keep.holes),
        ("keep.symlinks", &mut keep.symlinks),
        ("keep.specials", &mut keep.specials),
        ("keep.devices", &mut keep.devices),
        ("keep.xattrs", &mut keep.xattrs),
        ("keep.acls", &mut keep.acls),
    ];
    for (key, kept) in flags {
        *kept = from.take(key, forms::flag).unwrap_or(*kept);
    }
    keep.modify_window = from.take("keep.modify_window", window).unwrap_or(0);
    keep
}

/// Tells what of the policy cannot be meant.
pub(super) fn check(from: &mut Document, policy: &Policy) {
    if let Err(error) = policy.check().and_then(|()| policy.check_deletes()) {
        let key = match error {
            PolicyError::Sizes { .. } => "min_size",
            PolicyError::Percent(_) => "max_delete",
            PolicyError::ReadBack => "read_back",
            PolicyError::Ambiguous(_) => "filters",
        };
        // The sentence begins with the key itself.
        let told = error.told(&NAMES);
        let what = told.strip_prefix(key).unwrap_or(&told);
        from.wrong(key, what.trim_start_matches([' ', ':']));
    }
    for key in ["max_delete", "delete_excluded", "delete_unlike"] {
        if from.has(key) && !policy.delete {
            from.wrong(key, "nothing is deleted without delete = true");
        }
    }
    let keep = &policy.keep;
    if keep.demands_owners && !keep.owner && !keep.group {
        from.wrong("keep.demand_owners", "neither owners nor groups are kept");
    }
}
