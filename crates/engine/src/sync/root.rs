//! Facts that a run tells of the roots before it begins.

use crate::sync::run::Run;
use driftless_model::Meta;
use driftless_tree::DirMutRef;

/// The sticky bit (inode(7)).
const STICKY: u32 = 0o1000;

/// Tells that the source's root user sees no attributes `trusted.*`, as in most containers, and the
/// replica's does.
pub fn tell_hidden(run: &Run<'_>) {
    let source = run.roots.0.rights();
    let is_seen = run
        .ground
        .rights
        .as_ref()
        .is_some_and(|rights| rights.trusted);
    if run.options.policy.keep.xattrs && source.uid == 0 && !source.trusted && is_seen {
        run.monitor.note(
            "root lacks CAP_SYS_ADMIN where the source is read, so attributes \"trusted.*\" of the source are not seen: \
            none is copied, and those of the replica stay as they are",
        );
    }
}

/// Says what the root of the replica is about to become, where it is more than a directory of the
/// tree: one in which everybody makes files, such as `/tmp`, or one on which a file system is
/// mounted.
pub fn tell_root(run: &Run<'_>, source: &Meta, replica: &DirMutRef) {
    let before = replica.first_meta();
    let is_mounted = replica.is_mount_root() == Some(true);
    let place = match before.mode & STICKY != 0 {
        true => "in which everybody may make files",
        false if is_mounted => "on which a file system is mounted",
        false => return,
    };
    let (keep, wanted) = (
        &run.options.policy.keep,
        run.attainable(source, before, None::<&DirMutRef>),
    );
    let changes = [
        (
            keep.mode && wanted.mode != before.mode,
            format!("mode {:04o} (is {:04o})", wanted.mode, before.mode),
        ),
        (
            keep.owner && wanted.uid != before.uid,
            format!("owner {} (is {})", wanted.uid, before.uid),
        ),
        (
            keep.group && wanted.gid != before.gid,
            format!("group {} (is {})", wanted.gid, before.gid),
        ),
    ];
    let changes: Vec<String> = changes
        .into_iter()
        .filter(|(differs, _)| *differs)
        .map(|(_, words)| words)
        .collect();
    if !changes.is_empty() {
        run.monitor.note(&format!(
            "the root of the replica, {place}, takes over from the source: {}",
            changes.join(", ")
        ));
    }
}
