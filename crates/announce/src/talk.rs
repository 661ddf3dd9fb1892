//! Carries what the processes of a pool say to each other: those that share a queue of
//! announcements.
//!
//! They talk over an exchange of the user's own, each with a queue that goes with it. Nothing that
//! is said is kept for long, and nothing depends on it being heard: it is said again.

use driftless_queue::{
    Acknowledger, Broker, Error, Exchange, Passing, Subscription, TopicConsumer, TopicMessage,
    TopicPublisher,
};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// What was not fetched for so long is not worth hearing any more.
const AGE_MAX: Duration = Duration::from_secs(5);
/// A queue that nobody hears goes after this.
const UNUSED_MAX: Duration = Duration::from_secs(60);
/// Words that wait in a queue.
const WORDS_MAX: u32 = 10_000;
/// Words that are on their way.
const UNCONFIRMED_MAX: usize = 8;
/// A turn of waiting for a word: how long one that is to be said may wait for it.
const TURN: Duration = Duration::from_millis(20);
/// For how long a word waits for room.
const SAY_TIME_MAX: Duration = Duration::from_millis(100);
/// After a refusal it is tried again after this.
const PAUSE: Duration = Duration::from_secs(2);
/// At the end, for how long the last words may take.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(3);

/// One end of the talk of a pool.
pub struct Talk {
    publisher: TopicPublisher,
    consumer: TopicConsumer,
    acknowledger: Acknowledger,
    key: String,
    /// Why nothing is heard or said, as it was logged last.
    logged: Option<String>,
    is_mute: bool,
}

impl Talk {
    /// The talk of those who share the queue `shared`. Whoever leads hears members, and they hear
    /// whoever leads; `own` is a number that nobody else has. Connects later.
    ///
    /// # Errors
    /// The user's name makes no name of a queue.
    pub fn of(broker: &Broker, shared: &str, (leads, own): (bool, u64)) -> Result<Talk, Error> {
        let user = broker.url().user();
        let exchange = Exchange::new(&format!("xs_{user}_driftless_pool"))?;
        let pool = number_of(shared);
        let key = |of_lead: bool| match of_lead {
            true => format!("{pool:016x}.lead"),
            false => format!("{pool:016x}.member"),
        };
        let queue = format!("q_{user}.driftless.pool.{own:016x}");
        let passing = Passing {
            unused_max: UNUSED_MAX,
            age_max: AGE_MAX,
            messages_max: WORDS_MAX,
        };
        let subscription = Subscription::new(&queue, exchange.clone(), &[key(!leads)])?;
        let consumer = TopicConsumer::new(broker, &subscription.passing(passing), 1000);
        Ok(Talk {
            publisher: TopicPublisher::new(broker, &exchange, UNCONFIRMED_MAX),
            acknowledger: consumer.acknowledger(),
            consumer,
            key: key(leads),
            logged: None,
            is_mute: false,
        })
    }

    /// Says what `next` gives, and tells `hear` what is heard, until `is_over`; tells `mute` why it
    /// cannot, and nothing when it can again.
    pub fn run(
        mut self,
        mut next: impl FnMut() -> Option<Vec<u8>>,
        (hear, mute): (impl Fn(&[u8]), impl Fn(Option<String>)),
        is_over: impl Fn() -> bool,
    ) {
        let mut pause_until: Option<Instant> = None;
        while !is_over() {
            if pause_until.is_some_and(|until| Instant::now() < until) {
                std::thread::sleep(TURN);
                continue;
            }
            let done = self.turn(&mut next, &hear);
            pause_until = done.is_err().then(|| Instant::now() + PAUSE);
            self.tell(done.err(), &mute);
        }
        while let Some(word) = next() {
            let _nobody_hears_it_then = self.say(&word);
        }
        let _nor_this = self.publisher.flush(FLUSH_TIME_MAX);
    }

    fn turn(
        &mut self,
        next: &mut impl FnMut() -> Option<Vec<u8>>,
        hear: &impl Fn(&[u8]),
    ) -> Result<(), Error> {
        while let Some(word) = next() {
            self.say(&word)?;
        }
        if let Some(heard) = self.consumer.next(TURN)? {
            hear(&heard.body);
            let _it_comes_again_otherwise = self.acknowledger.acknowledge(heard.number);
        }
        Ok(())
    }

    fn say(&self, word: &[u8]) -> Result<(), Error> {
        let message = TopicMessage {
            key: &self.key,
            content_type: "application/json",
            content_encoding: "utf-8",
            body: word,
        };
        self.publisher.publish(&message, SAY_TIME_MAX)?;
        // It connects, and is sent, while somebody waits for that.
        let _it_is_confirmed_later = self.publisher.flush(SAY_TIME_MAX);
        Ok(())
    }

    /// Says why there is no talk, and logs it once: for how long by now is no other reason.
    fn tell(&mut self, error: Option<Error>, mute: &impl Fn(Option<String>)) {
        let Some(why) = error.map(|error| error.to_string()) else {
            if std::mem::take(&mut self.is_mute) {
                mute(None);
            }
            return;
        };
        self.is_mute = true;
        mute(Some(why.clone()));
        let logged = self.logged.as_deref().map(without_numbers);
        if logged.is_none_or(|logged| logged != without_numbers(&why)) {
            tracing::warn!("cannot reach the other mirrors of the job: {why}");
            self.logged = Some(why);
        }
    }
}

fn without_numbers(text: &str) -> String {
    text.chars().filter(|one| !one.is_ascii_digit()).collect()
}

/// A number for a name: names may be longer than a topic.
fn number_of(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_the_same_number_everywhere() {
        assert_eq!(number_of(""), 0x2d06_8005_38d3_94c2);
        assert_eq!(number_of("a"), 0xe6c6_32b6_1e96_4e1f);
    }
}
