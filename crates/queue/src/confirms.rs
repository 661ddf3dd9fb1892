//! Sends the messages of the window, reads their confirms, and decides what is safe.
//!
//! Which message came back is read from the message itself. The client hands a returned message out
//! with the next confirm that it sees, and when one answer confirms many messages, with any of
//! these. So a confirm alone proves nothing: it may be of the message that came back, while the
//! word of it hangs on another confirm, not looked at yet. Therefore a confirmed message is safe
//! only when the broker has answered a request that was made after the confirm, and all confirms
//! that are there by then have been looked at (`note`). Where a message that came back is only
//! counted, a confirm is proof enough.

use crate::Error;
use crate::again::Again;
use crate::deadline::Deadline;
use crate::link::Link;
use crate::session::{ANSWER_SECONDS_MAX, answer};
use crate::window::{Message, Outstanding, Stage, Window};
use futures_lite::future::poll_once;
use lapin::message::BasicReturnMessage;
use lapin::options::{BasicPublishOptions, BasicQosOptions};
use lapin::{Channel, Confirmation};
use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

/// A message on its way to its confirm. It is polled by the thread that waits, and not dropped
/// while its connection stands: it may be half written.
type Sending = Pin<Box<dyn Future<Output = lapin::Result<Confirmation>> + Send>>;

/// The publishing connection and what went out by it.
pub(crate) struct Confirms {
    link: Link,
    window: Window<Sending>,
    /// Numbers of messages that came back, as far as is known and not acted upon.
    returned: Vec<u64>,
    /// A message that the broker did not take: its queue.
    nacked: Option<String>,
    returns: Returns,
    /// Messages that came back and were let go.
    unheard: u64,
    /// Where what was refused is not sent again at once: when it is.
    again: Option<Again>,
}

/// What becomes of a message that came back, since no queue takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Returns {
    /// It is an error, and is sent again.
    SentAgain,
    /// Nobody wants to hear it; it is counted.
    Counted,
}

/// The connection is of no use any more.
struct Lost;

