//! Commands of a client that have an effect on later ones, as the log of libunftp shows them.
//!
//! libunftp 0.24 keeps the number of `REST` after a transfer that failed, takes relative paths of
//! `MLST` and `STAT` for absolute ones, and cuts the last name for `CDUP`, even if it is `..`. Here is
//! what each command means (RFC 959, RFC 3659).

use crate::path::HomePath;
use std::path::{Path, PathBuf};

/// Beginning of the line of the log for each command.
const COMMAND: &str = "Control channel event Command(";
/// Rest of the line for `PROT P`.
const PRIVATE: &str = "Prot { param: Private })";

/// Rest of the line for `ABOR`.
const ABORT: &str = "Abor)";

/// Returns whether a line of the log shows `ABOR`. libunftp writes the line at once, and answers the
/// command after the transfer.
pub fn is_abort(line: &str) -> bool {
    line.strip_prefix(COMMAND) == Some(ABORT)
}

/// Effect of the commands so far.
#[derive(Debug)]
pub struct CommandState {
    is_private: bool,
    is_port_private: bool,
    restart: u64,
    is_append: bool,
    /// Working directory, as libunftp has it.
    dir: PathBuf,
    is_dir_wrong: bool,
}

impl CommandState {
    /// Returns the state at the begin of a session.
    pub fn new() -> Self {
        CommandState {
            is_private: false,
            is_port_private: false,
            restart: 0,
            is_append: false,
            dir: PathBuf::from("/"),
            is_dir_wrong: false,
        }
    }

    /// Takes a line of the log.
    pub fn note(&mut self, line: &str) {
        let Some(command) = line.strip_prefix(COMMAND) else {
            return;
        };
        let name = command.split([' ', ')']).next().unwrap_or_default();
        match name {
            "Prot" => {
                self.is_private = command == PRIVATE;
                // A port belongs to the level at which the client got it.
                self.is_port_private &= self.is_private;
            }
            "Rest" => self.restart = offset_of(command).unwrap_or_default(),
            "Appe" => self.is_append = true,
            "Stor" | "Stou" | "Retr" => self.is_append = false,
            "Cdup" => self.leave_dir(),
            _ => {}
        }
    }

    /// Decides whether the client may have a port for a data connection.
    pub fn allow_port(&mut self) -> bool {
        self.is_port_private = self.is_private;
        self.is_private
    }

    /// Returns whether the client chose `PROT P` before it got the port, and nothing else since.
    pub fn is_port_private(&self) -> bool {
        self.is_port_private
    }

    /// Takes the position for a transfer that begins: that of the last `REST`, if no transfer followed
    /// it. `APPE` has the position `end`.
    pub fn take_start(&mut self, end: u64) -> u64 {
        let restart = std::mem::take(&mut self.restart);
        match std::mem::take(&mut self.is_append) {
            true => end,
            false => restart,
        }
    }

    /// Notes that the client changed to a directory.
    pub fn enter_dir(&mut self, path: &Path) {
        self.dir.push(path);
    }

    /// Returns the absolute path of a client. Returns `None` if libunftp has another working directory
    /// than the client.
    pub fn absolute(&self, path: &Path) -> Option<PathBuf> {
        (!self.is_dir_wrong).then(|| self.dir.join(path))
    }

    /// Returns whether libunftp has another working directory than the client.
    pub fn is_dir_wrong(&self) -> bool {
        self.is_dir_wrong
    }

    fn leave_dir(&mut self) {
        let parsed = |path: &Path| {
            let path = HomePath::parse(path)?;
            Some(path.names().to_vec())
        };
        let mut above = parsed(&self.dir);
        if let Some(names) = &mut above {
            names.pop();
        }
        self.dir.pop();
        self.is_dir_wrong |= parsed(&self.dir) != above;
    }
}

fn offset_of(command: &str) -> Option<u64> {
    let digits = command
        .strip_prefix("Rest { offset: ")?
        .strip_suffix(" })")?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(commands: &[&str]) -> CommandState {
        let mut state = CommandState::new();
        for command in commands {
            match command.strip_prefix("port") {
                Some(_) => drop(state.allow_port()),
                None => state.note(&format!("{COMMAND}{command})")),
            }
        }
        state
    }

    const P: &str = "Prot { param: Private }";
    const C: &str = "Prot { param: Clear }";

    #[test]
    fn last_protection_level_counts() {
        let path = format!("Stor {{ path: {:?} }}", format!("{COMMAND}{P})"));
        let rows: [(&[&str], bool); 5] = [
            (&[], false),
            (&[C, P, "Epsv"], true),
            (&[P, C], false),
            (&[P, "Prot { param: Safe }"], false),
            (&[&path], false),
        ];
        for (commands, expected) in rows {
            assert_eq!(state(commands).allow_port(), expected, "{commands:?}");
        }
    }

    #[test]
    fn port_belongs_to_its_protection_level() {
        assert!(state(&[P, "port"]).is_port_private());
        assert!(!state(&[P, "port", C]).is_port_private());
        assert!(!state(&[P, "port", C, P]).is_port_private());
        assert!(state(&[C, P, "port", P]).is_port_private());
    }

    #[test]
    fn position_is_for_the_next_transfer() {
        let mut state = state(&["Rest { offset: 70 }", "Retr { path: \"a\" }"]);
        assert_eq!(state.take_start(70), 70);
        // The first transfer failed, so libunftp has the position still.
        assert_eq!(state.take_start(70), 0);
        state.note(&format!("{COMMAND}Appe {{ path: \"a\" }})"));
        assert_eq!(state.take_start(9), 9);
        state.note(&format!("{COMMAND}Stor {{ path: \"a\" }})"));
        assert_eq!(state.take_start(9), 0);
    }

    #[test]
    fn relative_paths_are_below_the_directory() {
        let mut state = CommandState::new();
        state.enter_dir(Path::new("/a"));
        let absolute = |state: &CommandState, path: &str| state.absolute(Path::new(path));
        assert_eq!(absolute(&state, "b"), Some("/a/b".into()));
        assert_eq!(absolute(&state, "/b"), Some("/b".into()));
        state.note(&format!("{COMMAND}Cdup)"));
        assert_eq!(absolute(&state, "b"), Some("/b".into()));
    }

    #[test]
    fn no_act_follows_a_wrong_directory() {
        let mut state = CommandState::new();
        state.enter_dir(Path::new("/a/b/.."));
        assert!(state.absolute(Path::new("x")).is_some());
        // The client is in "/" then, and libunftp in "/a/b".
        state.note(&format!("{COMMAND}Cdup)"));
        assert!(state.is_dir_wrong());
        assert_eq!(state.absolute(Path::new("x")), None);
        let mut top = CommandState::new();
        top.note(&format!("{COMMAND}Cdup)"));
        assert!(!top.is_dir_wrong());
    }
}
