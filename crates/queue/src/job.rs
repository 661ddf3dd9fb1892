//! The queues of a job: their names and how they are declared. No input or output here.
//!
//! A queue is called `driftless.NAME.CLASS`. Neither name has a dot, so no two jobs share a queue,
//! and a pattern of the broker's permissions for `driftless.NAME.` is met by the queues of that job
//! alone. Beside each queue of work stands one called `driftless.NAME.CLASS.idle`, to which nobody
//! publishes: its consumers are those who wait for work. All are quorum queues, and every way on
//! which the broker could drop a message ends in the parked queue instead
//! (<https://www.rabbitmq.com/docs/quorum-queues>, "dead lettering").

use crate::Error;
use lapin::types::{AMQPValue, FieldTable};

/// Longest name of a job; with the rest it stays below the 255 bytes of an AMQP short string.
const NAME_BYTES_MAX: usize = 100;
/// Longest name of a class of work.
const CLASS_BYTES_MAX: usize = 40;
/// Most classes of work in a job.
const CLASSES_MAX: usize = 16;
/// Deliveries of a message, given back or lost with their consumers, after which the broker parks
/// it by itself.
///
/// Callers park far earlier, by their own count. The broker's own default is no limit before 4.0
/// and 20 since, and a consumer that dies counts for all that it had prefetched.
const DELIVERIES_MAX: i64 = 200;
/// Deliveries of a parked message, and of what is only looked at. It must not be reached: nothing
/// stands behind that queue. Each time that the queue is listed counts as one.
const LISTINGS_MAX: i64 = i32::MAX as i64;

const RESULTS: &str = "results";
const PARKED: &str = "parked";
const IDLE: &str = "idle";
const COORDINATOR: &str = "coordinator";
const SEAT: &str = "seat";
/// What no class of work is called.
const RESERVED: [&str; 5] = [RESULTS, PARKED, IDLE, COORDINATOR, SEAT];

/// The names of a job's queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    name: String,
    classes: Vec<String>,
}

impl Job {
    /// A job and the classes that its work is divided into, such as `small` and `big`.
    ///
    /// # Errors
    /// Names have 1 to 100 letters, digits, `-` and `_`; classes 1 to 40 of these, are not called
    /// `results`, `parked`, `idle`, `coordinator` or `seat`, are not named twice, and are at least
    /// one and at most 16.
    pub fn new(name: &str, classes: &[&str]) -> Result<Job, Error> {
        check(name, NAME_BYTES_MAX)?;
        if classes.is_empty() || classes.len() > CLASSES_MAX {
            return Err(Error::Name {
                name: name.to_owned(),
                why: "a job has 1 to 16 classes of work",
            });
        }
        for (index, class) in classes.iter().enumerate() {
            check(class, CLASS_BYTES_MAX)?;
            if RESERVED.contains(class) || classes[..index].contains(class) {
                return Err(Error::Name {
                    name: (*class).to_owned(),
                    why: "a class of this name is there already (results, parked, idle, coordinator and seat always are)",
                });
            }
        }
        Ok(Job {
            name: name.to_owned(),
            classes: classes.iter().map(ToString::to_string).collect(),
        })
    }

    /// The name of the job.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The queue of a class of work.
    ///
    /// # Errors
    /// The job has no such class.
    pub fn work(&self, class: &str) -> Result<String, Error> {
        match self.classes.iter().any(|known| known == class) {
            true => Ok(self.queue(class)),
            false => Err(Error::Name {
                name: class.escape_default().to_string(),
                why: "the job has no such class",
            }),
        }
    }

    /// The queue whose consumers wait for work of a class.
    ///
    /// # Errors
    /// The job has no such class.
    pub fn idle(&self, class: &str) -> Result<String, Error> {
        self.work(class).map(|queue| format!("{queue}.{IDLE}"))
    }

    /// The queue of what was done.
    pub fn results(&self) -> String {
        self.queue(RESULTS)
    }

    /// The queue of messages that nobody could work off, with the reasons.
    pub fn parked(&self) -> String {
        self.queue(PARKED)
    }

