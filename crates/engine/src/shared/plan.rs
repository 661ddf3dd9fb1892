//! How work is divided into batches. Pure decisions.

use crate::shared::batch::{Batch, Piece};
use driftless_model::{EntryName, RelPath, Selection};
use driftless_state::LinkName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Names in a batch at most: a message has a bound, and an error concerns no more than these.
const NAMES_MAX: usize = 5_000;
/// Bytes of names in a batch at most, far below the bound on a message: each may come with four
/// others that it is like.
const NAME_BYTES_MAX: usize = 128 << 10;
/// Names of files with several that are linked at a time.
pub const LINK_NAMES_MAX: usize = 50_000;

/// The name of a file with several that is made first, as a piece of work with the size of the file
/// in bytes.
pub fn lead_piece(lead: LinkName) -> (u64, Piece) {
    let piece = match lead.path.split_last() {
        Some((dir, name)) => Piece::Entries(
            dir,
            EntryName::try_from(name.to_vec()).into_iter().collect(),
        ),
        None => Piece::Root,
    };
    (lead.size, piece)
}

/// Chooses of each file with several names the first that is on the replica, or the first. The
/// names of one file come one after the other.
#[derive(Debug, Default)]
pub struct Leads(Vec<LinkName>);

impl Leads {
    /// The next name.
    pub fn add(&mut self, name: LinkName) {
        match self.0.last_mut() {
            Some(lead) if lead.id == name.id => {
                if name.there && !lead.there {
                    *lead = name;
                }
            }
            _ => self.0.push(name),
        }
    }

    /// Those that are chosen, once there are many. The last one may have better names to come.
    pub fn take_many(&mut self) -> Option<Vec<LinkName>> {
        (self.0.len() > LINK_NAMES_MAX).then(|| self.0.drain(..LINK_NAMES_MAX).collect())
    }

    /// All that are left, after the last name.
    pub fn take_all(self) -> Vec<LinkName> {
        self.0
    }
}

/// The pieces of what is selected in `dir`, and the directories on the way to them, `dir` among
/// them.
pub fn chosen(dir: RelPath, selection: &Arc<Selection>) -> (Vec<Piece>, Vec<RelPath>) {
    let (mut pieces, mut passed) = (Vec::new(), Vec::new());
    let mut left = vec![(dir, selection.clone())];
    while let Some((dir, node)) = left.pop() {
        let mut names = Vec::new();
        for (name, below) in &node.children {
            match below.whole || below.children.is_empty() {
                true => names.extend(EntryName::try_from(name.to_vec())),
                false => left.push((dir.join(name), below.clone())),
            }
        }
        if !names.is_empty() {
            pieces.push(Piece::Entries(dir.clone(), names));
        }
        passed.push(dir);
    }
    (pieces, passed)
}

/// Packs pieces into about `wanted` batches of each class that are alike in size, as far as is
/// known. All else is as in `like`.
pub fn pack(pieces: Vec<(u8, Piece)>, wanted: usize, like: &Batch) -> Vec<Batch> {
    let mut classes: BTreeMap<u8, Vec<Piece>> = BTreeMap::new();
    pieces
        .into_iter()
        .for_each(|(class, piece)| classes.entry(class).or_default().push(piece));
    let batches: Vec<(u8, Vec<Piece>)> = classes
        .into_iter()
        .flat_map(|(class, pieces)| {
            packed(pieces, wanted.max(1))
                .into_iter()
                .map(move |batch| (class, batch))
        })
        .collect();
    let walk = like.walk / batches.len().max(1) as u64;
    batches
        .into_iter()
        .map(|(class, pieces)| Batch {
            pieces,
            class,
            walk,
            ..like.clone()
        })
        .collect()
}

fn packed(pieces: Vec<Piece>, wanted: usize) -> Vec<Vec<Piece>> {
    let total: usize = pieces.iter().map(names_of).sum();
    let names_max = total.div_ceil(wanted).clamp(1, NAMES_MAX);
    let (mut batches, mut batch, mut room) = (Vec::new(), Vec::new(), Room::new(names_max));
    for piece in pieces {
        match piece {
            Piece::Entries(dir, names) => {
                let mut left = names.into_iter().peekable();
                while left.peek().is_some() {
                    room.take(dir.as_bytes().len());
                    let taken: Vec<EntryName> =
                        std::iter::from_fn(|| left.next_if(|name| room.take_name(name))).collect();
                    if !taken.is_empty() {
                        batch.push(Piece::Entries(dir.clone(), taken));
                    }
                    if left.peek().is_some() {
                        batches.push(std::mem::take(&mut batch));
                        room = Room::new(names_max);
                    }
                }
            }
            // A range of a large file is work for long.
            Piece::Bytes(..) | Piece::Rest(..) | Piece::Root => batches.push(vec![piece]),
        }
    }
    batches.push(batch);
    batches.retain(|batch| !batch.is_empty());
    batches
}

fn names_of(piece: &Piece) -> usize {
    if let Piece::Entries(_, names) = piece {
        names.len()
    } else {
        0
    }
}

/// What still fits into a batch.
struct Room {
    names: usize,
    bytes: usize,
    is_new: bool,
}

impl Room {
    fn new(names: usize) -> Room {
        Room {
            names,
            bytes: NAME_BYTES_MAX,
            is_new: true,
        }
    }

