//! What the record of a shared run says of names that a replica may take for one with others, or has under another spelling.

use crate::shared::facts::{Facts, Noted, decoded, encoded, fact, keyed};
use crate::shared::handed::{Handed, Misspelt, Namesake};
use crate::shared::share::{Piece, Share};
use crate::trees::alike::{alike_of, random_seed};
use driftless_model::{EntryName, Filter, RelPath, Selection};
use driftless_reconcile::NameIndex;
use driftless_state::{Batch, Record};
use std::collections::BTreeSet;

/// Which names are like earlier ones among all that is chosen by name, which no mover sees as a whole. Names that the filter leaves out are
/// like no others.
pub fn alike_chosen(selection: &Selection, filter: &Filter) -> Vec<(RelPath, Namesake)> {
    let (mut found, mut left) = (Vec::new(), vec![(RelPath::root(), selection)]);
    let mut index = NameIndex::new(random_seed());
    while let Some((dir, node)) = left.pop() {
        if node.whole {
            continue;
        }
        let takes = |name: &[u8], below: &Selection| filter.takes(dir.join(name).as_bytes(), !below.children.is_empty());
        let taken = node.children.iter().filter(|(name, below)| takes(name, below));
        let names: Vec<&[u8]> = taken.map(|(name, _)| &**name).collect();
        for (later, earlier) in alike_of(&mut index, names.len(), |number| names[number]) {
            let named = |number: usize| EntryName::try_from(names[number].to_vec());
            let earlier = earlier.into_iter().filter_map(|number| named(number).ok()).collect();
            found.extend(named(later).map(|name| (dir.clone(), Namesake { name, earlier })));
        }
        left.extend(node.children.iter().map(|(name, below)| (dir.join(name), &**below)));
    }
    found
}

/// Notes names that are like others.
pub fn note_alike(batch: &Batch<'_>, alike: &[(RelPath, Namesake)]) -> Noted<()> {
    alike.iter().try_for_each(|one| batch.put(fact::ALIKE, &alike_key(&one.0, one.1.name.as_bytes()), &encoded(one)))
}

/// Notes what is to be respelt.
pub fn note_misspelt(batch: &Batch<'_>, misspelt: &[Misspelt]) -> Noted<()> {
    let key = |one: &Misspelt| [&alike_key(&one.dir, one.from.as_bytes()), &b"\0"[..], one.to.as_bytes()].concat();
    misspelt.iter().try_for_each(|one| batch.put(fact::MISSPELT, &key(one), &encoded(one)))
}

/// Which of the names that a share is about, or that are on the way to them, are like others, by directory.
pub fn alike_in_share(record: &Record, share: &Share) -> Noted<Vec<(RelPath, Vec<Namesake>)>> {
    let mut found: Vec<(RelPath, Vec<Namesake>)> = Vec::new();
    if record.facts(fact::ALIKE, b"", 1)?.is_empty() {
        return Ok(found);
    }
    for (dir, name) in names_in(share) {
        let noted = record.fact(fact::ALIKE, &alike_key(&dir, &name))?;
        let Some((dir, namesake)) = noted.and_then(|noted| decoded::<(RelPath, Namesake)>(&noted)) else { continue };
        match found.last_mut() {
            Some((last, namesakes)) if *last == dir => namesakes.push(namesake),
            _ => found.push((dir, vec![namesake])),
        }
    }
    Ok(found)
}

/// The names that a mover meets when it carries out a share, each once, with its directory.
fn names_in(share: &Share) -> BTreeSet<(RelPath, Vec<u8>)> {
    let mut names = BTreeSet::new();
    for piece in &share.pieces {
        let mut way = match piece {
            Piece::Root => continue,
            Piece::Entries(dir, entries) => {
                names.extend(entries.iter().map(|name| (dir.clone(), name.as_bytes().to_vec())));
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

fn alike_key(dir: &RelPath, name: &[u8]) -> Vec<u8> {
    [&keyed(dir), &b"\0"[..], name].concat()
}

/// All that movers have handed on.
///
/// # Errors
/// The record cannot be read.
pub fn handed_on(record: &Record) -> Noted<Handed> {
    let (mut handed, mut alike, mut misspelt) = (Handed::default(), Facts::of(record, fact::ALIKE), Facts::of(record, fact::MISSPELT));
    while let Some((_, value)) = alike.next()? {
        decoded(&value).into_iter().for_each(|(dir, namesake)| handed.add_alike(dir, namesake));
    }
    while let Some((_, value)) = misspelt.next()? {
        decoded(&value).into_iter().for_each(|misspelt| handed.add_misspelt(misspelt));
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
        let works = ["A/x", "a/x", "d/ONE", "d/one", "d/two", "e/one"].map(|text| Work { path: path(text), scope: Scope::Subtree });
        let mut found: Vec<String> = alike_chosen(&Selection::of(&works), &Filter::default())
            .iter()
            .map(|(dir, alike)| format!("{} {:?}", dir.join(alike.name.as_bytes()), alike.earlier[0].as_bytes()))
            .collect();
        found.sort();
        assert_eq!(found, [format!("a {:?}", b"A"), format!("d/one {:?}", b"ONE")]);
    }

    #[test]
    fn a_share_meets_its_names_and_those_on_the_way() {
        let one = EntryName::try_from(b"one".to_vec()).unwrap();
        let share = Share { pieces: vec![Piece::Entries(path("a/b"), vec![one])], ..Share::default() };
        let met: Vec<String> = names_in(&share).iter().map(|(dir, name)| dir.join(name).to_string()).collect();
        assert_eq!(met, ["a", "a/b", "a/b/one"]);
    }
}
