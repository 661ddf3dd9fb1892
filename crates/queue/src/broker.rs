//! A broker and how we log in to it; one try to connect.

use crate::session::Failure;
use crate::{Credentials, Error, Url, runtime};
use lapin::tcp::OwnedTLSConfig;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Connection, ConnectionProperties};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// In seconds: RabbitMQ takes a peer for dead that says nothing for two to three times as long
/// (`rabbit_heartbeat`), the client a broker that says nothing for twice as long. Each side says
/// something twice in this time. Less than 5 s is said to take living peers for dead
/// (<https://www.rabbitmq.com/docs/heartbeats>).
const HEARTBEAT_SECONDS: u16 = 5;
/// The longest that one try to connect and log in may take.
const CONNECT_SECONDS_MAX: u64 = 10;
/// How long a broker may be out of reach, unless the caller says otherwise; longer than its restart
/// takes.
const PATIENCE_SECONDS: u64 = 60;

/// Where the broker is, who we are, and how long it may be away.
#[derive(Debug, Clone)]
pub struct Broker {
    url: Url,
    credentials: Credentials,
    certificates: Option<String>,
    patience: Duration,
    pub(crate) runtime: Handle,
}

impl Broker {
    /// A broker at `url`; nothing is sent yet. It may be out of reach for 60 s before a call gives
    /// up.
    ///
    /// # Errors
    /// The thread for connections cannot be started.
    pub fn new(url: Url, credentials: Credentials) -> Result<Broker, Error> {
        let runtime = runtime::handle().map_err(|e| Error::Lost {
            broker: url.to_string(),
            why: format!("cannot start a thread: {e}"),
        })?;
        Ok(Broker {
            url,
            credentials,
            certificates: None,
            patience: Duration::from_secs(PATIENCE_SECONDS),
            runtime,
        })
    }

    /// Trusts the certificates in `pem`, too, such as those of a site's own authority; for `amqps`
    /// only.
    #[must_use]
    pub fn with_certificates(mut self, pem: impl Into<String>) -> Broker {
        self.certificates = Some(pem.into());
        self
    }

    /// Sets how long the broker may be out of reach before a call gives up.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Broker {
        self.patience = patience;
        self
    }

    /// Its URL.
    pub fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    pub(crate) fn lost(&self, why: impl ToString) -> Error {
        Error::Lost {
            broker: self.url.to_string(),
            why: why.to_string(),
        }
    }

    pub(crate) fn unreachable(&self, waited: Duration, why: impl ToString) -> Error {
        Error::Unreachable {
            broker: self.url.to_string(),
            seconds: waited.as_secs(),
            why: why.to_string(),
        }
    }

    /// One try to connect and to log in; `purpose` is the name that operators see in the broker's
    /// list of connections.
    pub(crate) async fn connect(&self, purpose: &str) -> Result<Connection, Failure> {
        let uri = self.uri().map_err(Failure::for_good)?;
        let properties = ConnectionProperties::default()
            .with_connection_name(format!("driftless {purpose}").into());
        let tls = OwnedTLSConfig {
            identity: None,
            cert_chain: self.certificates.clone(),
        };
        let client_runtime =
            lapin::runtime::default_runtime().map_err(|e| Failure::for_good(self.lost(e)))?;
        let limit = Duration::from_secs(CONNECT_SECONDS_MAX);
        match timeout(
            limit,
            Connection::connect_uri_with_config(uri, properties, tls, client_runtime),
        )
        .await
        {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(self.refusal(&error)),
            Err(_) => Err(Failure::passing(
                self.lost(format!("no answer within {CONNECT_SECONDS_MAX} s")),
            )),
        }
    }

    fn refusal(&self, error: &lapin::Error) -> Failure {
        match Failure::is_refusal(error) {
            true => Failure::for_good(Error::Refused {
                broker: self.url.to_string(),
                why: error.to_string(),
            }),
            false => Failure::passing(self.lost(error)),
        }
    }

    /// The client's form of the address. It holds the password, so it is never shown.
    fn uri(&self) -> Result<AMQPUri, Error> {
        let password = self.credentials.password()?.reveal().to_owned();
        let userinfo = AMQPUserInfo {
            username: self.url.user.clone(),
            password,
        };
        // URLs have brackets around an IPv6 address, the system's resolver has not.
        let host = self.url.host.trim_matches(['[', ']']).to_owned();
        let query = AMQPQueryString {
            heartbeat: Some(HEARTBEAT_SECONDS),
            connection_timeout: Some(CONNECT_SECONDS_MAX * 1000),
            ..AMQPQueryString::default()
        };
        Ok(AMQPUri {
            scheme: if self.url.tls {
                AMQPScheme::AMQPS
            } else {
                AMQPScheme::AMQP
            },
            authority: AMQPAuthority {
                userinfo,
                host,
                port: self.url.port,
            },
            vhost: self.url.vhost.clone(),
            query,
        })
    }
}
