//! Messages that a real sr3 has written (3.3.1; `recorded/record.py` makes them anew) are read, and
//! become the changes that they tell of.

use driftless_model::Hint;
use driftless_sarracenia::{BaseUrl, CONTENT_TYPE, Headers, Message, changes_of, parse, topic};
use serde::Deserialize;
use serde_json::Value;

/// The folder in which they were recorded.
const TREE: &str = "file:/tmp/driftless-record-tree";

#[derive(Deserialize)]
struct Recorded {
    what: String,
    content_type: String,
    topic: String,
    headers: Headers,
    body: String,
}

impl Recorded {
    fn message(&self) -> Message {
        let read = parse(
            self.body.as_bytes(),
            Some(&self.content_type),
            &self.headers,
        );
        read.unwrap_or_else(|why| panic!("{}: {}: {why}", self.what, self.body))
    }
}

fn recorded() -> Vec<Recorded> {
    let all: Vec<Recorded> =
        serde_json::from_str(include_str!("recorded/messages.json")).expect("what was recorded");
    assert!(all.len() > 40, "there are {}", all.len());
    all
}

fn told(message: &Message) -> Vec<String> {
    let base = BaseUrl::parse(TREE).expect("a URL");
    let changes = changes_of(message, &base).into_iter();
    let shown = changes.map(|change| match change.hint {
        Some(Hint::MovedFrom(from)) => format!("{} {:?} from {from}", change.path, change.scope),
        _ => format!("{} {:?}", change.path, change.scope),
    });
    shown.collect()
}

/// What is heard of what was recorded, in either version and however the paths were divided.
fn expected(what: &str) -> &'static [&'static str] {
    match what {
        "file" => &["a/b c/x#1.txt Entry", "a/b c Entry"],
        "file in the root" => &["y Entry", ". Entry"],
        "file with a star" => &["d*/#e/ fü Entry", "d*/#e Entry"],
        "not UTF-8" => &["a/n\\xff.txt Entry", "a Entry"],
        "directory" => &["dir/below Entry", "dir Entry"],
        "link" => &["dir/link Entry", "dir Entry"],
        "removed" => &["gone/file Subtree", "gone Entry"],
        "removed directory" => &["gone/dir Subtree", "gone Entry"],
        "renamed" => &[
            "new/name Entry from old/name",
            "old/name Entry",
            "new Entry",
            "old Entry",
        ],
        "renamed link" => &[
            "new/link Subtree from old/link",
            "old/link Subtree",
            "new Entry",
            "old Entry",
        ],
        // One entry of it, and then the directory itself.
        "renamed directory" => &[],
        other => panic!("nothing is known of {other}"),
    }
}

#[test]
fn what_sr3_announces_is_heard() {
    for one in recorded() {
        let message = one.message();
        let heard = told(&message);
        let expected = expected(&one.what);
        if expected.is_empty() {
            let is_directory = message.others.contains_key("newname");
            let moved = match is_directory {
                true => "newdir Subtree from olddir",
                false => "newdir/one Entry from olddir/one",
            };
            assert_eq!(heard[0], moved, "{}", one.body);
        } else {
            assert_eq!(heard, expected, "{}", one.body);
        }
    }
}

#[test]
fn topics_are_those_of_sr3() {
    let is_v03 = |one: &Recorded| one.content_type == CONTENT_TYPE;
    for one in recorded().into_iter().filter(is_v03) {
        assert_eq!(
            topic("v03", &one.message().rel_path),
            one.topic,
            "{}",
            one.body
        );
    }
}

#[test]
fn what_sr3_says_of_a_file_is_read_and_forwarded() {
    for one in recorded().into_iter().filter(|one| one.what == "file") {
        let message = one.message();
        let (size, mode) = (message.size, message.mode);
        assert_eq!((size, mode), (Some(5), Some(0o640)), "{}", one.body);
        // Python counts in fractions of its own.
        let mtime = message.mtime.expect("a time");
        assert_eq!((mtime.sec, mtime.nsec / 1000), (1_769_854_272, 123_456));
        let identity = message.identity.as_ref().expect("a sum");
        assert_eq!(
            (identity.method.as_str(), identity.value.len()),
            ("sha512", 88)
        );
        if one.content_type == CONTENT_TYPE {
            let (sent, forwarded): (Value, Value) = (
                serde_json::from_str(&one.body).expect("JSON"),
                serde_json::from_str(&message.to_json()).expect("JSON"),
            );
            assert_eq!(forwarded, sent);
        }
    }
}
