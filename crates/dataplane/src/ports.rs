//! Ports to listen on: a site opens a few of them in its firewall.

use crate::Error;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Characters of a text that an error quotes.
const SHOWN_CHARS_MAX: usize = 40;

/// TCP ports to listen on: any free one, or the first free one of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortRange(Option<(u16, u16)>);

impl PortRange {
    /// Any free port, as the kernel chooses (`ip_local_port_range` of ip(7)).
    pub const ANY: PortRange = PortRange(None);

    /// Returns the ports from `from` to `to`, both included.
    ///
    /// # Errors
    /// Fails if `from` is 0 or greater than `to`.
    pub fn new(from: u16, to: u16) -> Result<Self, Error> {
        let is_range = from != 0 && from <= to;
        is_range
            .then_some(PortRange(Some((from, to))))
            .ok_or_else(|| refused(&format!("{from}-{to}"), "FROM is 0 or greater than TO"))
    }

    /// Returns the ports to try in order. Port 0 stands for any.
    pub(crate) fn candidates(self) -> RangeInclusive<u16> {
        let (from, to) = self.0.unwrap_or((0, 0));
        from..=to
    }
}

fn refused(text: &str, cause: &'static str) -> Error {
    let text = text.escape_debug().take(SHOWN_CHARS_MAX).collect();
    Error::Ports { text, cause }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("any"),
            Some((from, to)) if from == to => write!(f, "{from}"),
            Some((from, to)) => write!(f, "{from}-{to}"),
        }
    }
}

impl FromStr for PortRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let number = |part: &str| part.trim().parse::<u16>();
        let ends = match text.split_once('-') {
            Some((from, to)) => number(from).and_then(|from| Ok((from, number(to)?))),
            None => number(text).map(|port| (port, port)),
        };
        match ends {
            Ok((0, 0)) => Ok(PortRange::ANY),
            Ok((from, to)) if from != 0 && from <= to => Ok(PortRange(Some((from, to)))),
            Ok(_) => Err(refused(text, "FROM is 0 or greater than TO")),
            Err(_) => Err(refused(text, "a port is a number from 0 to 65535")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PortRange;

    #[test]
    fn port_ranges_are_read_and_written() {
        for (text, shown) in [
            ("0", "any"),
            ("7000", "7000"),
            (" 7000 - 7010", "7000-7010"),
        ] {
            let ports: PortRange = text.parse().unwrap();
            assert_eq!(ports.to_string(), shown);
        }
        for text in ["", "x", "70000", "0-5", "9-8", "1-2-3", "-"] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
        assert!(PortRange::new(9, 8).is_err() && PortRange::new(0, 8).is_err());
    }
}
