//! What is heard in a message: which paths may differ, and what else is said of them.
//!
//! What a message says of an entry decides only how soon it is looked at, and how closely. No
//! input or output here.

use driftless_detect::Seen;
use driftless_model::{Change, RelPath, Scope};
use driftless_sarracenia::{BaseUrl, Message};

/// What may differ below `base`; empty if the message is about another tree.
pub(crate) fn seen_of(message: &Message, base: &BaseUrl) -> Vec<Seen> {
    let about = About::of(message);
    let changes = driftless_sarracenia::changes_of(message, base);
    let above: Vec<RelPath> = changes
        .iter()
        .filter_map(|change| change.path.split_last().map(|(above, _)| above))
        .collect();
    // The first is of the entry that the message is about, the others of paths around it.
    let seen = changes.into_iter().enumerate().map(|(index, change)| {
        let is_above = above.contains(&change.path);
        let seen = about.seen(change, index == 0);
        Seen {
            is_dir: seen.is_dir || is_above,
            ..seen
        }
    });
    seen.collect()
}

/// What a message says of its entry.
struct About {
    is_directory: bool,
    is_removed: bool,
    is_file: bool,
    size: u64,
}

impl About {
    fn of(message: &Message) -> About {
        let operation = message.file_op.as_ref();
        let has_moved = message.others.contains_key("newname");
        About {
            is_directory: operation.is_some_and(|one| one.directory),
            is_removed: operation.is_some_and(|one| one.remove) && !has_moved,
            is_file: operation.is_none(),
            size: message.size.unwrap_or(0),
        }
    }

    fn seen(&self, change: Change, is_first: bool) -> Seen {
        let is_subtree = change.scope == Scope::Subtree;
        Seen {
            is_dir: is_first && self.is_directory,
            // Also of a file: the poster in C tells both alike, and what was removed takes no time.
            is_gone: is_first && self.is_removed && is_subtree,
            // Whoever wrote it may have written again within the same tick of the clock.
            is_written: is_first && self.is_file,
            size: if is_first { self.size } else { 0 },
            ..Seen::closed(change)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str) -> Vec<Seen> {
        let base = BaseUrl::parse("file:/src").expect("a URL");
        let head = r#"{"pubTime":"20260131T101112.5","baseUrl":"file:/src""#;
        let message = Message::parse(format!("{head},{text}}}").as_bytes());
        seen_of(&message.expect("a message"), &base)
    }

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    #[test]
    fn a_file_is_written_and_its_directory_is_only_looked_at() {
        let file = Seen {
            is_written: true,
            size: 7,
            ..Seen::closed(Change::entry(path("a/b")))
        };
        let directory = Seen {
            is_dir: true,
            ..Seen::closed(Change::entry(path("a")))
        };
        assert_eq!(heard(r#""relPath":"a/b","size":7"#), [file, directory]);
    }

    #[test]
    fn what_was_removed_is_gone_with_all_below_it() {
        for (operation, is_dir) in [
            (r#"{"remove":""}"#, false),
            (r#"{"remove":"","directory":""}"#, true),
        ] {
            let seen = heard(&format!(r#""relPath":"a","fileOp":{operation}"#));
            let gone = Seen {
                is_dir,
                is_gone: true,
                ..Seen::closed(Change::subtree(path("a")))
            };
            assert_eq!(seen[0], gone, "{operation}");
            assert!(!seen[1].is_gone, "{operation}");
        }
    }

    #[test]
    fn a_directory_that_moved_is_not_gone() {
        let moved = r#""relPath":"a","fileOp":{"remove":"","directory":""},"newname":"b""#;
        let renamed = r#""relPath":"b","fileOp":{"rename":"a","directory":""}"#;
        for text in [moved, renamed] {
            let seen = heard(text);
            assert_eq!(seen[0].change.path, path("b"), "{text}");
            assert!(seen.iter().all(|one| !one.is_gone), "{text}");
            assert!(!seen[0].is_written && seen[0].is_dir, "{text}");
        }
    }

    #[test]
    fn all_below_a_directory_may_differ_and_nothing_of_it_is_gone() {
        let text = r#""relPath":"a","fileOp":{"directory":""},"driftlessBelow":"""#;
        let below = Seen {
            is_dir: true,
            ..Seen::closed(Change::subtree(path("a")))
        };
        assert_eq!(heard(text)[0], below);
        let root = r#""relPath":"","fileOp":{"directory":""},"driftlessBelow":"""#;
        let all = Seen {
            is_dir: true,
            ..Seen::closed(Change::subtree(RelPath::root()))
        };
        assert_eq!(heard(root), [all]);
    }

    #[test]
    fn another_tree_concerns_nobody() {
        let base = BaseUrl::parse("file:/other").expect("a URL");
        let text = r#"{"pubTime":"20260131T101112.5","baseUrl":"file:/src","relPath":"a"}"#;
        let message = Message::parse(text.as_bytes()).expect("a message");
        assert_eq!(seen_of(&message, &base), []);
    }
}
