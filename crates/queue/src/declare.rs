//! Declares at the broker what a connection needs.

use crate::session::{Failure, Session, answer};
use crate::topology::{Exchange, Subscription, Topology};
use crate::{Error, Job};
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, ExchangeKind};

impl Session {
    /// Sees to it that all of it is there; it makes no difference if it was.
    pub(crate) async fn declare(&mut self, topology: &Topology) -> Result<(), Failure> {
        match topology {
            Topology::Job(job) => self.declare_job(job).await,
            Topology::Exchange(exchange) => self.declare_exchange(exchange).await,
            Topology::Subscription(subscription) => self.bind(subscription).await,
        }
    }

    /// Declares all queues of a job; it makes no difference if they are there.
    pub(crate) async fn declare_job(&self, job: &Job) -> Result<(), Failure> {
        for queue in job.queues() {
            let declared = answer(self.channel.queue_declare(
                queue.as_str().into(),
                durable(),
                job.arguments(&queue),
            ))
            .await;
            declared.map_err(|why| why.at(&queue))?;
        }
        Ok(())
    }

    async fn declare_exchange(&self, exchange: &Exchange) -> Result<(), Failure> {
        if self.has_exchange(exchange).await? {
            return Ok(());
        }
        let options = ExchangeDeclareOptions {
            durable: true,
            ..ExchangeDeclareOptions::default()
        };
        let name = exchange.name();
        let declared = self.channel.exchange_declare(
            name.into(),
            ExchangeKind::Topic,
            options,
            FieldTable::default(),
        );
        answer(declared).await.map_err(|why| why.at(name))
    }

    /// Makes the queue if it is not there and may be made, and binds it. A queue that was there
    /// keeps its arguments; one that is made is a classic one, since a quorum queue drops what was
    /// handed out too often (<https://www.rabbitmq.com/docs/quorum-queues>, "poison message handling").
    async fn bind(&mut self, subscription: &Subscription) -> Result<(), Failure> {
        let (queue, exchange) = (subscription.queue(), subscription.exchange());
        if !self.has_exchange(exchange).await? {
            return Err(Failure::passing(Error::Queue {
                queue: exchange.name().to_owned(),
                why: "there is no such exchange; its publisher makes it".to_owned(),
            }));
        }
        if !self.has_queue(queue).await? {
            if !subscription.is_made() {
                return Err(Failure::passing(Error::Queue {
                    queue: queue.to_owned(),
                    why: "there is no such queue; the leader creates it".to_owned(),
                }));
            }
            let table = subscription.arguments();
            let declared = self.channel.queue_declare(queue.into(), durable(), table);
            answer(declared).await.map_err(|why| why.at(queue))?;
            self.is_queue_new = true;
        }
        for key in subscription.bindings() {
            let bound = self.channel.queue_bind(
                queue.into(),
                exchange.name().into(),
                key.as_str().into(),
                QueueBindOptions::default(),
                FieldTable::default(),
            );
            answer(bound).await.map_err(|why| why.at(queue))?;
        }
        Ok(())
    }

    async fn has_exchange(&self, exchange: &Exchange) -> Result<bool, Failure> {
        let options = ExchangeDeclareOptions {
            passive: true,
            ..ExchangeDeclareOptions::default()
        };
        let name = exchange.name();
        self.is_there(name, async |channel| {
            let table = FieldTable::default();
            let asked = channel.exchange_declare(name.into(), ExchangeKind::Topic, options, table);
            asked.await
        })
        .await
    }

    async fn has_queue(&self, queue: &str) -> Result<bool, Failure> {
        let options = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        self.is_there(queue, async |channel| {
            let table = FieldTable::default();
            let asked = channel.queue_declare(queue.into(), options, table);
            asked.await.map(drop)
        })
        .await
    }

    /// Asks on a channel of its own: the broker closes that if the answer is no.
    async fn is_there(
        &self,
        name: &str,
        ask: impl AsyncFnOnce(Channel) -> lapin::Result<()>,
    ) -> Result<bool, Failure> {
        let opened = answer(self.connection.create_channel()).await;
        let channel = opened.map_err(|why| why.at(name))?;
        match answer(ask(channel.clone())).await {
            Ok(()) => {
                let _ = answer(channel.close(200, "done".into())).await;
                Ok(true)
            }
            Err(why) if why.is_not_found() => Ok(false),
            Err(why) => Err(why.at(name)),
        }
    }
}

fn durable() -> QueueDeclareOptions {
    QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    }
}
