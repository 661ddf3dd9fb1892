//! What a mover that lists a directory knows of its names as a whole, and hands on where it leaves
//! some of them to others.
//!
//! Which names a replica may take for one is seen only where all names of a directory are known. A
//! mover that is given a few of them is told by the coordinator which others they are like; so is
//! the coordinator, when it finishes the directory, and what it is to respell there.

use driftless_model::{EntryName, RelPath};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

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

/// What is known of the names of directories, each of which another mover has listed.
#[derive(Debug, Default)]
pub struct Handed {
    alike: HashMap<RelPath, Vec<Namesake>>,
    misspelt: HashMap<RelPath, Vec<Misspelt>>,
}

impl Handed {
    /// What is known to the mover that carries out a batch, which says what names are like others.
    pub fn with(alike: &[(RelPath, Vec<Namesake>)]) -> Handed {
        Handed {
            alike: alike.iter().cloned().collect(),
            misspelt: HashMap::new(),
        }
    }

    /// Adds what was noted of names that are like others.
    pub fn add_alike(&mut self, dir: RelPath, namesake: Namesake) {
        self.alike.entry(dir).or_default().push(namesake);
    }

    /// Adds what was noted of something misspelt.
    pub fn add_misspelt(&mut self, misspelt: Misspelt) {
        self.misspelt
            .entry(misspelt.dir.clone())
            .or_default()
            .push(misspelt);
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
