//! What the agent has written for all processes of its node: which trees matter, and where it
//! listens. One small file that is mapped, so that everything else costs a comparison.
//!
//! ```text
//! 0     8 bytes   "DRFTSHM1"
//! 8     u32       1: announce; 2: another file has taken the place of this one
//! 12    u32       how many trees
//! 16    112 bytes where the agent listens: the path of a socket of datagrams, and NUL
//! 128   512 bytes what is written to when it does not: the path of a file, and NUL
//! 640   512 bytes where gaps are counted: the path of a file, and NUL; a u64 for each tree
//! 1152            of each tree: u64 its device, u32 bytes of its path, its path, filled up to 8
//! ```
//!
//! Numbers are in the order of this machine. The agent makes a file anew for each change and puts
//! it in the place of the old one, which it marks; nothing of a file is ever cut off or changed but
//! the number at 8.

use crate::sys::{self, File, PATH_MAX};
use core::ffi::{CStr, c_char};
use core::ptr;
use core::slice;
use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};

/// Where the agent of root puts it.
const PLACE: &CStr = c"/run/driftless/shim.map";
/// Another place, of the agent of a user.
const PLACE_VARIABLE: &CStr = c"DRIFTLESS_SHIM_MAP";
/// "0": nothing is announced.
const SWITCH_VARIABLE: &CStr = c"DRIFTLESS_SHIM";
const MAGIC: &[u8; 8] = b"DRFTSHM1";
const FLAGS: usize = 8;
const TREE_COUNT: usize = 12;
const ANNOUNCE: u32 = 1;
const REPLACED: u32 = 2;
const SOCKET: usize = 16;
const SPOOL: usize = 128;
const GAPS: usize = 640;
const TREES: usize = 1152;
/// Files are no longer.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// A process that has found no file looks again so often at most.
const ABSENT_SECONDS: i64 = 1;

/// A file that was found whole, and the counters of gaps that go with it.
#[derive(Clone, Copy)]
pub struct Map {
    at: *const u8,
    /// Null if they cannot be written.
    gaps: *mut u8,
}

/// One of the trees.
pub struct Tree<'m> {
    pub number: usize,
    /// That of all its files; 0 if they are on several.
    pub device: u64,
    pub path: &'m [u8],
}

/// Which gaps are counted.
#[derive(Clone, Copy)]
pub enum Gap {
    Of(usize),
    /// Of all trees that may have files on a device.
    On(u64),
    Anywhere,
}

/// Files that are mapped at a time. One that was replaced stays until so many have followed, since
/// others may be reading it.
const GENERATIONS: usize = 8;

struct Generation {
    at: AtomicPtr<u8>,
    bytes: AtomicU32,
    gaps: AtomicPtr<u8>,
}

#[unsafe(link_section = ".data")]
static GENERATION: [Generation; GENERATIONS] = [const {
    Generation {
        at: AtomicPtr::new(ptr::null_mut()),
        bytes: AtomicU32::new(0),
        gaps: AtomicPtr::new(ptr::null_mut()),
    }
}; GENERATIONS];
/// The number of the last generation; 0 before the first.
#[unsafe(link_section = ".data")]
static LAST: AtomicU32 = AtomicU32::new(0);
/// Where to look; null if nothing is to be announced.
#[unsafe(link_section = ".data")]
static PLACE_IN_USE: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());
#[unsafe(link_section = ".data")]
static NEXT_LOOK: AtomicI64 = AtomicI64::new(0);
#[unsafe(link_section = ".data")]
static IS_BUSY: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// A variable, but in a program with more rights than who has started it (secure_getenv(3)).
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

/// Looks for the file, at the beginning of a process; false if nothing is to be announced.
pub fn begin() -> bool {
    // A program with the rights of another user does not believe the one who has started it.
    // SAFETY: nobody changes the environment before the program begins.
    let variable = |name: &CStr| unsafe { secure_getenv(name.as_ptr()) };
    // SAFETY: values of variables end.
    if unsafe { sys::bytes(variable(SWITCH_VARIABLE)) } == b"0" {
        return false;
    }
    // The program may change its environment at any time.
    let named = variable(PLACE_VARIABLE);
    let place = if named.is_null() {
        PLACE.as_ptr().cast_mut()
    } else {
        kept_text(named)
    };
    PLACE_IN_USE.store(place, Relaxed);
    open(place);
    true
}

/// A copy of a path that stays; one that is too long leads nowhere.
fn kept_text(text: *const c_char) -> *mut c_char {
    struct Text(core::cell::UnsafeCell<[u8; 512]>);
    // SAFETY: it is written once, before the program has threads.
    unsafe impl Sync for Text {}
    #[unsafe(link_section = ".data")]
    static TEXT: Text = Text(core::cell::UnsafeCell::new([0; 512]));
    // SAFETY: as above; values of variables end.
    unsafe {
        let into = &mut *TEXT.0.get();
        let _too_long = sys::put(&mut into[..511], 0, sys::bytes(text));
        TEXT.0.get().cast()
    }
}

