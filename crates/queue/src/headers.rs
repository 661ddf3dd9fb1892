//! What travels with a message beside its body: how often it was tried, and why it was parked.
//!
//! The broker counts deliveries too, but what it counts changes between its versions (give-backs no
//! longer count from 4.3 on), and its count begins anew when a message is published again. So we
//! carry our own and add the broker's.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};

/// Tries so far; ours.
const ATTEMPTS: &str = "x-driftless-attempts";
/// Why it was parked; ours.
const REASON: &str = "x-driftless-reason";
/// Where it was parked from; ours.
const QUEUE: &str = "x-driftless-queue";
/// Deliveries before this one; set by quorum queues (<https://www.rabbitmq.com/docs/quorum-queues>,
/// "poison message handling").
const BROKER_COUNT: &str = "x-delivery-count";
/// Why and from where the broker parked it (<https://www.rabbitmq.com/docs/dlx>, "effects on
/// messages").
const BROKER_REASON: &str = "x-first-death-reason";
const BROKER_QUEUE: &str = "x-first-death-queue";
/// Delivery mode of a message that survives a restart of the broker.
const PERSISTENT: u8 = 2;
/// Longest reason, in bytes: all headers must fit into one frame of at least 4 KiB.
const REASON_BYTES_MAX: usize = 1024;

/// What stands in the headers of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Headers {
    pub(crate) attempts: u32,
    pub(crate) reason: Option<String>,
    pub(crate) queue: Option<String>,
}

impl Headers {
    /// As properties of a persistent message.
    pub(crate) fn properties(&self) -> BasicProperties {
        let mut table = FieldTable::default();
        table.insert(
            ATTEMPTS.into(),
            AMQPValue::LongLongInt(self.attempts.into()),
        );
        let texts = [
            (
                REASON,
                self.reason
                    .as_deref()
                    .map(|reason| clipped(reason, REASON_BYTES_MAX)),
            ),
            (QUEUE, self.queue.as_deref()),
        ];
        for (key, value) in texts {
            if let Some(value) = value {
                table.insert(key.into(), AMQPValue::LongString(value.into()));
            }
        }
        BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_headers(table)
    }

    /// From what came with a message that is delivered to be worked off: what the broker counted is
    /// added.
    pub(crate) fn of_delivery(properties: &BasicProperties) -> Headers {
        let deliveries = properties
            .headers()
            .as_ref()
            .map_or(0, |table| number(table, BROKER_COUNT));
        let headers = Headers::read(properties);
        Headers {
            attempts: headers.attempts.saturating_add(deliveries),
            ..headers
        }
    }

    /// From what came with a message; what is missing or of another type counts as absent. What the
    /// broker counted is left out, because of parked messages it counts the listings.
    pub(crate) fn read(properties: &BasicProperties) -> Headers {
        let Some(table) = properties.headers() else {
            return Headers::default();
        };
        Headers {
            attempts: number(table, ATTEMPTS),
            reason: string(table, REASON).or_else(|| {
                string(table, BROKER_REASON).map(|why| format!("parked by the broker: {why}"))
            }),
            queue: string(table, QUEUE).or_else(|| string(table, BROKER_QUEUE)),
        }
    }
}

fn number(table: &FieldTable, key: &str) -> u32 {
    let value = match table.inner().get(key) {
        Some(AMQPValue::LongLongInt(value)) => *value,
        Some(AMQPValue::LongInt(value)) => i64::from(*value),
        Some(AMQPValue::LongUInt(value)) => i64::from(*value),
        Some(AMQPValue::ShortInt(value)) => i64::from(*value),
        Some(AMQPValue::ShortUInt(value)) => i64::from(*value),
        Some(AMQPValue::ShortShortInt(value)) => i64::from(*value),
        Some(AMQPValue::ShortShortUInt(value)) => i64::from(*value),
        _ => 0,
    };
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}

fn string(table: &FieldTable, key: &str) -> Option<String> {
    match table.inner().get(key) {
        Some(AMQPValue::LongString(value)) => {
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        }
        Some(AMQPValue::ShortString(value)) => Some(value.as_str().to_owned()),
        _ => None,
    }
}

/// The text up to `bytes_max`, cut between characters.
fn clipped(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_as_they_were_set() {
        let headers = Headers {
            attempts: 3,
            reason: Some("no such file: ä".to_owned()),
            queue: Some("driftless.j.small".to_owned()),
        };
        assert_eq!(Headers::read(&headers.properties()), headers);
        assert_eq!(
            Headers::read(&BasicProperties::default()),
            Headers::default()
        );
    }

    #[test]
    fn what_the_broker_counted_is_added() {
        let mut table = FieldTable::default();
        table.insert(ATTEMPTS.into(), AMQPValue::LongLongInt(2));
        table.insert(BROKER_COUNT.into(), AMQPValue::LongLongInt(5));
        table.insert(
            BROKER_REASON.into(),
            AMQPValue::LongString("rejected".into()),
        );
        let properties = BasicProperties::default().with_headers(table);
        assert_eq!(Headers::read(&properties).attempts, 2);
        let read = Headers::of_delivery(&properties);
        assert_eq!(
            (read.attempts, read.reason.as_deref()),
            (7, Some("parked by the broker: rejected"))
        );
    }

    #[test]
    fn numbers_that_make_no_sense_are_bounded() {
        let mut table = FieldTable::default();
        table.insert(ATTEMPTS.into(), AMQPValue::LongLongInt(i64::MAX));
        table.insert(BROKER_COUNT.into(), AMQPValue::LongLongInt(-5));
        assert_eq!(
            Headers::read(&BasicProperties::default().with_headers(table)).attempts,
            u32::MAX
        );
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        assert_eq!(clipped("aä", 2), "a");
        assert_eq!(clipped("aä", 3), "aä");
    }
}
