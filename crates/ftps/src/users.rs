//! Users of this host by the name service of the system, and the file that maps client certificates to
//! users.

use crate::Error;
use driftless_model::cause;
use ring::digest::{SHA256, digest};
use std::path::Path;
use std::process::{Command, Stdio};

/// Programs of the system, for a user without an environment.
const SYSTEM_PATH: &str = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
/// Takes the words behind `--` and the name, as ssh does, and starts them.
const AS_SSH: &str = r#"while [ "$1" != -- ]; do shift; done; shift 2; exec /bin/sh -c "exec $*""#;
/// Longest name of a user in bytes (`LOGIN_NAME_MAX` of limits.h).
const USER_BYTES_MAX: usize = 256;
/// Names that stand for a user without an account.
const ANONYMOUS: [&str; 2] = ["anonymous", "ftp"];

/// Account of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: u32,
    /// GID of the first group.
    pub gid: u32,
    home: String,
}

impl Account {
    /// Looks for a user by the name. getent(1) asks all sources that the system has, such as LDAP.
    ///
    /// # Errors
    /// Cause of a refusal: the name is unknown, or the UID is below `uid_min`, or `getent` cannot
    /// start.
    pub fn find(name: &str, uid_min: u32) -> Result<Account, String> {
        let mut getent = Command::new("getent");
        getent.args(["passwd", "--", name]).stdin(Stdio::null());
        let output = getent
            .output()
            .map_err(|error| format!("getent: cannot start: {}", cause(&error)))?;
        let text = String::from_utf8_lossy(&output.stdout);
        // getent takes a number for a UID, so the name is compared.
        let account = Account::of_line(text.lines().next().unwrap_or_default())
            .filter(|account| account.name == name)
            .ok_or("no user of this host has this name")?;
        match account.uid >= uid_min.max(1) {
            true => Ok(account),
            false => Err(format!("the UID {} is below --uid-min", account.uid)),
        }
    }

    /// Returns the words before the command of an agent that start it as this user (setpriv(1)). The
    /// agent has an own environment, and the groups that the name service states.
    pub fn words(&self) -> Vec<String> {
        [
            "env",
            "-i",
            SYSTEM_PATH,
            &format!("HOME={}", self.home),
            "setpriv",
            &format!("--reuid={}", self.uid),
            &format!("--regid={}", self.gid),
            "--init-groups",
            "--no-new-privs",
            "/bin/sh",
            "-c",
            AS_SSH,
            "agent",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    /// Reads a line of passwd(5).
    fn of_line(line: &str) -> Option<Account> {
        let mut fields = line.split(':');
        let (name, _password) = (fields.next()?, fields.next()?);
        Some(Account {
            name: name.to_owned(),
            uid: fields.next()?.parse().ok()?,
            gid: fields.next()?.parse().ok()?,
            home: fields.nth(1)?.to_owned(),
        })
    }
}

/// Returns whether a user can have this name. An anonymous login has none.
pub fn is_user_name(name: &str) -> bool {
    let is_short = !name.is_empty() && name.len() <= USER_BYTES_MAX;
    let is_anonymous = ANONYMOUS
        .iter()
        .any(|other| name.eq_ignore_ascii_case(other));
    let is_plain = name
        .chars()
        .all(|char| !char.is_control() && !char.is_whitespace() && !"/:,".contains(char));
    is_short && is_plain && !is_anonymous && !name.starts_with(['-', '.'])
}

/// Client certificates of users, by their SHA-256 fingerprints.
#[derive(Debug, Default)]
pub struct ClientUsers(Vec<([u8; 32], String)>);

impl ClientUsers {
    /// Reads the file of the administrator: a fingerprint and a user on each line.
    ///
    /// # Errors
    /// The file cannot be read, or a line has another form.
    pub fn read(path: &Path) -> Result<ClientUsers, Error> {
        let bytes = crate::tls::read_file(path)?;
        ClientUsers::parse(&String::from_utf8_lossy(&bytes)).map_err(|why| Error::Form {
            path: path.to_owned(),
            why,
        })
    }

    fn parse(text: &str) -> Result<ClientUsers, String> {
        let mut users = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let row = match (words.next(), words.next(), words.next()) {
                (None, ..) => continue,
                (Some(fingerprint), Some(user), None) if is_user_name(user) => {
                    parse_fingerprint(fingerprint).map(|bytes| (bytes, user.to_owned()))
                }
                _ => None,
            };
            users.push(row.ok_or_else(|| {
                format!(
                    "line {}: not \"FINGERPRINT USER\"; the fingerprint is that of \"openssl x509 -noout -fingerprint -sha256\"",
                    index + 1
                )
            })?);
        }
        Ok(ClientUsers(users))
    }

    /// Returns whether a certificate, in DER, may log in as a user.
    pub fn may(&self, certificate: &[u8], user: &str) -> bool {
        let hash = digest(&SHA256, certificate);
        let mut rows = self.0.iter();
        rows.any(|(fingerprint, name)| fingerprint == hash.as_ref() && name == user)
    }
}

/// Returns the bytes of a fingerprint in hexadecimal digits, with or without colons.
fn parse_fingerprint(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|char| *char != ':')
        .map(|char| char.to_digit(16))
        .collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits
        .chunks_exact(2)
        .filter_map(|pair| u8::try_from(pair[0] << 4 | pair[1]).ok())
        .collect();
    bytes.try_into().ok().filter(|_| digits.len() == 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_an_account_are_refused() {
        for name in [
            "",
            "anonymous",
            "Anonymous",
            "ftp",
            "-h",
            ".",
            "a b",
            "a/b",
            "a\n",
            "a:b",
        ] {
            assert!(!is_user_name(name), "{name:?}");
        }
        assert!(is_user_name("alice") && is_user_name("alice@example.org"));
    }

    #[test]
    fn root_and_system_users_are_refused() {
        let why = Account::find("root", 0).unwrap_err();
        assert!(why.contains("UID 0"), "{why}");
        assert!(Account::find("daemon", 1000).is_err());
        assert_eq!(Account::find("daemon", 1).unwrap().uid, 1);
        assert!(Account::find("1", 1).is_err(), "the number of a user");
        assert!(Account::find("no such user", 1).is_err());
    }

    #[test]
    fn certificates_belong_to_the_users_of_their_lines() {
        let hash = digest(&SHA256, b"certificate");
        let hex: Vec<String> = hash
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect();
        let text = format!("# users\n{} alice # laptop\n\n", hex.join(":"));
        for text in [text.clone(), text.replace(':', "").to_lowercase()] {
            let users = ClientUsers::parse(&text).unwrap();
            assert!(users.may(b"certificate", "alice"));
            assert!(!users.may(b"certificate", "bob") && !users.may(b"other", "alice"));
        }
    }

    #[test]
    fn lines_of_another_form_are_named() {
        for line in ["alice", "00 alice", "zz alice", &"0".repeat(64)] {
            let why = ClientUsers::parse(&format!("\n{line}\n")).unwrap_err();
            assert!(why.starts_with("line 2:"), "{why}");
        }
    }
}