/// A child of fork(2) has not the thread that was about to map a file.
pub fn forked() {
    IS_BUSY.store(false, Relaxed);
}

/// No system call is to be made from here on. Counters that are not there now are not counted on.
pub fn confined() {
    let generation = GENERATION.get(LAST.load(Acquire) as usize % GENERATIONS);
    let (Some(map), Some(generation)) = (known(), generation) else {
        return;
    };
    let is_there = |tree: Tree<'_>| sys::is_there(map.counter(tree.number));
    if !map.gaps.is_null() && !map.trees().all(is_there) {
        generation.gaps.store(ptr::null_mut(), Relaxed);
    }
}

/// Whether there is a map by now.
pub fn is_known() -> bool {
    known().is_some()
}

/// What to announce, if anything.
pub fn watched() -> Option<Map> {
    let Some(map) = known() else {
        return sys::quietly(later);
    };
    let flags = map.flags();
    if flags & REPLACED != 0 {
        sys::quietly(|| open(PLACE_IN_USE.load(Relaxed)));
        return known().filter(|map| map.flags() & ANNOUNCE != 0);
    }
    (flags & ANNOUNCE != 0).then_some(map)
}

fn known() -> Option<Map> {
    let generation = match LAST.load(Acquire) {
        0 => return None,
        last => GENERATION.get(last as usize % GENERATIONS)?,
    };
    Some(Map {
        at: generation.at.load(Relaxed),
        gaps: generation.gaps.load(Relaxed),
    })
}

/// The agent of this process may have been started after it.
fn later() -> Option<Map> {
    let place = PLACE_IN_USE.load(Relaxed);
    if place.is_null() {
        return None;
    }
    let (now, _) = sys::time(libc::CLOCK_MONOTONIC_COARSE);
    if now < NEXT_LOOK.load(Relaxed) {
        return None;
    }
    NEXT_LOOK.store(now + ABSENT_SECONDS, Relaxed);
    open(place);
    known().filter(|map| map.flags() & ANNOUNCE != 0)
}

/// Maps the file at a path, unless another thread is about to.
fn open(place: *const c_char) {
    if IS_BUSY.swap(true, Acquire) {
        return;
    }
    if let Some((at, bytes)) = mapped(place, libc::PROT_READ, is_trusted) {
        let map = Map {
            at,
            gaps: ptr::null_mut(),
        };
        if map.is_whole(bytes) {
            next_generation(map, bytes);
        } else {
            sys::unmap(at, bytes);
        }
    }
    IS_BUSY.store(false, Release);
}

fn next_generation(map: Map, bytes: usize) {
    let number = LAST.load(Relaxed).wrapping_add(1).max(1);
    let Some(generation) = GENERATION.get(number as usize % GENERATIONS) else {
        return;
    };
    let before = generation.at.load(Relaxed);
    if !before.is_null() {
        sys::unmap(before, generation.bytes.load(Relaxed) as usize);
    }
    // Now, since a process that may have no more descriptors has gaps above all.
    let needed = map.tree_count() * size_of::<u64>();
    let is_enough = |file: &File| file.is(libc::S_IFREG) && file.bytes >= needed as u64;
    let gaps = mapped(
        map.text(GAPS),
        libc::PROT_READ | libc::PROT_WRITE,
        is_enough,
    );
    generation.at.store(map.at.cast_mut(), Relaxed);
    generation.bytes.store(bytes as u32, Relaxed);
    let gaps = gaps.map_or(ptr::null_mut(), |(gaps, _)| gaps);
    generation.gaps.store(gaps, Relaxed);
    LAST.store(number, Release);
}

/// Maps the whole of a file, if it is what it should be.
fn mapped(
    place: *const c_char,
    protection: i32,
    is_right: impl Fn(&File) -> bool,
) -> Option<(*mut u8, usize)> {
    let access = match protection & libc::PROT_WRITE {
        0 => libc::O_RDONLY,
        _ => libc::O_RDWR | libc::O_NOFOLLOW,
    };
    let fd = sys::open(place, access)?;
    let file = sys::fstat(fd).filter(|file| is_right(file) && file.bytes <= FILE_BYTES_MAX);
    let mapped = file.and_then(|file| {
        let bytes = file.bytes as usize;
        sys::map(fd, bytes, protection).map(|at| (at, bytes))
    });
    sys::close(fd);
    mapped
}

/// A file of root or of this user that nobody else writes.
fn is_trusted(file: &File) -> bool {
    // SAFETY: it takes nothing.
    let own = unsafe { libc::geteuid() };
    file.is(libc::S_IFREG)
        && (file.owner == 0 || file.owner == own)
        && file.mode & 0o022 == 0
        && file.bytes >= TREES as u64
}