    /// The queue in which the coordinator of the job says who it is.
    pub fn coordinator(&self) -> String {
        self.queue(COORDINATOR)
    }

    /// The queue that stands as long as somebody coordinates the job, and belongs to that
    /// connection alone.
    pub(crate) fn seat(&self) -> String {
        self.queue(SEAT)
    }

    /// All queues that stay; the parked one first, because the others point to it.
    pub fn queues(&self) -> Vec<String> {
        let classes = self
            .classes
            .iter()
            .map(|class| self.queue(class))
            .flat_map(|queue| [format!("{queue}.{IDLE}"), queue]);
        [self.parked(), self.results(), self.coordinator()]
            .into_iter()
            .chain(classes)
            .collect()
    }

    /// What a queue of this job is declared with.
    pub(crate) fn arguments(&self, queue: &str) -> FieldTable {
        let mut table = FieldTable::default();
        table.insert("x-queue-type".into(), text("quorum"));
        if queue == self.parked() || queue == self.coordinator() {
            table.insert(
                "x-delivery-limit".into(),
                AMQPValue::LongLongInt(LISTINGS_MAX),
            );
            return table;
        }
        table.insert(
            "x-delivery-limit".into(),
            AMQPValue::LongLongInt(DELIVERIES_MAX),
        );
        // At least once needs reject-publish: with drop-head, the default, the broker falls back to
        // at most once unasked.
        table.insert("x-overflow".into(), text("reject-publish"));
        table.insert("x-dead-letter-strategy".into(), text("at-least-once"));
        table.insert("x-dead-letter-exchange".into(), text(""));
        table.insert("x-dead-letter-routing-key".into(), text(&self.parked()));
        table
    }

    fn queue(&self, class: &str) -> String {
        format!("driftless.{}.{class}", self.name)
    }
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

fn check(name: &str, bytes_max: usize) -> Result<(), Error> {
    let bad = |why| {
        Err(Error::Name {
            name: name.escape_default().to_string(),
            why,
        })
    };
    if name.is_empty() || name.len() > bytes_max {
        return bad("names of jobs have 1 to 100 bytes, of classes 1 to 40");
    }
    match name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    {
        true => Ok(()),
        false => {
            bad("only letters, digits, - and _ (a dot parts the names of a job and of a class)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_named_after_job_and_class() {
        let job = Job::new("night-1", &["small", "big"]).expect("a job");
        let names = [
            "parked",
            "results",
            "coordinator",
            "small.idle",
            "small",
            "big.idle",
            "big",
        ]
        .map(|name| format!("driftless.night-1.{name}"));
        assert_eq!(job.queues(), names);
        assert_eq!(
            (
                job.idle("big").expect("known"),
                job.work("big").expect("known")
            ),
            (names[5].clone(), names[6].clone())
        );
        assert!(job.work("huge").is_err());
    }

    #[test]
    fn bad_names_are_refused() {
        let long = "x".repeat(101);
        for name in [
            "",
            "nightly.root",
            "a b",
            "a/b",
            "ä",
            "a#",
            "a*",
            "a\n",
            long.as_str(),
        ] {
            assert!(Job::new(name, &["w"]).is_err(), "{name:?}");
        }
        for classes in [
            &[] as &[&str],
            &["a.b"],
            &["results"],
            &["parked"],
            &["idle"],
            &["seat"],
            &["coordinator"],
            &["a", "a"],
            &[""],
        ] {
            assert!(Job::new("j", classes).is_err(), "{classes:?}");
        }
    }

    #[test]
    fn no_queue_of_a_job_begins_like_those_of_another() {
        let (one, two) = (
            Job::new("a", &["b"]).expect("a job"),
            Job::new("a-b", &["c"]).expect("a job"),
        );
        assert!(
            two.queues()
                .iter()
                .all(|queue| !queue.starts_with("driftless.a."))
        );
        assert!(
            one.queues()
                .iter()
                .all(|queue| queue.starts_with("driftless.a."))
        );
    }
}
