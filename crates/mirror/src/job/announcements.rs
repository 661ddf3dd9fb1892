//! The table `[announcements]`: the broker whose announcements a mirror hears.
//!
//! What the broker and the messages allow for names is checked here as far as a key can be told
//! that would have to change.

use super::values::Announcements;
use driftless_settings::publish::{TOPIC_PREFIX, base_url, broker_name};
use driftless_settings::{Document, forms};
use std::path::PathBuf;

/// All topics below the prefix.
const ALL_TOPICS: &str = "#";
/// Most bindings of a queue.
const SUBTOPICS_MAX: usize = 100;

/// The table, if it is there and has what it must have.
pub(super) fn read(from: &mut Document) -> Option<Announcements> {
    let broker = from.take("announcements.broker", forms::broker_url);
    let credentials = from.take("announcements.credentials", forms::text);
    let ca = from.take("announcements.ca", forms::text);
    let exchange = from.take("announcements.exchange", broker_name);
    let topic_prefix = from.take("announcements.topic_prefix", broker_name);
    let subtopics = subtopics(from);
    let queue = from.take("announcements.queue", broker_name);
    let base_url = from.take("announcements.base_url", base_url);
    Some(Announcements {
        broker: broker?,
        credentials: credentials.map(PathBuf::from),
        ca: ca.map(PathBuf::from),
        exchange: exchange?,
        topic_prefix: topic_prefix.unwrap_or_else(|| TOPIC_PREFIX.to_owned()),
        subtopics,
        queue: queue?,
        base_url,
    })
}

fn subtopics(from: &mut Document) -> Vec<String> {
    const KEY: &str = "announcements.subtopics";
    let Some(subtopics) = from.take_list(KEY, broker_name) else {
        return vec![ALL_TOPICS.to_owned()];
    };
    if from.is_right_about(KEY) && !(1..=SUBTOPICS_MAX).contains(&subtopics.len()) {
        from.wrong(KEY, format!("1 to {SUBTOPICS_MAX} are expected"));
    }
    subtopics
}