    fn take(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// The first name always fits: a path may be longer than any bound.
    fn take_name(&mut self, name: &EntryName) -> bool {
        let fits = self.is_new || self.names > 0 && self.bytes >= name.as_bytes().len();
        if fits {
            self.is_new = false;
            self.names = self.names.saturating_sub(1);
            self.take(name.as_bytes().len());
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Scope, Work};

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    fn names(range: std::ops::Range<usize>) -> Vec<EntryName> {
        range
            .map(|index| EntryName::try_from(format!("name-{index}").into_bytes()).unwrap())
            .collect()
    }

    fn listed(batches: &[Batch]) -> Vec<(RelPath, EntryName)> {
        let entries = |piece: &Piece| match piece {
            Piece::Entries(dir, names) => names
                .iter()
                .map(|name| (dir.clone(), name.clone()))
                .collect(),
            _ => Vec::new(),
        };
        batches
            .iter()
            .flat_map(|batch| &batch.pieces)
            .flat_map(entries)
            .collect()
    }

    #[test]
    fn batches_hold_every_name_once_and_are_alike() {
        let pieces = vec![
            (0, Piece::Entries(path("a"), names(0..70))),
            (0, Piece::Entries(path("b/c"), names(0..30))),
        ];
        let batches = pack(
            pieces,
            4,
            &Batch {
                walk: 400,
                ..Batch::default()
            },
        );
        assert_eq!(batches.len(), 4);
        assert!(
            batches
                .iter()
                .all(|batch| listed(std::slice::from_ref(batch)).len() == 25 && batch.walk == 100)
        );
        let mut all = listed(&batches);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 100);
    }

    #[test]
    fn batches_are_bounded_in_names_and_bytes() {
        let batches = pack(
            vec![(0, Piece::Entries(path("a"), names(0..3 * NAMES_MAX)))],
            1,
            &Batch::default(),
        );
        assert_eq!(batches.len(), 3);
        let long: Vec<EntryName> = (0..4000)
            .map(|index| EntryName::try_from(format!("{index:0>255}").into_bytes()).unwrap())
            .collect();
        let batches = pack(
            vec![(0, Piece::Entries(path("a"), long))],
            1,
            &Batch::default(),
        );
        assert!(
            batches
                .iter()
                .all(|batch| listed(std::slice::from_ref(batch)).len() * 255 <= NAME_BYTES_MAX)
        );
        assert_eq!(listed(&batches).len(), 4000);
        // A path longer than the bound gets a batch for each name, and none is lost.
        let deep = RelPath::from_names(std::iter::repeat_n(&b"directory"[..], NAME_BYTES_MAX / 9));
        let batches = pack(
            vec![(0, Piece::Entries(deep, names(0..5)))],
            1,
            &Batch::default(),
        );
        assert_eq!((batches.len(), listed(&batches).len()), (5, 5));
    }

    #[test]
    fn classes_and_ranges_of_large_files_have_batches_of_their_own() {
        let pieces = vec![
            (1, Piece::Root),
            (0, Piece::Entries(path("a"), names(0..2))),
            (1, Piece::Root),
        ];
        let batches = pack(
            pieces,
            9,
            &Batch {
                alone: true,
                ..Batch::default()
            },
        );
        assert_eq!(
            batches.iter().map(|batch| batch.class).collect::<Vec<_>>(),
            [0, 0, 1, 1]
        );
        assert!(batches.iter().all(|batch| batch.alone));
    }

    #[test]
    fn the_first_name_that_is_there_leads() {
        let link = |id: u64, name: &str, there: bool| LinkName {
            id: (id, id),
            path: path(name),
            size: 5,
            there,
        };
        let mut leads = Leads::default();
        let names = [
            link(1, "a", false),
            link(1, "b", true),
            link(1, "c", true),
            link(2, "d", false),
            link(2, "e", false),
        ];
        names.into_iter().for_each(|name| leads.add(name));
        assert_eq!(leads.take_many(), None);
        let paths: Vec<String> = leads
            .take_all()
            .iter()
            .map(|lead| lead.path.to_string())
            .collect();
        assert_eq!(paths, ["b", "d"]);
    }

    #[test]
    fn of_many_files_each_has_one_lead_wherever_they_are_cut() {
        let mut leads = Leads::default();
        let mut chosen = Vec::new();
        for id in 0..2 * LINK_NAMES_MAX as u64 {
            for (name, there) in [("a", false), ("b", true)] {
                leads.add(LinkName {
                    id: (0, id),
                    path: path(name),
                    size: 5,
                    there,
                });
                chosen.extend(leads.take_many().into_iter().flatten());
            }
        }
        chosen.extend(leads.take_all());
        let ids: Vec<u64> = chosen.iter().map(|lead| lead.id.1).collect();
        assert!(ids.iter().copied().eq(0..2 * LINK_NAMES_MAX as u64));
        assert!(chosen.iter().all(|lead| lead.there));
    }

    #[test]
    fn what_is_chosen_is_all_of_it_with_the_way_there() {
        let works = ["a/b/x", "a/b/y", "a/z", "q"].map(|text| Work {
            path: path(text),
            scope: Scope::Subtree,
        });
        let (pieces, mut passed) = chosen(RelPath::root(), &Arc::new(Selection::of(&works)));
        passed.sort();
        assert_eq!(passed, [RelPath::root(), path("a"), path("a/b")]);
        let batches = pack(
            pieces.into_iter().map(|piece| (0, piece)).collect(),
            1,
            &Batch::default(),
        );
        let mut all: Vec<String> = listed(&batches)
            .iter()
            .map(|(dir, name)| dir.join(name.as_bytes()).to_string())
            .collect();
        all.sort();
        assert_eq!(all, ["a/b/x", "a/b/y", "a/z", "q"]);
    }
}
