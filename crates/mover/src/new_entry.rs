//! Making an entry from what is told of it: all that it shall be, in one piece, as it comes from
//! another machine.

use crate::mover::{Made, Mover, Terms};
use crate::spot::{Opened, Spot};
use driftless_reconcile::Rules;
use driftless_tree::{DirMut, NewEntry};
use std::sync::Arc;

impl Mover<'_> {
    /// Makes the entry in `dir`, as it is told and not as this mover's terms do.
    pub fn unpack(&mut self, dir: &dyn DirMut, new: NewEntry) -> Made {
        let NewEntry {
            name,
            entry,
            content,
            target,
            keep,
            private,
            room,
            stood,
            sync,
            verify,
        } = new;
        let rules = Rules {
            keep,
            ..Rules::default()
        };
        self.terms = Terms {
            rules,
            sync_each: sync,
            sync_large: sync,
            verify,
            own: self.terms.own,
        };
        let birth = if private { dir.birth() } else { None };
        // The source is what is told: its directory is not here, and is not asked.
        let spot = Spot {
            source: dir,
            source_name: &name,
            replica: dir,
            name: &name,
            private,
            nested: false,
            birth,
            room,
            stood,
            only: None,
        };
        match content {
            Some(whole) => {
                let meta = whole.meta;
                self.copy_once(
                    &spot,
                    &Opened {
                        file: Arc::new(whole),
                        meta,
                        young: false,
                    },
                )
            }
            None => self.make_special(&spot, &entry, target.as_deref()),
        }
    }
}
