//! What a program says of one call.
//!
//! ```text
//! 0  3 bytes  "DS1"
//! 3  1 byte   what happened: one of the letters of [`Kind`]
//! 4           the path, and NUL; of two names the old path, NUL, the new path, NUL
//! ```
//!
//! Paths are absolute and without links, as far as the program could tell.
//!
//! One letter more, of [`left`], is no kind of its own.

use driftless_detect::{Base, Seen};
use driftless_model::{Change, Hint, RelPath};

/// What each message begins with.
const MAGIC: &[u8] = b"DS1";
/// Bytes of the longest message: two paths (`PATH_MAX`), and what stands before them.
pub const MESSAGE_BYTES_MAX: usize = 2 * PATH_MAX + 16;
/// Bytes of the longest path that a call takes, its end included (limits.h).
const PATH_MAX: usize = 4096;
/// What stands before the path.
const HEAD: usize = MAGIC.len() + 1;

/// What happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A file was closed that may have been written.
    Written,
    /// It came to be, by another way than that.
    Made,
    /// Its attributes were changed.
    Attributes,
    /// It is gone.
    Removed,
    /// It has another name; with one name, it came from elsewhere or went there.
    Renamed,
    /// Two names have changed places.
    Exchanged,
}

impl Kind {
    fn of(letter: u8) -> Option<Kind> {
        Some(match letter {
            b'w' => Kind::Written,
            b'c' => Kind::Made,
            b'm' => Kind::Attributes,
            b'd' => Kind::Removed,
            b'r' => Kind::Renamed,
            b'x' => Kind::Exchanged,
            _ => return None,
        })
    }
}

/// What was said of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'m> {
    /// What happened.
    pub kind: Kind,
    /// Where; of two names the old one.
    pub path: &'m [u8],
    /// The new name, of two.
    pub to: Option<&'m [u8]>,
}

impl Message<'_> {
    /// Reads a message; `None` if it makes no sense.
    pub fn read(bytes: &[u8]) -> Option<Message<'_>> {
        let (head, paths) = bytes.split_at_checked(HEAD)?;
        let kind = Kind::of(*head.strip_prefix(MAGIC)?.first()?)?;
        let mut names = paths.strip_suffix(b"\0")?.split(|byte| *byte == 0);
        let (path, to) = (names.next()?, names.next());
        let may_have_two = matches!(kind, Kind::Renamed | Kind::Exchanged);
        let is_right = names.next().is_none() && (to.is_none() || may_have_two);
        // A call takes no longer one.
        let fits = |path: &[u8]| path.len() < PATH_MAX;
        let is_right = is_right && fits(path) && to.is_none_or(fits);
        is_right.then_some(Message { kind, path, to })
    }
}

/// Whether a message says that a program has a file open and says no more of it; then it is made one
/// that says that it was written.
pub(crate) fn left(bytes: &mut [u8]) -> bool {
    match bytes.get_mut(..HEAD) {
        Some(head) if *head == *b"DS1l" => {
            head.copy_from_slice(b"DS1w");
            true
        }
        _ => false,
    }
}

/// What stands at a path now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Now {
    /// Nothing, or it cannot be looked at.
    Nothing,
    /// A directory.
    Dir,
    /// Something else.
    File,
}

/// What a message says of a source: nothing if neither name is in it. `look` says what stands at a
/// path: what is there costs no more than its entry, whoever says that it is gone.
pub fn changes(message: &Message<'_>, source: &Base, look: impl Fn(&[u8]) -> Now) -> Vec<Seen> {
    let (path, to) = (source.below(message.path), message.to);
    let to = to.and_then(|to| source.below(to));
    match message.kind {
        Kind::Written => one(path.map(Change::entry).map(written)),
        Kind::Made | Kind::Attributes => one(path.map(Change::entry).map(Seen::closed)),
        Kind::Removed if look(message.path) == Now::Nothing => one(path.map(gone)),
        Kind::Removed => one(path.map(Change::entry).map(Seen::closed)),
        Kind::Renamed => {
            let is_file = || message.to.map(look) == Some(Now::File);
            renamed(path, to, is_file)
        }
        Kind::Exchanged => {
            let both = path.into_iter().chain(to).map(Change::subtree);
            both.map(written).collect()
        }
    }
}

fn one(seen: Option<Seen>) -> Vec<Seen> {
    seen.into_iter().collect()
}

/// Its content is another one.
fn written(change: Change) -> Seen {
    Seen {
        is_written: true,
        ..Seen::closed(change)
    }
}

fn gone(path: RelPath) -> Seen {
    Seen {
        is_gone: true,
        ..Seen::closed(Change::subtree(path))
    }
}

