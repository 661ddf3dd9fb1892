//! Nodes that do not answer: one fact for all jobs. The gateway asks such a node alone, in pauses that
//! grow, and casts to it again once it answers.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Longest pause between two questions to a node that does not answer.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Age at which a sign of a node is too old to cast to it without a question first. Longer than the
/// interval at which all nodes are asked for their references.
const SIGN_AGE: Duration = Duration::from_secs(90);

/// A node that does not answer.
#[derive(Debug)]
struct SilentNode {
    cause: String,
    next: Instant,
    pause: Duration,
}

/// Signs of nodes.
#[derive(Debug)]
pub(crate) struct NodeSigns {
    silent: HashMap<String, SilentNode>,
    /// Times at which nodes answered.
    answered: HashMap<String, Instant>,
    pause_min: Duration,
}

impl NodeSigns {
    /// Returns the state without signs. `pause_min` is the first pause before a silent node is asked.
    pub fn new(pause_min: Duration) -> Self {
        NodeSigns {
            silent: HashMap::new(),
            answered: HashMap::new(),
            pause_min,
        }
    }

    /// Notes that a node answered. Returns whether it was silent before.
    pub fn note_answer(&mut self, node: &str, now: Instant) -> bool {
        match self.answered.get_mut(node) {
            Some(at) => *at = now,
            None => {
                self.answered.insert(node.to_owned(), now);
            }
        }
        self.silent.remove(node).is_some()
    }

    /// Notes that a node did not answer. Each time that this is the answer to a question that was due,
    /// the next pause is twice as long. Returns whether the cause is new.
    pub fn note_silence(&mut self, node: &str, cause: &str, now: Instant) -> bool {
        self.answered.remove(node);
        let is_new = self.silence(node) != Some(cause);
        let (next, pause) = match self.silent.get(node) {
            Some(known) if now < known.next => (known.next, known.pause),
            Some(known) => {
                let pause = known.pause.saturating_mul(2).min(PAUSE_MAX);
                (now + pause, pause)
            }
            None => {
                let pause = self.pause_min.min(PAUSE_MAX);
                (now + pause, pause)
            }
        };
        let silent = SilentNode {
            cause: cause.to_owned(),
            next,
            pause,
        };
        self.silent.insert(node.to_owned(), silent);
        is_new
    }

    /// Returns the cause for which a node is silent; `None` if it is not.
    pub fn silence(&self, node: &str) -> Option<&str> {
        self.silent.get(node).map(|silent| silent.cause.as_str())
    }

    /// Returns whether a node gave a sign of late.
    pub fn is_proven(&self, node: &str, now: Instant) -> bool {
        let at = self.answered.get(node);
        at.is_some_and(|at| now.saturating_duration_since(*at) < SIGN_AGE)
    }

    /// Returns the silent nodes that are to be asked now.
    pub fn due(&self, now: Instant) -> Vec<String> {
        let is_due = |(_, silent): &(&String, &SilentNode)| silent.next <= now;
        let due = self.silent.iter().filter(is_due);
        due.map(|(node, _)| node.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(5);

    #[test]
    fn silent_node_is_asked_in_growing_pauses() {
        let mut health = NodeSigns::new(PAUSE);
        let begin = Instant::now();
        health.note_silence("n1", "refused", begin);
        assert_eq!(health.silence("n1"), Some("refused"));
        assert_eq!(health.due(begin), [""; 0]);
        let first = begin + PAUSE;
        assert_eq!(health.due(first), ["n1"]);
        health.note_silence("n1", "refused", first);
        assert_eq!(health.due(first + PAUSE), [""; 0]);
        assert_eq!(health.due(first + PAUSE * 2), ["n1"]);
        let mut at = first;
        for _ in 0..20 {
            at += PAUSE_MAX;
            assert_eq!(health.due(at), ["n1"]);
            health.note_silence("n1", "refused", at);
        }
    }

    #[test]
    fn new_cause_of_silence_is_told_once() {
        let mut health = NodeSigns::new(PAUSE);
        let begin = Instant::now();
        for (cause, second, is_new) in [
            ("refused", 0, true),
            ("refused", 1, false),
            ("no route", 2, true),
            ("no route", 60, false),
        ] {
            let at = begin + Duration::from_secs(second);
            assert_eq!(health.note_silence("n1", cause, at), is_new, "{second}");
        }
        assert!(health.note_answer("n1", begin));
        assert!(health.note_silence("n1", "no route", begin));
    }

    #[test]
    fn reports_of_casts_delay_no_question() {
        let mut health = NodeSigns::new(PAUSE);
        let begin = Instant::now();
        for second in 0..5 {
            let at = begin + Duration::from_secs(second);
            health.note_silence("n1", "refused", at);
        }
        assert_eq!(health.due(begin + PAUSE), ["n1"]);
    }

    #[test]
    fn node_that_answers_is_silent_no_more() {
        let mut health = NodeSigns::new(PAUSE);
        let begin = Instant::now();
        assert!(!health.is_proven("n1", begin));
        health.note_silence("n1", "refused", begin);
        assert!(health.note_answer("n1", begin));
        assert!(!health.note_answer("n1", begin));
        assert_eq!(health.silence("n1"), None);
        assert!(health.is_proven("n1", begin));
        assert!(!health.is_proven("n1", begin + SIGN_AGE));
    }
}
