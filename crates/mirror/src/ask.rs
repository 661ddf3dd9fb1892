//! What a mirror that runs can be asked, and what it answers.

use crate::foreign::Foreign;
use crate::status::{Status, Trouble};
use crossbeam_channel::{Receiver, Sender, bounded};
use driftless_model::escape;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What is answered at once is answered within this time, unless the mirror hangs.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Whoever waits until a moment is answered at that moment: so much later, the answer is here.
const ON_TIME: Duration = Duration::from_secs(1);

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// How is it?
    Status,
    /// Which paths have a problem?
    Problems,
    /// What has somebody else changed on the replica?
    Foreign,
    /// Stop working, and go on hearing of changes.
    Pause,
    /// Go on working.
    Resume,
    /// Compare all.
    SyncNow {
        /// Answer when all of it is on the replica.
        wait: bool,
        /// Compare all even where two snapshots tell what differs.
        all: bool,
    },
    /// Answer when everything that happened before is on the replica.
    Barrier {
        /// Or when so much time has passed.
        timeout: Option<Duration>,
    },
    /// Answer when everything that happened before has been heard of, whether or not it is on the
    /// replica.
    Hear {
        /// Or when so much time has passed.
        timeout: Duration,
    },
    /// End, as after a signal.
    End,
    /// Try at once what has failed.
    Retry {
        /// At this path and below; all without it.
        path: Option<Vec<u8>>,
    },
}

impl Ask {
    /// For how long its answer is waited for; `None` for what is answered when it is done, whenever
    /// that is.
    #[must_use]
    pub fn limit(&self) -> Option<Duration> {
        match self {
            Ask::Barrier { timeout } => timeout.map(|timeout| timeout.saturating_add(ON_TIME)),
            Ask::Hear { timeout } => Some(timeout.saturating_add(ON_TIME)),
            Ask::SyncNow { wait: true, .. } | Ask::Pause => None,
            _ => Some(AT_ONCE),
        }
    }
}

impl Ask {
    /// Returns whether the question changes nothing, neither in the trees nor in the mirror's work.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        match self {
            Ask::Status | Ask::Problems | Ask::Foreign | Ask::Hear { .. } => true,
            Ask::Pause
            | Ask::Resume
            | Ask::SyncNow { .. }
            | Ask::Barrier { .. }
            | Ask::End
            | Ask::Retry { .. } => false,
        }
    }

    /// Returns the question as a user calls it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Ask::Status => "status",
            Ask::Problems => "problems",
            Ask::Foreign => "foreign",
            Ask::Pause => "pause",
            Ask::Resume => "resume",
            Ask::SyncNow { .. } => "sync-now",
            Ask::Barrier { .. } => "barrier",
            Ask::Hear { .. } => "status --check",
            Ask::End => "failover",
            Ask::Retry { .. } => "retry",
        }
    }
}

/// A question that is answered from the mirror's state: a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AskState {
    /// Tells what the mirror did in a day.
    Report {
        /// The beginning of the day, in seconds since 1970; the last 24 hours without it.
        day: Option<u64>,
        /// The form of the answer.
        form: ReportForm,
    },
}

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportForm {
    /// Tables for a person.
    Text,
    /// One JSON object a line.
    Json,
    /// A page.
    Html,
}

/// Anything that the mirror is asked through its socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Question {
    /// A question that the mirror's state answers.
    State(AskState),
    /// A question that the replicas answer.
    Mirror(Ask),
}

/// Returns the refusal of an act (`what`) for a member of the group of operators.
#[must_use]
pub fn forbidden(what: &str, group: &str) -> String {
    format!(
        "cannot {what}: members of the group \"{}\" may ask for status, list, problems, foreign and report only; ask as the user of the mirror, or as root",
        escape(group.as_bytes())
    )
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", content = "with", rename_all = "kebab-case")]
pub enum Answer {
    /// It was done.
    Done,
    /// What has failed is tried again.
    Retried {
        /// Paths.
        paths: u64,
        /// Replicas whose trees were out of reach.
        away: u64,
    },
    /// How each replica is, in the order of the job.
    Status(Vec<Status>),
    /// Which paths have a problem, for each replica.
    Problems(Vec<Troubles>),
    /// What somebody else has changed on each replica, as the job names it.
    Foreign(Vec<(String, Foreign)>),
    /// All is on the replica, but for what has a problem.
    Reached {
        /// Paths that have one.
        problems: u64,
    },
    /// The time was over before.
    Late {
        /// Paths that are left.
        left: u64,
    },
    /// The question makes no sense, or what was asked for does not last.
    Refused(String),
    /// The user who asks may not ask for that.
    Forbidden(String),
    /// Too many ask at the same time.
    Busy(String),
    /// The report, in the form that was asked for.
    Report(String),
}

/// Paths of one replica that have a problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Troubles {
    /// The replica, as the job names it.
    pub replica: String,
    /// The paths, and what is wrong.
    pub paths: Vec<Trouble>,
}

impl Answer {
    /// What the answers of all replicas to one question come to; `None` where there are none. A
    /// refusal stands for all, and so does one that was late.
    pub fn of_all(answers: Vec<Answer>) -> Option<Answer> {
        answers.into_iter().reduce(|sum, one| match (sum, one) {
            (
                Answer::Retried { paths, away },
                Answer::Retried {
                    paths: more_paths,
                    away: more_away,
                },
            ) => Answer::Retried {
                paths: paths + more_paths,
                away: away + more_away,
            },
            (Answer::Status(a), Answer::Status(b)) => Answer::Status([a, b].concat()),
            (Answer::Problems(a), Answer::Problems(b)) => Answer::Problems([a, b].concat()),
            (Answer::Foreign(a), Answer::Foreign(b)) => Answer::Foreign([a, b].concat()),
            (Answer::Reached { problems: a }, Answer::Reached { problems: b }) => {
                Answer::Reached { problems: a + b }
            }
            (Answer::Late { left: a }, Answer::Late { left: b }) => Answer::Late { left: a + b },
            (refused @ Answer::Refused(_), _) | (_, refused @ Answer::Refused(_)) => refused,
            (late @ Answer::Late { .. }, _) | (_, late @ Answer::Late { .. }) => late,
            (_, other) => other,
        })
    }
}

/// Where an answer goes.
#[derive(Debug, Clone)]
pub struct Reply(Sender<Answer>);

impl Reply {
    /// For one answer, and where it comes out.
    pub fn new() -> (Reply, Receiver<Answer>) {
        let (reply, answers) = bounded(1);
        (Reply(reply), answers)
    }

    /// Answers; nobody may listen any more.
    pub fn give(&self, answer: Answer) {
        let _who_asked_may_be_gone = self.0.try_send(answer);
    }
}

/// A question, and where its answer goes.
#[derive(Debug, Clone)]
pub struct Asked {
    /// What is asked.
    pub ask: Ask,
    /// Where the answer goes.
    pub reply: Reply,
}
