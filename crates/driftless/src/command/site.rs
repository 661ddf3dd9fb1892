//! Certificates of a site, from the arguments `--ca`, `--cert` and `--key`.
//!
//! Each file is read once, when the program starts. An error names the file that causes it.

use crate::args::SiteArgs;
use crate::command::reach::Unreached;
use crate::exit::Exit;
use driftless_cast::{CertificateFault, PeerTrust, TlsIdentity};
use driftless_model::{cause, quote};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Time before the end of a certificate in which a warning appears.
const EXPIRY_NEAR: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// Certificate and key of this host, and the authority.
pub struct SiteIdentity {
    pub authority_pem: Vec<u8>,
    pub identity: TlsIdentity,
    /// Faults that will stop connections, or that let other users prove this name.
    pub warnings: Vec<String>,
}

/// Reads the certificates of a site. Returns `None` if the arguments name none.
pub fn site(args: &SiteArgs) -> Result<Option<SiteIdentity>, Unreached> {
    let (Some(authority), Some(chain), Some(key)) = (&args.ca, &args.cert, &args.key) else {
        return Ok(None);
    };
    let failed = |why: String| (Exit::CouldNotRun, why);
    let read = |path: &Path| read_file(path).map_err(|why| failed(unreadable(path, &why)));
    let authority_pem = read(authority)?;
    let trust = PeerTrust::authority(&authority_pem)
        .map_err(|error| failed(format!("{}: {error}", quote(authority))))?;
    let identity = TlsIdentity::from_certificate(&read(chain)?, &read(key)?);
    let identity = identity.map_err(|fault| failed(unusable(&fault, chain, key)))?;
    let expiry = expiry(&identity, &trust, SystemTime::now());
    let expiry = expiry.map(|why| format!("{}: {why}; renew it and start again", quote(chain)));
    Ok(Some(SiteIdentity {
        authority_pem,
        identity,
        warnings: expiry.into_iter().chain(open_key(key)).collect(),
    }))
}

/// Returns a warning if the own certificate has expired or soon will.
fn expiry(identity: &TlsIdentity, trust: &PeerTrust, now: SystemTime) -> Option<&'static str> {
    match identity {
        _ if identity.has_expired_at(trust, now) => Some("the certificate has expired"),
        _ if identity.has_expired_at(trust, now + EXPIRY_NEAR) => {
            Some("the certificate expires within 14 days")
        }
        _ => None,
    }
}

/// Returns a warning if other users can read or write the file of the key.
#[allow(
    clippy::disallowed_methods,
    reason = "the user's own file, no part of a replicated tree"
)]
fn open_key(key: &Path) -> Option<String> {
    const OF_OTHERS: u32 = 0o077;
    let mode = std::fs::metadata(key).ok()?.mode();
    (mode & OF_OTHERS != 0).then(|| {
        let key = quote(key);
        format!("{key}: other users have access to the private key; run: chmod 600 FILE")
    })
}

/// Returns the message for a certificate or key that cannot be used.
fn unusable(fault: &CertificateFault, chain: &Path, key: &Path) -> String {
    match fault {
        CertificateFault::Mismatch => {
            let (chain, key) = (quote(chain), quote(key));
            format!("{key}: {fault} {chain}; name the key that belongs to it")
        }
        fault if fault.is_of_key() => format!("{}: {fault}", quote(key)),
        fault => format!("{}: {fault}", quote(chain)),
    }
}

/// Returns the message for a file that cannot be read.
pub fn unreadable(path: &Path, why: &str) -> String {
    format!("{}: cannot read: {why}", quote(path))
}

/// Returns the content of a file that the user names, or the cause of an error.
#[allow(
    clippy::disallowed_methods,
    reason = "the user's own file, no part of a replicated tree"
)]
pub fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| cause(&error))
}

/// Returns the text of a file that the user names, or the cause of an error.
pub fn read_text(path: &Path) -> Result<String, String> {
    let bytes = read_file(path)?;
    String::from_utf8(bytes).map_err(|_| "not UTF-8; write host names in ASCII".into())
}

/// Returns an error in the arguments.
pub fn usage(why: &str) -> Unreached {
    (Exit::Usage, why.to_owned())
}
