//! What a mover that lists a directory knows of its names as a whole, and hands on where it leaves some of them to others.
//!
//! Which names a replica may take for one is seen only where all names of a directory are known. A mover that is given a few of them is
//! told by the coordinator which others they are like; so is the coordinator, when it finishes the directory, and what it is to respell there.

use crate::shared::facts::{Facts, Noted, decoded, encoded, fact, keyed};
use crate::shared::share::{Piece, Share};
use crate::sync::folding::Firsts;
use crate::sync::namesakes::random_seed;
use driftless_model::{EntryName, Filter, RelPath, Selection};
use driftless_reconcile::NameIndex;
use driftless_state::{Batch, Record};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// A name of the source that a replica may take for one with others of its directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namesake {
    /// The name.
    pub name: EntryName,
    /// Those before it, of which few are held: the first of each likeness.
    pub earlier: Vec<EntryName>,
}

/// What stands on the replica under another spelling than the source's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misspelt {
    /// Its directory.
    pub dir: RelPath,
    /// How the replica spells it.
    pub from: EntryName,
    /// How the source does.
    pub to: EntryName,
}

/// What is known of the names of directories, each of which somebody else has listed.
#[derive(Debug, Default)]
pub struct Handed {
    alike: HashMap<RelPath, Vec<Namesake>>,
    misspelt: HashMap<RelPath, Vec<Misspelt>>,
}

impl Handed {
    /// What is known to whoever carries out a share.
    pub fn with(share: &Share) -> Handed {
        Handed { alike: share.alike.iter().cloned().collect(), misspelt: HashMap::new() }
    }

    /// All that movers have handed on.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn noted(record: &Record) -> Noted<Handed> {
        let (mut handed, mut alike, mut misspelt) = (Handed::default(), Facts::of(record, fact::ALIKE), Facts::of(record, fact::MISSPELT));
        while let Some((_, value)) = alike.next()? {
            decoded(&value).into_iter().for_each(|(dir, namesake): (RelPath, Namesake)| {
                handed.alike.entry(dir).or_default().push(namesake);
            });
        }
        while let Some((_, value)) = misspelt.next()? {
            decoded(&value).into_iter().for_each(|misspelt: Misspelt| {
                handed.misspelt.entry(misspelt.dir.clone()).or_default().push(misspelt);
            });
        }
        Ok(handed)
    }

    /// The names of a directory that are like others of it.
    pub fn alike_in(&self, dir: &RelPath) -> &[Namesake] {
        self.alike.get(dir).map_or(&[], Vec::as_slice)
    }

    /// What is to be respelt in a directory.
    pub fn misspelt_in(&self, dir: &RelPath) -> &[Misspelt] {
        self.misspelt.get(dir).map_or(&[], Vec::as_slice)
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.alike.is_empty() && self.misspelt.is_empty()
    }
}

/// Of so many names of a directory, the numbers of those that differ from earlier ones in case, form or end alone, each with the numbers of these.
pub fn alike_of<'n>(index: &mut NameIndex, count: usize, name: impl Fn(usize) -> &'n [u8]) -> Vec<(usize, Vec<usize>)> {
    let mut firsts = Firsts::default();
    let found = index.fill(count, &name).into_iter();
    found.map(|(first, later)| (later, firsts.of((first, name(first)), (later, name(later))))).collect()
}

/// The same of all that is chosen by name, which no mover sees as a whole. Names that the filter leaves out are like no others.
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
