//! Folders, stores, and sets that go from one store to another.
#![allow(clippy::disallowed_methods, dead_code)]

use driftless_model::Keep;
use driftless_store::{
    BuildOptions, BuiltSet, CastSources, Catalogue, CopyRights, Error, NodeClock, NodeStore,
    PlacedCopy, Placing, Receiving, SetReceiver, UnitReader,
};
use driftless_testkit::attrs;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A source, a node and their stores.
pub struct Bench {
    pub folder: tempfile::TempDir,
    pub seconds: Arc<AtomicU64>,
}

impl Bench {
    pub fn new() -> Bench {
        let folder = driftless_testkit::scratch::scratch_folder();
        let bench = Bench {
            folder,
            seconds: Arc::new(AtomicU64::new(1_000_000)),
        };
        for name in ["src", "to"] {
            fs::create_dir(bench.path(name)).expect("a folder");
        }
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn clock(&self) -> NodeClock {
        let seconds = self.seconds.clone();
        Arc::new(move || Duration::from_secs(seconds.load(Ordering::Relaxed)))
    }

    /// Opens the store of the host of the source.
    pub fn origin(&self) -> NodeStore {
        NodeStore::open(&self.path("origin"), self.clock()).expect("a store")
    }

    /// Opens the store of a node.
    pub fn node(&self) -> NodeStore {
        NodeStore::open(&self.path("node"), self.clock()).expect("a store")
    }

    pub fn build(&self) -> BuiltSet {
        build(&self.origin(), &[self.path("src")]).expect("a set")
    }

    pub fn to(&self) -> Placing {
        Placing::Directory(self.path("to"))
    }
}

pub fn build(store: &NodeStore, paths: &[PathBuf]) -> driftless_store::Result<BuiltSet> {
    build_with(store, paths, CopyRights::OfSource)
}

pub fn build_with(
    store: &NodeStore,
    paths: &[PathBuf],
    rights: CopyRights,
) -> driftless_store::Result<BuiltSet> {
    let mut options = BuildOptions {
        keep: Keep::default(),
        rights,
        user: 0,
        pace: &mut |_| true,
    };
    store.build(&CastSources::from(paths.to_vec()), &mut options)
}

/// Brings a catalogue to a store, its parts in reverse order.
pub fn bring(store: &NodeStore, catalogue: &Catalogue) -> Arc<Catalogue> {
    let mut receiver = store.receive_catalogue(catalogue.hash()).expect("begun");
    receiver
        .put(0, &catalogue.part(0).expect("read"))
        .expect("the head");
    for part in receiver.lacking().into_iter().rev() {
        receiver
            .put(part, &catalogue.part(part).expect("read"))
            .expect("a part");
    }
    receiver.finish().expect("a catalogue")
}

pub fn open(store: &NodeStore, set: &BuiltSet, to: &Placing) -> SetReceiver {
    let catalogue = bring(store, &set.catalogue);
    match store.receive(&catalogue, to).expect("begun") {
        Receiving::Open(receiver) => *receiver,
        Receiving::Held(copy) => panic!("copy {copy} is there"),
    }
}

/// Puts units, in an order that the seed determines.
pub fn put_all(receiver: &mut SetReceiver, reader: &mut UnitReader, seed: u64) {
    let mut units: Vec<u64> = receiver
        .present()
        .lacking(usize::MAX)
        .into_iter()
        .flatten()
        .collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut units);
    let mut buffer = Vec::new();
    for unit in units {
        reader.read(unit, &mut buffer).expect("read");
        assert!(receiver.put(unit, &buffer).expect("put"));
    }
}

/// Brings a set to a store.
pub fn cast(
    store: &NodeStore,
    set: &BuiltSet,
    to: &Placing,
) -> driftless_store::Result<PlacedCopy> {
    let mut receiver = open(store, set, to);
    put_all(&mut receiver, &mut set.source.reader(), 1);
    receiver.finish()
}

/// Runs a function with the rights of an ordinary user, in a thread of its own.
pub fn as_user<T: Send>(id: u32, act: impl FnOnce() -> T + Send) -> T {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
            set_thread_groups(&[]).expect("no groups");
            set_thread_res_gid(gid, gid, gid).expect("the group");
            set_thread_res_uid(uid, uid, uid).expect("the user");
            act()
        });
        thread.join().expect("it ends")
    })
}

/// Gives a bench to an ordinary user.
pub fn bench_of(id: u32) -> Bench {
    let bench = Bench::new();
    for name in ["", "src", "to"] {
        attrs::set_owner(&bench.path(name), id, id).expect("given");
    }
    attrs::set_mode(bench.folder.path(), 0o755).expect("set");
    bench
}

pub fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
    fs::write(path, content).expect("written");
}

/// Returns bytes that the seed determines.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; length];
    rng.fill(&mut bytes);
    bytes
}

pub fn assert_same(a: &Path, b: &Path, context: &str) {
    driftless_testkit::assert_equal(a, b, &driftless_testkit::Options::default(), context);
}

/// Returns the names in a folder.
pub fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .expect("list")
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

pub fn is_occupied<T>(result: driftless_store::Result<T>) -> bool {
    matches!(result, Err(Error::Occupied { .. }))
}
