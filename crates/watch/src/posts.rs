//! How a word of a tree is posted to a mirror, whose source may be the tree, in it or around it.

use crate::queue::Word;
use driftless_detect::agents::{is_within, trimmed};
use driftless_detect::post::{PATH_BYTES_MAX, Sort};
use driftless_model::RelPath;

/// A post: absolute paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// What is said.
    pub sort: Sort,
    /// Of which path.
    pub path: Vec<u8>,
    /// Where it stood before.
    pub from: Option<Vec<u8>>,
}

/// What a mirror of `source` is told of a word; nothing if it does not concern it.
pub fn post(word: &Word, tree: &[u8], source: &[u8]) -> Option<Post> {
    let (tree, source) = (trimmed(tree), trimmed(source));
    let path = absolute(tree, &word.path);
    let from = word.from.as_ref().map(|from| absolute(tree, from));
    let is_in = |path: &[u8]| is_within(path, source);
    let replaced = |path| Post {
        sort: Sort::Replaced,
        path,
        from: None,
    };
    let post = match from {
        Some(from) if is_in(&from) && is_in(&path) => Post {
            sort: word.sort,
            path,
            from: Some(from),
        },
        Some(_) if is_in(&path) => replaced(path),
        Some(from) if is_in(&from) => replaced(from),
        // The source itself came or went with it.
        Some(from) if is_within(source, &from) || is_within(source, &path) => {
            replaced(rooted(source))
        }
        None if is_in(&path) => Post {
            sort: word.sort,
            path,
            from: None,
        },
        None if word.sort.is_deep() && is_within(source, &path) => Post {
            sort: word.sort,
            path: rooted(source),
            from: None,
        },
        _ => return None,
    };
    Some(shortened(post))
}

fn absolute(tree: &[u8], path: &RelPath) -> Vec<u8> {
    if path.is_root() {
        return rooted(tree);
    }
    [tree, b"/", path.as_bytes()].concat()
}

/// The root of the file system is a slash.
fn rooted(path: &[u8]) -> Vec<u8> {
    match path {
        b"" => b"/".to_vec(),
        path => path.to_vec(),
    }
}

/// What has a longer path than can be posted is told by a directory above it.
fn shortened(post: Post) -> Post {
    let fits = |path: &[u8]| path.len() < PATH_BYTES_MAX;
    if fits(&post.path) && post.from.as_deref().is_none_or(fits) {
        return post;
    }
    let both = post.from.into_iter().chain([post.path]);
    let above = both.reduce(|one, other| common(&one, &other).to_vec());
    let mut path = above.unwrap_or_default();
    while !fits(&path) {
        let slash = path.iter().rposition(|byte| *byte == b'/');
        path.truncate(slash.unwrap_or_default());
    }
    Post {
        sort: Sort::Replaced,
        path: rooted(&path),
        from: None,
    }
}

/// The directory that two paths have in common.
fn common<'p>(one: &'p [u8], other: &[u8]) -> &'p [u8] {
    let mut path = one;
    while !is_within(other, path) {
        let slash = path.iter().rposition(|byte| *byte == b'/');
        path = &path[..slash.unwrap_or_default()];
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn word(sort: Sort, path: &[u8], from: Option<&[u8]>) -> Word {
        let parse = |path: &[u8]| RelPath::parse(path).unwrap();
        Word {
            sort,
            path: parse(path),
            from: from.map(parse),
            since: Duration::ZERO,
        }
    }

    fn told(word: &Word, source: &[u8]) -> Option<(Sort, String, Option<String>)> {
        let text = |path: Vec<u8>| String::from_utf8(path).unwrap();
        let post = post(word, b"/data/", source)?;
        Some((post.sort, text(post.path), post.from.map(text)))
    }

    fn of(sort: Sort, path: &str) -> Option<(Sort, String, Option<String>)> {
        Some((sort, path.into(), None))
    }

    #[test]
    fn a_mirror_is_told_what_concerns_its_source() {
        let written = word(Sort::Written, b"a/f", None);
        for source in [&b"/"[..], b"/data", b"/data/a", b"/data/a/f", b"/data/"] {
            assert_eq!(told(&written, source), of(Sort::Written, "/data/a/f"));
        }
        for source in [&b"/other"[..], b"/data/a/f/g", b"/data/a/fg", b"/dat"] {
            assert_eq!(told(&written, source), None, "{source:?}");
        }
        let gone = word(Sort::Gone, b"a", None);
        assert_eq!(told(&gone, b"/data/a/b"), of(Sort::Gone, "/data/a/b"));
        let all = word(Sort::Subtree, b"", None);
        assert_eq!(told(&all, b"/data/a"), of(Sort::Subtree, "/data/a"));
        assert_eq!(told(&all, b"/"), of(Sort::Subtree, "/data"));
    }

    #[test]
    fn a_rename_is_told_as_one_where_both_names_are_in_the_source() {
        let moved = word(Sort::Moved, b"b/new", Some(b"a/old"));
        let both = Some((
            Sort::Moved,
            "/data/b/new".into(),
            Some("/data/a/old".into()),
        ));
        assert_eq!(told(&moved, b"/data"), both);
        assert_eq!(told(&moved, b"/data/b"), of(Sort::Replaced, "/data/b/new"));
        assert_eq!(told(&moved, b"/data/a"), of(Sort::Replaced, "/data/a/old"));
        for source in ["/data/b/new/x", "/data/a/old/x"] {
            assert_eq!(told(&moved, source.as_bytes()), of(Sort::Replaced, source));
        }
        assert_eq!(told(&moved, b"/data/c"), None);
    }

    #[test]
    fn what_has_too_long_a_path_is_told_by_a_directory_above_it() {
        let name = "n".repeat(200);
        let long = vec![name.as_str(); 30].join("/");
        let (sort, path, _) = told(&word(Sort::Written, long.as_bytes(), None), b"/data").unwrap();
        assert_eq!(sort, Sort::Replaced);
        assert!(path.len() < PATH_BYTES_MAX && format!("/data/{long}").starts_with(&path));
        let moved = word(Sort::Moved, long.as_bytes(), Some(b"short"));
        assert_eq!(told(&moved, b"/data"), of(Sort::Replaced, "/data"));
    }
}