impl Map {
    fn flags(&self) -> u32 {
        // SAFETY: it is within the file, aligned, and written as a whole.
        unsafe { (*self.at.add(FLAGS).cast::<AtomicU32>()).load(Relaxed) }
    }

    /// # Safety
    /// So many bytes are in the file.
    unsafe fn number<T>(&self, at: usize) -> T {
        // SAFETY: by the caller.
        unsafe { self.at.add(at).cast::<T>().read_unaligned() }
    }

    /// # Safety
    /// So many bytes are in the file.
    unsafe fn bytes(&self, at: usize, len: usize) -> &'static [u8] {
        // SAFETY: by the caller; a file that is mapped stays for as long as it is looked at.
        unsafe { slice::from_raw_parts(self.at.add(at), len) }
    }

    /// Whether a file of so many bytes, at least those before the trees, says nothing that leads
    /// out of it. After that nobody asks for its length.
    fn is_whole(&self, bytes: usize) -> bool {
        // SAFETY: so many are in it.
        let ends = |from: usize, to: usize| unsafe {
            libc::strnlen(self.at.add(from).cast(), to - from) < to - from
        };
        // SAFETY: as above.
        let magic = unsafe { self.bytes(0, MAGIC.len()) };
        magic == MAGIC
            && ends(SOCKET, SPOOL)
            && ends(SPOOL, GAPS)
            && ends(GAPS, TREES)
            && self.trees_are_within(bytes)
    }

    fn trees_are_within(&self, bytes: usize) -> bool {
        let mut at = TREES;
        for _ in 0..self.tree_count() {
            if at + 12 > bytes {
                return false;
            }
            // SAFETY: so many bytes are in it.
            let len = unsafe { self.number::<u32>(at + 8) } as usize;
            if len == 0 || len >= PATH_MAX || at + 12 + len > bytes {
                return false;
            }
            at = (at + 12 + len).next_multiple_of(8);
        }
        true
    }

    fn tree_count(&self) -> usize {
        // SAFETY: it is before the trees.
        unsafe { self.number::<u32>(TREE_COUNT) as usize }
    }

    /// All trees.
    pub fn trees(&self) -> impl Iterator<Item = Tree<'_>> {
        let mut at = TREES;
        (0..self.tree_count()).map(move |number| {
            // SAFETY: the file was found whole.
            let (device, len) = unsafe { (self.number::<u64>(at), self.number::<u32>(at + 8)) };
            // SAFETY: as above.
            let path = unsafe { self.bytes(at + 12, len as usize) };
            at = (at + 12 + len as usize).next_multiple_of(8);
            Tree {
                number,
                device,
                path,
            }
        })
    }

    /// Whether one of the trees may have files on this device.
    pub fn has_device(&self, device: u64) -> bool {
        self.trees()
            .any(|tree| tree.device == device || tree.device == 0)
    }

    /// The first tree that a path is in.
    pub fn tree_of(&self, path: &[u8]) -> Option<usize> {
        let is_in = |tree: &Tree<'_>| {
            let rest = path.strip_prefix(tree.path);
            rest.is_some_and(|rest| {
                tree.path == b"/" || rest.first().is_none_or(|first| *first == b'/')
            })
        };
        self.trees().find(is_in).map(|tree| tree.number)
    }

    fn text(&self, at: usize) -> *const c_char {
        // SAFETY: it is within the file, and was checked to end.
        unsafe { self.at.add(at).cast() }
    }

    /// Where the agent listens.
    pub fn socket(&self) -> *const c_char {
        self.text(SOCKET)
    }

    /// What is written to when it does not.
    pub fn spool(&self) -> *const c_char {
        self.text(SPOOL)
    }

    /// Something has changed, and nobody is told what: counts it.
    pub fn count_gap(&self, gap: Gap) {
        if self.gaps.is_null() {
            return;
        }
        for tree in self.trees() {
            let is_meant = match gap {
                Gap::Of(number) => number == tree.number,
                Gap::On(device) => tree.device == 0 || tree.device == device,
                Gap::Anywhere => true,
            };
            if is_meant {
                sys::add_one(self.counter(tree.number));
            }
        }
    }

    /// Where gaps of a tree are counted, if anywhere: the low half of its number, which is all that
    /// the kernel adds to.
    fn counter(&self, tree: usize) -> *mut u32 {
        let half = usize::from(cfg!(target_endian = "big"));
        // SAFETY: the file had a number of 8 bytes for each tree when it was mapped.
        unsafe { self.gaps.cast::<u32>().add(tree * 2 + half) }
    }

    /// Counts a gap of what a path, if there is one, may lead to, as far as its text says: symbolic
    /// links are not looked at.
    pub fn count_gap_of_text(&self, path: &[u8]) {
        let mut names = path.split(|byte| *byte == b'/');
        if path.first() != Some(&b'/') || names.any(|name| name == b"..") {
            self.count_gap(Gap::Anywhere);
        } else if let Some(tree) = self.tree_of(path) {
            self.count_gap(Gap::Of(tree));
        }
    }
}
