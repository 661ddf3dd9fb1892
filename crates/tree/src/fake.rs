//! A tree in memory, for tests of whatever works on trees.
//!
//! It counts what it is asked, fails where the test plans it, does something at a given moment (a
//! neighbour who changes the source while it is copied, say), and its time passes when the test
//! says so. It makes no system call, so it shows the logic of the code above, and nothing of any
//! kernel's.

mod dir;
mod file;

use crate::{Attributes, Completion};
use crate::{DirMutRef, DirRef, Done, Endpoint, Gate, Host, Loss, Place, RootError};
use dir::FakeDir;
use driftless_lock::Mutex;
use driftless_model::{Act, Fault, Kind, Meta, Side, Stamp, Unkept, Xattrs, errno};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The inode of the root.
const ROOT: u64 = 1;
/// When the time of a tree begins, in seconds since 1970: in November 2023.
const BEGINNING: i64 = 1_700_000_000;

/// Stands for any path: that of an unfinished entry is not known beforehand.
pub const ANY: &str = "*";

/// What can be asked of a tree, as far as a test counts it or has it fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// Entering a directory.
    Enter,
    /// Listing one.
    List,
    /// A look at an entry, or at what is open.
    Look,
    /// Opening a file to read it.
    Open,
    /// Reading from one.
    Read,
    /// Making a directory.
    MakeDir,
    /// Making a file.
    Create,
    /// Making a symbolic link or a node.
    MakeNode,
    /// Making a hard link.
    Link,
    /// Writing to a file, or setting its length.
    Write,
    /// Setting attributes.
    Set,
    /// Renaming.
    Rename,
    /// Removing.
    Remove,
    /// Making durable.
    Flush,
    /// Reading or writing a mark.
    Mark,
}

impl Call {
    fn act(self) -> Act {
        match self {
            Call::Enter => Act::Enter,
            Call::List => Act::List,
            Call::Look => Act::LookAt,
            Call::Open => Act::Open,
            Call::Read => Act::Read,
            Call::MakeDir => Act::MakeDirectory,
            Call::Create => Act::Create,
            Call::MakeNode => Act::MakeNode,
            Call::Link => Act::Link,
            Call::Write => Act::Write,
            Call::Set => Act::SetAttributes,
            Call::Rename => Act::Rename,
            Call::Remove => Act::Remove,
            Call::Flush => Act::Flush,
            Call::Mark => Act::Mark,
        }
    }
}

/// What an entry holds.
#[derive(Debug, Clone)]
enum Content {
    File(Vec<u8>),
    Dir(BTreeMap<CString, u64>),
    Symlink(CString),
    Node,
}

#[derive(Debug, Clone)]
struct Node {
    meta: Meta,
    xattrs: Xattrs,
    content: Content,
    /// Of a directory: where it stands.
    above: Option<(u64, CString)>,
    mark: Option<Vec<u8>>,
    is_unfinished: bool,
    progress: Option<Vec<u8>>,
}

/// A plan that a number of calls about a path fail.
struct Failure {
    call: Call,
    path: String,
    errno: i32,
    left: u64,
}

type Surprise = Box<dyn FnOnce(&FakeTree) + Send>;

#[derive(Default)]
struct State {
    nodes: HashMap<u64, Node>,
    next: u64,
    now: Stamp,
    calls: BTreeMap<Call, u64>,
    failures: Vec<Failure>,
    surprises: Vec<(Call, String, Surprise)>,
    /// Entries that the next listings of their directory do not show, and how many of them.
    hidden: HashMap<u64, u64>,
}

/// A tree in memory. Clones are the same tree.
#[derive(Clone)]
pub struct FakeTree(Arc<Shared>);

struct Shared {
    name: String,
    device: u64,
    gate: Gate,
    state: Mutex<State>,
}

impl FakeTree {
    /// An empty tree, on a machine of its own that is called `name`.
    pub fn new(name: &str) -> FakeTree {
        static DEVICES: AtomicU64 = AtomicU64::new(100);
        let device = DEVICES.fetch_add(1, Relaxed);
        let state = State {
            next: ROOT,
            now: Stamp {
                sec: BEGINNING,
                nsec: 0,
            },
            ..State::default()
        };
        let tree = FakeTree(Arc::new(Shared {
            name: name.into(),
            device,
            gate: Gate::default(),
            state: Mutex::new(state),
        }));
        tree.0
            .state
            .lock()
            .make(device, Kind::Dir, 0o755, Content::Dir(BTreeMap::new()));
        tree
    }

