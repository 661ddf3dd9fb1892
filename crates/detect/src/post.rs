//! Posts: programs name the files that they have changed, as any user of this host
//! (`driftless post`), and the agent of the node names what it has heard of (`driftless watch`).
//!
//! A mirror listens at a socket that everybody may use. So a post is never more than a hint: of a
//! path below the source, taken in bounded numbers, and it never holds up the mirror. What is said
//! over the connection:
//!
//! ```text
//! mirror:  driftless-post 2 NUL  job NUL  path of the source NUL
//! program: e/absolute/path NUL  s/absolute/path NUL  m8:/old/old/new NUL  ...   and ends its side
//! mirror:  number of posts that were taken NUL  of those that were not NUL
//! ```
//!
//! The letter is that of a [`Sort`]. What was moved has two paths, behind the number of bytes of the
//! old one. A program that has its answer has been heard: a barrier that begins afterwards waits for
//! what it posted.
//!
//! Root and the user of the mirror are believed that content was written or a directory moved, and
//! post as fast as the mirror takes it. What others say of that makes a mirror look at the path, and
//! no more.

mod client;
mod serve;
mod sort;

pub use client::{Line, NoMirror, Taken};
pub use serve::Posts;
pub use sort::Sort;

use crate::base::Base;
use crate::detector::Seen;
use driftless_model::RelPath;

/// What a mirror says first.
const GREETING: &[u8] = b"driftless-post 2";
/// What sockets of posts are called behind the name of the job.
pub const SOCKET_SUFFIX: &str = ".post";
/// Bytes of the longest path that can be posted (`PATH_MAX`).
pub const PATH_BYTES_MAX: usize = 4096;
/// Bytes of a post, its end included: a sort, and two paths with a number.
const POST_BYTES_MAX: usize = 2 * PATH_BYTES_MAX + 16;

/// A post as it is sent; one of what was moved has its old path.
fn written(sort: Sort, path: &[u8], from: Option<&[u8]>) -> Vec<u8> {
    let mut post = vec![sort.letter()];
    if let Some(from) = from {
        post.extend(format!("{}:", from.len()).as_bytes());
        post.extend(from);
    }
    post.extend(path);
    post.push(0);
    post
}

/// A post without its end; nothing if it makes no sense, or leads elsewhere.
fn read(post: &[u8], source: &Base, is_trusted: bool) -> Option<(Sort, Vec<Seen>)> {
    let (letter, rest) = post.split_first()?;
    let told = Sort::of_letter(*letter)?;
    let (from, path) = match told.is_moved() {
        true => {
            let (from, path) = two(rest)?;
            (Some(source.below(from)?), path)
        }
        false => (None, rest),
    };
    let path: RelPath = source.below(path)?;
    if is_trusted {
        return Some((told, told.seen(path, from)));
    }
    let sort = match told.without_trust() {
        Sort::Moved => Sort::Subtree,
        Sort::MovedFile => Sort::Entry,
        plain => plain,
    };
    let paths = [Some(path), from].into_iter().flatten();
    Some((sort, paths.flat_map(|path| sort.seen(path, None)).collect()))
}

/// The old and the new path.
fn two(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    let length: usize = std::str::from_utf8(&text[..colon]).ok()?.parse().ok()?;
    text[colon + 1..].split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Change, Hint};

    fn path(bytes: &[u8]) -> RelPath {
        RelPath::parse(bytes).unwrap()
    }

    fn told(post: &[u8], is_trusted: bool) -> Option<Vec<Change>> {
        let (_, seen) = read(post, &Base::new(b"/data"), is_trusted)?;
        Some(seen.into_iter().map(|seen| seen.change).collect())
    }

    fn sent(sort: Sort, path: &[u8], from: Option<&[u8]>) -> Vec<u8> {
        let mut post = written(sort, path, from);
        assert_eq!(post.pop(), Some(0));
        post
    }

    #[test]
    fn posts_are_read_as_they_were_written_and_stay_below_the_source() {
        let entry = sent(Sort::Entry, b"/data/a\n \xff", None);
        let hostile = Change::entry(path(b"a\n \xff"));
        assert_eq!(told(&entry, false), Some(vec![hostile]));
        let subtree = sent(Sort::Subtree, b"/data/b", None);
        let below = Change::subtree(path(b"b"));
        assert_eq!(told(&subtree, false), Some(vec![below]));
        for nonsense in [&b"/data/../etc"[..], b"/database/a", b"a", b"", b"/"] {
            let post = sent(Sort::Entry, nonsense, None);
            assert_eq!(told(&post, true), None, "{nonsense:?}");
        }
        for nonsense in [&b""[..], b"e", b"?/data/a", b"/data/a", b"m/data/a/data/b"] {
            assert_eq!(told(nonsense, true), None, "{nonsense:?}");
        }
        for length in [b"99", b"-1", b" 7", b"ab"] {
            let post = [b"m", &length[..], b":/data/a/data/b"].concat();
            assert_eq!(told(&post, true), None, "{post:?}");
        }
    }

    #[test]
    fn a_rename_is_believed_of_those_who_are_trusted() {
        let post = sent(Sort::Moved, b"/data/new", Some(b"/data/old:1"));
        let moved = Change::subtree(path(b"new")).with(Hint::MovedFrom(path(b"old:1")));
        let old = Change::subtree(path(b"old:1"));
        assert_eq!(told(&post, true), Some(vec![moved, old.clone()]));
        let new = Change::subtree(path(b"new"));
        assert_eq!(told(&post, false), Some(vec![new, old]));
    }

    #[test]
    fn nobody_else_is_believed_that_content_was_written() {
        for (sort, plain) in [
            (Sort::Written, Sort::Entry),
            (Sort::Open, Sort::Entry),
            (Sort::Replaced, Sort::Subtree),
            (Sort::Gone, Sort::Subtree),
        ] {
            let post = sent(sort, b"/data/a", None);
            let seen = |is_trusted| read(&post, &Base::new(b"/data"), is_trusted).unwrap();
            assert_eq!(seen(true), (sort, sort.seen(path(b"a"), None)));
            assert_eq!(seen(false), (plain, plain.seen(path(b"a"), None)));
        }
    }
}
