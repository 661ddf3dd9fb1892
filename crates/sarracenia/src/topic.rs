//! Where a message is published: its topic, which is the routing key, and the keys by which a queue
//! is bound to the topics that it wants.

use crate::name::shown;
use driftless_model::RelPath;

/// Bytes of a topic at most: it travels as a short string (AMQP 0.9.1, 4.2.5.3).
const TOPIC_BYTES_MAX: usize = 255;

/// The topic of what stands at `path`: the prefix and the directories above it, with dots between
/// them. A `#` is written `%23` and a `*` `%22`, as Sarracenia does, since both mean something in
/// bindings. What is longer than 255 bytes is cut where a character ends.
pub fn topic(prefix: &str, path: &RelPath) -> String {
    let mut topic = prefix.to_owned();
    let directory = path.split_last().map(|(directory, _)| directory);
    for name in directory.unwrap_or_default().names() {
        topic.push('.');
        topic.push_str(&shown(name).replace('#', "%23").replace('*', "%22"));
    }
    cut(topic)
}

/// The binding for a subtopic, such as `v03.hubs.#` for `hubs.#`.
pub fn binding(prefix: &str, subtopic: &str) -> String {
    cut(format!("{prefix}.{subtopic}"))
}

fn cut(mut topic: String) -> String {
    let last = topic.len().min(TOPIC_BYTES_MAX);
    let mut ends = (0..=last).rev();
    let end = ends.find(|at| topic.is_char_boundary(*at));
    topic.truncate(end.unwrap_or_default());
    topic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_has_the_directories_and_not_the_name() {
        let long = format!("v03.{}", "d".repeat(251));
        for (path, expected) in [
            (&b"a/b/c.txt"[..], "v03.a.b"),
            (b"c.txt", "v03"),
            (b"", "v03"),
            (b"a.b/c d/x", "v03.a.b.c d"),
            (b"#/*a/x", "v03.%23.%22a"),
            (b"\xff/x", "v03.\u{efff}"),
            (&[&[b'd'; 300][..], b"/x"].concat(), &long),
        ] {
            let path = RelPath::parse(path).expect("a path");
            assert_eq!(topic("v03", &path), expected, "{path}");
        }
        assert_eq!(binding("v03.post", "a.#"), "v03.post.a.#");
    }

    #[test]
    fn a_long_topic_ends_with_a_whole_character() {
        for length in 240..260 {
            let directory = format!("{}{}", "d".repeat(length - 10), "界".repeat(20));
            let path = RelPath::from_names([directory.as_bytes(), b"x"]);
            let topic = topic("v03", &path);
            assert!((253..=255).contains(&topic.len()), "{}", topic.len());
        }
    }
}
