//! The messages that were accepted and are not confirmed yet, oldest first, within bounds.
//!
//! A message leaves the window only when it and all before it are confirmed, so one number says how
//! far the broker has them: the sequence number below which nothing can be lost any more. No input
//! or output here.

use crate::headers::Headers;
use lapin::BasicProperties;
use std::collections::VecDeque;

/// Most messages that wait for their confirms, where nobody asks for another number.
pub(crate) const WINDOW_MESSAGES_MAX: usize = 256;
/// Most bytes that wait for their confirms; a message that is longer than all of it does not exist.
pub(crate) const WINDOW_BYTES_MAX: usize = 16 << 20;

/// A message to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// Empty for the one by which every queue is reached by its name (AMQP 0.9.1, 3.1.3.1).
    pub(crate) exchange: String,
    /// The routing key: the name of the queue, or a topic.
    pub(crate) key: String,
    pub(crate) body: Vec<u8>,
    pub(crate) properties: BasicProperties,
}

impl Message {
    /// For one queue.
    pub(crate) fn to_queue(queue: &str, body: Vec<u8>, headers: &Headers) -> Message {
        Message {
            exchange: String::new(),
            key: queue.to_owned(),
            body,
            properties: headers.properties(),
        }
    }
}

/// How far a message has come. `S` is what waits for its confirm.
#[derive(Debug)]
pub(crate) enum Stage<S> {
    Unsent,
    /// The broker has not taken it; it is to be sent again, and not at once.
    Refused,
    Sent(S),
    /// The broker said that it has it. It may have said, too, that it came back, and we do not know
    /// yet.
    Acked,
    /// It has it and did not give it back.
    Safe,
}

#[derive(Debug)]
pub(crate) struct Outstanding<S> {
    pub(crate) number: u64,
    pub(crate) message: Message,
    pub(crate) stage: Stage<S>,
}

#[derive(Debug)]
pub(crate) struct Window<S> {
    waiting: VecDeque<Outstanding<S>>,
    messages_max: usize,
    bytes: usize,
    next: u64,
}

impl<S> Window<S> {
    pub(crate) fn new(messages_max: usize) -> Window<S> {
        Window {
            waiting: VecDeque::new(),
            messages_max,
            bytes: 0,
            next: 0,
        }
    }

    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.waiting.is_empty()
            || (self.waiting.len() < self.messages_max && self.bytes + bytes <= WINDOW_BYTES_MAX)
    }

    /// Accepts a message and numbers it.
    pub(crate) fn push(&mut self, message: Message) -> u64 {
        let number = self.next;
        self.next += 1;
        self.bytes += message.body.len();
        self.waiting.push_back(Outstanding {
            number,
            message,
            stage: Stage::Unsent,
        });
        number
    }

    /// Everything below this number is confirmed.
    pub(crate) fn confirmed(&self) -> u64 {
        self.waiting.front().map_or(self.next, |first| first.number)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Outstanding<S>> {
        self.waiting.iter_mut()
    }

    pub(crate) fn find(&mut self, number: u64) -> Option<&mut Outstanding<S>> {
        let first = self.waiting.front()?.number;
        self.waiting
            .get_mut(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    /// After a connection is lost: what is not known to be safe is to be sent again.
    pub(crate) fn unsend(&mut self) {
        for outstanding in &mut self.waiting {
            if matches!(
                outstanding.stage,
                Stage::Sent(_) | Stage::Acked | Stage::Refused
            ) {
                outstanding.stage = Stage::Unsent;
            }
        }
    }

    /// Drops the messages at the front that are safe.
    pub(crate) fn retire(&mut self) {
        while self
            .waiting
            .front()
            .is_some_and(|first| matches!(first.stage, Stage::Safe))
        {
            let gone = self.waiting.pop_front();
            self.bytes -= gone.map_or(0, |gone| gone.message.body.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: usize) -> Message {
        Message::to_queue("q", vec![0; bytes], &Headers::default())
    }

    fn save(window: &mut Window<()>, number: u64) {
        window.find(number).expect("it waits").stage = Stage::Safe;
        window.retire();
    }

    #[test]
    fn the_mark_stays_below_the_oldest_message_that_is_not_confirmed() {
        let mut window = Window::new(WINDOW_MESSAGES_MAX);
        assert_eq!([0, 1, 2].map(|_| window.push(message(1))), [0, 1, 2]);
        save(&mut window, 1);
        assert_eq!((window.confirmed(), window.len()), (0, 3));
        save(&mut window, 0);
        assert_eq!((window.confirmed(), window.len()), (2, 1));
        save(&mut window, 2);
        assert_eq!(
            (window.confirmed(), window.bytes, window.is_empty()),
            (3, 0, true)
        );
        assert!(window.find(1).is_none() && window.find(9).is_none());
    }

    #[test]
    fn the_window_is_bounded_in_messages_and_bytes() {
        let mut window = Window::<()>::new(WINDOW_MESSAGES_MAX);
        assert!(window.has_room(WINDOW_BYTES_MAX));
        window.push(message(WINDOW_BYTES_MAX - 1));
        assert!(window.has_room(1) && !window.has_room(2));
        let mut window = Window::<()>::new(WINDOW_MESSAGES_MAX);
        (0..WINDOW_MESSAGES_MAX)
            .for_each(|_| assert!(window.has_room(1) && window.push(message(1)) < 256));
        assert!(!window.has_room(0));
    }

    #[test]
    fn a_lost_connection_sends_again_what_is_not_safe() {
        let mut window = Window::new(WINDOW_MESSAGES_MAX);
        for stage in [Stage::Sent(()), Stage::Acked, Stage::Safe] {
            let number = window.push(message(1));
            window.find(number).expect("it waits").stage = stage;
        }
        window.unsend();
        let unsent: Vec<_> = window
            .iter_mut()
            .map(|outstanding| matches!(outstanding.stage, Stage::Unsent))
            .collect();
        assert_eq!(unsent, [true, true, false]);
    }
}