    /// The root as a user names it.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            host: Some(Arc::new(FakeHost(self.clone()))),
            path: "/".into(),
        }
    }

    /// Makes a file, or gives one other content, and makes the directories above it.
    pub fn put(&self, path: &str, content: &[u8]) {
        let (dir, name) = self.made_above(path);
        let mut state = self.0.state.lock();
        let now = state.tick();
        let found = state
            .child(dir, &name)
            .filter(|ino| matches!(state.nodes[ino].content, Content::File(_)));
        let ino = found.unwrap_or_else(|| {
            let made = state.make(self.0.device, Kind::File, 0o644, Content::File(Vec::new()));
            state.attach(dir, &name, made);
            made
        });
        let node = state.nodes.get_mut(&ino).expect("it was found");
        node.content = Content::File(content.to_vec());
        (node.meta.size, node.meta.mtime, node.meta.ctime) = (content.len() as u64, now, now);
    }

    /// Makes a directory, and those above it.
    pub fn put_dir(&self, path: &str) {
        let _made = self.made_dir(path);
    }

    /// Makes a symbolic link.
    pub fn put_symlink(&self, path: &str, target: &str) {
        let (dir, name) = self.made_above(path);
        let mut state = self.0.state.lock();
        let target = CString::new(target).expect("no NUL");
        let made = state.make(
            self.0.device,
            Kind::Symlink,
            0o777,
            Content::Symlink(target),
        );
        state.attach(dir, &name, made);
    }

    /// Makes a further name of a file.
    pub fn put_link(&self, path: &str, of: &str) {
        let (dir, name) = self.made_above(path);
        let mut state = self.0.state.lock();
        let ino = state.find(of).expect("the first name");
        state.attach(dir, &name, ino);
        let now = state.tick();
        let meta = &mut state.nodes.get_mut(&ino).expect("it was found").meta;
        (meta.nlink, meta.ctime) = (meta.nlink + 1, now);
    }

    /// Sets the permission bits of an entry.
    pub fn set_mode(&self, path: &str, mode: u32) {
        let mut state = self.0.state.lock();
        let (ino, now) = (state.find(path).expect("an entry"), state.tick());
        let meta = &mut state.nodes.get_mut(&ino).expect("it was found").meta;
        (meta.mode, meta.ctime) = (mode, now);
    }

    /// Removes an entry with all below it.
    pub fn discard(&self, path: &str) {
        let mut state = self.0.state.lock();
        let (dir, name) = state.split(path).expect("an entry");
        state.detach(dir, &name);
    }

    /// Gives an entry another name, at which nothing stands.
    pub fn rename(&self, from: &str, to: &str) {
        let (to_dir, to_name) = self.made_above(to);
        let mut state = self.0.state.lock();
        let (dir, name) = state.split(from).expect("an entry");
        let ino = state.child(dir, &name).expect("an entry");
        let Content::Dir(names) = &mut state.nodes.get_mut(&dir).expect("it was found").content
        else {
            unreachable!("names stand in directories")
        };
        names.remove(&name);
        state.attach(to_dir, &to_name, ino);
    }

    /// The content of a file; `None` if there is none.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.0.state.lock();
        match &state.nodes[&state.find(path)?].content {
            Content::File(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }

    /// Metadata of an entry; `None` if there is none.
    pub fn meta(&self, path: &str) -> Option<Meta> {
        let state = self.0.state.lock();
        Some(state.nodes[&state.find(path)?].meta)
    }

    /// All paths below the root, in their order; those of directories end with a slash.
    pub fn paths(&self) -> Vec<String> {
        let state = self.0.state.lock();
        let (mut found, mut left) = (Vec::new(), vec![(String::new(), ROOT)]);
        while let Some((above, dir)) = left.pop() {
            for (name, ino) in state.names(dir) {
                let path = format!("{above}{}", name.to_string_lossy());
                if matches!(state.nodes[&ino].content, Content::Dir(_)) {
                    found.push(format!("{path}/"));
                    left.push((format!("{path}/"), ino));
                } else {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }

    /// Lets time pass, in whole seconds.
    pub fn advance(&self, by: Duration) {
        self.0.state.lock().now.sec += by.as_secs().cast_signed();
    }

    /// How often something was asked so far, of the tree as a source and as a replica together.
    pub fn calls(&self, call: Call) -> u64 {
        self.0.state.lock().calls.get(&call).copied().unwrap_or(0)
    }

    /// Has the next `times` such calls about a path, or about any with [`ANY`], fail with an error
    /// number. The root's path is empty.
    pub fn fail(&self, call: Call, path: &str, errno: i32, times: u64) {
        self.0.state.lock().failures.push(Failure {
            call,
            path: path.into(),
            errno,
            left: times,
        });
    }

    /// Does something right before the next such call about a path.
    pub fn surprise(&self, call: Call, path: &str, act: impl FnOnce(&FakeTree) + Send + 'static) {
        self.0
            .state
            .lock()
            .surprises
            .push((call, path.into(), Box::new(act)));
    }

    /// Counts a call, carries out what the test planned for it, and fails if the test says so.
    fn asked(&self, side: Side, call: Call, path: &str) -> Done {
        let surprises: Vec<Surprise> = {
            let mut state = self.0.state.lock();
            *state.calls.entry(call).or_default() += 1;
            let due = |(of, at, _): &mut (Call, String, Surprise)| *of == call && at == path;
            state
                .surprises
                .extract_if(.., due)
                .map(|(_, _, act)| act)
                .collect()
        };
        surprises.into_iter().for_each(|act| act(self));
        let mut state = self.0.state.lock();
        let planned = state.failures.iter_mut().find(|failure| {
            failure.left > 0
                && failure.call == call
                && (failure.path == path || failure.path == ANY)
        });
        planned.map_or(Ok(()), |failure| {
            failure.left -= 1;
            Err(Fault {
                side,
                act: call.act(),
                errno: failure.errno,
            })
        })
    }

    fn made_above(&self, path: &str) -> (u64, CString) {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        (self.made_dir(above), CString::new(name).expect("no NUL"))
    }

    fn made_dir(&self, path: &str) -> u64 {
        let mut state = self.0.state.lock();
        let mut at = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let name = CString::new(name).expect("no NUL");
            at = state.child(at, &name).unwrap_or_else(|| {
                let made = state.make(
                    self.0.device,
                    Kind::Dir,
                    0o755,
                    Content::Dir(BTreeMap::new()),
                );
                state.attach(at, &name, made);
                made
            });
        }
        at
    }
}

impl State {
    /// The next moment, a nanosecond later: no two changes have the same.
    fn tick(&mut self) -> Stamp {
        self.now.nsec += 1;
        self.now
    }

    fn make(&mut self, device: u64, kind: Kind, mode: u32, content: Content) -> u64 {
        let (now, ino) = (self.tick(), self.next);
        self.next += 1;
        let size = if let Content::Symlink(target) = &content {
            target.count_bytes() as u64
        } else {
            0
        };
        let nlink = if kind == Kind::Dir { 2 } else { 0 };
        let (uid, gid, blocks, rdev, unkept) = (0, 0, 0, 0, Unkept::NONE);
        let meta = Meta {
            kind,
            mode,
            uid,
            gid,
            size,
            blocks,
            mtime: now,
            atime: now,
            ctime: now,
            nlink,
            dev: device,
            ino,
            rdev,
            unkept,
        };
        let (xattrs, above, mark, is_unfinished, progress) =
            (Xattrs::default(), None, None, false, None);
        self.nodes.insert(
            ino,
            Node {
                meta,
                xattrs,
                content,
                above,
                mark,
                is_unfinished,
                progress,
            },
        );
        if kind != Kind::Dir {
            self.nodes
                .get_mut(&ino)
                .expect("it was made above")
                .meta
                .nlink = 1;
        }
        ino
    }

    fn names(&self, dir: u64) -> Vec<(CString, u64)> {
        match self.nodes.get(&dir).map(|node| &node.content) {
            Some(Content::Dir(names)) => names
                .iter()
                .map(|(name, ino)| (name.clone(), *ino))
                .collect(),
            _ => Vec::new(),
        }
    }

    fn child(&self, dir: u64, name: &CStr) -> Option<u64> {
        match &self.nodes.get(&dir)?.content {
            Content::Dir(names) => names.get(name).copied(),
            _ => None,
        }
    }

    fn attach(&mut self, dir: u64, name: &CStr, ino: u64) {
        let now = self.tick();
        let node = self.nodes.get_mut(&dir).expect("a directory");
        (node.meta.mtime, node.meta.ctime) = (now, now);
        let Content::Dir(names) = &mut node.content else {
            unreachable!("names stand in directories")
        };
        names.insert(name.into(), ino);
        let child = self.nodes.get_mut(&ino).expect("it was made");
        if matches!(child.content, Content::Dir(_)) {
            child.above = Some((dir, name.into()));
        }
    }

    /// Takes a name from a directory. A directory is gone then, with all below it; a file without
    /// names stays for those who have it open.
    fn detach(&mut self, dir: u64, name: &CStr) {
        let now = self.tick();
        let Some(node) = self.nodes.get_mut(&dir) else {
            return;
        };
        (node.meta.mtime, node.meta.ctime) = (now, now);
        let Content::Dir(names) = &mut node.content else {
            return;
        };
        let Some(ino) = names.remove(name) else {
            return;
        };
        for (below, _) in self.names(ino) {
            self.detach(ino, &below);
        }
        let child = self.nodes.get_mut(&ino).expect("it had a name");
        child.meta.nlink = if child.meta.kind == Kind::Dir {
            0
        } else {
            child.meta.nlink - 1
        };
        child.meta.ctime = now;
        if child.meta.nlink == 0 && child.meta.kind == Kind::Dir {
            self.nodes.remove(&ino);
        }
    }

    fn find(&self, path: &str) -> Option<u64> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        names.try_fold(ROOT, |at, name| self.child(at, &CString::new(name).ok()?))
    }

    fn split(&self, path: &str) -> Option<(u64, CString)> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        Some((self.find(above)?, CString::new(name).ok()?))
    }

    /// The path of a directory below the root.
    fn path_of(&self, dir: u64) -> String {
        let (mut names, mut at) = (Vec::new(), dir);
        while let Some((above, name)) = self.nodes.get(&at).and_then(|node| node.above.clone()) {
            names.push(name.to_string_lossy().into_owned());
            at = above;
        }
        names.reverse();
        names.join("/")
    }

    fn set(&mut self, ino: u64, attributes: &Attributes) {
        let now = self.tick();
        let Some(node) = self.nodes.get_mut(&ino) else {
            return;
        };
        let meta = &mut node.meta;
        meta.ctime = now;
        meta.uid = attributes.uid.unwrap_or(meta.uid);
        meta.gid = attributes.gid.unwrap_or(meta.gid);
        meta.mode = attributes
            .mode
            .filter(|_| meta.kind != Kind::Symlink)
            .unwrap_or(meta.mode);
        meta.mtime = attributes.mtime.unwrap_or(meta.mtime);
        meta.atime = attributes.atime.unwrap_or(meta.atime);
        node.xattrs = attributes.xattrs.as_ref().map_or_else(
            || std::mem::take(&mut node.xattrs),
            |(xattrs, _)| xattrs.clone(),
        );
    }
}

