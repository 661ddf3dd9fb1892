//! Checking a copy: its entries against the catalogue, and its content against the hashes.

use crate::catalogue::{Catalogue, EntryGuard};
use crate::error::{Error, Result};
use crate::format::{EntryBody, EntryFacts};
use crate::placed::{LookOutcome, LookedAt, PlacedWalk};
use crate::reader::UnitReader;
use crate::seen::SeenIdentities;
use driftless_model::{Keep, Meta};
use driftless_reconcile::is_kept;
use driftless_state::holdings::UnkeptCounts;
use driftless_tree::{Dir, Rights};
use std::collections::BTreeSet;
use std::ffi::CStr;

/// Findings that a report names.
const NAMED_FINDINGS_MAX: usize = 256;

/// The outcome of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Entries with other metadata or other content.
    pub changed: u64,
    /// Entries with other metadata, in a copy whose node could not keep all. The copy is sound.
    pub unkept: u64,
    /// Entries that are missing, or in whose place another entry stands.
    pub missing: u64,
    /// Entries that the catalogue lacks. They do no harm to the copy.
    pub extra: u64,
    /// Units whose content differs or cannot be read.
    pub bad_units: u64,
    /// Bytes of content that were hashed.
    pub bytes: u64,
    /// The first findings, each with its path below the place.
    pub first: Vec<(Vec<u8>, CopyFinding)>,
}

/// A difference between a copy and its catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyFinding {
    /// Content differs or cannot be read.
    Content,
    /// Metadata differ, or cannot be read.
    Metadata,
    /// The entry is missing, or another one stands in its place.
    Missing,
    /// The catalogue lacks the entry.
    Extra,
}

impl CheckReport {
    /// Returns whether the copy is the set. Extra entries do not count.
    pub fn is_sound(&self) -> bool {
        self.changed == 0 && self.missing == 0 && self.bad_units == 0
    }

    fn note(&mut self, path: Vec<u8>, finding: CopyFinding) {
        let count = match finding {
            CopyFinding::Content | CopyFinding::Metadata => &mut self.changed,
            CopyFinding::Missing => &mut self.missing,
            CopyFinding::Extra => &mut self.extra,
        };
        *count = count.saturating_add(1);
        if self.first.len() < NAMED_FINDINGS_MAX {
            self.first.push((path, finding));
        }
    }
}

/// Checks the entries of a copy, and returns their identities. `unkept` counts the metadata that the
/// node could not keep.
pub(crate) fn check_entries(
    walk: &mut PlacedWalk<'_>,
    unkept: UnkeptCounts,
    report: &mut CheckReport,
) -> Result<SeenIdentities> {
    let has_kept_all = unkept == UnkeptCounts::default();
    let (catalogue, keep) = (walk.catalogue, Keep::default());
    let rights = walk.holder.rights();
    // A missing directory is one finding, and so is each entry in it.
    let mut seen = 0u32;
    let mut identities = SeenIdentities::for_user(walk.holder.user().0);
    walk.visit(0..catalogue.entries(), &mut |at: LookedAt<'_>| {
        let path = || catalogue.path(at.number);
        if !matches!(at.outcome, LookOutcome::Extra(_) | LookOutcome::Left) {
            seen = seen.saturating_add(1);
        }
        match at.outcome {
            LookOutcome::Left => {}
            LookOutcome::Placed(meta) => {
                identities.add(meta);
                if is_same(&at, meta, (&keep, &rights)) {
                    return Ok(());
                }
                match has_kept_all || !has_body(at.entry, meta, &**at.holder, at.name) {
                    true => report.note(path(), CopyFinding::Metadata),
                    false => report.unkept = report.unkept.saturating_add(1),
                }
            }
            LookOutcome::Missing | LookOutcome::Other => report.note(path(), CopyFinding::Missing),
            LookOutcome::OtherOwner | LookOutcome::Failed(_) => {
                report.note(path(), CopyFinding::Metadata);
            }
            LookOutcome::Extra(name) => {
                let path = [&path(), &b"/"[..], name.to_bytes()].concat();
                report.note(path, CopyFinding::Extra);
            }
        }
        Ok(())
    })?;
    let unseen = catalogue.entries().saturating_sub(seen);
    report.missing = report.missing.saturating_add(unseen.into());
    Ok(identities)
}

fn is_same(at: &LookedAt<'_>, meta: &Meta, terms: (&Keep, &Rights)) -> bool {
    let Some(facts) = at.entry.body.facts() else {
        return true;
    };
    let (_, rights) = terms;
    let is_link = matches!(at.entry.body, EntryBody::Symlink { .. });
    let mode = facts.xattrs.mode_of_copy(facts.mode);
    let is_own = !rights.any_owner || (meta.uid, meta.gid) == (facts.uid, facts.gid);
    let is_mode = is_link || !rights.any_owner || meta.mode == mode;
    is_own
        && is_mode
        && is_kept(facts.mtime, meta)
        && has_body(at.entry, meta, &**at.holder, at.name)
        && has_xattrs(facts, &**at.holder, at.name, terms)
}

fn has_body(entry: &EntryGuard, meta: &Meta, holder: &dyn Dir, name: &CStr) -> bool {
    match &entry.body {
        EntryBody::File { size, .. } => meta.size == *size,
        EntryBody::Symlink { target, .. } => holder
            .read_link(name)
            .is_ok_and(|found| found.to_bytes() == target.as_slice()),
        EntryBody::Node { kind, rdev, .. } => !kind.is_device() || meta.rdev == *rdev,
        EntryBody::Dir(_) | EntryBody::HardLink { .. } => true,
    }
}

fn has_xattrs(facts: &EntryFacts, holder: &dyn Dir, name: &CStr, terms: (&Keep, &Rights)) -> bool {
    let (keep, rights) = terms;
    // An ordinary user cannot set all of them.
    let is_able = rights.any_owner && rights.capabilities && rights.trusted;
    !is_able
        || holder
            .xattrs_of(name, keep)
            .is_ok_and(|found| facts.xattrs.agrees_with(&found))
}

/// Hashes the content of a copy.
pub(crate) fn check_content(
    catalogue: &Catalogue,
    reader: &mut UnitReader,
    pace: &mut dyn FnMut(u64) -> bool,
    report: &mut CheckReport,
) -> Result<()> {
    let (mut buffer, mut named) = (Vec::new(), BTreeSet::new());
    for unit in 0..catalogue.units() {
        let bytes = u64::from(catalogue.unit_bytes(unit));
        if !pace(bytes) {
            return Err(Error::Stopped);
        }
        report.bytes = report.bytes.saturating_add(bytes);
        let path = match reader.read(unit, &mut buffer) {
            Ok(()) => continue,
            Err(Error::CopyChanged { path } | Error::Entry { path, .. }) => path,
            Err(other) => return Err(other),
        };
        report.bad_units = report.bad_units.saturating_add(1);
        if named.len() < NAMED_FINDINGS_MAX && named.insert(path.clone()) {
            report.note(path, CopyFinding::Content);
        }
    }
    Ok(())
}
