//! What the record of a shared run says of names that a replica may take for one with others, or
//! has under another spelling.

use crate::shared::batch::{Batch, Piece};
use crate::shared::handed::{Handed, Misspelt, Namesake};
use crate::trees::alike::{alike_of, random_seed};
use driftless_model::{EntryName, Filter, RelPath, Selection};
use driftless_reconcile::NameIndex;
use driftless_state::{Alike, Misspelling, Record, StateError, StoreError, Transaction};
use std::collections::BTreeSet;

/// Which names are like earlier ones among all that is chosen by name, which no mover sees as a
/// whole. Names that the filter leaves out are like no others.
pub fn alike_chosen(selection: &Selection, filter: &Filter) -> Vec<(RelPath, Namesake)> {
    let (mut found, mut left) = (Vec::new(), vec![(RelPath::root(), selection)]);
    let mut index = NameIndex::new(random_seed());
    while let Some((dir, node)) = left.pop() {
        if node.whole {
            continue;
        }
        let takes = |name: &[u8], below: &Selection| {
            filter.takes(dir.join(name).as_bytes(), !below.children.is_empty())
        };
        let taken = node
            .children
            .iter()
            .filter(|(name, below)| takes(name, below));
        let names: Vec<&[u8]> = taken.map(|(name, _)| &**name).collect();
        for (later, earlier) in alike_of(&mut index, names.len(), |number| names[number]) {
            let named = |number: usize| EntryName::try_from(names[number].to_vec());
            let earlier = earlier
                .into_iter()
                .filter_map(|number| named(number).ok())
                .collect();
            found.extend(named(later).map(|name| (dir.clone(), Namesake { name, earlier })));
        }
        left.extend(
            node.children
                .iter()
                .map(|(name, below)| (dir.join(name), &**below)),
        );
    }
    found
}

/// Notes names that are like others.
pub fn note_alike(
    transaction: &Transaction<'_>,
    alike: &[(RelPath, Namesake)],
) -> Result<(), StoreError> {
    let row = |(dir, one): &(RelPath, Namesake)| Alike {
        dir: dir.clone(),
        name: one.name.clone(),
        earlier: one.earlier.clone(),
    };
    alike
        .iter()
        .try_for_each(|one| transaction.add_alike(&row(one)))
}

/// Notes what is to be respelt.
pub fn note_misspelt(
    transaction: &Transaction<'_>,
    misspelt: &[Misspelt],
) -> Result<(), StoreError> {
    let row = |one: &Misspelt| Misspelling {
        dir: one.dir.clone(),
        found: one.from.clone(),
        wanted: one.to.clone(),
    };
    misspelt
        .iter()
        .try_for_each(|one| transaction.add_misspelt(&row(one)))
}

/// Which of the names that a batch is about, or that are on the way to them, are like others, by
/// directory.
///
/// # Errors
/// The record cannot be read.
pub fn alike_in_batch(
    record: &Record,
    batch: &Batch,
) -> Result<Vec<(RelPath, Vec<Namesake>)>, StateError> {
    let mut found: Vec<(RelPath, Vec<Namesake>)> = Vec::new();
    if !record.has_alike()? {
        return Ok(found);
    }
    for (dir, name) in names_in(batch) {
        let Some(Alike { dir, name, earlier }) = record.alike(&dir, &name)? else {
            continue;
        };
        let namesake = Namesake { name, earlier };
        match found.last_mut() {
            Some((last, namesakes)) if *last == dir => namesakes.push(namesake),
            _ => found.push((dir, vec![namesake])),
        }
    }
    Ok(found)
}

/// The names that a mover meets when it carries out a batch, each once, with its directory.
fn names_in(batch: &Batch) -> BTreeSet<(RelPath, Vec<u8>)> {
    let mut names = BTreeSet::new();
    for piece in &batch.pieces {
        let mut way = match piece {
            Piece::Root => continue,
            Piece::Entries(dir, entries) => {
                names.extend(
                    entries
                        .iter()
                        .map(|name| (dir.clone(), name.as_bytes().to_vec())),
                );
                dir.clone()
            }
            Piece::Bytes(path, ..) | Piece::Rest(path, ..) => path.clone(),
        };
        while let Some((dir, name)) = way.split_last() {
            names.insert((dir.clone(), name.to_vec()));
            way = dir;
        }
    }
    names
}

/// All that movers have handed on.
///
/// # Errors
/// The record cannot be read.
pub fn handed_on(record: &Record) -> Result<Handed, StateError> {
    let (mut handed, mut alike, mut misspelt) =
        (Handed::default(), record.all_alike(), record.misspelt());
    while let Some(Alike { dir, name, earlier }) = alike.next_row()? {
        handed.add_alike(dir, Namesake { name, earlier });
    }
    while let Some(Misspelling { dir, found, wanted }) = misspelt.next_row()? {
        handed.add_misspelt(Misspelt {
            dir,
            from: found,
            to: wanted,
        });
    }
    Ok(handed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Scope, Work};

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn of_names_that_are_chosen_those_that_are_alike_are_found_in_each_directory() {
        let works = ["A/x", "a/x", "d/ONE", "d/one", "d/two", "e/one"].map(|text| Work {
            path: path(text),
            scope: Scope::Subtree,
        });
        let mut found: Vec<String> = alike_chosen(&Selection::of(&works), &Filter::default())
            .iter()
            .map(|(dir, alike)| {
                format!(
                    "{} {:?}",
                    dir.join(alike.name.as_bytes()),
                    alike.earlier[0].as_bytes()
                )
            })
            .collect();
        found.sort();
        assert_eq!(
            found,
            [format!("a {:?}", b"A"), format!("d/one {:?}", b"ONE")]
        );
    }

    #[test]
    fn a_batch_meets_its_names_and_those_on_the_way() {
        let one = EntryName::try_from(b"one".to_vec()).unwrap();
        let batch = Batch {
            pieces: vec![Piece::Entries(path("a/b"), vec![one])],
            ..Batch::default()
        };
        let met: Vec<String> = names_in(&batch)
            .iter()
            .map(|(dir, name)| dir.join(name).to_string())
            .collect();
        assert_eq!(met, ["a", "a/b", "a/b/one"]);
    }
}
