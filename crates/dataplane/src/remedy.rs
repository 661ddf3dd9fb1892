//! Remedies of refused certificates and keys, by the words in which rustls reports them.
//!
//! Both ends of a handshake report the same fault in other words: the end that refuses in those of
//! its verifier, and the other end in those of an alert (RFC 8446 section 6.2).

use crate::PeerTrust;

/// Begin of the cause if the peer sent an alert.
const ALERT: &str = "received fatal alert: ";
/// Begin of the cause if this end refuses the certificate of the peer.
const CERTIFICATE: &str = "invalid peer certificate: ";
/// Begin of the cause if the ends have no kind of key in common.
const INCOMPATIBLE: &str = "peer is incompatible: ";
/// Alerts of ends that have no kind of key in common.
const MIXED_ALERTS: [&str; 2] = ["HandshakeFailure", "UnsupportedCertificate"];
/// Remedy for ends of which one has certificates.
const MIXED: &str =
    "one end may use certificates (--ca) and the other one keys (--trust): use the same on both";
/// Remedy for a certificate that is not for both ends of a connection.
const PURPOSE: &str =
    "issue it with the extended key usages serverAuth and clientAuth, or with none";

/// Returns the remedy for a certificate that this end refuses, or `None` for another cause.
pub(crate) fn of_certificate(cause: &str) -> Option<&'static str> {
    let cause = cause.strip_prefix(CERTIFICATE)?;
    let has = |word: &str| cause.contains(word);
    Some(match cause {
        _ if has("expired") || has("Expired") => "renew it, and check the clocks",
        _ if has("not valid yet") || has("NotValidYet") => "check the clocks",
        _ if has("extended key usage") || has("InvalidPurpose") => PURPOSE,
        _ if has("UnknownIssuer") => "check --ca on both ends",
        _ => "check it and its name",
    })
}

/// Returns the remedy for a handshake that failed because one end alone has certificates.
pub(crate) fn of_mixed_ends(cause: &str) -> Option<&'static str> {
    let is_alert = |alert: &str| MIXED_ALERTS.contains(&alert);
    let is_mixed = match cause.strip_prefix(ALERT) {
        Some(alert) => is_alert(alert),
        None => cause.starts_with(INCOMPATIBLE) && cause.contains("CertificateType"),
    };
    is_mixed.then_some(MIXED)
}

/// Returns a cause with its remedy, for the log of the end that listens.
pub(crate) fn with_remedy(cause: String) -> String {
    match of_certificate(&cause).or_else(|| of_mixed_ends(&cause)) {
        Some(remedy) => format!("{cause}; {remedy}"),
        None => cause,
    }
}

/// Returns the refusal of a peer that ended the connection behind its handshake. The text follows the
/// address.
pub(crate) fn of_refusal(cause: &str, trust: &PeerTrust) -> String {
    let alert = cause.strip_prefix(ALERT);
    let words = match alert {
        Some(_) => String::new(),
        None => format!(" ({cause})"),
    };
    if trust.roots().is_none() {
        return format!(
            "does not trust this host{words}; add --trust KEY there (\"driftless node key\" prints KEY)"
        );
    }
    let (why, remedy) = match alert {
        Some("CertificateExpired") => (
            ", which is expired or not valid yet",
            "renew it, and check the clocks",
        ),
        Some("UnsupportedCertificate") => (", which lacks a purpose", PURPOSE),
        Some("UnknownCA") => (", whose authority it does not know", "check --ca there"),
        _ => ("", "check --ca and the certificate"),
    };
    format!("does not accept the certificate of this host{why}{words}; {remedy}")
}

#[cfg(test)]
mod tests {
    use super::{MIXED, PURPOSE, of_certificate, of_mixed_ends};

    #[test]
    fn each_refusal_has_its_own_remedy() {
        for (cause, remedy) in [
            (
                "certificate expired: verification time 9",
                "renew it, and check the clocks",
            ),
            (
                "certificate not valid yet: verification",
                "check the clocks",
            ),
            (
                "certificate does not allow extended key usage for client",
                PURPOSE,
            ),
            ("UnknownIssuer", "check --ca on both ends"),
            (
                "certificate not valid for name \"a\"",
                "check it and its name",
            ),
        ] {
            let cause = format!("invalid peer certificate: {cause}");
            assert_eq!(of_certificate(&cause), Some(remedy), "{cause}");
        }
        assert_eq!(of_certificate("connection refused"), None);
        let alert = "received fatal alert: HandshakeFailure";
        assert_eq!(of_mixed_ends(alert), Some(MIXED));
        assert_eq!(of_mixed_ends("received fatal alert: AccessDenied"), None);
    }
}
