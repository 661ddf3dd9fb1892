//! Where the broker is, as the user writes it: `amqp://USER@HOST[:PORT]/VHOST`.
//!
//! A URL stands on command lines and in logs, so it must not hold a secret: one with a password is
//! refused, and what is refused is not repeated in the message. The form is that of
//! <https://www.rabbitmq.com/docs/uri-spec>.

use crate::Error;
use percent_encoding::percent_decode_str;
use std::fmt;
use std::str::FromStr;

/// Port of AMQP without TLS (IANA).
const PORT: u16 = 5672;
/// Port of AMQP over TLS (IANA).
const PORT_TLS: u16 = 5671;
/// Longest user or vhost; both travel as AMQP short strings.
const PART_BYTES_MAX: usize = 255;

/// A broker's address, without a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Whether the connection is encrypted and the broker's certificate is verified.
    pub(crate) tls: bool,
    pub(crate) user: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) vhost: String,
}

impl Url {
    /// The user who logs in.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The virtual host; `/` unless the URL names another.
    pub fn vhost(&self) -> &str {
        &self.vhost
    }
}

impl FromStr for Url {
    type Err = Error;

    /// Parses a URL; refuses a password, a missing user, a query and a fragment.
    fn from_str(text: &str) -> Result<Url, Error> {
        let parsed = url::Url::parse(text).map_err(|_| bad("it cannot be parsed"))?;
        if parsed.password().is_some() {
            return Err(Error::PasswordInUrl);
        }
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(bad(
                "it has a query or a fragment, which have no meaning here",
            ));
        }
        let tls = encrypted(parsed.scheme())?;
        let host = parsed
            .host_str()
            .filter(|host| !host.is_empty())
            .ok_or_else(|| bad("it has no host"))?;
        let user = decoded(parsed.username())?;
        if user.is_empty() {
            return Err(bad("it has no user"));
        }
        let port = parsed.port().unwrap_or(if tls { PORT_TLS } else { PORT });
        Ok(Url {
            tls,
            user,
            host: host.to_owned(),
            port,
            vhost: vhost(parsed.path())?,
        })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "amqps" } else { "amqp" };
        write!(
            f,
            "{scheme}://{}@{}:{}/{}",
            self.user.escape_default(),
            self.host,
            self.port,
            self.vhost.escape_default()
        )
    }
}

fn bad(why: &'static str) -> Error {
    Error::Url { why }
}

fn encrypted(scheme: &str) -> Result<bool, Error> {
    match scheme {
        "amqp" => Ok(false),
        "amqps" => Ok(true),
        _ => Err(bad("it begins with neither amqp:// nor amqps://")),
    }
}

/// No path and an empty one mean `/`: there is no vhost without a name, and `/` is the one that
/// every broker begins with.
fn vhost(path: &str) -> Result<String, Error> {
    let name = path.strip_prefix('/').unwrap_or(path);
    match name {
        "" => Ok("/".to_owned()),
        name if name.contains('/') => Err(bad("a slash within its vhost must be written as %2f")),
        name => decoded(name),
    }
}

fn decoded(part: &str) -> Result<String, Error> {
    let text = percent_decode_str(part)
        .decode_utf8()
        .map_err(|_| bad("its user or vhost is not UTF-8"))?;
    if text.len() > PART_BYTES_MAX {
        return Err(bad("its user or vhost is longer than 255 bytes"));
    }
    Ok(text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (bool, String, String, u16, String) {
        let url: Url = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        (url.tls, url.user, url.host, url.port, url.vhost)
    }

    #[test]
    fn parts_have_the_usual_defaults() {
        let owned = |tls, user: &str, host: &str, port, vhost: &str| {
            (
                tls,
                user.to_owned(),
                host.to_owned(),
                port,
                vhost.to_owned(),
            )
        };
        assert_eq!(
            parts("amqp://u@broker"),
            owned(false, "u", "broker", 5672, "/")
        );
        assert_eq!(
            parts("amqp://u@broker/"),
            owned(false, "u", "broker", 5672, "/")
        );
        assert_eq!(
            parts("amqps://u@broker/site"),
            owned(true, "u", "broker", 5671, "site")
        );
        assert_eq!(
            parts("amqp://a%40b@[::1]:99/%2fx"),
            owned(false, "a@b", "[::1]", 99, "/x")
        );
    }

    #[test]
    fn a_password_is_refused_with_a_hint_and_is_not_repeated() {
        for text in [
            "amqp://u:secret@broker/v",
            "amqps://u:secret@broker",
            "http://u:secret@x",
            "amqp://:secret@broker",
        ] {
            let message = text.parse::<Url>().expect_err(text).to_string();
            assert!(!message.contains("secret"), "{message}");
            assert!(
                message.contains("--queue-credentials FILE")
                    && message.contains("DRIFTLESS_QUEUE_PASSWORD"),
                "{message}"
            );
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "",
            "broker",
            "http://u@b",
            "amqp://broker/v",
            "amqp://u@/v",
            "amqp://u@b/a/b",
            "amqp://u@b/v?heartbeat=1",
            "amqp://u@b/%ff",
        ] {
            assert!(
                matches!(text.parse::<Url>(), Err(Error::Url { .. })),
                "{text}"
            );
        }
    }
}