impl Confirms {
    pub(crate) fn new(link: Link, messages_max: usize, returns: Returns) -> Confirms {
        Confirms {
            link,
            window: Window::new(messages_max),
            returned: Vec::new(),
            nacked: None,
            returns,
            unheard: 0,
            again: None,
        }
    }

    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.window.has_room(bytes)
    }

    /// Whether the message `number` and all before it are confirmed.
    pub(crate) fn reached(&self, number: u64) -> bool {
        self.window.is_empty() || self.window.confirmed() > number
    }

    pub(crate) fn confirmed(&self) -> u64 {
        self.window.confirmed()
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.window.len()
    }

    /// How many messages came back and were let go.
    pub(crate) fn unheard(&self) -> u64 {
        self.unheard
    }

    /// Takes note of the confirms that are there, without waiting, where they prove anything.
    pub(crate) async fn look(&mut self) {
        if self.returns == Returns::SentAgain || self.link.standing().is_none() {
            return;
        }
        match self.read().await {
            Ok(()) => self.window.retire(),
            Err(Lost) => self.lose(),
        }
    }

    /// Puts a message into the window, and sends it if there is a connection; else begins to
    /// connect, without waiting.
    pub(crate) async fn accept(&mut self, message: Message) -> u64 {
        let number = self.window.push(message);
        self.release();
        match self.link.standing() {
            Some(session) => send(&session.channel, &mut self.window).await,
            None => {
                self.lose();
                self.link.begin();
            }
        }
        number
    }

    /// Waits for the oldest message and takes note of all that is known then. Returns without an
    /// error if there is reason to look again.
    pub(crate) async fn step(&mut self, deadline: Deadline) -> Result<(), Error> {
        self.connect(deadline).await?;
        let answered = match deadline.next_look().until(self.oldest()).await {
            Some(Ok(())) => self.note(deadline).await,
            other => other,
        };
        match answered {
            Some(Ok(())) => return self.verdict(),
            Some(Err(Lost)) => self.lose(),
            None if deadline.is_over() => return Err(self.late(deadline)),
            None => {}
        }
        Ok(())
    }

    /// Sends all that is unsent, on the connection that stands or a new one.
    pub(crate) async fn connect(&mut self, deadline: Deadline) -> Result<(), Error> {
        if self.link.standing().is_none() {
            self.lose();
        }
        self.release();
        match deadline.until(self.link.session()).await {
            Some(session) => send(&session?.channel, &mut self.window).await,
            None => {
                return Err(self
                    .link
                    .broker()
                    .unreachable(deadline.waited(), self.link.last_failure()));
            }
        }
        Ok(())
    }

    /// Has sent again what was refused, as far as it is time for it.
    fn release(&mut self) {
        let Some(again) = &mut self.again else { return };
        let is_refused = |one: &&mut Outstanding<_>| matches!(one.stage, Stage::Refused);
        let due = again.due(Instant::now());
        let mut released = 0;
        for one in self.window.iter_mut().filter(is_refused).take(due) {
            one.stage = Stage::Unsent;
            again.sends(one.number);
            released += 1;
        }
        if due > released {
            // Nothing else was refused.
            self.again = None;
        }
    }

    /// Waits until the oldest message is confirmed, or is known not to be.
    async fn oldest(&mut self) -> Result<(), Lost> {
        let Some(first) = self.window.iter_mut().next() else {
            return Ok(());
        };
        let Stage::Sent(sending) = &mut first.stage else {
            return Ok(());
        };
        let (answer, number) = (sending.await, first.number);
        self.apply(number, answer)
    }

    /// Reads all confirms that are there, and settles those that were there before. None if there
    /// was no time.
    async fn note(&mut self, deadline: Deadline) -> Option<Result<(), Lost>> {
        if self.read().await.is_err() {
            return Some(Err(Lost));
        }
        if self.returns == Returns::Counted {
            return Some(Ok(()));
        }
        let acked: Vec<u64> = self
            .window
            .iter_mut()
            .filter(|one| matches!(one.stage, Stage::Acked))
            .map(|one| one.number)
            .collect();
        let Some(session) = self.link.standing() else {
            return Some(Err(Lost));
        };
        // Any request does; this one changes nothing on a channel without subscriptions.
        let request = answer(session.channel.basic_qos(0, BasicQosOptions::default()));
        if deadline.until(request).await?.is_err() || self.read().await.is_err() {
            return Some(Err(Lost));
        }
        for number in acked {
            self.window
                .find(number)
                .expect("nothing was retired since")
                .stage = Stage::Safe;
            self.link.confirmed();
        }
        Some(Ok(()))
    }

    /// Takes note of every confirm that is there.
    async fn read(&mut self) -> Result<(), Lost> {
        let mut answers = Vec::new();
        for one in self.window.iter_mut() {
            if let Stage::Sent(sending) = &mut one.stage
                && let Some(answer) = poll_once(sending).await
            {
                one.stage = Stage::Unsent;
                answers.push((one.number, answer));
            }
        }
        answers
            .into_iter()
            .try_for_each(|(number, answer)| self.apply(number, answer))
    }

    fn apply(&mut self, number: u64, answer: lapin::Result<Confirmation>) -> Result<(), Lost> {
        let one = self.window.find(number).expect("it waits");
        one.stage = Stage::Unsent;
        let returned = match answer {
            Ok(Confirmation::Ack(returned)) => {
                if let Some(again) = &mut self.again {
                    again.taken(number);
                }
                one.stage = match self.returns {
                    Returns::SentAgain => Stage::Acked,
                    Returns::Counted => Stage::Safe,
                };
                returned
            }
            Ok(Confirmation::Nack(returned)) => {
                match self.returns {
                    Returns::SentAgain => self.nacked = Some(one.message.key.clone()),
                    Returns::Counted => {
                        one.stage = Stage::Refused;
                        let now = Instant::now();
                        let again = self.again.get_or_insert_with(|| Again::after(now));
                        again.refused(number, now);
                    }
                }
                returned
            }
            Ok(Confirmation::NotRequested) | Err(_) => return Err(Lost),
        };
        match (returned, self.returns) {
            (Some(_), Returns::Counted) => self.unheard += 1,
            (Some(returned), Returns::SentAgain) => {
                self.returned.push(number_of(&returned).ok_or(Lost)?);
            }
            (None, _) => {}
        }
        if self.returns == Returns::Counted {
            self.link.confirmed();
        }
        Ok(())
    }

    /// Retires what is safe, and makes an error of what is not.
    fn verdict(&mut self) -> Result<(), Error> {
        let mut error = self.nacked.take().map(|queue| Error::Nacked { queue });
        for number in std::mem::take(&mut self.returned) {
            if let Some(one) = self.window.find(number) {
                one.stage = Stage::Unsent;
                error = Some(Error::Unroutable {
                    queue: one.message.key.clone(),
                });
            }
        }
        self.window.retire();
        // Whoever would wait for it may have to wait long.
        let refused = self.window.iter_mut().next();
        let refused = refused.filter(|first| matches!(first.stage, Stage::Refused));
        let refused = refused.map(|first| Error::Nacked {
            queue: first.message.key.clone(),
        });
        error.or(refused).map_or(Ok(()), Err)
    }

    /// The time is over. A connection that for long neither confirms nor says why is not trusted
    /// any longer.
    fn late(&mut self, deadline: Deadline) -> Error {
        let error = self.link.gate().late(self.link.broker(), deadline);
        if !matches!(error, Error::Blocked { .. })
            && deadline.waited().as_secs() >= ANSWER_SECONDS_MAX
        {
            self.lose();
        }
        error
    }

    fn lose(&mut self) {
        self.window.unsend();
        self.returned.clear();
        self.nacked = None;
        self.again = None;
        self.link.lose();
    }
}

/// Hands all that is unsent to the client; it is written when the broker reads.
async fn send(channel: &Channel, window: &mut Window<Sending>) {
    for one in window
        .iter_mut()
        .filter(|one| matches!(one.stage, Stage::Unsent))
    {
        let mut sending = publish(channel.clone(), one.number, one.message.clone());
        // The client takes the message over when it is first asked. If it has answered already, it
        // has failed.
        one.stage = match poll_once(&mut sending).await {
            None => Stage::Sent(sending),
            Some(answer) => Stage::Sent(Box::pin(async move { answer })),
        };
    }
}

fn publish(channel: Channel, number: u64, message: Message) -> Sending {
    Box::pin(async move {
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let properties = message
            .properties
            .clone()
            .with_message_id(number.to_string().into());
        channel
            .basic_publish(
                message.exchange.as_str().into(),
                message.key.as_str().into(),
                options,
                &message.body,
                properties,
            )
            .await?
            .await
    })
}

fn number_of(returned: &BasicReturnMessage) -> Option<u64> {
    returned
        .delivery
        .properties
        .message_id()
        .as_ref()?
        .as_str()
        .parse()
        .ok()
}