/// The entry stands at the new path, which is told with the old one as a hint; what stands at the
/// old one by now, if anything, is another; and both directories have other times.
fn renamed(
    from: Option<RelPath>,
    to: Option<RelPath>,
    is_file: impl FnOnce() -> bool,
) -> Vec<Seen> {
    let Some((from, to)) = from.clone().zip(to.clone()) else {
        return one(from.or(to).map(Change::subtree).map(written));
    };
    // A directory does not come into itself.
    if from.is_near(&to) {
        return Vec::new();
    }
    let dirs = [&from, &to].map(|path| path.above().next());
    let change: fn(RelPath) -> Change = if is_file() {
        Change::entry
    } else {
        Change::subtree
    };
    let there = change(to).with(Hint::MovedFrom(from.clone()));
    let dirs = dirs.into_iter().flatten().map(Change::entry);
    let all = [there, change(from)].into_iter().chain(dirs);
    all.map(Seen::closed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(bytes: &[u8]) -> RelPath {
        RelPath::parse(bytes).unwrap()
    }

    fn told(bytes: &[u8]) -> Vec<Change> {
        let message = Message::read(bytes).unwrap();
        let look = |path: &[u8]| match path {
            b"/data/file" => Now::File,
            b"/data/dir" => Now::Dir,
            _ => Now::Nothing,
        };
        let seen = changes(&message, &Base::new(b"/data"), look);
        seen.into_iter().map(|seen| seen.change).collect()
    }

    #[test]
    fn a_message_says_which_paths_may_differ() {
        let entry = |name| vec![Change::entry(path(name))];
        assert_eq!(told(b"DS1w/data/a\n\xff\0"), entry(b"a\n\xff"));
        assert_eq!(told(b"DS1c/data/a\0"), entry(b"a"));
        assert_eq!(told(b"DS1m/data\0"), entry(b""));
        assert_eq!(told(b"DS1d/data/a\0"), [Change::subtree(path(b"a"))]);
        assert_eq!(told(b"DS1d/data/dir\0"), entry(b"dir"));
        assert_eq!(told(b"DS1w/other/a\0"), []);
        assert_eq!(told(b"DS1r/data/a\0/data/a/b\0"), []);
        assert_eq!(told(b"DS1r/data\0/data/a\0"), []);
        let root = || Change::entry(RelPath::root());
        let moved = Change::subtree(path(b"b")).with(Hint::MovedFrom(path(b"a")));
        assert_eq!(
            told(b"DS1r/data/a\0/data/b\0"),
            [moved, Change::subtree(path(b"a")), root(), root()]
        );
        let moved = Change::entry(path(b"file")).with(Hint::MovedFrom(path(b"d/a")));
        let dir = Change::entry(path(b"d"));
        assert_eq!(
            told(b"DS1r/data/d/a\0/data/file\0"),
            [moved, Change::entry(path(b"d/a")), dir, root()]
        );
        assert_eq!(
            told(b"DS1r/other/a\0/data/b\0"),
            [Change::subtree(path(b"b"))]
        );
        assert_eq!(told(b"DS1r/data/b\0"), [Change::subtree(path(b"b"))]);
        let both = ["a", "b"].map(|name| Change::subtree(path(name.as_bytes())));
        assert_eq!(told(b"DS1x/data/a\0/data/b\0"), both);
    }

    #[test]
    fn what_makes_no_sense_says_nothing() {
        for nonsense in [
            &b""[..],
            b"DS1",
            b"DS1w",
            b"DS1w/data/a",
            b"DS2w/data/a\0",
            b"DS1?/data/a\0",
            b"DS1w/data/a\0/data/b\0",
            b"DS1r/a\0/b\0/c\0",
            &[b"DS1w/", "x".repeat(5000).as_bytes(), b"\0"].concat(),
        ] {
            assert_eq!(Message::read(nonsense), None, "{nonsense:?}");
        }
        for elsewhere in [
            &b"DS1w/data/../etc\0"[..],
            b"DS1w\0",
            b"DS1wdata/a\0",
            b"DS1w/database\0",
        ] {
            assert_eq!(told(elsewhere), [], "{elsewhere:?}");
        }
    }

    #[test]
    fn whatever_is_said_is_read_or_dropped() {
        let mut rng = fastrand::Rng::with_seed(3);
        let base = Base::new(b"/data");
        for _ in 0..20_000 {
            let mut bytes = b"DS1r/data/a\0/data/b\0".to_vec();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..bytes.len());
                match rng.u8(..3) {
                    0 => bytes[at] = rng.u8(..),
                    1 => drop(bytes.drain(..at.min(bytes.len() - 1))),
                    _ => bytes.insert(at, rng.u8(..)),
                }
            }
            if let Some(message) = Message::read(&bytes) {
                changes(&message, &base, |_| Now::File);
            }
        }
    }
}
