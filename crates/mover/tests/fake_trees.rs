//! Single entries between trees in memory: whatever fails, a reader of the replica finds the whole
//! old entry or the whole new one, and nothing else is left there.

use driftless_model::{Cache, Side, errno};
use driftless_mover::{Mover, Spot, Terms, Trouble};
use driftless_tree::fake::{ANY, Call, FakeTree};
use driftless_tree::{Copier, DirMutRef, DirRef, HandlePool, Ladder, Place};
use std::ffi::CStr;
use std::sync::Arc;

const NAME: &CStr = c"name";

struct Trees {
    source: FakeTree,
    replica: FakeTree,
}

impl Trees {
    fn new() -> Trees {
        let trees = Trees {
            source: FakeTree::new("here"),
            replica: FakeTree::new("there"),
        };
        trees.source.put("name", b"new content");
        trees
    }

    fn roots(&self) -> (DirRef, DirMutRef) {
        let pool = HandlePool::new(8);
        let source = self
            .source
            .endpoint()
            .locate(Side::Source, &pool)
            .expect("a root");
        let replica = self.replica.endpoint().locate_mut(&pool).expect("a root");
        let (Place::Dir(source), Place::Dir(replica)) = (source, replica) else {
            panic!("they are directories")
        };
        (source, replica)
    }

    /// Copies the file.
    fn copy(&self) -> Result<u64, Trouble> {
        let (source, replica) = self.roots();
        let mut mover = Mover {
            copier: Copier::new(Cache::Keep, Arc::new(Ladder::default())),
            terms: Terms::default(),
            carrier: None,
            pace: &|_| (),
            stopped: &|| false,
        };
        let spot = Spot {
            source: &*source,
            source_name: NAME,
            replica: &*replica,
            name: NAME,
            private: false,
            nested: false,
            birth: None,
            room: 0,
            stood: None,
            only: None,
        };
        let opened = mover.open(&spot)?;
        mover.copy_small(&spot, opened).map(|moved| moved.bytes)
    }
}

#[test]
fn a_file_takes_the_place_of_the_old_one_as_a_whole_or_not_at_all() {
    let calls = [Call::Create, Call::Write, Call::Set, Call::Rename];
    for (call, errno) in calls
        .into_iter()
        .flat_map(|call| [errno::EIO, errno::ENOSPC, errno::EACCES].map(|errno| (call, errno)))
    {
        for is_there in [false, true] {
            let trees = Trees::new();
            if is_there {
                trees.replica.put("name", b"old content");
            }
            let (context, before) = (
                format!("{call:?} {errno} there {is_there}"),
                trees.replica.content("name"),
            );
            trees.replica.fail(call, ANY, errno, 1);
            let copied = trees.copy();
            // What could not be set is told with the entry, which is there then.
            let expected = if call == Call::Set {
                Some(b"new content".to_vec())
            } else {
                before
            };
            assert_eq!(
                (copied.is_ok(), trees.replica.content("name")),
                (call == Call::Set, expected),
                "{context}"
            );
            assert!(
                trees.replica.paths().iter().all(|path| path == "name"),
                "{context}: {:?}",
                trees.replica.paths()
            );
            assert_eq!(
                trees.copy().expect("nothing fails any more"),
                11,
                "{context}"
            );
            assert_eq!(
                trees.replica.content("name"),
                trees.source.content("name"),
                "{context}"
            );
        }
    }
}

#[test]
fn a_source_that_changes_meanwhile_is_copied_as_it_is_then_or_said_to_be_changing() {
    let trees = Trees::new();
    trees.source.surprise(Call::Read, "name", |tree| {
        tree.put("name", b"changed while it was read")
    });
    assert_eq!(trees.copy().expect("it comes to rest"), 25);
    assert_eq!(trees.replica.content("name"), trees.source.content("name"));
    trees
        .source
        .surprise(Call::Open, "name", |tree| tree.discard("name"));
    assert!(
        matches!(trees.copy(), Err(Trouble::Failed(_) | Trouble::Vanished)),
        "it is gone"
    );
    assert!(
        trees.replica.content("name").is_some(),
        "that is nobody's business here"
    );
}
