//! What ssh and the agent say on standard error, and what follows from it.

use crate::ssh::child::{PARTING_GRACE, start};
use driftless_lock::Mutex;
use driftless_model::escape;
use std::io::Read;
use std::process::ChildStderr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is kept of what ssh and the agent say on standard error, in bytes.
const COMPLAINT_BYTES_MAX: usize = 4096;

/// Exit code of ssh when it could not connect (ssh(1), "EXIT STATUS").
pub const SSH_FAILED: i32 = 255;

/// How lines end that OpenSSH says itself (log.c, `do_log`); those of a shell or a program there
/// come without a carriage return.
const OWN_END: &[u8] = b"\r\n";

/// What OpenSSH says (sshconnect.c, sshconnect2.c, readconf.c) when connecting again leads to the
/// same.
const FOR_GOOD: [&str; 7] = [
    "Permission denied",
    "Too many authentication failures",
    "Host key verification failed",
    "REMOTE HOST IDENTIFICATION HAS CHANGED",
    "Unable to negotiate",
    "Bad owner or permissions",
    "Bad configuration option",
];

/// Exit code of a shell that does not find a command (POSIX, "Exit Status for Commands").
pub const NOT_FOUND: i32 = 127;

/// Exit code of csh(1), rc(1) and sudo(8) where they do not find a command. It has other reasons,
/// too, so that words have to say which.
const FAILED: i32 = 1;

/// Words for a command that is not found: csh(1) and sudo(8), rc(1), env(1) and execvp(3).
const MISSING: [&str; 4] = [
    "command not found",
    "cannot find",
    "no such file or directory",
    "unknown command",
];

/// Words of a login shell that starts no agent: bash(1), ksh(1) and zsh(1) where they are
/// restricted, nologin(8), git-shell(1), sshd_config(5) with `ForceCommand internal-sftp`, rssh(1)
/// and rrsync(1).
const RESTRICTED: [&str; 7] = [
    "restricted",
    "account is currently not available",
    "account is not available",
    "unrecognized command",
    "allows sftp connections only",
    "not permitted to use ssh",
    "ssh_original_command does not",
];

/// Whether the shell there has not found the program: by its exit code, or where that has other
/// meanings by a line that names the program.
pub fn is_missing(code: Option<i32>, agent: &[String], complaint: &Complaint) -> bool {
    let said = complaint.lock();
    let text = String::from_utf8_lossy(&said.0).to_lowercase();
    let names = |line: &str| agent.iter().any(|word| line.contains(&word.to_lowercase()));
    let says = |line: &str| MISSING.iter().any(|words| line.contains(words));
    code == Some(NOT_FOUND)
        || code == Some(FAILED) && text.lines().any(|line| names(line) && says(line))
}

/// Whether the login shell there says that it starts no such command.
pub fn is_restricted(code: Option<i32>, complaint: &Complaint, heard: &str) -> bool {
    let said = complaint.lock();
    let text = (String::from_utf8_lossy(&said.0) + heard).to_lowercase();
    code.is_some_and(|code| code != 0 && code != SSH_FAILED)
        && RESTRICTED.iter().any(|words| text.contains(words))
}

/// The end of what was said on standard error, and whether all of it is here.
pub type Complaint = Arc<Mutex<(Vec<u8>, bool)>>;

/// Whether ssh itself says that it could not connect and would not another time either.
pub fn is_for_good(code: Option<i32>, complaint: &Complaint) -> bool {
    let said = complaint.lock();
    let mut own = said
        .0
        .split_inclusive(|byte| *byte == b'\n')
        .filter_map(|line| line.strip_suffix(OWN_END));
    code == Some(SSH_FAILED)
        && own.any(|line| {
            FOR_GOOD
                .iter()
                .any(|words| String::from_utf8_lossy(line).contains(words))
        })
}

/// What was said, as one line for a person.
fn one_line(said: &[u8]) -> String {
    let lines = said
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty());
    lines.map(escape).collect::<Vec<_>>().join("; ")
}

