//! Users of this host, by the name service of the system.

use std::process::{Command, Stdio};

/// Programs of the system, for a user without an environment.
const SYSTEM_PATH: &str = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: u32,
    /// GID of the first group.
    pub gid: u32,
    /// Home directory.
    pub home: String,
}

impl User {
    /// Looks for a user by the UID. getent(1) asks all sources that the system has, such as LDAP.
    ///
    /// # Errors
    /// Cause and remedy: the UID is unknown, or `getent` does not answer.
    pub fn find(uid: u32) -> Result<User, String> {
        let mut getent = Command::new("getent");
        getent.args(["passwd", &uid.to_string()]);
        let output = getent.stdin(Stdio::null()).output().map_err(|error| {
            let cause = driftless_model::cause(&error);
            format!("getent: cannot start: {cause}; install it")
        })?;
        let line = String::from_utf8_lossy(&output.stdout);
        User::of_line(line.lines().next().unwrap_or_default())
            .filter(|user| user.uid == uid)
            .ok_or_else(|| format!(
                    "no user of this host has the UID {uid}; check the name service (getent passwd {uid})"
                ))
    }

    /// Returns the words before a program that run it as this user, with an own environment and the
    /// groups that the name service states (setpriv(1)). None if this process runs as the user.
    pub fn words(&self) -> Vec<String> {
        if rustix::process::geteuid().as_raw() == self.uid {
            return Vec::new();
        }
        let words = [
            "env",
            "-i",
            SYSTEM_PATH,
            &format!("HOME={}", self.home),
            "setpriv",
            &format!("--reuid={}", self.uid),
            &format!("--regid={}", self.gid),
            "--init-groups",
            "--no-new-privs",
        ];
        words.map(str::to_owned).to_vec()
    }

    /// Reads a line of passwd(5).
    fn of_line(line: &str) -> Option<User> {
        let mut fields = line.split(':');
        let (name, _password) = (fields.next()?, fields.next()?);
        Some(User {
            name: name.to_owned(),
            uid: fields.next()?.parse().ok()?,
            gid: fields.next()?.parse().ok()?,
            home: fields.nth(1)?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_number() {
        let root = User::find(0).unwrap();
        assert_eq!((root.name.as_str(), root.gid), ("root", 0));
        let unknown = User::find(4_294_967_294).unwrap_err();
        assert!(unknown.contains("4294967294"), "{unknown}");
    }
}
