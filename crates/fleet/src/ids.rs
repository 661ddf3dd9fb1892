//! User namespaces, in which the same entry has other owners.

use std::fs;

/// Returns the maps of users and groups of this process's user namespace (user_namespaces(7)), as
/// text with single blanks; two empty ones where they cannot be read, and on a kernel without such
/// namespaces.
#[allow(
    clippy::disallowed_methods,
    reason = "files of proc(5), no part of a replicated tree"
)]
pub fn id_maps() -> String {
    let maps = ["uid_map", "gid_map"].map(|name| {
        let text = fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    maps.join(" / ")
}