/// The machine of a tree in memory.
struct FakeHost(FakeTree);

impl FakeHost {
    fn find(&self, path: &Path, side: Side) -> Result<Place<FakeDir>, RootError> {
        let mut at = FakeDir::root(&self.0, side);
        let mut names = path
            .components()
            .filter_map(|part| {
                if let Component::Normal(name) = part {
                    Some(name)
                } else {
                    None
                }
            })
            .peekable();
        while let Some(name) = names.next() {
            let name = CString::new(name.as_bytes()).expect("paths hold no NUL");
            match at.open(&name) {
                Ok(below) => at = below,
                Err(fault) if names.peek().is_none() => return Ok(at.place(name, &fault)),
                Err(fault) => return Err(RootError::from_errno(path, fault.act, fault.errno)),
            }
        }
        Ok(Place::Dir(at))
    }
}

impl Host for FakeHost {
    fn name(&self) -> &str {
        &self.0.0.name
    }

    fn machine(&self) -> &[u8] {
        self.0.0.name.as_bytes()
    }

    fn locate(&self, path: &Path, side: Side) -> Result<Place, RootError> {
        Ok(self.find(path, side)?.map(|dir| Arc::new(dir) as DirRef))
    }

    fn locate_mut(&self, path: &Path) -> Result<Place<DirMutRef>, RootError> {
        Ok(self
            .find(path, Side::Replica)?
            .map(|dir| Arc::new(dir) as DirMutRef))
    }

    fn completions(&self, wait: Duration) -> Vec<(u64, Completion)> {
        std::thread::sleep(wait);
        Vec::new()
    }

    fn round_trip(&self) -> Duration {
        Duration::ZERO
    }

    fn lost(&self) -> Option<Loss> {
        None
    }
}

fn missing(side: Side, act: Act) -> Fault {
    Fault {
        side,
        act,
        errno: errno::ENOENT,
    }
}
