//! Names by which a directory of the replica finds what it lists under another spelling.

use crate::trees::folding::{
    ASKED_MAX, Folding, in_any_other_case, in_other_case, in_other_form, told_by_its_names,
    with_other_end,
};
use crate::trees::looks::there;
use driftless_model::Meta;
use driftless_reconcile::{Likeness, fold};
use driftless_tree::{DirMutRef, Done, has_names_as_given, windows};
use std::collections::HashSet;
use std::ffi::{CStr, CString};

/// Returns those of `names` that the replica's directory finds and lists under another spelling, each
/// with that spelling.
///
/// A directory that is known to tell names apart costs nothing, one that tells them apart costs two
/// looks for each likeness, and any other is listed.
///
/// # Errors
/// The directory cannot be listed.
pub fn shown_otherwise(
    folding: &mut Folding,
    replica: &DirMutRef,
    names: &[CString],
) -> Done<Vec<(CString, CString)>> {
    if !may_show_otherwise(folding, replica, names) {
        return Ok(Vec::new());
    }
    let mut standing: Vec<(&CString, Meta)> = Vec::new();
    for name in names {
        standing.extend(there(replica.look(name))?.map(|meta| (name, meta)));
    }
    if standing.is_empty() {
        return Ok(Vec::new());
    }
    let listed = listed_alike(replica, &standing)?;
    standing.retain(|(name, _)| !listed.contains(*name));
    let mut found = Vec::new();
    for (name, meta) in standing {
        let folded = fold(name.to_bytes());
        let spelling = listed.iter().find(|other| {
            fold(other.to_bytes()) == folded
                && replica
                    .look(other)
                    .is_ok_and(|there| there.id() == meta.id())
        });
        found.extend(spelling.map(|spelling| (name.clone(), spelling.clone())));
    }
    Ok(found)
}

/// Returns the names that the directory lists and that differ from `wanted` ones in case, Unicode form
/// or end alone, or not at all.
fn listed_alike(replica: &DirMutRef, wanted: &[(&CString, Meta)]) -> Done<Vec<CString>> {
    let folded: HashSet<Vec<u8>> = wanted
        .iter()
        .map(|(name, _)| fold(name.to_bytes()).into_owned())
        .collect();
    let mut found = Vec::new();
    for names in windows(replica)? {
        let names = names?;
        let alike = (0..names.len())
            .map(|number| names.get(number).0)
            .filter(|name| folded.contains(&*fold(name.to_bytes())));
        found.extend(alike.map(CString::from));
    }
    Ok(found)
}

/// Returns whether the directory may find one of `names` under another spelling, and learns from the
/// answers. ext4, tmpfs and others take heed of form where they take heed of case.
fn may_show_otherwise(folding: &mut Folding, replica: &DirMutRef, names: &[CString]) -> bool {
    let asked: &[Likeness] = if replica.as_local().is_some_and(has_names_as_given) {
        &[Likeness::Case]
    } else {
        &[Likeness::Case, Likeness::Form, Likeness::End]
    };
    let mut may_be = false;
    for likeness in asked {
        may_be |= !folding.tells_apart(*likeness) && may_be_one(folding, replica, names, *likeness);
    }
    may_be
}

/// Returns whether one of `names` that stands in the directory may be one with another name that is as
/// like as that. The first that stands tells it of all.
fn may_be_one(
    folding: &mut Folding,
    replica: &DirMutRef,
    names: &[CString],
    likeness: Likeness,
) -> bool {
    let pairs = names
        .iter()
        .filter_map(|name| Some((name, spelt_otherwise(likeness, name)?)));
    for (asked, (name, other)) in pairs.enumerate() {
        if asked == ASKED_MAX {
            return told_by_its_names(replica, likeness).unwrap_or(true);
        }
        let Ok(meta) = replica.look(name) else {
            continue;
        };
        let is_one = replica
            .look(&other)
            .is_ok_and(|there| there.id() == meta.id());
        if !is_one {
            folding.learn(likeness, (name, &other));
        }
        return is_one;
    }
    false
}

/// Returns a name in another spelling that is as like as that, if it has one.
fn spelt_otherwise(likeness: Likeness, name: &CStr) -> Option<CString> {
    match likeness {
        Likeness::Case | Likeness::Both => in_any_other_case(name),
        Likeness::Form => in_other_form(name),
        Likeness::End => Some(with_other_end(name)),
    }
}

/// Returns whether the replica's directory, which has `names`, is known to have names as they were
/// given. A directory that takes names for one in Unicode form does so in case as well (ext4's and
/// tmpfs's `casefold`).
pub fn has_as_given(replica: &DirMutRef, names: &[CString]) -> bool {
    if !replica.as_local().is_some_and(has_names_as_given) {
        return false;
    }
    match names.iter().find_map(|name| in_other_case(name)) {
        Some(other) => matches!(there(replica.look(&other)), Ok(None)),
        None => names.iter().all(|name| name.to_bytes().is_ascii()),
    }
}