/// Keeps the end of what is said on standard error.
pub fn listen(stderr: ChildStderr, complaint: Complaint) {
    start("stream-err", stderr, move |mut stderr: ChildStderr| {
        let mut bytes = [0; 1024];
        while let Ok(got @ 1..) = stderr.read(&mut bytes) {
            let kept = &mut complaint.lock().0;
            kept.extend_from_slice(&bytes[..got]);
            let excess = kept.len().saturating_sub(COMPLAINT_BYTES_MAX);
            kept.drain(..excess);
        }
        complaint.lock().1 = true;
    });
}

/// What was said, for a person. The line may end before the last word is heard, so this waits for
/// that; not for ever, since a process that stays behind may keep standard error open.
pub fn words(complaint: &Complaint) -> String {
    let since = Instant::now();
    while since.elapsed() < PARTING_GRACE && !complaint.lock().1 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = complaint.lock();
    let said = one_line(&said.0);
    if said.is_empty() {
        said
    } else {
        format!(": {said}")
    }
}

/// How ssh has ended, where nobody says why: at some levels of its own log it does not.
pub fn unsaid(code: Option<i32>) -> String {
    let how = code.map_or("was killed".into(), |code| {
        format!("ended with exit code {code}")
    });
    format!(": the command of --ssh {how}, without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ssh_itself_says_that_a_login_is_refused_for_good() {
        let cases: [(Option<i32>, &[u8], bool); 7] = [
            (Some(255), b"me@far: Permission denied (publickey).\r\n", true),
            (Some(255), b"Received disconnect from far port 22:2: Too many authentication failures\r\nDisconnected\r\n", true),
            (Some(255), b"bash: /opt/site.sh: Permission denied\nssh: connect to host far port 22: timed out\r\n", false),
            (Some(255), b"bash: /opt/site.sh: Permission denied\n", false),
            (Some(1), b"me@far: Permission denied (publickey).\r\n", false),
            (None, b"me@far: Permission denied (publickey).\r\n", false),
            (Some(255), b"", false),
        ];
        for (code, said, expected) in cases {
            let complaint = Complaint::new(Mutex::new((said.to_vec(), true)));
            assert_eq!(
                is_for_good(code, &complaint),
                expected,
                "{code:?} {}",
                one_line(said)
            );
        }
    }

    #[test]
    fn missing_programs_are_known_by_their_shells_words() {
        let agent = ["sudo".to_owned(), "/opt/driftless".to_owned()];
        for (code, said, is_it) in [
            (127, "", true),
            (1, "/opt/driftless: Command not found.\n", true),
            (1, "motd\nrc: cannot find `/opt/driftless'\n", true),
            (1, "sudo: /opt/driftless: command not found\n", true),
            (1, "/opt/driftless: the disk is on fire\n", false),
            (1, "other: Command not found.\n", false),
            (255, "/opt/driftless: Command not found.\n", false),
        ] {
            let complaint = Complaint::new(Mutex::new((said.into(), true)));
            assert_eq!(
                is_missing(Some(code), &agent, &complaint),
                is_it,
                "{code} {said}"
            );
        }
    }

    #[test]
    fn shells_say_in_their_words_that_they_are_restricted() {
        for (code, said, heard, is_it) in [
            (
                1,
                "rbash: line 1: /x: restricted: cannot specify `/'\n",
                "",
                true,
            ),
            (1, "", "This account is currently not available.", true),
            (1, "", "This service allows sftp connections only.", true),
            (
                128,
                "fatal: unrecognized command 'driftless agent'\n",
                "",
                true,
            ),
            (1, "the disk is on fire\n", "", false),
            (255, "restricted\n", "", false),
        ] {
            let complaint = Complaint::new(Mutex::new((said.into(), true)));
            assert_eq!(
                is_restricted(Some(code), &complaint, heard),
                is_it,
                "{said}{heard}"
            );
        }
    }

    #[test]
    fn what_ssh_says_is_one_line_without_its_line_ends() {
        let said =
            b"Permission denied, please try again.\r\nme@far: Permission \x1bdenied.\r\n\r\n";
        assert_eq!(
            one_line(said),
            r"Permission denied, please try again.; me@far: Permission \x1bdenied."
        );
    }
}
