//! Posts: programs name the files that they have changed, as any user of this host
//! (`driftless post`).
//!
//! A mirror listens at a socket that everybody may use. So a post is never more than a hint: of a
//! path below the source, taken in bounded numbers, and it never holds up the mirror. What is said
//! over the connection:
//!
//! ```text
//! mirror:  driftless-post 1 NUL  job NUL  path of the source NUL
//! program: e/absolute/path NUL  s/absolute/path NUL  ...            and ends its side
//! mirror:  number of posts that were taken NUL  of those that were not NUL
//! ```
//!
//! `e` is an entry, `s` one with all below it. A program that has its answer has been heard: a barrier
//! that begins afterwards waits for what it posted.

mod client;
mod serve;

pub use client::{Line, NoMirror, Taken};
pub use serve::Posts;

use crate::base::Base;
use driftless_model::{Change, RelPath, Scope};

/// What a mirror says first.
const GREETING: &[u8] = b"driftless-post 1";
/// What sockets of posts are called behind the name of the job.
pub const SOCKET_SUFFIX: &str = ".post";
/// Bytes of a post, its end included: a sort, and the longest path (`PATH_MAX`).
const POST_BYTES_MAX: usize = 4096 + 2;

/// A post as it is sent.
fn written(scope: Scope, path: &[u8]) -> Vec<u8> {
    let sort: &[u8] = match scope {
        Scope::Entry | Scope::Names => b"e",
        Scope::Subtree => b"s",
    };
    [sort, path, b"\0"].concat()
}

/// A post without its end; `None` if it makes no sense, or leads elsewhere.
fn read(post: &[u8], source: &Base) -> Option<Change> {
    let (sort, path) = post.split_first()?;
    let path: RelPath = source.below(path)?;
    match sort {
        b'e' => Some(Change::entry(path)),
        b's' => Some(Change::subtree(path)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_are_read_as_they_were_written_and_stay_below_the_source() {
        let source = Base::new(b"/data");
        let written = |scope, path: &[u8]| {
            let post = written(scope, path);
            read(&post[..post.len() - 1], &source)
        };
        let path = |bytes: &[u8]| RelPath::parse(bytes).unwrap();
        let hostile = path(b"a\n \xff");
        assert_eq!(
            written(Scope::Entry, b"/data/a\n \xff"),
            Some(Change::entry(hostile))
        );
        assert_eq!(
            written(Scope::Subtree, b"/data/b"),
            Some(Change::subtree(path(b"b")))
        );
        for nonsense in [&b"/data/../etc"[..], b"/database/a", b"a", b"", b"/"] {
            assert_eq!(written(Scope::Entry, nonsense), None, "{nonsense:?}");
        }
        for nonsense in [&b""[..], b"e", b"x/data/a", b"/data/a"] {
            assert_eq!(read(nonsense, &source), None, "{nonsense:?}");
        }
    }
}
